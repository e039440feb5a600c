//! TCP endpoints, over the kernel mechanism that the configuration names.
//!
//! ```text
//!  Tcp ─► readiness: epoll | poll | select      asks what is ready, then reads and writes
//!     └─► uring                                 hands operations over, and takes what has been done
//! ```

mod gather;
mod readiness;
mod socket;
mod uring;

use core::fmt;
use core::str::FromStr;
use std::io;
use std::time::Duration;

use ropewalk_memory::Pool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::readiness::{Epoll, Poll, ReadyTcp, Select};
use self::uring::{Ring, UringTcp};
use crate::endpoint::{Dispatcher, EndpointError};

pub use self::socket::{resolve, resolve_to_listen};

/// Checks whether this process may use io_uring, and whether the kernel has all its features that are used.
///
/// # Errors
/// Permission denied if it is forbidden, unsupported if the kernel lacks it or a part of it, or another error of the
/// kernel.
pub fn try_io_uring() -> std::io::Result<()> {
    Ring::new().map(drop)
}

/// The operations of io_uring that endpoints use, by the kernel's names, and whether this kernel has them;
/// `PBUF_RING_INC` means buffers that are filled incrementally.
///
/// # Errors
/// As [`try_io_uring`], if no ring can be made at all.
pub fn io_uring_operations() -> std::io::Result<Vec<(&'static str, bool)>> {
    uring::used()
}

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

    /// The mechanism in use, and the reason for it.
    pub const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The congestion control set on the sockets; `None` if they keep the system's.
    pub fn congestion_control(&self) -> Option<&str> {
        self.congestion_control.as_deref()
    }
}

fn boxed<D: Dispatcher + Send + 'static>(made: std::io::Result<D>) -> std::io::Result<Box<dyn Dispatcher + Send>> {
    made.map(|dispatcher| Box::new(dispatcher) as Box<dyn Dispatcher + Send>)
}

/// The mechanism does all the work.
impl Dispatcher for Tcp {
    crate::pass_on!(
        inner:
        listen, address_of, connect, adopt, accept, reject, set_owner, pool, pool_mut, post_block, set_reading,
        is_dry, peek, peer_has_ended, has_waiting, send, hands_over, hand_over, set_send_limits, send_room, queued, set_half_close, finish, close,
        abort, poll, prepare_wait, wait_descriptor, own_wait, next_deadline
    );
}

/// Kernel interface for moving bytes (paper 3, III-A lets its user choose too).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// `"io_uring"` if the kernel supports it, otherwise `"epoll"`. The program says which one it took and why.
    #[default]
    Auto,
    /// The kernel reports sockets that became ready.
    Epoll,
    /// Every socket is asked in each call; one of the two mechanisms of paper 3.
    Poll,
    /// As `"poll"`, for descriptors below 1,024; the other mechanism of paper 3.
    Select,
    /// The kernel completes operations (Linux 6.12). Only the thread that polls first may poll.
    IoUring,
}

impl Mechanism {
    /// All mechanisms, `Auto` first.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Epoll, Self::Poll, Self::Select, Self::IoUring];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::Poll => "poll",
            Self::Select => "select",
            Self::IoUring => "io_uring",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// There is no such mechanism.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such mechanism; there are auto, epoll, poll, select and io_uring")]
pub struct UnknownMechanism;

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(word: &str) -> Result<Self, UnknownMechanism> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == word).ok_or(UnknownMechanism)
    }
}

