//! A terminal that is closed, stopped or gone changes nothing about a run: its files and its account are those of any other.

use crate::support::{FrontEnd, Setup, wait_for};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, write};
use rustix::pipe::pipe;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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

/// A short demo that prints there.
fn demo(setup: &Setup, out: Stdio, errors: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    command.args(["demo", "--json", "--duration", "1s", "--rate", "1kHz", "--sources", "2", "--fragment-size", "1KiB"]);
    command.args(["--control", "127.0.0.1:0", "--output"]).arg(setup.output());
    command.stdin(Stdio::null()).stdout(out).stderr(errors).spawn().expect("the program was built")
}

fn status(child: &mut Child) -> Option<i32> {
    wait_for("the end", || child.try_wait().expect("a child")).code()
}

/// The run's account, which is that of a run that lost nothing.
fn expect_good_account(setup: &Setup) -> Value {
    let text = std::fs::read_to_string(setup.output().join("run000001/run.json")).expect("there is an account");
    let account: Value = serde_json::from_str(&text).expect("an account is JSON");
    assert_eq!(account["state"], "ended", "{account:#}");
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    assert_eq!(account["status"]["code"], 0, "{account:#}");
    account
}

#[test]
fn a_run_is_good_where_nobody_reads_its_words() {
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
fn results_that_nobody_reads_cost_the_exit_status_and_nothing_else() {
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

/// What happens to `ropewalk run ... 2>&1 | tee log` at Ctrl-C: `tee` is gone at once.
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

/// Takes a run that gets this signal, once or twice, and whose readers leave then.
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
        assert_eq!(status(&mut run), Some(4), "nobody reads the account");
    });
    let account = expect_good_account(setup);
    assert!(account["events"]["written"].as_u64() > Some(0), "{account:#}");
}
