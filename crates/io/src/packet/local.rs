//! Packets from another thread of this process instead of a network: those of an emulated board, or of a capture.
//!
//! ```text
//!  LocalFeed: copies packets into blocks of its pool --bounded queue--> LocalReceiver, on the thread that takes them
//! ```
//! Nothing is lost in between: if the queue or the pool is full, the feed refuses the packet, and the caller tries
//! again later.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ropewalk_memory::{Loan, Owner, Payload, Pool, Slice};
use ropewalk_terms::Instant;
use rtrb::{Consumer, Producer, RingBuffer};

use super::{MemoryInUse, Packet, QueueInUse, ReceiveCounters, Receiver};
use crate::doorbell::Doorbell;

/// Alignment of packets in bytes.
const ALIGNMENT: usize = 16;
/// Maximum number of packets of one batch.
const BATCH: usize = 256;

/// A waiting packet: its sender, its time if a recording states it, and its bytes.
type Waiting = (SocketAddr, Option<Instant>, Slice);

/// The input side, used by one thread.
pub struct LocalFeed {
    pool: Pool,
    loan: Option<Loan>,
    queue: Producer<Waiting>,
    shared: Arc<Shared>,
}

/// The output side, used by another thread.
pub struct LocalReceiver {
    queue: Consumer<Waiting>,
    shared: Arc<Shared>,
    counters: ReceiveCounters,
    blocks: usize,
    /// Whether the doorbell was armed, and may have been rung.
    is_armed: bool,
}

struct Shared {
    bell: Doorbell,
    /// Number of blocks of the pool that were lent at the feed's last check.
    held: AtomicUsize,
    /// Whether the feed is gone, so that no packets follow the waiting ones.
    has_ended: AtomicBool,
}

/// Makes both ends of a line for packets of up to a block of `pool`, of which `most` may wait in it. The pool belongs
/// to the feed's thread.
///
/// # Errors
/// If the system has no descriptor left.
pub fn local_packets(pool: Pool, most: usize) -> io::Result<(LocalFeed, LocalReceiver)> {
    let (give, take) = RingBuffer::new(most);
    let shared =
        Arc::new(Shared { bell: Doorbell::new()?, held: AtomicUsize::new(0), has_ended: AtomicBool::new(false) });
    let (blocks, counters) = (pool.blocks(), ReceiveCounters::default());
    let receiver = LocalReceiver { queue: take, shared: Arc::clone(&shared), counters, blocks, is_armed: false };
    Ok((LocalFeed { pool, loan: None, queue: give, shared }, receiver))
}

impl LocalFeed {
    /// Bytes of the longest packet that fits.
    pub fn largest(&self) -> usize {
        self.pool.block_size()
    }

    /// Sends a packet as from this address. `came` is its arrival time by a recording's clock; `None` means now. False
    /// if there is no room now, or the packet is longer than [`Self::largest`].
    pub fn send(&mut self, from: SocketAddr, came: Option<Instant>, packet: &[u8]) -> bool {
        if self.queue.is_full() {
            self.look();
            return false;
        }
        if self.loan.as_ref().is_none_or(|loan| loan.spare_len() < packet.len().max(1)) {
            // The old block is dropped first: it may be the only one.
            self.loan = None;
            self.loan = self.pool.loan(Owner::SHARED);
            self.look();
        }
        let Some(loan) = &mut self.loan else { return false };
        let Some(room) = loan.spare().get_mut(..packet.len()) else { return false };
        room.copy_from_slice(packet);
        loan.commit(packet.len().next_multiple_of(ALIGNMENT).max(ALIGNMENT).min(loan.spare_len()));
        let Some(mut slice) = loan.split_committed() else { return false };
        slice.truncate(packet.len());
        let is_taken = self.queue.push((from, came, slice)).is_ok();
        self.shared.bell.notify();
        is_taken
    }

    /// Whether the receiving side has gone.
    pub fn is_abandoned(&self) -> bool {
        self.queue.is_abandoned()
    }

    /// Publishes how much of the memory is held.
    fn look(&mut self) {
        self.pool.collect();
        self.shared.held.store(self.pool.held(), Ordering::Relaxed);
    }
}

impl std::fmt::Debug for LocalFeed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LocalFeed").field("pool", &self.pool.id()).finish_non_exhaustive()
    }
}

impl Drop for LocalFeed {
    fn drop(&mut self) {
        // The number of held blocks is no longer of interest, and nothing waits for it.
        self.shared.held.store(0, Ordering::Relaxed);
        self.shared.has_ended.store(true, Ordering::Release);
        self.shared.bell.notify();
    }
}

