//! Since when each source is silent.

use crate::Sample;
use core::time::Duration;
use ropewalk_terms::{Instant, RunNumber, SourceId};

/// Looks at samples one after the other and knows since when nothing has come of a source. Keeps a few words for each
/// source of the last sample.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    run: RunNumber,
    now: Instant,
    /// Ordered by source: how many fragments it had sent, and when that was seen to change.
    known: Vec<(SourceId, u64, Instant)>,
}

impl Activity {
    /// Looks at the next sample.
    pub fn observe(&mut self, sample: &Sample) {
        if sample.run != self.run {
            self.known.clear();
            self.run = sample.run;
        }
        self.now = sample.time;
        let before = core::mem::take(&mut self.known);
        let seen = sample.sources.iter().map(|source| {
            let received = source.account.received;
            let place = before.binary_search_by_key(&source.source, |&(known, ..)| known);
            let unchanged = place.ok().map(|place| before[place]).filter(|&(_, known, _)| known == received);
            (source.source, received, unchanged.map_or(sample.time, |(.., since)| since))
        });
        self.known = seen.collect();
    }

    /// How long nothing has come of the source, as exact as samples are close; none where it was not heard of.
    pub fn silent_for(&self, source: SourceId) -> Option<Duration> {
        let place = self.known.binary_search_by_key(&source, |&(known, ..)| known).ok()?;
        Some(self.now.since(self.known[place].2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{sample, source};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_source_is_silent_from_the_sample_on_that_saw_its_last_fragment() {
        let mut activity = Activity::default();
        for (seconds, received) in [(1, 5), (2, 6), (3, 6), (5, 6)] {
            activity.observe(&sample(seconds, vec![source(1, received), source(2, seconds)]));
        }
        assert_eq!(activity.silent_for(SourceId(1)), Some(3 * SECOND));
        assert_eq!(activity.silent_for(SourceId(2)), Some(Duration::ZERO));
        assert_eq!(activity.silent_for(SourceId(3)), None);
    }

    #[test]
    fn a_new_run_and_a_count_that_began_anew_end_the_silence() {
        let mut activity = Activity::default();
        activity.observe(&sample(1, vec![source(1, 6)]));
        activity.observe(&sample(4, vec![source(1, 6)]));
        activity.observe(&sample(5, vec![source(1, 2)]));
        assert_eq!(activity.silent_for(SourceId(1)), Some(Duration::ZERO));
        let next = Sample { run: RunNumber(99), ..sample(9, vec![source(1, 2)]) };
        activity.observe(&next);
        assert_eq!(activity.silent_for(SourceId(1)), Some(Duration::ZERO));
    }
}
