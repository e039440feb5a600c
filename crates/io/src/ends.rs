//! Which of an endpoint's two directions have ended, while it is open.
//!
//! ```text
//!            own: Open --finish--> Wanted --all is sent--> Shut
//!   the peer's ends:   half-close: told, sending goes on        both have ended: the endpoint's end
//!                      otherwise: the endpoint's end, unless what is queued is still to be sent
//! ```

use crate::endpoint::{Endpoint, Event};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum OwnEnd {
    Open,
    /// [`Dispatcher::finish`](crate::Dispatcher::finish) was called: what is queued is sent first.
    Wanted,
    Shut,
}

/// The ends of an endpoint's directions.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ends {
    half_close: bool,
    own: OwnEnd,
    /// Everything of the peer's direction was received.
    peer_finished: bool,
}

impl Ends {
    pub(crate) const fn new() -> Self {
        Self { half_close: false, own: OwnEnd::Open, peer_finished: false }
    }

    /// Whether the endpoint outlives the end of the peer's direction.
    pub(crate) const fn set_half_close(&mut self, half_close: bool) {
        self.half_close = half_close;
    }

    /// What is queued is the last that is sent.
    pub(crate) fn finish(&mut self) {
        if self.own == OwnEnd::Open {
            self.own = OwnEnd::Wanted;
        }
    }

    /// Whether messages are taken.
    pub(crate) fn may_send(&self) -> bool {
        self.own == OwnEnd::Open
    }

    /// Whether something can still come.
    pub(crate) const fn may_receive(&self) -> bool {
        !self.peer_finished
    }

    /// Whether the own direction is to be ended now, where everything is sent.
    pub(crate) fn must_shut(&self, is_sent: bool) -> bool {
        self.own == OwnEnd::Wanted && is_sent
    }

    /// The own direction has been ended.
    pub(crate) const fn shut(&mut self) {
        self.own = OwnEnd::Shut;
    }

    /// Everything of the peer's direction was received; tells so where the endpoint goes on all the same.
    pub(crate) fn peer_ended(&mut self, endpoint: Endpoint, events: &mut Vec<Event>) {
        if !self.peer_finished && self.half_close && self.own == OwnEnd::Open {
            events.push(Event::Finished { endpoint });
        }
        self.peer_finished = true;
    }

    /// Both directions have ended, or nobody wants to go on with the own one.
    pub(crate) fn are_over(&self) -> bool {
        self.peer_finished
            && match self.own {
                OwnEnd::Open => !self.half_close,
                OwnEnd::Wanted => false,
                OwnEnd::Shut => true,
            }
    }
}
