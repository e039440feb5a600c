//! Tests through the crate's interface; the models for loom are in `table` and `ring::pointers`.
#![cfg(not(loom))]

mod model;
mod system;

use core::mem::size_of;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use crate::{ByteQueue, Loan, Owner, Payload, Pool, PoolConfig, PoolError, Slice, Staging};

/// Makes a pool from the allocator.
fn pool(block_size: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap("test", block_size, blocks)).unwrap()
}

/// Returns `bytes` in a separate block.
fn slice(pool: &mut Pool, bytes: &[u8]) -> Slice {
    pool.loan(Owner::SHARED).unwrap().append(bytes).unwrap()
}

/// Returns how many blocks are still lent.
fn held(pool: &mut Pool) -> usize {
    pool.collect();
    let account = pool.account();
    assert_eq!(account.loans, account.returned + account.held);
    pool.held()
}

fn assert_send<T: Send>() {}
fn assert_sync<T: Sync>() {}

#[test]
fn sizes_and_threads_are_as_promised() {
    assert_eq!(size_of::<Slice>(), 24);
    assert_eq!(size_of::<Option<Slice>>(), 24);
    assert!(size_of::<Payload>() <= 32);
    assert_send::<Pool>();
    assert_send::<Loan>();
    assert_send::<Slice>();
    assert_sync::<Slice>();
    assert_send::<Payload>();
    assert_sync::<Payload>();
    assert_send::<ByteQueue>();
    assert_send::<Staging>();
}

#[test]
fn the_head_is_read_while_the_tail_is_written() {
    let mut pool = pool(16, 1);
    let mut loan = pool.loan(Owner::SHARED).unwrap();
    assert_eq!(loan.spare().len(), 16);
    loan.spare()[..3].copy_from_slice(b"abc");
    loan.commit(3);
    let head = loan.split_committed().unwrap();
    let tail = loan.spare();
    tail[0] = b'd';
    assert_eq!((&*head, tail.len()), (&b"abc"[..], 13));
    assert!(loan.split_committed().is_none());
    loan.commit(1);
    let next = loan.append(b"ef").unwrap();
    assert_eq!(&*next, b"def");
    assert!(head.is_followed_by(&next) && !next.is_followed_by(&head));
    assert!(loan.append(&[0; 11]).is_none());
    assert_eq!(loan.spare_len(), 10);
    assert_eq!(held(&mut pool), 1);
    drop((loan, head));
    assert_eq!(held(&mut pool), 1);
    drop(next);
    assert_eq!(held(&mut pool), 0);
}

#[test]
#[should_panic(expected = "more bytes committed")]
fn more_than_the_block_cannot_be_committed() {
    pool(16, 1).loan(Owner::SHARED).unwrap().commit(17);
}

#[test]
fn the_last_block_in_is_the_first_out() {
    let mut pool = pool(16, 4);
    let first = slice(&mut pool, b"a");
    let second = slice(&mut pool, b"b");
    assert_ne!(first.block(), second.block());
    let block = first.block();
    drop(first);
    assert_eq!(slice(&mut pool, b"c").block(), block);
}

#[test]
fn quotas_hold() {
    let mut pool = pool(16, 4);
    let owner = pool.reserve(3).unwrap();
    assert!(matches!(pool.reserve(2), Err(PoolError::Quota { asked: 2, left: 1, .. })));
    let shared = pool.loan(Owner::SHARED).unwrap();
    assert!(pool.loan(Owner::SHARED).is_none());
    assert!(matches!(pool.reserve(1), Err(PoolError::Quota { left: 0, .. })));
    let mut loans: Vec<_> = (0..3).map(|_| pool.loan(owner).unwrap()).collect();
    assert!(pool.loan(owner).is_none());
    assert_eq!((pool.available(owner), pool.held_by(owner), pool.held()), (0, 3, 4));
    drop(shared);
    assert!(pool.loan(owner).is_none(), "the shared block is not the owner's");
    loans.pop();
    assert!(pool.loan(owner).is_some());
    drop(loans);
    assert_eq!(held(&mut pool), 0);
    assert_eq!((pool.available(owner), pool.available(Owner::SHARED)), (3, 1));
}

#[test]
fn impossible_pools_are_refused() {
    for (block_size, blocks) in [(0, 1), (1, 0), ((1 << 31) + 1, 1), (1 << 31, usize::MAX), (1, 1 << 32)] {
        assert!(matches!(Pool::new(PoolConfig::heap("none", block_size, blocks)), Err(PoolError::Size { .. })));
    }
}

