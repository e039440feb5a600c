//! What a user asks of an event dispatcher.

use std::time::Duration;

use ropewalk_memory::{Loan, Owner, Payload};

use super::framer::Framer;
use crate::endpoint::{Endpoint, EndpointError, SendLimits};

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
        /// To whom.
        endpoint: Endpoint,
        /// What; sent from where it lies.
        message: Payload,
        /// Comes back when it is sent or flushed.
        cookie: Cookie,
    },
    /// Receives into this buffer, behind those before it. From the first one on, the end point receives into posted
    /// buffers alone; without any, blocks of the dispatcher's pool are provided, recycled and never freed.
    Receive {
        /// From whom.
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
    /// Messages end where this says; without one, whatever has come is received.
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
