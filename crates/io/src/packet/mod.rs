//! Packets: one interface for receiving and one for sending, over every mechanism of the kernel (papers 1 and 2).
//!
//! ```text
//!        Receiver: batches of packets in, slices of memory        Sender: gathered or written in place
//!                  │                                                      │
//!   socket::SocketReceiver                                      socket::SocketSender
//!   recvfrom, recvmmsg, UDP GRO                                 sendto, sendmmsg, UDP GSO
//!   over UDP or IP with a user-chosen protocol number           the same
//!                  │                                                      │
//!                  ├── simulated: a network in virtual time, with loss, duplicates and disorder by seed ──┘
//!                  └── local: packets of another thread of this process instead of a network, without loss
//! ```
//! Packets may be lost, duplicated and out of order; each mechanism counts its known losses by cause
//! ([`ReceiveCounters`]). Delivered packets are whole: the kernel reassembles IP fragments.
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

/// A received packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet {
    /// The sender; the port is 0 if the packets have none.
    pub from: SocketAddr,
    /// The receiver's address to which it was sent, by its number in the receiver's configuration; 0 if there is only
    /// one address.
    pub to: u16,
    /// The payload of UDP, or of IP itself: whole packets only, reassembled if they arrived in fragments. Mostly one
    /// slice; empty if the packet was empty.
    pub payload: Payload,
    /// Time of arrival, by the clock of a recording. `None` if it arrived now.
    pub came: Option<Instant>,
}

/// The sender of a packet that arrived over IPv4; [`ANY`], which is no sender's address, for others.
pub const fn over_v4(from: SocketAddr) -> SocketAddrV4 {
    if let SocketAddr::V4(from) = from { from } else { ANY }
}

/// Receives the packets of one [`Flow`] on one thread. Calls never block.
pub trait Receiver {
    /// Appends received packets to `packets`, in order of arrival. Returns their number: at most one batch, plus the
    /// rest of a train that the kernel has coupled, or of a batch of fragments. `now` is for simulated networks, where
    /// only time passes.
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize;

    /// Address to which packets have to be sent, with the port filled in.
    fn address(&self) -> SocketAddr;

    /// Like [`address`](Self::address), for a receiver with an IPv4 address: [`Sender`]s send to no other.
    ///
    /// # Panics
    /// If it is an IPv6 address.
    fn address_v4(&self) -> SocketAddrV4 {
        match self.address() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(address) => panic!("{address} is no IPv4 address"),
        }
    }

    /// Prepares the thread for sleep. False if [`receive`](Self::receive) has something to do right now.
    fn prepare_wait(&mut self) -> bool;

    /// Readable as long as there may be packets. `None` for simulated receivers.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Time at which there may be packets even if the descriptor stays silent.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Received and lost packets since the receiver was made. Asks the kernel: call it once a second, not once a batch.
    fn counters(&mut self) -> ReceiveCounters;

    /// Part of the memory for incoming packets that its users still hold. While all of it is held, packets wait in the
    /// kernel, and are lost there when the kernel has no room either. A ring that the kernel fills in order stops at
    /// the first held block, so its user copies the longest-held packets out of it ([`Payload::evacuate`]) before too
    /// little is left.
    fn memory_in_use(&mut self) -> MemoryInUse;

    /// Amount of data that waits for [`receive`](Self::receive), as the last call left it. Sockets ask the kernel: call
    /// it some thousand times a second at most, not once a batch.
    fn queue_in_use(&mut self) -> QueueInUse;

    /// Whether everything was received that will ever arrive, as of a capture that was read to its end. Never true for
    /// a network.
    fn is_over(&self) -> bool {
        false
    }
}

/// Appends a packet to a batch with room: the packet is constructed in place. Before a vector that might have to grow,
/// it would be constructed on the stack, and read there in wider pieces than it was written in, which stalls the
/// processor.
///
/// # Panics
/// If there is no room: reserve it before.
#[inline(always)]
fn append(packets: &mut Vec<Packet>, packet: Packet) {
    if packets.len() < packets.capacity() {
        packets.push(packet);
    } else {
        core::mem::forget(packet);
        unreachable!("room is reserved before");
    }
}

