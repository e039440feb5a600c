//! Ctrl-C: the first one drains, the second one stops at once.

use crate::process::Program;
use crate::support::{FrontEnd, Held, Setup, expect_everything, wait_for};
use ropewalk_terms::Cause;
use std::time::Duration;

/// The program with a run of this setup, and where its front ends connect to.
fn run(setup: &Setup) -> (Program, String) {
    let mut program = Program::start(["run".as_ref(), setup.file().as_os_str(), "--json".as_ref()]);
    let address = program.expect_error_line("ru0 listens on ");
    (program, address)
}

/// Everything up to some event is in the files, complete; the front ends, which do not know of the stop, sent more.
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
    // What was sent beyond the last event is no loss: the run was over.
    front_ends.iter_mut().for_each(|front_end| front_end.forget_after(written));
    expect_everything(&front_ends.each_ref(), &held, written);
}

/// The drain would wait for a source that says nothing; the second interrupt does not, and tells what that cost.
#[test]
fn a_second_interrupt_stops_at_once_and_says_what_was_lost() {
    let setup = Setup::new("forced", &[841, 843]);
    let (mut program, address) = run(&setup);
    let mut speaks = FrontEnd::ferol(&address, 841);
    let silent = FrontEnd::ferol(&address, 843);
    speaks.send(1..=100);
    // The run is to hold them when it is interrupted: it takes a second until one source alone says where the run begins.
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
