//! Splitters in processes of their own, which crash, hang, lie, and do what they may not.

use crate::support::{
    MISBEHAVING, OLD_KERNEL, TemporaryDirectory, build, build_program, config, frame, memory, serving_splitter,
};
use ropewalk_flow::supervision::{Order, Outcome, Supervisor, SupervisorConfig};
use ropewalk_plugin::SplitterConfig;
use ropewalk_plugin::confinement::Missing;
use ropewalk_plugin::process::{ProcessConfig, Sight, SplitterProcess};
use ropewalk_terms::Cause;
use ropewalk_wire::framing::{Piece, PieceKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn process_config(splitter: SplitterConfig) -> ProcessConfig {
    ProcessConfig { splitter, memory: 16 << 20, command: serving_splitter() }
}

/// A splitter under supervision, with a real clock.
struct Supervised {
    process: SplitterProcess,
    supervisor: Supervisor,
    begun: Instant,
    /// Made when another process is started.
    once: Option<PathBuf>,
}

impl Supervised {
    fn new(library: &Path, configuration: &str) -> Self {
        Self::with(process_config(config(library, configuration)))
    }

    fn with(config: ProcessConfig) -> Self {
        let patience = SupervisorConfig {
            timeout: Duration::from_millis(1500),
            start_timeout: Duration::from_secs(20),
            restart_delay: Duration::from_millis(5),
            restarts: 10,
        };
        let process = SplitterProcess::new(config).expect("memory");
        Self { process, supervisor: Supervisor::new(patience, 32), begun: Instant::now(), once: None }
    }

    /// Why processes ended, and how often.
    fn ends(&self) -> Vec<(String, u64)> {
        self.process.journal().ends().into_iter().map(|(end, times)| (end.to_string(), times)).collect()
    }

    /// Divides a batch of frames: the key of the first piece of each, or the cause of its loss.
    fn divide(&mut self, frames: &[&[u8]]) -> Vec<Result<u64, Cause>> {
        let mut memory = memory();
        self.process.clear();
        self.supervisor.clear();
        for bytes in frames {
            self.process.put(&frame(&mut memory, bytes));
            self.supervisor.add();
        }
        let mut all = Vec::new();
        while all.len() < frames.len() {
            self.turn();
            while let Some(outcome) = self.outcome(all.len()) {
                all.push(outcome);
            }
            assert!(self.begun.elapsed() < Duration::from_secs(60), "{:?}", self.supervisor);
        }
        all
    }

    fn now(&self) -> ropewalk_terms::Instant {
        ropewalk_terms::Instant::from_nanoseconds(self.begun.elapsed().as_nanos() as u64)
    }

    fn turn(&mut self) {
        let mut events: Vec<_> =
            self.process.descriptors().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
        let a_while = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        poll(&mut events, Some(&a_while)).expect("they can be waited for");
        let (sight, now) = (self.process.look(), self.now());
        self.supervisor.progressed(now, sight.done);
        if sight.is_ready {
            self.supervisor.ready();
        }
        if sight.has_ended {
            self.supervisor.ended(now);
        }
        while let Some(order) = self.supervisor.poll(now) {
            match order {
                Order::Start => {
                    if self.supervisor.restarted() > 0 {
                        self.once.iter().for_each(|file| std::fs::write(file, "").expect("it is ours"));
                    }
                    self.process.start();
                }
                Order::Ask { first, count } => self.process.ask(first, count),
                Order::Kill => self.process.kill(),
            }
        }
    }

    fn outcome(&mut self, index: usize) -> Option<Result<u64, Cause>> {
        match self.supervisor.outcome(index) {
            Outcome::Pending => None,
            Outcome::Failed => Some(Err(Cause::SplitterFailed)),
            Outcome::Answered => {
                let mut pieces = Vec::new();
                match self.process.answer(index, &mut pieces) {
                    Err(_) => {
                        self.supervisor.disbelieve(index);
                        self.outcome(index)
                    }
                    Ok(Err(cause)) => Some(Err(cause)),
                    Ok(Ok(())) => match pieces.first() {
                        Some(Piece { key: PieceKey::Event(number), .. }) => Some(Ok(*number)),
                        other => panic!("{other:?}"),
                    },
                }
            }
        }
    }
}

const FAILED: Result<u64, Cause> = Err(Cause::SplitterFailed);

#[test]
fn frames_are_divided_in_batches_by_one_process() {
    let directory = TemporaryDirectory::new();
    let mut splitter = Supervised::new(&build(&directory, MISBEHAVING, &[]), "");
    assert_eq!(splitter.divide(&[b"#.", b"?.", b"#.", b".\x07"]), [Ok(1), Err(Cause::Malformed), Ok(3), Ok(7)]);
    let long = [&b"#."[..], &[1; 60_000]].concat();
    let many = [&long[..]; 32];
    let expected: Vec<_> = (5..37).map(Ok).collect();
    assert_eq!(splitter.divide(&many), expected, "it is the same one");
    assert_eq!(splitter.supervisor.restarted(), 0);
    assert_eq!(splitter.process.copied_bytes(), 8 + 32 * 60_002);
}

/// Any misdeed over a frame loses that frame alone, and the others are divided.
#[test]
fn a_frame_that_ends_its_process_is_lost_alone_and_the_reason_is_known() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, MISBEHAVING, &[]);
    for (bad, what, reason) in [
        (b"c.", "crashes", "it crashed (SIGABRT)"),
        (b"S.", "uses up its stack", "it crashed (SIGSEGV)"),
        (b"e.", "ends", "it ended by itself, with status 0"),
        (b"q.", "ends as programs do", "it ended by itself, with status 0"),
        (b"h.", "hangs", "it took longer than `timeout`"),
        (b"t.", "answers when it is too late", "it took longer than `timeout`"),
        (b"w.", "writes to the frame", "it wrote to what it may only read"),
        (b"W.", "insists on writing to the frame", "it wrote to what it may only read"),
        (b"g.", "takes all memory", "it crashed (SIGABRT) when its `memory` had run out"),
        (b"o.", "names a place outside", "piece 0 does not lie in the frame"),
        (b"l.", "names a place twice", "piece 1 does not lie in the frame"),
        (b"b.", "goes backwards", "piece 1 does not lie in the frame"),
        (b"u.", "names the last place there could be", "piece 0 does not lie in the frame"),
        (b"U.", "names the greatest length there could be", "piece 0 does not lie in the frame"),
        (
            b"m.",
            "says that it wrote more than there was room for",
            "it wrote 65537 pieces, and there was room for 65536",
        ),
        (b"M.", "says that it wrote as many as can be said", "there was room for 65536"),
        (b"k.", "gives a key of no kind", "piece 0 has a key of kind 9"),
    ] {
        let mut splitter = Supervised::new(&library, "");
        let all = splitter.divide(&[b".\x01", bad, b".\x02", b".\x03"]);
        assert_eq!(all, [Ok(1), FAILED, Ok(2), Ok(3)], "{what}");
        assert_eq!((splitter.supervisor.restarted(), splitter.supervisor.failures()), (2, 1), "{what}");
        let ends = splitter.ends();
        assert!(ends.len() == 1 && ends[0].0.contains(reason) && ends[0].1 == 2, "{what}: {ends:?}");
    }
}

