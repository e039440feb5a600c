//! The block that an endpoint is receiving into.

use ropewalk_memory::{Loan, Owner, Pool};

/// An endpoint's present block and whose quota the next one comes from.
pub(crate) struct ReceiveBlock {
    loan: Option<Loan>,
    pub(crate) owner: Owner,
    /// The quota gave no block at the last attempt.
    dry: bool,
}

impl ReceiveBlock {
    pub(crate) const fn new() -> Self {
        Self { loan: None, owner: Owner::SHARED, dry: false }
    }

    /// The block to receive into, a fresh one if the present one's tail is smaller than `smallest` bytes;
    /// `None` if the quota is used up.
    pub(crate) fn get(&mut self, pool: &mut Pool, smallest: usize) -> Option<&mut Loan> {
        if self.loan.as_ref().is_none_or(|loan| loan.spare_len() < smallest.max(1)) {
            // The old block first: it may be the one that the quota has left.
            self.loan = None;
            self.loan = pool.loan(self.owner);
            self.dry = self.loan.is_none();
        }
        self.loan.as_mut()
    }

    pub(crate) const fn is_dry(&self) -> bool {
        self.dry
    }

    /// Gives the block back: nothing is received any more.
    pub(crate) fn give_back(&mut self) {
        self.loan = None;
        self.dry = false;
    }
}
