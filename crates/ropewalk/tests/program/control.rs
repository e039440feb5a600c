//! Run control as a program: `run --control`, commands of `ctl`, several runs of real front ends in one process.

use crate::process::{Ended, Program};
use crate::support::{FrontEnd, Held, Setup, expect_everything};
use serde_json::Value;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

/// A program that serves run control, and where.
pub(crate) struct Controlled {
    pub(crate) program: Program,
    pub(crate) url: String,
}

impl Controlled {
    pub(crate) fn start(setup: &Setup, more: &[&str]) -> Self {
        let file = setup.file();
        Self::of(&["run", file.to_str().expect("text")], more)
    }

    /// A command that serves run control, with the options that it needs for that.
    pub(crate) fn of(command: &[&str], more: &[&str]) -> Self {
        let mut program = Program::start(command.iter().chain(&["--control", "127.0.0.1:0", "--json"]).chain(more));
        let url = program.expect_error_line("run control and dashboard: ");
        Self { program, url }
    }

    pub(crate) fn ctl(&self, command: &str) -> Ended {
        Program::run(["ctl", command, "--url", &self.url, "--by", "ada", "--json"])
    }

    /// The answer to a command that is carried out.
    pub(crate) fn good(&self, command: &str) -> Value {
        let ended = self.ctl(command);
        ended.expect_status(0).account()
    }

    /// Waits until the state says so.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        crate::support::wait_for(what, || Some(self.good("state")).filter(|state| is_so(state)))
    }
}

#[test]
fn two_runs_of_the_same_front_ends_follow_each_other() {
    const EVENTS: u64 = 200;
    let setup = Setup::new("control", &[841, 843]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    for run in 1..=2 {
        controlled.wait("the run to be set up", |state| state["run"] == run && state["task"].is_null());
        let listening = front_end_address(&controlled);
        assert_eq!(controlled.good("start")["state"], "running");
        let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&listening, id));
        front_ends.iter_mut().for_each(|front_end| front_end.send(1..=EVENTS));
        crate::support::wait_for("all events", || {
            let ledger = controlled.good("ledger");
            (ledger["events"]["written"] == EVENTS).then_some(())
        });
        assert_eq!(controlled.good("stop")["answer"], "done");
        expect_everything(&front_ends.each_ref(), &Held::in_directories(&[run_directory(&setup, run)]), EVENTS);
    }
    let journal = controlled.good("journal");
    let said: Vec<_> = journal.as_array().expect("a list").iter().map(|entry| entry["text"].clone()).collect();
    assert_eq!(said.iter().filter(|text| **text == "start, by ada").count(), 2, "{said:?}");
    assert_eq!(controlled.good("shutdown")["state"], "over");
    let ended = controlled.program.end();
    ended.expect_status(0);
    let told: Vec<Value> = ended.out.iter().map(|line| serde_json::from_str(line).expect("an account")).collect();
    assert_eq!(told.iter().map(|account| account["run"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert!(told.iter().all(|account| account["ledger"]["balanced"] == true && account["events"]["built"] == EVENTS));
    assert!(!run_directory(&setup, 3).exists(), "what was set up for a third one is gone");
}

/// Where the front ends of the run that is set up now connect to.
fn front_end_address(controlled: &Controlled) -> String {
    let addresses = controlled.good("addresses");
    let address =
        addresses.as_array().expect("a list").iter().find(|one| one["name"] == "ru0").expect("a readout unit");
    address["address"].as_str().expect("text").to_owned()
}

fn run_directory(setup: &Setup, run: u32) -> std::path::PathBuf {
    setup.output().join(format!("run{run:06}"))
}

/// A source counts from 1 again, and nothing tells where it is: what becomes of the run, its configuration says.
#[test]
fn a_source_that_restarts_counting_is_an_incident_and_pauses_or_stops_the_run() {
    for (choice, state) in [("flag", "running"), ("pause", "paused"), ("stop", "configured")] {
        let setup = Setup::new(&format!("control-restart-{choice}"), &[841])
            .source("id = 843\nname = \"boardA\"\nreadout = \"ru0\"");
        let output = setup.output().display().to_string();
        let setup = setup.and(&format!("[run]\noutput = {output:?}\non_restart = {choice:?}\n"));
        let controlled = Controlled::start(&setup, &["--idle"]);
        controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
        let listening = front_end_address(&controlled);
        assert_eq!(controlled.good("start")["state"], "running");
        let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&listening, id));
        front_ends[0].send(1..=80);
        front_ends[1].send(1..=50);
        front_ends[1].send(1..=20);
        let text = crate::support::wait_for("the incident", || {
            let journal = controlled.good("journal");
            let mut entries = journal.as_array().expect("a list").iter();
            let incident = entries.find(|entry| entry["kind"] == "incident")?;
            Some(incident["text"].as_str().expect("text").to_owned())
        });
        assert!(text.starts_with("source boardA restarted counting: 50 -> 1"), "{text}");
        assert_eq!(text.contains("on_restart"), choice != "flag", "{text}");
        controlled.wait("what follows", |now| now["state"] == state && now["task"].is_null());
        controlled.good(if choice == "stop" { "state" } else { "stop" });
        controlled.good("shutdown");
        let ended = controlled.program.end();
        let account: Value = serde_json::from_str(&ended.out[0]).expect("an account");
        crate::forms::expect_form(&account, &crate::forms::schema("run.json"));
        assert!(account["numbering"]["843"].as_array().expect("a list").iter().any(|one| one["kind"] == "out_of_sync"));
        assert_eq!(account["events"]["written"], 80, "{choice}: {account:#}");
    }
}