/// Usage of a receiver's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryInUse {
    /// Number of blocks (or frames) with packets that were not returned. In a ring that the kernel fills in order this
    /// includes the blocks behind the first held one, because the kernel stops there.
    pub held: usize,
    /// Number of all blocks.
    pub all: usize,
}

impl MemoryInUse {
    /// Whether more than `percent` of the blocks are held.
    pub const fn is_above(self, percent: usize) -> bool {
        self.held * 100 > self.all * percent
    }
}

/// Fill level of the queue in which packets wait to be received, in bytes as counted by the queue's owner: a socket
/// counts a packet of 1 KiB as 2.3 KiB. A packet that finds less room than it needs is lost.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueInUse {
    /// Bytes that wait.
    pub used: u64,
    /// Capacity. If packets wait in the memory in which they are delivered (rings, AF_XDP), it shrinks as more of that
    /// memory is held.
    pub room: u64,
    /// Bytes counted for one of the longest packets.
    pub packet: u64,
}

impl QueueInUse {
    /// Number of the longest packets that still fit.
    pub const fn packets_left(self) -> u64 {
        self.room.saturating_sub(self.used) / if self.packet > 0 { self.packet } else { 1 }
    }
}

/// Received and lost packets. Cumulative.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ReceiveCounters {
    /// Number of delivered packets.
    pub packets: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Number of system calls, or of reads of a ring that found something.
    pub calls: u64,
    /// Number of times that packets may have waited because all memory was held.
    pub dry: u64,
    /// Packets of this flow that were lost or refused, according to the kernel and to checks here.
    pub lost: ByCause,
    /// Number of times that the multicast group was lost with its network card.
    pub groups_lost: u64,
    /// Packets of any flow that the machine lost, as counted by its interfaces and protocols. They may be counted in
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

/// Reason why a packet was not queued. Nothing was taken from it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// The queue is full, or all frames are in flight: flush, and try again.
    #[error("the send queue is full")]
    Full,
    /// It has more bytes, or more pieces, than this mechanism can send at once.
    #[error("the packet is larger than can be sent at once")]
    TooLarge,
}

/// Writes a packet's payload into the given room and returns the number of bytes written.
pub type Fill<'a> = &'a mut dyn FnMut(&mut [u8]) -> usize;

/// Sends packets from one thread. Calls never block. Queued packets are sent by [`flush`](Self::flush), so that they
/// share system calls.
pub trait Sender {
    /// Queues a packet whose payload is gathered from slices. They are taken out of the vector, whose capacity stays
    /// with the caller. Slices of frames received over AF_XDP are sent without a copy.
    ///
    /// # Errors
    /// [`Refusal`]; the slices stay where they are.
    fn send(&mut self, to: SocketAddrV4, payload: &mut Vec<Slice>) -> Result<(), Refusal>;

    /// Queues a packet whose payload is written directly into its final memory: the frame of a mapped ring, or a block.
    /// `fill` gets room for at least `most` bytes, and is not called if the packet is refused.
    ///
    /// # Errors
    /// [`Refusal`].
    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal>;

    /// Passes packets to the kernel as far as it takes them now, and takes back sent ones. Returns how many packets it
    /// took.
    fn flush(&mut self, now: Instant) -> usize;

    /// Number of packets that are queued, or that the kernel has not yet reported as sent.
    fn queued(&self) -> usize;

    /// Maximum bytes of a payload.
    fn largest(&self) -> usize;

    /// Source address of the packets, as seen by their receivers.
    fn address(&self) -> SocketAddrV4;

    /// Numbers since the sender was made.
    fn counters(&self) -> SendCounters;
}

/// Counters of a sender. Cumulative.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SendCounters {
    /// Packets that the kernel took.
    pub packets: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// System calls.
    pub calls: u64,
    /// Bytes of payloads that were copied in this process before the kernel got them.
    pub bytes_copied: u64,
    /// Packets that the kernel refused permanently.
    pub failed: u64,
    /// Cause of the last refusal (`errno`), 0 if there was none.
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
