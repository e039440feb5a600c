//! Work requests to an event dispatcher, and its events.

use std::time::Duration;

use ropewalk_memory::{Loan, Owner, Payload};

use super::framer::{Framer, FramingError};
use crate::endpoint::{BrokenCause, ConnectCause, Endpoint, EndpointError, Peer, SendLimits, ServicePoint};

/// An event. Each is taken exactly once; those of one end point and one [`Task`] are in order.
#[derive(Debug)]
pub enum Event {
    /// A peer wants to connect: accept or reject.
    ConnectionRequested {
        /// The service point of the request.
        service_point: ServicePoint,
        /// The end point of the new connection.
        endpoint: Endpoint,
        /// The requesting peer.
        peer: Peer,
    },
    /// The connection is established; both sides get this event.
    Established {
        /// The end point.
        endpoint: Endpoint,
        /// The cookie of the connect request; `None` on the side that accepted.
        cookie: Option<Cookie>,
    },
    /// Posted work has completed, or provided buffers have received bytes.
    Completed {
        /// The end point.
        endpoint: Endpoint,
        /// The completion.
        completion: Completion,
    },
    /// The send queue is high: post less.
    QueueHigh {
        /// The end point.
        endpoint: Endpoint,
    },
    /// There is room in the send queue again.
    QueueLow {
        /// The end point.
        endpoint: Endpoint,
    },
    /// The peer has ended its direction, and the end point continues.
    Finished {
        /// The end point.
        endpoint: Endpoint,
    },
    /// The end point has ended: reported once, after everything that was posted has been returned.
    Ended {
        /// The end point.
        endpoint: Endpoint,
        /// The cookie of the connect request; `None` on the side that accepted.
        cookie: Option<Cookie>,
        /// The way it ended.
        how: Ended,
    },
    /// The user's own event: see [`WorkRequest::Raise`](super::WorkRequest::Raise).
    Raised {
        /// As passed.
        cookie: Cookie,
    },
}

/// The task that may take an event, if several threads share the work (paper 3, III-A: a thread for each task).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// Connections that are made, end or fail; marks; the user's own events.
    Connections = 0,
    /// Received bytes, and buffers that are returned unfilled.
    Receives = 1,
    /// Messages that were sent or flushed.
    Sends = 2,
}

impl Event {
    /// The task of the event.
    pub const fn task(&self) -> Task {
        match self {
            Self::Completed { completion: Completion::Sent { .. }, .. }
            | Self::Completed { completion: Completion::Flushed { work: Work::Send, .. }, .. } => Task::Sends,
            Self::Completed { .. } => Task::Receives,
            _ => Task::Connections,
        }
    }
}

/// The completion of posted work.
#[derive(Debug)]
pub enum Completion {
    /// The transport has taken the message; its slices are free.
    Sent {
        /// The cookie of the send request.
        cookie: Cookie,
    },
    /// Bytes were received.
    Received(Received),
    /// The end point ended first; a message's slices and a buffer's memory are back in their pools.
    Flushed {
        /// The cookie of the request.
        cookie: Cookie,
        /// The kind of the request.
        work: Work,
        /// The reason.
        reason: FlushReason,
    },
}

/// A kind of posted work that can be flushed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// A message; it is not known how much of it was sent.
    Send,
    /// A buffer into which no more bytes are received.
    Receive,
}

/// Reason for flushing posted work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FlushReason {
    /// The connection ended in order.
    Disconnected,
    /// The connection broke.
    Broken(BrokenCause),
    /// The own side closed or aborted.
    Closed,
    /// A request from another thread that the dispatcher could not take.
    Refused,
}

/// Received bytes.
#[derive(Debug)]
pub struct Received {
    /// The cookie of the posted buffer that contains them; `None` if the dispatcher provides the buffers.
    pub cookie: Option<Cookie>,
    /// The bytes, where they were received. With posted buffers in one piece; otherwise a chain.
    pub payload: Payload,
    /// Reason why they are reported now.
    pub why: Why,
    /// Whether the buffer is returned: nothing more is received into it. Its memory returns to its pool with the last
    /// slice.
    pub is_last: bool,
}

/// Reason why bytes are reported now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The buffer is full.
    Full,
    /// A message ends here.
    Boundary,
    /// The deadline has passed.
    Deadline,
    /// The connection has ended; with a framer, in the middle of a message.
    End,
}

/// The way an end point ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// In order, by either side.
    Disconnected,
    /// Out of order.
    Broken(BrokenCause),
    /// It was never established: refused, rejected, timed out, unreachable.
    NotConnected(ConnectCause),
    /// The framer found no valid message.
    Framing(FramingError),
    /// The own side aborted.
    Aborted,
}

