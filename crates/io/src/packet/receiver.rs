//! The receiving side: what every mechanism offers.

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;

use ropewalk_memory::Payload;
use ropewalk_terms::{ByCause, Instant};

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
    /// When it came, where a recording says so: on that recording's own clock. None where it comes now.
    pub came: Option<Instant>,
}

/// Who sent a packet that came over IPv4; [`ANY`](super::ANY), which is no sender's, for another one.
pub const fn over_v4(from: SocketAddr) -> SocketAddrV4 {
    if let SocketAddr::V4(from) = from { from } else { super::ANY }
}

/// Receives the packets of one [`Flow`](super::Flow) on one thread. Calls never block.
pub trait Receiver {
    /// Appends packets that have come to `packets`, in the order in which they came, at most as many as one batch has,
    /// and the rest of a train that the kernel has coupled, or of a batch of fragments. Returns how many. `now` is for simulated networks, where time is all there is to wait for.
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize;

    /// Where packets have to be sent, the port filled in.
    fn address(&self) -> SocketAddr;

    /// The same of a receiver that was given an IPv4 address: [`Sender`](super::Sender)s send to no other.
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

    /// How much of the memory that packets come into is held by those who got them. While it is all held, packets wait
    /// in the kernel, and are lost there when that has no room either. A ring that the kernel fills in order stops at the
    /// first block that is held, so its user copies what he has held longest out of it
    /// ([`Payload::evacuate`]) before there is too little left.
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
pub(super) fn append(packets: &mut Vec<Packet>, packet: Packet) {
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

/// How full the queue is in which packets wait until they are received, in bytes as whoever keeps it counts them: a socket's
/// packet of 1 KiB has 2.3 KiB. A packet that finds less room than it needs is lost.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueInUse {
    /// What waits.
    pub used: u64,
    /// How much can wait. Where packets wait in the memory that they are handed on in (rings, AF_XDP) it is less, the more of
    /// that is held.
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
    /// Packets that the machine lost, of whatever flow, as its interfaces and protocols count them. What is here may
    /// stand in `lost` too.
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