#[test]
fn slices_split_join_and_keep_their_block() {
    let mut pool = pool(64, 2);
    let mut back = slice(&mut pool, b"0123456789");
    let mut front = back.split_to(4);
    assert_eq!((&*front, &*back), (&b"0123"[..], &b"456789"[..]));
    let other = slice(&mut pool, b"x");
    let other = front.join(other).unwrap_err();
    assert!(front.join(back).is_ok());
    assert_eq!(front, slice_of(&front));
    assert_eq!(&*front, b"0123456789");
    drop(other);
    assert_eq!(held(&mut pool), 1);
    drop(front);
    assert_eq!(held(&mut pool), 0);
}

fn slice_of(slice: &Slice) -> Slice {
    slice.clone()
}

#[test]
fn a_pool_lives_until_its_last_slice_is_gone() {
    let (mut first, mut second) = (pool(16, 3), pool(16, 1));
    let (one, two) = (slice(&mut first, b"one"), slice(&mut first, b"two"));
    let id = first.id();
    drop(slice(&mut first, b"on the queue").split_to(1));
    drop(first);
    assert_eq!((&*one, one.pool()), (&b"one"[..], id));
    drop(one);
    let other = slice(&mut second, b"other");
    assert_eq!((&*two, &*other), (&b"two"[..], &b"other"[..]));
    drop(two);
    drop(second);
    assert_eq!(&*other, b"other");
}

#[test]
fn a_queue_cuts_fragments_wherever_their_bytes_lie() {
    let mut pool = pool(10, 8);
    let mut queue = ByteQueue::new();
    for bytes in [&b"0123456789"[..], b"abcde", b"", b"fghijklmno"] {
        queue.push(slice(&mut pool, bytes));
    }
    assert_eq!((queue.len(), queue.front()), (25, &b"0123456789"[..]));
    assert_eq!(queue.peek_array(8), Some(*b"89abcdefg"));
    assert_eq!(queue.peek_array::<2>(24), None);
    assert_eq!(queue.peek_array::<2>(usize::MAX), None);
    let first = queue.take(3);
    assert_eq!((first.contiguous(), first.piece_count()), (Some(&b"012"[..]), 1));
    queue.skip(2);
    let chained = queue.take(12);
    assert_eq!((chained.to_vec(), chained.piece_count()), (b"56789abcdefg".to_vec(), 3));
    assert_eq!(chained.contiguous(), None);
    let mut rest = queue.take(2);
    queue.take_into(3, &mut rest);
    assert_eq!((rest.contiguous(), rest.piece_count()), (Some(&b"hijkl"[..]), 1));
    queue.skip(3);
    assert!(queue.is_empty() && queue.front().is_empty());
    assert_eq!(held(&mut pool), 3);
    drop((first, chained, rest));
    assert_eq!(held(&mut pool), 0);
}

#[test]
fn a_queue_joins_what_was_read_piece_by_piece() {
    let mut pool = pool(16, 1);
    let mut loan = pool.loan(Owner::SHARED).unwrap();
    let mut queue = ByteQueue::new();
    for byte in b"0123456789abcdef" {
        queue.push(loan.append(&[*byte]).unwrap());
        if *byte == b'7' {
            assert_eq!(queue.take(5).contiguous(), Some(&b"01234"[..]));
        }
    }
    drop(loan);
    assert_eq!(queue.front(), b"56789abcdef");
    assert_eq!(queue.take(11).piece_count(), 1);
    assert_eq!(held(&mut pool), 0);
    queue.push(slice(&mut pool, b"xyz"));
    drop(queue.take(1));
    queue.clear();
    assert_eq!((held(&mut pool), queue.len()), (0, 0));
}

#[test]
fn a_payload_of_many_slices_reads_like_one() {
    let mut pool = pool(7, 64);
    let bytes: Vec<u8> = (0..=255).collect();
    let payload: Payload = bytes.chunks(7).map(|chunk| slice(&mut pool, chunk)).collect();
    assert_eq!((payload.len(), payload.piece_count()), (256, 37));
    assert_eq!(payload.pieces().count(), 37);
    assert_eq!(payload.read_array(5), Some([5, 6, 7, 8]));
    assert_eq!(payload.read_array::<8>(249), None);
    let mut middle = [0; 100];
    assert!(payload.copy_to(100, &mut middle));
    assert_eq!(middle[..], bytes[100..200]);
    assert!(!payload.copy_to(200, &mut middle));
    let mut copy = payload.clone();
    assert_eq!(copy, payload);
    copy.skip(130);
    assert_eq!(copy.to_vec(), bytes[130..]);
    let last = copy.clone().into_slices().last().unwrap();
    assert_eq!(*last, bytes[252..]);
    copy.skip(124);
    assert_eq!(copy.contiguous(), Some(&bytes[254..]));
    copy.skip(9);
    assert!(copy.is_empty() && copy.piece_count() == 0 && copy.contiguous() == Some(&[]));
    drop((payload, last));
    assert_eq!(held(&mut pool), 0);
}

