//! How long a source has been missing: the clock stands still while nobody reads the source.

use core::time::Duration;
use ropewalk_terms::Instant;

/// The oldest incomplete event, as far as time is concerned.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Oldest {
    /// Grows each time another event becomes the oldest.
    generation: u64,
    /// When it became the oldest; none while no event waits for anybody.
    since: Option<Instant>,
}

impl Oldest {
    /// Another event is the oldest from now on.
    pub(super) const fn begin(&mut self, now: Instant) {
        self.generation += 1;
        self.since = Some(now);
    }

    /// No event waits for anybody.
    pub(super) const fn end(&mut self) {
        self.since = None;
    }

    /// Whether an event waits.
    pub(super) const fn is_waiting(&self) -> bool {
        self.since.is_some()
    }
}

/// How long the oldest incomplete event has waited for one source.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct AbsenceClock {
    /// Since when it runs; none while the source is not read.
    running_since: Option<Instant>,
    /// What it showed when it stopped, for the event of `generation`.
    shown: Duration,
    generation: u64,
}

impl AbsenceClock {
    /// Starts or stops the clock.
    pub(super) fn set_running(&mut self, now: Instant, running: bool, oldest: &Oldest) {
        match (self.running_since, running) {
            (None, true) => self.running_since = Some(now),
            (Some(_), false) => {
                self.shown = self.shows(now, oldest);
                self.generation = oldest.generation;
                self.running_since = None;
            }
            _ => {}
        }
    }

    /// How long the oldest event has waited for this source while it was read.
    pub(super) fn shows(&self, now: Instant, oldest: &Oldest) -> Duration {
        let Some(oldest_since) = oldest.since else { return Duration::ZERO };
        let before = if self.generation == oldest.generation { self.shown } else { Duration::ZERO };
        before + self.running_since.map_or(Duration::ZERO, |since| now.since(since.max(oldest_since)))
    }

    /// When it will show `timeout`, if it goes on like this; never while it stands still.
    pub(super) fn deadline(&self, timeout: Duration, oldest: &Oldest) -> Instant {
        match (oldest.since, self.running_since) {
            (Some(oldest_since), Some(since)) => {
                let from = since.max(oldest_since);
                from.after(timeout.saturating_sub(self.shows(from, oldest)))
            }
            _ => Instant::FAR_FUTURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_nanos(100);

    fn at(nanoseconds: u64) -> Instant {
        Instant::from_nanoseconds(nanoseconds)
    }

    #[test]
    fn counts_from_when_the_event_became_the_oldest() {
        let (mut clock, mut oldest) = (AbsenceClock::default(), Oldest::default());
        clock.set_running(at(0), true, &oldest);
        assert_eq!(clock.shows(at(50), &oldest), Duration::ZERO);
        assert_eq!(clock.deadline(TIMEOUT, &oldest), Instant::FAR_FUTURE);
        oldest.begin(at(50));
        assert_eq!(clock.shows(at(80), &oldest), Duration::from_nanos(30));
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(150));
        oldest.begin(at(90));
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(190), "the next event has its own clock");
    }

    #[test]
    fn stands_still_while_the_source_is_not_read() {
        let (mut clock, mut oldest) = (AbsenceClock::default(), Oldest::default());
        clock.set_running(at(0), true, &oldest);
        oldest.begin(at(0));
        clock.set_running(at(60), false, &oldest);
        assert_eq!(clock.shows(at(500), &oldest), Duration::from_nanos(60));
        assert_eq!(clock.deadline(TIMEOUT, &oldest), Instant::FAR_FUTURE);
        clock.set_running(at(1000), true, &oldest);
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(1040));
        clock.set_running(at(1010), false, &oldest);
        clock.set_running(at(1010), true, &oldest);
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(1040));
        oldest.begin(at(1020));
        assert_eq!(clock.deadline(TIMEOUT, &oldest), at(1120), "what an earlier event waited does not count");
    }
}
