//! Restarts of sources during a run: they are masked, and unmasked as soon as the first event without them is known.

use super::control_handle::RequestRefusal;
use ropewalk_config::{Configuration, RestartChoice};
use ropewalk_engine::{MaskRecord, Part, RunSnapshot, numbering_of};
use ropewalk_flow::messages::{NumberingAnomaly, NumberingKind};
use ropewalk_terms::{EventKey, Instant, SourceId};
use std::collections::BTreeMap;

/// Maximum number of concurrent restarts.
const MOST: usize = 32;

/// State of a restarted source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Restarted {
    /// The source.
    pub source: SourceId,
    /// The first event without it, until it sends again; `None` if its readout unit has not reported it.
    pub from: Option<EventKey>,
}

/// How a restart ended. With any outcome its sources take part again as soon as they send.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RestartOutcome {
    /// The first event without each of them is known.
    Done,
    /// It was not known for all of them in time.
    Late,
    /// The run ended before it was known.
    RunOver,
}

/// The result of a restart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartTold {
    /// How it ended.
    pub outcome: RestartOutcome,
    /// Its sources.
    pub sources: Vec<Restarted>,
}

/// Called once with the result.
pub(super) type RestartReply = Box<dyn FnOnce(Result<RestartTold, RequestRefusal>) + Send>;

/// Sources that are masked for a restart, to be unmasked later.
struct Restart<R> {
    sources: Vec<SourceId>,
    by: String,
    until: Instant,
    reply: R,
}

/// A restart that has ended: the operator who requested it, the result, and the callback for the result.
pub(super) struct Ended<R> {
    pub(super) by: String,
    pub(super) told: RestartTold,
    pub(super) reply: R,
}

/// The current restarts.
pub(super) struct Restarts<R> {
    under_way: Vec<Restart<R>>,
}

impl<R> Restarts<R> {
    pub(super) const fn new() -> Self {
        Self { under_way: Vec::new() }
    }

    /// Checks that another one may begin.
    pub(super) fn expect_room(&self) -> Result<(), RequestRefusal> {
        if self.under_way.len() < MOST {
            return Ok(());
        }
        Err(RequestRefusal::Unfit(format!("{MOST} restarts are under way: wait until one of them has ended")))
    }

    /// Begins a restart, after the run got the request to mask these sources. The reply follows at `until` at the
    /// latest.
    pub(super) fn begin(&mut self, sources: Vec<SourceId>, by: String, until: Instant, reply: R) {
        self.under_way.push(Restart { sources, by, until, reply });
    }

    /// Takes the restarts that end now, according to the masks that the run reports, if there is a run.
    pub(super) fn take_ended(
        &mut self,
        now: Instant,
        masks: &BTreeMap<SourceId, MaskRecord>,
        goes_on: bool,
    ) -> Vec<Ended<R>> {
        let is_out = |source: &SourceId| masks.get(source).is_some_and(|record| record.part == Part::Masked);
        let outcome = |restart: &Restart<R>| match restart.sources.iter().all(is_out) {
            _ if !goes_on => Some(RestartOutcome::RunOver),
            true => Some(RestartOutcome::Done),
            false => (now >= restart.until).then_some(RestartOutcome::Late),
        };
        let known = |&source: &SourceId| {
            let last = masks.get(&source).filter(|_| is_out(&source)).and_then(|record| record.intervals.last());
            Restarted { source, from: last.map(|interval| interval.from) }
        };
        let mut ended = Vec::new();
        for restart in std::mem::take(&mut self.under_way) {
            let Some(outcome) = outcome(&restart) else {
                self.under_way.push(restart);
                continue;
            };
            let sources = restart.sources.iter().map(known).collect();
            ended.push(Ended { by: restart.by, told: RestartTold { outcome, sources }, reply: restart.reply });
        }
        ended
    }
}

/// Settings for sources that restart their numbering.
#[derive(Clone, Debug, Default)]
pub(super) struct RestartRules {
    /// The reaction to a restart.
    pub(super) choice: RestartChoice,
    /// The sources' names with their ids.
    names: BTreeMap<SourceId, String>,
}

impl RestartRules {
    /// Returns the settings of a configuration. Sources of flows have no names but their ids.
    pub(super) fn of(configuration: &Configuration) -> Self {
        let label = |source: &ropewalk_config::SourceSection| {
            let name = source.name.as_ref()?;
            Some((SourceId(source.id), format!("{name} (source {})", source.id)))
        };
        Self { choice: configuration.run.on_restart, names: configuration.source.iter().filter_map(label).collect() }
    }
}

/// For each source, the number of restarts and recoveries of its numbering in this run that were reported.
#[derive(Debug, Default)]
pub(super) struct Recounts(BTreeMap<SourceId, (usize, u64)>);

/// A restart of a source's numbering.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Recount {
    /// Description with the name of the source.
    pub(super) text: String,
    /// Whether its fragments are in no event from there on.
    pub(super) is_lost: bool,
}

