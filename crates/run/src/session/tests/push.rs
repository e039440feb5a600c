//! Sequences of runs of a system whose sources push.

use super::*;
use crate::MaskedSummary;
use crate::gateway::{PacketSourceSummary, RestartSummary};
use ropewalk_config::ListenAddress;
use ropewalk_engine::{MaskRecord, MaskedInterval, Part};
use ropewalk_terms::{Cause, EventKey, SourceId};
use ropewalk_wire::mep::encode_mep;
use ropewalk_wire::run_file::{EventView, Item, Items, RecordKind};
use std::net::UdpSocket;

/// Returns a system with one flow of four emulated sources at 20 kHz, a gateway that chooses its ports, and two nodes
/// that accept a tenth.
fn system(output: &Path, run: &str) -> Configuration {
    system_of(output, run, "")
}

/// Returns the same with further keys of its gateway.
fn system_of(output: &Path, run: &str, gateway: &str) -> Configuration {
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n{run}\n[[flow]]\nname = \"hlt\"\npacking = 5\ntimeout = \"1s\"\n\
         decision_timeout = \"20s\"\nsources = {{ count = 4, first = 10, address = \"127.3.0.1\" }}\n\
         emulate = {{ rate = \"20kHz\", fragment_size = \"64\" }}\n\
         [[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n{gateway}\n[farm]\nnodes = 2\nemulate = {{ accept = 0.1 }}\n",
        output.display().to_string()
    );
    ropewalk_config::parse("session", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

fn session(output: &Output, run: &str) -> Session {
    session_of(Launcher::new(system(&output.0, run)), Fields::default())
}

const fn assigned(view: &SessionView) -> u64 {
    view.snapshot.ledger.events.assigned
}

#[test]
fn runs_follow_each_other_and_nothing_comes_before_they_begin() {
    let output = Output::new("push-follow");
    let session = session(&output, "required_fields = [\"beam\"]");
    let control = session.control();
    assert_eq!(ask(&control, Command::Configure).state, OperationState::Configured);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(
        (view(&control).snapshot.ledger, view(&control).age),
        (ropewalk_terms::Ledger::default(), Duration::ZERO)
    );
    let refused = control.ask(Command::Start, BY);
    assert!(refused.answer == Answer::Refused && refused.text.is_some_and(|text| text.contains("beam")));
    for run in 1..=3 {
        let fields = Fields::new(["beam=pi+".parse().expect("a field")]).expect("one");
        control.operator_command(Command::Start, fields, BY, |_| ());
        let seen = wait_for(&control, "events", |view| {
            assigned(view) > 0 && view.run.is_some_and(|number| number.0 == run) && view.sample.sources.len() == 4
        });
        assert_eq!(seen.snapshot.sources.keys().map(|id| id.0).collect::<Vec<_>>(), [10, 11, 12, 13]);
        let account = account(&ask(&control, Command::Stop));
        assert_eq!((account.run, account.state), (run, "ended"));
        assert!(account.is_balanced() && account.is_lossless(), "{account:#?}");
        assert_eq!(account.fields.to_string(), "beam=pi+");
        assert!(account.started_ns.is_some() && account.directory.join("run.json").is_file());
        assert!(account.directory.join("configuration.toml").is_file());
    }
    ask(&control, Command::Shutdown);
    assert_eq!(output.names(), ["run000001", "run000002", "run000003"], "what was set up for a fourth is gone");
}

#[test]
fn a_paused_run_has_no_triggers_and_loses_nothing() {
    let output = Output::new("push-pause");
    let session = session(&output, "");
    let control = session.control();
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    wait_for(&control, "events", |view| assigned(view) > 0);
    assert_eq!(ask(&control, Command::Pause).state, OperationState::Paused);
    // Events in transit arrive and are decided.
    let paused = wait_for(&control, "the last decision", |view| view.snapshot.ledger.events.in_flight == 0);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(assigned(&view(&control)), assigned(&paused), "no trigger came");
    assert_eq!(ask(&control, Command::Resume).state, OperationState::Running);
    wait_for(&control, "further events", |view| assigned(view) > assigned(&paused));
    ask(&control, Command::Pause);
    let account = account(&ask(&control, Command::Stop));
    assert!(account.is_balanced() && account.is_lossless(), "{account:#?}");
    let throttle = &account.gateways["gw0"].throttle;
    let (held, dead) = (throttle.by_cause["held"].dead_s, throttle.dead_s);
    assert!(held > 0.3, "{held}");
    assert!(dead < 0.2, "a held run is not dead time: {dead}");
}

#[test]
fn runs_end_by_themselves_and_others_follow() {
    let output = Output::new("push-next");
    let session = session(&output, "events = 500\nthen = \"next\"");
    let control = session.control();
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    let view = wait_for(&control, "three runs", |view| view.last.as_ref().is_some_and(|last| last.run >= 3));
    let last = account(&view);
    assert_eq!(last.flows["hlt"].events.assigned, 500);
    assert!(last.is_balanced() && last.is_lossless(), "{last:#?}");
}

#[test]
fn a_run_that_is_stopped_at_once_is_forced_and_its_account_is_kept() {
    let output = Output::new("push-forced");
    let session = session(&output, "");
    let control = session.control();
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    wait_for(&control, "events", |view| assigned(view) > 0);
    let view = ask(&control, Command::Reset);
    assert_eq!((view.state, account(&view).state), (OperationState::Initial, "forced"));
}

#[test]
fn an_address_that_is_taken_is_named_and_can_be_mended() {
    let output = Output::new("push-taken");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut wrong = system(&output.0, "");
    let std::net::SocketAddr::V4(address) = taken.local_addr().expect("it has one") else { panic!("it is IPv4") };
    wrong.gateway[0].listen.insert("hlt".to_owned(), ListenAddress(address));
    let session = session_of(Launcher::new(wrong), Fields::default());
    let control = session.control();
    let told = control.ask(Command::Configure, BY);
    assert_eq!(told.answer, Answer::Refused);
    assert!(told.text.as_deref().is_some_and(|text| text.contains("gw0")), "{told:?}");
    drop(taken);
    assert_eq!(ask(&control, Command::Configure).state, OperationState::Configured);
}

/// `ROPEWALK_RUNS=200` takes this many runs in a row.
#[test]
fn many_short_runs_in_a_hurry_leave_nothing_behind() {
    let runs = std::env::var("ROPEWALK_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let output = Output::new("push-many");
    let session = session(&output, "");
    let control = session.control();
    ask(&control, Command::Configure);
    for run in 1..=runs {
        ask(&control, Command::Start);
        if run % 3 == 0 {
            wait_for(&control, "events", |view| assigned(view) > 0);
        }
        let account = account(&ask(&control, Command::Stop));
        assert!(account.run == run && account.is_balanced(), "{account:#?}");
        // A run may end before its sources send.
        assert!(account.status.reasons.keys().all(|reason| *reason == "nothing"), "{account:#?}");
    }
    ask(&control, Command::Shutdown);
    assert_eq!(output.names().len(), runs as usize);
}

fn mask(control: &ControlHandle, sources: &[u32], is_masked: bool) -> Result<(), RequestRefusal> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let sources = sources.iter().copied().map(SourceId).collect();
    control.mask(MaskRequest { sources, is_masked }, BY, move |told| sender.send(told).expect("the test waits"));
    receiver.recv_timeout(PATIENCE).expect("an answer")
}

fn record(view: &SessionView, source: u32) -> MaskRecord {
    view.snapshot.masks.get(&SourceId(source)).cloned().unwrap_or_default()
}

/// Waits until the run reports this participation of a source, and further events have been built.
fn wait_for_part(control: &ControlHandle, source: u32, part: Part) -> MaskRecord {
    let seen = wait_for(control, "the mask", |view| {
        record(view, source).part == part && view.snapshot.masks.contains_key(&SourceId(source))
    });
    wait_for(control, "further events", |view| assigned(view) > assigned(&seen) + 200);
    record(&view(control), source)
}

/// Returns a queue's masks in the form of the account.
fn told(intervals: &[MaskedInterval]) -> Vec<MaskedSummary> {
    intervals.iter().map(MaskedSummary::from).collect()
}

/// Returns the events of a run's files, by their numbers: the sources of the fragments, and the number of missing ones.
fn events(summary: &RunSummary) -> Vec<(u64, Vec<u32>, usize)> {
    let mut events = Vec::new();
    for entry in std::fs::read_dir(&summary.directory).expect("the run's directory") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a file");
        for item in Items::new(&bytes) {
            let Item::Record { record, .. } = item else { continue };
            if record.kind() == RecordKind::EVENT {
                let event = EventView::parse(&record).expect("an event");
                let sources = event.fragments().map(|fragment| fragment.entry.source.0).collect();
                events.push((event.key().number(), sources, event.missing().count()));
            }
        }
    }
    events
}

