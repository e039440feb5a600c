//! Between start and stop, the data path makes no allocation, not even when a pool runs out.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ropewalk_memory::{ByteQueue, Owner, Payload, Pool, PoolConfig, Staging, chain_allocations, prepare_chains};

thread_local! {
    /// Allocations of this thread only, so that those of the test harness do not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator, plus a counter that itself allocates nothing.
unsafe impl GlobalAlloc for Counting {
    /// # Safety
    /// As required by the trait.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As required by the trait.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Receives until the pool is empty, cuts fragments across blocks, chains and evacuates them, and drops all.
fn round(pool: &mut Pool, queue: &mut ByteQueue, staging: &mut Staging, events: &mut Vec<Payload>) {
    while let Some(mut loan) = pool.loan(Owner::SHARED) {
        for _ in 0..4 {
            loan.commit(250);
            queue.push(loan.split_committed().expect("bytes were committed"));
        }
    }
    while queue.len() >= 700 {
        let mut event = queue.take(700);
        event.append(event.clone());
        assert_eq!(event.pieces().map(<[u8]>::len).sum::<usize>(), 1400);
        events.push(event);
    }
    queue.clear();
    while events.len() > 4 {
        events.swap_remove(0);
    }
    for event in events.iter_mut() {
        *event = event.evacuate(staging).expect("the staging pool has room for four events");
    }
    pool.collect();
    assert_eq!(pool.held(), 0);
    while staging.write(&[0; 1000]).is_some_and(|slice| !slice.is_empty() && events.pop().is_some()) {}
    events.clear();
}

#[test]
#[cfg_attr(miri, ignore = "Miri keeps fewer spare chain nodes, and has its own allocator")]
fn nothing_on_the_way_of_the_data_allocates() {
    let mut pool = Pool::new(PoolConfig::heap("data", 1000, 40)).expect("a small pool");
    let mut staging = Staging::new(Pool::new(PoolConfig::heap("staging", 2000, 8)).expect("a small pool"));
    let mut queue = ByteQueue::new();
    let mut events = Vec::with_capacity(64);
    prepare_chains(200);
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the counting works");
    for _ in 0..50 {
        round(&mut pool, &mut queue, &mut staging, &mut events);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(chain_allocations(), 0);
    let account = pool.account();
    assert_eq!((account.loans, account.returned, account.held), (50 * 40, 50 * 40, 0));

    // Without preparation a chain is still made, and its allocation is counted.
    let mut slice = || pool.loan(Owner::SHARED).and_then(|mut loan| loan.append(b"x")).expect("the pool is empty");
    let pair: Payload = [slice(), slice()].into_iter().collect();
    let many: Vec<Payload> = (0..300).map(|_| pair.clone()).collect();
    assert_eq!(chain_allocations(), 301 - 200);
    drop(many);
}
