//! Staged faults, and their signs for an operator within a minute: the quality, the alarm, `top`, the status line on
//! the terminal, and the exit status. The browser test of the page reads the same table of faults.

use crate::cluster::Cluster;
use crate::control::Controlled;
use crate::filters::compile;
use crate::process::{Ended, Program};
use crate::support::{
    FrontEnd, Setup, SmallDisk, TemporaryDirectory, fed_fragment, fed_fragment_with, free_port, wait_for,
};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// An operator must see a fault within this time.
const WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// The signs of a fault: a row of `dashboard/tests/faults.json`.
#[derive(serde::Deserialize)]
struct Fault {
    fault: String,
    alarm: String,
    /// The beginning of the alarm's sentence.
    sentence: String,
    /// The state of the quality.
    state: String,
    /// The exit status of the run.
    status: i32,
}

impl Fault {
    fn named(name: &str) -> Self {
        let all = include_str!("../../../../dashboard/tests/faults.json");
        let all: Vec<Self> = serde_json::from_str(all).expect("a table of faults");
        all.into_iter().find(|one| one.fault == name).unwrap_or_else(|| panic!("no row of {name}"))
    }
}

/// Two sources, 841 without a name and boardB, in a run under run control.
pub(crate) struct Shift {
    pub(crate) controlled: Controlled,
    pub(crate) front_ends: Vec<FrontEnd>,
    pub(crate) begun: Instant,
}

pub(crate) fn setup(name: &str) -> Setup {
    let setup = Setup::new(&format!("quality-{name}"), &[841]).timeout("300ms");
    setup.source("id = 843\nname = \"boardB\"\nreadout = \"ru0\"")
}

impl Shift {
    /// Begins a run; the front ends of `connected` connect.
    pub(crate) fn begin(setup: &Setup, connected: &[u32]) -> Self {
        let controlled = Controlled::start(setup, &[]);
        controlled.wait("the run to begin", |state| state["state"] == "running" && state["task"].is_null());
        let address = controlled.address_of("ru0");
        Self::over(controlled, &address, connected)
    }

    /// The same for front ends that connect to this address.
    pub(crate) fn over(controlled: Controlled, address: &str, connected: &[u32]) -> Self {
        let front_ends = connected.iter().map(|&id| FrontEnd::ferol(address, id).with_size(200)).collect();
        Self { controlled, front_ends, begun: Instant::now() }
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let address = self.controlled.url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let mut stream = TcpStream::connect(&address).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }

    /// Waits for the alarm, and returns its sentence. The fault began when `self.begun` was set last.
    pub(crate) fn alarm(&self, name: &str) -> String {
        let found = wait_for(&format!("the alarm {name}"), || {
            let alarms = self.get("/api/v1/alarms");
            let alarm = alarms.as_array().expect("a list").iter().find(|alarm| alarm["name"] == name)?.clone();
            // An alarm that is soon over is latched.
            (alarm["state"] == "active" || alarm["state"] == "latched").then_some(alarm)
        });
        assert!(self.begun.elapsed() < WITHIN);
        found["sentence"].as_str().expect("text").to_owned()
    }

    /// Waits until this fault is in the view of page and top, and on the terminal.
    pub(crate) fn see(&mut self, name: &str) {
        let Fault { alarm, sentence, state, .. } = Fault::named(name);
        let begins = |one: &Value| one["sentence"].as_str().is_some_and(|one| one.starts_with(&sentence));
        let live = wait_for(&format!("{alarm}: {sentence}"), || {
            let live = self.get("/api/v1/live");
            let mut alarms = live["alarms"].as_array().expect("a list").iter();
            let is_seen = alarms.any(|one| one["name"] == *alarm && begins(one));
            (is_seen && live["quality"]["state"] == *state).then_some(live)
        });
        let problems = live["quality"]["problems"].as_array().expect("a list");
        let is_of_data = state != "good" || ["node_missing", "filter_failing", "filters_given_up"].contains(&&*alarm);
        assert_eq!(problems.iter().any(begins), is_of_data, "{:#}", live["quality"]);
        let top = Program::run(["top", "--once", "--url", &self.controlled.url]);
        assert!(top.expect_status(0).out.iter().any(|line| line.contains(&sentence)), "{top:#?}");
        let line = if alarm == "disk_full" { "DISK FULL" } else { &sentence };
        self.controlled.program.expect_error_line_with(line);
        assert!(self.begun.elapsed() < WITHIN);
    }

