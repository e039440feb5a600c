//! Each rule on a made-up run, their order, and what holds a sentence.

use super::{Finder, Finding, Limit, find};
use crate::made_up::{self, held_back, node, source};
use crate::numbering::Begun;
use crate::{Activity, DiskLoad, Sample, SourceSample};
use core::time::Duration;
use ropewalk_terms::{Cause, Counter, EventKey, NodeId, RunNumber};
use std::sync::Arc;

/// A run that has built an event a second.
fn sample(seconds: u64, sources: Vec<SourceSample>) -> Sample {
    let mut sample = made_up::sample(seconds, sources);
    sample.events.built = seconds;
    sample
}

/// What is found between two samples of a run, of which nothing was seen before. Every finding has a row in the manual.
fn found(before: &Sample, now: &Sample) -> Finding {
    let mut activity = Activity::default();
    activity.observe(before);
    activity.observe(now);
    let finding = find(before, now, &activity).expect("time has gone on");
    assert!(is_in_manual(&finding.sentence), "docs/operating.md does not say what to do about: {}", finding.sentence);
    finding
}

/// Whether the manual's table has a row for a sentence, which begins as the row does; `...` matches any words.
fn is_in_manual(sentence: &str) -> bool {
    let manual = include_str!("../../../../docs/operating.md");
    let (_, behind) = manual.split_once("\n## The sentence under the state\n").expect("the manual has it");
    let section = behind.split("\n## ").next().unwrap_or_default();
    let begins_as = |row: &str| {
        let mut parts = row.split("...");
        let rest = parts.next().and_then(|begin| sentence.strip_prefix(begin))?;
        parts.try_fold(rest, |rest, part| rest.split_once(part).map(|(_, rest)| rest))
    };
    let mut rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    rows.any(|row| begins_as(row).is_some())
}

/// Two sources, ten seconds apart; each has sent a thousand fragments in between.
fn healthy() -> (Sample, Sample) {
    (sample(10, vec![source(1, 1_000), source(2, 1_000)]), sample(20, vec![source(1, 2_000), source(2, 2_000)]))
}

fn of_ten_seconds(share: f64) -> Duration {
    Duration::from_secs_f64(10.0 * share)
}

#[test]
fn a_run_that_takes_all_is_not_limited() {
    let (before, now) = healthy();
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.evidence[0].value), (Limit::Sources, 20_000.0));
    assert_eq!(finding.sentence, "not limited: sources send 200 fragments a second, 0.0 MB/s, and everything is taken");
}

#[test]
fn a_run_that_builds_nothing_is_never_said_to_take_everything() {
    let (before, mut now) = healthy();
    now.events = before.events;
    let finding = found(&before, &now);
    assert_eq!(finding.limit, Limit::NothingBuilt);
    assert_eq!(finding.sentence, "sources send 200 fragments a second, and no event was built for 10 s");
}

#[test]
fn a_run_that_has_built_nothing_names_the_likely_cause() {
    let (mut before, mut now) = healthy();
    (before.events.built, now.events.built) = (0, 0);
    now.events.assigned = 64;
    let finding = found(&before, &now);
    assert_eq!(finding.limit, Limit::NothingBuilt);
    let sentence = "sources send 200 fragments a second, and no event was built for 10 s, although 64 are assigned: check \
                    that the builder units reach the readout units";
    assert_eq!(finding.sentence, sentence);
    // Soon after the start, no event is due yet.
    now.time = before.time.after(Duration::from_secs(1));
    let mut activity = Activity::default();
    activity.observe(&before);
    activity.observe(&now);
    let finding = find(&before, &now, &activity).expect("time has gone on");
    let sentence = "sources send 2,000 fragments a second, and no event is built yet";
    assert_eq!((finding.limit, &*finding.sentence), (Limit::NothingBuilt, sentence));
}

/// A run at this second, whose readout unit reported last at the second 10.
fn hangs(second: u64, phase: &'static str) -> Sample {
    let mut sample = Sample { phase, ..sample(second, vec![source(1, 1_000), source(2, 1_000)]) };
    sample.nodes[0].reported = Some(made_up::sample(10, Vec::new()).time);
    sample
}

