//! What an event dispatcher tells.

use ropewalk_memory::Payload;

use super::framer::FramingError;
use super::request::Cookie;
use crate::endpoint::{BrokenCause, ConnectCause, Endpoint, Peer, ServicePoint};

/// What has happened. Each event is taken exactly once; those of one end point and one [`Task`] are in order.
#[derive(Debug)]
pub enum Event {
    /// Somebody wants to connect: accept or reject.
    ConnectionRequested {
        /// Where the request came in.
        service_point: ServicePoint,
        /// The end point that it becomes.
        endpoint: Endpoint,
        /// Who asks.
        peer: Peer,
    },
    /// The connection stands; both sides are told.
    Established {
        /// The end point.
        endpoint: Endpoint,
        /// That of the connect request; none on the side that accepted.
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
    /// The end of the end point, told once, after everything that was posted has come back.
    Ended {
        /// The end point.
        endpoint: Endpoint,
        /// That of the connect request; none on the side that accepted.
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

/// Who may take an event, where several threads share the work (paper 3, III-A: a thread for each task).
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
    /// That of the buffer they lie in; none where the dispatcher provides the buffers.
    pub cookie: Option<Cookie>,
    /// The bytes, where they were received. With posted buffers in one piece; otherwise a chain.
    pub payload: Payload,
    /// Why now.
    pub why: Why,
    /// The buffer has come back: nothing more is received into it. Its memory returns to its pool with the last slice.
    pub is_last: bool,
}

/// Why bytes are told of now.
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