/// What a process may not do is not done: it ends, and what it tried is known by name.
#[test]
fn a_process_that_does_what_it_may_not_ends_and_the_call_is_named() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, MISBEHAVING, &[]);
    for (bad, call) in [
        (b"r.", "`openat`"),
        (b"s.", "`socket`"),
        (b"f.", "`clone`"),
        (b"T.", "it made a system call that is forbidden"),
        (b"v.", "`execve`"),
        (b"K.", "`kill`"),
        (b"Q.", "`tgkill`"),
        (b"i.", "it made a system call that is forbidden"),
    ] {
        let mut splitter = Supervised::new(&library, "");
        let all = splitter.divide(&[b".\x01", bad, b".\x02"]);
        assert_eq!(all, [Ok(1), FAILED, Ok(2)], "{call}");
        let ends = splitter.ends();
        assert!(ends.len() == 1 && ends[0].0.contains(call) && ends[0].1 == 2, "{call}: {ends:?}");
        assert_eq!(splitter.process.missing(), Missing::default());
    }
}

/// What is long gone may look like anything after a jump to it.
#[test]
fn a_process_that_jumps_to_what_is_long_gone_harms_no_other_frame() {
    let directory = TemporaryDirectory::new();
    let mut splitter = Supervised::new(&build(&directory, MISBEHAVING, &[]), "");
    let all = splitter.divide(&[b".\x01", b"j.", b".\x02"]);
    assert_eq!((all[0], all[1].is_ok_and(|key| key != u64::from(b'.')), all[2]), (Ok(1), false, Ok(2)), "{all:?}");
}

