//! Exit statuses, as `docs/cli.md` promises them.

use crate::process::Program;
use crate::support::{FrontEnd, Setup, SmallDisk, wait_for};
use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::Path;

#[test]
fn a_bad_configuration_is_status_2_and_names_the_place() {
    let setup = Setup::new("bad", &[841]);
    let good = setup.text();
    for (wrong, place, hint) in [
        (good.replace("id = 841", "id = 5000"), "source[0].id", "0 to 4095"),
        (good.replace("id = 841", "id = 4294967293"), "source[0].id", "stored with events"),
        (good.replace("id = 841", "id = 4294967295"), "source[0].id", "the ids above 4294967292"),
        (good.replace("readout = \"ru0\"", "readout = \"ru9\""), "source[0].readout", "did you mean `ru0`?"),
        (good.replace("window = 256", "window = 0"), "readout[0].window", "between 1 and"),
        (good.replace("window = 256", "wimdow = 256"), "", "wimdow"),
        (good.replace("version = 1", "version = 1 1"), "", ""),
        (good.replace("pool = \"8MiB\"", "pool = \"${ROPEWALK_NO_SUCH_VARIABLE}\""), "", "is not set"),
    ] {
        let file = setup.directory().join("bad.toml");
        fs::write(&file, &wrong).expect("a file can be written");
        let file = file.to_str().expect("a path in UTF-8");
        for arguments in [&["config", "check", file][..], &["run", file], &["node", "manager", file]] {
            let ended = Program::run(arguments);
            ended.expect_status(2);
            let is_told = [place, hint, "bad.toml:"].iter().all(|part| ended.errors.contains(part));
            assert!(is_told && ended.out.is_empty(), "{place} {hint}: {ended:#?}");
        }
    }
}

#[test]
fn a_configuration_that_is_not_there_is_status_2() {
    let ended = Program::run(["run", "no-such-file.toml"]);
    assert!(ended.expect_status(2).errors.contains("no-such-file.toml"), "{ended:#?}");
}

#[test]
fn wrong_usage_is_status_2_and_says_what_would_be_right() {
    let setup = Setup::new("usage", &[841]);
    let file = setup.file();
    let file = file.to_str().expect("a path in UTF-8");
    for (arguments, hint) in [
        (&["run"][..], "CONFIG"),
        (&["walk"], "ropewalk"),
        (&["demo", "--rate", "fast"], "kHz"),
        (&["demo", "--sources", "0"], "at least one source"),
        (&["node", "builder", file], "bu0"),
        (&["node", "readout", file, "--name", "ru7"], "ru0"),
        (&["node", "builder", file, "--name", "bu0", "--at", "ru0"], "NAME=ADDRESS"),
    ] {
        let ended = Program::run(arguments);
        ended.expect_status(2);
        assert!(ended.errors.to_lowercase().contains(&hint.to_lowercase()), "{hint}: {ended:#?}");
    }
}

#[test]
fn a_name_that_does_not_resolve_is_called_that() {
    let setup = Setup::new("name", &[841]);
    let named = |keys: &str| {
        let text = setup.text().replacen("id = 841", &format!("id = 841\nformat = \"midas\"\n{keys}"), 1);
        let file = setup.directory().join("named.toml");
        fs::write(&file, text).expect("a file can be written");
        file.display().to_string()
    };
    let source = |keys: &str| vec!["run".to_owned(), named(keys)];
    let replay = ["replay", "nothing", "--to", "udp://board.invalid:9"].map(str::to_owned).to_vec();
    for arguments in
        [source("connect = \"tcp://board.invalid:5000\""), source("listen = \"tcp://board.invalid:0\""), replay]
    {
        let ended = Program::run(&arguments);
        let told = ended.errors.contains("`board.invalid`") && ended.errors.contains("does not resolve");
        assert!(told && matches!(ended.status, Some(2 | 4)), "{arguments:?}: {ended:#?}");
    }
}

#[test]
fn a_port_that_is_taken_is_status_4_and_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = holder.local_addr().expect("it is bound").to_string();
    let setup =
        Setup::new("port", &[841]).readout(&format!("listen = \"{address}\"\npool = \"8MiB\"\nblock = \"16KiB\"\n"));
    let ended = Program::run(["run".as_ref(), setup.file().as_os_str()]);
    assert!(ended.expect_status(4).errors.contains(&address), "{ended:#?}");
    assert!(!setup.output().exists(), "a run that could not be set up leaves nothing behind");
}

