//! Staged faults of the data, and what an operator sees of them within a minute: the quality, the alarm, the status line on
//! the terminal, and the exit status.

use crate::control::Controlled;
use crate::filters::compile;
use crate::process::{Ended, Program};
use crate::support::{FrontEnd, Setup, SmallDisk, fed_fragment, fed_fragment_with, wait_for};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// An operator must see a fault within this time.
const WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// Two sources, 841 without a name and boardB, in a run under run control.
struct Shift {
    controlled: Controlled,
    front_ends: Vec<FrontEnd>,
    begun: Instant,
}

fn setup(name: &str) -> Setup {
    let setup = Setup::new(&format!("quality-{name}"), &[841]).timeout("300ms");
    setup.source("id = 843\nname = \"boardB\"\nreadout = \"ru0\"")
}

impl Shift {
    /// Begins a run in which the front ends of `connected` connect.
    fn begin(setup: &Setup, connected: &[u32]) -> Self {
        let controlled = Controlled::start(setup, &[]);
        controlled.wait("the run to begin", |state| state["state"] == "running" && state["task"].is_null());
        let address = controlled.address_of("ru0");
        let front_ends = connected.iter().map(|&id| FrontEnd::ferol(&address, id).with_size(200)).collect();
        Self { controlled, front_ends, begun: Instant::now() }
    }