impl Receiver for LocalReceiver {
    fn receive(&mut self, _: Instant, packets: &mut Vec<Packet>) -> usize {
        if std::mem::take(&mut self.is_armed) {
            self.shared.bell.disarm();
            self.shared.bell.silence();
        }
        let count = self.queue.slots().min(BATCH);
        let Ok(chunk) = self.queue.read_chunk(count) else { return 0 };
        self.counters.calls += u64::from(count > 0);
        self.counters.packets += count as u64;
        for (from, came, slice) in chunk {
            self.counters.bytes += slice.len() as u64;
            let payload = if slice.is_empty() { Payload::default() } else { Payload::from(slice) };
            packets.push(Packet { from, to: 0, payload, came });
        }
        count
    }

    fn address(&self) -> SocketAddr {
        super::ANY.into()
    }

    fn prepare_wait(&mut self) -> bool {
        self.shared.bell.arm();
        self.is_armed = true;
        self.queue.is_empty() && !self.shared.has_ended.load(Ordering::Acquire)
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.bell.descriptor())
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.counters
    }

    fn memory_in_use(&mut self) -> MemoryInUse {
        MemoryInUse { held: self.shared.held.load(Ordering::Relaxed), all: self.blocks }
    }

    /// In packets.
    fn queue_in_use(&mut self) -> QueueInUse {
        QueueInUse { used: self.queue.slots() as u64, room: self.queue.buffer().capacity() as u64, packet: 1 }
    }

    fn is_over(&self) -> bool {
        // In this order: a feed has sent everything before it ends.
        self.shared.has_ended.load(Ordering::Acquire) && self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_memory::PoolConfig;

    const FROM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7)), 9000);

    fn line(blocks: usize, most: usize) -> (LocalFeed, LocalReceiver) {
        let pool = Pool::new(PoolConfig::heap("local", 4096, blocks)).expect("a small pool");
        local_packets(pool, most).expect("a descriptor")
    }

    fn taken(receiver: &mut LocalReceiver) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while receiver.receive(Instant::ZERO, &mut packets) > 0 {}
        assert!(packets.iter().all(|packet| packet.from == FROM));
        packets.iter().map(|packet| packet.payload.to_vec()).collect()
    }

    #[test]
    fn packets_come_out_as_they_went_in_on_another_thread_and_then_comes_the_end() {
        let (mut feed, mut receiver) = line(4, 16);
        let packet = |number: usize| vec![number as u8; number * 13 % 700];
        let fed = std::thread::spawn(move || {
            for number in 0..2000 {
                while !feed.send(FROM, None, &packet(number)) {
                    std::thread::yield_now();
                }
            }
        });
        let mut found = Vec::new();
        while !receiver.is_over() {
            found.extend(taken(&mut receiver));
            if receiver.prepare_wait() {
                let mut bell = [rustix::event::PollFd::from_borrowed_fd(
                    receiver.wait_descriptor().expect("a bell"),
                    rustix::event::PollFlags::IN,
                )];
                rustix::event::poll(&mut bell, None).expect("it is rung for packets, and for the end");
            }
        }
        fed.join().expect("the feed has done its work");
        assert_eq!(found.len(), 2000);
        assert!(found.iter().zip(0..).all(|(found, number)| *found == packet(number)));
        assert_eq!(receiver.counters().packets, 2000);
    }

    #[test]
    fn where_there_is_no_room_the_feed_says_so_and_goes_on_later() {
        let (mut feed, mut receiver) = line(2, 3);
        assert!(!feed.send(FROM, None, &[0; 4097]), "longer than a block");
        assert!([1, 2, 3].iter().all(|&number| feed.send(FROM, None, &[number])));
        assert!(!feed.send(FROM, None, &[4]), "the queue is full");
        assert_eq!(taken(&mut receiver), [[1], [2], [3]]);
        // Received packets are held here until there is no block left.
        let mut packets = Vec::new();
        while feed.send(FROM, None, &[5; 4000]) {
            receiver.receive(Instant::ZERO, &mut packets);
        }
        assert_eq!((packets.len(), receiver.memory_in_use()), (2, MemoryInUse { held: 2, all: 2 }));
        packets.clear();
        assert!(feed.send(FROM, None, &[6]));
        assert_eq!((taken(&mut receiver), receiver.is_over()), (vec![vec![6]], false));
        drop(feed);
        assert!(receiver.is_over() && receiver.memory_in_use().held == 0);
    }

    #[test]
    fn a_feed_whose_receiver_is_gone_knows_it() {
        let (feed, receiver) = line(2, 3);
        assert!(!feed.is_abandoned());
        drop(receiver);
        assert!(feed.is_abandoned());
    }
}
