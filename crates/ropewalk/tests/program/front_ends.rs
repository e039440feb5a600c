//! Front ends under run control, with each node of their run in a separate process.

use crate::cluster::Cluster;
use crate::control::Controlled;
use crate::process::Program;
use crate::support::{self, Manner, OwnFrontEnd, Setup, Tampering, free_address};
use serde_json::Value;
use std::time::Duration;

/// The sources: a user's trigger, telescope and slow control, and one of the test.
const SOURCES: u64 = 4;

/// The programs of the front ends; they retry until run control answers.
struct FrontEndPrograms {
    line: String,
    control: String,
    programs: Vec<support::Program>,
    _own: Option<OwnFrontEnd>,
}

impl FrontEndPrograms {
    fn start() -> Self {
        let control = free_address();
        let mut trigger = support::Program::in_c("trigger", &control, 1, &["--line", "0"]);
        let line = trigger.line();
        let telescope = support::Program::in_c("telescope", &control, 2, &[]);
        let slow_control = support::Program::in_python(&control, 3);
        Self { line, control, programs: vec![trigger, telescope, slow_control], _own: None }
    }

    /// Adds a front end of the test, with its own implementation of the protocol.
    fn with_own(mut self) -> Self {
        self._own = Some(OwnFrontEnd::new(&self.control, SOURCES as u32, Some(self.line.clone()), Manner::Good));
        self
    }

    /// Adds another telescope instead.
    fn with_another_telescope(mut self) -> Self {
        self.programs.push(support::Program::in_c("telescope", &self.control, SOURCES as u32, &[]));
        self
    }

    /// The nodes' configuration; the readout unit has a fixed port, so that run control can send it to the front ends.
    fn setup(&self, name: &str) -> Setup {
        let readout = format!("pool = \"8MiB\"\nblock = \"16KiB\"\nlisten = \"{}\"\n", free_address());
        let setup = Setup::new(name, &[]).readout(&readout).another_builder();
        let output = setup.output().display().to_string();
        let setup = setup.and(&format!("[run]\noutput = {output:?}\nfront_ends = \"{}\"\n", self.control));
        (1..=SOURCES).fold(setup, |setup, id| {
            let settings = match id {
                1 => "trigger = true\nsettings = { rate = 5000.0 }".to_owned(),
                _ => format!("settings = {{ trigger = \"{}\", size = 100, period = 0.02 }}", self.line),
            };
            setup.source(&format!("id = {id}\nreadout = \"ru0\"\nformat = \"generic\"\ncontrolled = true\n{settings}"))
        })
    }
}

/// Starts run control, which takes a run, and the other nodes.
fn nodes(setup: Setup, more: &[&str]) -> Cluster {
    // A restarted unit has another address for the builder units, and the same one for front ends.
    let mut cluster = Cluster::new(setup).with_relay("ru0", Tampering::None);
    cluster.start("manager", &[more, &["--json"]].concat());
    for node in ["ru0", "bu0", "bu1"] {
        cluster.start(node, &[]);
    }
    cluster
}

/// Checks that the other nodes end with the run.
fn expect_good_ends(cluster: &mut Cluster) {
    for node in ["ru0", "bu0", "bu1"] {
        cluster.take(node).end().expect_status(0);
    }
}

/// Checks that all front ends agree on the first and last event, and that every event is whole. Returns their number.
fn expect_agreement(account: &Value) -> u64 {
    let front_ends = &account["front_ends"];
    let (last, sources) = (front_ends["last"].as_u64().expect("it is known"), &front_ends["by_source"]);
    assert_eq!(front_ends["incidents"].as_array().map(Vec::len), Some(0), "{account:#}");
    assert_eq!(sources.as_object().map(serde_json::Map::len), Some(SOURCES as usize), "{account:#}");
    for source in (1..=SOURCES).map(|id| &sources[id.to_string()]) {
        let told = ["first", "last", "sent", "in_events"].map(|key| source[key].as_u64());
        assert_eq!(told, [1, last, last, last].map(Some), "{account:#}");
        assert!(source["settings_sha256"].as_str().is_some_and(|digest| digest.len() == 64), "{account:#}");
    }
    assert_eq!(front_ends["trigger"]["accepted"], last, "{account:#}");
    assert_eq!((&account["events"]["built"], &account["events"]["incomplete_emitted"]), (&last.into(), &0.into()));
    last
}

#[test]
fn nodes_of_their_own_take_a_run_of_front_ends_under_run_control_to_its_last_event() {
    let front_ends = FrontEndPrograms::start().with_own();
    let mut cluster = nodes(front_ends.setup("controlled"), &["--events", "2000"]);
    let account = cluster.take("manager").end().expect_status(0).account();
    assert_eq!(expect_agreement(&account), 2000);
    expect_good_ends(&mut cluster);
    let directories = ["bu0", "bu1"].map(|name| cluster.run_directory(name).display().to_string());
    let verified = Program::run(["verify", &directories[0], &directories[1], "--json"]).expect_status(0).account();
    assert_eq!((&verified["events"], &verified["fragments"]), (&2000.into(), &(2000 * SOURCES).into()));
    // Readings beside the data are in run control's directory.
    let directory = cluster.run_directory("manager").display().to_string();
    let readings = Program::run(["inspect", &directory, "--readings"]);
    assert!(!readings.expect_status(0).out.is_empty(), "the slow control reports");
}

