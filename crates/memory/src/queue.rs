//! The byte queue: the received stream of one source, from which framers cut fragments.

use std::collections::VecDeque;

use crate::payload::{Payload, copy_chain};
use crate::slice::{CutSlice, Slice};

/// Number of slices in a queue before it must grow. Adjacent slices of a block are joined, so that this is a number of
/// waiting blocks rather than of reads.
const FIRST_CAPACITY: usize = 512;

/// Received slices in order, seen as one stream of bytes.
///
/// Cutting costs no atomic operation per piece: the references of a whole slice are charged at its first cut.
#[derive(Default)]
pub struct ByteQueue {
    slices: VecDeque<CutSlice>,
    length: usize,
}

impl ByteQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::with_capacity(FIRST_CAPACITY)
    }

    /// An empty queue that holds `slices` slices of different blocks without allocating.
    pub fn with_capacity(slices: usize) -> Self {
        Self { slices: VecDeque::with_capacity(slices), length: 0 }
    }

    /// Appends bytes; empty slices are ignored.
    #[inline]
    pub fn push(&mut self, slice: Slice) {
        self.length += slice.len();
        match self.slices.back_mut() {
            Some(back) if back.is_followed_by(&slice) => back.absorb(slice),
            _ if slice.is_empty() => {}
            _ => self.slices.push_back(CutSlice::new(slice)),
        }
    }

    /// Bytes in the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The contiguous bytes at the front; empty only if the queue is.
    #[inline]
    pub fn front(&self) -> &[u8] {
        self.slices.front().map_or(&[], CutSlice::bytes)
    }

    /// The bytes in order, piece by piece, none of them empty.
    #[inline]
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.slices.iter().map(CutSlice::bytes)
    }

    /// The slice at the front, to be cut without a lookup for each piece; `None` if the queue is empty.
    #[inline]
    pub fn front_slice(&mut self) -> Option<FrontSlice<'_>> {
        let slice = self.slices.front_mut()?;
        Some(FrontSlice { slice, length: &mut self.length })
    }

    /// The `N` bytes from `offset` on, in one piece or several; `None` if not all of them have arrived.
    #[inline]
    pub fn peek_array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let end = offset.checked_add(N)?;
        match self.front().get(offset..end) {
            Some(bytes) => bytes.try_into().ok(),
            None if end <= self.length => Some(self.gather_array(offset)),
            None => None,
        }
    }

    #[cold]
    fn gather_array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut out = [0; N];
        copy_chain(self.pieces(), offset, &mut out);
        out
    }

    /// Copies the bytes from `offset` on to `out`. Copies nothing and returns false if not all of them have arrived.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> bool {
        let enough = offset.checked_add(out.len()).is_some_and(|end| end <= self.length);
        if enough {
            copy_chain(self.pieces(), offset, out);
        }
        enough
    }

    /// Takes the first `n` bytes out.
    ///
    /// # Panics
    /// If there are fewer: look at [`ByteQueue::len`] first.
    #[inline]
    pub fn take(&mut self, n: usize) -> Payload {
        // Most fragments lie within one slice. Constructed right where it is returned: moving a slice through memory
        // right after its fields were written costs more than everything else here.
        if let Some(front) = self.slices.front_mut()
            && n > 0
            && n < front.bytes().len()
        {
            self.length -= n;
            return Payload::one(front.cut(n));
        }
        let mut payload = Payload::default();
        self.take_into(n, &mut payload);
        payload
    }

    /// Takes the first `n` bytes out and appends them to `payload`.
    ///
    /// # Panics
    /// If there are fewer: look at [`ByteQueue::len`] first.
    pub fn take_into(&mut self, n: usize, payload: &mut Payload) {
        assert!(n <= self.length, "take beyond the end of a queue");
        self.length -= n;
        let mut left = n;
        while left > 0 {
            let Some(front) = self.slices.front_mut() else { break };
            let available = front.bytes().len();
            if left < available {
                if let Some(piece) = front.cut_unless(left, |piece| payload.join(piece)) {
                    payload.push_apart(piece);
                }
                return;
            }
            left -= available;
            if let Some(whole) = self.slices.pop_front() {
                payload.push(whole.finish());
            }
        }
    }

    /// Drops the first `n` bytes.
    ///
    /// # Panics
    /// If there are fewer: look at [`ByteQueue::len`] first.
    #[inline]
    pub fn skip(&mut self, n: usize) {
        assert!(n <= self.length, "skip beyond the end of a queue");
        self.length -= n;
        let mut left = n;
        while left > 0 {
            let Some(front) = self.slices.front_mut() else { break };
            let available = front.bytes().len();
            if left < available {
                front.skip(left);
                return;
            }
            left -= available;
            self.slices.pop_front();
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.slices.clear();
        self.length = 0;
    }
}

impl core::fmt::Debug for ByteQueue {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "ByteQueue({} bytes in {} slices)", self.length, self.slices.len())
    }
}

/// The slice at the front of a queue.
#[derive(Debug)]
pub struct FrontSlice<'a> {
    slice: &'a mut CutSlice,
    /// Length of the whole queue.
    length: &'a mut usize,
}

impl FrontSlice<'_> {
    /// The remaining bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.slice.bytes()
    }

    /// Drops the first `skip` bytes and takes out the `n` bytes behind them.
    ///
    /// # Panics
    /// If `n` is 0, or no byte is left behind them: only the queue can take the last piece of a slice.
    #[inline(always)]
    pub fn take_behind(&mut self, skip: usize, n: usize) -> Payload {
        assert!(n > 0, "no piece is empty");
        let payload = Payload::one(self.slice.cut_behind(skip, n));
        *self.length -= skip + n;
        payload
    }
}
