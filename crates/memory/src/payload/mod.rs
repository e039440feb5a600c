//! Payloads: bytes in one or several slices.
//!
//! Most fragments lie in one slice, or in pieces of one block with headers of equal size between them (a stripe); both
//! are stored in place. A payload that crosses a block's end, or is larger than a block, becomes a chain of recycled
//! nodes (`chain`).

mod chain;

use crate::pool::{Pool, Staging};
use crate::slice::Slice;
use chain::{Chain, ChainIter, Stripe, StripePieces};

pub use chain::{chain_allocations, prepare_chains};

/// Bytes in order, in one slice or several. Empty by default.
///
/// A clone costs one reference, or one for each slice if the bytes cross the end of a block. It copies no bytes.
#[derive(Default)]
pub struct Payload(Repr);

/// Never holds an empty slice. A stripe always has at least two pieces, and a chain at least one slice.
#[derive(Default)]
enum Repr {
    #[default]
    Empty,
    One(Slice),
    Stripe(Stripe),
    Chain(Chain),
}

impl From<Stripe> for Repr {
    fn from(stripe: Stripe) -> Self {
        stripe.into_one().map_or_else(Self::Stripe, Self::One)
    }
}

impl Payload {
    /// A payload of one slice, which must not be empty.
    #[inline(always)]
    pub(crate) fn one(slice: Slice) -> Self {
        Self(Repr::One(slice))
    }

    /// Appends a slice; if it follows the last one in its block, the two are joined.
    #[inline]
    pub fn push(&mut self, slice: Slice) {
        if !slice.is_empty() && !self.join(&slice) {
            self.push_apart(slice);
        }
    }

    /// Takes in the bytes of a slice without its reference, since the payload already has one of the same block.
    /// Returns false and changes nothing if they cannot be described together.
    #[inline]
    pub(crate) fn join(&mut self, slice: &Slice) -> bool {
        match &mut self.0 {
            Repr::Empty => false,
            Repr::One(one) => one.extend(slice) || self.join_as_stripe(slice),
            Repr::Stripe(stripe) => stripe.join(slice),
            Repr::Chain(chain) => chain.join(slice),
        }
    }

    fn join_as_stripe(&mut self, slice: &Slice) -> bool {
        let Repr::One(one) = core::mem::take(&mut self.0) else { return false };
        let stripe = Stripe::new(one, slice);
        let joined = stripe.is_ok();
        self.0 = stripe.map_or_else(Repr::One, Repr::Stripe);
        joined
    }

    /// Appends a slice that is not empty and was not joined.
    #[inline]
    pub(crate) fn push_apart(&mut self, slice: Slice) {
        match &mut self.0 {
            Repr::Empty => self.0 = Repr::One(slice),
            Repr::Chain(chain) => chain.push(slice),
            Repr::One(_) | Repr::Stripe(_) => self.begin_chain(slice),
        }
    }

    #[cold]
    fn begin_chain(&mut self, slice: Slice) {
        let mut chain = Chain::new();
        core::mem::take(self).into_slices().for_each(|slice| chain.push(slice));
        chain.push(slice);
        self.0 = Repr::Chain(chain);
    }

