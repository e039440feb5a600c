//! Both flows of paper 1 together, with packets lost on purpose and a node that dies and returns: exactly the lost
//! packets are missing, and nothing else.
//!
//! `ROPEWALK_SOAK` sets the duration in seconds and the event rates per second of the first and the second flow. The
//! maximum rate of a machine is its rate under an excessive load (saturation), in packets per second of both flows,
//! which the test prints:
//! ```text
//! ROPEWALK_SOAK="8 1000000 1000000" cargo test --release -p ropewalk-run --test push_soak -- --nocapture
//! ROPEWALK_SOAK="60 19700 2320" cargo test --release -p ropewalk-run --test push_soak -- --nocapture
//! ```

mod support;

use ropewalk_config::parse;
use ropewalk_flow::source::SizeDistribution;
use ropewalk_flow::source::mep::MepSourceConfig;
use ropewalk_run::RunSummary;
use ropewalk_run::gateway::SystemPart;
use ropewalk_run::launch_part;
use ropewalk_terms::Cause;
use ropewalk_tools::RunIndex;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use support::TemporaryDirectory;

/// Sources and packing of the two flows.
const FLOWS: [(&str, u16, u16, u32); 2] = [("l1", 126, 25, 32), ("hlt", 323, 10, 100)];
const LOSS: f64 = 0.001;
/// The id of the second flow's first source.
const FIRST: u32 = 1000;

/// Returns the duration in seconds, and the events per second of each flow.
fn load() -> (u64, [u64; 2]) {
    let text = std::env::var("ROPEWALK_SOAK").unwrap_or_else(|_| "2 2000 100".to_owned());
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().expect("three numbers")).collect();
    let [seconds, first, second] = numbers[..] else { panic!("ROPEWALK_SOAK has three numbers, not `{text}`") };
    (seconds, [first, second])
}

fn run(output: &TemporaryDirectory) -> RunSummary {
    let (seconds, rates) = load();
    let (dies, lasts) = (seconds * 1000 / 3, seconds * 1000 / 6);
    let directory = output.path().display().to_string();
    let text = format!(
        r#"
version = 1
run = {{ output = {directory:?} }}
farm = {{ largest_push = "8KiB", silence = "300ms", emulate = {{ accept = 1.0, decision_time = "exponential(1ms)", outages = [{{ node = 1, from = "{dies}ms", lasts = "{lasts}ms" }}] }} }}

[[flow]]
name = "l1"
packing = 25
sources = {{ count = 126, address = "127.7.0.1" }}
timeout = "500ms"
sets = 4096
assembling = 1024
output = "stream"
decision_timeout = "20s"
emulate = {{ fragment_size = "32", rate = "poisson({}Hz)", loss = {LOSS}, seed = 5 }}

[[flow]]
name = "hlt"
packing = 10
sources = {{ count = 323, first = {FIRST}, address = "127.8.0.1" }}
timeout = "500ms"
sets = 1024
assembling = 256
decision_timeout = "20s"
emulate = {{ fragment_size = "100", rate = "poisson({}Hz)", loss = {LOSS}, seed = 6 }}

[[gateway]]
name = "gw0"
memory = "256MiB"
listen = {{ l1 = "127.0.0.1:0", hlt = "127.0.0.1:0" }}
"#,
        rates[0], rates[1]
    );
    let configuration = parse("soak", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch_part(&configuration, &SystemPart::Whole, None).unwrap_or_else(|error| panic!("{error}"));
    std::thread::sleep(Duration::from_secs(seconds));
    handle.stop();
    let patience = Instant::now() + Duration::from_secs(60);
    while !handle.is_ended() {
        assert!(Instant::now() < patience, "it does not end: {:?}", handle.gateways());
        std::thread::sleep(Duration::from_millis(2));
    }
    handle.finish(Duration::ZERO)
}

#[test]
fn what_is_missing_is_exactly_what_was_lost_on_purpose_whatever_becomes_of_a_node() {
    let output = TemporaryDirectory::new("push-soak");
    let summary = run(&output);
    println!("{}", serde_json::to_string_pretty(&summary).expect("JSON"));
    assert!(summary.is_balanced(), "{:?}", summary.ledger);
    assert_eq!(summary.farm.expect("farm nodes").deaths, 1);
    let sources = FLOWS.map(|(_, sources, packing, bytes)| MepSourceConfig {
        size: SizeDistribution::Fixed(bytes),
        loss: LOSS,
        seed: if sources == 126 { 5 } else { 6 },
        ..MepSourceConfig::new(sources, packing, 0)
    });
    for ((flow, count, packing, _), sources) in FLOWS.into_iter().zip(&sources) {
        let found = &summary.flows[flow];
        let sets = found.sent.expect("its sources are here").sets;
        let lost = |set: u64| (0..count).filter(|&source| sources.is_lost(set, source)).count() as u64;
        assert_eq!(found.sets.missing_packets.get(Cause::TimedOut), (0..sets).map(lost).sum::<u64>(), "{flow}");
        assert_eq!(found.sets.incomplete, (0..sets).filter(|set| lost(*set) > 0).count() as u64, "{flow}");
        for source in 0..count {
            let id = if flow == "hlt" { FIRST + u32::from(source) } else { source.into() };
            let missing = (0..sets).filter(|set| sources.is_lost(*set, source)).count() as u64;
            assert_eq!(found.sources[&id.to_string()].missing, missing, "{flow}: of source {id}");
        }
        assert_eq!((found.sets.opened, found.sets.refused.total()), (sets, 0), "{flow}");
        assert_eq!(found.farm.decided, sets * u64::from(packing), "{flow}: a node decides on each");
        assert_eq!((found.packets.late, found.farm.by_default), (0, 0), "{flow}");
        assert_eq!(found.lost_by_cause.total(), 0, "{flow}: what waits finds room");
    }
    let (sent, farm) = (summary.flows["l1"].sent.expect("its sources are here"), &summary.flows["l1"].farm);
    assert_eq!((sent.decisions_in_order, sent.decisions_missed), (farm.decided, 0));
    expect_what_was_lost(&summary, &sources[1]);
}

/// Checks that every event of the second flow is written, and lacks exactly the sources whose packets were lost.
fn expect_what_was_lost(summary: &RunSummary, sources: &MepSourceConfig) {
    let index = RunIndex::build(&[&summary.directory]).expect("the run files can be read");
    let (mut reader, mut next) = (index.reader(), 0);
    while let Some(found) = reader.next_event().expect("the run files can be read") {
        let event = found.event.key().number();
        assert_eq!(event, next, "every event is there, once");
        next += 1;
        let missing: BTreeSet<_> = found.event.missing().map(|one| (one.source.0, one.cause())).collect();
        let set = event / u64::from(sources.packing);
        let lost = (0..sources.sources).filter(|source| sources.is_lost(set, *source));
        let wanted = lost.map(|source| (FIRST + u32::from(source), Some(Cause::TimedOut))).collect();
        assert_eq!(missing, wanted, "event {event}");
        assert_eq!(found.event.fragments().count() + missing.len(), usize::from(sources.sources), "event {event}");
    }
    assert_eq!(next, summary.events.written);
}
