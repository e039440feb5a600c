//! What a gateway and its nodes reach each other by.

use ropewalk_io::packet::{Fill, Packet, Receiver, Refusal, SendCounters, Sender};
use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;

/// Carries messages both ways, as datagrams do: whole, but perhaps late, twice or not at all. Calls never block.
pub trait Link {
    /// Appends messages that have come. Returns how many.
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize;

    /// Queues a message gathered from slices, which are taken out of the vector.
    ///
    /// # Errors
    /// [`Refusal`]; the slices stay where they are.
    fn send(&mut self, to: SocketAddrV4, message: &mut Vec<Slice>) -> Result<(), Refusal>;

    /// Queues a message of at most `most` bytes, written straight to where it leaves from.
    ///
    /// # Errors
    /// [`Refusal`].
    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal>;

    /// Sends what is queued, as far as there is room now. Returns how much was done.
    fn flush(&mut self, now: Instant) -> usize;

    /// Whether something is queued that has not left yet.
    fn is_queued(&self) -> bool;

    /// To be called before the thread sleeps: false if there is something to do right now.
    fn prepare_wait(&mut self) -> bool;

    /// Readable when there is something to do. `None` for simulated links.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// When there is something to do even if the descriptor stays silent.
    fn next_deadline(&self) -> Option<Instant>;

    /// What was sent.
    fn sent(&self) -> SendCounters;
}

/// Datagrams: a receiver and a sender, which need not have the same address.
#[derive(Debug)]
pub struct Datagrams<R, S> {
    /// Where messages come in.
    pub receiver: R,
    /// Where they leave.
    pub sender: S,
}

impl<R: Receiver, S: Sender> Link for Datagrams<R, S> {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        self.receiver.receive(now, packets)
    }

    fn send(&mut self, to: SocketAddrV4, message: &mut Vec<Slice>) -> Result<(), Refusal> {
        self.sender.send(to, message)
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        self.sender.send_with(to, most, fill)
    }

    fn flush(&mut self, now: Instant) -> usize {
        self.sender.flush(now)
    }

    fn is_queued(&self) -> bool {
        self.sender.queued() > 0
    }

    fn prepare_wait(&mut self) -> bool {
        self.sender.queued() == 0 && self.receiver.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.receiver.wait_descriptor()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.receiver.next_deadline()
    }

    fn sent(&self) -> SendCounters {
        self.sender.counters()
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        (**self).receive(now, packets)
    }

    fn send(&mut self, to: SocketAddrV4, message: &mut Vec<Slice>) -> Result<(), Refusal> {
        (**self).send(to, message)
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        (**self).send_with(to, most, fill)
    }

    fn flush(&mut self, now: Instant) -> usize {
        (**self).flush(now)
    }

    fn is_queued(&self) -> bool {
        (**self).is_queued()
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

    fn sent(&self) -> SendCounters {
        (**self).sent()
    }
}
