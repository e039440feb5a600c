//! Front ends under run control: programs in C and in Python, and test clients, started and stopped repeatedly.
//!
//! `ROPEWALK_RUNS=200 cargo test --release -p ropewalk-run --test runs run_control -- --nocapture` sets the number of
//! consecutive runs.

use crate::support::{Manner, OwnFrontEnd, PATIENCE, Program, TemporaryDirectory, free_address, wait_for};
use ropewalk_config::{Configuration, parse, read};
use ropewalk_engine::{FrontEndState, FrontEndsAccount};
use ropewalk_flow::control::front_ends::FrontEndPhase;
use ropewalk_run::{FrontEndService, RunHandle, RunSummary, launch_with};
use ropewalk_terms::{EventKey, SourceId};
use ropewalk_tools::{RunIndex, readings};
use std::time::{Duration, Instant};

/// Triggers per second.
const RATE: f64 = 10_000.0;
/// Time with triggers in each of many runs.
const RUNNING: Duration = Duration::from_millis(200);

/// Returns a configuration with the sources from 1, the trigger, to `count`, all under run control, with these further
/// keys.
fn configuration(output: &TemporaryDirectory, control: &str, line: &str, count: u32, more: &str) -> Configuration {
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\nfront_ends = \"{control}\"\n[timeouts]\nfront_end = \"2s\"\n[[readout]]\n\
         name = \"ru0\"\npool = \"64MiB\"\nblock = \"64KiB\"\n[[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    for id in 1..=count {
        text += &format!("[[source]]\nid = {id}\nreadout = \"ru0\"\nformat = \"generic\"\ncontrolled = true\n");
        text += &match id {
            1 => format!("trigger = true\nsettings = {{ rate = {RATE:?} }}\n"),
            _ => format!("settings = {{ trigger = \"{line}\", size = 100, period = 0.05 }}\n"),
        };
    }
    parse("run_control", &(text + more), &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until this many events were built. Returns since when there have been triggers.
fn wait_for_events(handle: &RunHandle, count: u64) {
    let begun = Instant::now();
    while handle.snapshot().ledger.events.built < count {
        let account = handle.front_ends();
        assert!(begun.elapsed() < PATIENCE, "no events: {account:#?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Starts a run, waits for triggers for a while, stops it, and waits for its end. Returns the minimum and the maximum
/// time in which triggers were enabled.
fn take_run(configuration: &Configuration, service: &FrontEndService) -> (RunSummary, FrontEndsAccount, [Duration; 2]) {
    let mut handle = launch_with(configuration, None, Some(service)).unwrap_or_else(|error| panic!("{error}"));
    let started = Instant::now();
    handle.start(EventKey::new(0, 1), None);
    wait_for_events(&handle, 1);
    let seen = Instant::now();
    std::thread::sleep(RUNNING);
    let least = seen.elapsed();
    handle.stop();
    let begun = Instant::now();
    while !handle.is_ended() {
        assert!(begun.elapsed() < PATIENCE, "the run does not end: {:#?}", handle.front_ends());
        std::thread::sleep(Duration::from_millis(1));
    }
    let (most, account) = (started.elapsed(), handle.front_ends().expect("there are front ends"));
    (handle.finish(Duration::from_secs(5)), account, [least, most])
}

/// Checks that the first and last event agree in all front ends, that nothing is lost, and that the trigger's account
/// adds up.
fn expect_agreement(summary: &RunSummary, account: &FrontEndsAccount) -> u64 {
    assert_eq!((account.incidents.len(), account.phase), (0, FrontEndPhase::Finished), "{account:#?}");
    let trigger = account.front_ends.iter().find(|one| one.is_trigger).expect("there is one");
    let vetoed = trigger.vetoed.as_ref().expect("it was vetoed");
    let last = account.last.expect("it said the last event");
    assert_eq!(vetoed.last, last);
    assert_eq!(vetoed.issued, last + vetoed.vetoed.iter().map(|cause| cause.count).sum::<u64>(), "{vetoed:?}");
    for one in &account.front_ends {
        let stopped = one.stopped.expect("each says what it sent");
        assert_eq!((stopped.first, stopped.last, stopped.sent), (Some(1), Some(last), last), "{one:#?}");
    }
    assert!(summary.is_balanced() && summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.events.built, summary.events.written), (last, last));
    assert_eq!(summary.fragments.after_stop + summary.fragments.stale, 0, "no source sent beyond the run's edges");
    last
}

#[test]
fn first_and_last_event_agree_in_six_front_ends_run_after_run() {
    let runs = std::env::var("ROPEWALK_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(20);
    let (output, control) = (TemporaryDirectory::new("run-control"), free_address());
    let mut trigger = Program::in_c("trigger", &control, 1, &["--line", "0"]);
    let line = trigger.line();
    let configuration = configuration(&output, &control, &line, 6, "");
    let service = FrontEndService::open(&configuration).unwrap_or_else(|error| panic!("{error}")).expect("six of them");
    let _programs = [
        Program::in_c("telescope", &control, 2, &[]),
        Program::in_c("telescope", &control, 3, &["--name", "second"]),
        Program::in_python(&control, 4),
        Program::in_python(&control, 5),
    ];
    let _own = OwnFrontEnd::new(&control, 6, Some(line), Manner::Good);
    let (begun, mut events, mut issued, mut reported) = (Instant::now(), 0, 0, 0);
    let (mut least, mut most) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..runs {
        let (summary, account, times) = take_run(&configuration, &service);
        let last = expect_agreement(&summary, &account);
        issued += account.front_ends.iter().filter_map(|one| one.vetoed.as_ref()).map(|one| one.issued).sum::<u64>();
        (least, most) = (least + times[0], most + times[1]);
        events += last;
        let index = RunIndex::build(&[summary.directory.as_path()]).expect("run files");
        assert_eq!(index.events().count() as u64, last);
        let taken = account.front_ends.iter().map(|one| one.readings).sum::<u64>();
        let (kept, sources) = readings(&[summary.directory.as_path()]).expect("run files");
        assert_eq!((kept.len() as u64, sources.len()), (taken, 6));
        assert!(kept.is_sorted_by_key(|reading| reading.time));
        assert!(kept.iter().all(|reading| matches!(reading.source.0, 4 | 5)));
        reported += taken;
    }
    assert!(reported > 0, "the slow controls in Python report");
    // The trigger uses its own clock, and it is not visible from outside when exactly it is enabled and vetoed.
    let [least, most] = [0.9 * least.as_secs_f64(), most.as_secs_f64()].map(|seconds| RATE * seconds);
    assert!((least..=most).contains(&(issued as f64)), "{issued} triggers, not {least} to {most}");
    assert!(events as f64 > 0.9 * issued as f64, "{events} events of {issued} triggers");
    eprintln!("{runs} runs in {:.1} s, {events} events, {reported} readings", begun.elapsed().as_secs_f64());
}

/// Runs the trigger, a telescope and a test front end with this misbehaviour, and calls `happens` after the start.
/// Returns the accounts at the end.
fn run_with(
    name: &str,
    manner: Manner,
    last: Option<u64>,
    happens: impl FnOnce(&mut RunHandle, &mut Option<Program>),
) -> (RunSummary, FrontEndsAccount) {
    let (output, control) = (TemporaryDirectory::new(name), free_address());
    let mut trigger = Program::in_c("trigger", &control, 1, &["--line", "0"]);
    let line = trigger.line();
    let configuration = configuration(&output, &control, &line, 3, "");
    let mut telescope = Some(Program::in_c("telescope", &control, 2, &[]));
    let mut handle = launch_with(&configuration, None, None).unwrap_or_else(|error| panic!("{error}"));
    let _own = OwnFrontEnd::new(&control, 3, Some(line), manner);
    handle.start(EventKey::new(0, 1), last.map(|last| EventKey::new(0, last)));
    happens(&mut handle, &mut telescope);
    let begun = Instant::now();
    while !handle.is_ended() {
        assert!(begun.elapsed() < PATIENCE, "the run does not end: {:#?}", handle.front_ends());
        std::thread::sleep(Duration::from_millis(1));
    }
    let account = handle.front_ends().expect("there are front ends");
    (handle.finish(Duration::from_secs(5)), account)
}

fn texts(account: &FrontEndsAccount) -> Vec<(u32, String)> {
    account.incidents.iter().map(|incident| (incident.source.0, incident.kind.to_string())).collect()
}

#[test]
fn a_run_of_so_many_events_ends_by_itself_and_the_trigger_stops_with_it() {
    let (summary, account) = run_with("limited", Manner::Good, Some(1500), |_, _| {});
    assert_eq!((summary.events.built, account.last), (1500, Some(1500)), "{account:#?}");
    assert_eq!(summary.fragments.after_stop, 0, "the trigger knew the last event");
    assert!(summary.is_balanced() && summary.is_lossless(), "{summary:#?}");
    assert_eq!(texts(&account), []);
}

#[test]
fn a_front_end_that_never_answers_the_stop_is_named_and_the_run_ends() {
    let (summary, account) = run_with("deaf", Manner::Ignores("Stop"), None, |handle, _| {
        wait_for_events(handle, 100);
        handle.stop();
    });
    assert_eq!(texts(&account), [(3, "it was not stopped in time".to_owned())]);
    assert!(summary.is_balanced() && summary.is_lossless(), "its data came all the same: {summary:#?}");
    assert_eq!(Some(summary.events.built), account.last);
}

#[test]
fn a_program_that_dies_in_mid_run_is_named_and_the_run_goes_on() {
    let (summary, account) = run_with("dead", Manner::Good, None, |handle, telescope| {
        wait_for_events(handle, 100);
        *telescope = None;
        let died = handle.snapshot().ledger.events.assigned;
        wait_for("events without it", || {
            (handle.snapshot().ledger.events.incomplete_emitted > died + 100).then_some(())
        });
        handle.stop();
    });
    assert_eq!(
        texts(&account),
        [(2, "its control connection was lost".to_owned()), (2, "it was not stopped in time".to_owned())]
    );
    assert!(summary.is_balanced() && !summary.is_lossless(), "{summary:#?}");
    let last = account.last.expect("the trigger said so");
    assert_eq!(summary.events.built + summary.events.incomplete_emitted, last);
    let front_ends = summary.front_ends.expect("there are front ends");
    let dead = &front_ends.by_source["2"];
    let missing = dead.missing.total();
    assert_eq!((dead.expected, dead.in_events + missing), (Some(last), last), "{dead:?}");
    assert!(missing > 100 && front_ends.by_source["3"].missing.total() == 0, "{front_ends:#?}");
}

#[test]
fn a_start_that_waits_for_a_program_can_be_stopped() {
    let (output, control) = (TemporaryDirectory::new("alone"), free_address());
    let configuration = configuration(&output, &control, "127.0.0.1:1", 2, "");
    let mut handle = launch_with(&configuration, None, None).unwrap_or_else(|error| panic!("{error}"));
    // There is no trigger, so that the telescope cannot be configured either; both are named.
    let _telescope = Program::in_c("telescope", &control, 2, &[]);
    handle.start(EventKey::new(0, 1), None);
    let failed = wait_for("the telescope's failure", || {
        let account = handle.front_ends().expect("there are front ends");
        (!account.incidents.is_empty()).then_some(account)
    });
    let text = "it says that it failed: no trigger there: is its program running?".to_owned();
    assert_eq!(texts(&failed), [(2, text)]);
    assert_eq!(failed.phase, FrontEndPhase::Configuring);
    handle.stop();
    wait_for("the end", || handle.is_ended().then_some(()));
    assert_eq!(handle.finish(Duration::from_secs(5)).events.assigned, 0);
}

#[test]
fn the_example_is_a_good_configuration() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/own-hardware/run.toml");
    let configuration = read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(configuration.source.iter().filter(|source| source.is_under_run_control()).count(), 3);
}

/// Returns the state of the trigger source.
fn trigger_of(handle: &RunHandle) -> FrontEndState {
    handle.front_ends().expect("there are front ends").front_ends.remove(0)
}

/// Returns the number of triggers, accepted or not, as last reported by the source.
fn triggers(handle: &RunHandle) -> Option<u64> {
    trigger_of(handle).status.counters.iter().find(|one| one.name == "triggers").map(|one| one.count)
}

/// Pauses the run, and waits until it is paused and all accepted events have arrived. Returns the last event before the
/// pause.
fn pause(handle: &RunHandle, sources: u32) -> u64 {
    handle.pause();
    wait_for("the pause", || handle.progress().1.then_some(()));
    let last = wait_for("the trigger's word", || trigger_of(handle).held);
    wait_for("all that was accepted", || {
        let received = received(handle, sources);
        assert!(received.iter().all(|&count| count <= last), "{received:?} of {last} events");
        received.iter().all(|&count| count == last).then_some(())
    });
    last
}

/// Returns the number of fragments received from each source.
fn received(handle: &RunHandle, sources: u32) -> Vec<u64> {
    let snapshot = handle.snapshot();
    (1..=sources).map(|id| snapshot.sources.get(&SourceId(id)).map_or(0, |account| account.received)).collect()
}

/// Checks that there are triggers during the pause, and that none of them makes an event.
fn expect_vetoes(handle: &RunHandle, sources: u32, last: u64) {
    let before = wait_for("a word of the trigger", || triggers(handle));
    wait_for("triggers in the pause", || triggers(handle).filter(|&now| now > before + 1000));
    assert_eq!(received(handle, sources), vec![last; sources as usize]);
    assert_eq!((trigger_of(handle).held, handle.progress().1), (Some(last), true));
    assert!(handle.snapshot().ledger.events.assigned <= last);
}

fn vetoed_by_pause(account: &FrontEndsAccount) -> u64 {
    let vetoed = account.front_ends[0].vetoed.as_ref().expect("it was vetoed");
    vetoed.vetoed.iter().filter(|cause| cause.name == "paused").map(|cause| cause.count).sum()
}

#[test]
fn while_a_run_is_paused_its_trigger_makes_no_event_and_afterwards_it_goes_on_with_the_next() {
    let (summary, account) = run_with("paused", Manner::Good, None, |handle, _| {
        for _ in 0..2 {
            wait_for_events(handle, handle.snapshot().ledger.events.built + 500);
            let last = pause(handle, 3);
            expect_vetoes(handle, 3, last);
            handle.resume();
            wait_for_events(handle, last + 500);
            assert_eq!((trigger_of(handle).held, handle.progress().1), (None, false));
        }
        handle.stop();
    });
    expect_agreement(&summary, &account);
    assert!(vetoed_by_pause(&account) > 2000, "{account:#?}");
}

#[test]
fn a_stop_in_a_pause_ends_the_run_with_the_event_before_it() {
    let mut before = 0;
    let (summary, account) = run_with("paused-stop", Manner::Good, None, |handle, _| {
        wait_for_events(handle, 500);
        before = pause(handle, 3);
        handle.stop();
    });
    assert_eq!(expect_agreement(&summary, &account), before);
}

/// Runs a trigger source alone.
fn run_of(
    name: &str,
    begin: impl FnOnce(&str) -> Box<dyn std::any::Any>,
    happens: impl FnOnce(&mut RunHandle),
) -> (RunSummary, FrontEndsAccount) {
    let (output, control) = (TemporaryDirectory::new(name), free_address());
    let configuration = configuration(&output, &control, "", 1, "");
    let mut handle = launch_with(&configuration, None, None).unwrap_or_else(|error| panic!("{error}"));
    let _trigger = begin(&control);
    handle.start(EventKey::new(0, 1), None);
    wait_for_events(&handle, 100);
    happens(&mut handle);
    handle.stop();
    wait_for("the end", || handle.is_ended().then_some(()));
    let account = handle.front_ends().expect("there are front ends");
    (handle.finish(Duration::from_secs(5)), account)
}

#[test]
fn a_trigger_in_python_is_held_and_released_and_told_of_both() {
    let (summary, account) = run_of(
        "python",
        |control| Box::new(Program::trigger_in_python(control)),
        |handle| {
            let last = pause(handle, 1);
            expect_vetoes(handle, 1, last);
            handle.resume();
            wait_for_events(handle, last + 100);
            wait_for("its word of both", || {
                let counters = trigger_of(handle).status.counters;
                let count = |name: &str| counters.iter().find(|one| one.name == name).map(|one| one.count);
                ((count("holds"), count("releases")) == (Some(1), Some(1))).then_some(())
            });
        },
    );
    expect_agreement(&summary, &account);
    assert!(vetoed_by_pause(&account) > 1000, "{account:#?}");
}

#[test]
fn a_trigger_of_version_1_is_held_by_back_pressure_alone_and_that_is_said_once() {
    let own = |control: &str| -> Box<dyn std::any::Any> { Box::new(OwnFrontEnd::new(control, 1, None, Manner::Old)) };
    let (summary, account) = run_of("old", own, |handle| {
        for _ in 0..2 {
            handle.pause();
            wait_for("the pause", || handle.progress().1.then_some(()));
            let assigned = handle.snapshot().ledger.events.assigned;
            wait_for("triggers in the pause", || (received(handle, 1)[0] > assigned + 50).then_some(()));
            handle.resume();
            wait_for_events(handle, assigned + 51);
        }
    });
    let why = "it speaks version 1 of the protocol and cannot be held: in a pause it is back-pressure that holds its triggers";
    assert_eq!(texts(&account), [(1, why.to_owned())]);
    assert!(summary.is_balanced() && summary.is_lossless(), "{summary:#?}");
    assert_eq!(Some(summary.events.built), account.last);
}

#[test]
fn a_trigger_that_does_not_answer_the_hold_is_named_and_the_run_is_paused_all_the_same() {
    let own = |control: &str| -> Box<dyn std::any::Any> {
        Box::new(OwnFrontEnd::new(control, 1, None, Manner::Ignores("Hold")))
    };
    let (summary, account) = run_of("deaf-hold", own, |handle| {
        handle.pause();
        wait_for("the pause", || handle.progress().1.then_some(()));
        let assigned = handle.snapshot().ledger.events.assigned;
        handle.resume();
        wait_for_events(handle, assigned + 50);
    });
    let what = "it was not held in time: the run is paused all the same, and back-pressure holds its triggers";
    assert_eq!(texts(&account), [(1, what.to_owned())]);
    assert!(summary.is_balanced() && summary.is_lossless(), "{summary:#?}");
}
