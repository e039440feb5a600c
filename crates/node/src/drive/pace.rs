//! When a readout unit receives: what is settled goes before more comes, as long as it goes.

use ropewalk_flow::readout::Readout;
use ropewalk_terms::Instant;
use std::time::Duration;

/// What is settled is waited for in so many turns. Who builds in this thread is done by then.
const MOST_HELD_BACK: u32 = 8;
/// From so many bytes of settled events on it is waited for as long as some of them go. With what is being received they
/// still lie in the cache.
const CACHED: u64 = 4 << 20;
/// When nothing has gone for so long, whoever builds is held up: what comes meanwhile is received.
const LONGEST_STANDSTILL: Duration = Duration::from_millis(1);

/// Holds receiving back while settled events are on their way out: their blocks are filled again while they are in the
/// cache, into which the kernel copies a quarter faster than into memory, and out of which it copies faster, too.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// For how many more turns nothing is received, however little is settled.
    patience: u32,
    settled_bytes: u64,
    /// When settled events went last, and when that was looked at.
    moved: Instant,
    looked: Instant,
}

impl Pace {
    /// Whether nothing should be received now. Where a source may be given up by the clock, what it sent is heard before
    /// that.
    pub(super) fn holds_back(&mut self, now: Instant, readout: &Readout) -> bool {
        let is_due = readout.next_deadline().is_some_and(|due| now >= due);
        self.waits(now, readout.settled_bytes()) && readout.holds_settled() && !is_due
    }

    /// Whether so much is worth waiting for.
    fn waits(&mut self, now: Instant, settled_bytes: u64) -> bool {
        if core::mem::replace(&mut self.settled_bytes, settled_bytes) > settled_bytes {
            self.moved = now;
        }
        // Where no time has passed, as in a simulation, nothing more goes however often it is looked.
        let has_passed = core::mem::replace(&mut self.looked, now) < now;
        let is_much = settled_bytes > CACHED && has_passed && now < self.moved.after(LONGEST_STANDSTILL);
        let is_new = self.patience > 0;
        self.patience = self.patience.saturating_sub(1);
        is_much || is_new
    }

    /// Something was received, or nothing.
    pub(super) const fn received(&mut self, work: usize) {
        self.patience = if work > 0 { MOST_HELD_BACK } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it waits, at so many microseconds, with so many bytes.
    fn waits(pace: &mut Pace, microseconds: u64, settled_bytes: u64) -> bool {
        pace.waits(Instant::ZERO.after(Duration::from_micros(microseconds)), settled_bytes)
    }

    #[test]
    fn a_little_is_waited_for_in_a_few_turns_after_something_came() {
        let mut pace = Pace::default();
        assert!(!waits(&mut pace, 5000, 1));
        pace.received(3);
        let turns = (5001..6000).take_while(|&at| waits(&mut pace, at, 1)).count();
        assert_eq!(turns, MOST_HELD_BACK as usize);
        pace.received(3);
        pace.received(0);
        assert!(!waits(&mut pace, 6001, 1), "there was nothing to receive");
    }

    #[test]
    fn much_is_waited_for_as_long_as_it_goes() {
        let mut pace = Pace::default();
        let mut left = CACHED + 100;
        assert!(!waits(&mut pace, 5000, left), "nobody knows yet whether it goes");
        for at in (5900..).step_by(900).take(100) {
            left -= 1;
            assert!(waits(&mut pace, at, left) == (left > CACHED), "{at}");
        }
    }

    #[test]
    fn what_stands_still_is_not_waited_for_and_no_longer_within_one_moment() {
        let mut pace = Pace::default();
        waits(&mut pace, 5000, CACHED + 10);
        assert!(waits(&mut pace, 5001, CACHED + 5));
        assert!(!waits(&mut pace, 5001, CACHED + 5), "no time has passed");
        assert!(waits(&mut pace, 6000, CACHED + 5));
        assert!(!waits(&mut pace, 6001, CACHED + 5), "it has stood still for a millisecond");
        assert!(waits(&mut pace, 7000, CACHED + 4), "and goes on");
    }
}