#[test]
fn a_source_is_masked_and_taken_in_again_while_the_run_goes_on() {
    let output = Output::new("push-mask");
    let session = session(&output, "");
    let control = session.control();
    // A request before a run applies from its first event on.
    assert_eq!(mask(&control, &[11, 14], true), Err(RequestRefusal::Unknown("there is no source 14".to_owned())));
    ask(&control, Command::Configure);
    assert_eq!(mask(&control, &[11], true), Ok(()));
    ask(&control, Command::Start);
    wait_for_part(&control, 11, Part::Masked);
    assert_eq!(mask(&control, &[13], true), Ok(()));
    wait_for_part(&control, 13, Part::Masked);
    let refused = mask(&control, &[10, 12], true);
    let why = "no source of flow `hlt` would be left to take part".to_owned();
    assert_eq!(refused, Err(RequestRefusal::Unfit(why)));
    assert_eq!(mask(&control, &[11, 13], false), Ok(()));
    let of_11 = wait_for_part(&control, 11, Part::Takes);
    let of_13 = wait_for_part(&control, 13, Part::Takes);
    let seen = wait_for(&control, "packets of who is masked", |view| {
        view.sample.sources.iter().filter(|one| one.account.dropped.get(Cause::Masked) > 0).count() == 2
    });
    assert!(seen.sample.sources.iter().all(|one| one.account.received == one.account.accounted()), "{:?}", seen.sample);
    let account = account(&ask(&control, Command::Stop));
    assert!(account.is_balanced() && account.is_lossless(), "{account:#?}");

    assert_eq!((of_11.intervals.len(), of_11.intervals[0].from), (1, EventKey::new(0, 0)));
    let masked = [("11".to_owned(), told(&of_11.intervals)), ("13".to_owned(), told(&of_13.intervals))];
    assert_eq!(account.gateways["gw0"].masked, masked.into());
    let sources = &account.flows["hlt"].sources;
    assert!(sources["11"].masked > sources["13"].masked && sources["10"].masked == 0);
    let is_out = |record: &MaskRecord, event: u64| {
        let covers = |one: &MaskedInterval| one.from.number() <= event && one.to.is_none_or(|to| event < to.number());
        record.intervals.iter().any(covers)
    };
    let events = events(&account);
    for (event, sources, missing) in &events {
        let due = [10, 11, 12, 13].into_iter().filter(|source| match source {
            11 => !is_out(&of_11, *event),
            13 => !is_out(&of_13, *event),
            _ => true,
        });
        assert_eq!((sources, *missing), (&due.collect(), 0), "event {event}");
    }
    assert!([2, 3, 4].iter().all(|count| events.iter().any(|(_, sources, _)| sources.len() == *count)));
}