    /// Ends the run, and checks the exit status of this fault.
    pub(crate) fn end_of(self, name: &str) -> Ended {
        let ended = self.end();
        ended.expect_status(Fault::named(name).status);
        ended
    }

    /// Sends these events of both sources, slowly.
    pub(crate) fn send_all(&mut self, events: std::ops::RangeInclusive<u64>) {
        for event in events {
            self.front_ends.iter_mut().for_each(|front_end| front_end.send([event]));
            std::thread::sleep(PAUSE);
        }
    }

    fn end(self) -> Ended {
        self.controlled.program.interrupt();
        self.controlled.program.end()
    }
}

/// The status line names the problem, and the exit status is 3.
fn expect_told(ended: &Ended, words: &str) {
    ended.expect_status(3);
    assert!(ended.errors.lines().any(|line| line.contains("DATA: ") && line.contains(words)), "{ended:#?}");
}

/// Checks that the account has a remark with this beginning.
pub(crate) fn expect_remark(ended: &Ended, begin: &str) {
    let account = ended.account();
    let remarks = account["remarks"].as_array().expect("a list");
    assert!(remarks.iter().any(|one| one.as_str().is_some_and(|one| one.starts_with(begin))), "{begin}: {remarks:#?}");
}

#[test]
fn whole_events_are_good() {
    let mut shift = Shift::begin(&setup("good"), &[841, 843]);
    shift.send_all(1..=100);
    let quality = wait_for("all events", || {
        let quality = shift.get("/api/v1/quality");
        (quality["complete"]["total"] == 100).then_some(quality)
    });
    assert_eq!((&quality["state"], &quality["problems"]), (&"good".into(), &Value::Array(Vec::new())), "{quality:#}");
    let ended = shift.end();
    ended.expect_status(0);
    assert!(!ended.errors.contains("DATA: "), "{ended:#?}");
}

#[test]
fn a_board_that_resets_its_counter_is_named_with_the_event() {
    let mut shift = Shift::begin(&setup("reset"), &[841, 843]);
    shift.send_all(1..=50);
    shift.begun = Instant::now();
    shift.front_ends[0].send(51..=120);
    shift.front_ends[1].send(1..=40);
    shift.see("counter reset");
    shift.alarm("events_incomplete");
    shift.end_of("counter reset");
}

