//! Staging: where bytes are copied because a copy is due, and counted.

use crate::loan::Loan;
use crate::pool::{Owner, Pool};
use crate::slice::Slice;

/// Writes small pieces (headers, messages, evacuated slices) one after the other into blocks of its own pool.
#[derive(Debug)]
pub struct Staging {
    pool: Pool,
    loan: Option<Loan>,
    copied: u64,
}

impl Staging {
    /// Stages into blocks of `pool`, taken from what is shared.
    pub fn new(pool: Pool) -> Self {
        Self { pool, loan: None, copied: 0 }
    }

    /// Copies `bytes` into a block. `None` when the pool is dry: try again when something was released.
    ///
    /// More bytes than a block has can never be written: `None` too, see [`Staging::largest`].
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Option<Slice> {
        if bytes.len() > self.largest() {
            return None;
        }
        self.room(bytes.len())?;
        let slice = self.loan.as_mut()?.append(bytes)?;
        self.copied += bytes.len() as u64;
        Some(slice)
    }

    /// Lets `fill` write into a block where there is room for at least `least` bytes, and say how many it wrote. `None`
    /// where there were none, or the pool is dry: then nobody is asked.
    ///
    /// # Panics
    /// If it says more than there was room for.
    #[inline]
    pub fn write_with(&mut self, least: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> Option<Slice> {
        if least > self.largest() {
            return None;
        }
        self.room(least)?;
        let loan = self.loan.as_mut()?;
        let written = fill(loan.spare());
        loan.commit(written);
        self.copied += written as u64;
        loan.split_committed()
    }

    /// Makes sure of a block with at least `bytes` bytes to spare, so that the next writes of so many do not fail; returns
    /// how many it has. `None` when the pool is dry; no block ever has more than [`Staging::largest`].
    pub fn room(&mut self, bytes: usize) -> Option<usize> {
        if let Some(loan) = self.loan.as_ref().filter(|loan| loan.spare_len() >= bytes) {
            return Some(loan.spare_len());
        }
        // Given up first: a block without slices comes home at once, even if it is the pool's only one.
        self.loan = None;
        let loan = self.pool.loan(Owner::SHARED)?;
        Some(self.loan.insert(loan).spare_len())
    }

    /// The most bytes that one write can have.
    pub fn largest(&self) -> usize {
        self.pool.block_size()
    }

    /// Bytes copied so far.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// The pool, for its account and report.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The pool, to collect what came home.
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }
}
