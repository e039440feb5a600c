//! Sentences of a closed run on its sources and filters: sources missing in events, silent sources, numbers that did
//! not fit, and failed filters. The terminal, `runs show` and `run.json` have the same sentences.

use ropewalk_config::{Configuration, SourceSection};
use ropewalk_engine::{RunSnapshot, numbering_of};
use ropewalk_flow::messages::{Gap, NumberingAnomaly, NumberingKind};
use ropewalk_monitor::numbering::{Numbered, never_began, wrong_beginnings};
use ropewalk_monitor::quality::{filter_problems, not_written};
use ropewalk_monitor::{Beginning, Sample};
use ropewalk_terms::{Cause, Counter, EventKey, FragmentAccount, Requirement, SourceId, Utc, counted, grouped};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of event ranges in a sentence.
const NAMED: usize = 3;

/// Facts of the configuration about sources that the sentences need.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownSources {
    /// Configured names.
    pub(super) names: Arc<BTreeMap<SourceId, String>>,
    /// Sources that send datagrams, so that they never have a connection.
    datagrams: BTreeSet<SourceId>,
    /// Sources that must send something in a run: they are required, and read no file.
    required: BTreeSet<SourceId>,
    /// Sources that are not needed for a complete event.
    optional: Arc<BTreeSet<SourceId>>,
    /// Whether sources send to gateways, which receive packets of several events, and know no ranges of events in which
    /// a source is missing.
    are_in_flows: bool,
    /// Time-out of events for a source.
    patience: Duration,
    /// A sentence on the sources whose slips are not detected.
    unchecked_step: Option<Arc<str>>,
}

impl KnownSources {
    pub(super) fn of(configuration: &Configuration) -> Self {
        let of_flows =
            || configuration.flow.iter().flat_map(|flow| flow.sources.entries(false)).map(|(id, _)| SourceId(id));
        let ids = |is: fn(&SourceSection) -> bool| {
            let own = configuration.source.iter().filter(|one| is(one)).map(|one| SourceId(one.id));
            own.chain(of_flows()).collect()
        };
        let name = |source: &SourceSection| Some((SourceId(source.id), source.name.clone()?));
        let is_optional = |source: &&SourceSection| source.requirement == Requirement::Optional;
        Self {
            names: Arc::new(configuration.source.iter().filter_map(name).collect()),
            datagrams: ids(SourceSection::comes_in_datagrams),
            required: ids(|one| one.requirement == Requirement::Required && !one.is_read()),
            optional: Arc::new(configuration.source.iter().filter(is_optional).map(|one| SourceId(one.id)).collect()),
            are_in_flows: !configuration.flow.is_empty(),
            patience: configuration.timeouts.readout.0,
            unchecked_step: configuration.unchecked_step().map(Arc::from),
        }
    }

    /// Adds to a sample the names, which sources have no connections, and which are not checked for slips.
    pub(super) fn describe(&self, mut sample: Sample) -> Sample {
        for source in &mut sample.sources {
            source.sends_datagrams |= self.datagrams.contains(&source.source);
        }
        let (names, optional) = (Arc::clone(&self.names), Arc::clone(&self.optional));
        Sample { names, optional, unchecked_step: self.unchecked_step.clone(), ..sample }
    }
}

/// Known facts of a run that ends.
pub(super) struct Remarks<'a> {
    pub(super) known: &'a KnownSources,
    pub(super) snapshot: &'a RunSnapshot,
    pub(super) sample: &'a Sample,
    /// Since when each source was silent that stopped before others.
    pub(super) silent_since: &'a BTreeMap<SourceId, Utc>,
    /// The delay of each source relative to the first one.
    pub(super) began_late: &'a BTreeMap<SourceId, Beginning>,
    /// Sources that were connected and had sent nothing when the run was stopped.
    pub(super) idle: &'a BTreeSet<SourceId>,
}

