//! Packets: one interface for receiving and one for sending, over every way that the kernel has (papers 1 and 2).
//!
//! ```text
//!        Receiver: batches of packets in, slices of memory        Sender: gathered or written in place
//!                  │                                                      │
//!   socket::SocketReceiver                                      socket::SocketSender
//!   recvfrom, recvmmsg, UDP GRO                                 sendto, sendmmsg, UDP GSO
//!   over UDP or IP with a protocol number of one's own          the same
//!                  │                                                      │
//!                  ├── simulated: a network in virtual time, with loss, duplicates and disorder by seed ──┘
//!                  └── local: what another thread of this process has in the place of a network, without loss
//! ```
//! Packets may be lost, doubled and out of order; what a mechanism knows of what it lost it counts by cause
//! ([`ReceiveCounters`]). What is handed on is whole: the kernel puts IP's fragments together.
//! One suite (`tests/packets`) runs over every mechanism.

mod around;
pub mod cable;
mod config;
mod error;
mod frames;
mod local;
mod memory;
mod probe;
mod receiver;
mod sender;
pub mod simulated;
mod socket;

pub use config::{
    ANY, Flow, MOST_BATCH, ReceiveConfig, ReceiveMechanism, SendConfig, SendMechanism, UnknownReceiveMechanism,
    UnknownSendMechanism,
};
pub use error::PacketError;
pub use frames::{
    Card, FrameConfig, FrameSender, RingConfig, RingReceiver, Transmit, TransmitRing, XdpCard, XdpConfig, XdpInput,
    XdpMode, XdpReceiver, XdpTransmit,
};
pub use local::{LocalFeed, LocalReceiver, local_packets};
pub use memory::{PacketMemory, PoolMemory};
pub use probe::{path_mtu, stamp, stamping_of};
pub use receiver::{MemoryInUse, Packet, QueueInUse, ReceiveCounters, Receiver, over_v4};
pub use sender::{Fill, Refusal, SendCounters, Sender};
pub use socket::{Membership, MembershipChange, SocketReceiver, SocketSender};
