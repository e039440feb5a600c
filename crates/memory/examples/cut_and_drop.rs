//! Measures the cost to cut a fragment from a received stream and to drop it again, in nanoseconds.
//!
//! `cargo run --release -p ropewalk-memory --example cut_and_drop`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use ropewalk_memory::{ByteQueue, CounterPage, Loan, Owner, Payload, Pool, PoolConfig, Slice, prepare_chains};

const BLOCK: usize = 64 << 10;
const FRAGMENT: usize = 2 << 10;
const FRAGMENTS: usize = 2_000_000;
const REPEATS: usize = 9;

/// Runs `work` several times and prints the median of the time for each of its steps.
fn measure(name: &str, steps: usize, mut work: impl FnMut()) {
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64 / steps as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:<60} {:7.1} ns (from {:.1} to {:.1})", times[REPEATS / 2], times[0], times[REPEATS - 1]);
}

/// A stream of full blocks, each received in pieces of `read` bytes. (The bytes are not written.)
fn refill(pool: &mut Pool, queue: &mut ByteQueue, read: usize) -> bool {
    let Some(mut loan) = pool.loan(Owner::SHARED) else { return false };
    while loan.spare_len() > 0 {
        let bytes = read.min(loan.spare_len());
        push(&mut loan, queue, bytes);
    }
    true
}

fn push(loan: &mut Loan, queue: &mut ByteQueue, bytes: usize) {
    loan.commit(bytes);
    if let Some(slice) = loan.split_committed() {
        queue.push(slice);
    }
}

/// Cuts fragments of `size` bytes out of blocks read `read` bytes at a time, and gives each to `sink`.
fn cut(pool: &mut Pool, count: usize, size: usize, read: usize, mut sink: impl FnMut(Payload)) {
    let mut queue = ByteQueue::new();
    for _ in 0..count {
        while queue.len() < size {
            if !refill(pool, &mut queue, read) {
                std::thread::yield_now();
            }
        }
        black_box(queue.peek_array::<16>(0));
        sink(queue.take(size));
    }
}

fn in_one_thread(pool: &mut Pool) {
    measure("cut 2 KiB from 64 KiB reads, drop at once", FRAGMENTS, || {
        cut(pool, FRAGMENTS, FRAGMENT, BLOCK, drop);
    });
    measure("cut 2 KiB from 4 KiB reads, drop at once", FRAGMENTS, || {
        cut(pool, FRAGMENTS, FRAGMENT, 4 << 10, drop);
    });
    measure("cut 2,000 B (crosses blocks), drop at once", FRAGMENTS, || {
        cut(pool, FRAGMENTS, 2000, BLOCK, drop);
    });
    measure("cut 2 KiB, drop 4,096 fragments later", FRAGMENTS, || {
        let mut kept: Vec<Payload> = (0..4096).map(|_| Payload::default()).collect();
        let mut index = 0;
        cut(pool, FRAGMENTS, FRAGMENT, BLOCK, |payload| {
            kept[index % 4096] = payload;
            index += 1;
        });
    });
    measure("cut 2 KiB, chained by 16, drop", FRAGMENTS, || {
        let (mut event, mut count) = (Payload::default(), 0);
        cut(pool, FRAGMENTS, FRAGMENT, BLOCK, |payload| {
            // Like fragments of different sources: never adjacent.
            let mut slices = payload.into_slices();
            slices.by_ref().for_each(|mut slice| {
                slice.truncate(FRAGMENT - 8);
                event.push(slice);
            });
            count += 1;
            if count % 16 == 0 {
                event = Payload::default();
            }
        });
    });
}

fn on_two_threads(pool: &mut Pool) {
    measure("cut 2 KiB, drop on another thread (batches of 256)", FRAGMENTS, || {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<Payload>>(4);
        let dropper = std::thread::spawn(move || receiver.into_iter().for_each(drop));
        let mut batch = Vec::with_capacity(256);
        cut(pool, FRAGMENTS, FRAGMENT, BLOCK, |payload| {
            batch.push(payload);
            if batch.len() == 256 {
                // The receiver lives until the sender is dropped.
                let _ = sender.send(std::mem::replace(&mut batch, Vec::with_capacity(256)));
            }
        });
        drop((batch, sender));
        let _ = dropper.join();
    });
}

fn for_comparison(slice: &Slice) {
    measure("slice: clone, drop", FRAGMENTS, || (0..FRAGMENTS).for_each(|_| drop(black_box(slice.clone()))));
    let shared: Arc<[u8]> = Arc::from([0; FRAGMENT]);
    measure("Arc<[u8]>: clone, drop", FRAGMENTS, || (0..FRAGMENTS).for_each(|_| drop(black_box(Arc::clone(&shared)))));
    measure("Vec of 2 KiB: copy, drop", FRAGMENTS, || {
        (0..FRAGMENTS).for_each(|_| drop(black_box(shared.to_vec())));
    });
    let page = CounterPage::new(16);
    measure("counter page: add", FRAGMENTS, || (0..FRAGMENTS).for_each(|_| black_box(&page).add(3, 1)));
}

fn main() {
    prepare_chains(1024);
    let mut pool = match Pool::new(PoolConfig::anonymous("bench", BLOCK, 1024)) {
        Ok(pool) => pool,
        Err(error) => return eprintln!("{error}"),
    };
    println!("{:?}", pool.report());
    in_one_thread(&mut pool);
    on_two_threads(&mut pool);
    if let Some(slice) = pool.loan(Owner::SHARED).and_then(|mut loan| loan.append(&[0; FRAGMENT])) {
        for_comparison(&slice);
    }
    println!("chain nodes that the allocator had to give: {}", ropewalk_memory::chain_allocations());
}
