//! Exit statuses, as `docs/cli.md` promises them.

use crate::process::Program;
use crate::support::{FrontEnd, Setup};
use std::fs;
use std::net::TcpListener;

#[test]
fn a_bad_configuration_is_status_2_and_names_the_place() {
    let setup = Setup::new("bad", &[841]);
    let good = setup.text();
    for (wrong, place, hint) in [
        (good.replace("id = 841", "id = 5000"), "source[0].id", "0 to 4095"),
        (good.replace("readout = \"ru0\"", "readout = \"ru9\""), "source[0].readout", "there are: ru0"),
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
fn a_port_that_is_taken_is_status_4_and_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = holder.local_addr().expect("it is bound").to_string();
    let setup =
        Setup::new("port", &[841]).readout(&format!("listen = \"{address}\"\npool = \"8MiB\"\nblock = \"16KiB\"\n"));
    let ended = Program::run(["run".as_ref(), setup.file().as_os_str()]);
    assert!(ended.expect_status(4).errors.contains(&address), "{ended:#?}");
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
