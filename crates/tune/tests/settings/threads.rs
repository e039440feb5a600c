//! Threads of a running process put on other CPUs and taken back, with the changing process killed before each of its
//! steps. The running process is this program once more, under the name of ours, with threads that have the names of
//! units.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Barrier};
use std::time::SystemTime;

use ropewalk_tune::change::{self, Action, Applied, Fate, Foreign};
use ropewalk_tune::{Change, Found, Group, Place, Plan, Process, Setting, Settings, Wish};
use rustix::process::{Signal, getpid, kill_process};

/// Says which part of a test this program is.
const PART: &str = "ROPEWALK_TUNE_THREADS";
/// The directory of the journal.
const DIRECTORY: &str = "ROPEWALK_TUNE_DIRECTORY";
/// The process whose threads are put elsewhere.
const PROCESS: &str = "ROPEWALK_TUNE_PROCESS";
/// Before which step it kills itself.
const KILLED_BEFORE: &str = "ROPEWALK_TUNE_KILLED_BEFORE";

const NAMES: [&str; 3] = ["ru0", "bu0", "manager"];

/// A process that is named as ours, in a directory of its own; both go with the value.
struct Running {
    process: Child,
    /// What it says; held open, so that its output does not break before it ends.
    said: BufReader<ChildStdout>,
    directory: PathBuf,
}

impl Running {
    fn new(test: &str) -> Option<Self> {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            ropewalk_tidy::skipped(test, "there is one CPU");
            return None;
        }
        let directory = std::env::temp_dir().join(format!("ropewalk-tune-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a temporary directory can be made");
        let program = directory.join("ropewalk");
        fs::copy(std::env::current_exe().expect("this program has a file"), &program).expect("a file can be copied");
        let mut command = program_as(&program, "run");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut said = BufReader::new(process.stdout.take().expect("it was asked for"));
        let has_begun = said.by_ref().lines().any(|line| line.is_ok_and(|line| line.contains("all threads run")));
        assert!(has_begun, "it has ended");
        Some(Self { process, said, directory })
    }

    fn part(&self, part: &str, killed_before: Option<usize>) -> ExitStatus {
        let mut command = program_as(&std::env::current_exe().expect("this program has a file"), part);
        command.env(DIRECTORY, &self.directory).env(PROCESS, self.process.id().to_string());
        killed_before.map(|step| command.env(KILLED_BEFORE, step.to_string()));
        command.stdout(Stdio::null()).status().expect("it can be started")
    }

    fn good(&self, part: &str) {
        assert!(self.part(part, None).success(), "{part}");
    }

    /// Where each of its threads may run, as the kernel reports it.
    fn state(&self) -> Vec<String> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.process.id()));
        let threads = fs::read_dir(tasks).expect("it runs").flatten();
        let mut lines: Vec<String> = threads
            .map(|thread| {
                let status = fs::read_to_string(thread.path().join("status")).expect("it runs");
                let is_told = |line: &&str| ["Name:", "Pid:", "Cpus_allowed"].iter().any(|key| line.starts_with(key));
                status.lines().filter(is_told).collect::<Vec<_>>().join(" ")
            })
            .collect();
        lines.sort();
        lines
    }

    fn journal(&self) -> PathBuf {
        self.directory.join("tune.journal")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn program_as(program: &Path, part: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "threads::what_is_done_with_threads", "--nocapture"]).env(PART, part);
    command
}

/// Each unit's thread to the last of the CPUs that it may use.
fn plan(process: &Process) -> Plan {
    let units = process.threads.iter().filter(|thread| NAMES.contains(&thread.id.name.as_str()));
    let changes = units.map(|thread| {
        let to = thread.cpus.iter().last().expect("it may run somewhere").to_string();
        let (setting, from) = (Setting::Thread(thread.id.clone()), thread.cpus.to_string());
        Change { setting, from, to, group: Group::Interrupts, rule: "running_threads".to_owned() }
    });
    Plan { changes: changes.collect() }
}

