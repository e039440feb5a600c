//! Conversion of a standing to a sample for monitoring.

use super::account::{RunSnapshot, Standing};
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::{FragmentFlags, NumberingAnomaly, NumberingKind, ReportEntry, SynchronyState};
use ropewalk_monitor::numbering::{Begun, Recovery, SourceNumbering, WrongNumber};
use ropewalk_monitor::synchrony::Relation;
use ropewalk_monitor::{DiskSample, NodeSample, Numbers, PAUSED, Sample, SourceSample, StreamSample};
use ropewalk_terms::{CounterKind, EventKey, Instant, NodeId, Role, SourceId, Utc};
use std::collections::BTreeMap;

/// Returns the sample of `standing`, as read at `time`.
pub fn observe(standing: &Standing, time: Instant, utc: Utc, disk: Option<DiskSample>) -> Sample {
    let snapshot = RunSnapshot::of(standing);
    let mut nodes: BTreeMap<NodeId, NodeSample> = BTreeMap::new();
    for &(node, is_connected) in &standing.nodes {
        let incarnation = standing.youngest(node);
        let heard = standing.hearing.heard.iter().find(|(known, _)| *known == node);
        let sample = NodeSample {
            node,
            is_connected,
            reported: heard.map(|(_, at)| *at),
            incarnation,
            numbers: Numbers::default(),
            distributions: BTreeMap::new(),
        };
        nodes.insert(node, sample);
    }
    let mut sources: BTreeMap<SourceId, SourceSample> = BTreeMap::new();
    for report in standing.reports() {
        for told in report.told() {
            match (told.source, report.node.role) {
                (None, _) => {
                    if let Some(node) = nodes.get_mut(&report.node) {
                        told.entries().for_each(|entry| count_node(node, told.connected, &entry));
                    }
                }
                (Some(source), Role::Readout) => {
                    let known = sources.entry(source).or_insert_with(|| source_of(source, report.node, &snapshot));
                    known.readout = report.node;
                    told.entries().for_each(|entry| count_source(known, told.connected, &entry));
                }
                // The numbers of a builder unit belong to streams, which the snapshot has.
                _ => {}
            }
        }
    }
    Sample {
        time,
        utc,
        run: standing.run,
        phase: phase_name(standing.phase, standing.is_paused),
        nodes: nodes.into_values().collect(),
        manager_turned: standing.hearing.turned,
        report_interval: standing.hearing.interval,
        sources: sources.into_values().collect(),
        streams: snapshot.streams.iter().map(|(&stream, &account)| StreamSample { stream, account }).collect(),
        events: snapshot.ledger.events,
        synchrony: snapshot.synchrony.iter().filter_map(relation).collect(),
        unrelated: snapshot.synchrony.iter().filter(|one| one.has_no_relation()).map(|one| one.source).collect(),
        lost_datagrams: snapshot.lost_datagrams.get(&None).copied().unwrap_or_default(),
        disk,
        ..Sample::default()
    }
}

/// Returns the relation of a source; `None` while too little is known.
fn relation(state: &SynchronyState) -> Option<(SourceId, Relation)> {
    let offset = match state.verdict {
        1 => Some(0),
        2 => Some(state.offset),
        3 => None,
        _ => return None,
    };
    Some((state.source, Relation { offset, since: state.since }))
}

/// Returns the name of a phase for monitoring. A paused run is not expected to build anything.
pub fn phase_name(phase: RunPhase, is_paused: bool) -> &'static str {
    if phase.is_running() && is_paused { PAUSED } else { phase.name() }
}

/// Adds a number that a node reported about itself: a counter or a measurement.
fn count_node(node: &mut NodeSample, connected: bool, entry: &ReportEntry) {
    if let Some(counter) = entry.as_counter() {
        // Quantities held by an ended incarnation are lost with it.
        if connected || counter.kind() == CounterKind::Total {
            node.numbers.add(counter, entry.value);
        }
    } else if let Some((measure, bucket)) = entry.as_measured() {
        let distribution = node.distributions.entry(measure).or_default();
        match bucket {
            Some(bucket) => distribution.add(bucket, entry.value),
            None => distribution.sum = distribution.sum.saturating_add(entry.value),
        }
    }
}

