//! How often the numbers of a run are read, so that monitoring does not slow the run down.

use ropewalk_terms::Instant;
use std::time::Duration;

/// So many times as long as a reading took, nothing is read: of 700 sources a reading takes a millisecond.
const PAUSE: u32 = 500;
/// Numbers are never older, however long it takes to read them.
const LONGEST: Duration = Duration::from_secs(1);

/// When something is read again.
#[derive(Clone, Debug)]
pub struct SamplingInterval {
    usual: Duration,
    due: Instant,
}

impl SamplingInterval {
    /// How often the state of a run is read where that takes next to no time.
    pub const NUMBERS: Duration = Duration::from_millis(100);
    /// How often every number of every source is.
    pub const SAMPLES: Duration = Duration::from_millis(500);

    /// As often as this, a second at most, where that takes next to no time; the first time at once.
    pub fn new(usual: Duration) -> Self {
        Self { usual, due: Instant::ZERO }
    }

    /// It is time.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// It is time as soon as somebody asks.
    pub fn hurry(&mut self) {
        self.due = Instant::ZERO;
    }

    /// It was read from then until then.
    pub fn was_read(&mut self, begun: Instant, ended: Instant) {
        let pause = ended.since(begun).saturating_mul(PAUSE);
        self.due = begun.after(pause.clamp(self.usual, self.usual.max(LONGEST)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_read_less_often_and_never_less_than_once_a_second() {
        let at = |microseconds: u64| Instant::from_nanoseconds(microseconds * 1000);
        let mut pace = SamplingInterval::new(SamplingInterval::NUMBERS);
        assert!(pace.is_due(at(0)));
        for (took, next) in [(10, 100_000), (600, 300_000), (50_000, 1_000_000)] {
            pace.was_read(at(1_000_000), at(1_000_000 + took));
            assert!(!pace.is_due(at(1_000_000 + next - 1)) && pace.is_due(at(1_000_000 + next)), "{took} us");
        }
        pace.hurry();
        assert!(pace.is_due(at(1_000_001)));
    }
}
