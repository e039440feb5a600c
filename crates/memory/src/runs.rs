//! Payloads that are sent one after the other: [`Runs`] sends adjacent payloads of a block as one slice, [`Returns`]
//! lowers the count of a block once for all of its payloads.
#![allow(unsafe_code)]

use crate::payload::Payload;
use crate::registry;
use crate::slice::Slice;

/// Maximum number of bytes between two payloads that are sent along with them: headers of a source's stream.
const MOST_GAP: usize = 64;

/// The slices of consecutively sent payloads. If a payload lies a little behind the previous one, as the fragments of a
/// source do, the bytes between them are sent too: one slice for many payloads costs less than a few more bytes.
#[derive(Default, Debug)]
pub struct Runs {
    slices: Vec<Slice>,
    bytes: u64,
    returns: Returns,
}

impl Runs {
    /// Reserves room for `slices` slices.
    pub fn reserve(&mut self, slices: usize) {
        self.slices.reserve(slices);
    }

    /// Adds a payload and leaves an empty one. Returns its offset in bytes from the first byte of all slices.
    #[inline]
    pub fn add(&mut self, payload: &mut Payload) -> u64 {
        if let (Some(last), Some(slice)) = (self.slices.last_mut(), payload.one_slice())
            && let Some(gap) = last.gap_to(slice)
            && gap <= MOST_GAP.min(slice.len() / 4)
        {
            let begin = self.bytes + gap as u64;
            self.bytes = begin + slice.len() as u64;
            last.reach_over(slice);
            self.returns.take(payload);
            return begin;
        }
        self.add_apart(payload)
    }

    fn add_apart(&mut self, payload: &mut Payload) -> u64 {
        let begin = self.bytes;
        self.bytes += payload.len() as u64;
        self.slices.extend(core::mem::take(payload).into_slices());
        begin
    }

    /// Bytes of all slices.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves all slices to the end of a message and starts again.
    pub fn append_to(&mut self, message: &mut Vec<Slice>) {
        message.append(&mut self.slices);
        self.bytes = 0;
        self.returns = Returns::default();
    }
}

/// Releases payloads. If consecutive payloads lie in the same block, as a source's fragments do, the block's count is
/// lowered once for all of them, at the latest when this is dropped.
#[derive(Default, Debug)]
pub struct Returns {
    last: Option<Slice>,
    /// References of the last payload's block besides its own.
    more: u64,
}

impl Returns {
    /// Releases a payload and leaves an empty one.
    #[inline]
    pub fn take(&mut self, payload: &mut Payload) {
        let Some(slice) = payload.take_one() else { return payload.clear_several() };
        match &self.last {
            Some(last) if (last.pool(), last.block()) == (slice.pool(), slice.block()) => {
                self.more += 1;
                core::mem::forget(slice);
            }
            _ => self.begin(slice),
        }
    }

    // Not inlined, so that the common path stays small enough to be inlined.
    #[inline(never)]
    fn begin(&mut self, slice: Slice) {
        self.flush();
        self.last = Some(slice);
    }

    #[inline]
    fn flush(&mut self) {
        let more = core::mem::take(&mut self.more);
        if let Some(last) = self.last.take()
            && more > 0
        {
            // SAFETY: the forgotten references are owned here; the last payload's own reference is dropped after them.
            unsafe { registry::refund(last.pool().0, last.block(), more) };
        }
    }
}

