//! Filters in C in processes of their own, which end over an event or are ended by somebody else, in whole runs.

use crate::forms::{expect_form, schema};
use crate::process::Program;
use crate::support::{TemporaryDirectory, wait_for};
use ropewalk_node::offline::RunReader;
use ropewalk_terms::{Cause, SourceId, Verdict};
use ropewalk_wire::filter_result::FilterResult;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const EVENTS: u64 = 20_000;

/// The filter of `tenth.c` as a library, with these macros.
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

/// What a stream's files hold: by number, what the filter said.
pub(crate) type Stream = BTreeMap<u64, (FilterResult, Vec<u8>)>;

pub(crate) fn stream(directory: &Path, name: &str) -> Stream {
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
            assert!(name != "even" || number > last, "in order");
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

/// Every tenth event is in its stream with what the filter said of it, or it was set aside, whole: one of each `ends_over`, and with
/// bad luck one that two filter units had when they were killed.
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

/// Every event that was decided is in the histogram once, in the lumisections that the event manager made of the run.
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

#[test]
fn a_filter_that_always_ends_is_given_up_and_every_event_is_kept() {
    let directory = TemporaryDirectory::new("filter-given-up");
    let config = configuration(&directory, "units = 1");
    let text = std::fs::read_to_string(&config).expect("it is ours").replace("restarts = 1000", "restarts = 2");
    std::fs::write(&config, text).expect("it is ours");
    compile(directory.path(), &["-DENDS_OVER=1"]);
    let output = directory.path().display().to_string();
    let run = Program::start(["run", &config, "--json", "--output", &output, "--events", "500"]);
    let account = run.end().expect_status(0).account();
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

/// The machine on which a configuration is checked need not have the library.
#[test]
fn config_check_warns_of_a_library_that_is_not_there_and_of_none_that_is() {
    let directory = TemporaryDirectory::new("filter-checked");
    let config = configuration(&directory, "");
    let checked = Program::run(["config", "check", &config]);
    assert!(!checked.expect_status(0).errors.contains("warning"), "{checked:?}");
    let library = directory.path().join("tenth.so");
    std::fs::remove_file(&library).expect("it is ours");
    let checked = Program::run(["config", "check", &config]);
    let warning = format!("warning: filter.library: {0}: cannot be loaded from {0}", library.display());
    assert!(checked.expect_status(0).errors.contains(&warning), "{checked:?}");
    assert!(checked.errors.contains("No such file or directory"), "{checked:?}");
}

/// A run of 200 events with this program as its filter, which is told this directory.
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
