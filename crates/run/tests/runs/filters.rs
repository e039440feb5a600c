//! Whole runs whose events are decided by built-in triggers, and selected by streams.

use crate::support::{Run, TemporaryDirectory};
use ropewalk_config::parse;
use ropewalk_run::{RunSummary, launch};
use ropewalk_terms::{EventKey, SourceId, StreamIndex, StreamSet, TriggerBits, Verdict};
use ropewalk_tools::{ReplayOptions, RunReader, replay, verify};
use ropewalk_wire::filter_result::FilterResult;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const EVENTS: u64 = 6000;

/// Executes a run of three sources; `more` follows the section of the run.
fn run(output: &TemporaryDirectory, more: &str) -> RunSummary {
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n{more}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n\
         [[builder]]\nname = \"bu1\"\n",
        output.path().display().to_string()
    );
    for id in 1..=3 {
        text += &format!(
            "[[source]]\nid = {id}\nreadout = \"ru0\"\nformat = \"generic\"\nemulate = {{ fragment_size = \"uniform(64, 400)\" }}\n"
        );
    }
    let configuration = parse("filter", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, Some(EVENTS)).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS)));
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{}", serde_json::to_string_pretty(&summary).expect("JSON"));
    summary
}

/// The content of a stream's files: by builder unit, in the order of the files, each event's number, the filter's
/// output, and the number of source fragments.
type Found = BTreeMap<String, Vec<(u64, Option<FilterResult>, usize)>>;

fn found(directory: &Path, stream: &str) -> Found {
    let mut found = Found::new();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).expect("it is there").map(|entry| entry.expect("it can be read").path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let parts: Vec<&str> = name.split('-').collect();
        let (Some(&builder), true) = (parts.get(1), parts.len() == if stream.is_empty() { 3 } else { 4 }) else {
            continue;
        };
        if !name.ends_with(".rwk") || (!stream.is_empty() && parts[2] != stream) {
            continue;
        }
        let mut reader = RunReader::open(&[&file]).expect("it is a segment");
        while let Some(event) = reader.next_event().expect("it can be read") {
            let mut fragments = event.event.fragments();
            let said = fragments.find(|fragment| fragment.entry.source == SourceId::FILTER);
            let said = said.map(|said| FilterResult::decode(said.payload).expect("a filter's result").0);
            let others = event.event.fragments().filter(|fragment| fragment.entry.source != SourceId::FILTER).count();
            let event = (event.event.head().key.number(), said, others);
            found.entry(builder.to_owned()).or_default().push(event);
        }
    }
    found
}