impl Remarks<'_> {
    /// Returns the required sources that sent nothing. If no source sent anything, the trigger may be idle: then only
    /// those without a connection count.
    pub(super) fn never_sent(&self) -> Vec<SourceId> {
        let account = |source: &SourceId| self.snapshot.sources.get(source);
        let has_data = self.snapshot.sources.values().any(|account| account.received > 0);
        let is_silent = |source: &&SourceId| {
            let is_known = account(source).is_some_and(|account| account.received == 0);
            is_known && !self.snapshot.masks.contains_key(source) && (has_data || !self.was_connected(**source))
        };
        self.known.required.iter().filter(is_silent).copied().collect()
    }

    /// Returns the optional sources that sent nothing while others did.
    fn stayed_away(&self) -> Vec<SourceId> {
        let received = |source: &SourceId| self.snapshot.sources.get(source).map(|account| account.received);
        let has_data = self.snapshot.sources.values().any(|account| account.received > 0);
        let is_away =
            |source: &&SourceId| has_data && received(source) == Some(0) && !self.snapshot.masks.contains_key(source);
        self.known.optional.iter().filter(is_away).copied().collect()
    }

    fn was_connected(&self, source: SourceId) -> bool {
        let known = self.sample.source(source);
        known.is_some_and(|one| one.numbers.get(Counter::SourceConnections) > 0) || self.idle.contains(&source)
    }

    /// Returns all sentences, source by source.
    pub(super) fn sentences(&self) -> Vec<String> {
        let (never_sent, stayed_away) = (self.never_sent(), self.stayed_away());
        let numberings = |source| self.snapshot.numbering.get(source).map_or(&[][..], Vec::as_slice);
        let numberings: Vec<_> = self.snapshot.sources.keys().map(|source| numbering_of(numberings(source))).collect();
        let numbered = self.snapshot.sources.iter().zip(&numberings);
        let count =
            |source: &SourceId, counter| self.snapshot.counts.get(source).map_or(0, |counts| counts.get(counter));
        let numbered = numbered.map(|((source, account), numbering)| {
            Numbered::new(*source, (numbering, account), |counter| count(source, counter))
        });
        let numbered: Vec<_> = numbered.collect();
        let beginnings = wrong_beginnings(&numbered, |source| self.sample.name_of(source));
        let before = never_began(&numbered);
        let mut sentences = Vec::new();
        for one in &numbered {
            let (source, name) = (one.source, self.sample.name_of(one.source));
            if never_sent.contains(&source) {
                let is_there = self.known.datagrams.contains(&source) || self.was_connected(source);
                let why = if is_there { "" } else { " (no connection)" };
                sentences.push(format!("{name} sent nothing in the whole run{why}"));
                continue;
            }
            if stayed_away.contains(&source) {
                sentences.push(format!("{name} is optional and sent nothing in the whole run"));
                continue;
            }
            let beginning = beginnings.iter().find(|(known, ..)| *known == source);
            sentences.extend(beginning.map(|(.., sentence)| sentence.clone()));
            sentences.extend(self.missing(source, &name, one.account, before));
            sentences.extend(self.began_late(source).map(|late| format!("{name}: {}", late.1)));
            sentences.extend(self.masked(source, &name));
            let wrong = one.numbering.wrong.map_or(0, |wrong| wrong.count).min(one.account.corrupt);
            sentences.extend(one.numbering.wrong_numbers(wrong).map(|what| format!("{name} {what}")));
            sentences.extend(self.restart(source, &name));
            sentences.extend(one.numbering.recovery(&name).map(|(_, sentence)| sentence));
        }
        sentences.extend(filter_problems(self.sample).into_iter().map(|(.., sentence)| sentence));
        sentences.extend(not_written(self.sample).map(|(_, sentence)| sentence));
        sentences.extend(self.taken_by_no_stream());
        // Faults come first.
        sentences.extend(self.sample.step_not_checked());
        sentences
    }

    /// Returns `calo (source 2): missing in 4,198 events, 1748 to 5945: silent since 12:03:05 UTC`.
    fn missing(&self, source: SourceId, name: &str, account: &FragmentAccount, before: u64) -> Option<String> {
        let count = account.never_came().saturating_sub(before);
        if count == 0 {
            return None;
        }
        if self.known.are_in_flows {
            return Some(self.missing_in_sets(source, name, count, account.corrupt));
        }
        let causes = || {
            let causes = account.missing.iter().filter(|(cause, _)| *cause != Cause::Masked);
            causes.map(|(cause, _)| cause.name().replace('_', " ")).collect::<Vec<_>>().join(", ")
        };
        let why = self.silent_since.get(&source);
        let why = why.map_or_else(causes, |since| format!("silent since {} UTC", since.time_of_day()));
        let gaps = self.snapshot.gaps.get(&source)?;
        // Events before the first one that arrived are not part of the run.
        let is_of_run = |gap: &&Gap| gap.last.resync() > 0 || gap.last.number() > before;
        let ranges = gaps.iter().filter(is_of_run).map(|gap| {
            let first = gap.first.max(EventKey::new(0, before + 1));
            if first == gap.last { first.to_string() } else { format!("{first} to {}", gap.last) }
        });
        let ranges: Vec<_> = ranges.collect();
        let more = ranges.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {}", counted(more as u64, "more range")) } else { String::new() };
        let shown = ranges.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        Some(format!("{name}: missing in {}, {shown}{more}: {why}", counted(count, "event")))
    }

    /// Returns that no stream took any of the accepted events.
    fn taken_by_no_stream(&self) -> Option<String> {
        let events = self.snapshot.ledger.events;
        let is_all = events.unselected > 0 && events.unselected == events.accepted;
        is_all.then(|| {
            format!(
                "no stream took any of the {} accepted events: a stream with `triggers` takes only events for which the filter \
                 names one of these triggers, and a `prescale` leaves events out",
                grouped(events.accepted)
            )
        })
    }

    /// Returns how long after the first source it began to send, if it was too late for most of its events, and a
    /// sentence on that.
    pub(super) fn began_late(&self, source: SourceId) -> Option<(Duration, String)> {
        let account = self.snapshot.sources.get(&source).filter(|account| account.late * 2 > account.received)?;
        // A source that began nearly with the others is late for another reason.
        let Beginning { after, first } =
            self.began_late.get(&source).filter(|late| late.after * 2 >= self.known.patience)?;
        let (first, late) = (self.sample.name_of(*first), counted(account.late, "fragment"));
        let seconds = after.as_secs_f64();
        Some((
            *after,
            format!(
                "its first data came {seconds:.1} s after those of {first}; {late} came after the end of their events"
            ),
        ))
    }

    /// Returns `calo (source 2) restarted counting: 1999 -> 0 (event 2001); its later fragments fit no event`.
    fn restart(&self, source: SourceId, name: &str) -> Option<String> {
        let mut all = self.snapshot.numbering.get(&source)?.iter().rev();
        let last = all.find(|one| matches!(one.kind, NumberingKind::OutOfSync | NumberingKind::Recovered))?;
        let NumberingAnomaly { key, from, to, .. } = last;
        let is_out = last.kind == NumberingKind::OutOfSync;
        is_out.then(|| {
            format!("{name} restarted counting: {from} -> {to} (event {key}); its later fragments fit no event")
        })
    }

    /// Returns `source 700: missing in 685 sets of events: silent since 12:03:05 UTC`.
    fn missing_in_sets(&self, source: SourceId, name: &str, count: u64, corrupt: u64) -> String {
        let why = match (self.silent_since.get(&source), corrupt) {
            (Some(since), _) => format!(": silent since {} UTC", since.time_of_day()),
            (None, 0) => String::new(),
            (None, corrupt) => format!(": {}", counted(corrupt, "damaged packet")),
        };
        format!("{name}: missing in {} of events{why}", counted(count, "set"))
    }

    /// Returns `straw (source 3): masked in events 1200 to 1749, with 550 fragments dropped`.
    fn masked(&self, source: SourceId, name: &str) -> Option<String> {
        let record = self.snapshot.masks.get(&source)?;
        let intervals = record.intervals.iter().map(|interval| match interval.to {
            Some(to) => format!("{} to {}", interval.from, to.previous()),
            None => format!("{} to the last one", interval.from),
        });
        let intervals: Vec<_> = intervals.collect();
        let dropped = self.snapshot.sources.get(&source).map_or(0, |account| account.dropped.get(Cause::Masked));
        let dropped = if dropped > 0 { format!(": {} masked", counted(dropped, "fragment")) } else { String::new() };
        (!intervals.is_empty()).then(|| format!("{name}: masked in events {}{dropped}", intervals.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_config::parse;
    use ropewalk_engine::{MaskRecord, MaskedInterval, Part};
    use ropewalk_terms::RunNumber;

    const CALO: SourceId = SourceId(1);
    const STRAW: SourceId = SourceId(2);
    const LAMP: &str = "lamp (source 3) is optional and sent nothing in the whole run";

    fn known() -> KnownSources {
        let source = |name: &str, keys: &str| format!("[[source]]\nname = {name:?}\nreadout = \"ru0\"\n{keys}\n");
        let text = format!(
            "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n{}{}{}",
            source("calo", "id = 1"),
            source("straw", "id = 2"),
            source("lamp", "id = 3\nrequirement = \"optional\"")
        );
        KnownSources::of(&parse("remarks", &text, &|_| None).unwrap_or_else(|error| panic!("{error}")))
    }

    /// Returns the sentences on a run in which the two required sources sent this much.
    fn said(
        received: [u64; 2],
        connections: u64,
        change: impl FnOnce(&mut RunSnapshot),
    ) -> (Vec<SourceId>, Vec<String>) {
        let known = known();
        let mut snapshot = RunSnapshot { run: RunNumber(1), ..RunSnapshot::default() };
        for (source, received) in [(CALO, received[0]), (STRAW, received[1]), (SourceId(3), 0)] {
            let account = FragmentAccount { received, in_complete_events: received, ..FragmentAccount::default() };
            snapshot.sources.insert(source, account);
        }
        change(&mut snapshot);
        let mut sample = Sample::default();
        for &source in snapshot.sources.keys() {
            sample.sources.push(ropewalk_monitor::SourceSample {
                source,
                readout: ropewalk_terms::NodeId::readout(0),
                account: snapshot.sources[&source],
                lost_datagrams: Default::default(),
                corrupt: Vec::new(),
                numbers: [(Counter::SourceConnections, connections)].into_iter().collect(),
                doubts: Vec::new(),
                sends_datagrams: false,
                numbering: Default::default(),
                histograms: BTreeMap::new(),
            });
        }
        let sample = known.describe(sample);
        let silent_since = [(STRAW, Utc((12 * 3600 + 3 * 60 + 5) * 1_000_000_000))].into();
        let idle = BTreeSet::new();
        let began_late = [(CALO, Beginning { after: Duration::from_secs(3), first: STRAW })].into();
        let (known, snapshot, sample, began_late) = (&known, &snapshot, &sample, &began_late);
        let remarks = Remarks { known, snapshot, sample, silent_since: &silent_since, began_late, idle: &idle };
        (remarks.never_sent(), remarks.sentences())
    }

    #[test]
    fn a_required_source_that_sent_nothing_is_named_unless_the_trigger_may_be_idle() {
        assert_eq!(said([0, 0], 1, |_| ()), (vec![], vec![]), "all are connected, and no trigger came");
        let (sources, sentences) = said([0, 0], 0, |_| ());
        assert_eq!((sources, sentences.len()), (vec![CALO, STRAW], 2));
        assert_eq!(sentences[1], "straw (source 2) sent nothing in the whole run (no connection)");
        let (sources, sentences) = said([9, 0], 1, |_| ());
        assert_eq!((sources, &*sentences[0]), (vec![STRAW], "straw (source 2) sent nothing in the whole run"));
        assert_eq!(sentences[1], LAMP);
        let masked = said([9, 0], 1, |snapshot| {
            let record = MaskRecord { part: Part::Masked, intervals: Vec::new() };
            snapshot.masks.insert(STRAW, record);
        });
        assert_eq!(masked, (vec![], vec![LAMP.to_owned()]), "it was left out on purpose");
    }

    #[test]
    fn a_missing_source_is_named_with_its_events_and_why() {
        let gap = |first, last, missing| Gap { first: EventKey::new(0, first), last: EventKey::new(0, last), missing };
        let of = |source, gaps: &[Gap]| {
            let gaps = gaps.to_vec();
            let (_, sentences) = said([5945, 1747], 1, |snapshot| {
                let missing = gaps.iter().map(|gap| gap.missing).sum();
                let account = snapshot.sources.get_mut(&source).expect("it is there");
                account.missing.add(Cause::TimedOut, missing);
                snapshot.gaps.insert(source, gaps);
            });
            sentences
        };
        let silent = "straw (source 2): missing in 4,198 events, 1748 to 5945: silent since 12:03:05 UTC";
        assert_eq!(of(STRAW, &[gap(1748, 5945, 4198)]), [silent, LAMP]);
        let some = [gap(3, 3, 1), gap(7, 9, 2), gap(20, 20, 1), gap(30, 30, 1), gap(40, 40, 1)];
        let expected = "calo (source 1): missing in 6 events, 3, 7 to 9, 20 and 2 more ranges: timed out";
        assert_eq!(of(CALO, &some), [expected, LAMP]);
    }

    #[test]
    fn a_source_that_began_late_is_named_with_the_time_and_one_that_restarted_with_its_numbers() {
        let (_, sentences) = said([3000, 3000], 1, |snapshot| {
            let account = snapshot.sources.get_mut(&CALO).expect("it is there");
            (account.late, account.in_complete_events) = (2900, 100);
            let key = EventKey::new(0, 2001);
            let restart = NumberingAnomaly { kind: NumberingKind::OutOfSync, key, from: 1999, to: 0, size: 5 };
            snapshot.numbering.insert(STRAW, vec![restart]);
        });
        let late = "calo (source 1): its first data came 3.0 s after those of straw (source 2); 2,900 fragments came after the \
                    end of their events";
        let restarted = "straw (source 2) restarted counting: 1999 -> 0 (event 2001); its later fragments fit no event";
        assert_eq!(sentences, [late, restarted, LAMP]);
    }

    #[test]
    fn accepted_events_that_no_stream_takes_are_named() {
        let remarks = |unselected| {
            said([900, 900], 1, |snapshot| {
                (snapshot.ledger.events.accepted, snapshot.ledger.events.unselected) = (900, unselected);
            })
            .1
        };
        let sentence = "no stream took any of the 900 accepted events: a stream with `triggers`";
        assert!(remarks(900)[1].starts_with(sentence), "{:?}", remarks(900));
        assert_eq!(remarks(899), [LAMP]);
    }

    #[test]
    fn a_masked_source_is_named_with_its_first_and_last_event() {
        let (_, sentences) = said([900, 900], 1, |snapshot| {
            let interval = |from, to: Option<u64>| MaskedInterval {
                from: EventKey::new(0, from),
                to: to.map(|to| EventKey::new(0, to)),
            };
            let intervals = vec![interval(100, Some(200)), interval(300, None)];
            snapshot.masks.insert(STRAW, MaskRecord { part: Part::Masked, intervals });
            snapshot.sources.get_mut(&STRAW).expect("it is there").dropped.add(Cause::Masked, 1_014);
        });
        let expected = "straw (source 2): masked in events 100 to 199, 300 to the last one: 1,014 fragments masked";
        assert_eq!(sentences, [expected, LAMP]);
    }

    #[test]
    fn a_source_whose_numbers_do_not_fit_or_restarted_is_named() {
        let anomaly =
            |kind, number, from, to| NumberingAnomaly { kind, key: EventKey::new(0, number), from, to, size: 80 };
        let (_, sentences) = said([80, 0], 1, |snapshot| {
            let account = snapshot.sources.get_mut(&CALO).expect("it is there");
            (account.stale, account.in_complete_events) = (80, 0);
            snapshot.numbering.insert(CALO, vec![anomaly(NumberingKind::LeftOver, 1, 826, 4521)]);
        });
        let begin = "calo (source 1) sends number 4521, but the first event of the run is 826: ";
        assert!(sentences[0].starts_with(begin), "{sentences:?}");
        let (_, sentences) = said([900, 900], 1, |snapshot| {
            let kinds = [NumberingKind::Restart, NumberingKind::Recovered];
            snapshot.numbering.insert(CALO, kinds.map(|kind| anomaly(kind, 1806, 1804, 0)).to_vec());
        });
        let begin = "calo (source 1) restarted counting at event 1806 (1804 -> 0); its place was found";
        assert!(sentences[0].starts_with(begin), "{sentences:?}");
    }
}