/// A value that a user passes with a work request, and gets back when it completes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cookie(pub u64);

/// Work for an event dispatcher. Each request with a cookie completes exactly once: see
/// [`Completion`](super::Completion), and [`Event::Ended`](super::Event::Ended) for connecting.
#[derive(Debug)]
pub enum WorkRequest {
    /// Connects to a service point; `Established` or `Ended` follows, with the cookie.
    Connect {
        /// In the form of [`Dispatcher::connect`](crate::Dispatcher::connect).
        address: String,
        /// Returned with the end point that was made for it.
        cookie: Cookie,
    },
    /// Accepts a requested connection; `Established` follows.
    Accept {
        /// The end point of the request.
        endpoint: Endpoint,
    },
    /// Rejects a requested connection; nothing follows.
    Reject {
        /// The end point of the request.
        endpoint: Endpoint,
    },
    /// Sends a message behind those before it. It completes when the transport has taken it.
    Send {
        /// The receiver.
        endpoint: Endpoint,
        /// The message; sent without a copy.
        message: Payload,
        /// Returned when the message is sent or flushed.
        cookie: Cookie,
    },
    /// Receives into this buffer, behind those before it. From the first one on, the end point receives only into
    /// posted buffers; without any, blocks of the dispatcher's pool are provided, recycled and never freed.
    Receive {
        /// The sender.
        endpoint: Endpoint,
        /// The buffer.
        buffer: Loan,
        /// Returned with everything that is received into it.
        cookie: Cookie,
    },
    /// Changes a setting of an end point.
    Set {
        /// The end point.
        endpoint: Endpoint,
        /// The setting.
        setting: Setting,
    },
    /// Ends the own direction behind the queue, and continues to receive.
    Finish {
        /// The end point.
        endpoint: Endpoint,
    },
    /// Closes in order, behind the queue. Bytes that still arrive are discarded.
    Close {
        /// The end point.
        endpoint: Endpoint,
    },
    /// Ends at once; posted work is flushed.
    Abort {
        /// The end point.
        endpoint: Endpoint,
    },
    /// Returned as [`Event::Raised`](super::Event::Raised): the user's own event, in order with the others.
    Raise {
        /// Returned with the event.
        cookie: Cookie,
    },
}

/// A setting of an end point.
pub enum Setting {
    /// Finds the ends of messages; without a framer, bytes are reported as they arrive.
    Framer(Box<dyn Framer>),
    /// Time after which bytes are reported that do not fill a buffer or end a message. The default is zero: they are
    /// reported with the turn in which they arrived.
    Deadline(Duration),
    /// Whether it is read. While it is not, the peer gets back-pressure.
    Reading(bool),
    /// Whether it outlives the end of the peer's direction.
    HalfClose(bool),
    /// Limits of the send queue, and the lengths at which it is reported as high and low.
    SendLimits(SendLimits),
    /// The owner whose quota of the dispatcher's pool provides its blocks.
    Owner(Owner),
}

impl core::fmt::Debug for Setting {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Framer(_) => out.write_str("Framer"),
            Self::Deadline(after) => write!(out, "Deadline({after:?})"),
            Self::Reading(reading) => write!(out, "Reading({reading})"),
            Self::HalfClose(half_close) => write!(out, "HalfClose({half_close})"),
            Self::SendLimits(limits) => write!(out, "{limits:?}"),
            Self::Owner(owner) => write!(out, "{owner:?}"),
        }
    }
}

/// Reason why a work request was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// There is no room for it now: see [`Event::QueueLow`](super::Event::QueueLow).
    #[error("there is no room for it in the queue")]
    Full,
    /// The end point is not established, is closing, or has ended; or its dispatcher is gone.
    #[error("the end point is closed")]
    Closed,
    /// The end point's bytes arrive in the peer's own blocks, so that no buffer can be posted (in-process).
    #[error("this mechanism receives into no buffers of its user")]
    NoBuffers,
    /// It could not be started.
    #[error(transparent)]
    Address(#[from] EndpointError),
}

/// A work request that was not accepted.
#[derive(Debug)]
pub struct Refused {
    /// The request, unchanged.
    pub request: WorkRequest,
    /// The reason.
    pub why: PostError,
}

/// Accepts work requests: a dispatcher itself, or its [`Requester`](super::Requester) on another thread.
pub trait Requests {
    /// Accepts the request, or returns it.
    ///
    /// # Errors
    /// The request, unchanged, with the reason.
    fn post(&mut self, request: WorkRequest) -> Result<(), Box<Refused>>;
}