#[test]
fn a_node_that_hangs_is_named_instead_of_missing_triggers() {
    let words = "ru0 has not reported for 6 s: it hangs or is stopped";
    for (phase, sentence) in [
        ("running", words.to_owned()),
        ("paused", words.to_owned()),
        ("configured", words.to_owned()),
        ("draining", format!("stopping: {words}")),
    ] {
        let mut activity = Activity::default();
        (10..=16).for_each(|second| activity.observe(&hangs(second, phase)));
        let finding = find(&hangs(15, phase), &hangs(16, phase), &activity).expect("time has gone on");
        assert_eq!((finding.limit, finding.subject.as_str()), (Limit::NodeSilent, "ru0"), "{phase}");
        assert_eq!(finding.sentence, sentence);
        assert!(is_in_manual(&finding.sentence), "{}", finding.sentence);
    }
}

#[test]
fn the_end_of_a_run_names_the_disk_that_it_waits_for() {
    let (before, mut now) = healthy();
    now.phase = "draining";
    now.nodes[1] = node(NodeId::builder(0), &[(Counter::DiskFull, 1)]);
    let finding = found(&before, &now);
    let what = "no space left; free some now, or the data that wait for it are dropped";
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::DiskFull, "bu0"), "its alarm goes on");
    assert_eq!(finding.sentence, format!("stopping: bu0 cannot write to its disk: {what}"));
    now.outputs = Arc::new([(NodeId::builder(0), "/data0".to_owned())].into());
    assert_eq!(found(&before, &now).sentence, format!("stopping: bu0 cannot write to /data0: {what}"));
    now.nodes[1] = node(NodeId::builder(0), &[(Counter::DiskFailing, 5)]);
    let finding = found(&before, &now);
    assert_eq!(finding.limit, Limit::DiskFailing);
    assert!(finding.sentence.contains(": error 5 of the operating system; repair it now"), "{}", finding.sentence);
    now.nodes[1] = node(NodeId::builder(0), &[]);
    now.nodes[1].is_connected = false;
    assert_eq!(found(&before, &now).sentence, "stopping: bu0 not connected to the event manager");
}

#[test]
fn a_run_waits_for_nodes_to_join_before_it_asks_to_start_them() {
    let initial = |second| {
        let mut sample = Sample { phase: "initial", ..sample(second, Vec::new()) };
        sample.nodes[0].is_connected = false;
        sample
    };
    let said = |from: u64, to: u64| {
        let mut activity = Activity::default();
        (10..=to).for_each(|second| activity.observe(&initial(second)));
        let finding = find(&initial(from), &initial(to), &activity).expect("time has gone on");
        assert!(is_in_manual(&finding.sentence), "{}", finding.sentence);
        (finding.limit, finding.sentence)
    };
    assert_eq!(said(18, 19), (Limit::NotRunning, "the run waits for ru0 to connect".to_owned()));
    let missing = "the run cannot begin: ru0 not connected to the event manager; start the node";
    assert_eq!(said(19, 20), (Limit::NotRunning, missing.to_owned()));
}

#[test]
fn a_run_whose_events_are_incomplete_is_never_said_to_be_well() {
    let (before, mut now) = healthy();
    (now.events.built, now.events.incomplete_emitted) = (910, 100);
    let finding = found(&before, &now);
    assert_eq!(finding.limit, Limit::Incomplete);
    assert_eq!(finding.sentence, "the rate is not limited, but events are incomplete: 100 of the last 1,000");
}

#[test]
fn a_run_that_drops_fragments_is_never_said_to_take_everything() {
    let (before, mut now) = healthy();
    (now.events.built, now.sources[1].account.late) = (900, 100);
    let finding = found(&before, &now);
    assert_eq!(finding.limit, Limit::FragmentsLost);
    assert_eq!(finding.sentence, "the rate is not limited, but fragments are in no event: 100 of the last 2,000");
    now.sources[1].account.late = 0;
    now.sources[1].account.dropped.add(Cause::Masked, 100);
    assert_eq!(found(&before, &now).limit, Limit::Sources, "it was masked on purpose");
}

