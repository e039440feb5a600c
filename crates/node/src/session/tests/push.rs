//! Sequences of runs of a system whose sources push.

use super::*;
use crate::configuration::push::{self, ListenAddress};
use crate::run::push::{PushPart, PushSummary};

/// One flow of four emulated sources at 20 kHz, a gateway that chooses its ports, two nodes that keep a tenth.
fn system(output: &Path, run: &str) -> PushSystem {
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n{run}\n[[flow]]\nname = \"hlt\"\npacking = 5\ntimeout = \"1s\"\n\
         decision_timeout = \"20s\"\nsources = {{ count = 4, first = 10, address = \"127.3.0.1\" }}\n\
         emulate = {{ rate = \"20kHz\", fragment_size = \"64\" }}\n\
         [[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n[farm]\nnodes = 2\nemulate = {{ accept = 0.1 }}\n",
        output.display().to_string()
    );
    let configuration = push::parse("session", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    PushSystem { configuration, part: PushPart::Whole }
}

fn session(output: &Output, run: &str) -> Session {
    session_of(Launcher::new(system(&output.0, run)), Fields::default())
}

fn account(view: &SessionView) -> PushSummary {
    match view.last.as_deref() {
        Some(Account::Push(summary)) => (**summary).clone(),
        other => panic!("this is no account of a push system: {other:?}"),
    }
}

const fn assigned(view: &SessionView) -> u64 {
    view.snapshot.ledger.events.assigned
}

#[test]
fn runs_follow_each_other_and_nothing_comes_before_they_begin() {
    let output = Output::new("push-follow");
    let session = session(&output, "required_fields = [\"beam\"]");
    let desk = session.desk();
    assert_eq!(ask(&desk, Command::Configure).state, OperationState::Configured);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((view(&desk).snapshot.ledger, view(&desk).age), (ropewalk_terms::Ledger::default(), Duration::ZERO));
    let refused = desk.ask(Command::Start, BY);
    assert!(refused.answer == Answer::Refused && refused.text.is_some_and(|text| text.contains("beam")));
    for run in 1..=3 {
        let fields = Fields::new(["beam=pi+".parse().expect("a field")]).expect("one");
        desk.operator_command(Command::Start, fields, BY, |_| ());
        let seen = wait_for(&desk, "events", |view| {
            assigned(view) > 0 && view.run.is_some_and(|number| number.0 == run) && view.sample.sources.len() == 4
        });
        assert_eq!(seen.snapshot.sources.keys().map(|id| id.0).collect::<Vec<_>>(), [10, 11, 12, 13]);
        let account = account(&ask(&desk, Command::Stop));
        assert_eq!((account.run, account.state), (run, "ended"));
        assert!(account.is_balanced() && account.is_complete(), "{account:#?}");
        assert_eq!(account.fields.to_string(), "beam=pi+");
        assert!(account.started_ns.is_some() && account.directory.join("run.json").is_file());
        assert!(account.directory.join("configuration.toml").is_file());
    }
    ask(&desk, Command::Shutdown);
    assert_eq!(output.names(), ["run000001", "run000002", "run000003"], "what was set up for a fourth is gone");
}

#[test]
fn a_paused_run_has_no_triggers_and_loses_nothing() {
    let output = Output::new("push-pause");
    let session = session(&output, "");
    let desk = session.desk();
    ask(&desk, Command::Configure);
    ask(&desk, Command::Start);
    wait_for(&desk, "events", |view| assigned(view) > 0);
    assert_eq!(ask(&desk, Command::Pause).state, OperationState::Paused);
    // What is on its way comes and is decided.
    let paused = wait_for(&desk, "the last decision", |view| view.snapshot.ledger.events.in_flight == 0);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(assigned(&view(&desk)), assigned(&paused), "no trigger came");
    assert_eq!(ask(&desk, Command::Resume).state, OperationState::Running);
    wait_for(&desk, "further events", |view| assigned(view) > assigned(&paused));
    ask(&desk, Command::Pause);
    let account = account(&ask(&desk, Command::Stop));
    assert!(account.is_balanced() && account.is_complete(), "{account:#?}");
    let held = account.gateways["gw0"]["throttle"]["by_cause"]["held"]["dead_s"].as_f64();
    assert!(held > Some(0.3), "{held:?}");
    let dead = account.gateways["gw0"]["throttle"]["dead_s"].as_f64();
    assert!(dead < Some(0.2), "whoever holds a run is no dead time: {dead:?}");
}

#[test]
fn runs_end_by_themselves_and_others_follow() {
    let output = Output::new("push-next");
    let session = session(&output, "events = 500\nthen = \"next\"");
    let desk = session.desk();
    ask(&desk, Command::Configure);
    ask(&desk, Command::Start);
    let view = wait_for(&desk, "three runs", |view| view.last.as_ref().is_some_and(|last| last.run() >= 3));
    let last = account(&view);
    assert_eq!(last.flows["hlt"]["events"]["assigned"], 500);
    assert!(last.is_balanced() && last.is_complete(), "{last:#?}");
}

#[test]
fn a_run_that_is_stopped_at_once_is_forced_and_its_account_is_kept() {
    let output = Output::new("push-forced");
    let session = session(&output, "");
    let desk = session.desk();
    ask(&desk, Command::Configure);
    ask(&desk, Command::Start);
    wait_for(&desk, "events", |view| assigned(view) > 0);
    let view = ask(&desk, Command::Reset);
    assert_eq!((view.state, account(&view).state), (OperationState::Initial, "forced"));
}

#[test]
fn an_address_that_is_taken_is_named_and_can_be_mended() {
    let output = Output::new("push-taken");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut wrong = system(&output.0, "");
    let std::net::SocketAddr::V4(address) = taken.local_addr().expect("it has one") else { panic!("it is IPv4") };
    wrong.configuration.gateway[0].listen.insert("hlt".to_owned(), ListenAddress(address));
    let session = session_of(Launcher::new(wrong), Fields::default());
    let desk = session.desk();
    let told = desk.ask(Command::Configure, BY);
    assert_eq!(told.answer, Answer::Refused);
    assert!(told.text.as_deref().is_some_and(|text| text.contains("gw0")), "{told:?}");
    drop(taken);
    assert_eq!(ask(&desk, Command::Configure).state, OperationState::Configured);
}

/// `ROPEWALK_RUNS=200` takes so many runs in a row.
#[test]
fn many_short_runs_in_a_hurry_leave_nothing_behind() {
    let runs = std::env::var("ROPEWALK_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let output = Output::new("push-many");
    let session = session(&output, "");
    let desk = session.desk();
    ask(&desk, Command::Configure);
    for run in 1..=runs {
        ask(&desk, Command::Start);
        if run % 3 == 0 {
            wait_for(&desk, "events", |view| assigned(view) > 0);
        }
        let account = account(&ask(&desk, Command::Stop));
        assert!(account.run == run && account.is_balanced() && account.is_complete(), "{account:#?}");
    }
    ask(&desk, Command::Shutdown);
    assert_eq!(output.names().len(), runs as usize);
}
