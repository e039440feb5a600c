//! The block that an endpoint is receiving into.

use std::collections::VecDeque;

use ropewalk_memory::{Loan, Owner, Pool};

/// An endpoint's present block, and where the next one comes from.
pub(crate) struct ReceiveBlock {
    loan: Option<Loan>,
    owner: Owner,
    /// What the user posted; `None` where blocks come from the pool.
    posted: Option<VecDeque<Loan>>,
    /// There was no block at the last attempt.
    dry: bool,
}

impl ReceiveBlock {
    pub(crate) const fn new() -> Self {
        Self { loan: None, owner: Owner::SHARED, posted: None, dry: false }
    }

    /// Takes its blocks from this owner's quota, from the next one on.
    pub(crate) const fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
        // There may be one now; if not, the next attempt tells.
        self.dry = false;
    }

    /// Receives into this block, behind those posted before, and no longer into blocks of the pool.
    pub(crate) fn post(&mut self, block: Loan) {
        if self.posted.is_none() {
            self.loan = None;
        }
        self.posted.get_or_insert_default().push_back(block);
        self.dry = false;
    }

    /// Whether the user posts the blocks.
    pub(crate) const fn is_posted(&self) -> bool {
        self.posted.is_some()
    }

    /// The block to receive into. A fresh one of the pool if the present one's tail is smaller than `smallest` bytes, and
    /// `None` if the quota is used up; or the first of those posted that is not full.
    pub(crate) fn get(&mut self, pool: &mut Pool, smallest: usize) -> Option<&mut Loan> {
        let smallest = if self.posted.is_some() { 1 } else { smallest.max(1) };
        if self.loan.as_ref().is_none_or(|loan| loan.spare_len() < smallest) {
            // The old block first: it may be the one that the quota has left.
            self.loan = None;
            self.loan = match &mut self.posted {
                Some(posted) => posted.pop_front(),
                None => pool.loan(self.owner),
            };
            self.dry = self.loan.is_none();
        }
        self.loan.as_mut()
    }

    /// Lets go of a posted block that is full: its user waits for it. To be called after each receive.
    pub(crate) fn release_full(&mut self) {
        if self.is_posted() && self.loan.as_ref().is_some_and(|loan| loan.spare_len() == 0) {
            self.loan = None;
        }
    }

    pub(crate) const fn is_dry(&self) -> bool {
        self.dry
    }

    /// Gives the blocks back: nothing is received any more.
    pub(crate) fn give_back(&mut self) {
        self.loan = None;
        if let Some(posted) = &mut self.posted {
            posted.clear();
        }
        self.dry = false;
    }
}