#[test]
fn commands_that_cannot_be_had_say_what_can() {
    let setup = Setup::new("control-not-now", &[841]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["state"] == "configured");
    let refused = controlled.ctl("pause");
    let answer = refused.expect_status(3).account();
    assert_eq!(answer["answer"], "not_now");
    assert!(answer["allowed"].as_array().is_some_and(|allowed| allowed.contains(&"start".into())), "{answer}");
    let unknown = controlled.ctl("explode");
    assert!(unknown.expect_status(2).errors.contains("configure, start"), "{unknown:#?}");
    controlled.program.interrupt();
    controlled.program.end().expect_status(0);
    let nobody = Program::run(["ctl", "state", "--url", "http://127.0.0.1:9"]);
    assert!(nobody.expect_status(4).errors.contains("--control ADDRESS"), "{nobody:#?}");
}

#[test]
fn ctl_asks_whom_it_is_told_to_ask_and_no_proxy() {
    let setup = Setup::new("control-proxy", &[841]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["state"] == "configured" && state["task"].is_null());
    for variable in ["http_proxy", "ALL_PROXY"] {
        let asked = ["ctl", "state", "--url", &controlled.url];
        Program::with_variable((variable, "http://127.0.0.1:9"), asked).end().expect_status(0);
    }
    controlled.good("shutdown");
    controlled.program.end().expect_status(0);
}

/// Waits until somebody posts here, and thanks them.
fn expect_post(hook: &TcpListener) {
    crate::support::wait_for("the webhook to be told", || {
        let (mut stream, _) = hook.accept().ok()?;
        stream.set_nonblocking(false).expect("it is open");
        stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("a time");
        let mut begin = [0; 11];
        stream.read_exact(&mut begin).expect("it says something");
        stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").expect("it listens");
        assert_eq!(&begin, b"POST /hook ", "a proxy would be asked for the whole address");
        Some(())
    });
}

#[test]
fn a_webhook_is_told_where_it_is_and_by_no_proxy() {
    let hook = TcpListener::bind("127.0.0.1:0").expect("a free port");
    hook.set_nonblocking(true).expect("it is open");
    let address = hook.local_addr().expect("it has one");
    let section = format!("[alarms]\nwebhook = \"http://{address}/hook\"\nalive_every = \"1s\"\n");
    let setup = Setup::new("control-webhook", &[841]).and(&section);
    let file = setup.file();
    let run = ["run", file.to_str().expect("text"), "--idle", "--control", "127.0.0.1:0", "--json"];
    for variable in ["http_proxy", "ALL_PROXY"] {
        let mut program = Program::with_variable((variable, "http://127.0.0.1:9"), run);
        let url = program.expect_error_line("run control and dashboard: ");
        let controlled = Controlled { program, url };
        expect_post(&hook);
        controlled.wait("the run to be set up", |state| state["state"] == "configured" && state["task"].is_null());
        controlled.good("shutdown");
        controlled.program.end().expect_status(0);
    }
}

/// How a stream of views was answered: 0 where there was no place for a connection.
fn watch(url: &str) -> (u16, TcpStream) {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("a time");
    let request = format!("GET /api/v1/live/stream HTTP/1.1\r\nHost: {address}\r\n\r\n");
    // One that is closed at once reads nothing.
    let _ = stream.write_all(request.as_bytes());
    let mut line = [0; 12];
    let is_answered = stream.read_exact(&mut line).is_ok();
    let status = if is_answered { String::from_utf8_lossy(&line[9..]).parse().expect("a status") } else { 0 };
    (status, stream)
}

