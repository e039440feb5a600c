//! TCP endpoints, over whichever mechanism of the kernel the configuration names.
//!
//! ```text
//!  Tcp ─► readiness: epoll | poll | select      asks what is ready, then reads and writes
//!     └─► uring                                 hands operations over, and takes what has been done
//! ```

mod choice;
mod config;
mod readiness;
mod socket;
mod timers;
mod uring;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use ropewalk_memory::{Loan, Owner, Pool, Slice};
use ropewalk_terms::Instant;

pub use self::choice::Choice;
pub use self::config::{Mechanism, TcpConfig, UnknownMechanism};

use self::readiness::{Epoll, Poll, ReadyTcp, Select};
use self::uring::{Ring, UringTcp};
use crate::endpoint::{Dispatcher, Endpoint, EndpointError, Event, SendError, SendLimits, ServicePoint};
use crate::parcel::Parcel;
use crate::wait::OwnWait;

/// A dispatcher of TCP endpoints with its receive pool.
pub struct Tcp {
    inner: Box<dyn Dispatcher + Send>,
    choice: Choice,
    congestion_control: Option<String>,
}

impl Tcp {
    /// A dispatcher that receives into `pool`.
    ///
    /// # Errors
    /// The kernel lacks the mechanism, or the process has no descriptor left.
    pub fn new(mut config: TcpConfig, pool: Pool) -> Result<Self, EndpointError> {
        config.congestion_control = config.congestion_control.filter(|name| socket::has_congestion_control(name));
        let congestion_control = config.congestion_control.clone();
        let failed = |mechanism: Mechanism| {
            let address = format!("a dispatcher over {mechanism}");
            move |source| EndpointError::System { what: "cannot make", address, source }
        };
        let (choice, ring) = Choice::make(config.mechanism, Ring::new).map_err(failed(config.mechanism))?;
        let inner: std::io::Result<Box<dyn Dispatcher + Send>> = match (choice.mechanism, ring) {
            (_, Some(ring)) => boxed(UringTcp::new(config, ring, pool)),
            (Mechanism::Poll, None) => boxed(ReadyTcp::<Poll>::new(config, pool)),
            (Mechanism::Select, None) => boxed(ReadyTcp::<Select>::new(config, pool)),
            (_, None) => boxed(ReadyTcp::<Epoll>::new(config, pool)),
        };
        let inner = inner.map_err(failed(choice.mechanism))?;
        Ok(Self { inner, choice, congestion_control })
    }

    /// The mechanism in use, and why it is that one.
    pub const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The congestion control that the sockets get; `None` if they keep the system's.
    pub fn congestion_control(&self) -> Option<&str> {
        self.congestion_control.as_deref()
    }
}

fn boxed<D: Dispatcher + Send + 'static>(made: std::io::Result<D>) -> std::io::Result<Box<dyn Dispatcher + Send>> {
    made.map(|dispatcher| Box::new(dispatcher) as Box<dyn Dispatcher + Send>)
}

/// Everything is done by the mechanism.
impl Dispatcher for Tcp {
    fn listen(&mut self, address: &str) -> Result<ServicePoint, EndpointError> {
        self.inner.listen(address)
    }

    fn address_of(&self, service_point: ServicePoint) -> Option<String> {
        self.inner.address_of(service_point)
    }

    fn connect(&mut self, address: &str) -> Result<Endpoint, EndpointError> {
        self.inner.connect(address)
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Endpoint> {
        self.inner.adopt(socket)
    }

    fn accept(&mut self, endpoint: Endpoint) {
        self.inner.accept(endpoint);
    }

    fn reject(&mut self, endpoint: Endpoint) {
        self.inner.reject(endpoint);
    }

    fn set_owner(&mut self, endpoint: Endpoint, owner: Owner) {
        self.inner.set_owner(endpoint, owner);
    }

    fn pool(&self) -> Option<&Pool> {
        self.inner.pool()
    }

    fn pool_mut(&mut self) -> Option<&mut Pool> {
        self.inner.pool_mut()
    }

    fn post_block(&mut self, endpoint: Endpoint, block: Loan) -> Result<(), Loan> {
        self.inner.post_block(endpoint, block)
    }

    fn set_reading(&mut self, endpoint: Endpoint, reading: bool) {
        self.inner.set_reading(endpoint, reading);
    }

    fn is_dry(&self, endpoint: Endpoint) -> bool {
        self.inner.is_dry(endpoint)
    }

    fn peek(&mut self, endpoint: Endpoint, head: &mut [u8]) -> Option<usize> {
        self.inner.peek(endpoint, head)
    }

    fn send(&mut self, endpoint: Endpoint, message: &mut Vec<Slice>) -> Result<(), SendError> {
        self.inner.send(endpoint, message)
    }

    fn hands_over(&self) -> bool {
        self.inner.hands_over()
    }

    fn hand_over(&mut self, endpoint: Endpoint, parcel: Parcel) -> Result<(), (SendError, Parcel)> {
        self.inner.hand_over(endpoint, parcel)
    }

    fn set_send_limits(&mut self, endpoint: Endpoint, limits: SendLimits) {
        self.inner.set_send_limits(endpoint, limits);
    }

    fn send_room(&self, endpoint: Endpoint) -> usize {
        self.inner.send_room(endpoint)
    }

    fn queued(&self, endpoint: Endpoint) -> usize {
        self.inner.queued(endpoint)
    }

    fn set_half_close(&mut self, endpoint: Endpoint, half_close: bool) {
        self.inner.set_half_close(endpoint, half_close);
    }

    fn finish(&mut self, endpoint: Endpoint) {
        self.inner.finish(endpoint);
    }

    fn close(&mut self, endpoint: Endpoint) {
        self.inner.close(endpoint);
    }

    fn abort(&mut self, endpoint: Endpoint) {
        self.inner.abort(endpoint);
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        self.inner.poll(now, events)
    }

    fn prepare_wait(&mut self) -> bool {
        self.inner.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_descriptor()
    }

    fn own_wait(&mut self) -> Option<&mut dyn OwnWait> {
        self.inner.own_wait()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }
}
