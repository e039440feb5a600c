//! Copies of single events of a run: only the requested events, with no effect on the run.

use ropewalk_config::parse;
use ropewalk_engine::tap::{Asked, EventSample, EventSelection, Tap};
use ropewalk_flow::control::RunPhase;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{EventKey, SourceId};
use ropewalk_wire::{fed, ferol};
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const EVENTS: u32 = 300;
/// The event without a fragment of source 2.
const LACKING: u32 = 100;

fn run(test: &str) -> (RunHandle, PathBuf) {
    let output = std::env::temp_dir().join(format!("ropewalk-tap-{test}-{}", std::process::id()));
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\npool = \"8MiB\"\n[[builder]]\nname = \"bu0\"\n",
        output.display().to_string()
    );
    for id in 1..=2 {
        text += &format!("[[source]]\nid = {id}\nreadout = \"ru0\"\nmax_fragment = \"4KiB\"\n");
    }
    let configuration = parse("tap", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).expect("a run on loopback");
    handle.start(EventKey::new(0, 1), None);
    wait("it runs", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
    (handle, output)
}

fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends all fragments of a source: ten times as many 8-byte words as its number.
fn send(address: &str, id: u32) -> TcpStream {
    let mut bytes = Vec::new();
    for event in (1..=EVENTS).filter(|event| id != 2 || *event != LACKING) {
        let mut fragment = Vec::new();
        let header = fed::Header::new(SourceId(id), event, 7);
        fed::encode(header, &vec![id as u8; 80 * id as usize], fed::Trailer::new(), &mut fragment)
            .expect("it is short");
        ferol::encode_fragment(&fragment, SourceId(id), event, &mut bytes);
    }
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(&bytes).expect("it is read");
    stream
}

fn stopped(mut handle: RunHandle, output: &Path) -> RunSummary {
    handle.stop();
    wait("it ends", || handle.is_ended().then_some(()));
    let summary = handle.finish(PATIENCE);
    std::fs::remove_dir_all(output).expect("the test's own directory");
    summary
}

fn asked(tap: &Tap, selection: EventSelection) -> Asked {
    tap.ask(selection, 16).expect("not many have asked")
}

#[test]
fn clients_get_the_events_that_they_asked_for() {
    let (handle, output) = run("selection");
    let tap = handle.tap().expect("builder units are in this process").clone();
    let mut any = asked(&tap, EventSelection::default());
    let mut incomplete = asked(&tap, EventSelection { is_incomplete: true, ..EventSelection::default() });
    let mut large = asked(&tap, EventSelection { least_bytes: 10_000, ..EventSelection::default() });
    let mut typed = asked(&tap, EventSelection { trigger_type: Some(9), ..EventSelection::default() });
    let address = handle.addresses()[0].1.clone();
    let streams = [1, 2].map(|id| send(&address, id));
    let first = wait("any event", || any.take());
    assert_eq!((first.key, first.is_complete(), first.fragments.len()), (EventKey::new(0, 1), true, 2));
    let second = &first.fragments[1];
    assert_eq!((second.entry.source, second.entry.length), (SourceId(2), 16 + 160));
    let header = fed::Header::new(SourceId(2), 1, 7).to_bytes();
    assert_eq!(first.front_of(second), [&header[..], &[2; 8]].concat());
    let fields = first.fields_of(second);
    for field in [("number", 1), ("bunch crossing", 7), ("FED L1 id", 1)] {
        assert!(fields.contains(&field), "{field:?} in {fields:?}");
    }
    let lacking: EventSample = wait("the incomplete event", || incomplete.take());
    assert_eq!((lacking.key, lacking.is_complete()), (EventKey::new(0, u64::from(LACKING)), false));
    assert_eq!(lacking.missing.iter().map(|missing| missing.source).collect::<Vec<_>>(), [SourceId(2)]);
    drop(streams);
    let summary = stopped(handle, &output);
    assert!(large.take().is_none() && typed.take().is_none(), "no such event was there");
    assert!(any.take().is_none(), "it was taken");
    assert!(summary.is_balanced(), "{:?}", summary.events);
}

#[test]
fn not_too_many_wait_at_once_and_one_that_goes_makes_room() {
    let tap = Tap::new(3);
    let mut waiting = Vec::new();
    while let Some(asked) = tap.ask(EventSelection::default(), 1 << 30) {
        waiting.push(asked);
        assert!(waiting.len() <= 8);
    }
    assert!(waiting.iter_mut().all(|asked| asked.take().is_none()), "no event was built");
    waiting.pop();
    assert!(tap.ask(EventSelection::default(), 0).is_some());
}
