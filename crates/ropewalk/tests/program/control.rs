//! Run control as a program: `run --control`, commands of `ctl`, several runs of real front ends in one process.

use crate::cluster::Cluster;
use crate::process::{Ended, Program};
use crate::support::{FrontEnd, Held, Setup, expect_everything, wait_for};
use ropewalk_terms::Cause;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

/// A program that serves run control, and its address.
pub(crate) struct Controlled {
    pub(crate) program: Program,
    pub(crate) url: String,
}

impl Controlled {
    pub(crate) fn start(setup: &Setup, more: &[&str]) -> Self {
        let file = setup.file();
        Self::of(&["run", file.to_str().expect("text")], more)
    }

    /// Starts a command that serves run control, with the necessary options.
    pub(crate) fn of(command: &[&str], more: &[&str]) -> Self {
        let mut program = Program::start(command.iter().chain(&["--control", "127.0.0.1:0", "--json"]).chain(more));
        let url = program.expect_error_line("run control and dashboard: ");
        Self { program, url }
    }

    pub(crate) fn ctl(&self, command: &str) -> Ended {
        Program::run(["ctl", command, "--url", &self.url, "--by", "ada", "--json"])
    }

    /// The answer to a successful command.
    pub(crate) fn good(&self, command: &str) -> Value {
        let ended = self.ctl(command);
        ended.expect_status(0).account()
    }