#[test]
fn a_restart_of_every_source_says_to_start_a_new_run() {
    let (before, mut now) = healthy();
    now.events = before.events;
    for source in &mut now.sources {
        source.numbering.restarted_at = Some(EventKey::new(0, 1154));
        source.account.dropped.add(Cause::OutOfSync, 1_000);
    }
    let finding = found(&before, &now);
    assert_eq!(finding.limit, Limit::SourcesRestarted);
    let sentence = "no event is built: all sources restarted counting: stop this run and start a new one";
    assert_eq!(finding.sentence, sentence);
    now.sources[0].numbering.restarted_at = None;
    assert_eq!(found(&before, &now).limit, Limit::FragmentsLost, "one of them goes on");
}

#[test]
fn a_source_that_sends_only_what_is_over_is_named_and_nothing_behind_it() {
    let (mut before, mut now) = (healthy().0, sample(20, vec![held_back(source(1, 1_008), of_ten_seconds(0.99))]));
    (before.events.built, now.events.built) = (900, 900);
    now.sources[0].account.stale = 8;
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::SourcesRestarted, "source 1"));
    assert!(finding.sentence.starts_with("source 1 began to count again"), "{finding:?}");
}

#[test]
fn boards_whose_fragments_all_fail_their_checks_may_be_exchanged() {
    let (before, mut now) = healthy();
    now.events = before.events;
    now.sources[0].doubts = vec![("crc_errors", 1_990)];
    now.sources[1].account.dropped.add(Cause::NotMatched, 2_000);
    let finding = found(&before, &now);
    assert_eq!(finding.limit, Limit::SourcesExchanged);
    assert!(finding.sentence.ends_with("are the ports or cables exchanged?"), "{}", finding.sentence);
}

#[test]
fn sources_that_never_sent_are_no_missing_triggers() {
    let begun = |seconds| sample(seconds, vec![source(1, 0), source(2, 0)]);
    let finding = found(&begun(10), &begun(20));
    assert_eq!(finding.limit, Limit::NoSources);
    assert_eq!(finding.sentence, "no source has sent anything: waiting for source 1 and 1 more source");
}

#[test]
fn a_run_that_does_not_go_on_is_limited_by_nothing() {
    let (before, mut now) = healthy();
    now.phase = "draining";
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::NotRunning, "draining"));
}

#[test]
fn sentences_name_nodes_as_the_configuration_does() {
    let (before, mut now) = healthy();
    let names = [(NodeId::builder(0), "writer".to_owned()), (NodeId::readout(0), "crate".to_owned())];
    now.node_names = Arc::new(names.into());
    now.nodes[0] = node(NodeId::readout(0), &[(Counter::PoolBlocks, 100), (Counter::PoolHeld, 95)]);
    assert!(found(&before, &now).sentence.starts_with("limited by crate (ru0): 95 % of its pool is held"));
    now.nodes[1] = node(NodeId::builder(0), &[(Counter::DiskFull, 1)]);
    let finding = found(&before, &now);
    assert!(finding.sentence.starts_with("stopped by writer (bu0): its disk is full"), "{}", finding.sentence);
    assert_eq!(finding.subject, "bu0", "the id is for programs");
}

#[test]
fn a_disk_that_refuses_or_is_full_is_named_with_its_node() {
    let (before, mut now) = healthy();
    now.nodes[1] = node(NodeId::builder(0), &[(Counter::DiskFull, 1)]);
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::DiskFull, "bu0"));
    assert_eq!(finding.sentence, "stopped by bu0: its disk is full; make room, the run goes on by itself");
    now.outputs = Arc::new([(NodeId::builder(0), "/data0".to_owned())].into());
    let sentence = found(&before, &now).sentence;
    assert_eq!(sentence, "stopped by bu0: its disk is full (/data0); make room, the run goes on by itself");
    // The other builder unit writes, and events are built.
    let mut goes_on = [sample(2, vec![source(1, 200)]), sample(3, vec![source(1, 300)])];
    for (sample, built) in goes_on.iter_mut().zip([200, 300]) {
        sample.nodes[1] = node(NodeId::builder(0), &[(Counter::DiskFull, 1)]);
        sample.nodes.push(node(NodeId::builder(1), &[]));
        sample.events.built = built;
    }
    let mut activity = Activity::default();
    goes_on.iter().for_each(|sample| activity.observe(sample));
    let finding = find(&goes_on[0], &goes_on[1], &activity).expect("two samples");
    let words = "bu0 waits, because its disk is full; make room, it goes on by itself. The others go on";
    assert_eq!(finding.sentence, words);
    now.nodes[1].numbers.add(Counter::DiskFailing, 5);
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.evidence[0].value), (Limit::DiskFailing, 5.0));
    assert!(finding.sentence.contains("bu0") && finding.sentence.contains("error 5"), "{}", finding.sentence);
}