/// Sends these events of both boards, the second one with the bunch crossings of the next triggers.
fn send_slipped(shift: &mut Shift, events: RangeInclusive<u64>) {
    for event in events {
        shift.front_ends[0].send([event]);
        let (bunch_crossing, bytes) = ((event + 1) % 3564 + 1, 200);
        shift.front_ends[1].send_content(event, &fed_fragment_with(843, event, bunch_crossing, bytes));
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn a_board_that_misses_a_trigger_is_out_of_step_within_200_events() {
    let mut shift = Shift::begin(&setup("slip"), &[841, 843]);
    shift.send_all(1..=700);
    shift.begun = Instant::now();
    send_slipped(&mut shift, 701..=900);
    shift.see("slip by one event");
    shift.end_of("slip by one event");
}

#[test]
fn boards_that_were_never_in_step_are_not_sent_to_their_cables() {
    let mut shift = Shift::begin(&setup("never-in-step"), &[841, 843]);
    send_slipped(&mut shift, 1..=300);
    let ended = shift.end();
    let advice = "since event 1: they were never in step: reset all boards before the run";
    assert!(ended.errors.contains(advice) && !ended.errors.contains("trigger cables"), "{ended:#?}");
}

#[test]
fn a_board_that_stops_sending_is_silent() {
    let setup = setup("silent");
    let mut shift = Shift::begin(&setup, &[841, 843]);
    shift.send_all(1..=50);
    shift.begun = Instant::now();
    let first = &mut shift.front_ends[0];
    first.send_slowly(51..=250, Duration::from_millis(20));
    shift.see("silent board");
    let ended = shift.end_of("silent board");
    let remark = "boardB (source 843): missing in 200 events, 51 to 250: silent since ";
    expect_remark(&ended, remark);
    let is_status = |line: &str| line.starts_with("exit status 3: incomplete 200 events, ") && line.contains(remark);
    assert!(ended.errors.lines().any(is_status), "{ended:#?}");
    let faulty = ended.account()["faulty_events"].clone();
    assert_eq!((faulty["first"].as_array().map(Vec::len), &faulty["further"]), (Some(10), &190.into()));
    let fault = serde_json::json!({ "source": 843, "name": "boardB", "fault": "missing", "cause": "timed_out" });
    assert_eq!(faulty["first"][0], serde_json::json!({ "event": "51", "faults": [fault], "further_faults": 0 }));
    let output = setup.output().display().to_string();
    let verified = Program::run(["verify", &format!("{output}/run000001")]);
    let verified = verified.expect_status(3);
    assert!(verified.out.iter().any(|line| line == "  51: boardB (source 843) missing: timed out"), "{verified:#?}");
    let shown = Program::run(["runs", "show", "1", "--output", &output]);
    let shown = shown.expect_status(0).out.join("\n");
    assert!(shown.contains("51: boardB (source 843) missing: timed out"), "{shown}");
    let troubled = shown.lines().find(|line| line.contains("sources with losses")).expect("a row");
    assert!(troubled.contains("boardB (source 843)") && !troubled.contains("841"), "{troubled}");
}

#[test]
fn a_board_that_begins_too_late_is_named_with_the_time_and_what_to_do() {
    let setup = setup("late");
    let mut shift = Shift::begin(&setup, &[841]);
    let address = shift.controlled.address_of("ru0");
    shift.front_ends[0].send_slowly(1..=200, Duration::from_millis(10));
    let mut late = FrontEnd::ferol(&address, 843).with_size(200);
    late.send(1..=200);
    shift.front_ends.push(late);
    shift.alarm("fragments_lost");
    let ended = shift.end();
    ended.expect_status(3);
    // It had no connection that could end.
    expect_remark(&ended, "boardB (source 843): missing in 200 events, 1 to 200: timed out");
    let is_advice = |line: &&str| line.starts_with("advice: boardB (source 843): its first data came ");
    let advice = ended.errors.lines().find(is_advice).unwrap_or_else(|| panic!("{ended:#?}"));
    let rest = " s after those of source 841; 200 fragments came after the end of their events. Start it first, or raise \
                `timeouts.readout` (300ms)";
    assert!(advice.ends_with(rest), "{advice}");
}

#[test]
fn a_board_that_never_connects_has_never_sent() {
    let mut shift = Shift::begin(&setup("never"), &[841]);
    shift.front_ends[0].send_slowly(1..=100, PAUSE);
    shift.see("never connected");
    shift.end_of("never connected");
}

/// Adds a board with this id and name whose first event must have this number.
fn board(setup: Setup, id: u32, name: &str, first: u64) -> Setup {
    setup.source(&format!("id = {id}\nname = {name:?}\nreadout = \"ru0\"\nfirst = {first}"))
}

#[test]
fn a_board_that_counts_already_is_named_with_both_numbers_and_the_cure() {
    let setup = Setup::new("quality-ahead", &[]).timeout("300ms");
    let mut shift = Shift::begin(&board(setup, 843, "boardB", 826), &[843]);
    shift.front_ends[0].send_slowly(4521..=4920, Duration::from_millis(10));
    let sentence = shift.alarm("wrong_first_number");
    let words = "boardB (source 843) sends number 4521, but the first event of the run is 826";
    assert_eq!(sentence, format!("{words}: reset the boards before each run (docs/alarms.md, wrong_first_number)"));
    assert_eq!(shift.get("/api/v1/quality")["state"], "incomplete");
    let ended = shift.end();
    expect_told(&ended, words);
    expect_remark(&ended, words);
    let advice = "advice: boardB (source 843): its numbers begin with 4521, but the first event of the run is 826: reset the board before the run, with all others, or delete \"first\"";
    assert!(ended.errors.contains(advice), "{ended:#?}");
}

#[test]
fn boards_that_begin_apart_are_named_together() {
    let setup = Setup::new("quality-apart", &[]).timeout("300ms");
    let setup = board(board(setup, 841, "calo", 0), 843, "straw", 0);
    let mut shift = Shift::begin(&setup, &[841, 843]);
    for event in 0..400 {
        shift.front_ends[0].send([5000 + event]);
        shift.front_ends[1].send([event]);
        std::thread::sleep(Duration::from_millis(10));
    }
    let words = "calo (source 841) sends numbers from 5000 instead of 0, straw (source 843) began with the run: reset calo \
                 (source 841), or all boards together";
    assert_eq!(shift.alarm("wrong_first_number"), words);
    let ended = shift.end();
    expect_told(&ended, words);
    expect_remark(&ended, words);
}

#[test]
fn events_that_every_board_has_passed_are_named_as_missing() {
    let setup = Setup::new("quality-passed", &[]).timeout("300ms");
    let setup = board(board(setup, 841, "calo", 0), 843, "straw", 0);
    let mut shift = Shift::begin(&setup, &[841, 843]);
    shift.send_all(5000..=5400);
    let words = "but the first event of the run is 0: 5,00";
    assert!(shift.alarm("wrong_first_number").contains(words));
    let ended = shift.end();
    expect_told(&ended, words);
    for name in ["calo (source 841)", "straw (source 843)"] {
        expect_remark(&ended, &format!("{name} began with number 500"));
    }
}

#[test]
fn a_run_to_which_no_source_ever_connected_is_not_good() {
    let setup = Setup::new("quality-empty", &[841]);
    let ended = Program::run(["run".as_ref(), setup.file().as_os_str(), "--duration".as_ref(), "1s".as_ref()]);
    let told = "exit status 3: nothing 1 source; source 841 sent nothing in the whole run (no connection)";
    assert!(ended.expect_status(3).errors.lines().any(|line| line == told), "{ended:#?}");
}

/// Boards that connect to the address of their readout unit are identified by their first fragment.
#[test]
fn boards_that_are_connected_and_wait_for_a_trigger_are_no_fault() {
    let shift = Shift::begin(&setup("idle"), &[841, 843]);
    let sentence = shift.alarm("source_never_sent");
    assert!(sentence.ends_with(" has sent nothing since the run began (it is connected)"), "{sentence}");
    shift.end().expect_status(0);
    let shift = Shift::begin(&setup("half-idle"), &[841]);
    let sentence = shift.alarm("source_never_sent");
    assert!(sentence.ends_with(" has sent nothing since the run began (no connection)"), "{sentence}");
    shift.end().expect_status(3);
}

#[test]
fn bit_errors_are_counted_by_their_board() {
    let mut shift = Shift::begin(&setup("bits"), &[841, 843]);
    shift.send_all(1..=50);
    shift.begun = Instant::now();
    for event in 51..=60 {
        shift.front_ends[0].send([event]);
        let mut content = shift.front_ends[1].content(event);
        content[20] ^= 4;
        shift.front_ends[1].send_content(event, &content);
    }
    shift.see("bit errors");
    let quality = shift.get("/api/v1/quality");
    assert_eq!(quality["doubtful"]["total"], 10, "{quality:#}");
    shift.end_of("bit errors");
}

#[test]
fn exchanged_cables_are_named() {
    let mut shift = Shift::begin(&setup("cables"), &[841, 843]);
    shift.send_all(1..=20);
    shift.begun = Instant::now();
    for event in 21..=40 {
        for (place, other) in [(0, 843), (1, 841)] {
            shift.front_ends[place].send_content(event, &fed_fragment(other, event, 200));
        }
    }
    shift.see("wrong cable");
    shift.end_of("wrong cable");
}

#[test]
fn a_disk_that_is_full_raises_its_alarm() {
    let setup = setup("full").and("[storage]\nstart_free = \"0\"\n");
    let Some(_disk) = SmallDisk::mount(&setup.output()) else {
        return ropewalk_tidy::skipped("quality::a_disk_that_is_full_raises_its_alarm", "may not mount");
    };
    let mut shift = Shift::begin(&setup, &[841, 843]);
    shift.send_all(1..=20);
    // More than the disk holds: what fits is written.
    std::fs::write(setup.output().join("others"), vec![7; 9 << 20]).expect_err("8 MiB are there");
    shift.begun = Instant::now();
    shift.send_all(21..=50);
    shift.see("disk full");
    wait_for("the alarm in the journal", || {
        shift.get("/api/v1/journal").to_string().contains("alarm disk_full: ").then_some(())
    });
    std::fs::remove_file(setup.output().join("others")).expect("it is ours");
    shift.end_of("disk full");
}

/// Events go to a program that reads slowly, which acts as a slow disk and needs no permission.
#[test]
fn a_disk_that_is_slow_raises_its_alarm() {
    const GREEDY: &str = "id = 1\nreadout = \"ru0\"\nemulate = { fragment_size = \"1KiB\" }";
    const SOONER: &str = "[[alarm]]\nname = \"disk_slow\"\nquantity = \"limited_by:disk\"\nabove = 0\nfor = \"1s\"\n";
    let setup = Setup::new("quality-slow", &[]).source(GREEDY);
    let (output, pipe) = (setup.output(), setup.directory().join("events"));
    let setup = setup.and(&format!("[run]\noutput = {output:?}\n[storage]\npipe = {pipe:?}\n{SOONER}"));
    let mut shift = Shift::begin(&setup, &[]);
    let mut reader = wait_for("the pipe", || UnixStream::connect(&pipe).ok());
    let is_slow = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = vec![0; 16 << 10];
            while reader.read(&mut bytes).expect("it is open") > 0 {
                if is_slow.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
        shift.see("disk slow");
        is_slow.store(false, Ordering::Relaxed);
        shift.end_of("disk slow");
    });
}

#[test]
fn a_builder_unit_that_dies_is_named() {
    let mut cluster = Cluster::new(setup("node").another_builder());
    cluster.start("manager", &["--control", "127.0.0.1:0", "--json"]);
    ["ru0", "bu0", "bu1"].into_iter().for_each(|name| cluster.start(name, &[]));
    let address = cluster.front_end_address("ru0");
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    let controlled = Controlled { program: cluster.take("manager"), url };
    let mut shift = Shift::over(controlled, &address, &[841, 843]);
    shift.send_all(1..=20);
    shift.begun = Instant::now();
    cluster.kill("bu1");
    // The other one builds.
    let mut front_ends = std::mem::take(&mut shift.front_ends);
    std::thread::scope(|scope| {
        for front_end in &mut front_ends {
            scope.spawn(move || front_end.send_slowly(21..=520, 5 * PAUSE));
        }
        shift.see("node dies");
    });
    shift.end_of("node dies");
}

#[test]
fn a_filter_that_crashes_raises_its_alarm() {
    let setup = setup("filter");
    // Its process ends at event 27.
    let library = compile(setup.directory(), &["-DENDS_OVER=30"]);
    let streams = "[[stream]]\nname = \"odd\"\ntriggers = [0]\n[[stream]]\nname = \"even\"\ntriggers = [1]\n";
    let setup = setup.and(&format!("[filter]\nlibrary = {library:?}\n{streams}"));
    let mut shift = Shift::begin(&setup, &[841, 843]);
    shift.send_all(1..=20);
    // Growth shows between two samples of the run, a second apart.
    std::thread::sleep(Duration::from_millis(2500));
    shift.send_all(21..=40);
    shift.see("filter dies");
    shift.end_of("filter dies");
}

#[test]
fn a_filter_without_any_unit_left_is_named_and_ends_with_status_3() {
    let setup = setup("given-up");
    let library = compile(setup.directory(), &["-DENDS_OVER=1"]);
    let filter = format!("[filter]\nlibrary = {library:?}\nrestarts = 1\nrestart_delay = \"10ms\"\n");
    let setup = setup.and(&filter);
    let mut shift = Shift::begin(&setup, &[841, 843]);
    shift.send_all(1..=20);
    shift.see("filter is given up");
    shift.send_all(21..=40);
    let ended = shift.end_of("filter is given up");
    let words = "bu0: 1 filter unit given up after repeated failures";
    expect_told(&ended, words);
    expect_remark(&ended, words);
}

// ---- sources that push

/// Events in a packet.
const PACKING: u32 = 5;
const PUSHED: [u32; 3] = [700, 701, 702];

/// A packet of a set of events: the header, and a fragment of 16 bytes for each event.
fn packet(set: u32) -> Vec<u8> {
    let first = PACKING * set;
    let fragments =
        (first..first + PACKING).flat_map(|event| [&event.to_le_bytes()[..2], &[16, 0], &[0x5a; 16]].concat());
    let fragments: Vec<u8> = fragments.collect();
    let length = 12 + fragments.len() as u16;
    [&first.to_le_bytes(), &[PACKING as u8, 0][..], &length.to_le_bytes(), &[0; 4], &fragments].concat()
}

/// A gateway under run control, and three sources that push to it.
struct Push {
    shift: Shift,
    sockets: Vec<UdpSocket>,
    to: String,
    directory: TemporaryDirectory,
    /// The next set.
    next: u32,
}

impl Push {
    fn new(name: &str) -> Self {
        Self::begin(TemporaryDirectory::new(&format!("push-{name}")), "[farm]\nnodes = 0\n")
    }

    /// Starts with these sections. A gateway whose farm has nodes is a separate process.
    fn begin(directory: TemporaryDirectory, sections: &str) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        // No other test has these addresses.
        let (net, subnet) = (10 + std::process::id() % 200, NEXT.fetch_add(1, Ordering::Relaxed));
        let address = |index: u32| format!("127.{net}.{subnet}.{}", index + 1);
        let (output, port) = (directory.path().join("runs"), free_port());
        let text = format!(
            "version = 1\n[run]\noutput = {output:?}\n[[flow]]\nname = \"hlt\"\npacking = {PACKING}\ntimeout = \"300ms\"\n\
             decision_timeout = \"1s\"\nsources = {{ count = 3, first = {}, address = {:?} }}\n[[gateway]]\nname = \"gw0\"\n\
             control = \"127.0.0.1:{port}\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n{sections}",
            PUSHED[0],
            address(0)
        );
        let file = directory.path().join("push.toml");
        std::fs::write(&file, text).expect("it is ours");
        let file = file.to_str().expect("text");
        let has_nodes = sections.contains("nodes = 2");
        let command: &[&str] = if has_nodes { &["node", "gateway", file, "--name", "gw0"] } else { &["run", file] };
        let mut controlled = Controlled::of(command, &[]);
        controlled.wait("the run to begin", |state| state["state"] == "running" && state["task"].is_null());
        let to = controlled.program.expect_error_line("gw0 hlt listens on ");
        let sockets =
            (0..3).map(|index| UdpSocket::bind((address(index), 0)).expect("an address of this host")).collect();
        let shift = Shift { controlled, front_ends: Vec::new(), begun: Instant::now() };
        Self { shift, sockets, to, directory, next: 0 }
    }

    /// Sends sets until the fault is reported: 701 sends the result of `send` for each, the others a valid packet.
    fn stage(&mut self, name: &str, send: impl Fn(u32) -> Option<Vec<u8>> + Sync) {
        self.send_while(send, |shift| shift.see(name));
    }

    fn send_while(&mut self, send: impl Fn(u32) -> Option<Vec<u8>> + Sync, wait: impl FnOnce(&mut Shift)) {
        let Self { shift, sockets, to, next, .. } = self;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // At most as long as a test waits.
                for set in (*next..*next + 4000).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let packets = [Some(packet(set)), send(set), Some(packet(set))];
                    for (socket, packet) in sockets.iter().zip(packets) {
                        packet.iter().for_each(|packet| _ = socket.send_to(packet, &*to).expect("a way"));
                    }
                    std::thread::sleep(5 * PAUSE);
                }
            });
            wait(shift);
            is_over.store(true, Ordering::Relaxed);
        });
        *next += 4000;
    }
}