#[test]
fn whoever_only_watches_leaves_the_run_what_it_has_open_and_commands_their_places() {
    const EVENTS: u64 = 200;
    let setup = Setup::new("control-watched", &[841, 843]);
    let file = setup.file();
    let run = ["run", file.to_str().expect("text"), "--idle", "--control", "127.0.0.1:0", "--json"];
    let mut program = Program::with_descriptors(256, run);
    let url = program.expect_error_line("run control and dashboard: ");
    let controlled = Controlled { program, url };
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    let watching: Vec<_> = (0..300).map(|_| watch(&controlled.url)).collect();
    let streams = watching.iter().filter(|(status, _)| *status == 200).count();
    assert!((90..128).contains(&streams), "{streams} streams");
    assert!(watching.iter().any(|(status, _)| *status == 503));
    let listening = front_end_address(&controlled);
    assert_eq!(controlled.good("start")["state"], "running");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&listening, id));
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=EVENTS));
    crate::support::wait_for("all events", || (controlled.good("ledger")["events"]["written"] == EVENTS).then_some(()));
    assert_eq!(controlled.good("stop")["answer"], "done");
    expect_everything(&front_ends.each_ref(), &Held::in_directories(&[run_directory(&setup, 1)]), EVENTS);
    controlled.good("shutdown");
    controlled.program.end().expect_status(0);
}

#[test]
fn an_open_address_without_a_token_is_refused() {
    let setup = Setup::new("control-open", &[841]);
    let file = setup.file();
    let arguments = ["--control", "0.0.0.0:0"].map(AsRef::as_ref);
    let ended = Program::run(["run".as_ref(), file.as_os_str()].into_iter().chain(arguments));
    assert!(ended.expect_status(2).errors.contains("give a token file"), "{ended:#?}");
    assert!(!run_directory(&setup, 1).exists());
}

#[test]
fn with_a_certificate_ctl_asks_whom_it_believes_and_a_key_that_others_read_is_refused() {
    let setup = Setup::new("control-tls", &[841]);
    let (certificate, key) = (setup.directory().join("alone.pem"), setup.directory().join("alone.key"));
    std::fs::write(&certificate, include_str!("../../../control/src/tests/certificates/alone.pem")).expect("a file");
    std::fs::write(&key, include_str!("../../../control/src/tests/certificates/alone.key")).expect("a file");
    let setup = setup.and(&format!("[control]\ncertificate = {certificate:?}\nkey = {key:?}\n"));
    let set_mode = |mode| std::fs::set_permissions(&key, Permissions::from_mode(mode)).expect("the test's own");
    set_mode(0o644);
    let file = setup.file();
    let run = ["run".as_ref(), file.as_os_str(), "--control".as_ref(), "127.0.0.1:0".as_ref()];
    let refused = Program::run(run);
    assert!(refused.expect_status(4).errors.contains("others may read it (mode 644): chmod 600"), "{refused:#?}");
    set_mode(0o600);
    let controlled = Controlled::start(&setup, &["--idle"]);
    assert!(controlled.url.starts_with("https://127.0.0.1:"), "{}", controlled.url);
    let believed = certificate.to_str().expect("it is text");
    let ctl = |command: &str, url: &str, more: &[&str]| {
        Program::run(["ctl", command, "--json", "--url", url].iter().chain(more))
    };
    crate::support::wait_for("the run to be set up", || {
        let state = ctl("state", &controlled.url, &["--ca", believed]);
        Some(()).filter(|()| state.expect_status(0).account()["state"] == "configured")
    });
    let unbelieved = ctl("state", &controlled.url, &[]);
    assert!(unbelieved.expect_status(4).errors.contains("--ca FILE"), "{unbelieved:#?}");
    let plain = ctl("state", &controlled.url.replace("https", "http"), &[]);
    assert!(plain.expect_status(4).errors.contains("ask for https://"), "{plain:#?}");
    ctl("shutdown", &controlled.url, &["--ca", believed, "--by", "ada"]).expect_status(0);
    controlled.program.end().expect_status(0);
}

#[test]
fn one_operator_holds_the_controls_and_ctl_says_who() {
    let setup = Setup::new("control-operator", &[841]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    let ctl = |command: &str, more: &[&str]| {
        let words = ["ctl", command, "--url", &controlled.url];
        Program::run(words.iter().chain(more))
    };
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    assert!(ctl("operator", &[]).expect_status(0).out[0].contains("nobody holds the controls"));
    assert!(ctl("take", &["--by", "bob"]).expect_status(0).out[0].contains("bob holds the controls since "));
    let refused = controlled.ctl("start");
    assert_eq!(refused.expect_status(3).account()["answer"], "held_by_another");
    controlled.ctl("take").expect_status(3);
    ctl("take", &["--by", "ada", "--force"]).expect_status(0);
    assert_eq!(controlled.good("start")["state"], "running");
    assert_eq!(controlled.good("state")["operator"]["name"], "ada");
    ctl("give", &["--by", "ada", "--to", "bob"]).expect_status(0);
    ctl("shutdown", &["--by", "bob"]).expect_status(0);
    controlled.program.end().expect_status(0);
}