fn numbers(found: &Found) -> Vec<u64> {
    let mut numbers: Vec<u64> = found.values().flatten().map(|(number, ..)| *number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn triggers_decide_and_streams_take_what_they_are_to_have() {
    let output = TemporaryDirectory::new("filter");
    let summary = run(
        &output,
        "[filter]\ntriggers = [{ every = 2 }, { every = 3 }, { random = { share = 0.25, seed = 5 } }]\n\
         [[stream]]\nname = \"physics\"\ntriggers = [0, 1]\nordered = true\n\
         [[stream]]\nname = \"calibration\"\ntriggers = [1]\nprescale = 4\n\
         [[stream]]\nname = \"dice\"\ntriggers = [2]\n",
    );
    let physics = found(&summary.directory, "physics");
    let wanted: Vec<u64> = (1..=EVENTS).filter(|number| number % 2 == 0 || number % 3 == 0).collect();
    assert_eq!(numbers(&physics), wanted);
    for (builder, events) in &physics {
        assert!(events.is_sorted_by_key(|(number, ..)| *number), "{builder} writes in order");
        for (number, said, fragments) in events {
            let said = said.expect("a filter decided");
            let is_set = |trigger| said.triggers.meets(TriggerBits::of(trigger));
            assert_eq!((is_set(0), is_set(1), *fragments), (number % 2 == 0, number % 3 == 0, 3), "event {number}");
            assert_eq!((said.verdict, said.cause), (Verdict::Accepted, None));
            assert!(said.streams.contains(StreamIndex(0)));
        }
    }
    let calibration = found(&summary.directory, "calibration");
    let thirds = EVENTS / 3;
    // One of four, separately for each builder unit.
    let of_four = |events: u64| events.div_ceil(4);
    let taken = numbers(&calibration);
    assert!(taken.iter().all(|number| number % 3 == 0));
    assert!((of_four(thirds)..=of_four(thirds) + 1).contains(&(taken.len() as u64)), "{}", taken.len());
    let dice = found(&summary.directory, "dice");
    let (diced, of_dice) = (numbers(&dice), |said: &Option<FilterResult>| said.expect("decided").streams);
    let others = dice.values().flatten().filter(|(_, said, _)| of_dice(said) == StreamSet::of(StreamIndex(2))).count();
    assert!(others > 0, "some are in no other stream");
    let accepted = wanted.len() + others;
    let events = &summary.events;
    assert_eq!((events.accepted, events.rejected), (accepted as u64, EVENTS - accepted as u64));
    assert_eq!((events.unselected, events.quarantined, events.written), (0, 0, accepted as u64));
    for (name, written, selected) in [
        ("physics", wanted.len(), wanted.len() as u64),
        ("calibration", taken.len(), thirds),
        ("dice", diced.len(), diced.len() as u64),
    ] {
        let account = &summary.streams[name];
        assert_eq!((account.written, account.selected), (written as u64, selected), "{name}");
        assert_eq!(account.selected, account.written + account.prescaled_away, "{name}");
    }
    assert_eq!(summary.streams["error"].selected, 0);
    let report = verify(&[&summary.directory]).expect("it can be read");
    assert_eq!((report.events, report.duplicates), (accepted as u64, 0));
}

#[test]
fn what_no_stream_takes_is_accepted_and_not_written() {
    let output = TemporaryDirectory::new("prescaled");
    let summary = run(&output, "[[stream]]\nname = \"monitoring\"\nprescale = 10\n");
    let written = summary.events.written;
    assert!((EVENTS / 10..=EVENTS / 10 + 1).contains(&written), "{written}");
    assert_eq!((summary.events.accepted, summary.events.unselected), (EVENTS, EVENTS - written));
    let monitoring = found(&summary.directory, "monitoring");
    assert_eq!(numbers(&monitoring).len() as u64, written);
    assert!(monitoring.values().flatten().all(|(_, said, _)| said.is_none()), "no filter was asked");
}

#[test]
fn everything_may_be_rejected_and_files_may_not_be_wanted() {
    let output = TemporaryDirectory::new("rejected");
    let summary = run(&output, "[filter]\ntriggers = [{ size = { least = \"1MiB\" } }]");
    assert_eq!((summary.events.rejected, summary.events.written), (EVENTS, 0));
    let output = TemporaryDirectory::new("unwritten");
    let summary =
        run(&output, "write = false\nacknowledge = \"built\"\n[filter]\ntriggers = [{ present = 2 }, { every = 7 }]");
    assert_eq!((summary.events.accepted, summary.events.rejected), (EVENTS, 0));
    assert_eq!(summary.streams["physics"].written, EVENTS);
}

#[test]
fn each_lumisection_is_closed_with_the_account_of_its_events() {
    let output = TemporaryDirectory::new("filter-lumisections");
    let more = "lumisection = { events = 1000 }\n[filter]\ntriggers = [{ every = 10 }]\n";
    let summary = run(&output, more);
    let closed: Vec<_> =
        summary.lumisections.iter().map(|one| (one.number, one.first.as_str(), one.assigned)).collect();
    let firsts = ["1", "1001", "2001", "3001", "4001", "5001"];
    assert_eq!(closed, (1..).zip(firsts).map(|(number, first)| (number, first, 1000)).collect::<Vec<_>>());
    for one in &summary.lumisections {
        assert_eq!((one.built, one.accepted, one.rejected), (1000, 100, 900), "lumisection {}", one.number);
    }
}

#[test]
fn a_run_without_lumisections_is_one() {
    let output = TemporaryDirectory::new("filter-one-lumisection");
    let summary = run(&output, "");
    let closed: Vec<_> = summary.lumisections.iter().map(|one| (one.number, one.built)).collect();
    assert_eq!(closed, [(1, EVENTS)]);
}

#[test]
fn events_may_be_acknowledged_when_they_are_decided_and_before_they_are_written() {
    for level in ["built", "handed"] {
        let output = TemporaryDirectory::new("filter-handed");
        let more = format!(
            "acknowledge = {level:?}\n[filter]\ntriggers = [{{ every = 3 }}]\n[[stream]]\nname = \"physics\"\n"
        );
        let summary = run(&output, &more);
        let events = &summary.events;
        assert_eq!(
            (events.accepted, events.rejected, events.quarantined),
            (EVENTS / 3, EVENTS - EVENTS / 3, 0),
            "{level}"
        );
        assert_eq!((events.written, summary.streams["physics"].written), (EVENTS / 3, EVENTS / 3), "{level}");
    }
}

/// The filter's output is no source's data: it is in no digest, and is not played.
#[test]
fn a_run_whose_events_are_all_accepted_has_the_digest_of_one_without_a_filter() {
    let (with, without) = (TemporaryDirectory::new("filter-digest"), TemporaryDirectory::new("filter-no-digest"));
    let filtered = run(&with, "[filter]\ntriggers = [\"all\"]\n").directory;
    let whole = run(&without, "").directory;
    let [filtered_report, whole_report] =
        [&filtered, &whole].map(|run| verify(std::slice::from_ref(run)).expect("it is whole"));
    assert_eq!(
        (filtered_report.fragments, filtered_report.payload_bytes, &filtered_report.payload_sha256),
        (whole_report.fragments, whole_report.payload_bytes, &whole_report.payload_sha256)
    );
    let mut called = Vec::new();
    let connect = |source: SourceId| {
        called.push(source.0);
        Ok(Vec::new())
    };
    let sent = replay(&[filtered], &ReplayOptions { times: 1, ..ReplayOptions::default() }, connect)
        .expect("it can be played");
    assert_eq!((sent.events, sent.fragments, called), (EVENTS, 3 * EVENTS, vec![1, 2, 3]));
}
