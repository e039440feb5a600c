//! What a user asks of an event dispatcher, and what it tells.

use std::time::Duration;

use ropewalk_memory::{Loan, Owner, Payload};

use super::framer::{Framer, FramingError};
use crate::endpoint::{BrokenCause, ConnectCause, Endpoint, EndpointError, Peer, SendLimits, ServicePoint};

/// What has happened. Each event is taken exactly once; those of one end point and one [`Task`] are in order.
#[derive(Debug)]
pub enum Event {
    /// A peer wants to connect: accept or reject.
    ConnectionRequested {
        /// Where the request came in.
        service_point: ServicePoint,
        /// The end point that it becomes.
        endpoint: Endpoint,
        /// Who asks.
        peer: Peer,
    },
    /// The connection is established; both sides get this event.
    Established {
        /// The end point.
        endpoint: Endpoint,
        /// The cookie of the connect request; `None` on the side that accepted.
        cookie: Option<Cookie>,
    },
    /// Posted work has come to an end, or provided buffers have received something.
    Completed {
        /// The end point.
        endpoint: Endpoint,
        /// What.
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
    /// The peer has ended its direction, and the end point goes on.
    Finished {
        /// The end point.
        endpoint: Endpoint,
    },
    /// The end of the end point, reported once, after everything that was posted has come back.
    Ended {
        /// The end point.
        endpoint: Endpoint,
        /// The cookie of the connect request; `None` on the side that accepted.
        cookie: Option<Cookie>,
        /// How it ended.
        how: Ended,
    },
    /// The user's own event: see [`WorkRequest::Raise`](super::WorkRequest::Raise).
    Raised {
        /// As given.
        cookie: Cookie,
    },
}

/// Which task may take an event, if several threads share the work (paper 3, III-A: a thread for each task).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// Connections that come, go and fail; marks; the user's own events.
    Connections = 0,
    /// Bytes that were received, and buffers that come back unfilled.
    Receives = 1,
    /// Messages that were sent or flushed.
    Sends = 2,
}

impl Event {
    /// Whose it is.
    pub const fn task(&self) -> Task {
        match self {
            Self::Completed { completion: Completion::Sent { .. }, .. }
            | Self::Completed { completion: Completion::Flushed { work: Work::Send, .. }, .. } => Task::Sends,
            Self::Completed { .. } => Task::Receives,
            _ => Task::Connections,
        }
    }
}

/// The end of posted work.
#[derive(Debug)]
pub enum Completion {
    /// The transport has taken the message; its slices are free.
    Sent {
        /// That of the send request.
        cookie: Cookie,
    },
    /// Bytes have come.
    Received(Received),
    /// The end point ended first; a message's slices and a buffer's memory are back in their pools.
    Flushed {
        /// That of the request.
        cookie: Cookie,
        /// What was asked for.
        work: Work,
        /// Why.
        reason: FlushReason,
    },
}

/// Posted work that can be flushed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// A message: how much of it was sent is not known.
    Send,
    /// A buffer into which nothing more is received.
    Receive,
}

/// Why posted work was flushed.
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

/// Bytes that have come.
#[derive(Debug)]
pub struct Received {
    /// The cookie of the posted buffer that they lie in; `None` if the dispatcher provides the buffers.
    pub cookie: Option<Cookie>,
    /// The bytes, where they were received. With posted buffers in one piece; otherwise a chain.
    pub payload: Payload,
    /// Why now.
    pub why: Why,
    /// The buffer has come back: nothing more is received into it. Its memory returns to its pool with the last slice.
    pub is_last: bool,
}

/// Why bytes are reported now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The buffer is full.
    Full,
    /// A message ends here.
    Boundary,
    /// The deadline has come.
    Deadline,
    /// The connection has ended; where there is a framer, in the middle of a message.
    End,
}

/// How an end point ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// In order, by either side.
    Disconnected,
    /// Out of order.
    Broken(BrokenCause),
    /// It never stood: refused, rejected, timed out, unreachable.
    NotConnected(ConnectCause),
    /// The framer found no message where one had to be.
    Framing(FramingError),
    /// The own side aborted.
    Aborted,
}

/// What a user gives along with a work request, and gets back when it completes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cookie(pub u64);

/// Work for an event dispatcher. Each with a cookie completes exactly once: see
/// [`Completion`](super::Completion), and [`Event::Ended`](super::Event::Ended) for connecting.
#[derive(Debug)]
pub enum WorkRequest {
    /// Connects to a service point; `Established` or `Ended` follows, with the cookie.
    Connect {
        /// As [`Dispatcher::connect`](crate::Dispatcher::connect) wants it.
        address: String,
        /// Comes back with the end point that was made for it.
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
        /// What; sent from where it lies.
        message: Payload,
        /// Comes back when it is sent or flushed.
        cookie: Cookie,
    },
    /// Receives into this buffer, behind those before it. From the first one on, the end point receives into posted
    /// buffers alone; without any, blocks of the dispatcher's pool are provided, recycled and never freed.
    Receive {
        /// The sender.
        endpoint: Endpoint,
        /// Where to.
        buffer: Loan,
        /// Comes with everything that is received into it.
        cookie: Cookie,
    },
    /// Changes how an end point behaves.
    Set {
        /// Which.
        endpoint: Endpoint,
        /// What.
        setting: Setting,
    },
    /// Ends the own direction behind what is queued, and goes on receiving.
    Finish {
        /// Which.
        endpoint: Endpoint,
    },
    /// Closes in order, behind what is queued. What still comes is thrown away.
    Close {
        /// Which.
        endpoint: Endpoint,
    },
    /// Ends at once; what was posted is flushed.
    Abort {
        /// Which.
        endpoint: Endpoint,
    },
    /// Comes back as [`Event::Raised`](super::Event::Raised): an event of the user's own, in the order of the others.
    Raise {
        /// Comes back.
        cookie: Cookie,
    },
}

/// How an end point behaves.
pub enum Setting {
    /// Finds the ends of messages; without one, bytes are received as they come.
    Framer(Box<dyn Framer>),
    /// Bytes that do not fill a buffer or end a message are received after so long; at first at once, with the turn in
    /// which they came.
    Deadline(Duration),
    /// Whether it is read. While it is not, the peer is held back.
    Reading(bool),
    /// Whether it outlives the end of the peer's direction.
    HalfClose(bool),
    /// How much may be queued, and when to say that it is high and low.
    SendLimits(SendLimits),
    /// Whose quota of the dispatcher's pool its blocks come from.
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

/// Why a work request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// There is no room for it now: see [`Event::QueueLow`](super::Event::QueueLow).
    #[error("there is no room for it in the queue")]
    Full,
    /// The end point is not established, is closing, or has ended; or its dispatcher is gone.
    #[error("the end point is closed")]
    Closed,
    /// The end point's bytes come in the peer's own blocks, so that no buffer can be posted (in-process).
    #[error("this mechanism receives into no buffers of its user")]
    NoBuffers,
    /// It could not even be begun.
    #[error(transparent)]
    Address(#[from] EndpointError),
}

/// A work request that was not taken.
#[derive(Debug)]
pub struct Refused {
    /// As it was given.
    pub request: WorkRequest,
    /// Why.
    pub why: PostError,
}

/// Takes work requests: a dispatcher itself, or its [`Requester`](super::Requester) on another thread.
pub trait Requests {
    /// Takes the request, or gives it back.
    ///
    /// # Errors
    /// The request, untouched, with the reason.
    fn post(&mut self, request: WorkRequest) -> Result<(), Box<Refused>>;
}