#[test]
fn a_node_that_is_not_there_is_named() {
    let (before, mut now) = healthy();
    now.nodes[1].is_connected = false;
    assert_eq!(found(&before, &now).sentence, "bu0 not connected to the event manager");
    now.nodes[0].is_connected = false;
    let finding = found(&before, &now);
    assert_eq!(
        (finding.limit, finding.sentence.as_str()),
        (Limit::NodeMissing, "ru0 and 1 more node not connected to the event manager")
    );
}

#[test]
fn a_gateway_that_stops_the_trigger_is_named_with_what_stops_it() {
    let run = |seconds, shares: [u64; 5]| {
        let counters = [
            Counter::ThrottleTime,
            Counter::ThrottleSetsTime,
            Counter::ThrottleMemoryTime,
            Counter::ThrottleQueueTime,
            Counter::ThrottleErrorTime,
        ];
        let times: Vec<_> = counters.into_iter().zip(shares.map(|share| share * seconds * 10_000_000)).collect();
        let held = |id| held_back(source(id, 100 * seconds), Duration::from_millis(10 * shares[0] * seconds));
        let mut sample = sample(seconds, vec![held(1), held(2)]);
        sample.nodes = vec![node(NodeId::builder(0), &times)];
        sample
    };
    let found = |shares| found(&run(10, shares), &run(20, shares));
    let of_sets = found([45, 44, 3, 2, 0]);
    assert_eq!((of_sets.limit, of_sets.subject.as_str()), (Limit::Throttle, "bu0"));
    assert!(
        of_sets
            .sentence
            .starts_with("rate limited by gateway bu0, which stops the trigger 45 % of the time: its `sets`")
    );
    assert_eq!(of_sets.evidence[1].what, "throttle_sets_time of bu0, per second");
    assert!(found([45, 30, 31, 44, 0]).sentence.contains("packets wait to be received"));
    assert!(
        found([100, 100, 0, 0, 100]).sentence.contains("no node of the farm"),
        "without nodes the sets are full, too"
    );
    assert_eq!(found([10, 10, 0, 0, 0]).limit, Limit::Sources, "that costs little");
}

#[test]
fn packets_that_a_socket_dropped_are_counted_since_the_last_look() {
    let (mut before, mut now) = healthy();
    before.sources[1].lost_datagrams.add(Cause::SocketQueueFull, 100);
    now.sources[1].lost_datagrams.add(Cause::SocketQueueFull, 1_304);
    let finding = found(&before, &now);
    assert_eq!(finding.limit, Limit::DatagramsLost);
    assert_eq!(finding.sentence, "the receiving socket of source 2 dropped 1,204 packets: raise net.core.rmem_max");
    // What was lost before is no limit any more.
    before.sources[1].lost_datagrams = now.sources[1].lost_datagrams;
    assert_eq!(found(&before, &now).limit, Limit::Sources);
    now.lost_datagrams.add(Cause::SocketQueueFull, 7);
    assert!(found(&before, &now).sentence.contains("a port of several sources dropped 7"));
}

#[test]
fn a_source_that_stopped_while_another_goes_on_or_waits_is_silent() {
    let before = sample(10, vec![source(1, 1_000), source(2, 1_000)]);
    let goes_on = sample(20, vec![source(1, 2_000), source(2, 1_000)]);
    let finding = found(&before, &goes_on);
    assert_eq!((finding.limit, finding.sentence.as_str()), (Limit::SourceSilent, "source 2: no data for 10.0 s"));
    let mut waits = sample(20, vec![held_back(source(1, 1_000), of_ten_seconds(0.9)), source(2, 1_000)]);
    assert_eq!(found(&before, &waits).subject, "source 2");
    waits.sources[1].numbers.add(Counter::SourceDisconnections, 1);
    assert!(found(&before, &waits).sentence.ends_with("no data for 10.0 s, no connection"));
}

