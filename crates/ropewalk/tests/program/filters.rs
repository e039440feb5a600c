//! Filters in C in processes that end while they decide on an event, or are killed, in whole runs.

use crate::forms::{expect_form, schema};
use crate::process::Program;
use crate::support::{TemporaryDirectory, wait_for};
use ropewalk_terms::{Attempt, Cause, EventKey, RunNumber, SourceId, Verdict};
use ropewalk_tools::RunReader;
use ropewalk_wire::filter_node::{
    EventHead, FILTER_NODE_VERSION, FRAME_BYTES, Frame, Kind, decode_decision, encode_begin, encode_event, encode_hello,
};
use ropewalk_wire::filter_result::FilterResult;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const EVENTS: u64 = 20_000;

/// Compiles the filter of `tenth.c` to a library, with these macros.
pub(crate) fn compile(directory: &Path, macros: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = directory.join("tenth.so");
    let built = Command::new("cc")
        .args(["-std=gnu99", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("../../bindings/c"))
        .args(macros)
        .arg("-o")
        .args([&library, &root.join("tests/program/tenth.c")])
        .status();
    assert!(built.expect("cc is there").success());
    library
}

pub(crate) fn configuration(directory: &TemporaryDirectory, filter: &str) -> String {
    let text = format!(
        "version = 1\n[run]\nlumisection = {{ events = 6000 }}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[filter]\nlibrary = {:?}\nrestart_delay = \"5ms\"\n\
         restarts = 1000\n{filter}\n[[stream]]\nname = \"odd\"\ntriggers = [0]\n[[stream]]\nname = \"even\"\ntriggers = [1]\nordered = true\n\
         [[source]]\nid = 1\nreadout = \"ru0\"\nformat = \"generic\"\nemulate = {{ fragment_size = \"uniform(64, 3000)\", rate = \"5kHz\" }}\n\
         [[source]]\nid = 2\nreadout = \"ru0\"\nformat = \"generic\"\nemulate = {{ fragment_size = \"1KiB\", rate = \"5kHz\" }}\n",
        compile(directory.path(), &[]).display().to_string()
    );
    let file = directory.path().join("run.toml");
    std::fs::write(&file, text).expect("it is ours");
    file.display().to_string()
}

/// The contents of a stream's files: by number, the filter's result.
pub(crate) type Stream = BTreeMap<u64, (FilterResult, Vec<u8>)>;

pub(crate) fn stream(directory: &Path, name: &str) -> Stream {
    stream_in(directory, name, name == "even")
}

fn stream_in(directory: &Path, name: &str, is_ordered: bool) -> Stream {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("it can be read").path();
        if !path.to_string_lossy().contains(&format!("-{name}-")) {
            continue;
        }
        let mut reader = RunReader::open(&[&path]).expect("it is a segment");
        let mut last = 0;
        while let Some(event) = reader.next_event().expect("it can be read") {
            let number = event.event.head().key.number();
            assert!(!is_ordered || number > last, "in order");
            last = number;
            let sources = event.event.fragments().filter(|one| one.entry.source != SourceId::FILTER).count();
            assert_eq!(sources, 2, "event {number} is whole");
            let said =
                event.event.fragments().find(|one| one.entry.source == SourceId::FILTER).expect("a filter's result");
            let (said, own) = FilterResult::decode(said.payload).expect("it can be read");
            assert!(found.insert(number, (said, own.to_vec())).is_none(), "event {number} once");
        }
    }
    found
}