/// Sets of 701 before its fault.
const GOOD: u32 = 20;

#[test]
fn a_pushing_source_that_stops_or_never_begins_is_named() {
    let mut push = Push::new("silent");
    push.stage("push: silent board", |set| (set < GOOD).then(|| packet(set)));
    let ended = push.shift.end_of("push: silent board");
    expect_remark(&ended, "source 701: missing in ");
    let mut push = Push::new("never");
    push.stage("push: never connected", |_| None);
    let ended = push.shift.end_of("push: never connected");
    expect_remark(&ended, "source 701 sent nothing in the whole run");
    assert_eq!(ended.account()["status"]["reasons"]["nothing"], 1, "{ended:#?}");
}

#[test]
fn a_pushing_source_that_resets_its_counter_is_named_with_the_event() {
    let mut push = Push::new("reset");
    push.stage("push: counter reset", |set| Some(packet(if set < 50 { set } else { set - 45 })));
    push.shift.end_of("push: counter reset");
}

#[test]
fn damaged_packets_are_counted_by_their_source() {
    let mut push = Push::new("bits");
    let damaged = |set: u32| {
        let mut packet = packet(set);
        // Its length.
        packet[6] ^= if (GOOD..GOOD + 10).contains(&set) { 4 } else { 0 };
        Some(packet)
    };
    push.stage("push: bit errors", damaged);
    let ended = push.shift.end_of("push: bit errors");
    expect_remark(&ended, "source 701: missing in 10 sets of events: 10 damaged packets");
}