/// Threads that run until the other end is dropped.
fn run() {
    // A thread gives itself its name, and has it when it comes here.
    let begun = Arc::new(Barrier::new(NAMES.len() + 1));
    let threads = NAMES.map(|name| {
        let ((told, hears), begun) = (std::sync::mpsc::channel::<()>(), Arc::clone(&begun));
        let wait = move || {
            begun.wait();
            hears.recv().is_ok()
        };
        (told, std::thread::Builder::new().name(name.to_owned()).spawn(wait).expect("there is room for a thread"))
    });
    begun.wait();
    println!("all threads run");
    let _ = std::io::stdin().read(&mut [0]);
    for (told, thread) in threads {
        drop(told);
        thread.join().expect("it does not panic");
    }
}

/// No test of its own: what the others have done.
#[test]
fn what_is_done_with_threads() {
    let Ok(part) = std::env::var(PART) else { return };
    if part == "run" {
        return run();
    }
    let killed_before: Option<usize> = std::env::var(KILLED_BEFORE).ok().and_then(|step| step.parse().ok());
    let (mut steps, number) = (0, std::env::var(PROCESS).ok().and_then(|number| number.parse::<u32>().ok()));
    let mut watch = |step: usize, _: &Action| {
        steps = step;
        if killed_before == Some(step) {
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
        }
    };
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("it was given"));
    let (mut place, now, journal) = (Place::live(), SystemTime::now(), directory.join("tune.journal"));
    let identity = place.identity();
    if part == "apply" {
        let found = Found::read(&mut place, &Wish::default()).expect("it can be read");
        let process = found.processes.iter().find(|process| Some(process.number) == number).expect("it is found");
        let plan = plan(process);
        assert_eq!((plan.changes.len(), place.permits(&plan)), (3, Ok(())));
        let applied = change::apply(&plan, &mut place, &identity, &journal, now, &mut watch).expect("a journal");
        let Applied { changed, failure, .. } = applied;
        assert_eq!((failure, changed.len()), (None, 3));
        for change in &plan.changes {
            assert_eq!(place.read(&change.setting).expect("it can be read").as_ref(), Some(&change.to));
        }
        fs::write(directory.join("steps"), steps.to_string()).expect("it can be written");
    } else {
        let undone = change::undo(&mut place, &identity, &journal, now, Foreign::Leave, &mut watch);
        let is_put_away = undone.expect("a journal").is_none_or(|undone| undone.is_put_away);
        assert!(is_put_away && !journal.exists(), "something is left");
    }
}

#[test]
fn threads_are_put_elsewhere_and_come_back_after_a_kill_at_any_step() {
    let Some(running) = Running::new("threads_are_put_elsewhere_and_come_back_after_a_kill_at_any_step") else {
        return;
    };
    let before = running.state();
    assert!(NAMES.iter().all(|name| before.iter().any(|line| line.contains(&format!("Name:\t{name} ")))), "{before:?}");
    running.good("apply");
    assert_ne!(running.state(), before);
    running.good("undo");
    assert_eq!(running.state(), before);
    let steps = fs::read_to_string(running.directory.join("steps")).expect("the process wrote it");
    let steps: usize = steps.parse().expect("a number");
    assert!(steps > 15, "{steps}: several for each of the threads");
    for step in 1..=steps {
        assert_eq!(running.part("apply", Some(step)).signal(), Some(Signal::KILL.as_raw()), "{step}");
        running.good("undo");
        assert_eq!(running.state(), before, "killed before step {step}");
    }
}

#[test]
fn a_process_that_has_ended_is_passed_over() {
    let Some(mut running) = Running::new("a_process_that_has_ended_is_passed_over") else { return };
    running.good("apply");
    drop(running.process.stdin.take());
    running.said.read_to_end(&mut Vec::new()).expect("it says something");
    assert!(running.process.wait().expect("it was started").success());
    let (mut place, now) = (Place::live(), SystemTime::now());
    let identity = place.identity();
    let undone = change::undo(&mut place, &identity, &running.journal(), now, Foreign::Leave, &mut |_, _| {});
    let undone = undone.expect("a journal").expect("there is one");
    assert!(undone.is_put_away && undone.troubles.is_empty(), "{undone:?}");
    assert!(undone.fates.len() == 3 && undone.fates.iter().all(|(_, fate)| *fate == Fate::Ended), "{undone:?}");
}