#[test]
fn what_is_odd_and_can_be_true_is_believed() {
    let directory = TemporaryDirectory::new();
    let mut quiet = process_config(config(&build(&directory, MISBEHAVING, &[]), ""));
    // Without the megabyte on the screen.
    let silenced = ["/bin/sh", "-c", "exec \"$0\" \"$@\" 2>/dev/null"].map(PathBuf::from);
    quiet.command = silenced.into_iter().chain(quiet.command).collect();
    let mut splitter = Supervised::with(quiet);
    let all = splitter.divide(&[b"z\x01", b"!\x02", b"P\x03", b"N\x04", b"G\x05", b".\x06"]);
    let malformed = Err(Cause::Malformed);
    let what = "empty pieces, a megabyte of text, another line, the least number, too much memory asked for";
    assert_eq!(all, [Ok(1), Ok(2), Ok(3), malformed, malformed, Ok(6)], "{what}");
    assert_eq!(splitter.supervisor.restarted(), 0, "{:?}", splitter.ends());
}

#[test]
fn a_frame_over_which_a_process_failed_once_is_tried_once_more() {
    let directory = TemporaryDirectory::new();
    for bad in [b"c\x08", b"h\x08", b"o\x08", b"s\x08"] {
        let once = directory.0.join(format!("once-{}", bad[0]));
        let library = build(&directory, MISBEHAVING, &[&format!("ONCE=\"{}\"", once.display())]);
        let mut splitter = Supervised::new(&library, "");
        splitter.once = Some(once);
        assert_eq!(splitter.divide(&[bad, b".\x02"]), [Ok(8), Ok(2)]);
        assert_eq!((splitter.supervisor.restarted(), splitter.supervisor.failures()), (1, 0));
    }
}

#[test]
fn a_process_has_no_rights() {
    let directory = TemporaryDirectory::new();
    let mut splitter = Supervised::new(&build(&directory, MISBEHAVING, &[]), "");
    let own = rustix::process::geteuid();
    let expected = if own.is_root() { 65_534 } else { own.as_raw().into() };
    assert_eq!(splitter.divide(&[b"p."]), [Ok(expected)]);
}

/// Even one that hangs, and whose starter could not look after it any more.
#[test]
fn a_process_dies_with_the_thread_that_started_it() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, MISBEHAVING, &[]);
    let started = std::thread::spawn(move || {
        let mut splitter = Supervised::new(&library, "");
        let [Ok(id)] = splitter.divide(&[b"I."])[..] else { panic!("{:?}", splitter.ends()) };
        let mut memory = memory();
        splitter.process.clear();
        splitter.process.put(&frame(&mut memory, b"h."));
        splitter.process.ask(0, 1);
        // Without ending the process or closing its socket.
        std::mem::forget(splitter);
        id
    });
    let id = started.join().expect("it goes well");
    let begun = Instant::now();
    // What has ended and was not waited for is a zombie.
    while let Ok(line) = std::fs::read_to_string(format!("/proc/{id}/stat"))
        && !line.contains(") Z ")
    {
        assert!(begun.elapsed() < Duration::from_secs(30), "{line}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_that_closes_its_descriptors_is_replaced() {
    let directory = TemporaryDirectory::new();
    let mut splitter = Supervised::new(&build(&directory, MISBEHAVING, &[]), "");
    let all = splitter.divide(&[b"x\x01", b".\x02"]);
    assert!(all[0] == Ok(1) || all[0] == FAILED, "it may be ended before it has answered: {all:?}");
    assert_eq!(all[1], Ok(2));
    assert_eq!(splitter.divide(&[b".\x03"]), [Ok(3)]);
    assert!((1..=2).contains(&splitter.supervisor.restarted()));
}

#[test]
fn a_library_can_do_no_more_while_it_is_loaded_than_it_needs() {
    let directory = TemporaryDirectory::new();
    // It came along with everything that this process has open.
    let file = std::fs::File::open("/dev/null").expect("it is there");
    let inherited = rustix::io::dup(&file).expect("it can be had twice");
    for (letter, told) in [
        ('r', "good"),
        ('d', "good"),
        ('o', "it called `openat`"),
        ('s', "it called `socket`"),
        ('f', "it called `clone`"),
        ('T', "it made a system call that is forbidden"),
        ('g', "it crashed (SIGABRT) when its `memory` had run out"),
    ] {
        let library = build(&directory, MISBEHAVING, &[&format!("LOADING='{letter}'")]);
        let said = tried_out(&library, "");
        assert!(said.contains(told), "{letter}: {said}");
    }
    drop(inherited);
}

/// Without seccomp and landlock the process still works, and what is missing is reported.
#[test]
fn what_the_system_cannot_do_is_reported() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, MISBEHAVING, &[]);
    for (macros, seccomp, landlock) in
        [(&["SECCOMP"][..], true, false), (&["LANDLOCK"], false, true), (&["SECCOMP", "LANDLOCK"], true, true)]
    {
        let mut config = process_config(config(&library, ""));
        config.command.insert(0, build_program(&directory, OLD_KERNEL, macros));
        let mut splitter = Supervised::with(config);
        assert_eq!(splitter.divide(&[b".\x01"]), [Ok(1)]);
        assert_eq!(splitter.process.missing(), Missing { seccomp, landlock });
    }
}