#[test]
fn a_source_whose_first_number_does_not_fit_limits_the_run_and_nothing_behind_it() {
    let outside = |seconds| {
        let mut waits = held_back(source(1, 10 * seconds), Duration::from_secs(seconds));
        waits.account.stale = 8 * seconds;
        waits.numbering.begun = Some(Begun { first: 0, came: 5000, skipped: None });
        let mut other = held_back(source(2, 10 * seconds), Duration::from_secs(seconds));
        other.account.in_incomplete_events = seconds;
        sample(seconds, vec![waits, other])
    };
    let finding = found(&outside(10), &outside(20));
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::WrongFirstNumber, "source 1"));
    assert_eq!(
        finding.sentence,
        "source 1 sends numbers from 5000 instead of 0, source 2 began with the run: reset source 1, or all \
                    boards together"
    );
}

#[test]
fn a_source_that_is_not_read_is_not_silent_whatever_comes_of_it() {
    let before = sample(10, vec![source(1, 1_000), source(2, 900)]);
    let now = sample(20, vec![held_back(source(1, 1_000), of_ten_seconds(1.0)), source(2, 950)]);
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::SourceSlow, "source 2"));
}

#[test]
fn a_source_that_has_ended_or_is_masked_is_neither_silent_nor_waited_for() {
    let with = |counter, id, received| {
        let mut source = source(id, received);
        source.numbers.add(counter, 1);
        source
    };
    let ended = |id, received| with(Counter::SourcesEnded, id, received);
    let masked = with(Counter::SourceMasked, 2, 900);
    let before = sample(10, vec![source(1, 1_000), source(2, 900)]);
    assert_eq!(found(&before, &sample(20, vec![source(1, 2_000), source(2, 900)])).limit, Limit::SourceSilent);
    assert_eq!(found(&before, &sample(20, vec![source(1, 2_000), ended(2, 900)])).limit, Limit::Sources);
    assert_eq!(found(&before, &sample(20, vec![source(1, 2_000), masked])).limit, Limit::Sources);
    let waiting = held_back(source(1, 2_000), of_ten_seconds(0.5));
    assert_eq!(found(&before, &sample(20, vec![waiting, ended(2, 900)])).limit, Limit::BehindReadout);
    let finding = found(&before, &sample(20, vec![ended(1, 1_000), ended(2, 900)]));
    assert_eq!((finding.limit, finding.sentence.as_str()), (Limit::NoData, "every source has ended"));
}

/// A run whose sources all wait, and whose nodes did this for so much of ten seconds.
fn held_up(of_readout: &[(Counter, f64)], of_builder: &[(Counter, f64)]) -> (Sample, Sample) {
    let (before, _) = healthy();
    let waiting = |id| held_back(source(id, 2_000), of_ten_seconds(0.9));
    let mut now = sample(20, vec![waiting(1), waiting(2)]);
    let mut earlier = before;
    for (node, shares) in [(0, of_readout), (1, of_builder)] {
        for &(counter, share) in shares {
            earlier.nodes[node].numbers.add(counter, 7);
            now.nodes[node].numbers.add(counter, 7 + of_ten_seconds(share).as_nanos() as u64);
        }
    }
    (earlier, now)
}

#[test]
fn a_disk_that_writes_all_the_time_is_named_with_its_builder_unit() {
    let (before, mut now) = held_up(&[], &[(Counter::BuilderFullTime, 0.9), (Counter::DiskBusyTime, 0.97)]);
    now.nodes[1].numbers.add(Counter::BytesWritten, 50_000_000);
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::Disk, "bu0"));
    assert_eq!(finding.sentence, "rate limited by builder unit bu0: disk writing 97 % busy, at 5.0 MB/s");
    // With room for further events it holds up no other node, and neither does one that has time.
    let (before, now) = held_up(&[], &[(Counter::BuilderFullTime, 0.2), (Counter::DiskBusyTime, 0.97)]);
    assert_eq!(found(&before, &now).limit, Limit::BehindReadout);
    let (before, now) = held_up(&[], &[(Counter::BuilderFullTime, 0.9), (Counter::DiskBusyTime, 0.7)]);
    assert_eq!(found(&before, &now).limit, Limit::BuilderSmall);
}