    /// Appends all slices of another payload.
    pub fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else {
            other.into_slices().for_each(|slice| self.push(slice));
        }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Empty => 0,
            Repr::One(one) => one.len(),
            Repr::Stripe(stripe) => stripe.len(),
            Repr::Chain(chain) => chain.len(),
        }
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Repr::Empty)
    }

    /// The bytes in order, piece by piece, none of them empty.
    #[inline]
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        match &self.0 {
            Repr::Empty => Pieces::One(None),
            Repr::One(one) => Pieces::One(Some(one)),
            Repr::Stripe(stripe) => Pieces::Stripe(stripe.pieces()),
            Repr::Chain(chain) => Pieces::Chain(chain.iter()),
        }
    }

    /// Number of pieces, and of slices in [`Payload::into_slices`].
    pub fn piece_count(&self) -> usize {
        match &self.0 {
            Repr::Empty => 0,
            Repr::One(_) => 1,
            Repr::Stripe(stripe) => stripe.count(),
            Repr::Chain(chain) => chain.count(),
        }
    }

    /// The bytes, if they are contiguous.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        // By far the most payloads are one slice: no branch on the representation.
        if let Repr::One(one) = &self.0 { Some(one) } else { self.contiguous_of_several() }
    }

    fn contiguous_of_several(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::Empty => Some(&[]),
            Repr::One(one) => Some(one),
            Repr::Stripe(_) => None,
            Repr::Chain(chain) => {
                let first = chain.iter().next()?;
                (first.len() == chain.len()).then_some(&**first)
            }
        }
    }

    /// Copies the bytes from `offset` on to `out`. Copies nothing and returns false if there are not enough.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> bool {
        let enough = offset.checked_add(out.len()).is_some_and(|end| end <= self.len());
        if enough {
            copy_chain(self.pieces(), offset, out);
        }
        enough
    }

    /// The `N` bytes from `offset` on, in one piece or several; `None` if there are not enough.
    #[inline]
    pub fn read_array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if let Repr::One(one) = &self.0 {
            return one.get(offset..offset.checked_add(N)?)?.try_into().ok();
        }
        self.read_array_of_several(offset)
    }

    fn read_array_of_several<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if let Repr::Stripe(stripe) = &self.0
            && let Some(bytes) = stripe.get(offset, N)
        {
            return bytes.try_into().ok();
        }
        let mut out = [0; N];
        self.copy_to(offset, &mut out).then_some(out)
    }

    /// Drops the first `n` bytes, or all if there are fewer.
    pub fn skip(&mut self, n: usize) {
        if n >= self.len() {
            self.0 = Repr::Empty;
            return;
        }
        match &mut self.0 {
            Repr::Empty => {}
            Repr::One(one) => one.skip(n),
            Repr::Stripe(_) => self.skip_in_stripe(n),
            Repr::Chain(chain) => {
                let mut left = n;
                while let Some(first) = chain.iter().next().map(|slice| slice.len()).filter(|&first| first <= left) {
                    left -= first;
                    chain.pop();
                }
                chain.skip_in_first(left);
            }
        }
    }

    fn skip_in_stripe(&mut self, n: usize) {
        if let Repr::Stripe(mut stripe) = core::mem::take(&mut self.0) {
            stripe.skip(n);
            self.0 = stripe.into();
        }
    }

    /// Keeps the first `n` bytes; no effect on a shorter payload.
    pub fn truncate(&mut self, n: usize) {
        if n >= self.len() {
            return;
        }
        if let Repr::One(one) = &mut self.0
            && n > 0
        {
            return one.truncate(n);
        }
        let mut left = n;
        for mut slice in core::mem::take(self).into_slices() {
            slice.truncate(left);
            left -= slice.len();
            self.push(slice);
        }
    }

    /// Takes the first slice out.
    pub fn pop_slice(&mut self) -> Option<Slice> {
        match core::mem::take(&mut self.0) {
            Repr::Empty => None,
            Repr::One(one) => Some(one),
            Repr::Stripe(mut stripe) => {
                let slice = stripe.pop();
                self.0 = stripe.into();
                Some(slice)
            }
            Repr::Chain(mut chain) => {
                let slice = chain.pop();
                if chain.len() > 0 {
                    self.0 = Repr::Chain(chain);
                }
                slice
            }
        }
    }

    /// The slice, if the payload is one.
    #[inline]
    pub(crate) fn one_slice(&self) -> Option<&Slice> {
        if let Repr::One(one) = &self.0 { Some(one) } else { None }
    }

    /// Takes out the slice, if the payload is one.
    #[inline]
    pub(crate) fn take_one(&mut self) -> Option<Slice> {
        match core::mem::take(&mut self.0) {
            Repr::One(one) => Some(one),
            other => {
                self.0 = other;
                None
            }
        }
    }

    /// Returns a clone if the payload is one slice, as most are. Short enough to be inlined.
    #[inline]
    pub fn clone_one(&self) -> Option<Self> {
        self.one_slice().map(|one| Self::one(one.clone()))
    }

    /// Drops all bytes.
    #[inline]
    pub fn clear(&mut self) {
        match core::mem::take(&mut self.0) {
            Repr::Empty => {}
            Repr::One(one) => drop(one),
            several => drop_several(several),
        }
    }

    /// Drops all bytes of a payload that is not one slice.
    #[inline(never)]
    pub(crate) fn clear_several(&mut self) {
        self.clear();
    }

    /// The slices themselves, in order.
    pub fn into_slices(mut self) -> impl Iterator<Item = Slice> {
        core::iter::from_fn(move || self.pop_slice())
    }

    /// A copy of the bytes, for tests and tools.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.pieces().for_each(|piece| out.extend_from_slice(piece));
        out
    }

    /// Whether all of its bytes lie in blocks of this pool.
    pub fn lies_in(&self, pool: &Pool) -> bool {
        let begin = pool.address().as_ptr().addr();
        let blocks = begin..begin + pool.blocks() * pool.block_size();
        self.pieces().all(|piece| blocks.contains(&piece.as_ptr().addr()))
    }

    /// Copies this payload into blocks of `into`, so that its own blocks can be returned. `None`, with no change, if
    /// the staging pool is empty. The bytes count as copied there.
    pub fn evacuate(&self, into: &mut Staging) -> Option<Self> {
        let mut copy = Self::default();
        for piece in self.pieces() {
            let mut left = piece;
            while !left.is_empty() {
                let (now, later) = left.split_at(left.len().min(into.room(1)?));
                copy.push(into.write(now)?);
                left = later;
            }
        }
        Some(copy)
    }
}

