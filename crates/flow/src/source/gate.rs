//! The veto of an emulated trigger: all sources of a run end with the same event.

use core::sync::atomic::{AtomicU64, Ordering};

/// Counts the triggers issued to all sources; once closed, no further one is issued.
///
/// Sources ask before they go on to a trigger that none has reached yet. After the veto every source still
/// sends all that was issued, so that every event can be complete.
#[derive(Debug)]
pub struct TriggerGate {
    issued: AtomicU64,
    limit: u64,
}

const CLOSED: u64 = 1 << 63;

impl TriggerGate {
    /// A gate that closes by itself after `limit` triggers.
    pub const fn new(limit: u64) -> Self {
        Self { issued: AtomicU64::new(0), limit: if limit < CLOSED { limit } else { CLOSED - 1 } }
    }

    /// Asks for all triggers up to `number`; returns up to which they are issued.
    pub fn advance_to(&self, number: u64) -> u64 {
        let wanted = number.min(self.limit);
        // Relaxed is enough: the number alone is exchanged, no other memory hangs on it.
        let mut current = self.issued.load(Ordering::Relaxed);
        while current & CLOSED == 0 && current < wanted {
            match self.issued.compare_exchange_weak(current, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return wanted,
                Err(found) => current = found,
            }
        }
        current & !CLOSED
    }

    /// The veto: issues nothing more and returns the last trigger's number.
    pub fn close(&self) -> u64 {
        self.issued.fetch_or(CLOSED, Ordering::Relaxed) & !CLOSED
    }

    /// The number of the last trigger once there will be no further one.
    pub fn last(&self) -> Option<u64> {
        let issued = self.issued.load(Ordering::Relaxed);
        (issued & CLOSED != 0 || issued == self.limit).then_some(issued & !CLOSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issues_up_to_its_limit() {
        let gate = TriggerGate::new(10);
        assert_eq!(gate.advance_to(4), 4);
        assert_eq!(gate.advance_to(2), 4);
        assert_eq!(gate.last(), None);
        assert_eq!(gate.advance_to(64), 10);
        assert_eq!(gate.last(), Some(10));
    }

    #[test]
    fn issues_nothing_after_the_veto() {
        let gate = TriggerGate::new(u64::MAX);
        gate.advance_to(7);
        assert_eq!(gate.close(), 7);
        assert_eq!(gate.advance_to(8), 7);
        assert_eq!(gate.last(), Some(7));
    }
}