#[test]
fn a_disk_that_is_the_limit_says_what_takes_its_time() {
    let (before, mut now) = held_up(&[], &[(Counter::BuilderFullTime, 0.9), (Counter::DiskBusyTime, 0.97)]);
    now.nodes[1].numbers.add(Counter::BytesWritten, 50_000_000);
    let begin = "rate limited by builder unit bu0: disk writing 97 % busy, at 5.0 MB/s; ";
    for says in [
        "discards take 45 % of the time of disk sda",
        "flushes take 30 % of the time of disk sda",
        "disk sda is 93 % busy with writes of 0.90 GB/s",
    ] {
        let load = DiskLoad {
            sentence: says.to_owned(),
            busy_thousandths: 930,
            discards_thousandths: 450,
            flushes_thousandths: 0,
        };
        now.disk_loads = Arc::new([(NodeId::builder(0), load)].into());
        let finding = found(&before, &now);
        assert_eq!(finding.sentence, format!("{begin}{says}"));
        assert!(has_own_row(&finding.sentence), "docs/operating.md has only the row of every disk: {says}");
        let value = |what: &str| finding.evidence.iter().find(|one| one.what.ends_with(what)).map(|one| one.value);
        assert_eq!((value("is busy"), value("is discarding")), (Some(0.93), Some(0.45)));
    }
}

/// Whether the manual says what to do about this reason.
fn has_own_row(sentence: &str) -> bool {
    let (_, reason) = sentence.split_once("; ").expect("it has a reason");
    let manual = include_str!("../../../../docs/operating.md");
    let reason = reason.split_whitespace().map(|word| if word == "sda" || word == "%" { "" } else { word });
    let words: Vec<&str> = reason.filter(|word| !word.is_empty() && !word.starts_with(char::is_numeric)).collect();
    manual.lines().filter(|line| line.starts_with("| rate limited by builder unit ...: disk writing")).any(|row| {
        let mut rest = row;
        row.contains("; ")
            && words.iter().all(|word| rest.split_once(word).inspect(|(_, behind)| rest = behind).is_some())
    })
}

#[test]
fn of_two_builder_units_the_one_with_the_busiest_disk_is_named() {
    let (mut before, mut now) = held_up(&[], &[(Counter::BuilderFullTime, 0.9), (Counter::DiskBusyTime, 0.95)]);
    before.nodes.push(node(NodeId::builder(1), &[(Counter::BuilderFullTime, 0), (Counter::DiskBusyTime, 0)]));
    let shares = [(Counter::BuilderFullTime, 0.9), (Counter::DiskBusyTime, 0.99)];
    let busier = shares.map(|(counter, share)| (counter, of_ten_seconds(share).as_nanos() as u64));
    now.nodes.push(node(NodeId::builder(1), &busier));
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::Disk, "bu1"));
}

#[test]
fn another_builder_unit_with_room_is_given_the_events_and_none_is_named_slow() {
    let (mut before, mut now) = held_up(&[], &[(Counter::BuilderFullTime, 0.9), (Counter::DiskBusyTime, 0.97)]);
    for sample in [&mut before, &mut now] {
        sample.nodes.push(node(NodeId::builder(1), &[(Counter::BuilderFullTime, 0)]));
    }
    assert_eq!(found(&before, &now).limit, Limit::BehindReadout);
}

#[test]
fn a_filter_is_named_where_it_is_busier_than_the_disk() {
    let busy = [(Counter::BuilderFullTime, 0.9), (Counter::DiskBusyTime, 0.85), (Counter::FilterBusyTime, 3.8)];
    let (mut before, mut now) = held_up(&[], &busy);
    for sample in [&mut before, &mut now] {
        sample.nodes[1].numbers.add(Counter::FilterUnits, 4);
    }
    // Of a filter that hangs nothing comes.
    now.events = before.events;
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.evidence[0].value), (Limit::FilterStuck, 0.95));
    now.events.built += 1;
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.evidence[0].value), (Limit::Filter, 0.95));
    assert!(finding.sentence.starts_with("rate limited by the filter of builder unit bu0: its units are 95 % busy"));
}

#[test]
fn a_rate_is_not_called_healthy_where_no_filter_is_left() {
    let (mut before, mut now) = healthy();
    for sample in [&mut before, &mut now] {
        sample.nodes.push(node(NodeId::builder(1), &[(Counter::FilterUnitsGivenUp, 2)]));
    }
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.evidence[0].value), (Limit::Incomplete, 2.0));
    assert!(finding.sentence.starts_with("the rate is not limited, but bu1: 2 filter units given up"));
}

