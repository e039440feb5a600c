//! File-based filtering: files of events, a broker, and filter units that are killed.

use crate::filters::compile;
use crate::forms::{expect_form, schema};
use crate::process::{Program, example};
use crate::support::TemporaryDirectory;
use ropewalk_wire::foreign::ForeignFormat;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::Duration;

const EVENTS: u32 = 2000;
/// The triggers of the filter units in the example.
const TRIGGERS: &str = r#"triggers = [{ random = { share = 0.1 } }, { size = { least = "2500" } }]"#;

fn fed(source: u32, event: u32) -> Vec<u8> {
    ForeignFormat::Fed.emulate(source, event, &[event as u8; 160]).expect("it is short").concat()
}

/// A run's directory with files of five events, in lumisections of a thousand.
fn run_directory(directory: &TemporaryDirectory) -> String {
    let path = |name: &str| directory.path().join(name).display().to_string();
    let files = [841, 843].map(|source| {
        let bytes: Vec<u8> = (1..=EVENTS).flat_map(|event| fed(source, event)).collect();
        std::fs::write(path(&source.to_string()), bytes).expect("it is ours");
        path(&source.to_string())
    });
    Program::run(["convert", &files[0], &files[1], "--output", &path("events")]).expect_status(0);
    let wanted = ["--to", "frd", "--file-events", "5", "--lumisection-events", "1000"];
    let run = path("events/run000001");
    Program::run([&["convert", &run, "--output", &path("files")][..], &wanted].concat()).expect_status(0);
    path("files/run000001")
}

