//! Settings of TCP endpoints.

use core::fmt;
use core::str::FromStr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

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
    /// All of them, `Auto` first.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Epoll, Self::Poll, Self::Select, Self::IoUring];

    /// The word for it in configurations.
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

/// How a [`Tcp`](super::Tcp) dispatcher treats its sockets. The defaults are what the benches chose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpConfig {
    /// How the kernel is asked.
    pub mechanism: Mechanism,
    /// The congestion control to set on every socket if the kernel has it; `None` keeps the system's.
    pub congestion_control: Option<String>,
    /// The kernel's send buffer in bytes, 0 for its own automatic size.
    pub socket_send_buffer: usize,
    /// The kernel's receive buffer in bytes, 0 for its own automatic size.
    pub socket_receive_buffer: usize,
    /// Sends without waiting for more data. Messages coalesce before the kernel sees them, so that there is
    /// nothing to wait for.
    pub no_delay: bool,
    /// Bytes that the send queue of one endpoint holds (a single larger message is taken when it is empty).
    pub send_queue_bytes: usize,
    /// Bytes read from one endpoint in one poll, so that one that floods does not starve the others.
    pub receive_batch_bytes: usize,
    /// The tail of a block that is still read into, in bytes; a smaller one is left unused.
    pub smallest_receive: usize,
    /// From how many queued bytes on `io_uring` sends without copying. `usize::MAX` always copies: over loopback the
    /// kernel copies anyway, and the notification costs.
    pub zero_copy_bytes: usize,
    /// Connections that the kernel keeps until they are taken, for each service point.
    pub listen_backlog: i32,
    /// How long a connection may take to stand before it counts as timed out.
    pub connect_timeout: Duration,
    /// How long flushing and the peer's own end may take after [`close`](crate::Dispatcher::close) before the
    /// connection counts as broken.
    pub close_timeout: Duration,
    /// After how much silence the kernel asks whether the peer is still there; it asks three times, as far
    /// apart as a third of this. `None` never asks. Back-pressure is not silence: a full peer answers.
    pub keep_alive: Option<Duration>,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            mechanism: Mechanism::Auto,
            // A default of bbr, as on many systems, is four times slower over loopback.
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
