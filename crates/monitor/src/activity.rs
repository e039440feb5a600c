//! What samples say together: since when each source is silent, and since when no event has ended.

use core::time::Duration;
use std::collections::BTreeMap;

use ropewalk_terms::{Instant, NodeId, RunNumber, SourceId};

use crate::presence::Presence;
use crate::{Sample, SourceSample};

/// A source that sends nothing for this long while others send is silent.
pub(crate) const SILENT: Duration = Duration::from_secs(2);

/// When a source began to send.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// How long after the first source.
    pub after: Duration,
    /// The first source.
    pub first: SourceId,
}

/// Follows samples, and returns how long no data has come from a source and how long no event has ended. Keeps a few
/// words for each source of the last sample.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    run: RunNumber,
    now: Instant,
    presence: Presence,
    /// How many events had ended, and when that was seen to change.
    ended: (u64, Instant),
    /// Ordered by source: how much [came](SourceSample::came) of it, and when that was seen to change.
    known: Vec<(SourceId, u64, Instant)>,
    /// When the first fragment of each source was seen.
    begun: BTreeMap<SourceId, Instant>,
    /// Nodes of which nothing was known at some time of the run, and when that was so last.
    quiet: BTreeMap<NodeId, Instant>,
}

impl Activity {
    /// Looks at the next sample.
    pub fn observe(&mut self, sample: &Sample) {
        self.presence.observe(sample);
        let ended = sample.events.built + sample.incomplete_events();
        if sample.run != self.run || ended != self.ended.0 || sample.phase != "running" {
            self.ended = (ended, sample.time);
        }
        if sample.run != self.run {
            self.known.clear();
            self.begun.clear();
            self.quiet.clear();
            self.run = sample.run;
        }
        self.now = sample.time;
        let quiet = sample.nodes.iter().map(|node| node.node).filter(|node| self.presence.is_quiet(*node, sample));
        self.quiet.extend(quiet.map(|node| (node, sample.time)));
        let before = core::mem::take(&mut self.known);
        let seen = sample.sources.iter().map(|source| {
            let received = source.came();
            let place = before.binary_search_by_key(&source.source, |&(known, ..)| known);
            let unchanged = place.ok().map(|place| before[place]).filter(|&(_, known, _)| known == received);
            (source.source, received, unchanged.map_or(sample.time, |(.., since)| since))
        });
        self.known = seen.collect();
        for &(source, ..) in self.known.iter().filter(|&&(_, received, _)| received > 0) {
            self.begun.entry(source).or_insert(sample.time);
        }
    }

    /// How long after the first source each other one began to send, as exact as samples are close, and which one was
    /// first.
    pub fn began_late(&self) -> impl Iterator<Item = (SourceId, Beginning)> + '_ {
        let first = self.begun.iter().min_by_key(|&(_, since)| *since);
        let of = move |(&source, since): (&SourceId, &Instant)| {
            let (&first, begin) = first?;
            let after = since.since(*begin);
            (after > Duration::ZERO).then_some((source, Beginning { after, first }))
        };
        self.begun.iter().filter_map(of)
    }

    /// How long no data has come from the source, to the precision of the samples; `None` if the source is unknown.
    pub fn silent_for(&self, source: SourceId) -> Option<Duration> {
        let place = self.known.binary_search_by_key(&source, |&(known, ..)| known).ok()?;
        Some(self.now.since(self.known[place].2))
    }

    /// How long the source itself has been silent: nothing comes of one whose readout unit is away or does not report,
    /// and that is no fault of the source.
    pub fn silent_itself_for(&self, source: &SourceSample) -> Duration {
        let silent = self.silent_for(source.source).unwrap_or_default();
        self.quiet.get(&source.readout).map_or(silent, |since| silent.min(self.now.since(*since)))
    }

    /// For how long no event has ended, as exact as samples are close.
    pub fn idle_for(&self) -> Duration {
        self.now.since(self.ended.1)
    }

    /// Which nodes report, and which are still to join.
    pub const fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Sources that have sent and then stopped before others did, and for how long.
    pub fn stopped(&self) -> impl Iterator<Item = (SourceId, Duration)> + '_ {
        let latest = self.known.iter().map(|&(.., since)| since).max().unwrap_or_default();
        let stopped =
            move |&&(_, received, since): &&(SourceId, u64, Instant)| received > 0 && latest.since(since) >= SILENT;
        self.known.iter().filter(stopped).map(|&(source, _, since)| (source, self.now.since(since)))
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
        assert_eq!(activity.stopped().collect::<Vec<_>>(), [(SourceId(1), 3 * SECOND)]);
        activity.observe(&sample(9, vec![source(1, 7), source(2, 6)]));
        activity.observe(&sample(60, vec![source(1, 7), source(2, 6)]));
        assert_eq!(activity.stopped().count(), 0, "both stopped at once");
    }

    #[test]
    fn a_source_that_began_later_is_known_with_the_first_one_until_the_next_run() {
        let mut activity = Activity::default();
        for (seconds, late) in [(1, 0), (2, 0), (4, 3), (5, 9)] {
            activity.observe(&sample(seconds, vec![source(1, late), source(2, seconds), source(3, 0)]));
        }
        let beginning = Beginning { after: 3 * SECOND, first: SourceId(2) };
        assert_eq!(activity.began_late().collect::<Vec<_>>(), [(SourceId(1), beginning)]);
        activity.observe(&Sample { run: RunNumber(99), ..sample(9, vec![source(1, 2), source(2, 1)]) });
        assert_eq!(activity.began_late().count(), 0);
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