#[test]
fn each_queue_chooses_from_where_on_a_source_is_out_and_a_restart_waits_for_all() {
    for architecture in ["run_to_completion", "threads"] {
        let output = Output::new(&format!("push-restart-{architecture}"));
        let gateway = format!("queues = 3\narchitecture = \"{architecture}\"");
        let session = session_of(Launcher::new(system_of(&output.0, "", &gateway)), Fields::default());
        let control = session.control();
        ask(&control, Command::Configure);
        ask(&control, Command::Start);
        wait_for(&control, "events", |view| assigned(view) > 200);
        let (sender, receiver) = std::sync::mpsc::channel();
        control.restart(vec![SourceId(12)], BY, move |told| sender.send(told).expect("the test waits"));
        let restarted = receiver.recv_timeout(PATIENCE).expect("an answer").expect("a run goes on");
        assert_eq!(restarted.outcome, RestartOutcome::Done);
        let record = wait_for_part(&control, 12, Part::Takes);
        assert_eq!(restarted.sources, [Restarted { source: SourceId(12), from: Some(record.intervals[0].from) }]);
        let account = account(&ask(&control, Command::Stop));
        assert!(account.is_balanced() && account.is_lossless(), "{account:#?}");
        let told = (0..3).map(|queue| &account.gateways[&format!("gw0-{queue}")].masked["12"][0]);
        let number = |key: &String| key.parse::<u64>().expect("a number");
        let interval = record.intervals[0];
        assert_eq!(told.clone().map(|one| number(&one.from)).min(), Some(interval.from.number()));
        let ends = told.map(|one| number(one.to.as_ref().expect("it was out, and in again")));
        assert_eq!(ends.max(), interval.to.map(|to| to.number()));
        assert!(account.flows["hlt"].sources["12"].masked > 0);
    }
}

