//! Payloads: bytes that lie in one slice or in a chain of them.
//!
//! Most fragments lie in one slice, which a payload holds in place. What crosses a block's end, or is
//! larger than a block, becomes a chain of recycled nodes (`chain`).

mod chain;

pub use self::chain::{chain_allocations, prepare_chains};

use self::chain::{Chain, ChainIter};
use crate::queue::copy_chain;
use crate::slice::Slice;
use crate::staging::Staging;
use ropewalk_terms::flaws::{Flaw, is_planted};

/// Bytes in order, in one slice or several. Empty by default.
///
/// A clone costs one reference per slice and copies no bytes.
#[derive(Default)]
pub struct Payload(Repr);

/// Never holds an empty slice, and a chain never none.
#[derive(Default)]
enum Repr {
    #[default]
    Empty,
    One(Slice),
    Chain(Chain),
}

impl Payload {
    /// A payload of one slice, which must not be empty.
    #[inline(always)]
    pub(crate) fn one(slice: Slice) -> Self {
        Self(Repr::One(slice))
    }

    /// Appends a slice; one that follows the last one in its block is joined to it.
    #[inline]
    pub fn push(&mut self, slice: Slice) {
        if slice.is_empty() {
            return;
        }
        match &mut self.0 {
            Repr::Empty => self.0 = Repr::One(slice),
            Repr::One(one) if one.is_followed_by(&slice) => one.absorb(slice),
            Repr::One(_) => self.push_second(slice),
            Repr::Chain(chain) => chain.push(slice),
        }
    }

    #[cold]
    fn push_second(&mut self, slice: Slice) {
        if let Repr::One(one) = core::mem::take(&mut self.0) {
            let mut chain = Chain::new(one);
            chain.push(slice);
            self.0 = Repr::Chain(chain);
        }
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
            Repr::Chain(chain) => chain.len(),
        }
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Repr::Empty)
    }

    /// The slices in order, none of them empty.
    #[inline]
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        match &self.0 {
            Repr::Empty => Slices::One(None),
            Repr::One(one) => Slices::One(Some(one)),
            Repr::Chain(chain) => Slices::Chain(chain.iter()),
        }
    }

    /// How many slices there are.
    pub fn slice_count(&self) -> usize {
        match &self.0 {
            Repr::Empty => 0,
            Repr::One(_) => 1,
            Repr::Chain(chain) => chain.count(),
        }
    }

    /// The bytes, if they lie in one piece.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::Empty => Some(&[]),
            Repr::One(one) => Some(one),
            Repr::Chain(chain) => {
                let first = chain.iter().next()?;
                (first.len() == chain.len()).then_some(&**first)
            }
        }
    }

    /// Copies the bytes from `offset` on to `out`; false, and nothing is copied, if there are not enough.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> bool {
        let enough = offset.checked_add(out.len()).is_some_and(|end| end <= self.len());
        if enough {
            copy_chain(self.slices().map(|slice| &**slice), offset, out);
        }
        enough
    }

    /// The `N` bytes from `offset` on, wherever they lie; `None` if there are not enough.
    #[inline]
    pub fn read_array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if let Repr::One(one) = &self.0 {
            return one.get(offset..offset.checked_add(N)?)?.try_into().ok();
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

    /// Takes the first slice out.
    pub fn pop_slice(&mut self) -> Option<Slice> {
        match core::mem::take(&mut self.0) {
            Repr::Empty => None,
            Repr::One(one) => Some(one),
            Repr::Chain(mut chain) => {
                let slice = chain.pop();
                if chain.len() > 0 {
                    self.0 = Repr::Chain(chain);
                }
                slice
            }
        }
    }

    /// The slices themselves, in order.
    pub fn into_slices(mut self) -> impl Iterator<Item = Slice> {
        core::iter::from_fn(move || self.pop_slice())
    }

    /// A copy of the bytes, for tests and tools.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.slices().for_each(|slice| out.extend_from_slice(slice));
        out
    }

    /// A copy of this payload in blocks of `into`, so that the blocks it lies in can come home. `None`, and
    /// nothing changes, when the staging pool is dry. The bytes count as copied there.
    pub fn evacuate(&self, into: &mut Staging) -> Option<Self> {
        let mut copy = Self::default();
        for slice in self.slices() {
            let mut left = &**slice;
            while !left.is_empty() {
                let (now, later) = left.split_at(left.len().min(into.room(1)?));
                let lost = is_planted(Flaw::EvacuatedTooEarly).then(|| vec![0; now.len()]);
                copy.push(into.write(lost.as_deref().unwrap_or(now))?);
                left = later;
            }
        }
        Some(copy)
    }
}

/// Goes through the slices of a payload.
enum Slices<'a> {
    One(Option<&'a Slice>),
    Chain(ChainIter<'a>),
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a Slice;

    #[inline]
    fn next(&mut self) -> Option<&'a Slice> {
        match self {
            Self::One(one) => one.take(),
            Self::Chain(chain) => chain.next(),
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
            Repr::Chain(_) => self.slices().cloned().collect(),
        }
    }
}

impl PartialEq for Payload {
    /// Payloads are equal when their bytes are, wherever and in however many slices they lie.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.slices().flat_map(|s| s.iter()).eq(other.slices().flat_map(|s| s.iter()))
    }
}

impl Eq for Payload {}

impl core::fmt::Debug for Payload {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Payload({} bytes in {} slices)", self.len(), self.slice_count())
    }
}