/// Only the trigger, which is asked first, sets the last event.
#[test]
fn nodes_of_their_own_end_a_run_where_the_trigger_was_vetoed() {
    let front_ends = FrontEndPrograms::start().with_own();
    let mut cluster = nodes(front_ends.setup("controlled-stop"), &[]);
    let directory = cluster.run_directory("bu0");
    support::wait_for("the first events in a file", || {
        let files = std::fs::read_dir(&directory).ok()?;
        files.filter_map(|file| file.ok()?.metadata().ok()).any(|file| file.len() > 100_000).then_some(())
    });
    cluster.node("manager").interrupt();
    let account = cluster.take("manager").end().expect_status(0).account();
    assert!(expect_agreement(&account) > 100, "{account:#}");
    expect_good_ends(&mut cluster);
}

/// The readout unit's data is lost with it, by cause, and so are other sources' data of events whose trigger was lost;
/// front ends continue with its successor, and the run ends normally.
#[test]
fn front_ends_send_on_to_a_readout_unit_that_came_back() {
    let front_ends = FrontEndPrograms::start().with_another_telescope();
    let mut cluster = nodes(front_ends.setup("controlled-readout").timeout("1s"), &[]);
    let directory = cluster.run_directory("bu0");
    let written = || {
        let files = std::fs::read_dir(&directory).ok()?;
        Some(files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len()).sum::<u64>())
    };
    support::wait_for("the first events in a file", || written().filter(|bytes| *bytes > 100_000).map(drop));
    cluster.kill("ru0");
    let before = written().expect("files");
    std::thread::sleep(Duration::from_millis(100));
    cluster.start("ru0", &[]);
    support::wait_for("events of the new one", || written().filter(|bytes| *bytes > before + 100_000).map(drop));
    cluster.node("manager").interrupt();
    let ended = cluster.take("manager").end();
    let account = ended.account();
    let dropped = account["fragments"]["dropped"].as_object().expect("an object");
    // The unit, and the connections to it, may have been empty at that moment.
    let is_lossless = dropped.is_empty() && account["front_ends"]["trigger"]["without_event"] == 0;
    ended.expect_status(if is_lossless { 0 } else { 3 });
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    assert!(dropped.keys().all(|cause| ["readout_lost", "no_trigger"].contains(&cause.as_str())), "{account:#}");
    assert_eq!(account["front_ends"]["last"], account["front_ends"]["by_source"]["2"]["last"], "{account:#}");
    expect_good_ends(&mut cluster);
}

/// The answer to a pause comes after the trigger has reported that it is held: by then all accepted triggers have a
/// number.
#[test]
fn a_pause_by_ctl_is_done_when_the_trigger_is_held_and_the_run_goes_on_without_a_gap() {
    let front_ends = FrontEndPrograms::start().with_another_telescope();
    let setup = front_ends.setup("controlled-pause");
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["state"] == "configured" && state["task"].is_null());
    assert_eq!(controlled.good("start")["state"], "running");
    let ledger = |what: &str, is_so: &dyn Fn(&Value) -> bool| {
        support::wait_for(what, || Some(controlled.good("ledger")).filter(is_so));
    };
    let built = |least: u64| move |ledger: &Value| ledger["events"]["built"].as_u64() > Some(least);
    ledger("events", &built(500));
    let paused = controlled.good("pause");
    assert_eq!((&paused["answer"], &paused["state"]), (&"done".into(), &"paused".into()));
    assert_eq!(controlled.good("pause")["answer"], "already_so");
    let received = || controlled.good("ledger")["fragments"]["received"].as_u64().expect("a number");
    // All four have sent the data of all triggers; no more come.
    let whole = support::wait_for("all that was triggered", || {
        let before = received();
        std::thread::sleep(Duration::from_millis(300));
        Some(received()).filter(|&after| after == before && after % SOURCES == 0)
    });
    assert_eq!(controlled.good("resume")["state"], "running");
    ledger("events after the pause", &built(whole / SOURCES + 500));
    assert_eq!(controlled.good("stop")["answer"], "done");
    let shut = controlled.good("shutdown");
    assert_eq!(shut["state"], "over");
    let ended = controlled.program.end();
    ended.expect_status(0);
    let account: Value = serde_json::from_str(&ended.out[0]).expect("an account");
    let last = expect_agreement(&account);
    let trigger = &account["front_ends"]["trigger"];
    let paused = trigger["vetoed"]["paused"].as_u64().expect("a cause");
    assert!(paused > 0, "{trigger}");
    let vetoed: u64 = trigger["vetoed"].as_object().expect("by cause").values().filter_map(Value::as_u64).sum();
    assert_eq!(trigger["issued"].as_u64(), Some(last + vetoed));
}