    /// Waits until the state satisfies `is_so`.
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
    let is_start = |text: &&Value| text.as_str().is_some_and(|text| text.starts_with("start, by ada"));
    assert_eq!(said.iter().filter(is_start).count(), 2, "{said:?}");
    assert_eq!(controlled.good("shutdown")["state"], "over");
    let ended = controlled.program.end();
    ended.expect_status(0);
    let told: Vec<Value> = ended.out.iter().map(|line| serde_json::from_str(line).expect("an account")).collect();
    assert_eq!(told.iter().map(|account| account["run"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert!(told.iter().all(|account| account["ledger"]["balanced"] == true && account["events"]["built"] == EVENTS));
    assert!(!run_directory(&setup, 3).exists(), "what was set up for a third one is gone");
}

/// The address for the front ends of the run that is set up now.
fn front_end_address(controlled: &Controlled) -> String {
    let addresses = controlled.good("addresses");
    let address =
        addresses.as_array().expect("a list").iter().find(|one| one["name"] == "ru0").expect("a readout unit");
    address["address"].as_str().expect("text").to_owned()
}

fn run_directory(setup: &Setup, run: u32) -> std::path::PathBuf {
    setup.output().join(format!("run{run:06}"))
}

/// A source counts from 1 again, and nothing shows its position: the configuration decides what happens to the run.
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
        assert!(text.starts_with("boardA (source 843) restarted counting: 50 -> 1"), "{text}");
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
    assert!(unknown.expect_status(2).errors.contains("unrecognized subcommand 'explode'"), "{unknown:#?}");
    controlled.program.interrupt();
    controlled.program.end().expect_status(0);
    let unanswered = Program::run(["ctl", "state", "--url", "http://127.0.0.1:9"]);
    assert!(unanswered.expect_status(4).errors.contains("--control ADDRESS"), "{unanswered:#?}");
}

#[test]
fn ctl_asks_the_given_server_and_no_proxy() {
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

/// Waits for a post to this webhook, and answers it.
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
fn a_webhook_is_called_at_its_address_and_by_no_proxy() {
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

/// The status of a stream of views: 0 if there was no room for a connection.
fn watch(url: &str) -> (u16, TcpStream) {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("a time");
    let request = format!("GET /api/v1/live/stream HTTP/1.1\r\nHost: {address}\r\n\r\n");
    // The server may close at once without reading.
    let _ = stream.write_all(request.as_bytes());
    let mut line = [0; 12];
    let is_answered = stream.read_exact(&mut line).is_ok();
    let status = if is_answered { String::from_utf8_lossy(&line[9..]).parse().expect("a status") } else { 0 };
    (status, stream)
}

#[test]
fn watching_clients_leave_the_run_its_descriptors_and_commands_their_places() {
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
fn with_a_certificate_ctl_asks_a_trusted_server_and_a_key_that_others_read_is_refused() {
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
    let mut controlled = Controlled::start(&setup, &["--idle"]);
    assert!(controlled.url.starts_with("https://127.0.0.1:"), "{}", controlled.url);
    let hint = controlled.program.expect_error_line("for `ropewalk ctl` and `ropewalk top`: export ROPEWALK_URL=");
    assert!(hint.starts_with("https://127.0.0.1:") && hint.contains("--ca ") && hint.contains("alone.pem"), "{hint}");
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
    assert!(ctl("operator", &[]).expect_status(0).out[0].contains("control is free"));
    assert!(ctl("take", &["--by", "bob"]).expect_status(0).out[0].contains("bob has control since "));
    let refused = controlled.ctl("start");
    assert_eq!(refused.expect_status(3).account()["answer"], "held_by_another");
    controlled.ctl("take").expect_status(3);
    ctl("take", &["--by", "ada", "--force"]).expect_status(0);
    assert_eq!(controlled.good("start")["state"], "running");
    assert_eq!(controlled.good("state")["operator"]["name"], "ada");
    ctl("give", &["--by", "ada", "--to", "bob"]).expect_status(0);
    ctl("shutdown", &["--by", "bob"]).expect_status(0);
    // The source of the run sent nothing.
    controlled.program.end().expect_status(3);
}

impl Controlled {
    fn set(&self, change: &str) -> Ended {
        Program::run(["ctl", "set", change, "--url", &self.url, "--by", "ada"])
    }
}

/// The log level decides whether operators' commands are printed; a new level takes effect at once.
#[test]
fn what_is_printed_follows_the_log_level() {
    let setup = Setup::new("log-level", &[1]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    let run_and_set = |text: &str| {
        controlled.wait("a run to be set up", |state| state["state"] == "configured" && state["task"].is_null());
        controlled.good("start");
        controlled.good("stop");
        let told = controlled.set(&format!("monitor.log_level={text}"));
        told.expect_status(0);
    };
    run_and_set("info");
    run_and_set("error");
    run_and_set("error");
    controlled.good("shutdown");
    let ended = controlled.program.end();
    let count = |words: &str| ended.errors.lines().filter(|line| line.contains(words)).count();
    assert_eq!(count("monitor.log_level is info now; it was warning, by ada"), 1, "{}", ended.errors);
    // Run 1 was over before the level became `info`, and run 3 began after it had become `error`.
    assert_eq!(count("start, by "), 1, "{}", ended.errors);
    assert_eq!(count("monitor.log_level is error now"), 0, "{}", ended.errors);
}

/// Events wait for a silent source for the current time-out, not for that at the beginning of the run.
#[test]
fn a_time_out_that_is_changed_holds_at_once_and_in_the_next_run() {
    let setup = Setup::new("parameters", &[841, 843]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    for run in 1..=2 {
        controlled.wait("the run to be set up", |state| state["run"] == run && state["task"].is_null());
        let address = controlled.address_of("ru0");
        assert_eq!(controlled.good("start")["state"], "running");
        let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
        front_ends.iter_mut().for_each(|front_end| front_end.send(1..=20));
        front_ends[0].send(21..=30);
        controlled.wait_for_written(if run == 1 { 20 } else { 30 });
        if run == 1 {
            // The configured time-out of 100 s cannot pass within the test.
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert_eq!(controlled.good("ledger")["events"]["written"], 20);
            let told = controlled.set("timeouts.readout=200ms");
            told.expect_status(0);
            let line = told.out.iter().find(|line| line.starts_with("timeouts.readout = ")).expect("it is listed");
            assert!(line.starts_with("timeouts.readout = 200ms (configured: 100s)"), "{line}");
            controlled.wait_for_written(30);
        }
        controlled.good("stop");
        let held = Held::in_directories(&[setup.output().join(format!("run{run:06}"))]);
        held.expect_keys_up_to(30);
        held.expect_missing(843, 21..=30, Cause::TimedOut);
    }
    let journal = controlled.good("journal");
    let words = "timeouts.readout is 200ms now; it was 100s, by ada (system user root)";
    assert!(journal.as_array().expect("a list").iter().any(|entry| entry["text"] == words), "{journal:#}");
    for (wrong, status, why) in [
        ("timeouts.builder=100ms", 3, "timeouts.builder (100ms) has to be longer than timeouts.readout (200ms)"),
        ("run.output=/", 2, "no parameter that can be changed is named `run.output`"),
        ("timeouts.readout", 2, "timeouts.readout=2s"),
    ] {
        let refused = controlled.set(wrong);
        let said = refused.expect_status(status).out.concat() + &refused.errors;
        assert!(said.contains(why), "{said}");
    }
    controlled.good("shutdown");
    let told: Vec<Value> =
        controlled.program.end().out.iter().map(|line| serde_json::from_str(line).expect("an account")).collect();
    assert!(told.iter().all(|account| account["ledger"]["balanced"] == true), "{told:#?}");
}

#[test]
fn samples_of_events_are_shown_as_many_as_were_asked_for() {
    let setup = Setup::new("ctl-samples", &[841]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    let mut one = FrontEnd::ferol(&controlled.address_of("ru0"), 841);
    controlled.good("start");
    let words =
        ["ctl", "samples", "--url", &controlled.url, "--rate", "20", "--count", "2", "--source", "841", "--json"];
    let (mut samples, mut next) = (Program::start(words), 1);
    while !samples.has_ended() {
        one.send(next..=next);
        next += 1;
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let samples = samples.end();
    samples.expect_status(0);
    let told: Vec<Value> = samples.out.iter().map(|line| serde_json::from_str(line).expect("a sample")).collect();
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|sample| sample["sources"][0]["id"] == 841 && sample["is_complete"] == true), "{told:?}");
    let refused = Program::run(["ctl", "samples", "--rate", "100", "--url", &controlled.url]);
    assert!(refused.expect_status(2).errors.contains("0.01 to 20 samples a second"), "{refused:#?}");
    controlled.good("shutdown");
    controlled.program.end().expect_status(0);
}

/// Bytes of the fragments of each source; the third histogram's last bin ends between the two.
const SIZES: [usize; 2] = [1024, 3072];

const HISTOGRAMS: &str = r#"
[[histogram]]
name = "sizes"
of = "size"
from = 0
to = "4KiB"
bins = 4

[[histogram]]
name = "event-number"
sources = [843]
of = { offset = 4, bytes = 3, order = "little" }
from = 1
to = 41
bins = 4

[[histogram]]
name = "small"
of = "size"
from = 0
to = "2KiB"
bins = 2
"#;

/// The counts of a histogram for one source: by bin, and overflow.
fn counts(histograms: &Value, name: &str, source: &str) -> (Value, Value) {
    let all = histograms.as_array().expect("a list");
    let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {histograms:#}"));
    let counted = &one["sources"][source];
    (counted["counts"].clone(), counted["overflow"].clone())
}

/// Checks the counts after this many events of both sources.
fn expect_counts(histograms: &Value, events: u64) {
    let (none, all) = (json!(0), json!(events));
    for (name, source, bins, above) in [
        ("sizes", "841", json!([0, events, 0, 0]), &none),
        ("sizes", "843", json!([0, 0, 0, events]), &none),
        ("event-number", "843", json!([10, 10, 10, 10]), &json!(events - 40)),
        ("small", "841", json!([0, events]), &none),
        ("small", "843", json!([0, 0]), &all),
    ] {
        assert_eq!(counts(histograms, name, source), (bins, above.clone()), "{name} of {source}: {histograms:#}");
    }
    let of_one = histograms.as_array().into_iter().flatten().find(|one| one["name"] == "event-number");
    assert_eq!(of_one.map(|one| one["sources"]["841"].clone()), Some(Value::Null), "it was not asked for");
}

#[test]
fn what_readout_units_count_of_fragments_reaches_the_event_manager_and_the_account() {
    const EVENTS: u64 = 60;
    let setup = Setup::new("source-histograms", &[841]).another_readout().source("id = 843\nreadout = \"ru1\"");
    let mut cluster = Cluster::new(setup.and(HISTOGRAMS));
    cluster.start("manager", &["--control", "127.0.0.1:0", "--json"]);
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    ["ru0", "ru1", "bu0"].iter().for_each(|name| cluster.start(name, &[]));
    let ctl = |words: &[&str]| {
        let words = ["ctl"].iter().chain(words).copied().chain(["--url", &url, "--json"]);
        Program::run(words).expect_status(0).account()
    };
    let addresses = ["ru0", "ru1"].map(|name| cluster.front_end_address(name));
    let front_end = |place: usize, id| FrontEnd::ferol(&addresses[place], id).with_size(SIZES[place]);
    let mut front_ends = [front_end(0, 841), front_end(1, 843)];
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=EVENTS));
    let served = wait_for("all fragments in the bins", || {
        let histograms = ctl(&["histograms"]);
        let (sizes, _) = counts(&histograms, "sizes", "843");
        let (others, _) = counts(&histograms, "sizes", "841");
        (sizes[3] == EVENTS && others[1] == EVENTS).then_some(histograms)
    });
    expect_counts(&served, EVENTS);
    ctl(&["stop"]);
    let account = cluster.take("manager").end().expect_status(0).account();
    expect_counts(&account["histograms"], EVENTS);
    for name in ["ru0", "ru1", "bu0"] {
        cluster.take(name).end().expect_status(0);
    }
}

impl Controlled {
    pub(crate) fn mask(&self, command: &str, sources: &str) -> Value {
        let ended = Program::run(["ctl", command, sources, "--url", &self.url, "--by", "ada", "--json"]);
        ended.expect_status(0).account()
    }

    pub(crate) fn wait_for_written(&self, events: u64) {
        wait_for(&format!("{events} events"), || (self.good("ledger")["events"]["written"] == events).then_some(()));
    }

    pub(crate) fn address_of(&self, readout: &str) -> String {
        let addresses = self.good("addresses");
        let known = addresses.as_array().expect("a list").iter().find(|one| one["name"] == readout);
        known.expect("a readout unit")["address"].as_str().expect("text").to_owned()
    }
}

/// Which of the two sources are in each event from 1 on. Fails if an event lacks a fragment.
fn held(setup: &Setup, run: u32) -> Vec<Vec<u32>> {
    let held = Held::in_directories(&[setup.output().join(format!("run{run:06}"))]);
    assert!(held.events.values().all(|event| event.missing.is_empty()), "a masked source is not missing");
    held.expect_keys_up_to(held.events.len() as u64);
    held.events.values().map(|event| event.fragments.keys().copied().collect()).collect()
}

/// A masked source stays masked in the next run.
fn next_run(setup: &Setup, controlled: &Controlled) {
    controlled.wait("the next run to be set up", |state| state["run"] == 2 && state["task"].is_null());
    let mut one = FrontEnd::ferol(&controlled.address_of("ru0"), 841);
    controlled.good("start");
    one.send(1..=20);
    controlled.wait_for_written(20);
    controlled.good("stop");
    assert_eq!(held(setup, 2), vec![vec![841]; 20]);
}

#[test]
fn a_source_that_died_is_taken_out_and_in_again_while_the_run_goes_on() {
    let setup = Setup::new("masks", &[841]).another_readout().source("id = 843\nreadout = \"ru1\"");
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    let (mut one, mut other) =
        (FrontEnd::ferol(&controlled.address_of("ru0"), 841), FrontEnd::ferol(&controlled.address_of("ru1"), 843));
    assert_eq!(controlled.good("start")["state"], "running");
    one.send(1..=50);
    other.send(1..=50);
    controlled.wait_for_written(50);
    other.disconnect();
    one.send(51..=100);
    // The time-outs of this test cannot pass within it.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(controlled.good("ledger")["events"]["written"], 50, "the events wait for the dead source");

    let masked =
        json!([{ "source": 843, "is_masked": true, "in_run": "masked", "events": [{ "from": "51", "to": null }] }]);
    assert_eq!(controlled.mask("mask", "843"), masked);
    controlled.wait_for_written(100);
    other.connect();
    other.send(101..=110);
    one.send(101..=110);
    controlled.wait_for_written(110);
    wait_for("the masked source's fragments to be dropped", || {
        let sources = controlled.good("sources");
        let of_other = sources.as_array().expect("a list").iter().find(|source| source["id"] == 843);
        of_other.filter(|source| source["dropped"]["masked"] == 10).map(|_| ())
    });

    assert_eq!(controlled.mask("unmask", "843")[0]["in_run"], "asked_back");
    other.send(111..=120);
    wait_for("the source to take part", || {
        let masks = controlled.good("masks");
        (masks[0]["in_run"] == "takes_part")
            .then(|| assert_eq!(masks[0]["events"], json!([{ "from": "51", "to": "111" }])))
    });
    other.send(121..=150);
    one.send(111..=150);
    controlled.wait_for_written(150);
    let refused = Program::run(["ctl", "mask", "841,843", "--url", &controlled.url]);
    assert!(refused.expect_status(3).out.concat().contains("no source would be left"), "{:?}", refused.out);
    controlled.mask("mask", "843");
    assert_eq!(controlled.good("stop")["answer"], "done");
    let of_event = held(&setup, 1);
    let expected = |number: u64| if (51..=110).contains(&number) { vec![841] } else { vec![841, 843] };
    assert_eq!(of_event, (1..=150).map(expected).collect::<Vec<_>>());

    next_run(&setup, &controlled);
    controlled.good("shutdown");
    let told: Vec<Value> =
        controlled.program.end().out.iter().map(|line| serde_json::from_str(line).expect("an account")).collect();
    let turns =
        [json!([{ "from": "51", "to": "111" }, { "from": "151", "to": null }]), json!([{ "from": "1", "to": null }])];
    for (account, turns) in told.iter().zip(turns) {
        assert_eq!(
            (&account["ledger"]["balanced"], &account["masked"]),
            (&json!(true), &json!({ "843": turns })),
            "{account:#}"
        );
        assert_eq!(account["events"]["incomplete_emitted"], 0, "{account:#}");
    }
    assert_eq!((told.len(), &told[0]["fragments"]["dropped"]), (2, &json!({ "masked": 10 })));
}

#[test]
fn a_source_that_died_is_begun_anew_by_one_command() {
    let setup = Setup::new("restart", &[841]).another_readout().source("id = 843\nreadout = \"ru1\"");
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    let restart = |by: &str| Program::run(["ctl", "restart", "843", "--url", &controlled.url, "--by", by, "--json"]);
    assert!(
        restart("ada").expect_status(3).account()["error"].as_str().is_some_and(|why| why.contains("no run goes on"))
    );
    let (mut one, mut other) =
        (FrontEnd::ferol(&controlled.address_of("ru0"), 841), FrontEnd::ferol(&controlled.address_of("ru1"), 843));
    controlled.good("start");
    one.send(1..=50);
    other.send(1..=50);
    controlled.wait_for_written(50);
    other.disconnect();
    one.send(51..=100);
    Program::run(["ctl", "take", "--url", &controlled.url, "--by", "bob"]).expect_status(0);
    assert!(
        restart("ada").expect_status(3).account()["error"]
            .as_str()
            .is_some_and(|why| why.contains("bob has had control"))
    );
    Program::run(["ctl", "give", "--url", &controlled.url, "--by", "bob"]).expect_status(0);

    // A repetition changes nothing.
    for _ in 0..2 {
        let restarted = restart("ada").expect_status(0).account();
        assert_eq!(restarted["answer"], "done", "{restarted}");
        assert_eq!(restarted["restarted"], json!([{ "source": 843, "out_from": "51" }]));
    }
    controlled.wait_for_written(100);
    other.connect();
    other.send(101..=120);
    wait_for("the source to take part", || {
        let masks = controlled.good("masks");
        (masks[0]["in_run"] == "takes_part")
            .then(|| assert_eq!(masks[0]["events"], json!([{ "from": "51", "to": "101" }])))
    });
    one.send(101..=120);
    controlled.wait_for_written(120);
    let files = controlled.good("files");
    assert_eq!((&files["run"], files["files"].as_array().map(Vec::len)), (&json!(1), Some(1)), "{files}");
    controlled.good("stop");
    let expected = |number: u64| if (51..=100).contains(&number) { vec![841] } else { vec![841, 843] };
    assert_eq!(held(&setup, 1), (1..=120).map(expected).collect::<Vec<_>>());
    let files = Program::run(["ctl", "files", "1", "--url", &controlled.url]);
    let told = files.expect_status(0).out.concat();
    assert!(told.contains("run000001-bu0-000001.rwk") && told.contains("120 events"), "{told}");
    Program::run(["ctl", "files", "99", "--url", &controlled.url]).expect_status(2);
    controlled.good("shutdown");
    let account = controlled.program.end().account();
    assert_eq!(account["masked"], json!({ "843": [{ "from": "51", "to": "101" }] }), "{account:#}");
    assert_eq!((&account["ledger"]["balanced"], &account["events"]["incomplete_emitted"]), (&json!(true), &json!(0)));
}

#[test]
fn a_command_of_alarms_that_cannot_be_executed_fails_check_and_start() {
    let setup = Setup::new("control-no-command", &[841]).and("[alarms]\ncommand = [\"/no/such/program\"]\n");
    let file = setup.file();
    let file = file.to_str().expect("text");
    for command in [&["config", "check", file][..], &["run", file, "--control", "127.0.0.1:0"]] {
        let ended = Program::run(command);
        assert!(ended.expect_status(2).errors.contains("`/no/such/program`"), "{ended:#?}");
    }
}

#[test]
fn a_filter_program_that_cannot_be_executed_fails_the_check() {
    let filter = "[filter]\nprogram = [\"/no/such/program\"]\n";
    let here = Setup::new("control-no-filter", &[841]).and(filter);
    let ended = Program::run(["config".as_ref(), "check".as_ref(), here.file().as_os_str()]);
    let errors = &ended.expect_status(2).errors;
    assert!(errors.contains("filter.program") && errors.contains("`/no/such/program`"), "{ended:#?}");
    let elsewhere = Setup::new("control-filter-node", &[841]).and(&format!("{filter}nodes = [\"10.0.0.9:4100\"]\n"));
    Program::run(["config".as_ref(), "check".as_ref(), elsewhere.file().as_os_str()]).expect_status(0);
}

#[test]
fn a_taken_port_is_named_with_the_url_of_this_program() {
    // If the port is taken already, the test needs no listener.
    let _listener = TcpListener::bind("127.0.0.1:8900");
    let setup = Setup::new("control-taken", &[841]);
    let output = setup.output().display().to_string();
    let mut demo = Program::start(["demo", "--duration", "1s", "--output", &output]);
    let url = demo.expect_error_line("run control and dashboard: ");
    let advice = demo.expect_error_line("another program listens on 127.0.0.1:8900; ");
    assert!(advice.ends_with(&format!("ROPEWALK_URL={}", url.trim_end_matches('/'))), "{advice}");
    demo.end().expect_status(0);
    let refused = Program::run(["demo", "--duration", "1s", "--output", &output, "--control", "127.0.0.1:8900"]);
    let errors = &refused.expect_status(4).errors;
    assert!(errors.contains("another program uses this port") && errors.contains("ROPEWALK_URL"), "{refused:#?}");
}

#[test]
fn ctl_takes_names_and_prints_which_run_a_command_is_for() {
    let setup = Setup::new("control-names", &[841]).source("id = 843\nname = \"veto\"\nreadout = \"ru0\"");
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    let state = Program::with_variable(("ROPEWALK_URL", &controlled.url), ["ctl", "state", "--json"]).end();
    assert_eq!(state.expect_status(0).account()["run"], 1);
    // The names are known after the first report of the readout unit.
    while controlled.good("sources").as_array().is_none_or(Vec::is_empty) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let ctl = |words: &[&str], status: i32| {
        let ended = Program::run(["ctl"].iter().chain(words).chain(&["--by", "ada", "--url", &controlled.url]));
        ended.expect_status(status);
        ended
    };
    let masked = ctl(&["mask", "veto"], 0);
    assert!(masked.out.concat().contains("veto (source 843) takes no part"), "{masked:#?}");
    assert!(masked.errors.contains(": run 1 in /"), "{masked:#?}");
    assert!(ctl(&["unmask", "veta"], 2).errors.contains("did you mean `veto`?"));
    assert!(ctl(&["set", "timeout.readout=2s"], 2).errors.contains("did you mean `timeouts.readout`?"));
    assert!(ctl(&["sources"], 0).out.concat().contains("veto (843)"));
    ctl(&["note", "target moved"], 0);
    assert!(ctl(&["journal"], 0).out.iter().any(|line| line.contains("note     run 1: note by ada")));
    assert_eq!(ctl(&["shelve", "disk_full", "--for", "1h"], 0).out.len(), 1);
    assert!(ctl(&["test-alarms"], 3).out.concat().contains("neither `command` nor `webhook`"));
    ctl(&["start", "--field", "beam=120GeV"], 0);
    let refused = ctl(&["start", "--field", "beam=80GeV"], 3);
    assert!(refused.out.concat().contains("beam=80GeV is not stored"), "{refused:#?}");
    controlled.good("shutdown");
    controlled.program.end();
}
