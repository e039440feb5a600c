//! What the two ends of an in-process connection share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use ropewalk_memory::Slice;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::doorbell::Doorbell;
use crate::parcel::Parcel;
use crate::sleeper::Sleeper;

/// How a connection request was answered.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Answer {
    None = 0,
    Accepted = 1,
    Rejected = 2,
}

/// Whether and how one side has ended its direction.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum End {
    Open = 0,
    /// Everything was sent and nothing more comes.
    Closed = 1,
    /// The side is gone; what it sent is lost.
    Gone = 2,
    /// Everything was sent, and the side is still there to receive.
    Finished = 3,
}

/// What travels.
pub(super) enum Item {
    Slice(Slice),
    Parcel(Parcel),
}

impl From<Slice> for Item {
    fn from(slice: Slice) -> Self {
        Self::Slice(slice)
    }
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Slice(slice) => slice.len(),
            Self::Parcel(parcel) => parcel.bytes(),
        }
    }
}

/// What concerns one direction; each on a cache line of its own (two, since they are fetched in pairs).
#[repr(align(128))]
struct Direction {
    /// Bytes that the receiver took so far; written by the receiver alone.
    consumed: AtomicU64,
    /// The sender sleeps and wants to know when the receiver takes something.
    wants_room: Sleeper,
    end: AtomicU8,
}

impl Direction {
    fn new() -> Self {
        Self { consumed: AtomicU64::new(0), wants_room: Sleeper::new(), end: AtomicU8::new(End::Open as u8) }
    }
}

struct Link {
    answer: AtomicU8,
    /// By sending side.
    directions: [Direction; 2],
    /// The numbers of the dispatchers and what wakes them.
    ends: [(u32, Arc<Doorbell>); 2],
}

/// One side of a connection. Dropping it ends the connection out of order unless it was ended before.
pub(super) struct Half {
    link: Arc<Link>,
    side: usize,
    outgoing: Producer<Item>,
    incoming: Consumer<Item>,
}

/// A connection between two dispatchers, each a number and a bell: first the connecting side, then the accepting one.
pub(super) fn pair(connector: (u32, Arc<Doorbell>), acceptor: (u32, Arc<Doorbell>), ring_items: usize) -> (Half, Half) {
    let (there, at_acceptor) = RingBuffer::new(ring_items);
    let (back, at_connector) = RingBuffer::new(ring_items);
    let link = Arc::new(Link {
        answer: AtomicU8::new(Answer::None as u8),
        directions: [Direction::new(), Direction::new()],
        ends: [connector, acceptor],
    });
    let first = Half { link: Arc::clone(&link), side: 0, outgoing: there, incoming: at_connector };
    (first, Half { link, side: 1, outgoing: back, incoming: at_acceptor })
}

impl Half {
    /// The number of the other side's dispatcher.
    pub(super) fn peer(&self) -> u32 {
        self.link.ends[1 - self.side].0
    }

    /// Wakes the other side if it sleeps.
    pub(super) fn notify_peer(&self) {
        self.link.ends[1 - self.side].1.notify();
    }

    pub(super) fn answer(&self) -> Answer {
        match self.link.answer.load(Ordering::Acquire) {
            1 => Answer::Accepted,
            2 => Answer::Rejected,
            _ => Answer::None,
        }
    }

    pub(super) fn set_answer(&self, answer: Answer) {
        self.link.answer.store(answer as u8, Ordering::Release);
        self.notify_peer();
    }

    /// How the other side ended. Look at this first and at the ring second: what it sent before is in there.
    pub(super) fn peer_end(&self) -> End {
        match self.link.directions[1 - self.side].end.load(Ordering::Acquire) {
            0 => End::Open,
            1 => End::Closed,
            3 => End::Finished,
            _ => End::Gone,
        }
    }

    /// Ends the own direction in order, after everything else was sent.
    pub(super) fn end(&self) {
        self.link.directions[self.side].end.store(End::Closed as u8, Ordering::Release);
        self.notify_peer();
    }

    /// Ends the own direction as [`Half::end`] does, and goes on receiving.
    pub(super) fn finish(&self) {
        self.link.directions[self.side].end.store(End::Finished as u8, Ordering::Release);
        self.notify_peer();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.link.directions[self.side].end.load(Ordering::Relaxed) == End::Closed as u8
    }

    /// The other side is gone: nothing is taken any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.outgoing.is_abandoned()
    }

    /// Items that can be pushed now.
    pub(super) fn room(&self) -> usize {
        self.outgoing.slots()
    }

    /// Publishes `count` items of the iterator at once; `count` must not exceed [`Half::room`].
    pub(super) fn push(&mut self, count: usize, items: impl Iterator<Item = Item>) {
        if let Ok(chunk) = self.outgoing.write_chunk_uninit(count) {
            chunk.fill_from_iter(items.take(count));
        }
    }

    /// Whether nothing waits to be taken.
    pub(super) fn is_drained(&self) -> bool {
        self.incoming.is_empty()
    }

    /// Takes up to `most` items; returns how many. The sender is woken if it waits for room.
    pub(super) fn take(&mut self, most: usize, mut each: impl FnMut(Item)) -> usize {
        let count = self.incoming.slots().min(most);
        if count == 0 {
            return 0;
        }
        let mut bytes = 0;
        if let Ok(chunk) = self.incoming.read_chunk(count) {
            for item in chunk {
                bytes += item.bytes() as u64;
                each(item);
            }
        }
        let direction = &self.link.directions[1 - self.side];
        direction.consumed.store(direction.consumed.load(Ordering::Relaxed) + bytes, Ordering::Release);
        if direction.wants_room.must_be_woken() {
            self.notify_peer();
        }
        count
    }

    /// Bytes of the own direction that the other side took so far.
    pub(super) fn consumed_by_peer(&self) -> u64 {
        self.link.directions[self.side].consumed.load(Ordering::Acquire)
    }

    /// Asks to be woken when the other side takes something; to be called after [`Doorbell::arm`] and before
    /// the last look at [`Half::room`].
    pub(super) fn want_room(&self) {
        self.link.directions[self.side].wants_room.fall_asleep();
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if !self.is_closed() {
            self.link.directions[self.side].end.store(End::Gone as u8, Ordering::Release);
            self.notify_peer();
        }
    }
}
