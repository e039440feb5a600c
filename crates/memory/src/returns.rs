//! Payloads that are let go one after the other: the references of one block go back together.
#![allow(unsafe_code)]

use crate::payload::Payload;
use crate::registry;
use crate::slice::Slice;

/// Lets payloads go. Where one after the other lies in the same block, as a source's fragments do, the block's count is
/// lowered once for all of them, at the latest when this is dropped.
#[derive(Default, Debug)]
pub struct Returns {
    last: Option<Slice>,
    /// References of the last one's block beside its own.
    more: u64,
}

impl Returns {
    /// Lets a payload go, and leaves an empty one.
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

    // Apart, so that what is done for each payload stays short enough to be inlined.
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
            // SAFETY: those that were forgotten are owned here; the last one's own reference goes after them.
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

    /// Blocks full of payloads of 8 bytes, in their order.
    fn payloads(pool: &mut Pool, blocks: usize) -> Vec<Payload> {
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
        let mut all = payloads(&mut pool, 3);
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
        let mut all = payloads(&mut pool, 2);
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
        payloads(&mut pool, 3).into_iter().step_by(3).for_each(|payload| chain.append(payload));
        assert!(chain.piece_count() > 1);
        let mut returns = Returns::default();
        returns.take(&mut Payload::default());
        returns.take(&mut chain);
        returns.take(&mut Payload::default());
        drop(returns);
        assert_eq!(held(&mut pool), 0);
    }
}