#[test]
fn a_full_link_is_named_before_the_builder_unit_that_waits_for_it_unless_that_does_not_get_round_to_reading() {
    let (full, waits) = ((Counter::BuilderFullTime, 1.0), (Counter::LinkWaitTime, 0.93));
    let (before, now) = held_up(&[waits], &[full, (Counter::ThreadBusyTime, 1.0)]);
    assert_eq!(found(&before, &now).limit, Limit::Builder);
    let (before, now) = held_up(&[waits], &[full, (Counter::ThreadBusyTime, 0.6)]);
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::Link, "ru0"));
    assert!(finding.sentence.ends_with("what they ask for waits to be sent 93 % of the time"), "{}", finding.sentence);
}

#[test]
fn a_builder_unit_with_a_busy_thread_and_one_with_too_few_places_are_told_apart() {
    let full = (Counter::BuilderFullTime, 0.9);
    let (before, now) = held_up(&[], &[full, (Counter::ThreadBusyTime, 0.99)]);
    assert_eq!(found(&before, &now).limit, Limit::Builder);
    let (before, now) = held_up(&[], &[full, (Counter::ThreadBusyTime, 0.3)]);
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.evidence[0].value), (Limit::BuilderSmall, 0.9));
    assert!(finding.sentence.contains("`events`"), "{}", finding.sentence);
}

#[test]
fn a_readout_unit_whose_thread_always_has_work_is_named_where_no_source_waits() {
    let (mut before, mut now) = healthy();
    before.nodes[0].numbers.add(Counter::ThreadBusyTime, 0);
    now.nodes[0].numbers.add(Counter::ThreadBusyTime, of_ten_seconds(0.99).as_nanos() as u64);
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::Readout, "ru0"));
    before.nodes[0].numbers.add(Counter::ThreadBusyTime, of_ten_seconds(0.2).as_nanos() as u64);
    assert_eq!(found(&before, &now).limit, Limit::Sources);
}

#[test]
fn where_no_source_sends_and_everything_is_connected_there_are_no_triggers() {
    let (before, _) = healthy();
    let finding = found(&before, &sample(20, vec![source(1, 1_000), source(2, 1_000)]));
    assert_eq!(
        (finding.limit, finding.sentence.as_str()),
        (Limit::NoData, "no triggers: all nodes are connected, and no source has sent for 10 s")
    );
    let mut dead = sample(20, vec![source(1, 1_000), source(2, 1_000)]);
    dead.nodes[0].is_connected = false;
    assert_eq!(found(&before, &dead).limit, Limit::NodeMissing);
}

#[test]
fn a_pool_that_is_full_is_named_before_the_sources_that_it_holds_back() {
    let (before, _) = healthy();
    let waiting = |id| held_back(source(id, 2_000), of_ten_seconds(0.8));
    let mut now = sample(20, vec![waiting(1), waiting(2)]);
    assert_eq!(found(&before, &now).limit, Limit::BehindReadout);
    now.nodes[0].numbers.add(Counter::PoolHeld, 97);
    let finding = found(&before, &now);
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::PoolFull, "ru0"));
    assert!(finding.sentence.contains("97 % of its pool"), "{}", finding.sentence);
}

#[test]
fn sources_that_all_wait_are_limited_behind_the_readout_units() {
    let (before, _) = healthy();
    let waiting = |id, share| held_back(source(id, 2_000), of_ten_seconds(share));
    let finding = found(&before, &sample(20, vec![waiting(1, 0.5), waiting(2, 0.8)]));
    assert_eq!((finding.limit, finding.evidence[0].value), (Limit::BehindReadout, 0.5));
    assert!(finding.sentence.contains("at least 50 %"), "{}", finding.sentence);
}

#[test]
fn some_sources_that_wait_do_so_for_the_one_that_is_furthest_behind() {
    let before = sample(10, vec![source(1, 1_000), source(2, 900), source(3, 950)]);
    let fast = held_back(source(1, 2_000), of_ten_seconds(0.6));
    let finding = found(&before, &sample(20, vec![fast, source(2, 1_900), source(3, 1_950)]));
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::SourceSlow, "source 2"));
    let sentence = "limited by source 2, or by ru0 which reads it: it sends 100 fragments a second, and 1 of 3 sources wait for it, \
                    for up to 60 % of the time";
    assert_eq!(finding.sentence, sentence);
}

