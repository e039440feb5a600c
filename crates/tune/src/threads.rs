//! Running processes of Ropewalk: their threads, and on which CPUs each of these may run.
//!
//! The kernel reuses the number of a thread that has ended. So a thread is identified by its number and its start time
//! (proc_pid_stat(5), field 22). Only processes whose name begins with `ropewalk` are read: all others belong to other
//! programs.

use std::fmt;
use std::io;
use std::path::Path;

use ropewalk_host::{CpuList, container_cpus};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the names of our processes begin with.
const OWN: &str = "ropewalk";
/// The line of a thread's `status` with its CPUs.
const CPUS: &str = "Cpus_allowed_list:";

/// A thread of a running process, and of no other one that gets its number after it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunningThread {
    /// The number of the thread's process.
    pub process: u32,
    /// The thread's own number, which for the first thread of a process is the same.
    pub thread: u32,
    /// When the thread began, in ticks of the clock since the start of the kernel. Another thread may get its number.
    pub begun: u64,
    /// The thread's name, for people.
    pub name: String,
}

impl RunningThread {
    /// Its directory without the leading slash.
    pub(crate) fn path(&self) -> String {
        format!("proc/{}/task/{}", self.process, self.thread)
    }
}

impl fmt::Display for RunningThread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CPUs of thread {} ({}) of process {}", self.thread, self.name, self.process)
    }
}

/// A process of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// The CPUs of its control group, if the kernel reports them.
    pub container: Option<CpuList>,
    /// Its threads, by their numbers.
    pub threads: Vec<Thread>,
}

/// One of its threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Which.
    pub id: RunningThread,
    /// The CPUs on which it may run.
    pub cpus: CpuList,
}

impl Process {
    /// The processes of the machine whose files are below `root`, without this process.
    pub(crate) fn all(root: &Path) -> Vec<Self> {
        let processes = root.join("proc");
        let asking = std::fs::read_link(processes.join("self")).ok().and_then(|link| link.to_str()?.parse().ok());
        let others = numbers(&processes).into_iter().filter(|number| Some(*number) != asking);
        others.filter_map(|number| Self::read(root, number)).collect()
    }

    fn read(root: &Path, number: u32) -> Option<Self> {
        let directory = root.join(format!("proc/{number}"));
        std::fs::read_to_string(directory.join("comm")).ok().filter(|name| name.starts_with(OWN))?;
        let threads = numbers(&directory.join("task")).into_iter();
        let threads =
            threads.filter_map(|thread| Thread::read(&directory.join(format!("task/{thread}")), number, thread));
        let container = container_cpus(root, &directory).ok().flatten();
        Some(Self { number, container, threads: threads.collect() })
    }
}

impl Thread {
    fn read(directory: &Path, process: u32, thread: u32) -> Option<Self> {
        let stat = text(&directory.join("stat")).ok()??;
        let Stat { name, begun } = Stat::read(&stat)?;
        let status = text(&directory.join("status")).ok()??;
        let cpus = cpus_in(&status)?.parse().ok()?;
        Some(Self { id: RunningThread { process, thread, begun, name }, cpus })
    }
}

/// The numbers that name something in a directory, ascending.
fn numbers(directory: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// A file of a thread; `None` if the thread has ended, which may happen during the read.
fn text(file: &Path) -> io::Result<Option<String>> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if [Errno::NOENT, Errno::SRCH].iter().any(|one| Errno::from_io_error(&error) == Some(*one)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What is read of proc_pid_stat(5).
struct Stat {
    name: String,
    begun: u64,
}

impl Stat {
    /// None for a thread that has ended and waits for its parent, and for other text.
    fn read(text: &str) -> Option<Self> {
        // A name may have brackets in it.
        let (name, fields) = text.split_once('(')?.1.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let begun = fields.get(19)?.parse().ok().filter(|_| !["Z", "X"].contains(&fields[0]))?;
        Some(Self { name: name.to_owned(), begun })
    }
}

/// The list of CPUs in a thread's `status`.
fn cpus_in(status: &str) -> Option<&str> {
    status.lines().find_map(|line| line.strip_prefix(CPUS)).map(str::trim)
}

/// The CPUs on which a thread may run, in the kernel's list format; `None` if it has ended, also if another thread has
/// its number now. `directory` is its own.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read(directory: &Path, begun: u64) -> io::Result<Option<String>> {
    let stat = text(&directory.join("stat"))?;
    if stat.and_then(|stat| Stat::read(&stat)).is_none_or(|stat| stat.begun != begun) {
        return Ok(None);
    }
    Ok(text(&directory.join("status"))?.and_then(|status| cpus_in(&status).map(str::to_owned)))
}

/// Restricts a thread of this machine to some CPUs. Does nothing if the thread has ended.
///
/// # Errors
/// `EPERM` without the right, `EINVAL` if it may use none of them.
pub(crate) fn write(thread: &RunningThread, cpus: &CpuList) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(Errno::INVAL.into());
        }
        set.set(cpu as usize);
    }
    let number = i32::try_from(thread.thread).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
    match number.and_then(|number| sched_setaffinity(Some(number), &set)) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The same on a recorded machine.
///
/// # Errors
/// When its file cannot be written.
pub(crate) fn record(directory: &Path, cpus: &CpuList) -> io::Result<()> {
    let file = directory.join("status");
    let line = |line: &str| match line.strip_prefix(CPUS) {
        Some(_) => format!("{CPUS}\t{cpus}\n"),
        None => line.to_owned(),
    };
    let status: String = std::fs::read_to_string(&file)?.split_inclusive('\n').map(line).collect();
    std::fs::write(file, status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_may_have_brackets_in_them() {
        let stat = "4712 (ru0) (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 8421 20 21\n";
        let Stat { name, begun } = Stat::read(stat).expect("it is one");
        assert_eq!((name.as_str(), begun), ("ru0) (x", 8421));
        assert!(Stat::read(&stat.replace(" S ", " Z ")).is_none(), "it has ended");
    }

    #[test]
    fn own_threads_are_as_the_kernel_tells() {
        let directory = Path::new("/proc/thread-self");
        let link = std::fs::read_link(directory).expect("Linux has it");
        let number = link.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
        let thread = Thread::read(directory, std::process::id(), number).expect("it runs");
        assert_eq!(read(directory, thread.id.begun).expect("it can be read"), Some(thread.cpus.to_string()));
        assert_eq!(read(directory, thread.id.begun + 1).expect("it can be read"), None, "another one");
        assert_eq!(read(Path::new("/proc/self/task/none"), 7).expect("it is not there"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[ ()0-9A-Za-z\n:]{0,120}") {
            let _ = (Stat::read(&text), cpus_in(&text).map(str::len));
        }
    }
}