/// Adds a number that a readout unit reported about a source: counters, histogram cells, bytes of corrupt data.
fn count_source(source: &mut SourceSample, connected: bool, entry: &ReportEntry) {
    if let Some(counter) = entry.as_counter() {
        if connected || counter.kind() == CounterKind::Total {
            source.numbers.add(counter, entry.value);
        }
    } else if let Some((histogram, cell)) = entry.as_histogram() {
        *source.histograms.entry(histogram).or_default().entry(cell).or_default() += entry.value;
    } else if let Some(word) = entry.as_corrupt() {
        source.corrupt.resize(8 * ReportEntry::CORRUPT_WORDS, 0);
        source.corrupt[8 * word..8 * word + 8].copy_from_slice(&entry.value.to_le_bytes());
    }
}

/// The first event of every run.
const FIRST: EventKey = EventKey::new(0, 1);

/// Returns the description for operators of a source's numbering anomalies, given in order.
pub fn numbering_of(all: &[NumberingAnomaly]) -> SourceNumbering {
    let of_kind = |kind| all.iter().filter(move |one| one.kind == kind);
    let at_first = |kind| of_kind(kind).find(|one| one.key == FIRST);
    let begun = match at_first(NumberingKind::Gap) {
        Some(gap) => {
            let step = gap.to.saturating_sub(gap.from) / (gap.size + 1);
            // If counting begins with 0, the number before the first one is the maximum.
            let first = if gap.from < gap.to { gap.from + step } else { gap.to.saturating_sub(gap.size) };
            Some(Begun { first, came: gap.to, skipped: Some(gap.size) })
        }
        None => at_first(NumberingKind::LeftOver).map(|one| Begun { first: one.from, came: one.to, skipped: None }),
    };
    let is_restart = |one: &&NumberingAnomaly| matches!(one.kind, NumberingKind::Restart | NumberingKind::OutOfSync);
    let last = all.iter().rposition(|one| one.kind == NumberingKind::Recovered);
    let recovered = last.and_then(|last| {
        let restart = all[..last].iter().rev().find(is_restart)?;
        let count = of_kind(NumberingKind::Recovered).count() as u64;
        Some(Recovery { event: restart.key, from: restart.from, to: restart.to, count })
    });
    let lost = all.iter().rposition(|one| one.kind == NumberingKind::OutOfSync);
    SourceNumbering {
        restarted_at: lost.filter(|&lost| last.is_none_or(|last| last < lost)).map(|lost| all[lost].key),
        recovered,
        begun,
        gap: of_kind(NumberingKind::Gap).next_back().map(|one| (one.from, one.to)),
        wrong: of_kind(NumberingKind::WrongNumber).next_back().map(|one| WrongNumber {
            event: one.key,
            from: one.from,
            to: one.to,
            count: of_kind(NumberingKind::WrongNumber).map(|one| one.size).sum(),
        }),
    }
}