#[test]
fn a_gateway_whose_disk_is_full_raises_its_alarm() {
    let directory = TemporaryDirectory::new("push-full");
    let output = directory.path().join("runs");
    let Some(_disk) = SmallDisk::mount(&output) else {
        return ropewalk_tidy::skipped("quality::a_gateway_whose_disk_is_full_raises_its_alarm", "may not mount");
    };
    let mut push = Push::begin(directory, "[farm]\nnodes = 0\n[storage]\nstart_free = \"0\"\n");
    std::fs::write(output.join("others"), vec![7; 9 << 20]).expect_err("8 MiB are there");
    push.stage("push: disk full", |set| Some(packet(set)));
    std::fs::remove_file(output.join("others")).expect("it is ours");
    push.shift.end_of("push: disk full");
}

/// One node dies, and the other one decides. Then that one dies, and the gateway takes the default decision.
#[test]
fn nodes_of_a_farm_that_die_are_counted() {
    let farm = "[farm]\nnodes = 2\nsilence = \"300ms\"\nlargest_push = \"8KiB\"\n";
    let mut push = Push::begin(TemporaryDirectory::new("push-nodes"), farm);
    let file = push.directory.path().join("push.toml").display().to_string();
    let node = |numbers| Program::start(["farm-node", &file, "--nodes", numbers, "--accept", "1.0"]);
    let mut first = node("0..1");
    let good = |set| Some(packet(set));
    push.send_while(good, |shift| {
        wait_for("its decisions", || (shift.get("/api/v1/ledger")["events"]["accepted"] != 0).then_some(()));
    });
    let mut second = node("1..2");
    first.kill();
    push.stage("push: node dies", good);
    second.kill();
    push.stage("push: farm dies", good);
    push.shift.end_of("push: farm dies");
}