/// The processes that threads of this one have started.
fn children(of: u32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    texts
        .flat_map(|text| text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Converts all accepted events back to a run, in order.
fn raw_again(directory: &TemporaryDirectory, run: &str) -> Vec<u8> {
    let output = std::fs::read_dir(PathBuf::from(run).join("output")).expect("it was made");
    let mut files: Vec<String> = output.map(|entry| entry.expect("an entry").path().display().to_string()).collect();
    files.retain(|file| file.ends_with(".raw"));
    files.sort();
    let to = directory.path().join("again").display().to_string();
    let arguments = [&["convert", "--from", "frd", "--output", &to].map(str::to_owned)[..], &files].concat();
    Program::run(arguments).expect_status(0);
    Program::run(["convert", &format!("{to}/run000001"), "--to", "raw", "--output", &to]).expect_status(0);
    std::fs::read(directory.path().join("again/run000001.raw")).expect("it was written")
}

#[test]
fn filter_units_that_are_killed_lose_nothing_and_double_nothing() {
    let directory = TemporaryDirectory::new("filter-files");
    let run = run_directory(&directory);
    let broker = Program::start(["filter-files", &run, "--units", "2", "--tries", "50", "--json"]);
    let (mut killed, socket) = (0, PathBuf::from(&run).join("broker.socket"));
    // On a busy machine none of them may have had a file yet: the broker gives up after ten ends in a row.
    while killed == 0 || socket.exists() {
        std::thread::sleep(Duration::from_millis(60));
        if killed < 9
            && let Some(unit) = children(broker.id()).first().and_then(|&pid| Pid::from_raw(pid))
        {
            killed += u32::from(kill_process(unit, Signal::KILL).is_ok());
        }
    }
    let account = broker.end().expect_status(0).account();
    expect_form(&account, &schema("files.json"));
    let count = |name: &str| account[name].as_u64().unwrap_or_default();
    assert_eq!((count("files"), count("decided"), count("processed")), (400, 400, EVENTS.into()), "{account:#}");
    assert_eq!(
        (&account["balanced"], &account["streams"][0]["written"]),
        (&true.into(), &EVENTS.into()),
        "{account:#}"
    );
    assert!(count("restarts") > 0 && killed > 0, "{killed} were killed: {account:#}");
    let expected: Vec<u8> = (1..=EVENTS).flat_map(|event| [fed(841, event), fed(843, event)].concat()).collect();
    assert!(raw_again(&directory, &run) == expected, "every event is there, once and in its order");
}

#[test]
fn a_killed_broker_is_followed_by_another_one_and_units_may_come_by_themselves() {
    let directory = TemporaryDirectory::new("filter-unit");
    let run = run_directory(&directory);
    let broker = Program::start(["filter-files", &run, "--units", "1", "--trigger", "every = 10"]);
    let document = PathBuf::from(&run).join("output/run000001_ls0001_index000003.jsn");
    while !document.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(broker);
    let mut second = Program::start(["filter-files", &run, "--units", "0", "--json"]);
    let ended = loop {
        // It fails until the second broker listens.
        let unit = Program::run(["filter-unit", &run, "--trigger", "every = 10"]);
        if unit.status == Some(0) {
            break unit;
        }
        assert!(!second.has_ended(), "{unit:#?}");
    };
    ended.expect_status(0);
    let account = second.end().expect_status(0).account();
    assert_eq!((&account["balanced"], &account["processed"]), (&true.into(), &EVENTS.into()), "{account:#}");
    let expected: Vec<u8> =
        (10..=EVENTS).step_by(10).flat_map(|event| [fed(841, event), fed(843, event)].concat()).collect();
    assert!(raw_again(&directory, &run) == expected, "every tenth event is there");
}

#[test]
fn a_filter_unit_that_stands_still_is_ended_and_its_file_goes_to_another_one() {
    let directory = TemporaryDirectory::new("filter-still");
    let run = run_directory(&directory);
    let broker = Program::start(["filter-files", &run, "--units", "1", "--time-out", "500ms", "--json"]);
    let document = PathBuf::from(&run).join("output/run000001_ls0001_index000003.jsn");
    while !document.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let unit = children(broker.id()).first().and_then(|&pid| Pid::from_raw(pid)).expect("it is at work");
    kill_process(unit, Signal::STOP).expect("it lives");
    let account = broker.end().expect_status(0).account();
    let count = |name: &str| account[name].as_u64().unwrap_or_default();
    assert_eq!((count("restarts"), count("decided")), (1, 400), "{account:#}");
    // No file is given back if the unit was stopped between two files.
    assert!(count("given_back") <= 1, "{account:#}");
    assert_eq!(account["balanced"], true, "{account:#}");
    assert!(kill_process(unit, Signal::CONT).is_err(), "it is gone");
}

#[test]
fn what_cannot_be_filtered_says_why() {
    let directory = TemporaryDirectory::new("filter-wrong");
    let place = directory.path().display().to_string();
    let run = directory.path().join("run000001");
    std::fs::create_dir(&run).expect("it is ours");
    let run = run.display().to_string();
    for (arguments, hint) in [
        (&["filter-files", "/nowhere"][..], "/nowhere"),
        (&["filter-files", &place], "named after it"),
        (&["filter-unit", &place], "named after it"),
        (&["filter-files", &place, "--trigger", "good"], "share = 0.1"),
        (&["filter-unit", &place, "--stream", "physics"], "prescale = 10"),
        (&["filter-files", &run, "--stream", "name = \"a\", prescale = 0"], "keeps nothing"),
        (&["filter-files", &run, "--stream", "name = \"A\""], "a-z"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

/// Kills filter units of a program repeatedly until it has ended. Returns the number of killed ones.
fn kill_units_of(program: &mut Program) -> u32 {
    let mut killed = 0;
    while !program.has_ended() {
        std::thread::sleep(Duration::from_millis(200));
        if let Some(unit) = children(program.id()).first().and_then(|&pid| Pid::from_raw(pid)) {
            killed += u32::from(kill_process(unit, Signal::KILL).is_ok());
        }
    }
    killed
}

/// The sum of a stream over all lumisections, from the merger's documents.
fn sum_of(output: &Path, stream: &str) -> StreamSum {
    let entries = std::fs::read_dir(output).expect("it is there").map(|entry| entry.expect("an entry").path());
    let end = format!("_stream{stream}.jsn");
    let documents = entries.filter(|path| path.display().to_string().ends_with(&end));
    documents.fold(StreamSum::default(), |sum, path| {
        let text = std::fs::read_to_string(path).expect("it is ours");
        let one: serde_json::Value = serde_json::from_str(&text).expect("a document");
        let count = |name: &str| one[name].as_u64().expect("a count");
        StreamSum {
            selected: sum.selected + count("selected"),
            prescaled_away: sum.prescaled_away + count("prescaled_away"),
            written: sum.written + count("written"),
        }
    })
}

#[derive(Debug, Default)]
struct StreamSum {
    selected: u64,
    prescaled_away: u64,
    written: u64,
}

#[test]
fn the_same_triggers_accept_the_same_events_in_files_as_in_run_files() {
    let directory = TemporaryDirectory::new("file-based-same");
    let triggers = "triggers = [{ every = 7 }, { random = { share = 0.1, seed = 3 } }, { size = { least = \"2500\" } }, \
                    { bytes = { source = 843, offset = 3, mask = [15], at_most = 2 } }]";
    let accepted = |name: &str, changes: &[(&str, &str)]| {
        let file = example(&directory, "file-based-hlt.toml", changes);
        let output = directory.path().join(name).display().to_string();
        let account = Program::run(["run", &file, "--events", "1000", "--output", &output, "--json"]);
        account.expect_status(0).account()
    };
    let files = accepted("files", &[(TRIGGERS, triggers)]);
    let in_builder = format!("[filter]\n{triggers}");
    let run_files = accepted(
        "run-files",
        &[
            ("[file_based]", "[storage]"),
            ("file_events = 1000", ""),
            ("file_time = \"500ms\"", ""),
            ("units = 2", ""),
            ("tries = 100", ""),
            (TRIGGERS, &in_builder),
        ],
    );
    assert_eq!(files["file_based"]["accepted"], run_files["events"]["accepted"], "{files:#}");
    let selected = sum_of(&directory.path().join("files/run000001/output"), "monitoring").selected;
    assert_eq!(selected, run_files["streams"]["monitoring"]["selected"], "{run_files:#}");
}

#[test]
fn a_run_writes_files_for_filter_units_that_are_killed_and_its_ledger_balances() {
    let directory = TemporaryDirectory::new("file-based-run");
    let changes = [("file_events = 1000", "file_events = 100"), (r#"{ time = "23s" }"#, "{ events = 10000 }")];
    let file = example(&directory, "file-based-hlt.toml", &changes);
    let output = directory.path().display().to_string();
    let mut run = Program::start(["run", &file, "--duration", "3s", "--output", &output, "--json"]);
    let killed = kill_units_of(&mut run);
    let account = run.end().expect_status(0).account();
    expect_form(&account, &schema("run.json"));
    let place = directory.path().join("run000001");
    let (files, written) = (&account["file_based"], &account["events"]["written"]);
    let count = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    let decided = ["accepted", "rejected", "set_aside"].map(|fate| count(&files[fate]));
    assert_eq!(decided.iter().sum::<u64>(), count(written), "{files:#}");
    let [monitoring, physics] = ["monitoring", "physics"].map(|name| sum_of(&place.join("output"), name));
    assert_eq!((physics.selected, physics.written, physics.prescaled_away), (decided[0], decided[0], 0), "{files:#}");
    assert_eq!(monitoring.selected, monitoring.prescaled_away + monitoring.written);
    assert!(monitoring.written.abs_diff(monitoring.selected / 10) <= 5 + monitoring.selected / 50, "{monitoring:?}");
    assert!(monitoring.selected < decided[0], "{monitoring:?}: large ones alone");
    assert!(decided[0] > 0 && decided[2] == 0 && count(written) > 5000, "{files:#}");
    assert!(killed > 3 && count(&files["restarts"]) > 0, "{killed} were killed: {files:#}");
    // Nothing remains of decided files, and each lumisection has its sum.
    let names = |place: PathBuf| {
        let entries = std::fs::read_dir(place).expect("it is there");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect::<Vec<_>>()
    };
    assert!(!names(place.clone()).iter().any(|name| name.ends_with(".raw")), "every file was decided");
    assert!(names(place.join("open")).is_empty());
    let closed = names(place.join("output")).iter().filter(|name| name.ends_with("_EoLS.jsn")).count();
    assert_eq!(closed, account["lumisections"].as_array().map_or(0, Vec::len), "{account:#}");
    // Accepted and rejected events of filter units add up to those that builder units wrote, and streams to those of
    // the run.
    let (built, filed) = (account["lumisections"].as_array(), files["lumisections"].as_array());
    let (built, filed) = (built.expect("a list"), filed.expect("a list"));
    assert!(built.len() == filed.len() && filed.len() > 1, "{account:#}");
    for (of_builders, of_units) in built.iter().zip(filed) {
        let [number, events, accepted, rejected] =
            ["number", "events", "accepted", "rejected"].map(|name| count(&of_units[name]));
        assert_eq!((count(&of_builders["number"]), count(&of_builders["accepted"])), (number, events), "{files:#}");
        assert_eq!((accepted + rejected, count(&of_units["set_aside"])), (events, 0), "{files:#}");
        assert_eq!(count(&of_units["streams"]["physics"]["written"]), accepted, "{files:#}");
    }
    let of_run = |member: &str| count(&files["streams"]["monitoring"][member]);
    let of_all = |member: &str| filed.iter().map(|one| count(&one["streams"]["monitoring"][member])).sum::<u64>();
    assert_eq!((of_run("selected"), of_run("written")), (monitoring.selected, monitoring.written));
    assert_eq!((of_all("selected"), of_all("written")), (monitoring.selected, monitoring.written));
}

#[test]
fn what_files_of_events_cannot_hold_is_refused_before_the_run() {
    let directory = TemporaryDirectory::new("file-based-refused");
    let generic = ("id = 843", "id = 843\nformat = \"generic\"");
    let filter = ("[[builder]]", "[filter]\ntriggers = [\"all\"]\n[[builder]]");
    for (change, message) in [(generic, "FED fragments alone"), (filter, "events are decided once")] {
        let file = example(&directory, "file-based-hlt.toml", &[change]);
        let ended = Program::run(["config", "check", &file]);
        assert!(ended.expect_status(2).errors.contains(message), "{ended:#?}");
    }
    let library = (TRIGGERS, "library = \"/nowhere/filter.so\"");
    let file = example(&directory, "file-based-hlt.toml", &[library]);
    let output = directory.path().join("library").display().to_string();
    let ended = Program::run(["run", &file, "--events", "50", "--output", &output]);
    assert!(ended.expect_status(2).errors.contains("/nowhere/filter.so"), "{ended:#?}");
    // Another run with the same number, whose run directories are elsewhere.
    let path = |name: &str| directory.path().join(name).display().to_string();
    let there = format!("units = 0\ndirectory = {:?}", path("memory"));
    let file = example(&directory, "file-based-hlt.toml", &[("units = 2", &there)]);
    let run = |output: &str| Program::run(["run", &file, "--events", "50", "--output", &path(output), "--json"]);
    assert_eq!(run("one").expect_status(0).account()["file_based"], serde_json::Value::Null, "no filter is configured");
    let ended = run("two");
    assert!(ended.expect_status(2).errors.contains("files of another run"), "{ended:#?}");
    let broker = Program::run(["filter-files", &path("memory/run000001"), "--units", "1", "--json"]);
    assert_eq!(broker.expect_status(0).account()["processed"], 50);
}

#[test]
fn a_library_decides_on_files_and_one_that_it_always_crashes_over_is_set_aside_whole() {
    let directory = TemporaryDirectory::new("file-based-library");
    let library = format!("library = {:?}", compile(directory.path(), &[]).display().to_string());
    let changes = [("file_events = 1000", "file_events = 10"), (TRIGGERS, &library), ("tries = 100", "tries = 2")];
    let file = example(&directory, "file-based-hlt.toml", &changes);
    let output = directory.path().display().to_string();
    let run = Program::run(["run", &file, "--events", "1000", "--output", &output, "--json"]);
    let account = run.expect_status(3).account();
    // Every tenth, except in the file with event 777, which has ten events, or fewer if it was closed by time.
    let files = &account["file_based"];
    let count = |name: &str| files[name].as_u64().unwrap_or_default();
    assert_eq!((count("files_set_aside"), &account["ledger"]["balanced"]), (1, &true.into()), "{account:#}");
    assert!((1..=10).contains(&count("set_aside")) && (98..=100).contains(&count("accepted")), "{files:#}");
    assert_eq!(count("given_back"), 2, "{files:#}");
}

#[test]
fn a_library_that_opens_a_file_or_takes_too_much_memory_ends_and_its_files_are_kept() {
    let directory = TemporaryDirectory::new("file-based-confined");
    let opened = directory.path().join("opened");
    let opens = format!("-DOPENS={:?}", opened.display().to_string());
    for (macros, named) in [(&*opens, "open"), ("-DTAKES=100000000", "SIGABRT")] {
        let library = compile(directory.path(), &[macros]).display().to_string();
        let library = format!("library = {library:?}\nmemory = \"64MiB\"");
        let changes = [("file_events = 1000", "file_events = 10"), (TRIGGERS, &library), ("tries = 100", "tries = 2")];
        let file = example(&directory, "file-based-hlt.toml", &changes);
        let output = directory.path().display().to_string();
        let ended = Program::run(["run", &file, "--events", "1000", "--output", &output, "--json"]);
        assert!(!opened.exists(), "{ended:#?}");
        if ended.errors.contains("seccomp is refused") || ended.errors.contains("seccomp and landlock are refused") {
            return ropewalk_tidy::skipped("file_based::a_library_that_opens_a_file", "no seccomp");
        }
        assert!(ended.errors.contains("event 777") && ended.errors.contains(named), "{named}: {ended:#?}");
        let account = ended.expect_status(3).account();
        let files = &account["file_based"];
        assert_eq!((&files["files_set_aside"], &files["restarts"]), (&1.into(), &0.into()), "units live on: {files:#}");
        assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    }
}

#[test]
fn each_builder_unit_has_a_directory_of_its_own_and_all_close_the_same_lumisections() {
    let directory = TemporaryDirectory::new("file-based-two");
    let two = "[[builder]]\nname = \"bu1\"\n\n[[builder]]";
    let changes =
        [("file_events = 1000", "file_events = 10"), (r#"{ time = "23s" }"#, "{ events = 700 }"), ("[[builder]]", two)];
    let file = example(&directory, "file-based-hlt.toml", &changes);
    let output = directory.path().display().to_string();
    let account = Program::run(["run", &file, "--events", "2000", "--output", &output, "--json"]);
    let account = account.expect_status(0).account();
    let files = &account["file_based"];
    assert_eq!(
        (&account["ledger"]["balanced"], files["directories"].as_array().map(Vec::len)),
        (&true.into(), Some(2))
    );
    let numbers = |builder: &str, lumisection: u32| {
        // By position in the configuration, where `bu1` is first.
        let source = if builder == "bu1" { "BU-0" } else { "BU-1" };
        let name = format!("{builder}/run000001/run000001_ls{lumisection:04}_EoLS.jsn");
        let text = std::fs::read_to_string(directory.path().join(name)).expect("it was closed");
        let document: serde_json::Value = serde_json::from_str(&text).expect("a document");
        assert_eq!(document["source"], source, "as CMS's conventions name builder units");
        let number = |place: usize| document["data"][place].as_str().and_then(|number| number.parse::<u64>().ok());
        (number(0).expect("its own events"), number(2).expect("those of all"))
    };
    for (lumisection, events) in [(1, 700), (2, 700), (3, 600)] {
        let [(one, all), (other, same)] = ["bu0", "bu1"].map(|builder| numbers(builder, lumisection));
        assert_eq!((one + other, all, same), (events, events, events), "lumisection {lumisection}: {files:#}");
    }
}