fn source_of(source: SourceId, readout: NodeId, snapshot: &RunSnapshot) -> SourceSample {
    let doubts =
        snapshot.doubts.get(&source).into_iter().flatten().copied().enumerate().filter(|(_, count)| *count > 0);
    let numbering = snapshot.numbering.get(&source).map_or(&[][..], Vec::as_slice);
    SourceSample {
        source,
        readout,
        account: snapshot.sources.get(&source).copied().unwrap_or_default(),
        lost_datagrams: snapshot.lost_datagrams.get(&Some(source)).copied().unwrap_or_default(),
        corrupt: Vec::new(),
        numbers: Numbers::default(),
        doubts: doubts.map(|(doubt, count)| (FragmentFlags::DOUBTS[doubt].1, count)).collect(),
        sends_datagrams: false,
        numbering: numbering_of(numbering),
        histograms: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::messages::{Batch, Report};
    use ropewalk_terms::{Cause, Counter, Incarnation, Measure, Recorder, StreamIndex};
    use std::sync::Arc;

    const SOURCE: SourceId = SourceId(7);
    const FIRST: Incarnation = Incarnation(1);
    const SECOND: Incarnation = Incarnation(2);

    fn of(nodes: &[NodeId]) -> Standing {
        let mut standing = Standing::default();
        standing.nodes.extend(nodes.iter().map(|&node| (node, true)));
        standing
    }

    fn report(numbers: &[(Option<SourceId>, u16, u64)]) -> Report {
        let entries = numbers.iter().map(|&(source, what, value)| ReportEntry { source, what, value });
        Report { last: true, entries: entries.collect::<Batch<_>>() }
    }

    fn look(standing: &Standing) -> Sample {
        observe(standing, Instant::from_nanoseconds(5), Utc(6), None)
    }

    #[test]
    fn irregular_numbers_say_how_a_source_began_what_it_skipped_and_that_it_was_found_again() {
        let anomaly =
            |kind, number, from, to, size| NumberingAnomaly { kind, key: EventKey::new(0, number), from, to, size };
        use NumberingKind::{Gap, LeftOver, OutOfSync, Recovered, Restart};
        let outside = numbering_of(&[anomaly(LeftOver, 1, 826, 4521, 80)]);
        assert_eq!(outside.begun, Some(Begun { first: 826, came: 4521, skipped: None }));
        let behind =
            numbering_of(&[anomaly(LeftOver, 1, 0, 5000, 1), anomaly(Gap, 1, u64::from(u32::MAX), 5001, 5001)]);
        assert_eq!(behind.begun, Some(Begun { first: 0, came: 5001, skipped: Some(5001) }));
        let steps = numbering_of(&[anomaly(Gap, 1, 84, 164, 4), anomaly(Gap, 9, 300, 332, 1)]);
        assert_eq!(steps.begun, Some(Begun { first: 100, came: 164, skipped: Some(4) }));
        assert_eq!(steps.gap, Some((300, 332)));
        let found = numbering_of(&[anomaly(Restart, 1806, 1804, 0, 0), anomaly(Recovered, 1806, 1804, 0, 0)]);
        let recovered = Recovery { event: EventKey::new(0, 1806), from: 1804, to: 0, count: 1 };
        assert_eq!((found.recovered, found.restarted_at), (Some(recovered), None));
        let lost = numbering_of(&[anomaly(OutOfSync, 51, 50, 1, 0)]);
        assert_eq!((lost.restarted_at, lost.begun), (Some(EventKey::new(0, 51)), None));
    }

    #[test]
    fn alarms_know_the_phases_that_runs_have() {
        use RunPhase::{Configured, Draining, Ended, Initial, Running};
        let mut names = [Initial, Configured, Running, Draining, Ended].map(|phase| phase_name(phase, false)).to_vec();
        names.insert(3, phase_name(Running, true));
        assert_eq!(names, ropewalk_monitor::PHASES);
        assert_eq!(phase_name(Draining, true), "draining", "a stop ends a pause");
    }

    #[test]
    fn a_run_that_is_paused_is_not_said_to_be_limited_or_dead() {
        use ropewalk_monitor::alarms::{Alarms, built_in};
        use ropewalk_monitor::bottleneck::{Finder, Limit};
        let mut standing = of(&[NodeId::readout(0)]);
        (standing.phase, standing.is_paused) = (RunPhase::Running, true);
        let (mut finder, mut alarms) = (Finder::default(), Alarms::new(built_in()).expect("they fit together"));
        for second in 1..60 {
            let sample = Arc::new(observe(&standing, Instant::from_nanoseconds(second * 1_000_000_000), Utc(6), None));
            finder.observe(Arc::clone(&sample));
            alarms.observe(sample, finder.finding(), &Default::default());
        }
        assert_eq!(finder.finding().map(|finding| finding.limit), Some(Limit::NotRunning));
        assert_eq!(alarms.shown().iter().map(|alarm| &alarm.rule.name).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn nodes_sources_and_streams_are_told_apart() {
        let (readout, builder) = (NodeId::readout(0), NodeId::builder(0));
        let mut standing = of(&[readout, builder]);
        standing.node_connected(readout, FIRST);
        standing.node_connected(builder, FIRST);
        let of_source = (Some(SOURCE), Counter::FragmentsReceived as u16, 9);
        let dropped = (Some(SOURCE), ReportEntry::cause(Cause::CrcError), 2);
        let lost = (None, ReportEntry::lost(Cause::SocketQueueFull), 3);
        standing.reported(readout, FIRST, &report(&[of_source, dropped, lost, (None, Counter::PoolHeld as u16, 4)]));
        let of_stream = (Some(SourceId(1)), Counter::StreamSelected as u16, 6);
        standing.reported(builder, FIRST, &report(&[of_stream, (None, Counter::EventsBuilt as u16, 8)]));
        let sample = look(&standing);
        assert_eq!((sample.time, sample.utc, sample.phase), (Instant::from_nanoseconds(5), Utc(6), "initial"));
        let source = sample.source(SOURCE).expect("it is in the sample");
        assert_eq!(
            (source.readout, source.account.received, source.account.dropped.get(Cause::CrcError)),
            (readout, 9, 2)
        );
        assert_eq!(source.numbers.known(Counter::FragmentsReceived), Some(9));
        assert_eq!(sample.sources.len(), 1, "a stream is no source");
        assert_eq!((sample.streams[0].stream, sample.streams[0].account.selected), (StreamIndex(1), 6));
        assert_eq!(sample.lost_datagrams.get(Cause::SocketQueueFull), 3);
        let numbers = |node| &sample.node(node).expect("it is configured").numbers;
        assert_eq!(
            (numbers(readout).known(Counter::PoolHeld), numbers(builder).get(Counter::EventsBuilt)),
            (Some(4), 8)
        );
    }

    #[test]
    fn what_was_measured_in_all_lives_of_a_node_is_one_distribution() {
        let builder = NodeId::builder(0);
        let mut standing = of(&[builder]);
        for life in [FIRST, SECOND] {
            let mut recorder = Recorder::new(Measure::BuildLatency);
            recorder.record_many(1_000, life.0);
            standing.node_connected(builder, life);
            let entries = ReportEntry::measured(&recorder).collect::<Batch<_>>();
            standing.reported(builder, life, &Report { last: true, entries });
        }
        let sample = look(&standing);
        let node = sample.node(builder).expect("it is configured");
        let latency = &node.distributions[&Measure::BuildLatency];
        assert_eq!((latency.count(), latency.sum, latency.quantile(0.5)), (3, 3_000, Some(1_024)));
        assert_eq!((node.distributions.len(), sample.distribution(Measure::BuildLatency).count()), (1, 3));
    }

    #[test]
    fn histograms_of_a_source_are_sums_over_all_lives_of_its_readout_unit() {
        let readout = NodeId::readout(0);
        let mut standing = of(&[readout]);
        for (life, counts) in [(FIRST, [2, 3]), (SECOND, [10, 20])] {
            standing.node_connected(readout, life);
            let entry = |(cell, &value): (u16, &u64)| ReportEntry::histogram(SOURCE, 15, 258 * cell, value);
            let received = ReportEntry { source: Some(SOURCE), what: Counter::FragmentsReceived as u16, value: 1 };
            let entries = (0..).zip(&counts).map(entry).chain([received]).collect::<Batch<_>>();
            standing.reported(readout, life, &Report { last: true, entries });
            standing.node_lost(readout, life);
        }
        let sample = look(&standing);
        let source = sample.source(SOURCE).expect("it is in the sample");
        assert_eq!(source.histograms, BTreeMap::from([(15, BTreeMap::from([(0, 12), (258, 23)]))]));
        assert_eq!(source.account.received, 2, "no histogram is taken for a counter");
    }

    #[test]
    fn totals_of_a_node_outlive_its_lives_and_what_it_held_does_not() {
        let builder = NodeId::builder(0);
        let mut standing = of(&[builder]);
        let numbers =
            |built, held| report(&[(None, Counter::EventsBuilt as u16, built), (None, Counter::PoolHeld as u16, held)]);
        standing.node_connected(builder, FIRST);
        standing.reported(builder, FIRST, &numbers(10, 5));
        standing.node_lost(builder, FIRST);
        standing.node_connected(builder, SECOND);
        standing.reported(builder, SECOND, &numbers(3, 2));
        let sample = look(&standing);
        let node = sample.node(builder).expect("it is configured");
        assert_eq!((node.incarnation, node.is_connected), (Some(SECOND), true));
        assert_eq!((node.numbers.get(Counter::EventsBuilt), node.numbers.get(Counter::PoolHeld)), (13, 2));
    }
}
