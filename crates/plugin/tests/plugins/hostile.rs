//! Filters that attack their run, while they are loaded and over events: they fail, and are named.

use crate::support::{Event, TemporaryDirectory, build, fragment, pool, process_config};
use ropewalk_memory::MemoryKind;
use ropewalk_plugin::filter::process::{FilterProcess, Offer, ProcessConfig};
use ropewalk_plugin::process::print_with;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit, getuid};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const HOSTILE: &str = "crates/plugin/tests/hostile.c";

/// What plug-ins of all tests printed.
static PRINTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn print(line: &str) {
    PRINTED.lock().expect("no holder panics").push(line.to_owned());
}

/// What the plug-in of this library printed. Its process must have gone.
fn printed(library: &Path) -> Vec<String> {
    let name = format!("{}: ", library.file_name().expect("it is a file").to_string_lossy());
    let printed = PRINTED.lock().expect("no holder panics");
    printed.iter().filter_map(|line| line.strip_prefix(&name).map(ToOwned::to_owned)).collect()
}

/// The result of loading and creating a filter.
fn tried_out(config: ProcessConfig, patience: Duration) -> String {
    print_with(print);
    let mut process = FilterProcess::new(config).expect("it can be had");
    process.try_out(patience).map_or_else(|error| error.to_string(), |()| "good".to_owned())
}

/// The result of a filter that does this while it is loaded, and what it printed.
fn loaded(directory: &TemporaryDirectory, loading: &str) -> (String, Vec<String>) {
    let library = build(directory, HOSTILE, &[&format!("LOADING=\"{loading}\"")]);
    let patience = Duration::from_secs(if loading == "hang" { 1 } else { 30 });
    let told = tried_out(process_config(&library, ""), patience);
    (told, printed(&library))
}

#[test]
fn a_library_that_attacks_while_it_is_loaded_is_ended_and_the_call_is_named() {
    let directory = TemporaryDirectory::new();
    let limits = || [Resource::Cpu, Resource::Fsize, Resource::Nofile].map(getrlimit);
    let before = limits();
    for (loading, call) in [
        ("limit_processor", "called `prlimit64`"),
        ("limit_file_size", "called `prlimit64`"),
        ("limit_files", "called `prlimit64`"),
        ("type_into_terminal", "called `ioctl`"),
        ("take_terminal", "called `ioctl`"),
        ("do_not_block", "called `fcntl`"),
        ("send_signals", "called `fcntl`"),
        ("outlive", "called `prctl`"),
        ("become_root", "called `setuid`"),
        ("write_to_parent", "called `openat`"),
        ("hang", "it was not ready after 1s"),
    ] {
        let (told, printed) = loaded(&directory, loading);
        assert!(told.contains(call), "{loading}: {told}: {printed:?}");
        assert!(!printed.iter().any(|line| line.contains("done")), "{loading}: {printed:?}");
    }
    assert_eq!(limits(), before);
}

#[test]
fn a_library_reaches_nothing_of_its_parent_and_no_terminal_while_it_is_loaded() {
    let directory = TemporaryDirectory::new();
    let denied = |names: &[&str]| names.iter().map(|name| format!("{name}: Permission denied")).collect::<Vec<_>>();
    for (loading, names) in [
        ("read_passwords", &["shadow"][..]),
        ("look_into_parent", &["environ", "mem", "fd"]),
        ("open_terminals", &["/dev/tty"]),
    ] {
        assert_eq!(loaded(&directory, loading), ("good".to_owned(), denied(names)), "{loading}");
    }
    assert_eq!(loaded(&directory, "read_input").1, ["input: 0 bytes, terminal 0"]);
    let (told, printed) = loaded(&directory, "take_memory");
    assert_eq!((told.as_str(), &printed[..]), ("good", &["memory: Cannot allocate memory".to_owned()][..]));
}

#[test]
fn what_a_plug_in_prints_gets_its_name_as_prefix_and_does_nothing_to_a_terminal() {
    let directory = TemporaryDirectory::new();
    assert_eq!(loaded(&directory, "print").1, ["a line", "\u{fffd}]0;a title\u{fffd}"]);
}