/// More than half of all sets lack a packet. They would wait for an hour, and are finished only because there are too
/// many of them.
#[test]
fn a_time_out_that_was_too_long_is_changed_while_the_run_goes_on() {
    let output = Output::new("push-parameters");
    let mut system = system(&output.0, "");
    let flow = &mut system.flow[0];
    (flow.timeout, flow.decision_timeout) = (Time(Duration::from_secs(3600)), Time(Duration::from_secs(7200)));
    let emulate = flow.emulate.as_mut().expect("it is emulated");
    (emulate.loss, emulate.rate) = (0.3, Some("1kHz".parse().expect("a rate")));
    let session = session_of(Launcher::new(system), Fields::default());
    let control = session.control();
    let change = |name: &str, value: &str| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let request = ParameterRequest { changes: vec![(name.to_owned(), value.to_owned())] };
        control.change(request, BY, move |told| sender.send(told).expect("the test waits"));
        receiver.recv_timeout(PATIENCE).expect("an answer")
    };
    // A request before a run applies in it.
    assert_eq!(change("monitoring.interval", "20ms"), Ok(()));
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    let crowded = wait_for(&control, "events", |view| view.snapshot.ledger.events.incomplete_emitted > 100);
    assert!(matches!(change("flow.hlt.timeout", "2h"), Err(RequestRefusal::Unfit(_))));
    assert_eq!(change("flow.hlt.timeout", "10ms"), Ok(()));
    wait_for(&control, "further events", |view| assigned(view) > assigned(&crowded) + 1000);
    let account = account(&ask(&control, Command::Stop));
    assert!(account.is_balanced(), "{account:#?}");
    let missing = account.flows["hlt"].sets.missing_packets.names();
    assert!(missing["timed_out"] > 0 && missing["crowded_out"] > 0, "{missing:?}");
    let told = view(&control).parameters.iter().map(|one| (one.name.clone(), one.text(one.value))).collect::<Vec<_>>();
    let told: Vec<_> = told.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(told[..2], [("flow.hlt.timeout", "10ms"), ("monitoring.interval", "20ms")]);
}

/// The test sends the data of two sources. The second one restarts at 0 after set 19.
#[test]
fn a_source_that_restarts_is_an_incident_and_pauses_or_stops_the_run() {
    for (choice, state, port) in [
        ("flag", OperationState::Running, 24_210),
        ("pause", OperationState::Paused, 24_220),
        ("stop", OperationState::Configured, 24_230),
    ] {
        let output = Output::new(&format!("push-recount-{choice}"));
        let mut system = system(&output.0, &format!("on_restart = {choice:?}"));
        let flow = &mut system.flow[0];
        (flow.emulate, flow.sources.count) = (None, 2);
        flow.sources.address = format!("127.0.0.1:{port}").parse().expect("addresses");
        let session = session_of(Launcher::new(system), Fields::default());
        let control = session.control();
        ask(&control, Command::Configure);
        let listens = wait_for(&control, "an address", |view| view.addresses.iter().any(|(name, _)| name == "gw0 hlt"));
        let to = listens.addresses.iter().find(|(name, _)| name == "gw0 hlt").expect("it is there").1.clone();
        ask(&control, Command::Start);
        let sources = [port, port + 1].map(|port| UdpSocket::bind(("127.0.0.1", port)).expect("a free port"));
        for set in 0..40_u32 {
            for (source, set) in [(0, set), (1, if set < 20 { set } else { set - 20 })] {
                let mut bytes = Vec::new();
                encode_mep(5 * set, 0, [[7_u8; 8]; 5].iter().map(|one| &one[..]), &mut bytes).expect("it is short");
                sources[source].send_to(&bytes, &to).expect("a way");
            }
        }
        wait_for(&control, "what follows", |view| view.state == state && !control.journal_after(0).is_empty());
        let incident = || {
            let journal = control.journal_after(0).into_iter();
            journal.filter(|entry| entry.kind == EntryKind::Incident).map(|entry| entry.text).collect::<Vec<_>>()
        };
        wait_for(&control, "the incident", |_| !incident().is_empty());
        let incidents = incident();
        assert!(
            incidents.len() == 1 && incidents[0].starts_with("source 11 restarted counting: 95 -> 0"),
            "{incidents:?}"
        );
        assert_eq!(incidents[0].contains("on_restart"), choice != "flag");
        let account = account(&if choice == "stop" { view(&control) } else { ask(&control, Command::Stop) });
        assert!(account.is_balanced() && !account.is_lossless(), "{account:#?}");
        let expected = PacketSourceSummary {
            last_restart: Some(RestartSummary { from: 95, to: 0 }),
            masked: 0,
            missing: 20,
            out_of_sync: 12,
            packets: 20,
            restarts: 1,
        };
        assert_eq!(account.flows["hlt"].sources["11"], expected);
    }
}