#[test]
fn a_reset_of_all_boards_says_to_start_a_new_run() {
    let mut shift = Shift::begin(&setup("all-reset"), &[841, 843]);
    shift.send_all(1..=50);
    wait_for("all events", || (shift.get("/api/v1/quality")["complete"]["total"] == 50).then_some(()));
    shift.begun = Instant::now();
    shift.send_all(1..=60);
    let words = "all sources restarted counting: stop this run and start a new one";
    wait_for("what to do", || {
        let sentence = shift.get("/api/v1/quality")["sentence"].as_str().expect("text").to_owned();
        (sentence.starts_with("no event is built since ") && sentence.ends_with(words)).then_some(())
    });
    let ended = shift.end();
    let advice = "advice: all sources restarted counting, and no event was built since then: ";
    assert!(ended.expect_status(3).errors.contains(advice), "{ended:#?}");
}

/// Boards that send to each other's port; their frames have no time.
#[test]
fn boards_with_exchanged_ports_are_named_and_all_that_they_sent_is_counted() {
    const SENT: u32 = 3000;
    let board = |setup: Setup, id: u32, begin: &str| {
        let frame = format!(
            "frame = \"datagram\"\nmatch = {{ at = 0, bytes = {begin:?} }}\nevent = {{ at = 4, type = \"u32be\" }}"
        );
        let input = "readout = \"ru0\"\nlisten = \"udp://127.0.0.1:0\"";
        setup.source(&format!("id = {id}\nname = \"board{id}\"\n{input}\n{frame}"))
    };
    let setup = board(board(Setup::new("quality-ports", &[]).timeout("300ms"), 1, "AAAA"), 2, "BBBB");
    let file = setup.file();
    let checked = Program::run(["config".as_ref(), "check".as_ref(), file.as_os_str()]);
    let step = "step not checked: board1, board2 have neither `time` nor a bunch crossing";
    assert!(checked.expect_status(0).errors.contains(&format!("note: {step}")), "{checked:#?}");
    let mut shift = Shift::begin(&setup, &[]);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("any port");
    let ports = [1, 2].map(|id| shift.controlled.program.expect_error_line(&format!("board{id} listens on ")));
    for event in 1..=SENT {
        for (port, begin) in ports.iter().zip(["BBBB", "AAAA"]) {
            let frame = [begin.as_bytes(), &event.to_be_bytes()].concat();
            socket.send_to(&frame, port.trim_start_matches("udp://")).expect("it listens");
        }
        std::thread::sleep(PAUSE / 4);
    }
    let sentence = shift.alarm("wrong_source");
    let words =
        "nearly all fragments of board1 (source 1) and board2 (source 2) fail their checksum or `match`: are the ports";
    assert!(sentence.starts_with(words), "{sentence}");
    let ended = shift.end();
    expect_told(&ended, words);
    assert!(ended.errors.contains(&format!("advice: {words}")), "{ended:#?}");
    expect_remark(&ended, step);
    assert_eq!(ended.account()["fragments"]["received"], 2 * SENT, "{ended:#?}");
}