/// Without seccomp no file can be opened all the same, and no process started: landlock and limits stand behind it.
#[test]
fn each_barrier_stands_by_itself() {
    let directory = TemporaryDirectory::new();
    let old_kernel = build_program(&directory, OLD_KERNEL, &["SECCOMP"]);
    let written = directory.0.join("written");
    let library = build(&directory, MISBEHAVING, &["LOADING='o'", &format!("FILE_TO_WRITE=\"{}\"", written.display())]);
    let mut config = process_config(config(&library, ""));
    config.command.insert(0, old_kernel);
    let mut splitter = Supervised::with(config);
    let refused = Err(Cause::Malformed);
    assert_eq!(splitter.divide(&[b"r.", b"f.", b".\x03"]), [refused, refused, Ok(3)], "{:?}", splitter.ends());
    assert!(!written.exists(), "not even while the library was loaded");
}

#[test]
fn what_is_waited_for_stays_the_same_from_process_to_process() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, MISBEHAVING, &[]);
    let mut process = SplitterProcess::new(process_config(config(&library, ""))).expect("memory");
    let known = process.descriptors().next().expect("there is one").try_clone_to_owned().expect("it can be watched");
    for _ in 0..2 {
        process.start();
        let woken = |process: &mut SplitterProcess, what: fn(&Sight) -> bool| {
            let long = Timespec { tv_sec: 20, tv_nsec: 0 };
            loop {
                let mut events = [PollFd::new(&known, PollFlags::IN)];
                assert_eq!(poll(&mut events, Some(&long)).expect("it can be waited for"), 1, "no wake-up came");
                if what(&process.look()) {
                    return;
                }
            }
        };
        woken(&mut process, |sight| sight.is_ready);
        process.kill();
        woken(&mut process, |sight| sight.has_ended);
    }
}

fn tried_out(library: &Path, configuration: &str) -> String {
    let mut process = SplitterProcess::new(process_config(config(library, configuration))).expect("memory");
    // What hangs is not waited for as long as what is slow.
    let patience = if configuration == "hang" { Duration::from_secs(2) } else { Duration::from_secs(30) };
    process.try_out(patience).map_or_else(|error| error.to_string(), |()| "good".to_owned())
}

#[test]
fn what_is_wrong_with_a_splitter_is_known_before_the_run() {
    let directory = TemporaryDirectory::new();
    let built = |macros: &[&str]| build(&directory, MISBEHAVING, macros);
    assert_eq!(tried_out(&built(&[]), ""), "good");
    for (library, configuration, word) in [
        (built(&["VERSION=2"]), "", "built for version 2"),
        (built(&["NO_TABLE"]), "", "no function `ropewalk_plugin`"),
        (directory.0.join("nowhere.so"), "", "cannot be loaded"),
        (built(&[]), "refuse", "it wants to hear something else"),
        (built(&[]), "crash", "its process was not ready yet when it crashed (SIGABRT)"),
        (built(&[]), "open", "its process was not ready yet when it called `openat`"),
        (built(&[]), "hang", "it was not ready after 2s"),
    ] {
        let told = tried_out(&library, configuration);
        assert!(told.contains(word), "{told}");
    }
    let long = SplitterProcess::new(process_config(config(&built(&[]), &"x".repeat(70_000))));
    assert!(long.expect_err("it does not fit").to_string().contains("60 KiB"));
    let nowhere =
        ProcessConfig { command: vec!["/nowhere/ropewalk".into()], ..process_config(config(&built(&[]), "")) };
    let told =
        SplitterProcess::new(nowhere).expect("memory").try_out(Duration::from_secs(2)).expect_err("it is not there");
    assert!(told.to_string().contains("cannot be started"), "{told}");
}
