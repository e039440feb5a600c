//! Exit statuses, as `docs/cli.md` promises them.

use crate::cluster::Cluster;
use crate::process::Program;
use crate::support::{
    FrontEnd, Held, Setup, SmallDisk, TemporaryDirectory, expect_everything, replace_with_file, wait_for,
};
use ropewalk_terms::{Cause, Epoch, Incarnation, NodeId, RunNumber};
use ropewalk_wire::message::{HEADER_BYTES, Header, Kind, Message, RefuseReason};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, write};
use rustix::pipe::pipe;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
fn files_and_commands_that_do_not_exist_are_status_2() {
    let setup = Setup::new("nothing", &[841]);
    let directory = setup.directory().to_str().expect("a path in UTF-8");
    for (arguments, hint) in [
        (&["verify", directory][..], "no run files here"),
        (&["inspect", directory], "no run files here"),
        (&["verify", "no-such-run"], "no-such-run"),
        (&["recover", "no-such-run"], "no-such-run"),
        (&["start"], "did you mean `ropewalk ctl start`?"),
        (&["inspect", directory, "--event", "first"], "RESYNC:NUMBER"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

/// A configuration for another machine is rejected before anything begins.
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
    // The first one has come and gone; the run still waits for the other.
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
fn a_run_without_any_input_is_not_good() {
    let setup = Setup::new("quiet", &[841]);
    let file = setup.file();
    let ended =
        Program::run(["run".as_ref(), file.as_os_str(), "--duration".as_ref(), "1s".as_ref(), "--json".as_ref()]);
    let account = ended.expect_status(3).account();
    assert_eq!((&account["state"], &account["events"]["assigned"]), (&"ended".into(), &0.into()), "{account:#}");
    assert_eq!(account["status"]["reasons"], serde_json::json!({ "nothing": 1 }), "{account:#}");
}

/// The program reports at once what a run waits for, and that it continues by itself when there is room.
#[test]
fn a_full_disk_is_reported_at_once() {
    let setup = Setup::new("told", &[841]);
    let output = setup.output();
    let Some(_disk) = SmallDisk::mount(&output) else {
        return ropewalk_tidy::skipped("statuses::a_full_disk_is_reported_at_once", "may not mount");
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
        program.expect_error_line_with(&format!("DISK FULL at bu0 ({}): ", output.display()));
        fs::remove_file(&filler).expect("it is ours");
    });
    let account = program.end().expect_status(0).account();
    assert_eq!(account["events"]["written"], 2000, "{account:#}");
}

#[test]
fn verify_names_recover_for_open_files_and_recover_leaves_files_in_use() {
    let setup = Setup::new("open-files", &[841]);
    let file = setup.file();
    let mut program = Program::start(["run".as_ref(), file.as_os_str()]);
    FrontEnd::ferol(&program.expect_error_line("ru0 listens on "), 841).send(1..=50);
    let run = setup.output().join("run000001");
    let on = |command: &str| Program::run([command.as_ref(), run.as_os_str()]);
    let advice = format!("`ropewalk recover {}`", run.display());
    let verified = wait_for("an open file", || Some(on("verify")).filter(|ended| ended.errors.contains(&advice)));
    verified.expect_status(1);
    let recovered = on("recover");
    let line = "in use by a running builder unit: not closed";
    assert!(recovered.expect_status(0).out.iter().any(|said| said.ends_with(line)), "{recovered:#?}");
    program.interrupt();
    program.end().expect_status(0);
    assert!(!on("verify").expect_status(0).errors.contains("advice"));
}

/// Nothing is lost or missing, so the run is good; its files do not match their checksums.
#[test]
fn wrong_checksums_of_a_front_end_are_reported_by_the_run_and_are_an_error_to_verify() {
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

/// The run waits until the disk is repaired; if it is ended instead, the program reports what was not written, and why.
#[test]
fn a_disk_that_fails_is_reported_with_its_error_and_is_no_full_disk() {
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
    replace_with_file(&output);
    front_end.send(26..=60);
    program.expect_error_line_with("DISK FAILS at bu0 (");
    program.interrupt();
    let ended = program.end();
    let account = ended.expect_status(3).account();
    assert!(!ended.errors.contains("DISK FULL"), "{ended:#?}");
    assert!(account["events"]["incomplete_dropped_by_cause"]["write_failed"].as_u64() > Some(0), "{account:#}");
    let failing = &account["disk"]["failing"][0];
    assert_eq!(failing["node"], "bu0", "{account:#}");
    // For the open file that was removed, or for the next one that cannot be created, depending on which is reported
    // last.
    let error = failing["error"].as_str().unwrap_or_default();
    let known = ["Stale file handle (os error 116)", "No such file or directory (os error 2)"];
    assert!(known.contains(&error) && ended.errors.contains(error), "{error}: {ended:#?}");
}

/// The account is printed even if the disk cannot store it.
#[test]
fn an_account_that_cannot_be_kept_is_printed_all_the_same() {
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

fn node(role: &str, name: &str, config: &Path, at: &str) -> Program {
    let config = config.to_str().expect("a path in UTF-8");
    Program::start(["node", role, config, "--name", name, "--at", at])
}

/// Answers the first node that connects as `by` would if it refused the node. Returns the address to connect to.
fn refuser(by: NodeId, reason: RefuseReason) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        let (mut caller, _) = listener.accept().expect("a node connects");
        let mut header = [0; HEADER_BYTES];
        caller.read_exact(&mut header).expect("a header comes first");
        let header = Header::decode(&header).expect("nodes speak the protocol");
        let mut hello = vec![0; header.body as usize];
        caller.read_exact(&mut hello).expect("its body follows");
        assert_eq!(header.kind, Kind::Hello);
        let mut body = Vec::new();
        Message::Refuse(reason).encode(&mut body);
        let (run, epoch, incarnation) = (RunNumber(0), Epoch(1), Incarnation(1));
        let header = Header { kind: Kind::Refuse, body: body.len() as u32, run, epoch, sender: by, incarnation };
        caller.write_all(&[&header.to_bytes()[..], &body].concat()).expect("the caller listens");
        // Wait until the node closes the connection, so that the refusal arrives.
        let _ = caller.read(&mut [0]);
    });
    address
}

#[test]
fn a_node_with_another_configuration_is_refused_and_ends_with_status_2() {
    let setup = Setup::new("another", &[841, 843]);
    let other = setup.directory().join("other.toml");
    fs::write(&other, setup.text().replace("id = 843", "id = 844")).expect("a file can be written");
    let mut cluster = Cluster::new(setup);
    cluster.start("manager", &["--events", "1"]);
    let manager = cluster.address("manager").to_owned();
    for (role, name) in [("readout", "ru0"), ("builder", "bu0")] {
        let ended = node(role, name, &other, &format!("manager={manager}")).end();
        let advice = format!(
            "the event manager at {manager} refuses this node: its configuration is another one; \
             start every node from the same file"
        );
        assert!(ended.expect_status(2).errors.contains(&advice), "{ended:#?}");
    }
    assert!(!cluster.node("manager").has_ended(), "the others wait for the right nodes");
}

#[test]
fn a_node_of_another_version_is_refused_and_ends_with_status_2() {
    let setup = Setup::new("version", &[841]);
    let file = setup.file();
    for (role, name, by, called) in [
        ("readout", "ru0", NodeId::MANAGER, "manager"),
        ("builder", "bu0", NodeId::MANAGER, "manager"),
        ("builder", "bu0", NodeId::readout(0), "ru0"),
    ] {
        let address = refuser(by, RefuseReason::Version);
        let ended = node(role, name, &file, &format!("{called}={address}")).end();
        let errors = &ended.expect_status(2).errors;
        assert!(errors.contains(&format!("at {address} refuses this node: it speaks another version")), "{ended:#?}");
    }
}

/// A working node is not displaced; after a crash the later one takes over at once.
#[test]
fn the_later_of_two_starts_of_a_node_ends_with_status_2_unless_the_earlier_one_is_dead() {
    let setup = Setup::new("twice", &[841]);
    let mut cluster = Cluster::new(setup);
    cluster.start("manager", &["--events", "1"]);
    cluster.start("ru0", &[]);
    cluster.start("bu0", &[]);
    cluster.node("manager").expect_error_line_with("running");
    let earlier = cluster.take("bu0");
    cluster.start("bu0", &[]);
    let later = cluster.take("bu0").end();
    assert!(later.expect_status(2).errors.contains("run each node once"), "{later:#?}");
    drop(earlier);
    cluster.start("bu0", &[]);
    let address = cluster.front_end_address("ru0");
    FrontEnd::ferol(&address, 841).send([1]);
    cluster.take("manager").end().expect_status(0);
}

#[test]
fn a_run_that_may_not_have_enough_open_is_refused_with_the_number() {
    let setup = Setup::new("descriptors", &[841, 843]);
    let file = setup.file();
    let ended = Program::with_descriptors(64, ["run".as_ref(), file.as_os_str()]).end();
    let errors = &ended.expect_status(2).errors;
    assert!(errors.contains("descriptors and may have 64"), "{ended:#?}");
    assert!(!setup.output().exists(), "nothing is begun");
}

/// A pipe whose reader is gone.
fn closed() -> Stdio {
    pipe().expect("a pipe").1.into()
}

/// A full pipe, with its unread end.
fn full() -> (Stdio, OwnedFd) {
    let (reader, writer) = pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("it is a pipe");
    while write(&writer, &[b'x'; 4096]) != Err(Errno::AGAIN) {}
    while write(&writer, b"x") != Err(Errno::AGAIN) {}
    fcntl_setfl(&writer, OFlags::empty()).expect("it is a pipe");
    (writer.into(), reader)
}

/// Starts a short demo with these outputs.
fn demo(setup: &Setup, out: Stdio, errors: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    command.args(["demo", "--json", "--duration", "1s", "--rate", "1kHz", "--sources", "2", "--fragment-size", "1KiB"]);
    command.args(["--control", "127.0.0.1:0", "--output"]).arg(setup.output());
    command.stdin(Stdio::null()).stdout(out).stderr(errors).spawn().expect("the program was built")
}

fn status(child: &mut Child) -> Option<i32> {
    wait_for("the end", || child.try_wait().expect("a child")).code()
}

/// The run's account, in which nothing is lost.
fn expect_good_account(setup: &Setup) -> Value {
    let text = std::fs::read_to_string(setup.output().join("run000001/run.json")).expect("there is an account");
    let account: Value = serde_json::from_str(&text).expect("an account is JSON");
    assert_eq!(account["state"], "ended", "{account:#}");
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    assert_eq!(account["status"]["code"], 0, "{account:#}");
    account
}

#[test]
fn a_run_is_good_although_standard_error_is_closed() {
    let setup = Setup::new("unread-words-closed", &[841]);
    let mut demo = demo(&setup, Stdio::piped(), closed());
    let out = demo.stdout.take().expect("it is piped");
    let text = std::io::read_to_string(out).expect("it is text");
    assert_eq!(status(&mut demo), Some(0));
    let told: Value = serde_json::from_str(text.trim()).expect("the account is printed");
    assert_eq!(told["events"], expect_good_account(&setup)["events"]);
}

#[test]
fn a_run_goes_on_and_ends_where_standard_error_is_blocked() {
    let setup = Setup::new("unread-words-blocked", &[841]);
    let (errors, _reader) = full();
    let mut demo = demo(&setup, Stdio::piped(), errors);
    let out = demo.stdout.take().expect("it is piped");
    let text = std::io::read_to_string(out).expect("it is text");
    assert_eq!(status(&mut demo), Some(0));
    let told: Value = serde_json::from_str(text.trim()).expect("the account is printed");
    assert_eq!(told["events"], expect_good_account(&setup)["events"]);
}

#[test]
fn results_without_a_reader_cost_the_exit_status_and_nothing_else() {
    let setup = Setup::new("unread-results-closed", &[841]);
    let mut closed = demo(&setup, closed(), Stdio::null());
    assert_eq!(status(&mut closed), Some(4));
    expect_good_account(&setup);
    let setup = Setup::new("unread-results-blocked", &[841]);
    let (out, _reader) = full();
    let mut blocked = demo(&setup, out, Stdio::null());
    assert_eq!(status(&mut blocked), Some(4));
    expect_good_account(&setup);
}

/// As with `ropewalk run ... 2>&1 | tee log` at Ctrl-C: `tee` ends at once.
#[test]
fn an_interrupt_drains_where_the_reader_is_interrupted_too() {
    let setup = Setup::new("unread-interrupt", &[841, 843]);
    expect_drained(&setup, Signal::INT, false);
}

#[test]
fn a_terminal_that_goes_away_drains_however_often_it_says_so() {
    let setup = Setup::new("unread-hang-up", &[841, 843]);
    expect_drained(&setup, Signal::HUP, true);
}

/// Takes a run that gets this signal, once or twice, and whose readers then leave.
fn expect_drained(setup: &Setup, signal: Signal, twice: bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    command.arg("run").arg(setup.file()).arg("--json");
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.spawn().expect("the program was built");
    let mut errors = BufReader::new(run.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
    let address = errors.find_map(|line| line.strip_prefix("ru0 listens on ").map(str::to_owned)).expect("it listens");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    let directory = setup.output().join("run000001");
    std::thread::scope(|scope| {
        for front_end in &mut front_ends {
            scope.spawn(|| front_end.send_until_closed(1.., Duration::from_micros(200)));
        }
        wait_for("some events in a file", || {
            let entries = std::fs::read_dir(&directory).ok()?;
            let bytes: u64 = entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.len()).sum();
            (bytes > 100_000).then_some(())
        });
        drop((errors, run.stdout.take()));
        for _ in 0..=u32::from(twice) {
            kill_process(Pid::from_child(&run), signal).expect("it is our child, which was not waited for");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(status(&mut run), Some(4), "the account cannot be printed");
    });
    let account = expect_good_account(setup);
    assert!(account["events"]["written"].as_u64() > Some(0), "{account:#}");
}

/// A program on a separate terminal.
struct OnTerminal {
    child: Child,
    shown: Arc<Mutex<String>>,
}

impl OnTerminal {
    /// Starts `ropewalk` with these arguments on a terminal of 120 columns.
    fn start(words: &str) -> Self {
        Self::shell(&format!("exec {} {words}", env!("CARGO_BIN_EXE_ropewalk")))
    }

    /// Runs these shell commands on a terminal of 120 columns.
    fn shell(commands: &str) -> Self {
        let command = format!("stty rows 40 cols 120; {commands}");
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` of bsdutils");
        let mut out = child.stdout.take().expect("it is piped");
        let shown = Arc::new(Mutex::new(String::new()));
        let whole = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                whole
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, shown }
    }

    /// Waits until all of these texts were drawn since the terminal was made. Cursor movements may separate them.
    fn expect(&self, texts: &[&str]) {
        wait_for(&format!("{texts:?}"), || {
            let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            texts.iter().all(|text| shown.contains(text)).then_some(())
        });
    }

    fn press(&mut self, keys: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).expect("it reads");
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_shows_a_run_and_keys_turn_pages_and_leave() {
    let setup = Setup::new("top", &[841, 843]);
    let file = setup.file();
    let mut run = Program::start(["run".as_ref(), file.as_os_str(), "--control".as_ref(), "127.0.0.1:0".as_ref()]);
    let url = run.expect_error_line("run control and dashboard: ");
    let mut top = OnTerminal::start(&format!("top --url {url}"));
    top.expect(&["RUNNING", "sources", "quit"]);
    // A redraw, because letters that were there already would be missing.
    top.press("2\x0c");
    top.expect(&["ru0", "bu0", "connected"]);
    top.press("5\x0c");
    top.expect(&["start,", "command"]);
    top.press("?\x0c");
    top.expect(&["everything"]);
    run.interrupt();
    run.end();
    top.press("\x0c");
    top.expect(&["ANSWER:"]);
    top.press("q");
    let status = wait_for("the end", || top.child.try_wait().expect("a child"));
    assert!(status.success(), "{status}");
}

#[test]
fn a_run_on_a_terminal_draws_a_table_and_leaves_its_account() {
    let setup = Setup::new("live-table", &[841]);
    let output = setup.output().display().to_string();
    let options = "--duration 2s --rate 1kHz --sources 2 --fragment-size 1KiB --control 127.0.0.1:0";
    let mut demo = OnTerminal::start(&format!("demo {options} --output {output}"));
    demo.expect(&["run 1 running", "to disk", "in flight", "events assigned", "balanced"]);
    let status = wait_for("the end", || demo.child.try_wait().expect("a child"));
    assert!(status.success(), "{status}");
}

#[test]
fn a_pipe_and_a_server_that_is_not_there_are_refused_in_words() {
    let piped = Program::run(["top"]);
    assert!(piped.expect_status(2).errors.contains("needs a terminal"), "{piped:#?}");
    let mut lonely = OnTerminal::start("top --url http://127.0.0.1:1");
    lonely.expect(&["is there a `ropewalk run ... --control ADDRESS`?"]);
    let status = wait_for("the end", || lonely.child.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(4));
}

/// Runs the program with this setup. Returns the address for front ends.
fn run(setup: &Setup) -> (Program, String) {
    let mut program = Program::start(["run".as_ref(), setup.file().as_os_str(), "--json".as_ref()]);
    let address = program.expect_error_line("ru0 listens on ");
    (program, address)
}

/// All events up to the last one are complete in the files; the front ends, which do not know of the stop, sent more.
#[test]
fn an_interrupt_drains_and_is_good() {
    let setup = Setup::new("interrupt", &[841, 843]);
    let (program, address) = run(&setup);
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    let directory = setup.output().join("run000001");
    let ended = std::thread::scope(|scope| {
        for front_end in &mut front_ends {
            scope.spawn(|| front_end.send_until_closed(1.., Duration::from_micros(200)));
        }
        wait_for("some events in a file", || {
            let entries = std::fs::read_dir(&directory).ok()?;
            let bytes: u64 = entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.len()).sum();
            (bytes > 100_000).then_some(())
        });
        program.interrupt();
        program.end()
    });
    let account = ended.expect_status(0).account();
    assert_eq!(account["state"], "ended", "{account:#}");
    let written = account["events"]["written"].as_u64().expect("a number");
    let held = Held::in_directories(&[directory]);
    held.expect_keys_up_to(written);
    assert!(written > 0 && front_ends.iter().all(|front_end| front_end.sent().contains_key(&written)));
    // Data beyond the last event is not lost: the run was over.
    front_ends.iter_mut().for_each(|front_end| front_end.forget_after(written));
    expect_everything(&front_ends.each_ref(), &held, written);
}

/// The drain would wait for a silent source. A second interrupt does not, and reports the losses.
#[test]
fn a_second_interrupt_stops_at_once_and_says_what_was_lost() {
    let setup = Setup::new("forced", &[841, 843]);
    let (mut program, address) = run(&setup);
    let mut speaks = FrontEnd::ferol(&address, 841);
    let silent = FrontEnd::ferol(&address, 843);
    speaks.send(1..=100);
    // The run must hold them when it is interrupted: with one source alone, it takes a second until it knows where the
    // run begins.
    std::thread::sleep(Duration::from_millis(1500));
    program.interrupt();
    program.expect_error_line("stopping: ");
    assert!(!program.has_ended(), "it drains");
    program.interrupt();
    let ended = program.end();
    let account = ended.expect_status(130).account();
    assert_eq!(account["state"], "forced", "{account:#}");
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    assert_eq!(account["fragments"]["dropped"][Cause::ForcedStop.name()], 100, "{account:#}");
    drop(silent);
}

// ---- the laboratory, beside the program or missing

/// A copy of the program in a separate directory, with this script as its laboratory.
fn program(directory: &TemporaryDirectory, laboratory: Option<&str>) -> PathBuf {
    let program = directory.path().join("ropewalk");
    std::fs::copy(env!("CARGO_BIN_EXE_ropewalk"), &program).expect("a file can be copied");
    if let Some(script) = laboratory {
        let file = directory.path().join("ropewalk-lab");
        std::fs::write(&file, script).expect("a file can be written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    program
}

fn run_copy(program: &PathBuf, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(program).args(arguments).output().expect("it is a program");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_missing_laboratory_is_named_with_the_command_that_builds_it() {
    let directory = TemporaryDirectory::new("no-laboratory");
    let program = program(&directory, None);
    for arguments in [&["bench", "builder", "--quick"][..], &["simulate", "--campaign", "8"]] {
        let (status, out, errors) = run_copy(&program, arguments);
        assert_eq!((status, out.as_str()), (Some(4), ""), "{errors}");
        assert!(errors.contains(&directory.path().join("ropewalk-lab").display().to_string()), "{errors}");
        assert!(errors.contains("cargo build --release -p ropewalk-lab"), "{errors}");
    }
    let (status, out, _) = run_copy(&program, &["bench", "--help"]);
    assert_eq!(status, Some(0));
    for words in ["Usage: ropewalk bench", "ropewalk bench builder --quick", "cargo build --release -p ropewalk-lab"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let (status, out, _) = run_copy(&program, &["--help"]);
    assert!(status == Some(0) && out.contains("ropewalk-lab"), "{out}");
}

#[test]
fn the_laboratory_gets_arguments_input_and_the_process_and_gives_the_status() {
    let directory = TemporaryDirectory::new("laboratory");
    let script = "#!/bin/sh\nprintf '<%s>' \"$@\"\ncat\necho \"process $$\" >&2\nexit 3\n";
    let program = program(&directory, Some(script));
    let input = directory.path().join("input");
    std::fs::write(&input, "what it reads").expect("a file can be written");
    let mut command = Command::new(&program);
    command.args(["simulate", "--seed=1", "--", "two words", "--help", ""]);
    command.stdin(std::fs::File::open(&input).expect("it was written"));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("it is a program");
    let process = child.id();
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    assert_eq!(text(stdout), "<simulate><--seed=1><--><two words><--help><>what it reads");
    assert_eq!(status.code(), Some(3));
    // The same process, so that signals reach the laboratory.
    assert_eq!(text(stderr), format!("process {process}\n"));
}

#[test]
fn a_run_in_the_background_of_a_terminal_draws_nothing() {
    let setup = Setup::new("live-background", &[841]);
    let output = setup.output().display().to_string();
    let options = "--duration 3s --rate 1kHz --sources 2 --fragment-size 1KiB --control 127.0.0.1:0";
    let program = env!("CARGO_BIN_EXE_ropewalk");
    // `-m` puts the job into its own process group, as an interactive shell does.
    let job = format!("set -m; {program} demo {options} --output {output} & sleep 2; echo typed; wait");
    let mut shell = OnTerminal::shell(&format!("bash -c '{job}'"));
    let status = wait_for("the end", || shell.child.try_wait().expect("a child"));
    assert!(status.success(), "{status}");
    shell.expect(&["typed", "balanced"]);
    let shown = shell.shown.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(!shown.contains("\u{1b}[J") && !shown.contains("in flight 0"), "{shown}");
}
