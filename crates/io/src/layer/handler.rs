//! What a user does about events.

use super::event::{Ended, Event, FlushReason, Received, Work};
use super::request::{Cookie, Requests, WorkRequest};
use crate::endpoint::{Endpoint, Peer, ServicePoint};

/// Takes events. Whatever is not of interest can be left out; whoever does not override
/// [`connection_requested`](Self::connection_requested) rejects everybody.
#[expect(unused_variables, reason = "the names are for those who override")]
pub trait EventHandler {
    /// Somebody wants to connect.
    fn connection_requested(
        &mut self,
        requests: &mut dyn Requests,
        service_point: ServicePoint,
        endpoint: Endpoint,
        peer: Peer,
    ) {
        // It can only have ended meanwhile.
        let _ = requests.post(WorkRequest::Reject { endpoint });
    }

    /// A connection stands.
    fn established(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, cookie: Option<Cookie>) {}

    /// Bytes have come.
    fn received(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, received: Received) {}

    /// A message was sent.
    fn sent(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, cookie: Cookie) {}

    /// Posted work will not be done.
    fn flushed(
        &mut self,
        requests: &mut dyn Requests,
        endpoint: Endpoint,
        cookie: Cookie,
        work: Work,
        reason: FlushReason,
    ) {
    }

    /// The send queue is high.
    fn queue_high(&mut self, requests: &mut dyn Requests, endpoint: Endpoint) {}

    /// There is room in the send queue again.
    fn queue_low(&mut self, requests: &mut dyn Requests, endpoint: Endpoint) {}

    /// The peer has ended its direction.
    fn finished(&mut self, requests: &mut dyn Requests, endpoint: Endpoint) {}

    /// An end point has ended.
    fn ended(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, cookie: Option<Cookie>, how: Ended) {}

    /// An event of the user's own.
    fn raised(&mut self, requests: &mut dyn Requests, cookie: Cookie) {}

    /// Takes an event; hands it to the function for its kind.
    fn handle(&mut self, event: Event, requests: &mut dyn Requests) {
        use super::event::Completion;
        match event {
            Event::ConnectionRequested { service_point, endpoint, peer } => {
                self.connection_requested(requests, service_point, endpoint, peer);
            }
            Event::Established { endpoint, cookie } => self.established(requests, endpoint, cookie),
            Event::Completed { endpoint, completion } => match completion {
                Completion::Sent { cookie } => self.sent(requests, endpoint, cookie),
                Completion::Received(received) => self.received(requests, endpoint, received),
                Completion::Flushed { cookie, work, reason } => self.flushed(requests, endpoint, cookie, work, reason),
            },
            Event::QueueHigh { endpoint } => self.queue_high(requests, endpoint),
            Event::QueueLow { endpoint } => self.queue_low(requests, endpoint),
            Event::Finished { endpoint } => self.finished(requests, endpoint),
            Event::Ended { endpoint, cookie, how } => self.ended(requests, endpoint, cookie, how),
            Event::Raised { cookie } => self.raised(requests, cookie),
        }
    }
}