#[test]
fn a_little_waiting_is_no_limit() {
    let (before, _) = healthy();
    let now = sample(20, vec![held_back(source(1, 2_000), of_ten_seconds(0.15)), source(2, 2_000)]);
    assert_eq!(found(&before, &now).limit, Limit::Sources);
}

#[test]
fn what_stops_the_run_is_said_before_what_follows_from_it() {
    let (before, _) = healthy();
    let waiting = |id| held_back(source(id, 1_000), of_ten_seconds(1.0));
    let mut now = sample(20, vec![waiting(1), source(2, 1_000)]);
    now.nodes[0].numbers.add(Counter::PoolHeld, 100);
    now.nodes[1].numbers.add(Counter::DiskFull, 1);
    now.sources[0].lost_datagrams.add(Cause::SocketQueueFull, 1);
    assert_eq!(found(&before, &now).limit, Limit::DiskFull);
    now.nodes[1] = node(NodeId::builder(0), &[]);
    assert_eq!(found(&before, &now).limit, Limit::DatagramsLost);
    now.sources[0].lost_datagrams = before.sources[0].lost_datagrams;
    assert_eq!(found(&before, &now).limit, Limit::SourceSilent);
}

/// A run whose first source waits for `share` of each second.
struct Run {
    finder: Finder,
    seconds: u64,
    waited: f64,
}

impl Run {
    fn new() -> Self {
        Self { finder: Finder::default(), seconds: 0, waited: 0.0 }
    }

    /// One second later; what is shown then.
    fn second(&mut self, share: f64) -> Option<Limit> {
        self.seconds += 1;
        self.waited += share;
        let first = held_back(source(1, 100 * self.seconds), Duration::from_secs_f64(self.waited));
        self.finder.observe(sample(self.seconds, vec![first, source(2, 100 * self.seconds - 1)]));
        self.finder.finding().map(|finding| finding.limit)
    }
}

#[test]
fn a_sentence_does_not_flicker_and_changes_when_another_one_holds() {
    let mut run = Run::new();
    assert_eq!(run.second(0.0), None, "one sample says nothing");
    assert_eq!(run.second(0.0), Some(Limit::Sources));
    for share in [0.5, 0.0, 0.5, 0.5, 0.0] {
        assert_eq!(run.second(share), Some(Limit::Sources));
    }
    for _ in 0..3 {
        assert_eq!(run.second(0.5), Some(Limit::Sources));
    }
    assert_eq!(run.second(0.5), Some(Limit::SourceSlow));
}

#[test]
fn what_loses_data_or_stops_the_run_is_shown_at_once() {
    let mut run = Run::new();
    run.second(0.0);
    assert_eq!(run.second(0.0), Some(Limit::Sources));
    let mut next = sample(3, vec![source(1, 300), source(2, 300)]);
    next.nodes[1].is_connected = false;
    run.finder.observe(next);
    assert_eq!(run.finder.finding().map(|finding| finding.limit), Some(Limit::NodeMissing));
}

#[test]
fn what_is_over_is_said_no_longer() {
    let mut finder = Finder::default();
    let mut look = |second, one, other| {
        finder.observe(sample(second, vec![source(1, one), source(2, other)]));
        finder.finding().map(|finding| finding.limit)
    };
    look(1, 100, 100);
    assert_eq!(look(2, 200, 100), Some(Limit::Sources));
    assert_eq!(look(3, 300, 100), Some(Limit::SourceSilent));
    assert_eq!(look(4, 400, 200), Some(Limit::Sources), "it sends again");
    assert_eq!(look(5, 400, 200), Some(Limit::Sources));
    assert_eq!(look(6, 400, 200), Some(Limit::NoData));
    assert_eq!(look(7, 500, 300), Some(Limit::Sources));
}

#[test]
fn a_new_run_begins_without_a_sentence() {
    let mut run = Run::new();
    run.second(0.0);
    assert!(run.second(0.0).is_some());
    run.finder.observe(Sample { run: RunNumber(4), ..sample(3, vec![source(1, 1)]) });
    assert_eq!(run.finder.finding(), None);
}
