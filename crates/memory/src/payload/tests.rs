//! What a payload is made of, which its users do not see.

use proptest::prelude::*;

use super::{Payload, Repr};
use crate::{ByteQueue, Owner, Pool, PoolConfig, Slice};

/// A slice of this many bytes, that count on from 0, in a block of their own.
fn block(bytes: usize) -> (Pool, Slice) {
    block_of(&(0..bytes).map(|index| index as u8).collect::<Vec<_>>())
}

fn block_of(content: &[u8]) -> (Pool, Slice) {
    let mut pool = Pool::new(PoolConfig::heap("stripes", content.len(), 2)).unwrap();
    let slice = pool.loan(Owner::SHARED).and_then(|mut loan| loan.append(content)).unwrap();
    (pool, slice)
}

/// Pieces behind each other, each with its gap in front: `(gap, bytes)`.
fn cut(slice: Slice, pieces: &[(usize, usize)]) -> Payload {
    let (mut queue, mut payload) = (ByteQueue::new(), Payload::default());
    queue.push(slice);
    for &(gap, bytes) in pieces {
        queue.skip(gap);
        queue.take_into(bytes, &mut payload);
    }
    payload
}

const fn is_stripe(payload: &Payload) -> bool {
    matches!(payload.0, Repr::Stripe(_))
}

#[test]
fn a_stripe_makes_no_payload_larger() {
    // A slice with the mark of what it is.
    assert_eq!((size_of::<Slice>(), size_of::<super::Stripe>(), size_of::<Payload>()), (24, 24, 32));
}

#[test]
fn a_fragment_in_several_ferol_blocks_is_a_stripe_until_one_piece_is_left() {
    let (mut pool, slice) = block(100);
    let mut payload = cut(slice, &[(4, 20), (4, 20), (4, 20), (4, 3)]);
    assert!(is_stripe(&payload) && is_stripe(&payload.clone()));
    assert_eq!((payload.len(), payload.piece_count()), (63, 4));
    assert_eq!((payload.read_array(1), payload.read_array(19)), (Some([5, 6]), Some([23, 28])));
    assert_eq!((payload.read_array(60), payload.read_array::<4>(60)), (Some([76, 77, 78]), None));
    payload.skip(30);
    assert_eq!((is_stripe(&payload), payload.read_array(0)), (true, Some([38, 39])));
    assert_eq!(payload.pop_slice().as_deref(), Some(&[38, 39, 40, 41, 42, 43, 44, 45, 46, 47][..]));
    payload.skip(20);
    assert_eq!((is_stripe(&payload), payload.contiguous()), (false, Some(&[76, 77, 78][..])));
    pool.collect();
    assert_eq!(pool.held(), 1);
    drop(payload);
    pool.collect();
    assert_eq!(pool.held(), 0);
}

#[test]
fn what_is_not_regular_or_lies_elsewhere_is_a_chain() {
    let is_stripe = |pieces| is_stripe(&cut(block(200).1, pieces));
    assert!(is_stripe(&[(0, 9), (4, 5), (4, 5), (4, 5)]), "the first piece may have another length");
    assert!(is_stripe(&[(0, 9), (4, 2), (0, 3), (4, 5)]), "the second may come in parts");
    assert!(is_stripe(&[(0, 9), (4, 5), (4, 2), (0, 3), (4, 5)]), "and so may any");
    assert!(!is_stripe(&[(0, 9), (4, 5), (4, 6)]), "a longer piece");
    assert!(!is_stripe(&[(0, 9), (4, 5), (4, 4), (4, 5)]), "a piece behind a shorter one");
    assert!(!is_stripe(&[(0, 9), (4, 5), (4, 3), (0, 3)]), "a piece that grows too long");
    assert!(!is_stripe(&[(0, 9), (4, 5), (5, 5)]), "another distance");
}

#[test]
fn no_stripe_leaves_its_block_where_the_next_one_lies_at_the_right_distance() {
    let mut pool = Pool::new(PoolConfig::heap("stripes", 16, 2)).unwrap();
    let mut blocks = [0; 2].map(|_| pool.loan(Owner::SHARED).and_then(|mut loan| loan.append(&[1; 16])).unwrap());
    blocks.sort_by_key(|slice| slice.as_ptr());
    let [mut first, mut next] = blocks;
    assert_eq!(first.as_ptr().wrapping_add(16), next.as_ptr());
    next.truncate(4);
    let (one, _gap, two) = (first.split_to(4), first.split_to(4), first.split_to(4));
    let of_one = [one.clone(), next.clone()].into_iter().collect::<Payload>();
    let of_two = [one, two, next].into_iter().collect::<Payload>();
    assert!(matches!((&of_one.0, &of_two.0), (Repr::Chain(_), Repr::Chain(_))));
    drop((first, of_one));
    pool.collect();
    assert_eq!((pool.held(), of_two.piece_count(), of_two.len()), (2, 3, 12));
}

#[test]
fn lengths_that_a_stripe_cannot_count_make_a_chain() {
    const MOST: usize = u16::MAX as usize;
    let is_stripe = |pieces: &[_]| is_stripe(&cut(block_of(&[0; 3 * MOST]).1, pieces));
    assert!(is_stripe(&[(0, MOST), (1, MOST)]) && !is_stripe(&[(0, MOST + 1), (1, 5)]));
    assert!(!is_stripe(&[(0, 5), (1, MOST + 1)]) && !is_stripe(&[(0, 5), (1, MOST), (0, 1)]));
    assert!(is_stripe(&[(0, 5), (MOST, 5)]) && !is_stripe(&[(0, 5), (MOST + 1, 5)]));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 1000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Distances and lengths of few kinds, so that many of these are stripes and the others nearly.
    #[test]
    fn a_payload_of_pieces_reads_skips_and_comes_apart_as_its_bytes(
        pieces in prop::collection::vec((prop_oneof![6 => Just(4usize), 1 => 0..6usize], prop_oneof![6 => Just(8usize), 1 => 1..9usize]), 1..8),
        skipped in 0..40usize,
    ) {
        let (mut pool, slice) = block(128);
        let mut payload = cut(slice, &pieces);
        let (mut expected, mut at) = (Vec::new(), 0);
        for (gap, bytes) in pieces {
            expected.extend((at + gap..at + gap + bytes).map(|byte| byte as u8));
            at += gap + bytes;
        }
        let whole = payload.clone();
        prop_assert_eq!(&payload.to_vec(), &expected);
        payload.skip(skipped);
        let rest = &expected[skipped.min(expected.len())..];
        prop_assert_eq!((payload.len(), payload.to_vec()), (rest.len(), rest.to_vec()));
        for offset in 0..=rest.len() {
            let three = payload.read_array::<3>(offset);
            prop_assert_eq!(three.as_ref().map(|array| &array[..]), rest.get(offset..offset + 3));
        }
        prop_assert_eq!(payload.piece_count(), payload.pieces().count());
        prop_assert_eq!(payload.clone().into_slices().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>(), rest);
        drop(payload);
        prop_assert_eq!(&whole.to_vec(), &expected);
        let mut front = whole.clone();
        front.truncate(skipped);
        prop_assert_eq!(front.to_vec(), &expected[..skipped.min(expected.len())]);
        drop((whole, front));
        pool.collect();
        prop_assert_eq!(pool.held(), 0);
    }
}