#[test]
fn files_that_are_not_there_are_status_2() {
    let setup = Setup::new("nothing", &[841]);
    let directory = setup.directory().to_str().expect("a path in UTF-8");
    for (arguments, hint) in [
        (&["verify", directory][..], "no run files here"),
        (&["inspect", directory], "no run files here"),
        (&["verify", "no-such-run"], "no-such-run"),
        (&["recover", "no-such-run"], "no-such-run"),
        (&["inspect", directory, "--event", "first"], "RESYNC:NUMBER"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

/// A configuration for another machine says so before anything is begun.
#[test]
fn a_cpu_that_is_not_there_is_status_2() {
    let setup = Setup::new("cpu", &[841]).and("[[thread]]\nmatch = \"ru0\"\ncpus = \"8191\"\n");
    let file = setup.file();
    let file = file.to_str().expect("a path in UTF-8");
    for arguments in [&["config", "check", file][..], &["run", file], &["node", "manager", file]] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains("CPU 8191; it may run on"), "{ended:#?}");
        assert!(ended.errors.contains("thread[0].cpus") && ended.errors.contains(" | cpus = \"8191\"\n"), "{ended:#?}");
    }
    assert!(!setup.output().exists(), "nothing is begun");
}

#[test]
fn a_run_may_end_with_its_sources() {
    let setup = Setup::new("sources-end", &[841, 843]);
    let file = setup.directory().join("ends.toml");
    let text = setup.text().replace("[run]", "[run]\nuntil_sources_end = true");
    fs::write(&file, text).expect("a file can be written");
    let mut program = Program::start(["run".as_ref(), file.as_os_str(), "--json".as_ref()]);
    let address = program.expect_error_line("ru0 listens on ");
    let mut first = FrontEnd::ferol(&address, 841);
    first.send(1..=50);
    drop(first);
    // The first one has come and gone; the run waits for the other all the same.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!program.has_ended());
    let mut second = FrontEnd::ferol(&address, 843);
    second.send(1..=50);
    drop(second);
    let account = program.end().expect_status(0).account();
    assert_eq!(account["events"]["built"], 50, "{account:#}");
}

#[test]
fn an_output_that_is_no_directory_is_status_4() {
    let setup = Setup::new("output", &[841]);
    fs::write(setup.output(), "a file").expect("a file can be written");
    let ended = Program::run(["run".as_ref(), setup.file().as_os_str()]);
    let output = setup.output().display().to_string();
    assert!(ended.expect_status(4).errors.contains(&output), "{ended:#?}");
}

#[test]
fn incomplete_events_are_status_3() {
    let setup = Setup::new("incomplete", &[841, 843]);
    let arguments = ["--events".as_ref(), "50".as_ref(), "--json".as_ref()];
    let file = setup.file();
    let mut program = Program::start(["run".as_ref(), file.as_os_str()].into_iter().chain(arguments));
    let address = program.expect_error_line("ru0 listens on ");
    let (mut skips, mut good) = (FrontEnd::ferol(&address, 841), FrontEnd::ferol(&address, 843));
    good.send(1..=50);
    skips.send((1..=50).filter(|&event| event != 20));
    let account = program.end().expect_status(3).account();
    assert_eq!((&account["events"]["built"], &account["events"]["incomplete_emitted"]), (&49.into(), &1.into()));
    assert_eq!(account["gaps"], serde_json::json!({ "841": [{ "first": "20", "last": "20", "missing": 1 }] }));
}

#[test]
fn a_run_without_any_input_is_good() {
    let setup = Setup::new("quiet", &[841]);
    let file = setup.file();
    let ended =
        Program::run(["run".as_ref(), file.as_os_str(), "--duration".as_ref(), "1s".as_ref(), "--json".as_ref()]);
    let account = ended.expect_status(0).account();
    assert_eq!((&account["state"], &account["events"]["assigned"]), (&"ended".into(), &0.into()), "{account:#}");
}

/// Whoever looks at the run is told at once what it waits for, and that it goes on by itself when there is room.
#[test]
fn a_full_disk_is_told_at_once() {
    let setup = Setup::new("told", &[841]);
    let output = setup.output();
    let Some(_disk) = SmallDisk::mount(&output) else {
        return ropewalk_tidy::skipped("statuses::a_full_disk_is_told_at_once", "may not mount");
    };
    let filler = output.join("filler");
    fs::write(&filler, vec![1; 7 << 20]).expect("the file fits");
    let arguments = |file: &Path| {
        let words = ["--events", "2000", "--json"].map(OsString::from);
        [OsString::from("run"), file.as_os_str().to_owned()].into_iter().chain(words).collect::<Vec<_>>()
    };
    let refused = Program::run(arguments(&setup.file()));
    assert!(refused.expect_status(4).errors.contains("with less than 64.0 MiB no run starts"), "{refused:#?}");
    let setup = setup.and("[storage]\nstart_free = \"0\"\n");
    let mut program = Program::start(arguments(&setup.file()));
    let mut front_end = FrontEnd::ferol(&program.expect_error_line("ru0 listens on "), 841).with_size(2048);
    std::thread::scope(|scope| {
        scope.spawn(|| front_end.send(1..=2000));
        program.expect_error_line_with("DISK FULL");
        fs::remove_file(&filler).expect("it is ours");
    });
    let account = program.end().expect_status(0).account();
    assert_eq!(account["events"]["written"], 2000, "{account:#}");
}

/// Nothing is lost and nothing is missing, so that the run is good; its files are not what a checksum says they are.
#[test]
fn wrong_checksums_of_a_front_end_are_told_by_the_run_and_are_an_error_to_verify() {
    for arguments in [&["--events", "10"][..], &["--events", "10", "--json"]] {
        let setup = Setup::new("checksums", &[841, 843]);
        let file = setup.file();
        let mut program = Program::start(["run", file.to_str().expect("a path in UTF-8")].iter().chain(arguments));
        let address = program.expect_error_line("ru0 listens on ");
        let (mut bad, mut good) = (FrontEnd::ferol(&address, 841), FrontEnd::ferol(&address, 843));
        good.send(1..=10);
        for event in 1..=10 {
            let mut content = bad.content(event);
            if event % 5 == 0 {
                content[12] ^= 0x20;
            }
            bad.send_content(event, &content);
        }
        let ended = program.end();
        ended.expect_status(3);
        if arguments.contains(&"--json") {
            assert_eq!(ended.account()["fragments"]["crc_errors"], 2, "{ended:#?}");
        } else {
            let told = "source 841: 2 fragments with a wrong checksum, kept and flagged";
            assert!(ended.out.iter().any(|line| line == told), "{ended:#?}");
        }
        let run = setup.output().join("run000001");
        let verified = Program::run(["verify".as_ref(), run.as_os_str(), "--json".as_ref()]);
        let report = verified.expect_status(1).account();
        assert_eq!(
            (&report["crc_errors"], &report["events"], &report["incomplete"]),
            (&2.into(), &10.into(), &0.into())
        );
    }
}

/// The run waits for somebody to mend the disk; who ends it instead is told what was not written, and why.
#[test]
fn a_disk_that_fails_is_told_in_its_own_words_and_is_no_full_disk() {
    let setup = Setup::new("failing", &[841]);
    let output = setup.directory().join("vanishes");
    let timeouts = "[timeouts]\nreadout = \"300ms\"\nbuilder = \"400ms\"\nmanager = \"500ms\"\ndrain = \"2s\"\n";
    let text = setup.text().replace("[run]", "[run]\nsegment_events = 10");
    let text = text.replace("[[builder]]", &format!("[[builder]]\noutput = '{}'", output.display()));
    let (before, after) = (text.find("[timeouts]").expect("a section"), text.find("[[readout]]").expect("a section"));
    let file = setup.directory().join("failing.toml");
    fs::write(&file, format!("{}{timeouts}{}", &text[..before], &text[after..])).expect("a file can be written");
    let mut program = Program::start(["run".as_ref(), file.as_os_str(), "--json".as_ref()]);
    let mut front_end = FrontEnd::ferol(&program.expect_error_line("ru0 listens on "), 841);
    front_end.send(1..=25);
    let run = output.join("run000001");
    let is_closed = |name: &str| run.join(name).exists().then_some(());
    wait_for("a second file", || is_closed("run000001-bu0-000002.rwk"));
    fs::remove_dir_all(&output).expect("it is ours");
    // Otherwise the directory would be made again.
    fs::write(&output, "in the way").expect("a file can be written");
    front_end.send(26..=60);
    program.expect_error_line_with("DISK FAILS at bu0: ");
    program.interrupt();
    let ended = program.end();
    let account = ended.expect_status(3).account();
    assert!(!ended.errors.contains("DISK FULL"), "{ended:#?}");
    assert!(account["events"]["incomplete_dropped_by_cause"]["write_failed"].as_u64() > Some(0), "{account:#}");
    let failing = &account["disk"]["failing"][0];
    assert_eq!(failing["node"], "bu0", "{account:#}");
    // Of the open file that is gone, or of the next one that cannot be made, whichever is told last.
    let error = failing["error"].as_str().unwrap_or_default();
    let known = ["Stale file handle (os error 116)", "No such file or directory (os error 2)"];
    assert!(known.contains(&error) && ended.errors.contains(error), "{error}: {ended:#?}");
}

/// Who reads the program's output has the account, whatever became of the disk.
#[test]
fn an_account_that_cannot_be_kept_is_told_all_the_same() {
    let setup = Setup::new("unkept", &[841]);
    let file = setup.file();
    let arguments = ["--duration", "500ms", "--json"].map(AsRef::as_ref);
    let mut program = Program::start(["run".as_ref(), file.as_os_str()].into_iter().chain(arguments));
    program.expect_error_line("ru0 listens on ");
    fs::create_dir(setup.output().join("run000001").join("run.json")).expect("the run's directory is there");
    let ended = program.end();
    assert!(ended.expect_status(4).errors.contains("run.json: cannot be written"), "{ended:#?}");
    assert_eq!(ended.account()["state"], "ended");
}