impl Drop for Returns {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Owner, Pool, PoolConfig};

    /// Makes `count` payloads of 32 bytes with `gap` bytes between two of them, in as many blocks as needed.
    fn payloads(pool: &mut Pool, count: usize, gap: usize) -> Vec<Payload> {
        let (mut all, mut loan) = (Vec::new(), pool.loan(Owner::SHARED).expect("a block"));
        while all.len() < count {
            if loan.append(&vec![0xFF; gap]).is_none() {
                loan = pool.loan(Owner::SHARED).expect("another block");
                continue;
            }
            match loan.append(&[all.len() as u8; 32]) {
                Some(slice) => all.push(Payload::from(slice)),
                None => loan = pool.loan(Owner::SHARED).expect("another block"),
            }
        }
        all
    }

    /// Returns the gathered bytes in one piece, and the number of slices.
    fn gathered(runs: &mut Runs) -> (Vec<u8>, usize) {
        let (bytes, mut message) = (runs.bytes() as usize, Vec::new());
        runs.append_to(&mut message);
        let all: Vec<u8> = message.iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(all.len(), bytes);
        (all, message.len())
    }

    fn check(gap: usize, order: impl Fn(&mut Vec<Payload>), slices: usize) {
        let mut pool = Pool::new(PoolConfig::heap("runs", 256, 8)).expect("memory");
        let mut all = payloads(&mut pool, 12, gap);
        order(&mut all);
        let expected: Vec<Vec<u8>> = all.iter().map(Payload::to_vec).collect();
        let mut runs = Runs::default();
        let begins: Vec<usize> = all.iter_mut().map(|payload| runs.add(payload) as usize).collect();
        assert!(all.iter().all(Payload::is_empty));
        let (bytes, count) = gathered(&mut runs);
        for (begin, payload) in begins.into_iter().zip(expected) {
            assert_eq!(bytes[begin..][..payload.len()], payload);
        }
        assert_eq!(count, slices);
        drop(all);
        pool.collect();
        assert_eq!(pool.held(), 0, "every reference is given back");
    }

    #[test]
    fn neighbours_leave_as_one_slice_with_what_is_between_them() {
        check(0, |_| {}, 2);
        check(8, |_| {}, 2);
    }

    #[test]
    fn payloads_that_are_far_from_each_other_leave_alone() {
        check(9, |_| {}, 12);
    }

    #[test]
    fn a_payload_in_front_of_the_last_one_leaves_alone() {
        check(8, |all| all.reverse(), 12);
        check(0, |all| all.swap(3, 4), 5);
    }

    #[test]
    fn payloads_of_several_slices_and_of_none_are_where_they_are_said_to_be() {
        let mut pool = Pool::new(PoolConfig::heap("runs", 256, 8)).expect("memory");
        let mut all = payloads(&mut pool, 12, 16);
        let mut chain = Payload::default();
        all.drain(..11).step_by(5).for_each(|payload| chain.append(payload));
        let (mut runs, mut last) = (Runs::default(), all.pop().expect("the twelfth"));
        assert_eq!((runs.add(&mut Payload::default()), runs.add(&mut chain), runs.add(&mut last)), (0, 0, 96));
        let (bytes, _) = gathered(&mut runs);
        assert_eq!((&bytes[..32], &bytes[32..64], &bytes[64..96]), (&[0; 32][..], &[5; 32][..], &[10; 32][..]));
        assert_eq!((bytes[96], bytes.len()), (11, 128));
    }

    /// Makes payloads of 8 bytes that fill `blocks` blocks, in order.
    fn full_blocks(pool: &mut Pool, blocks: usize) -> Vec<Payload> {
        let mut all = Vec::new();
        for _ in 0..blocks {
            let mut loan = pool.loan(Owner::SHARED).expect("a block");
            while let Some(slice) = loan.append(&[7; 8]) {
                all.push(Payload::one(slice));
            }
        }
        all
    }

    fn held(pool: &mut Pool) -> usize {
        pool.collect();
        pool.held()
    }

    #[test]
    fn a_block_comes_home_with_the_last_of_its_payloads_once_others_follow() {
        let mut pool = Pool::new(PoolConfig::heap("returns", 32, 3)).expect("memory");
        let mut all = full_blocks(&mut pool, 3);
        let mut returns = Returns::default();
        all[..4].iter_mut().for_each(|payload| returns.take(payload));
        assert_eq!(held(&mut pool), 3, "another of the same block may follow");
        all[4..].iter_mut().for_each(|payload| returns.take(payload));
        assert_eq!(held(&mut pool), 1);
        drop(returns);
        assert_eq!(held(&mut pool), 0);
        assert!(all.iter().all(Payload::is_empty));
    }

    #[test]
    fn payloads_that_are_kept_keep_their_block() {
        let mut pool = Pool::new(PoolConfig::heap("returns", 32, 2)).expect("memory");
        let mut all = full_blocks(&mut pool, 2);
        let kept = all[5].clone();
        let mut returns = Returns::default();
        all.iter_mut().for_each(|payload| returns.take(payload));
        drop(returns);
        assert_eq!((held(&mut pool), kept.to_vec()), (1, vec![7; 8]));
        drop(kept);
        assert_eq!(held(&mut pool), 0);
    }

    #[test]
    fn payloads_of_several_slices_and_of_none_go_too() {
        let mut pool = Pool::new(PoolConfig::heap("returns", 32, 3)).expect("memory");
        let mut chain = Payload::default();
        full_blocks(&mut pool, 3).into_iter().step_by(3).for_each(|payload| chain.append(payload));
        assert!(chain.piece_count() > 1);
        let mut returns = Returns::default();
        returns.take(&mut Payload::default());
        returns.take(&mut chain);
        returns.take(&mut Payload::default());
        drop(returns);
        assert_eq!(held(&mut pool), 0);
    }
}
