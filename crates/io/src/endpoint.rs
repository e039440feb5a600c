//! Endpoints: the common interface of all transports, modelled on the TCP layer of paper 3, section III.
//!
//! The paper's *public service point* is a [`ServicePoint`] here, its *end point* an [`Endpoint`], its *event
//! dispatcher* a [`Dispatcher`]. Events are taken from [`Dispatcher::poll`], each exactly once. The lifetime of a
//! connection:
//!
//! ```text
//!  connect ──► Established ──► Received* ──► (Finished) ──► Disconnected   in order, by either side
//!     │             ▲                   └──► Broken         with the cause
//!     └──► ConnectFailed
//!  ConnectionRequest ──► accept ──► Established ──► as above
//!                  └───► reject     (no event follows)
//! ```
//!
//! The last event of an endpoint is `Disconnected`, `Broken` or `ConnectFailed`; none follows it. An
//! [`Endpoint`] that has ended is never mistaken for a later one: calls with it do nothing.
//!
//! A [`Parcel`] is an object that one side of a process passes to the other unchanged; [`pass_on!`](crate::pass_on)
//! generates the methods that a wrapper around a dispatcher forwards to it.

use core::fmt;
use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use ropewalk_memory::{Loan, Owner, Pool, Slice};
use ropewalk_terms::Instant;

/// A persistent listener of one dispatcher (the paper's public service point).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServicePoint(pub u32);

/// One end of a connection, as known to its dispatcher: an index into a table and a generation.
///
/// Indices are small and dense, so that users can keep their own tables by [`Endpoint::index`]; the generation
/// distinguishes successive users of an index.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint(pub u32, u32);

/// A generation that no endpoint ever has.
pub(crate) const NO_GENERATION: u32 = u32::MAX;

impl Endpoint {
    /// The endpoint with this index and generation. Dispatchers make endpoints; tests of machines may too.
    pub const fn new(index: u32, generation: u32) -> Self {
        Self(index, generation)
    }

    /// Names no endpoint.
    pub const NONE: Self = Self(u32::MAX, NO_GENERATION);

    /// The index in the dispatcher's table, counted from 0 and reused after the endpoint's end.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Number of earlier uses of the index.
    pub const fn generation(self) -> u32 {
        self.1
    }
}

/// The peer of a requested connection.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Peer {
    /// A network address.
    Address(SocketAddr),
    /// The dispatcher with this number on the same in-process or simulated network.
    Dispatcher(u32),
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(out),
            Self::Dispatcher(number) => write!(out, "dispatcher {number}"),
        }
    }
}

