//! The TCP layer of paper 3 (section III) as a library: asynchronous, driven by events, with posted work.
//!
//! ```text
//!  InterfaceAdapter ──makes──► EventDispatcher ◄──post── WorkRequest (connect, accept, send, receive, close ...)
//!   one address and              │ many end points            from its own thread, or by a Requester from another
//!   mechanism                    ▼
//!                    Event: connection requested, established, completed, ended ...
//!                                │ each exactly once
//!                                ├──► EventHandler of the same thread
//!                                └──► EventQueue ──► EventHandler on another thread: by task
//!  WorkLoop: a named thread that serves dispatchers, waiting or polling
//! ```
//!
//! It is built on [`Dispatcher`], which moves the bytes, and adds the features of the paper's layer: cookies, buffers
//! that are posted and returned, messages with user-defined boundaries, deadlines, and queues between threads. The
//! event builder's drives use dispatchers directly and need none of that.
//!
//! | Paper 3, uDAPL | Here |
//! |---|---|
//! | Interface Adapter (IA) | [`InterfaceAdapter`] |
//! | Public Service Point (PSP) | [`ServicePoint`], from [`EventDispatcher::listen`] |
//! | End Point (EP) | [`Endpoint`] |
//! | Event Dispatcher (EVD) | [`EventDispatcher`]; [`EventQueue`] where another thread takes the events |
//! | EventHandler | [`EventHandler`] |
//! | work request | [`WorkRequest`] with a [`Cookie`] |
//! | completion | [`Completion`] |
//! | waiting and polling dispatchers, workloops | [`WorkLoop`] with [`Dispatch`] |

mod dispatcher;
mod event;
pub mod framer;
mod hello;
mod threads;

use ropewalk_memory::Pool;

use crate::Dispatcher;
use crate::endpoint::{Endpoint, EndpointError, Peer, ServicePoint};
use crate::in_process::{InProcessConfig, InProcessNetwork};
use crate::simulated::{Network, SimulatedConfig};
use crate::tcp::{Tcp, TcpConfig};

pub use self::dispatcher::EventDispatcher;
pub use self::event::{
    Completion, Cookie, Ended, Event, FlushReason, PostError, Received, Refused, Requests, Setting, Task, Why, Work,
    WorkRequest,
};
pub use self::framer::{Framer, FramingError};
pub use self::threads::{Dispatch, EventQueue, Requester, RunningLoop, WorkLoop};

enum Mechanism {
    Tcp(TcpConfig),
    InProcess(InProcessNetwork, InProcessConfig),
    Simulated(Network, SimulatedConfig),
}

/// Makes event dispatchers that listen on its address.
pub struct InterfaceAdapter {
    address: String,
    mechanism: Mechanism,
    greets: bool,
}

impl InterfaceAdapter {
    /// Uses a network interface, given by its address, such as `127.0.0.1`; the configuration names the mechanism of
    /// the kernel.
    pub fn tcp(address: &str, config: TcpConfig) -> Self {
        Self { address: address.to_owned(), mechanism: Mechanism::Tcp(config), greets: false }
    }

    /// Connects threads of one process, under a name.
    pub fn in_process(name: &str, network: InProcessNetwork, config: InProcessConfig) -> Self {
        Self { address: name.to_owned(), mechanism: Mechanism::InProcess(network, config), greets: false }
    }

    /// Uses a simulated network, under a name.
    pub fn simulated(name: &str, network: Network, config: SimulatedConfig) -> Self {
        Self { address: name.to_owned(), mechanism: Mechanism::Simulated(network, config), greets: false }
    }

    /// Makes both sides greet each other with eight bytes, so that a rejection is reported as one over TCP too. Both
    /// sides need this setting, so it is for connections between Ropewalk programs only. The connecting side can post
    /// buffers after the connection is established.
    #[must_use]
    pub fn with_hello(mut self) -> Self {
        self.greets = true;
        self
    }

    /// Makes a separate dispatcher. Blocks to receive into are taken from `pool`, unless they are posted.
    ///
    /// # Errors
    /// The operating system lacks the mechanism, or has no descriptor left.
    pub fn event_dispatcher(&self, pool: Pool) -> Result<EventDispatcher, EndpointError> {
        let dispatcher: Box<dyn Dispatcher + Send> = match &self.mechanism {
            Mechanism::Tcp(config) => Box::new(Tcp::new(config.clone(), pool)?),
            Mechanism::InProcess(network, config) => {
                let made = network.dispatcher(*config).map_err(|source| EndpointError::System {
                    what: "cannot make a dispatcher for",
                    address: self.address.clone(),
                    source,
                })?;
                Box::new(made)
            }
            Mechanism::Simulated(network, config) => Box::new(network.dispatcher(*config, pool)),
        };
        EventDispatcher::new(dispatcher, &self.address, self.greets)
    }
}

/// Receives events. Methods for events of no interest may be left out. The default
/// [`connection_requested`](Self::connection_requested) rejects every connection.
#[expect(unused_variables, reason = "the names are for implementers")]
pub trait EventHandler {
    /// A peer wants to connect.
    fn connection_requested(
        &mut self,
        requests: &mut dyn Requests,
        service_point: ServicePoint,
        endpoint: Endpoint,
        peer: Peer,
    ) {
        // Fails only if it has ended meanwhile.
        let _ = requests.post(WorkRequest::Reject { endpoint });
    }

    /// A connection is established.
    fn established(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, cookie: Option<Cookie>) {}

    /// Bytes were received.
    fn received(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, received: Received) {}

    /// A message was sent.
    fn sent(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, cookie: Cookie) {}

    /// Posted work was flushed.
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

    /// A user-defined event.
    fn raised(&mut self, requests: &mut dyn Requests, cookie: Cookie) {}

    /// Passes an event to the function for its kind.
    fn handle(&mut self, event: Event, requests: &mut dyn Requests) {
        use self::event::Completion;
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
