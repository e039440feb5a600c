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
//! One suite (`tests/suites/packets`) runs over every mechanism.

pub mod cable;
mod config;
mod frames;
mod local;
mod memory;
mod probe;
pub mod simulated;
mod socket;

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;

use ropewalk_memory::{Payload, Slice};
use ropewalk_terms::{ByCause, Instant};

pub use self::config::{
    ANY, Flow, MOST_BATCH, PacketError, ReceiveConfig, ReceiveMechanism, SendConfig, SendMechanism,
    UnknownReceiveMechanism, UnknownSendMechanism,
};
pub use self::frames::{
    Card, FrameConfig, FrameSender, RingConfig, RingReceiver, Transmit, TransmitRing, XdpCard, XdpConfig, XdpInput,
    XdpMode, XdpReceiver, XdpTransmit,
};
pub use self::local::{LocalFeed, LocalReceiver, local_packets};
pub use self::memory::{PacketMemory, PoolMemory};
pub use self::probe::{path_mtu, stamp, stamping_of};
pub use self::socket::{Membership, MembershipChange, SocketReceiver, SocketSender};

/// A packet that came.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sent it; the port is 0 where the packets have none.
    pub from: SocketAddr,
    /// To which of the receiver's addresses it was sent, by the number that it has in the receiver's configuration; 0 where
    /// there is one alone.
    pub to: u16,
    /// What UDP carried, or IP itself: whole packets alone, put together again where they came in fragments. Mostly one
    /// slice; empty if there was nothing in it.
    pub payload: Payload,
    /// When it came, on the clock of the recording that says so. `None` if it comes now.
    pub came: Option<Instant>,
}

/// Who sent a packet that came over IPv4; [`ANY`], which is no sender's, for another one.
pub const fn over_v4(from: SocketAddr) -> SocketAddrV4 {
    if let SocketAddr::V4(from) = from { from } else { ANY }
}

/// Receives the packets of one [`Flow`] on one thread. Calls never block.
pub trait Receiver {
    /// Appends packets that have come to `packets`, in the order in which they came, at most as many as one batch has,
    /// and the rest of a train that the kernel has coupled, or of a batch of fragments. Returns how many. `now` is for simulated networks, where time is all there is to wait for.
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize;

    /// Where packets have to be sent, the port filled in.
    fn address(&self) -> SocketAddr;

    /// The same of a receiver that was given an IPv4 address: [`Sender`]s send to no other.
    ///
    /// # Panics
    /// Where it is an IPv6 address.
    fn address_v4(&self) -> SocketAddrV4 {
        match self.address() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(address) => panic!("{address} is no IPv4 address"),
        }
    }

    /// To be called before the thread sleeps: false if [`receive`](Self::receive) has something to do right now.
    fn prepare_wait(&mut self) -> bool;

    /// Readable as long as there may be packets. `None` for simulated receivers.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// When there may be packets even if the descriptor stays silent.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// What came and what was lost, since the receiver was made. Asks the kernel: once a second, not once a batch.
    fn counters(&mut self) -> ReceiveCounters;

    /// How much of the memory for incoming packets is still held by their users. While all of it is held, packets wait
    /// in the kernel, and are lost there when that has no room either. A ring that the kernel fills in order stops at the
    /// first block that is held, so its user copies what has been held longest out of it
    /// ([`Payload::evacuate`]) before too little is left.
    fn memory_in_use(&mut self) -> MemoryInUse;

    /// How much waits where packets come in before they are received, as [`receive`](Self::receive) left it. Sockets ask the
    /// kernel: some thousand times a second, not once a batch.
    fn queue_in_use(&mut self) -> QueueInUse;

    /// Whether everything was taken that will ever come, as of a capture that was read to its end. A network never says so.
    fn is_over(&self) -> bool {
        false
    }
}

/// Appends a packet to a batch in which there is room: it is made right there. Before a vector that might have to grow it
/// would be made on the stack, and read there in wider pieces than it was written in, for which the processor waits.
///
/// # Panics
/// Where there is no room: it is to be reserved before.
#[inline(always)]
fn append(packets: &mut Vec<Packet>, packet: Packet) {
    if packets.len() < packets.capacity() {
        packets.push(packet);
    } else {
        core::mem::forget(packet);
        unreachable!("room is reserved before");
    }
}

/// How much of a receiver's memory is held.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryInUse {
    /// Blocks (or frames) that packets lie in, as far as they did not come home; of a ring that the kernel fills in order
    /// those too that lie behind the first of them, for it stops there.
    pub held: usize,
    /// Blocks that there are.
    pub all: usize,
}

impl MemoryInUse {
    /// Whether more than `percent` of the blocks are held.
    pub const fn is_above(self, percent: usize) -> bool {
        self.held * 100 > self.all * percent
    }
}

