//! The sending side: what every mechanism offers.

use std::net::SocketAddrV4;

use ropewalk_memory::Slice;
use ropewalk_terms::Instant;

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