/// An event of a dispatcher. Events of one endpoint are in order; events of different endpoints have no order.
#[derive(Debug)]
pub enum Event {
    /// A peer wants to connect: answer with [`Dispatcher::accept`] or [`Dispatcher::reject`].
    ConnectionRequest {
        /// The service point of the request.
        service_point: ServicePoint,
        /// The endpoint of the new connection.
        endpoint: Endpoint,
        /// The requesting peer.
        peer: Peer,
    },
    /// The connection is established; both sides get this event. Sending is possible from here on.
    Established {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// Bytes arrived, cut anywhere, never empty.
    Received {
        /// The endpoint.
        endpoint: Endpoint,
        /// The bytes, in the receive pool (in-process: in the sender's pool).
        slice: Slice,
    },
    /// The peer handed over an object, behind all bytes that it sent before (in-process only).
    HandedOver {
        /// The endpoint.
        endpoint: Endpoint,
        /// The object.
        parcel: Parcel,
    },
    /// More is queued than [`SendLimits::high`]; reported once until [`Event::SendQueueLow`].
    SendQueueHigh {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// [`Dispatcher::send`] returned [`SendError::Full`] and there is now room for the refused message, or the queue
    /// was high and is low now.
    SendQueueLow {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The peer has ended its direction and can still receive: see [`Dispatcher::set_half_close`].
    Finished {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The connection ended in order: the peer closed (all its bytes were delivered before), or our own
    /// [`Dispatcher::close`] completed. The last event of the endpoint.
    Disconnected {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The connection ended out of order; data in flight are lost. The last event of the endpoint.
    Broken {
        /// The endpoint.
        endpoint: Endpoint,
        /// The cause.
        cause: BrokenCause,
    },
    /// [`Dispatcher::connect`] failed. The last event of the endpoint.
    ConnectFailed {
        /// The endpoint.
        endpoint: Endpoint,
        /// The cause.
        cause: ConnectCause,
    },
}

impl Event {
    /// The endpoint of the event.
    pub const fn endpoint(&self) -> Endpoint {
        match self {
            Self::ConnectionRequest { endpoint, .. }
            | Self::Established { endpoint }
            | Self::Received { endpoint, .. }
            | Self::HandedOver { endpoint, .. }
            | Self::SendQueueHigh { endpoint }
            | Self::SendQueueLow { endpoint }
            | Self::Finished { endpoint }
            | Self::Disconnected { endpoint }
            | Self::Broken { endpoint, .. }
            | Self::ConnectFailed { endpoint, .. } => *endpoint,
        }
    }

    /// Whether this is the last event of its endpoint.
    pub const fn is_last(&self) -> bool {
        matches!(self, Self::Disconnected { .. } | Self::Broken { .. } | Self::ConnectFailed { .. })
    }
}

/// Cause of a broken connection.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum BrokenCause {
    /// The peer reset the connection, ended, or rejected it after the kernel had accepted it.
    Reset,
    /// The peer did not answer within the time limit.
    TimedOut,
    /// The network reports that the peer cannot be reached.
    Unreachable,
    /// An endpoint over io_uring needs a page that is locked in memory, and the user may lock no more.
    LockedMemory,
    /// Any other error of the operating system, by its number (`errno`).
    System(i32),
}

impl fmt::Display for BrokenCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset => out.write_str("connection reset by the peer"),
            Self::TimedOut => out.write_str("the peer did not answer in time"),
            Self::Unreachable => out.write_str("the peer cannot be reached"),
            Self::LockedMemory => out.write_str(
                "the user may lock no more memory, of which each connection over io_uring needs a page; raise the limit \
                 (ulimit -l, LimitMEMLOCK=) or use epoll",
            ),
            Self::System(number) => std::io::Error::from_raw_os_error(*number).fmt(out),
        }
    }
}

/// Cause of a failed connection attempt.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum ConnectCause {
    /// There is no listener.
    Refused,
    /// The owner of the service point rejected the request (in-process and simulated; over TCP the peer
    /// of a rejected connection sees `Established`, then [`BrokenCause::Reset`]).
    Rejected,
    /// The peer did not answer in time.
    TimedOut,
    /// The network reports that the peer cannot be reached.
    Unreachable,
    /// Any other error of the operating system, by its number (`errno`).
    System(i32),
}

impl fmt::Display for ConnectCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => out.write_str("there is no listener"),
            Self::Rejected => out.write_str("the peer rejected the connection"),
            Self::TimedOut => out.write_str("no answer in time"),
            Self::Unreachable => out.write_str("the peer cannot be reached"),
            Self::System(number) => std::io::Error::from_raw_os_error(*number).fmt(out),
        }
    }
}

