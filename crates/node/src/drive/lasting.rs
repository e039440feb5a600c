//! How long something was so, as whoever is turned sees it.

use ropewalk_terms::Instant;
use std::time::Duration;

/// Time in which something was so. It is looked at once a turn, with the time of the turn, so that it costs no clock read: what was
/// so at one look was so until the next.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Lasting {
    since: Option<Instant>,
    total: Duration,
}

impl Lasting {
    /// Whether it is so now.
    pub(super) fn look(&mut self, now: Instant, is_so: bool) {
        if let Some(since) = self.since {
            self.total += now.since(since);
        }
        self.since = is_so.then_some(now);
    }

    /// Nanoseconds in which it was so, up to the last look.
    pub(super) const fn nanoseconds(&self) -> u64 {
        self.total.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_from_a_look_that_says_yes_to_the_next() {
        let mut lasting = Lasting::default();
        for (at, is_so) in [(10, false), (20, true), (25, true), (40, false), (90, true), (90, false)] {
            lasting.look(Instant::from_nanoseconds(at), is_so);
        }
        assert_eq!(lasting.nanoseconds(), 20);
    }
}