/// How full the queue is in which packets wait until they are received, in bytes as the owner of the queue counts them:
/// a socket counts a packet of 1 KiB as 2.3 KiB. A packet that finds less room than it needs is lost.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueInUse {
    /// What waits.
    pub used: u64,
    /// How much can wait. Where packets wait in the memory in which they are handed on (rings, AF_XDP), it shrinks as
    /// more of that memory is held.
    pub room: u64,
    /// What one of the longest packets is counted as.
    pub packet: u64,
}

impl QueueInUse {
    /// How many of the longest packets still find room.
    pub const fn packets_left(self) -> u64 {
        self.room.saturating_sub(self.used) / if self.packet > 0 { self.packet } else { 1 }
    }
}

/// What came and what did not. Cumulative.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ReceiveCounters {
    /// Packets that were handed on.
    pub packets: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// System calls, or looks at a ring that found something.
    pub calls: u64,
    /// Times at which packets may have waited because all memory was held.
    pub dry: u64,
    /// Packets of this flow that were lost or refused, by what the kernel says and by what was seen here.
    pub lost: ByCause,
    /// How often the multicast group was lost with its network card.
    pub groups_lost: u64,
    /// Packets of any flow that the machine lost, as its interfaces and protocols count them. They may be counted in
    /// `lost` too.
    pub around: ByCause,
}

impl<R: Receiver + ?Sized> Receiver for Box<R> {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        (**self).receive(now, packets)
    }

    fn address(&self) -> SocketAddr {
        (**self).address()
    }

    fn prepare_wait(&mut self) -> bool {
        (**self).prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).wait_descriptor()
    }

    fn next_deadline(&self) -> Option<Instant> {
        (**self).next_deadline()
    }

    fn counters(&mut self) -> ReceiveCounters {
        (**self).counters()
    }

    fn memory_in_use(&mut self) -> MemoryInUse {
        (**self).memory_in_use()
    }

    fn queue_in_use(&mut self) -> QueueInUse {
        (**self).queue_in_use()
    }

    fn is_over(&self) -> bool {
        (**self).is_over()
    }
}

/// Why a packet was not queued. Nothing was taken from it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// The queue is full, or all frames are on their way: flush, and try again.
    #[error("the send queue is full")]
    Full,
    /// It has more bytes, or more pieces, than this mechanism can send at once.
    #[error("the packet is larger than can be sent at once")]
    TooLarge,
}

/// Writes a packet's payload into the room it is given and says how many bytes it wrote.
pub type Fill<'a> = &'a mut dyn FnMut(&mut [u8]) -> usize;

/// Sends packets from one thread. Calls never block, and what was queued moves when it is [flushed](Self::flush), so
/// that packets share system calls.
pub trait Sender {
    /// Queues a packet whose payload is gathered from slices: they are taken out of the vector, whose capacity stays with
    /// the caller. Slices of frames that came over AF_XDP leave from where they lie.
    ///
    /// # Errors
    /// [`Refusal`]; the slices stay where they are.
    fn send(&mut self, to: SocketAddrV4, payload: &mut Vec<Slice>) -> Result<(), Refusal>;

    /// Queues a packet whose payload is written straight to where it leaves from: the frame of a mapped ring, or a
    /// block. `fill` gets room for `most` bytes at least, and is not called if the packet is refused.
    ///
    /// # Errors
    /// [`Refusal`].
    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal>;

    /// Gives the kernel what it takes now and takes back what has left. Returns how many packets it took.
    fn flush(&mut self, now: Instant) -> usize;

    /// Packets that are queued, or that the kernel has and did not yet say that it sent.
    fn queued(&self) -> usize;

    /// The most bytes that a payload can have.
    fn largest(&self) -> usize;

    /// Whence packets come, as their receivers see it.
    fn address(&self) -> SocketAddrV4;

    /// What was sent since the sender was made.
    fn counters(&self) -> SendCounters;
}

/// What was sent. Cumulative.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SendCounters {
    /// Packets that the kernel took.
    pub packets: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// System calls.
    pub calls: u64,
    /// Bytes of payloads that were copied in this process before the kernel had them.
    pub bytes_copied: u64,
    /// Packets that the kernel refused for good.
    pub failed: u64,
    /// Why it refused the last of those (`errno`), 0 if it refused none.
    pub last_error: i32,
}

impl<S: Sender + ?Sized> Sender for Box<S> {
    fn send(&mut self, to: SocketAddrV4, payload: &mut Vec<Slice>) -> Result<(), Refusal> {
        (**self).send(to, payload)
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        (**self).send_with(to, most, fill)
    }

    fn flush(&mut self, now: Instant) -> usize {
        (**self).flush(now)
    }

    fn queued(&self) -> usize {
        (**self).queued()
    }

    fn largest(&self) -> usize {
        (**self).largest()
    }

    fn address(&self) -> SocketAddrV4 {
        (**self).address()
    }

    fn counters(&self) -> SendCounters {
        (**self).counters()
    }
}
