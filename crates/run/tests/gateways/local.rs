//! Gateways without a farm in whole runs, over loopback: they decide on events themselves, as builder units do.

use crate::support::TemporaryDirectory;
use ropewalk_config::parse;
use ropewalk_host::Kind;
use ropewalk_run::RunSummary;
use ropewalk_run::gateway::SystemPart;
use ropewalk_run::launch_part;
use ropewalk_terms::{SourceId, TriggerBits};
use ropewalk_tools::file_based::FileEvent;
use ropewalk_tools::{RunReader, verify};
use ropewalk_wire::filter_result::FilterResult;
use ropewalk_wire::frd::{Event, FILE_HEADER_BYTES};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const EVENTS: u64 = 3000;
const SOURCES: usize = 7;

fn text(output: &Path, port: u16, more: &str) -> String {
    format!(
        "version = 1\n[run]\noutput = {:?}\nlumisection = {{ events = 1000 }}\n\
         [[flow]]\nname = \"hlt\"\npacking = 5\nsources = {{ count = {SOURCES}, first = 700, address = \"127.0.0.1:{port}\" }}\n\
         timeout = \"5s\"\nemulate = {{ fragment_size = \"uniform(8,200)\", rate = \"20kHz\" }}\n\
         [[gateway]]\nname = \"gw0\"\nqueues = 2\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n{more}\n[farm]\nnodes = 0\n",
        output.display().to_string()
    )
}