    fn get(&self, path: &str) -> Value {
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
    fn alarm(&self, name: &str) -> String {
        let found = wait_for(&format!("the alarm {name}"), || {
            let alarms = self.get("/api/v1/alarms");
            let alarm = alarms.as_array().expect("a list").iter().find(|alarm| alarm["name"] == name)?.clone();
            // One that is over at once is latched.
            (alarm["state"] == "active" || alarm["state"] == "latched").then_some(alarm)
        });
        assert!(self.begun.elapsed() < WITHIN);
        found["sentence"].as_str().expect("text").to_owned()
    }

    /// The sentence of this problem in the live view.
    fn problem(&self, kind: &str) -> String {
        let live = self.get("/api/v1/live");
        let problems = live["quality"]["problems"].as_array().expect("a list");
        let problem = problems.iter().find(|problem| problem["kind"] == kind);
        let problem = problem.unwrap_or_else(|| panic!("no {kind}: {:#}", live["quality"]));
        problem["sentence"].as_str().expect("text").to_owned()
    }

    /// Sends these events of both sources, slowly.
    fn send_all(&mut self, events: std::ops::RangeInclusive<u64>) {
        for event in events {
            self.front_ends.iter_mut().for_each(|front_end| front_end.send([event]));
            std::thread::sleep(PAUSE);
        }
    }

    fn end(self) -> Ended {
        self.controlled.good("stop");
        self.controlled.good("shutdown");
        self.controlled.program.end()
    }
}

/// The status line names the problem, and the exit status is 3.
fn expect_told(ended: &Ended, words: &str) {
    ended.expect_status(3);
    assert!(ended.errors.lines().any(|line| line.contains("DATA: ") && line.contains(words)), "{ended:#?}");
}

/// The account has a remark that begins like this.
fn expect_remark(ended: &Ended, begin: &str) {
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
    let sentence = shift.alarm("source_restarted");
    assert!(sentence.starts_with("boardB (source 843) restarted counting at event 51"), "{sentence}");
    shift.alarm("events_incomplete");
    wait_for("the count in the sentence", || {
        shift.problem("source_restarted").ends_with(": 70 incomplete events").then_some(())
    });
    expect_told(&shift.end(), "boardB (source 843) restarted counting at event 51");
}

#[test]
fn a_board_that_misses_a_trigger_is_out_of_step_within_200_events() {
    let mut shift = Shift::begin(&setup("slip"), &[841, 843]);
    shift.send_all(1..=700);
    shift.begun = Instant::now();
    for event in 701..=900 {
        shift.front_ends[0].send([event]);
        let (bunch_crossing, bytes) = ((event + 1) % 3564 + 1, 200);
        shift.front_ends[1].send_content(event, &fed_fragment_with(843, event, bunch_crossing, bytes));
        std::thread::sleep(PAUSE);
    }
    let sentence = shift.alarm("source_out_of_step");
    assert_eq!(sentence, "source 841 and boardB (source 843) disagree by one event since event 701");
    expect_told(&shift.end(), "disagree by one event since event 701");
}

#[test]
fn a_board_that_stops_sending_is_silent() {
    let mut shift = Shift::begin(&setup("silent"), &[841, 843]);
    shift.send_all(1..=50);
    shift.begun = Instant::now();
    let first = &mut shift.front_ends[0];
    first.send_slowly(51..=250, Duration::from_millis(20));
    let sentence = shift.alarm("source_silent");
    assert!(sentence.starts_with("boardB (source 843): no data for "), "{sentence}");
    let ended = shift.end();
    expect_told(&ended, "boardB (source 843)");
    let remark = "boardB (source 843): missing in 200 events, 51 to 250: silent since ";
    expect_remark(&ended, remark);
    let is_status = |line: &str| line.starts_with("exit status 3: incomplete 200 events, ") && line.contains(remark);
    assert!(ended.errors.lines().any(is_status), "{ended:#?}");
}

#[test]
fn a_board_that_never_connects_has_never_sent() {
    let mut shift = Shift::begin(&setup("never"), &[841]);
    shift.front_ends[0].send_slowly(1..=100, PAUSE);
    let sentence = shift.alarm("source_never_sent");
    assert_eq!(sentence, "boardB (source 843) has sent nothing since the run began (no connection)");
    expect_told(&shift.end(), "boardB (source 843)");
}

/// A board with this id and name whose first event is to have this number.
fn board(setup: Setup, id: u32, name: &str, first: u64) -> Setup {
    setup.source(&format!("id = {id}\nname = {name:?}\nreadout = \"ru0\"\nfirst = {first}"))
}

#[test]
fn a_board_that_counts_already_is_named_with_both_numbers_and_the_cure() {
    let setup = Setup::new("quality-ahead", &[]).timeout("300ms");
    let mut shift = Shift::begin(&board(setup, 843, "boardB", 826), &[843]);
    shift.front_ends[0].send_slowly(4521..=4920, Duration::from_millis(10));
    let sentence = shift.alarm("wrong_first_number");
    let words = "boardB (source 843) sends number 4521, but the first event of the run is 826 (first)";
    assert_eq!(sentence, format!("{words}: reset the board, or delete \"first\""));
    assert_eq!(shift.get("/api/v1/quality")["state"], "incomplete");
    let ended = shift.end();
    expect_told(&ended, words);
    expect_remark(&ended, words);
    let advice =
        "advice: boardB (source 843): its numbers begin with 4521, but the first event of the run is 826 (first)";
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
    let words = "calo (source 841) sends numbers from 5000, straw (source 843) from 0: reset both";
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
    let words = "but the first event of the run is 0 (first): 5,00";
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
    wait_for("all of them", || {
        (shift.alarm("checksums_wrong") == "boardB (source 843): 10 fragments with a wrong checksum").then_some(())
    });
    let quality = shift.get("/api/v1/quality");
    assert_eq!((&quality["state"], &quality["doubtful"]["total"]), (&"doubtful".into(), &10.into()), "{quality:#}");
    expect_told(&shift.end(), "with a wrong checksum");
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
    let sentence = shift.alarm("wrong_source");
    assert!(sentence.contains(" name another source; check the cables"), "{sentence}");
    expect_told(&shift.end(), "name another source");
}

#[test]
fn a_disk_that_is_full_raises_its_alarm() {
    let setup = setup("full").and("[storage]\nstart_free = \"0\"\n");
    let Some(_disk) = SmallDisk::mount(&setup.output()) else {
        return ropewalk_tidy::skipped("quality::a_disk_that_is_full_raises_its_alarm", "may not mount");
    };
    let mut shift = Shift::begin(&setup, &[841, 843]);
    // More than the disk has: what fits is written.
    std::fs::write(setup.output().join("others"), vec![7; 9 << 20]).expect_err("8 MiB are there");
    shift.begun = Instant::now();
    shift.send_all(1..=50);
    let sentence = shift.alarm("disk_full");
    assert!(sentence.contains("its disk is full"), "{sentence}");
    std::fs::remove_file(setup.output().join("others")).expect("it is ours");
    shift.controlled.good("stop");
    shift.controlled.good("shutdown");
    let ended = shift.controlled.program.end();
    assert!(ended.errors.contains("DISK FULL"), "{ended:#?}");
}

#[test]
fn a_filter_that_crashes_raises_its_alarm() {
    let setup = setup("filter");
    // It ends at events 27 and 57.
    let library = compile(setup.directory(), &["-DENDS_OVER=30"]);
    let streams = "[[stream]]\nname = \"odd\"\ntriggers = [0]\n[[stream]]\nname = \"even\"\ntriggers = [1]\n";
    let setup = setup.and(&format!("[filter]\nlibrary = {library:?}\n{streams}"));
    let mut shift = Shift::begin(&setup, &[841, 843]);
    shift.send_all(1..=20);
    // What grows is seen between two looks at the run, a second apart.
    std::thread::sleep(Duration::from_millis(2500));
    shift.send_all(21..=60);
    shift.alarm("filter_failing");
    shift.end();
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
