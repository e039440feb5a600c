//! A receiver and a sender of one mechanism, and what goes between them.

use std::time::Duration;

use ropewalk_io::MonotonicClock;
use ropewalk_io::packet::{Packet, Receiver, Refusal, Sender};
use ropewalk_io::{Clock, wait::Waiter};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_terms::Instant;

/// What a test wants of a pair.
#[derive(Copy, Clone)]
pub(crate) struct Sizes {
    /// Bytes of a block that packets come into, and how many there are.
    pub(crate) block: usize,
    pub(crate) blocks: usize,
    /// The longest payload.
    pub(crate) largest: usize,
    /// Packets of a batch.
    pub(crate) batch: usize,
    /// Packets that wait to be sent.
    pub(crate) send_batch: usize,
    /// Bytes that wait in the kernel.
    pub(crate) queue: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { block: 256 << 10, blocks: 32, largest: 9000, batch: 32, send_batch: 64, queue: 4 << 20 }
    }
}

pub(crate) struct Pair {
    pub(crate) receiver: Box<dyn Receiver>,
    pub(crate) sender: Box<dyn Sender>,
}

/// A mechanism under test.
pub(crate) trait Mechanism: Default {
    /// Packets that may come beyond a batch.
    const TRAIN: usize;
    /// Whether the receiver counts every packet that is lost on the way, and not trains of them.
    const COUNTS_LOSSES: bool = Self::TRAIN == 1;

    /// The longest payload that can be sent.
    const LARGEST: usize = 9000;
    /// Whether packets wait while all memory is held, and are not lost.
    const WAITS: bool = true;

    /// A receiver and a sender; or why this machine has none.
    fn pair(&mut self, sizes: Sizes) -> Result<Pair, &'static str>;

    fn now(&self) -> Instant;
}

/// Why a test could not be made.
pub(crate) type Skip = Result<(), &'static str>;

/// Runs a test, and tells if it was skipped.
pub(crate) fn run(name: &str, test: fn() -> Skip) {
    if let Err(why) = test() {
        ropewalk_tidy::skipped(name, why);
    }
}

/// A pair and what came.
pub(crate) struct World<M> {
    pub(crate) mechanism: M,
    pub(crate) receiver: Box<dyn Receiver>,
    pub(crate) sender: Box<dyn Sender>,
    pub(crate) came: Vec<Packet>,
    source: Pool,
}

/// Longer than anything takes, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(20);

impl<M: Mechanism> World<M> {
    pub(crate) fn new(sizes: Sizes) -> Result<Self, &'static str> {
        let mut mechanism = M::default();
        let Pair { receiver, sender } = mechanism.pair(sizes)?;
        let source = Pool::new(PoolConfig::heap("source", 16 << 10, 64)).expect("memory for a test");
        Ok(Self { mechanism, receiver, sender, came: Vec::new(), source })
    }

    /// Queues a packet that is written in place.
    pub(crate) fn send(&mut self, number: usize, bytes: usize) -> Result<(), Refusal> {
        let fill = &mut |room: &mut [u8]| {
            room[..bytes].copy_from_slice(&pattern(number, bytes));
            bytes
        };
        self.sender.send_with(self.receiver.address_v4(), bytes, fill)
    }

    /// Queues the same packet in pieces of so many bytes.
    pub(crate) fn send_pieces(&mut self, number: usize, bytes: usize, piece: usize) -> Result<(), Refusal> {
        let mut rest = self.slice(&pattern(number, bytes));
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            pieces.push(rest.split_to(piece.min(rest.len())));
        }
        self.sender.send(self.receiver.address_v4(), &mut pieces)
    }

    fn slice(&mut self, bytes: &[u8]) -> Slice {
        self.source.loan(Owner::SHARED).and_then(|mut loan| loan.append(bytes)).expect("room for a packet")
    }

    /// Flushes until the queue is empty.
    pub(crate) fn flush(&mut self) {
        let begin = MonotonicClock.now();
        while self.sender.queued() > 0 {
            self.sender.flush(self.mechanism.now());
            assert!(MonotonicClock.now().since(begin) < PATIENCE, "{} packets do not leave", self.sender.queued());
        }
    }

    /// Queues a packet, and flushes what is in its way.
    pub(crate) fn send_surely(&mut self, number: usize, bytes: usize) {
        if self.send(number, bytes).is_err() {
            self.flush();
            self.send(number, bytes).expect("room in an empty queue");
        }
    }

    /// Receives once.
    pub(crate) fn receive(&mut self) -> usize {
        self.receiver.receive(self.mechanism.now(), &mut self.came)
    }

    /// Receives until so many packets have come.
    pub(crate) fn await_packets(&mut self, count: usize) {
        let begin = MonotonicClock.now();
        while self.came.len() < count {
            self.receive();
            let counters = self.receiver.counters();
            assert!(MonotonicClock.now().since(begin) < PATIENCE, "{} of {count}: {counters:?}", self.came.len());
        }
    }

    /// Receives until nothing has come for a while.
    pub(crate) fn receive_all(&mut self) {
        let waiter = self.waiter();
        let mut silent = 0;
        while silent < 5 {
            silent = if self.receive() > 0 { 0 } else { silent + 1 };
            if let (0, Some(waiter)) = (silent % 2, &waiter) {
                waiter.wait(Some(Duration::from_millis(4)));
            }
        }
    }

    /// Watches the receiver, if it is one that can be watched.
    pub(crate) fn waiter(&self) -> Option<Waiter> {
        let descriptor = self.receiver.wait_descriptor()?;
        let mut waiter = Waiter::new().expect("an eventfd");
        waiter.watch(descriptor).expect("a descriptor");
        Some(waiter)
    }
}

/// The payload of packet `number`: the number, as far as there is room, then bytes that depend on it.
pub(crate) fn pattern(number: usize, bytes: usize) -> Vec<u8> {
    let number = number as u32;
    let mut payload: Vec<u8> = (0..bytes).map(|at| (number as usize * 31 + at * 7 + at / 256) as u8).collect();
    let front = bytes.min(4);
    payload[..front].copy_from_slice(&number.to_le_bytes()[..front]);
    payload
}