/// The same over TCP, where a frame with another board's mark is skipped in the search for a valid one.
#[test]
fn boards_with_exchanged_ports_over_tcp_send_and_are_named() {
    let board = |setup: Setup, id: u32, begin: &str| {
        let frame = format!(
            "frame = {{ length = {{ at = 4, type = \"u32le\" }}, max = \"64KiB\" }}\nmatch = {{ at = 0, bytes = {begin:?} }}\n\
             event = {{ at = 8, type = \"u32le\" }}"
        );
        let input = "readout = \"ru0\"\nlisten = \"tcp://127.0.0.1:0\"";
        setup.source(&format!("id = {id}\nname = \"board{id}\"\n{input}\n{frame}"))
    };
    let setup = board(board(Setup::new("quality-tcp-ports", &[]).timeout("300ms"), 1, "AAAA"), 2, "BBBB");
    let mut shift = Shift::begin(&setup, &[]);
    let ports = [1, 2].map(|id| shift.controlled.program.expect_error_line(&format!("board{id} listens on ")));
    let connect = |port: &String| std::net::TcpStream::connect(port.trim_start_matches("tcp://")).expect("it listens");
    let mut streams = ports.each_ref().map(connect);
    // Longer than the time-out of a silent source.
    for event in 1..=1500_u32 {
        for (stream, begin) in streams.iter_mut().zip(["BBBB", "AAAA"]) {
            let frame = [begin.as_bytes(), &60_u32.to_le_bytes(), &event.to_le_bytes(), &[7; 48]].concat();
            std::io::Write::write_all(stream, &frame).expect("it reads");
        }
        std::thread::sleep(2 * PAUSE);
    }
    let words = "nearly all fragments of board1 (source 1) and board2 (source 2) fail their checksum or `match`";
    let sentence = shift.alarm("wrong_source");
    assert!(sentence.starts_with(words), "{sentence}");
    let live = shift.get("/api/v1/live");
    let problems = live["quality"]["problems"].as_array().expect("a list");
    assert!(problems.iter().all(|one| one["kind"] != "source_silent"), "{live:#}");
    for source in live["sources"].as_array().expect("a list") {
        assert!(source["garbage_bytes"].as_u64() > Some(80_000), "{source:#}");
        assert!(source["silent_s"].as_f64() < Some(2.0), "{source:#}");
    }
    drop(streams);
    let ended = shift.end();
    assert!(ended.errors.contains(&format!("advice: {words}")), "{ended:#?}");
}
