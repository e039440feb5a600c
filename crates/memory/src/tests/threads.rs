//! Blocks that come home from other threads.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::{held, pool};
use crate::{ByteQueue, Owner, Payload, Pool};

/// Steps of a test: fewer under Miri, which is some thousand times slower.
const fn steps(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// The next number of a sequence that looks random (an xorshift).
fn next(state: &mut u32) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    *state
}

/// A block waits a little for readers when there is none.
fn loan(pool: &mut Pool) -> crate::Loan {
    loop {
        match pool.loan(Owner::SHARED) {
            Some(loan) => return loan,
            None => thread::yield_now(),
        }
    }
}

/// Checks that each payload holds one number over and over, clones some, and drops out of order.
fn read(payloads: &Receiver<Payload>, seed: u32) -> usize {
    let mut random = seed;
    let mut kept: Vec<Payload> = Vec::new();
    let mut count = 0;
    for payload in payloads {
        count += 1;
        let first: [u8; 1] = payload.read_array(0).unwrap();
        assert!(payload.pieces().flatten().all(|&byte| byte == first[0]));
        if next(&mut random).is_multiple_of(4) {
            kept.push(payload.clone());
        }
        kept.push(payload);
        while kept.len() > 6 {
            kept.swap_remove(next(&mut random) as usize % kept.len());
        }
    }
    count
}

#[test]
fn fragments_cut_here_and_dropped_there_all_come_home() {
    let fragments = steps(60_000, 60);
    let mut pool = pool(256, 64);
    let (senders, readers): (Vec<_>, Vec<_>) = (1..=3)
        .map(|seed| {
            let (sender, receiver) = sync_channel(8);
            (sender, thread::spawn(move || read(&receiver, seed)))
        })
        .unzip();
    let mut queue = ByteQueue::new();
    let mut random = 7;
    let mut current = loan(&mut pool);
    for number in 0..fragments {
        // A fragment of 1 to 100 bytes, received in one or two pieces, maybe across a block's end.
        let size = 1 + next(&mut random) as usize % 100;
        let mut left = size;
        while left > 0 {
            if current.spare_len() == 0 {
                current = loan(&mut pool);
            }
            let piece = left.min(current.spare_len()).min(70);
            current.spare()[..piece].fill(number as u8);
            current.commit(piece);
            queue.push(current.split_committed().unwrap());
            left -= piece;
        }
        senders[number % senders.len()].send(queue.take(size)).unwrap();
    }
    drop((current, senders));
    let read: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert_eq!(read, fragments);
    assert_eq!(held(&mut pool), 0);
}

#[test]
fn pools_go_while_their_slices_are_dropped_elsewhere() {
    let (sender, receiver) = sync_channel::<crate::Slice>(4);
    let (back, returned) = sync_channel::<crate::Slice>(4);
    let dropper = thread::spawn(move || {
        for (number, slice) in receiver.into_iter().enumerate() {
            assert_eq!(slice[0] as usize, number / 2 % 256);
            if number % 3 == 0 {
                back.send(slice).unwrap();
            }
        }
    });
    for number in 0..steps(3000, 20) {
        let mut pool = pool(8, 2);
        for _ in 0..2 {
            let slice = pool.loan(Owner::SHARED).unwrap().append(&[number as u8]).unwrap();
            sender.send(slice).unwrap();
            returned.try_iter().for_each(drop);
        }
    }
    drop(sender);
    returned.into_iter().for_each(drop);
    dropper.join().unwrap();
}

#[test]
fn many_threads_share_one_block() {
    let mut pool = pool(64, 1);
    for round in 0..steps(200, 5) {
        let slice = loan(&mut pool).append(&[round as u8; 64]).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                let mut mine = slice.clone();
                scope.spawn(move || {
                    while mine.len() > 1 {
                        let front = mine.split_to(mine.len() / 2);
                        assert!(front.iter().all(|&byte| byte == round as u8));
                    }
                });
            }
        });
        assert_eq!(pool.held(), 1);
    }
    assert_eq!(held(&mut pool), 0);
}