/// Settings of a [`Tcp`] dispatcher's sockets. The defaults were chosen by benchmarks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpConfig {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The congestion control to set on every socket if the kernel has it; `None` keeps the system's.
    pub congestion_control: Option<String>,
    /// The kernel's send buffer in bytes, 0 for its own automatic size.
    pub socket_send_buffer: usize,
    /// The kernel's receive buffer in bytes, 0 for its own automatic size.
    pub socket_receive_buffer: usize,
    /// Whether to send without waiting for more data. Messages are joined before the kernel sees them, so that there is
    /// nothing to wait for.
    pub no_delay: bool,
    /// Capacity of the send queue of one endpoint, in bytes (a single larger message is accepted when it is empty).
    pub send_queue_bytes: usize,
    /// Bytes read from one endpoint in one poll, so that a flooding endpoint does not starve the others.
    pub receive_batch_bytes: usize,
    /// Smallest tail of a block that is still read into, in bytes; a smaller one is left unused.
    pub smallest_receive: usize,
    /// Number of queued bytes from which `io_uring` sends without copying. `usize::MAX` always copies: over loopback
    /// the kernel copies anyway, and the notification costs time.
    pub zero_copy_bytes: usize,
    /// Number of connections that the kernel keeps until they are accepted, for each service point.
    pub listen_backlog: i32,
    /// Time limit for connecting.
    pub connect_timeout: Duration,
    /// Time limit for flushing and for the peer's own end after [`close`](crate::Dispatcher::close); after it the
    /// connection counts as broken.
    pub close_timeout: Duration,
    /// Silence after which the kernel asks whether the peer is still there. It asks three times, at intervals of a
    /// third of this time. `None` never asks. Back-pressure is not silence: a full peer answers.
    pub keep_alive: Option<Duration>,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            mechanism: Mechanism::Auto,
            // The default on many systems, bbr, is four times slower over loopback.
            congestion_control: Some("cubic".to_owned()),
            socket_send_buffer: 0,
            socket_receive_buffer: 0,
            no_delay: true,
            send_queue_bytes: 4 << 20,
            receive_batch_bytes: 256 << 10,
            smallest_receive: 4096,
            zero_copy_bytes: usize::MAX,
            listen_backlog: 1024,
            connect_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(10),
            keep_alive: Some(Duration::from_secs(15)),
        }
    }
}

/// The mechanism in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Never [`Mechanism::Auto`].
    pub mechanism: Mechanism,
    /// The reason, as a sentence for people.
    pub why: String,
}

impl Choice {
    /// Chooses the wanted mechanism; for `Auto`, io_uring if a ring can be made, else epoll. Also returns the ring.
    fn make<R>(wanted: Mechanism, ring: impl FnOnce() -> io::Result<R>) -> io::Result<(Self, Option<R>)> {
        let named = |mechanism| Self { mechanism, why: format!("{mechanism}, because it was asked for") };
        match wanted {
            Mechanism::Auto => Ok(match ring() {
                Ok(ring) => (Self { mechanism: Mechanism::IoUring, why: Self::why_io_uring() }, Some(ring)),
                Err(error) => {
                    let why = format!("epoll, because io_uring cannot be had: {error}");
                    (Self { mechanism: Mechanism::Epoll, why }, None)
                }
            }),
            Mechanism::IoUring => Ok((named(wanted), Some(ring()?))),
            Mechanism::Epoll | Mechanism::Poll | Mechanism::Select => Ok((named(wanted), None)),
        }
    }

    fn why_io_uring() -> String {
        "io_uring, because this kernel has all of it: it sends with fewer system calls than epoll, and receives as fast"
            .to_owned()
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn choice(wanted: Mechanism, ring: io::Result<u8>) -> io::Result<(Choice, Option<u8>)> {
        Choice::make(wanted, || ring)
    }

    #[test]
    fn what_is_left_open_is_io_uring_where_there_is_one() {
        let (choice, ring) = choice(Mechanism::Auto, Ok(7)).expect("there is one");
        assert_eq!((choice.mechanism, ring), (Mechanism::IoUring, Some(7)));
    }

    #[test]
    fn without_io_uring_epoll_is_taken_and_says_why() {
        let none = || Err(io::Error::other("this kernel has no io_uring"));
        let (taken, ring) = choice(Mechanism::Auto, none()).expect("epoll is always there");
        assert_eq!((taken.mechanism, ring), (Mechanism::Epoll, None));
        assert_eq!(taken.why, "epoll, because io_uring cannot be had: this kernel has no io_uring");
        let refused = choice(Mechanism::IoUring, none()).expect_err("it was asked for by name");
        assert_eq!(refused.to_string(), "this kernel has no io_uring");
        let (taken, ring) = choice(Mechanism::Poll, none()).expect("it is not even asked");
        assert_eq!((taken.mechanism, ring), (Mechanism::Poll, None));
    }
}