impl Recounts {
    /// Clears the counts for another run.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the restarts of numbering that were not reported yet.
    pub(super) fn news(&mut self, snapshot: &RunSnapshot, rules: &RestartRules) -> Vec<Recount> {
        let mut news = Vec::new();
        for (source, anomalies) in &snapshot.numbering {
            let is_lost = |one: &&NumberingAnomaly| one.kind == NumberingKind::OutOfSync;
            let lost: Vec<_> = anomalies.iter().filter(is_lost).collect();
            let (told, told_recovered) = self.0.entry(*source).or_default();
            let name = rules.names.get(source).map_or_else(|| format!("source {source}"), Clone::clone);
            let text = |one: &&NumberingAnomaly| format!("{name} restarted counting: {} -> {}", one.from, one.to);
            news.extend(lost.iter().skip(*told).map(|one| Recount { text: text(one), is_lost: true }));
            *told = lost.len().max(*told);
            let recovery = numbering_of(anomalies).recovery(&name);
            if let Some((count, text)) = recovery.filter(|(count, _)| count > told_recovered) {
                news.push(Recount { text, is_lost: false });
                *told_recovered = count;
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_engine::MaskedInterval;

    const fn at(milliseconds: u64) -> Instant {
        Instant::from_nanoseconds(milliseconds * 1_000_000)
    }

    fn masks(parts: &[(u32, Part, u64)]) -> BTreeMap<SourceId, MaskRecord> {
        let record = |&(source, part, from): &(u32, Part, u64)| {
            let intervals = vec![MaskedInterval { from: EventKey::new(0, from), to: None }];
            (SourceId(source), MaskRecord { part, intervals })
        };
        parts.iter().map(record).collect()
    }

    fn told(ended: Vec<Ended<u8>>) -> Vec<(u8, RestartOutcome, Vec<Option<u64>>)> {
        let froms = |told: &RestartTold| told.sources.iter().map(|one| one.from.map(|key| key.to_bits())).collect();
        ended.into_iter().map(|ended| (ended.reply, ended.told.outcome, froms(&ended.told))).collect()
    }

    #[test]
    fn a_restart_ends_when_all_its_sources_are_out_when_it_takes_too_long_or_with_the_run() {
        let mut restarts = Restarts::new();
        restarts.begin(vec![SourceId(1), SourceId(2)], "ada".to_owned(), at(1000), 7);
        restarts.begin(vec![SourceId(1)], "bob".to_owned(), at(2000), 8);
        let one = masks(&[(1, Part::Takes, 3), (2, Part::Masked, 51)]);
        assert_eq!(told(restarts.take_ended(at(999), &one, true)), []);
        assert_eq!(told(restarts.take_ended(at(1000), &one, true)), [(7, RestartOutcome::Late, vec![None, Some(51)])]);
        let both = masks(&[(1, Part::Masked, 60), (2, Part::AskedBack, 51)]);
        assert_eq!(told(restarts.take_ended(at(1001), &both, true)), [(8, RestartOutcome::Done, vec![Some(60)])]);
        restarts.begin(vec![SourceId(2)], "ada".to_owned(), at(3000), 9);
        assert_eq!(told(restarts.take_ended(at(1002), &both, false)), [(9, RestartOutcome::RunOver, vec![None])]);
        assert_eq!(told(restarts.take_ended(at(9000), &both, true)), []);
    }

    #[test]
    fn a_restart_is_reported_once_whether_the_place_was_found_again_or_not() {
        let anomaly = |kind| NumberingAnomaly { kind, key: EventKey::new(0, 1806), from: 1804, to: 0, size: 0 };
        let of = |kinds: &[NumberingKind]| {
            let numbering = [(SourceId(7), kinds.iter().copied().map(anomaly).collect())].into();
            RunSnapshot { numbering, ..RunSnapshot::default() }
        };
        let (mut recounts, rules) = (Recounts::default(), RestartRules::default());
        let mut after = |kinds: &[NumberingKind]| recounts.news(&of(kinds), &rules);
        let found = [NumberingKind::Restart, NumberingKind::Recovered];
        let text = "source 7 restarted counting at event 1806 (1804 -> 0); its place was found again by time or bunch crossing";
        assert_eq!(after(&found), [Recount { text: text.to_owned(), is_lost: false }]);
        assert_eq!(after(&found), []);
        let lost = after(&[found[0], found[1], NumberingKind::OutOfSync]);
        assert_eq!(lost, [Recount { text: "source 7 restarted counting: 1804 -> 0".to_owned(), is_lost: true }]);
    }

    #[test]
    fn not_too_many_are_under_way() {
        let mut restarts = Restarts::new();
        while restarts.expect_room().is_ok() {
            restarts.begin(vec![SourceId(1)], String::new(), at(1), 0);
        }
        assert_eq!(restarts.take_ended(at(1), &BTreeMap::new(), true).len(), MOST);
        assert_eq!(restarts.expect_room(), Ok(()));
    }
}