/// Executes a run from start to end.
fn run(output: &TemporaryDirectory, port: u16, more: &str) -> RunSummary {
    let text = text(output.path(), port, more);
    let configuration = parse("local", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let handle = launch_part(&configuration, &SystemPart::Whole, Some(EVENTS));
    let (mut handle, patience) = (handle.unwrap_or_else(|error| panic!("{error}")), Instant::now());
    while !handle.is_ended() {
        assert!(patience.elapsed() < Duration::from_secs(60), "it does not end: {:?}", handle.gateways());
        assert!(handle.summary().is_balanced(), "at any time: {:?}", handle.summary().ledger);
        std::thread::sleep(Duration::from_millis(2));
        if handle.sources_ended() {
            handle.stop();
        }
    }
    let summary = handle.finish(Duration::ZERO);
    assert!(summary.is_lossless(), "{}", serde_json::to_string_pretty(&summary).expect("JSON"));
    summary
}

/// Returns the content of a run's files: by event number, the filter's output, if any.
fn found(directory: &Path) -> BTreeMap<u64, Option<FilterResult>> {
    let mut reader = RunReader::open(&[directory]).expect("a run");
    let mut found = BTreeMap::new();
    while let Some(event) = reader.next_event().expect("it can be read") {
        let said = event.event.fragments().find(|one| one.entry.source == SourceId::FILTER);
        let sources = event.event.fragments().filter(|one| one.entry.source != SourceId::FILTER);
        let number = event.event.head().key.number();
        assert!(sources.map(|one| one.entry.source.0).eq(700..700 + SOURCES as u32), "event {number} is whole");
        let said = said.map(|said| FilterResult::decode(said.payload).expect("a filter's result").0);
        // An event is in each of its streams.
        assert!(found.insert(number, said).is_none_or(|other| other == said), "event {number}");
    }
    found
}

const ARCHITECTURES: [&str; 2] = ["architecture = \"run_to_completion\"", "architecture = \"threads\""];

#[test]
fn a_gateway_decides_by_triggers_and_writes_what_they_say() {
    for (port, architecture) in [27_000, 27_100].into_iter().zip(ARCHITECTURES) {
        let output = TemporaryDirectory::new("local-triggers");
        let filter = "[filter]\ntriggers = [{ every = 10 }, { every = 25 }]\n[[stream]]\nname = \"ten\"\ntriggers = [0]\n\
                      [[stream]]\nname = \"twentyfive\"\ntriggers = [1]\nprescale = 2";
        let summary = run(&output, port, &format!("{architecture}\n{filter}"));
        let passed = |number: u64| [number.is_multiple_of(10), number.is_multiple_of(25)];
        let accepted = (0..EVENTS).filter(|&number| passed(number).contains(&true)).count() as u64;
        let events = &summary.events;
        assert_eq!((events.built, events.accepted, events.rejected), (EVENTS, accepted, EVENTS - accepted));
        assert_eq!([summary.streams["ten"].written, summary.streams["twentyfive"].selected], [300, 120]);
        assert_eq!(summary.streams["error"].selected, 0);
        let gateways = || summary.gateways.values().map(|gateway| gateway.written);
        let (written, left_out) =
            (gateways().map(|it| it.events).sum::<u64>(), gateways().map(|it| it.left_out).sum::<u64>());
        assert_eq!((written + left_out, events.written), (accepted, written));
        let held = found(&summary.directory);
        assert_eq!(held.len() as u64, written);
        for (number, said) in held {
            let triggers = said.expect("a filter decided").triggers;
            assert_eq!(
                [0, 1].map(|trigger| triggers.meets(TriggerBits::of(trigger))),
                passed(number),
                "event {number}"
            );
        }
        let closed: Vec<_> = summary.lumisections.iter().map(|one| (one.number, one.assigned, one.accepted)).collect();
        assert_eq!(closed, [1, 2, 3].map(|number| (number, 1000, accepted / 3)));
        assert_eq!(summary.lumisections.iter().map(|one| one.unselected).sum::<u64>(), left_out);
        assert!(summary.farm.is_none());
        verify(&[&summary.directory]).expect("it can be read");
    }
}

#[test]
fn without_a_filter_every_event_is_written_and_nothing_where_that_is_not_wanted() {
    let output = TemporaryDirectory::new("local-all");
    let summary = run(&output, 27_200, "");
    assert_eq!((summary.events.accepted, summary.events.written), (EVENTS, EVENTS));
    let held = found(&summary.directory);
    assert!(held.values().all(Option::is_none) && held.keys().copied().eq(0..EVENTS));
    let output = TemporaryDirectory::new("local-nothing");
    let text =
        text(output.path(), 27_300, "[filter]\ntriggers = [\"all\"]").replace("[run]\n", "[run]\nwrite = false\n");
    let configuration = parse("local", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle =
        launch_part(&configuration, &SystemPart::Whole, Some(100)).unwrap_or_else(|error| panic!("{error}"));
    while !handle.is_ended() {
        std::thread::sleep(Duration::from_millis(2));
        if handle.sources_ended() {
            handle.stop();
        }
    }
    let summary = handle.finish(Duration::ZERO);
    assert_eq!((summary.events.accepted, summary.is_balanced()), (100, true), "{:?}", summary.ledger);
}

/// Returns the numbers of a document.
fn document(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let numbers = document["data"]
        .as_array()
        .expect("numbers")
        .iter()
        .map(|text| text.as_str().and_then(|text| text.parse().ok()));
    numbers.map(|number| number.expect("a number")).collect()
}

/// Returns the events in the files of a lumisection: number, and number of fragments.
fn filed(directory: &Path, lumisection: u32) -> Vec<(u64, usize)> {
    let begin = format!("run000001_ls{lumisection:04}_index");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !name.starts_with(&begin) || !name.ends_with(".raw") {
            continue;
        }
        let (bytes, mut at) = (std::fs::read(&path).expect("it can be read"), FILE_HEADER_BYTES);
        let before = found.len();
        while at < bytes.len() {
            let event = Event::parse(&bytes[at..]).expect("an event");
            assert!(event.is_right() && event.header().lumisection == lumisection, "{name}");
            at += event.bytes().len();
            let event = FileEvent::new(event);
            found.push((event.event().header().event, event.fragments().expect("banks").len()));
        }
        assert_eq!(
            document(&path.with_extension("jsn")),
            [(found.len() - before) as u64, bytes.len() as u64],
            "{name}"
        );
    }
    found
}

#[test]
fn a_gateway_writes_files_of_events_for_filter_units_with_all_their_documents() {
    for (port, architecture) in [27_400, 27_500].into_iter().zip(ARCHITECTURES) {
        let output = TemporaryDirectory::new("local-files");
        let summary =
            run(&output, port, &format!("{architecture}\n[file_based]\nfile_events = 64\nfile_time = \"200ms\""));
        assert_eq!((summary.events.accepted, summary.events.written), (EVENTS, EVENTS));
        let directories = ["gw0-0", "gw0-1"].map(|queue| output.path().join(queue).join("run000001"));
        let mut all = BTreeMap::new();
        for lumisection in 1..=3 {
            let mut events = 0;
            for directory in &directories {
                let end = document(&directory.join(format!("run000001_ls{lumisection:04}_EoLS.jsn")));
                let held = filed(directory, lumisection);
                assert_eq!((end[0], &end[2..4]), (held.len() as u64, &[1000, 0][..]), "{end:?}");
                events += end[0];
                all.extend(held);
            }
            assert_eq!(events, 1000, "lumisection {lumisection}");
        }
        assert!(all.keys().copied().eq(0..EVENTS) && all.values().all(|&fragments| fragments == SOURCES));
        let ends = directories.map(|directory| document(&directory.join("run000001_ls0000_EoR.jsn")));
        assert_eq!(ends.iter().map(|end| end[0]).sum::<u64>(), EVENTS);
        assert!(ends.iter().all(|end| end[2..] == [3, 3]), "{ends:?}");
    }
}

#[test]
fn what_does_not_go_without_a_farm_and_what_only_goes_without_one_is_refused_with_its_key() {
    let told = |text: String| parse("local", &text, &|_| None).map(|_| ()).map_err(|error| error.to_string());
    let local = |more: &str| told(text(Path::new("runs"), 27_000, more));
    for text in ["[filter]\nlibrary = \"a.so\"\ntrusted = true", "[filter]\nprogram = [\"a\"]\nnodes = [\"b:9500\"]"] {
        assert_eq!(local(text), Ok(()), "{text}");
    }
    assert_eq!(local("[filter]\ntriggers = [{ present = 706 }]"), Ok(()));
    assert_eq!(local("[filter]\nlibrary = \"a.so\"\n[[stream]]\nname = \"a\"\ntriggers = [127]"), Ok(()));
    for (text, key) in [
        ("[filter]", "filter: give one of"),
        ("[filter]\ntriggers = [\"all\"]\nlibrary = \"a.so\"", "filter: give one of"),
        ("[filter]\ntriggers = [{ present = 70000 }]", "filter.triggers[0]"),
        ("[filter]\nlibrary = \"a.so\"\nunits = 0", "filter.units"),
        ("[filter]\ntriggers = [\"all\"]\nnodes = [\"b:9500\"]", "filter.nodes"),
        ("[filter]\ntriggers = [{ present = 6 }]", "filter.triggers[0]"),
        ("[file_based]\nfile_events = 0", "file_based.file_events"),
        ("[file_based]\n[filter]\ntriggers = [\"all\"]", "filter: events are decided once"),
        ("[[stream]]\nname = \"a\"\nordered = true", "stream[0].ordered"),
        ("[[stream]]\nname = \"a\"\ntriggers = [0]", "stream[0].triggers"),
    ] {
        let refused = local(text).expect_err(text);
        assert!(refused.contains(key), "{text}: {refused}");
    }
    let changed = |from: &str, to: &str| told(text(Path::new("runs"), 27_000, "").replace(from, to)).expect_err(to);
    assert!(changed("timeout =", "output = \"stream\"\ntimeout =").contains("flow[0].output"));
    assert!(changed("nodes = 0", "nodes = 0\nemulate = {}").contains("farm.emulate"));
    let second =
        "[[flow]]\nname = \"l1\"\npacking = 5\nsources = { count = 1, address = \"127.0.0.1:1\" }\n[[gateway]]";
    let two = text(Path::new("runs"), 27_000, "[file_based]").replace("[[gateway]]", second);
    assert!(
        told(two.replace("hlt = \"127", "l1 = \"127.0.0.1:0\", hlt = \"127"))
            .expect_err("two flows")
            .contains("flow[1]")
    );
    let files = told(text(Path::new("runs"), 27_000, "[file_based]").replace("nodes = 0", "nodes = 2"));
    assert!(files.expect_err("a farm").contains("file_based: events are decided once"));
    let farm = "[filter]\nlibrary = \"a.so\"";
    let refused = told(text(Path::new("runs"), 27_000, farm).replace("nodes = 0", "nodes = 2")).expect_err(farm);
    assert!(refused.contains("filter.library") && refused.contains("`nodes = 0` in [farm]"), "{refused}");
}

/// Every machine has node 0. The kernel confirms the policy.
#[test]
fn pools_of_a_gateway_lie_on_the_node_that_the_rules_name() {
    let output = TemporaryDirectory::new("local-pools");
    let rules = "[[pool]]\nmatch = \"^gw0-[01]-\"\nnode = 0\n[[pool]]\nmatch = \"no such\"\nlock = true\n";
    let text = text(output.path(), 27_900, rules);
    let configuration = parse("local", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let plan = ropewalk_run::placement(&configuration).expect("node 0 exists");
    let placed = |name: &str| plan.of(Kind::Pool, name).and_then(|placement| placement.node);
    for purpose in ["hlt-packets", "evacuation", "staging", "records"] {
        assert_eq!([0, 1].map(|queue| placed(&format!("gw0-{queue}-{purpose}"))), [Some(0); 2], "{purpose}: {plan}");
    }
    assert_eq!(plan.unused_rules.len(), 1, "{plan}");
    let handle = launch_part(&configuration, &SystemPart::Whole, Some(100)).unwrap_or_else(|error| panic!("{error}"));
    let policies = std::fs::read_to_string("/proc/self/numa_maps").expect("Linux with NUMA");
    // Two queues with four pools each.
    assert!(policies.matches("bind:0").count() >= 8, "{policies}");
    drop(handle);
}