#[test]
fn staging_lets_the_caller_write_where_there_is_room() {
    let mut staging = Staging::new(pool(8, 2));
    let fill = |bytes: &'static [u8]| {
        move |space: &mut [u8]| {
            space[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        }
    };
    let first = staging.write_with(4, fill(b"abcde")).unwrap();
    assert_eq!((&*first, staging.write_with(3, fill(b"fg")).as_deref()), (&b"abcde"[..], Some(&b"fg"[..])));
    assert!(staging.write_with(1, fill(b"")).is_none(), "nothing was written");
    let next = staging.write_with(2, fill(b"hijklmno")).unwrap();
    assert_eq!((&*next, staging.copied()), (&b"hijklmno"[..], 15));
    assert!(staging.write_with(1, |_| unreachable!("the pool is dry")).is_none());
    assert!(staging.write_with(9, |_| unreachable!("no block is so large")).is_none());
}

#[test]
fn staging_copies_counts_and_runs_dry() {
    let mut staging = Staging::new(pool(8, 2));
    let first = staging.write(b"abcde").unwrap();
    let second = staging.write(b"fgh").unwrap();
    assert!(first.is_followed_by(&second));
    assert_eq!(staging.write(b"").as_deref(), Some(&[][..]));
    let third = staging.write(b"ijklmnop").unwrap();
    assert!(staging.write(b"q").is_none());
    assert!(staging.write(&[0; 9]).is_none());
    assert_eq!(staging.copied(), 16);
    drop((first, second));
    assert_eq!(staging.write(b"q").as_deref(), Some(&b"q"[..]));
    assert_eq!(&*third, b"ijklmnop");
}

#[test]
fn evacuation_frees_the_old_blocks() {
    let (mut pool, mut staging) = (pool(10, 3), Staging::new(pool(8, 2)));
    let payload: Payload = [&b"0123456789"[..], b"abc"].map(|bytes| slice(&mut pool, bytes)).into_iter().collect();
    let copy = payload.evacuate(&mut staging).unwrap();
    assert!(payload.lies_in(&pool) && !payload.lies_in(staging.pool()) && copy.lies_in(staging.pool()));
    assert_eq!((copy.to_vec(), staging.copied()), (payload.to_vec(), 13));
    assert!(payload.evacuate(&mut staging).is_none());
    drop(payload);
    assert_eq!(held(&mut pool), 0);
    drop(copy);
    assert_eq!(held(staging.pool_mut()), 0, "running dry gave the last block up");
}

#[test]
fn two_pools_in_one_piece_of_memory_have_blocks_of_their_own() {
    let (mut first, mut second) = Pool::pair(PoolConfig::heap("pair", 64, 5), 2).unwrap();
    assert_eq!((first.blocks(), second.blocks()), (2, 3));
    assert_eq!(first.address().as_ptr().wrapping_add(128), second.address().as_ptr());
    let slices: Vec<Slice> = [&mut first, &mut second]
        .into_iter()
        .flat_map(|pool| (0..pool.blocks()).map(|number| slice(pool, &[number as u8; 64])).collect::<Vec<_>>())
        .collect();
    assert!(first.loan(Owner::SHARED).is_none() && second.loan(Owner::SHARED).is_none());
    for (slice, number) in slices.iter().zip([0, 1, 0, 1, 2]) {
        assert_eq!(**slice, [number; 64]);
    }
    drop(first);
    assert_eq!(*slices[1], [1; 64], "memory stays as long as its slices");
    drop(slices);
    assert_eq!(held(&mut second), 0);
    assert!(
        Pool::pair(PoolConfig::heap("pair", 64, 5), 5).is_err()
            && Pool::pair(PoolConfig::heap("pair", 64, 5), 0).is_err()
    );
}

#[test]
fn a_slice_knows_whether_it_is_alone_with_its_block() {
    let mut pool = pool(64, 1);
    let mut loan = pool.loan(Owner::SHARED).unwrap();
    let mut slice = loan.append(&[1; 10]).unwrap();
    assert!(!slice.is_alone(), "the loan is there");
    drop(loan);
    assert!(slice.is_alone());
    let front = slice.split_to(4);
    assert!(!slice.is_alone() && !front.is_alone());
    drop(front);
    assert!(slice.is_alone());
}

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

/// Takes a loan; waits for readers to return a block if none is free.
fn loan(pool: &mut Pool) -> crate::Loan {
    loop {
        match pool.loan(Owner::SHARED) {
            Some(loan) => return loan,
            None => thread::yield_now(),
        }
    }
}

/// Checks that each payload repeats one number, clones some, and drops them out of order.
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