/// The children of a process.
pub(crate) fn children(process: u32) -> Vec<i32> {
    let path = format!("/proc/{process}/task");
    let tasks = std::fs::read_dir(path).into_iter().flatten().flatten();
    let listed = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    listed.flat_map(|line| line.split_whitespace().filter_map(|one| one.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Checks that every tenth event is in its stream with the filter's result, or was set aside, whole: one in each
/// `ends_over`, and possibly one that two filter units had when they were killed.
pub(crate) fn expect_each_once([odd, even, error]: [&Stream; 3], ends_over: u64, kills: usize) {
    let poison: Vec<u64> = (0..EVENTS / ends_over).map(|some| ends_over * some + 777).collect();
    assert!(poison.iter().all(|number| error.contains_key(number)), "{:?}", error.keys());
    assert!(error.len() <= poison.len() + kills, "{:?}", error.keys());
    for (said, own) in error.values() {
        assert_eq!((said.verdict, said.cause, own.len()), (Verdict::Quarantined, Some(Cause::FilterFailed), 0));
    }
    for number in (1..=EVENTS).filter(|number| number % 10 == 0) {
        let is_even = number % 20 == 0;
        let (right, wrong) = if is_even { (even, odd) } else { (odd, even) };
        assert!(
            right.contains_key(&number) != error.contains_key(&number) && !wrong.contains_key(&number),
            "event {number}"
        );
        if let Some((said, own)) = right.get(&number) {
            assert_eq!((said.verdict, &own[..]), (Verdict::Accepted, &number.to_le_bytes()[..]));
        }
    }
}

/// Checks that every decided event is in the histogram once, in the event manager's lumisections.
pub(crate) fn expect_each_filled_once(account: &Value, error: &Stream) {
    let directory = account["directory"].as_str().expect("a path");
    let sum = Program::start(["histograms", directory, "--json"]).end().expect_status(0).account();
    expect_form(&sum, &schema("histograms.json"));
    let kept = std::fs::read(Path::new(directory).join("histograms.json")).expect("the run wrote it");
    assert_eq!(sum, serde_json::from_slice::<Value>(&kept).expect("it is JSON"));
    let numbers = &sum["total"]["histograms"]["number"];
    let bins: Vec<u64> = numbers["bins"].as_array().expect("bins").iter().filter_map(Value::as_u64).collect();
    for (bin, &count) in (0..).zip(&bins) {
        let lost = error.keys().filter(|number| (**number - 1) / 10 == bin).count() as u64;
        assert_eq!(count, 10 - lost, "events {} to {}", 10 * bin + 1, 10 * bin + 10);
    }
    assert_eq!((bins.len(), &numbers["entries"]), (2000, &(EVENTS - error.len() as u64).into()));
    let of_manager = account["lumisections"].as_array().expect("a list");
    let lumisections = sum["lumisections"].as_array().expect("a list");
    assert_eq!((lumisections.len(), of_manager.len()), (4, 4));
    for (counted, due) in lumisections.iter().zip(of_manager) {
        assert_eq!(counted["lumisection"], due["number"]);
        let numbers = ["accepted", "rejected", "quarantined"].map(|name| (&counted[name], &due[name]));
        assert!(numbers.iter().all(|(counted, due)| counted == due), "{counted} {due}");
        let decided = ["accepted", "rejected"].iter().filter_map(|name| counted[name].as_u64()).sum::<u64>();
        assert_eq!(counted["histograms"]["number"]["entries"], decided);
    }
    let [odd, even] = ["0", "1"].map(|trigger| sum["total"]["triggers"][trigger].as_u64());
    let taken = ["odd", "even", "error"].map(|stream| sum["total"]["streams"][stream].as_u64());
    assert_eq!(taken, [odd, even, Some(error.len() as u64)]);
    assert_eq!(sum["total"]["dropped_fills"], 0);
}

#[test]
fn two_filter_units_that_are_killed_again_and_again_lose_nothing() {
    let directory = TemporaryDirectory::new("filter-killed");
    let config = configuration(&directory, "units = 2\nevents = 64");
    let (output, events) = (directory.path().display().to_string(), EVENTS.to_string());
    let mut run = Program::start(["run", &config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("listens");
    let (program, begin) = (run.id(), Instant::now());
    let mut kills = 0;
    while kills < 10 && begin.elapsed() < Duration::from_secs(3) {
        let there = wait_for("a filter unit", || Some(children(program)).filter(|there| !there.is_empty()));
        if let Some(child) = there.get(kills % there.len()).and_then(|child| Pid::from_raw(*child)) {
            kills += usize::from(kill_process(child, Signal::KILL).is_ok());
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    let account = run.end().expect_status(0).account();
    let (odd, even, error) = {
        let directory = PathBuf::from(account["directory"].as_str().expect("a path"));
        (stream(&directory, "odd"), stream(&directory, "even"), stream(&directory, "error"))
    };
    expect_each_once([&odd, &even, &error], 1000, kills);
    let count = |place: &str| account.pointer(place).and_then(serde_json::Value::as_u64);
    assert_eq!(count("/events/quarantined"), Some(error.len() as u64));
    assert_eq!(count("/events/accepted"), Some((odd.len() + even.len()) as u64));
    assert_eq!(count("/events/rejected"), Some(EVENTS - (odd.len() + even.len() + error.len()) as u64));
    assert!(count("/filter/restarts") >= Some(2 * EVENTS / 1000), "{}", account["filter"]);
    assert_eq!(count("/filter/copied_bytes"), Some(0), "events are read where they lie");
    expect_each_filled_once(&account, &error);
    let warnings = account["warnings"].to_string();
    assert!(
        warnings.contains("filter 0") && warnings.contains("filter 1"),
        "each tells why its processes ended: {warnings}"
    );
}

/// The same filter for a gateway without a farm, whose sources have the ports from `port` on.
fn gateway_configuration(directory: &TemporaryDirectory, port: u16, keys: &str, filter: &str) -> String {
    let text = std::fs::read_to_string(configuration(directory, filter)).expect("it is ours");
    let (begin, end) = (text.find("[[readout]]").expect("a unit"), text.find("[filter]").expect("a filter"));
    let filter = text[end..text.find("[[source]]").expect("a source")].replace("ordered = true\n", "");
    // Every event has a place: a gateway filled up by its slow filter would lose datagrams.
    let sets = EVENTS / 10 + 1;
    let gateway = format!(
        "[[flow]]\nname = \"hlt\"\npacking = 10\nsets = {sets}\nfirst_event = 1\nlargest_packet = \"16KiB\"\ntimeout = \"20s\"\n\
         decision_timeout = \"30s\"\nsources = {{ count = 2, first = 1, address = \"127.0.0.1:{port}\" }}\n\
         emulate = {{ fragment_size = \"uniform(64,700)\", rate = \"5kHz\" }}\n\
         [[gateway]]\nname = \"gw0\"\nlisten = {{ hlt = \"127.0.0.1:0\" }}\n{keys}\n[farm]\nnodes = 0\n"
    );
    let file = directory.path().join("gateway.toml");
    std::fs::write(&file, format!("{}{gateway}{filter}", &text[..begin])).expect("it is ours");
    file.display().to_string()
}

/// Checks the files and the account of a gateway's run.
fn expect_of_gateway(account: &Value, kills: usize) {
    expect_form(account, &schema("run.json"));
    let of = PathBuf::from(account["directory"].as_str().expect("a path"));
    let [odd, even, error] = ["odd", "even", "error"].map(|name| stream_in(&of, name, false));
    expect_each_once([&odd, &even, &error], 1000, kills);
    expect_each_filled_once(account, &error);
    assert_eq!(count(account, "/events/quarantined"), error.len() as u64);
    assert_eq!(count(account, "/events/accepted"), (odd.len() + even.len()) as u64);
    assert_eq!(count(account, "/events/rejected"), EVENTS - (odd.len() + even.len() + error.len()) as u64);
    assert_eq!((&account["farm"], &account["ledger"]["balanced"]), (&Value::Null, &true.into()));
}

#[test]
fn filter_units_of_a_gateway_that_are_killed_again_and_again_lose_nothing() {
    let directory = TemporaryDirectory::new("filter-gateway");
    let config = gateway_configuration(&directory, 27_900, "", "units = 2\nevents = 64");
    let (output, events) = (directory.path().display().to_string(), EVENTS.to_string());
    let mut run = Program::start(["run", &config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("listens");
    let mut kills = 0;
    for turn in 0..6 {
        let there = wait_for("a filter unit", || Some(children(run.id())).filter(|there| !there.is_empty()));
        let child = there.get(turn % there.len()).and_then(|child| Pid::from_raw(*child));
        kills += usize::from(child.is_some_and(|child| kill_process(child, Signal::KILL).is_ok()));
        std::thread::sleep(Duration::from_millis(150));
    }
    let account = run.end().expect_status(0).account();
    expect_of_gateway(&account, kills);
    assert!(count(&account, "/filter/restarts") >= 2 * EVENTS / 1000, "{}", account["filter"]);
    assert_eq!(count(&account, "/filter/copied_bytes"), 0, "events are read where they lie");
    let warnings = account["warnings"].to_string();
    assert!(warnings.contains("gw0: filter 0") && warnings.contains("gw0: filter 1"), "{warnings}");
}

#[test]
fn filter_nodes_decide_on_the_events_of_a_gateway() {
    let directory = TemporaryDirectory::new("filter-gateway-nodes");
    let config = gateway_configuration(&directory, 27_910, "architecture = \"threads\"", "units = 2\nevents = 64");
    let (node, address) = node(&config, "127.0.0.1:0");
    let run_config = with_nodes(&directory, &config, &[&address]);
    let (output, events) = (directory.path().display().to_string(), EVENTS.to_string());
    let account = Program::run(["run", &run_config, "--json", "--output", &output, "--events", &events]);
    expect_of_gateway(&account.expect_status(0).account(), 0);
    node.interrupt();
    node.end().expect_status(0);
}

#[test]
fn a_filter_that_always_ends_is_given_up_and_every_event_is_kept() {
    let directory = TemporaryDirectory::new("filter-given-up");
    let config = configuration(&directory, "units = 1");
    let text = std::fs::read_to_string(&config).expect("it is ours").replace("restarts = 1000", "restarts = 2");
    std::fs::write(&config, text).expect("it is ours");
    compile(directory.path(), &["-DENDS_OVER=1"]);
    let output = directory.path().display().to_string();
    let run = Program::start(["run", &config, "--json", "--output", &output, "--events", "500"]);
    let account = run.end().expect_status(3).account();
    assert_eq!(
        (&account["events"]["quarantined"], &account["filter"]["given_up"]),
        (&500.into(), &1.into()),
        "{account:#}"
    );
    assert_eq!(account["streams"]["error"]["written"], 500);
}

#[test]
fn a_stop_does_not_wait_for_a_filter_that_is_far_behind() {
    let directory = TemporaryDirectory::new("filter-behind");
    let patience = "[timeouts]\nreadout = \"200ms\"\nbuilder = \"400ms\"\nmanager = \"800ms\"\ndrain = \"4s\"";
    let config = configuration(&directory, &format!("units = 1\ntimeout = \"500ms\"\n{patience}"));
    compile(directory.path(), &["-DSLOW=50"]);
    let output = directory.path().display().to_string();
    let begin = Instant::now();
    let run = Program::start(["run", &config, "--json", "--output", &output, "--duration", "1s"]);
    let account = run.end().expect_status(0).account();
    let count = |of: &str| account["events"][of].as_u64().expect("a number");
    // One after the other they would take minutes.
    assert!(begin.elapsed() < Duration::from_secs(20) && count("built") > 600, "{account:#}");
    assert_eq!(count("accepted") + count("rejected") + count("quarantined"), count("built"));
    assert!(count("quarantined") > 300 && count("rejected") > 0, "{account:#}");
    let error = stream(&PathBuf::from(account["directory"].as_str().expect("a path")), "error");
    assert_eq!(error.len() as u64, count("quarantined"));
}

#[test]
fn what_cannot_be_used_is_said_before_the_run() {
    let directory = TemporaryDirectory::new("filter-wrong");
    let config = configuration(&directory, "");
    let text = std::fs::read_to_string(&config).expect("it is ours");
    for (library, why) in [("/nowhere/filter.so", "/nowhere/filter.so"), ("/proc/self/exe", "cannot be used")] {
        let tenth = directory.path().join("tenth.so").display().to_string();
        std::fs::write(&config, text.replace(&tenth, library)).expect("it is ours");
        let output = directory.path().display().to_string();
        let ended = Program::run(["run", &config, "--output", &output, "--events", "10"]);
        assert!(ended.status != Some(0) && ended.errors.contains(why), "{library}: {}", ended.errors);
    }
}

/// A machine without the filter need not have the library.
#[test]
fn config_check_refuses_a_library_that_cannot_be_used() {
    let directory = TemporaryDirectory::new("filter-checked");
    let config = configuration(&directory, "");
    let checked = Program::run(["config", "check", &config]);
    assert!(!checked.expect_status(0).errors.contains("warning"), "{checked:?}");
    let library = directory.path().join("tenth.so");
    std::fs::remove_file(&library).expect("it is ours");
    let checked = Program::run(["config", "check", &config]);
    let refused = format!("filter.library: {0}: cannot be loaded from {0}", library.display());
    assert!(checked.expect_status(2).errors.contains(&refused), "{checked:?}");
    assert!(checked.errors.contains("No such file or directory"), "{checked:?}");
    let text = std::fs::read_to_string(&config).expect("it is ours");
    let elsewhere = text.replace("[filter]", "[filter]\nnodes = [\"10.0.0.7:9200\"]");
    std::fs::write(&config, elsewhere).expect("it is ours");
    assert!(!Program::run(["config", "check", &config]).expect_status(0).errors.contains("cannot be loaded"));
    // With the event manager's address, the nodes are processes, possibly on other machines.
    std::fs::write(&config, format!("{text}\n[manager]\naddress = \"127.0.0.1:9300\"\n")).expect("it is ours");
    let warned = Program::run(["config", "check", &config]);
    assert!(warned.expect_status(0).errors.contains(&format!("warning: {refused}")), "{warned:?}");
}

/// A run of 200 events with this program as its filter, which gets this directory as its configuration.
fn run_with_program(directory: &TemporaryDirectory, program: &Path) -> crate::process::Ended {
    let told = directory.path().display().to_string();
    let text = format!(
        "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[filter]\nprogram = [{:?}]\nconfiguration = {told:?}\n\
         memory = \"64MiB\"\n[[source]]\nid = 1\nreadout = \"ru0\"\nformat = \"generic\"\nemulate = {{ fragment_size = \"1KiB\" }}\n",
        program.display().to_string()
    );
    let file = directory.path().join("program.toml");
    std::fs::write(&file, text).expect("it is ours");
    Program::run(["run", &file.display().to_string(), "--json", "--output", &told, "--events", "200"])
}

#[test]
fn a_program_cannot_write_look_into_others_or_take_more_memory() {
    let directory = TemporaryDirectory::new("filter-confined");
    let (root, program) = (Path::new(env!("CARGO_MANIFEST_DIR")), directory.path().join("confined"));
    let built = Command::new("cc")
        .args(["-std=gnu99", "-O2", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("../../bindings/c"))
        .arg("-o")
        .args([&program, &root.join("tests/program/confined.c"), &root.join("../../bindings/c/ropewalk_client.c")])
        .status();
    assert!(built.expect("cc is there").success());
    let there = directory.path().join("there");
    std::fs::write(&there, "as it was").expect("it is ours");
    let ended = run_with_program(&directory, &program);
    if ended.errors.contains("landlock is refused") {
        return ropewalk_tidy::skipped("filters::a_program_cannot_write", "no landlock");
    }
    let account = ended.expect_status(0).account();
    assert_eq!(account["events"]["accepted"], 200, "{ended:#?}");
    assert_eq!(std::fs::read_to_string(&there).expect("it is there still"), "as it was");
    let ended = run_with_program(&directory, &directory.path().join("nowhere"));
    assert!(ended.errors.contains("nowhere` cannot be started"), "{ended:#?}");
}

/// Nanoseconds of the clock that the filter also uses.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Stops a filter unit's process in any state, once two of them have existed for a while: a new one may take longer.
fn stop_one(run: &Program, which: usize) -> Pid {
    std::thread::sleep(Duration::from_millis(400));
    let there = wait_for("two filter units", || Some(children(run.id())).filter(|there| there.len() == 2));
    let process = Pid::from_raw(there[which % 2]).expect("a process");
    kill_process(process, Signal::STOP).expect("it is there");
    process
}

fn count(account: &Value, place: &str) -> u64 {
    account.pointer(place).and_then(Value::as_u64).unwrap_or_else(|| panic!("{place}: {account:#}"))
}

/// A filter unit that hangs is ended. A later signal to wake it finds no process, so it decides nothing more.
#[test]
fn a_filter_unit_that_stands_still_is_ended_and_what_it_had_is_decided_elsewhere_once() {
    let directory = TemporaryDirectory::new("filter-stopped");
    let config = configuration(&directory, "units = 2\nevents = 64\ntimeout = \"300ms\"");
    compile(directory.path(), &["-DENDS_OVER=20000"]);
    let (output, events) = (directory.path().display().to_string(), EVENTS.to_string());
    let mut run = Program::start(["run", &config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("listens");
    for which in 0..4 {
        let stopped = stop_one(&run, which);
        wait_for("its end", || (!children(run.id()).contains(&stopped.as_raw_nonzero().get())).then_some(()));
        assert_eq!(kill_process(stopped, Signal::CONT), Err(Errno::SRCH), "the process has ended");
    }
    let account = run.end().expect_status(0).account();
    let of = PathBuf::from(account["directory"].as_str().expect("a path"));
    let [odd, even, error] = ["odd", "even", "error"].map(|name| stream(&of, name));
    expect_each_once([&odd, &even, &error], EVENTS, 0);
    expect_each_filled_once(&account, &error);
    let decided = count(&account, "/events/accepted") + count(&account, "/events/rejected");
    assert_eq!(decided + error.len() as u64, EVENTS);
    assert_eq!(count(&account, "/filter/stale_decisions"), 0, "an ended unit sends no decision");
    let warnings = account["warnings"].to_string();
    assert!(warnings.contains("it took longer than `timeout`"), "{warnings}");
}

/// The other filter unit decides as fast as before, by the decision times that the filter records.
#[test]
fn while_one_filter_unit_hangs_the_other_one_decides_as_fast_as_before() {
    let directory = TemporaryDirectory::new("filter-hangs");
    let config = configuration(&directory, "units = 2\nevents = 64\ntimeout = \"4s\"");
    // An ordered stream would have to wait for the events of the hung one.
    let text = std::fs::read_to_string(&config).expect("it is ours").replace("\"even\"", "\"twentieth\"");
    let text = text.replace("ordered = true\n", "");
    std::fs::write(&config, text).expect("it is ours");
    compile(directory.path(), &["-DENDS_OVER=1000000", "-DTIMED"]);
    let output = directory.path().display().to_string();
    let mut run = Program::start(["run", &config, "--json", "--output", &output, "--events", "40000"]);
    run.expect_error_line_with("listens");
    std::thread::sleep(Duration::from_millis(1500));
    let begin = now();
    stop_one(&run, 0);
    let account = run.end().expect_status(0).account();
    assert_eq!(count(&account, "/events/accepted"), 4000, "{account:#}");
    assert!(count(&account, "/filter/returned") > 0, "it had events when it was stopped");
    let of = PathBuf::from(account["directory"].as_str().expect("a path"));
    let accepted = ["odd", "twentieth"].map(|name| stream(&of, name)).into_iter().flatten();
    let times: Vec<u64> = accepted
        .map(|(_, (_, own))| u64::from_le_bytes(own[8..].try_into().expect("the number and the time")))
        .collect();
    let between = |from: f64, to: f64| {
        let [from, to] = [from, to].map(|seconds| (begin as f64 + seconds * 1e9) as u64);
        times.iter().filter(|time| (from..to).contains(time)).count()
    };
    let before = between(-1.0, 0.0);
    assert!(before > 0, "it was running when one was stopped");
    // Check each second separately: a unit that waits for the other one waits in all of them.
    for second in [0.2, 1.2, 2.2] {
        let during = between(second, second + 1.0);
        assert!(
            2 * during >= before,
            "{during} a second instead of {before}, {second} s after the other one was stopped"
        );
    }
}

/// Starts a filter node. Returns its address.
fn node(config: &str, listen: &str) -> (Program, String) {
    let mut node = Program::start(["filter-node", config, "--listen", listen]);
    let address = node.expect_line("ready filter-node ");
    (node, address)
}

/// The configuration of a run with these nodes.
fn with_nodes(directory: &TemporaryDirectory, config: &str, nodes: &[&str]) -> String {
    let text = std::fs::read_to_string(config).expect("it is ours");
    let file = directory.path().join("with-nodes.toml");
    std::fs::write(&file, text.replace("[filter]\n", &format!("[filter]\nnodes = {nodes:?}\n"))).expect("it is ours");
    file.display().to_string()
}

#[test]
fn nodes_that_are_killed_and_come_back_lose_nothing_and_double_nothing() {
    let directory = TemporaryDirectory::new("filter-nodes");
    let config = configuration(&directory, "units = 2\nevents = 64");
    let (mut first, first_at) = node(&config, "127.0.0.1:0");
    let (second, second_at) = node(&config, "127.0.0.1:0");
    let run_config = with_nodes(&directory, &config, &[&first_at, &second_at]);
    let (output, events) = (directory.path().display().to_string(), EVENTS.to_string());
    let mut run = Program::start(["run", &run_config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("listens");
    let kills = 3;
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(700));
        // Killed on drop, without a message, like a machine that is switched off.
        drop(first);
        std::thread::sleep(Duration::from_millis(100));
        first = node(&config, &first_at).0;
    }
    let account = run.end().expect_status(0).account();
    let of = PathBuf::from(account["directory"].as_str().expect("a path"));
    let [odd, even, error] = ["odd", "even", "error"].map(|name| stream(&of, name));
    expect_each_once([&odd, &even, &error], 1000, kills);
    expect_each_filled_once(&account, &error);
    let warnings = account["warnings"].to_string();
    assert!(warnings.contains(&first_at) && warnings.contains("the connection was lost"), "{warnings}");
    for node in [first, second] {
        node.interrupt();
        let ended = node.end();
        assert!(ended.expect_status(0).errors.contains(" decisions; "), "{ended:?}");
    }
}

/// Events of a stalled node are decided elsewhere, once, and it gets work again when it continues.
#[test]
fn a_node_that_stands_still_too_long_decides_nothing_twice_when_it_goes_on() {
    let directory = TemporaryDirectory::new("filter-node-stopped");
    let config = configuration(&directory, "units = 2\nevents = 64\ntimeout = \"500ms\"");
    compile(directory.path(), &["-DENDS_OVER=20000"]);
    let (first, first_at) = node(&config, "127.0.0.1:0");
    let (_second, second_at) = node(&config, "127.0.0.1:0");
    let run_config = with_nodes(&directory, &config, &[&first_at, &second_at]);
    let (output, events) = (directory.path().display().to_string(), EVENTS.to_string());
    let mut run = Program::start(["run", &run_config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("listens");
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(500));
        first.pause();
        std::thread::sleep(Duration::from_millis(900));
        first.wake();
    }
    let account = run.end().expect_status(0).account();
    let of = PathBuf::from(account["directory"].as_str().expect("a path"));
    let [odd, even, error] = ["odd", "even", "error"].map(|name| stream(&of, name));
    expect_each_once([&odd, &even, &error], EVENTS, 0);
    expect_each_filled_once(&account, &error);
    assert!(account["filter"]["returned"].as_u64() > Some(0), "{}", account["filter"]);
    let warnings = account["warnings"].to_string();
    assert!(!warnings.contains("decided on something else"), "{warnings}");
}

/// A run waits for nodes that do not exist yet, and is not harmed.
#[test]
fn a_node_that_comes_late_is_waited_for() {
    let directory = TemporaryDirectory::new("filter-node-late");
    let config = configuration(&directory, "units = 1\nevents = 64");
    let (probe, address) = node(&config, "127.0.0.1:0");
    drop(probe);
    let run_config = with_nodes(&directory, &config, &[&address]);
    let output = directory.path().display().to_string();
    let mut run = Program::start(["run", &run_config, "--json", "--output", &output, "--events", "500"]);
    run.expect_error_line_with("listens");
    std::thread::sleep(Duration::from_millis(500));
    let (_node, _) = node(&config, &address);
    let account = run.end().expect_status(0).account();
    let count = |name: &str| account["events"][name].as_u64().expect("a count");
    assert_eq!((count("accepted"), count("rejected"), count("quarantined")), (50, 450, 0), "{account:#}");
}

/// A node's answer to these bytes until it closes: the kinds of its messages, and the last one's body.
fn answer(address: &str, bytes: &[u8]) -> (Vec<Kind>, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    // It may close before it has read everything.
    let _ = stream.write_all(bytes);
    let (mut kinds, mut text) = (Vec::new(), String::new());
    while let Some((kind, body)) = next_message(&mut stream) {
        kinds.push(kind);
        text = String::from_utf8_lossy(&body).into_owned();
    }
    (kinds, text)
}

/// The next message of a node: kind and body; `None` after the last one.
fn next_message(stream: &mut TcpStream) -> Option<(Kind, Vec<u8>)> {
    let mut head = [0; FRAME_BYTES];
    stream.read_exact(&mut head).ok()?;
    let frame = Frame::parse(&head).expect("it speaks as it should");
    let mut body = vec![0; frame.body as usize];
    stream.read_exact(&mut body).expect("its messages are whole");
    Some((frame.kind, body))
}

/// The first messages of a run to its node; the test is that node.
fn greeting(directory: &TemporaryDirectory, config: &str) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let run_config = with_nodes(directory, config, &[&listener.local_addr().expect("it listens").to_string()]);
    let output = directory.path().display().to_string();
    let _run = Program::start(["run", &run_config, "--json", "--output", &output, "--events", "1"]);
    let (mut stream, _) = listener.accept().expect("the run calls");
    let (kind, body) = next_message(&mut stream).expect("it says something");
    assert_eq!(kind, Kind::Hello);
    [&Frame { kind, body: body.len() as u32 }.to_bytes()[..], &body].concat()
}

/// The node is stalled while its filter decides on 63 events and ends at the next one, so that it sees all of that
/// at once.
#[test]
fn what_was_decided_before_a_filter_ended_is_said_before_the_connection_ends() {
    let directory = TemporaryDirectory::new("filter-node-said");
    let config = configuration(&directory, "units = 1\nevents = 64");
    compile(directory.path(), &["-DENDS_OVER=20000", "-DSLOW=4"]);
    let hello = greeting(&directory, &config);
    let (node, address) = node(&config, "127.0.0.1:0");
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    stream.write_all(&hello).expect("it listens");
    assert_eq!(next_message(&mut stream).map(|(kind, _)| kind), Some(Kind::Welcome));
    let numbers = 714..=777;
    let mut events = Vec::new();
    for (sequence, number) in (1..).zip(numbers.clone()) {
        let (key, attempt) = (EventKey::new(0, number), Attempt(0));
        let head = EventHead { sequence, key, attempt, trigger_type: 0, is_complete: true, fragments: 0 };
        encode_event(&head, [].iter(), &mut events);
    }
    stream.write_all(&events).expect("it listens");
    std::thread::sleep(Duration::from_millis(50));
    node.pause();
    std::thread::sleep(Duration::from_millis(600));
    node.wake();
    for number in numbers.clone().filter(|number| number != numbers.end()) {
        let (kind, body) = next_message(&mut stream).unwrap_or_else(|| panic!("nothing is said of {number}"));
        assert_eq!(kind, Kind::Decision);
        let (said, _) = decode_decision(&body, |_, _| ()).expect("a decision");
        assert_eq!((said.key.number(), said.accept), (number, Some(number % 10 == 0)));
    }
    assert!(next_message(&mut stream).is_none(), "nothing is said of what the filter ended over");
}

#[test]
fn hostile_callers_are_refused_and_do_no_harm() {
    let directory = TemporaryDirectory::new("filter-node-hostile");
    let config = configuration(&directory, "units = 1\nevents = 64");
    let (mut node, address) = node(&config, "127.0.0.1:0");
    let message = |kind, body: &[u8]| [&Frame { kind, body: body.len() as u32 }.to_bytes()[..], body].concat();
    let (mut hello, mut begin) = (Vec::new(), Vec::new());
    encode_hello(1234, &mut hello);
    encode_begin(RunNumber(1), &mut begin);
    let newer = message(Kind::Hello, &(FILTER_NODE_VERSION + 1).to_le_bytes());
    let oversized = [&b"RWU"[..], &[Kind::Hello as u8], &u32::MAX.to_le_bytes()].concat();
    for (bytes, words) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "wrong magic number"),
        (&oversized, "longer than allowed"),
        (&newer, "this node speaks version 1"),
        (&hello, "another filter"),
        (&begin, "has no place here"),
        (&message(Kind::Event, &[0; 100]), "has no place here"),
        (&message(Kind::Decision, &[0; 100]), "has no place here"),
        (&message(Kind::Hello, &[1, 0, 7]), "ends before"),
    ] {
        let (kinds, text) = answer(&address, bytes);
        assert_eq!(kinds, [Kind::Refuse], "{text}");
        assert!(text.contains(words), "{text} instead of {words}");
    }
    assert!(!node.has_ended());
    let run_config = with_nodes(&directory, &config, &[&address]);
    let output = directory.path().display().to_string();
    let run = ["run", &run_config, "--json", "--output", &output, "--events", "500"];
    let account = Program::run(run).expect_status(0).account();
    assert_eq!(account["events"]["accepted"], 50, "{account:#}");
    node.interrupt();
    let ended = node.end();
    assert!(ended.expect_status(0).errors.contains("and 8 refused"), "{ended:?}");
    assert!(Path::new(&output).exists());
}