/// The process of a library has no rights of root's before the library is loaded.
#[test]
fn a_library_that_root_alone_can_read_is_loaded_without_roots_rights() {
    if !getuid().is_root() {
        let name = "hostile::a_library_that_root_alone_can_read_is_loaded_without_roots_rights";
        return ropewalk_tidy::skipped(name, "it is not run by root");
    }
    let directory = TemporaryDirectory::new();
    let library = build(&directory, HOSTILE, &["LOADING=\"read_passwords\""]);
    for (path, mode) in [(&library, 0o600), (&directory.0, 0o700)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    assert_eq!(tried_out(process_config(&library, ""), Duration::from_secs(30)), "good");
    assert_eq!(printed(&library), ["shadow: Permission denied"]);
}

#[test]
fn an_error_text_without_an_end_is_cut() {
    let directory = TemporaryDirectory::new();
    let told = tried_out(process_config(&build(&directory, HOSTILE, &[]), "long_error"), Duration::from_secs(30));
    assert!(told.ends_with("AAAA") && told.len() < 2000, "{told}");
}

/// What becomes of an event over which a filter does this: why its process ended, or that the event was decided.
fn attacked(library: &Path, configuration: &str) -> String {
    print_with(print);
    let mut memory = pool(MemoryKind::Memfd, 64 << 10, 16);
    let event = Event::new(1, [fragment(&mut memory, 1, b"event", 5)]);
    let mut process = FilterProcess::new(process_config(library, configuration)).expect("it can be had");
    process.start();
    let begun = Instant::now();
    let (mut offered, mut outcome) = (None::<Instant>, None);
    loop {
        let seen = process.look();
        if seen.is_ready && offered.is_none() {
            assert_eq!(process.offer(1, &event), Offer::Taken);
            process.flush();
            offered = Some(Instant::now());
        }
        let decision = process.next_decision().map(|decision| decision.map(|(_, decision)| decision.is_some()));
        match decision {
            Some(Ok(true)) => outcome = Some("decided".to_owned()),
            Some(Ok(false)) => outcome = Some("undecided".to_owned()),
            // It is ended for that.
            Some(Err(_)) => process.kill(),
            None => {}
        }
        if seen.has_ended {
            let ends = process.journal().ends();
            return ends.last().map(|(end, _)| end.to_string()).expect("there is a reason");
        }
        if let Some(outcome) = outcome {
            return outcome;
        }
        if offered.is_some_and(|offered| offered.elapsed() > Duration::from_millis(700)) {
            process.kill();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{configuration}: {:?}", process.journal().ends());
        let mut events: Vec<_> =
            process.descriptors().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
        poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 })).expect("they can be waited for");
    }
}

#[test]
fn a_filter_that_attacks_over_an_event_loses_that_event_alone_and_is_named() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, HOSTILE, &[]);
    let mut attacks = vec![
        ("read", "called `openat`"),
        ("write", "called `openat`"),
        ("connect", "called `socket`"),
        ("fork", "forbidden in its process"),
        ("exec", "called `execve`"),
        ("trace", "called `ptrace`"),
        ("kill", "called `kill`"),
        ("kill_thread", "called `tgkill`"),
        ("limit", "called `prlimit64`"),
        ("type", "called `ioctl`"),
        ("owner", "called `fcntl`"),
        ("write_event", "it wrote to what it may only read"),
        ("unprotect_event", "it wrote to what it may only read"),
        ("hang", "longer than `timeout`"),
        ("sleep", "longer than `timeout`"),
        ("take_memory", "`memory` had run out"),
        ("stack", "it crashed (SIGSEGV)"),
        ("flood", "longer than `timeout`"),
        ("ready_again", "longer than `timeout`"),
        ("print_for_ever", "longer than `timeout`"),
        ("long_result", "bytes"),
        ("overflow", ""),
        ("exit", "it ended by itself"),
        ("close", ""),
        ("thread", "forbidden in its process"),
        ("scribble", ""),
        ("scribble_back", ""),
        ("no_error_text", ""),
    ];
    if cfg!(target_arch = "x86_64") {
        attacks.extend([("other_numbers", "the system call 1073741826"), ("old_calls", "forbidden in its process")]);
    }
    for (attack, reason) in attacks {
        let outcome = attacked(&library, attack);
        println!("{attack}: {outcome}");
        assert!(outcome.contains(reason) && (reason.is_empty() || outcome != "decided"), "{attack}: {outcome}");
    }
    assert!(!printed(&library).iter().any(|line| line.contains("done")), "nothing was opened or unprotected");
}

#[test]
fn a_filter_that_only_makes_noise_decides_all_the_same_and_does_not_fill_the_terminal() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, HOSTILE, &[]);
    for noise in ["map_descriptors", "garbage", "print", "fills"] {
        let outcome = attacked(&library, noise);
        // Where noise makes sense by chance as a message it may end it.
        assert!(outcome == "decided" || noise == "garbage", "{noise}: {outcome}");
    }
    let lines = printed(&library);
    assert!(lines.len() < 2000 && lines.iter().any(|line| line.ends_with("lines are left out")), "{}", lines.len());
    let mapped = lines.iter().filter(|line| line.contains("mapped")).count();
    assert!(mapped <= 1, "only its own decisions can be written: {mapped}");
}
