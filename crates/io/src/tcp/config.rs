//! Settings of TCP endpoints.

use std::time::Duration;

/// How a [`Tcp`](super::Tcp) dispatcher treats its sockets. The defaults are what the benches chose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpConfig {
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
            // A default of bbr, as on many systems, is four times slower over loopback.
            congestion_control: Some("cubic".to_owned()),
            socket_send_buffer: 0,
            socket_receive_buffer: 0,
            no_delay: true,
            send_queue_bytes: 4 << 20,
            receive_batch_bytes: 256 << 10,
            smallest_receive: 4096,
            listen_backlog: 1024,
            connect_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(10),
            keep_alive: Some(Duration::from_secs(15)),
        }
    }
}