/// Iterator over the pieces of a payload.
enum Pieces<'a> {
    One(Option<&'a [u8]>),
    Stripe(StripePieces<'a>),
    Chain(ChainIter<'a>),
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::One(one) => one.take(),
            Self::Stripe(stripe) => stripe.next(),
            Self::Chain(chain) => chain.next().map(|slice| &**slice),
        }
    }
}

impl From<Slice> for Payload {
    #[inline]
    fn from(slice: Slice) -> Self {
        if slice.is_empty() { Self::default() } else { Self::one(slice) }
    }
}

impl FromIterator<Slice> for Payload {
    fn from_iter<I: IntoIterator<Item = Slice>>(slices: I) -> Self {
        let mut payload = Self::default();
        slices.into_iter().for_each(|slice| payload.push(slice));
        payload
    }
}

impl Clone for Payload {
    fn clone(&self) -> Self {
        match &self.0 {
            Repr::Empty => Self::default(),
            Repr::One(one) => Self(Repr::One(one.clone())),
            Repr::Stripe(stripe) => Self(Repr::Stripe(stripe.clone())),
            Repr::Chain(chain) => Self(Repr::Chain(chain.clone())),
        }
    }
}

/// Fills `out` with the bytes of a chain from `offset` on; the chain must be long enough.
pub(crate) fn copy_chain<'a>(chain: impl Iterator<Item = &'a [u8]>, offset: usize, out: &mut [u8]) {
    let mut skip = offset;
    let mut out = out;
    for bytes in chain {
        if out.is_empty() {
            return;
        }
        let start = skip.min(bytes.len());
        skip -= start;
        let count = (bytes.len() - start).min(out.len());
        let (now, later) = out.split_at_mut(count);
        now.copy_from_slice(&bytes[start..start + count]);
        out = later;
    }
}

#[inline(never)]
fn drop_several(several: Repr) {
    drop(several);
}

impl PartialEq for Payload {
    /// Payloads are equal if their bytes are equal, regardless of blocks and slices.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.pieces().flatten().eq(other.pieces().flatten())
    }
}

impl Eq for Payload {}

impl core::fmt::Debug for Payload {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Payload({} bytes in {} pieces)", self.len(), self.piece_count())
    }
}

#[cfg(test)]
mod tests {
    //! The representation of a payload, which its users do not see.

    use proptest::prelude::*;

    use super::{Payload, Repr};
    use crate::{ByteQueue, Owner, Pool, PoolConfig, Slice};

    /// Makes a slice of this many bytes, counting up from 0, in a separate block.
    fn block(bytes: usize) -> (Pool, Slice) {
        block_of(&(0..bytes).map(|index| index as u8).collect::<Vec<_>>())
    }

    fn block_of(content: &[u8]) -> (Pool, Slice) {
        let mut pool = Pool::new(PoolConfig::heap("stripes", content.len(), 2)).unwrap();
        let slice = pool.loan(Owner::SHARED).and_then(|mut loan| loan.append(content)).unwrap();
        (pool, slice)
    }

    /// Cuts consecutive pieces, each with a gap in front: `(gap, bytes)`.
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
        // A slice plus the tag of its kind.
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

        /// Few distinct distances and lengths, so that many payloads are stripes and most others nearly are.
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
}