/// Error of starting a listener or a connection.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address has a wrong form.
    #[error("`{address}` is not an address: {expected}")]
    BadAddress {
        /// The given address.
        address: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The system finds no address for this name.
    #[error("the name `{name}` in `{address}` does not resolve: {source}")]
    NoSuchName {
        /// The name.
        name: String,
        /// The given address.
        address: String,
        /// The error of the system's resolver.
        source: std::io::Error,
    },
    /// Another program listens at this address.
    #[error("cannot listen on {address}: the address is taken; choose another port, or 0 for any free one")]
    AddressInUse {
        /// The given address.
        address: String,
    },
    /// A system call failed.
    #[error("{what} {address}: {source}")]
    System {
        /// The attempted operation, for example `cannot listen on`.
        what: &'static str,
        /// The given address.
        address: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Reason why a message was not queued. Nothing was taken from it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum SendError {
    /// The send queue has no room for the message; [`Event::SendQueueLow`] follows when there is room.
    #[error("the send queue is full")]
    Full,
    /// The endpoint is not established, is closing, or has ended.
    #[error("the endpoint is closed")]
    Closed,
}

/// Limits of one endpoint's send queue, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SendLimits {
    /// A message that would exceed this is refused, unless the queue is empty.
    pub bound: usize,
    /// [`Event::SendQueueHigh`] follows when the queue reaches this length.
    pub high: usize,
    /// [`Event::SendQueueLow`] follows when the queue shrinks to this length again.
    pub low: usize,
}

impl SendLimits {
    /// Limits without a warning before a message is refused; low is half.
    pub const fn up_to(bound: usize) -> Self {
        Self { bound, high: usize::MAX, low: bound / 2 }
    }
}

/// Serves many endpoints from one thread: calls never block, results are events.
pub trait Dispatcher {
    /// Opens a service point. TCP: `host:port`, port 0 for any free one; in-process and simulated: a name, in which a
    /// trailing `:0` is replaced by `:` and a free number. Over TCP, waits up to a second for a port in use, which may
    /// belong to a process that has just been killed.
    fn listen(&mut self, address: &str) -> Result<ServicePoint, EndpointError>;

    /// The service point's bound address, with the port filled in.
    fn address_of(&self, service_point: ServicePoint) -> Option<String>;

    /// Begins to connect; [`Event::Established`] or [`Event::ConnectFailed`] follows.
    fn connect(&mut self, address: &str) -> Result<Endpoint, EndpointError>;

    /// Uses a connected stream socket, such as one of a local pair, as an endpoint; [`Event::Established`] follows.
    /// Bytes that a program or a thread writes into the pair's other end are received as over a connection.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking; or the transport has no sockets (all except TCP).
    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Endpoint> {
        drop(socket);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Accepts a requested connection; [`Event::Established`] follows on both sides.
    fn accept(&mut self, endpoint: Endpoint);

    /// Rejects a requested connection; no event follows on this side.
    fn reject(&mut self, endpoint: Endpoint);

    /// Sets the owner whose quota of the receive pool the endpoint uses, from its next block on ([`Owner::SHARED`] at
    /// first).
    fn set_owner(&mut self, endpoint: Endpoint, owner: Owner);

    /// The receive pool; `None` if slices are handed over unchanged (in-process).
    fn pool(&self) -> Option<&Pool>;

    /// The receive pool, to reserve quotas in.
    fn pool_mut(&mut self) -> Option<&mut Pool>;

    /// Receives into this block, behind blocks that were posted before. From the first posted block on the endpoint
    /// receives only into posted blocks, fills each to its last byte, and waits when none is left
    /// ([`is_dry`](Self::is_dry)). Blocks that are not filled when the endpoint ends are returned to their pool.
    ///
    /// # Errors
    /// Returns the block if the endpoint has ended, or if its bytes arrive in the peer's own blocks (in-process).
    fn post_block(&mut self, endpoint: Endpoint, block: Loan) -> Result<(), Loan>;

    /// Sets whether the endpoint is read (true at first). While it is not, the transport's own window closes and the
    /// peer's send queue fills: this is the back-pressure.
    fn set_reading(&mut self, endpoint: Endpoint, reading: bool);

    /// Whether bytes may wait although nothing is received, because the owner's quota is used up. Reading continues by
    /// itself when blocks come back, or when another owner has some.
    fn is_dry(&self, endpoint: Endpoint) -> bool;

    /// Copies the first waiting bytes to `head`, as many as have arrived and fit, and returns their number. Takes
    /// nothing: the bytes are received afterwards as if without this call. Needs no block, so that an endpoint whose
    /// owner has none ([`is_dry`](Self::is_dry)) can be examined; for others it may return 0. `None` if nothing waits
    /// and nothing will arrive, because the peer has ended or the connection is broken: the endpoint should be closed.
    fn peek(&mut self, endpoint: Endpoint, head: &mut [u8]) -> Option<usize>;

    /// Whether the peer has closed its side, although bytes sent before may still wait; false if the transport cannot
    /// tell.
    fn peer_has_ended(&self, endpoint: Endpoint) -> bool;

    /// Whether bytes have arrived that were not received yet; false if the transport cannot tell.
    fn has_waiting(&self, endpoint: Endpoint) -> bool;

    /// Queues a message, whole or not at all; an empty queue accepts any size. The slices are taken out of the vector,
    /// whose capacity stays with the caller. Nothing is sent before the next [`poll`](Self::poll), so that messages are
    /// joined.
    fn send(&mut self, endpoint: Endpoint, message: &mut Vec<Slice>) -> Result<(), SendError>;

    /// Whether the peers are in the same process, so that [`hand_over`](Self::hand_over) works.
    fn hands_over(&self) -> bool {
        false
    }

    /// Queues an object behind everything that was queued before. It is handed over unchanged: nothing is encoded.
    ///
    /// # Errors
    /// Returns the parcel with the reason: as for [`send`](Self::send), and [`SendError::Closed`] if the peer is in
    /// another process.
    fn hand_over(&mut self, endpoint: Endpoint, parcel: Parcel) -> Result<(), (SendError, Parcel)> {
        let _ = endpoint;
        Err((SendError::Closed, parcel))
    }

    /// Sets the limits of the send queue from now on; queued messages stay.
    fn set_send_limits(&mut self, endpoint: Endpoint, limits: SendLimits);

    /// Bytes that the send queue accepts before it returns [`SendError::Full`]; 0 for an endpoint that has ended.
    fn send_room(&self, endpoint: Endpoint) -> usize;

    /// Bytes queued and not yet taken by the transport (in-process: by the peer).
    fn queued(&self, endpoint: Endpoint) -> usize;

    /// Sets whether the endpoint outlives the end of the peer's direction (false at first). If so, that end is reported
    /// by [`Event::Finished`], sending continues, and the endpoint ends with [`finish`](Self::finish) or
    /// [`close`](Self::close). If not, it ends the endpoint.
    fn set_half_close(&mut self, endpoint: Endpoint, half_close: bool);

    /// Sends the queue, then ends the own direction. The peer's remaining bytes are received to their end, and
    /// [`Event::Disconnected`] follows.
    fn finish(&mut self, endpoint: Endpoint);

    /// Sends the queue, then closes; [`Event::Disconnected`] follows when the peer has closed too. The peer's remaining
    /// bytes are discarded.
    fn close(&mut self, endpoint: Endpoint);

    /// Drops the queue and ends the connection at once; the peer sees [`BrokenCause::Reset`]. No event follows on this
    /// side.
    fn abort(&mut self, endpoint: Endpoint);

    /// Does the work that is possible now and appends the resulting events to `events`. Never blocks; the work of one
    /// call is bounded for each endpoint, so that none starves. Returns the amount of work done, 0 for none.
    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize;

    /// Prepares the thread for sleep. False if [`poll`](Self::poll) has something to do right now; otherwise arms the
    /// wake-up of [`wait_descriptor`](Self::wait_descriptor).
    fn prepare_wait(&mut self) -> bool;

    /// Becomes readable when `poll` has something to do. `None` for simulated dispatchers, where only time passes.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The mechanism's own way to sleep, for a thread that serves only this dispatcher, if it has one.
    fn own_wait(&mut self) -> Option<&mut dyn OwnWait> {
        None
    }

    /// Time at which `poll` has something to do even if the descriptor stays silent.
    fn next_deadline(&self) -> Option<Instant>;
}

/// A dispatcher's own way to sleep: the system call that reports ready sockets also waits for them. A thread that
/// serves only this dispatcher is woken directly, and need not ask again when it wakes.
pub trait OwnWait {
    /// Lets a bell end the sleep from now on, as long as both it and the dispatcher exist.
    ///
    /// # Errors
    /// An error of the operating system.
    fn watch(&mut self, bell: BorrowedFd<'_>) -> io::Result<()>;

    /// Sleeps like [`Waiter::wait`](crate::wait::Waiter::wait), until the dispatcher has something to do or a bell was
    /// rung. A bell that was rung since the last sleep ends this one, also after other calls in between.
    fn wait(&mut self, timeout: Option<Duration>) -> bool;
}

/// An object in flight between two endpoints of one process, and its size in the send queue.
///
/// The sender and the receiver agree on its type; the endpoints use only the size. An emptied parcel may be sent back
/// over the same connection and be filled again, so that nothing is allocated while data flow.
pub struct Parcel {
    content: Box<dyn Any + Send>,
    bytes: usize,
}

impl Parcel {
    /// Makes a parcel that counts as `bytes` bytes until the peer has taken it.
    pub fn new<T: Any + Send>(content: Box<T>, bytes: usize) -> Self {
        Self { content, bytes }
    }

    /// Number of bytes that it counts as.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the content, if it has this type.
    ///
    /// # Errors
    /// Returns the parcel unchanged if its content has another type.
    pub fn open<T: Any>(self) -> Result<Box<T>, Self> {
        let Self { content, bytes } = self;
        content.downcast().map_err(|content| Self { content, bytes })
    }
}

impl core::fmt::Debug for Parcel {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Parcel({} bytes)", self.bytes)
    }
}

/// Generates the named methods of [`Dispatcher`](crate::Dispatcher): each calls the dispatcher in the field that is
/// named first. A wrapper thus implements only its own methods, and names the rest:
///
/// ```text
/// impl Dispatcher for Wrapper {
///     ropewalk_io::pass_on!(inner: listen, address_of, connect);
///
///     fn accept(&mut self, endpoint: Endpoint) { ... }
/// }
/// ```
#[macro_export]
macro_rules! pass_on {
    ($inner:ident: $($method:ident),+ $(,)?) => { $($crate::pass_on! { @$method $inner })+ };
    (@listen $inner:ident) => {
        fn listen(&mut self, address: &str) -> Result<$crate::ServicePoint, $crate::EndpointError> {
            self.$inner.listen(address)
        }
    };
    (@address_of $inner:ident) => {
        fn address_of(&self, service_point: $crate::ServicePoint) -> Option<String> {
            self.$inner.address_of(service_point)
        }
    };
    (@connect $inner:ident) => {
        fn connect(&mut self, address: &str) -> Result<$crate::Endpoint, $crate::EndpointError> {
            self.$inner.connect(address)
        }
    };
    (@adopt $inner:ident) => {
        fn adopt(&mut self, socket: ::std::os::fd::OwnedFd) -> ::std::io::Result<$crate::Endpoint> {
            self.$inner.adopt(socket)
        }
    };
    (@accept $inner:ident) => {
        fn accept(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.accept(endpoint);
        }
    };
    (@reject $inner:ident) => {
        fn reject(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.reject(endpoint);
        }
    };
    (@set_owner $inner:ident) => {
        fn set_owner(&mut self, endpoint: $crate::Endpoint, owner: ::ropewalk_memory::Owner) {
            self.$inner.set_owner(endpoint, owner);
        }
    };
    (@pool $inner:ident) => {
        fn pool(&self) -> Option<&::ropewalk_memory::Pool> {
            self.$inner.pool()
        }
    };
    (@pool_mut $inner:ident) => {
        fn pool_mut(&mut self) -> Option<&mut ::ropewalk_memory::Pool> {
            self.$inner.pool_mut()
        }
    };
    (@post_block $inner:ident) => {
        fn post_block(&mut self, endpoint: $crate::Endpoint, block: ::ropewalk_memory::Loan) -> Result<(), ::ropewalk_memory::Loan> {
            self.$inner.post_block(endpoint, block)
        }
    };
    (@set_reading $inner:ident) => {
        fn set_reading(&mut self, endpoint: $crate::Endpoint, reading: bool) {
            self.$inner.set_reading(endpoint, reading);
        }
    };
    (@is_dry $inner:ident) => {
        fn is_dry(&self, endpoint: $crate::Endpoint) -> bool {
            self.$inner.is_dry(endpoint)
        }
    };
    (@has_waiting $inner:ident) => {
        fn has_waiting(&self, endpoint: $crate::Endpoint) -> bool {
            self.$inner.has_waiting(endpoint)
        }
    };
    (@peer_has_ended $inner:ident) => {
        fn peer_has_ended(&self, endpoint: $crate::Endpoint) -> bool {
            self.$inner.peer_has_ended(endpoint)
        }
    };
    (@peek $inner:ident) => {
        fn peek(&mut self, endpoint: $crate::Endpoint, head: &mut [u8]) -> Option<usize> {
            self.$inner.peek(endpoint, head)
        }
    };
    (@send $inner:ident) => {
        fn send(&mut self, endpoint: $crate::Endpoint, message: &mut Vec<::ropewalk_memory::Slice>) -> Result<(), $crate::SendError> {
            self.$inner.send(endpoint, message)
        }
    };
    (@hands_over $inner:ident) => {
        fn hands_over(&self) -> bool {
            self.$inner.hands_over()
        }
    };
    (@hand_over $inner:ident) => {
        fn hand_over(&mut self, endpoint: $crate::Endpoint, parcel: $crate::Parcel) -> Result<(), ($crate::SendError, $crate::Parcel)> {
            self.$inner.hand_over(endpoint, parcel)
        }
    };
    (@set_send_limits $inner:ident) => {
        fn set_send_limits(&mut self, endpoint: $crate::Endpoint, limits: $crate::SendLimits) {
            self.$inner.set_send_limits(endpoint, limits);
        }
    };
    (@send_room $inner:ident) => {
        fn send_room(&self, endpoint: $crate::Endpoint) -> usize {
            self.$inner.send_room(endpoint)
        }
    };
    (@queued $inner:ident) => {
        fn queued(&self, endpoint: $crate::Endpoint) -> usize {
            self.$inner.queued(endpoint)
        }
    };
    (@set_half_close $inner:ident) => {
        fn set_half_close(&mut self, endpoint: $crate::Endpoint, half_close: bool) {
            self.$inner.set_half_close(endpoint, half_close);
        }
    };
    (@finish $inner:ident) => {
        fn finish(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.finish(endpoint);
        }
    };
    (@close $inner:ident) => {
        fn close(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.close(endpoint);
        }
    };
    (@abort $inner:ident) => {
        fn abort(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.abort(endpoint);
        }
    };
    (@poll $inner:ident) => {
        fn poll(&mut self, now: ::ropewalk_terms::Instant, events: &mut Vec<$crate::Event>) -> usize {
            self.$inner.poll(now, events)
        }
    };
    (@prepare_wait $inner:ident) => {
        fn prepare_wait(&mut self) -> bool {
            self.$inner.prepare_wait()
        }
    };
    (@wait_descriptor $inner:ident) => {
        fn wait_descriptor(&self) -> Option<::std::os::fd::BorrowedFd<'_>> {
            self.$inner.wait_descriptor()
        }
    };
    (@own_wait $inner:ident) => {
        fn own_wait(&mut self) -> Option<&mut dyn $crate::endpoint::OwnWait> {
            self.$inner.own_wait()
        }
    };
    (@next_deadline $inner:ident) => {
        fn next_deadline(&self) -> Option<::ropewalk_terms::Instant> {
            self.$inner.next_deadline()
        }
    };
}
