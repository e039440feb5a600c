//! Measures how long a condition held.

use ropewalk_terms::Instant;
use std::time::Duration;

/// The total time in which a condition held. It is sampled once a turn, with the time of the turn, so that it reads no clock: a
/// condition that held at one sample counts until the next.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct BusyTimer {
    since: Option<Instant>,
    total: Duration,
}

impl BusyTimer {
    /// Samples the condition.
    pub(super) fn look(&mut self, now: Instant, is_so: bool) {
        if let Some(since) = self.since {
            self.total += now.since(since);
        }
        self.since = is_so.then_some(now);
    }

    /// Nanoseconds in which it held, up to the last sample.
    pub(super) const fn nanoseconds(&self) -> u64 {
        self.total.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_from_a_look_that_says_yes_to_the_next() {
        let mut timer = BusyTimer::default();
        for (at, is_so) in [(10, false), (20, true), (25, true), (40, false), (90, true), (90, false)] {
            timer.look(Instant::from_nanoseconds(at), is_so);
        }
        assert_eq!(timer.nanoseconds(), 20);
    }
}
