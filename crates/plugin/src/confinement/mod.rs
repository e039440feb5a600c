//! What the process of a plug-in gives up, whatever kind of plug-in it is.
//!
//! ```text
//!  LastWords --> before_loading --> its library is loaded --> before_work --> it computes, and speaks over what it was given
//!  who ends      no rights, no       constructors run          no files       everything else ends it, and an Ending says
//!  says why      terminal; reads                                              what that was
//!                files alone
//! ```
//! The constructors of a library are its code like any other: whatever can do harm is given up before they run. What comes after them,
//! `before_work`, takes back what loading needed, and stops what a plug-in does by mistake; one that means harm was kept from it
//! before.
//!
//! Rights, the terminal, memory and processes are given up everywhere. System calls (seccomp: a list of what is allowed, so that one which
//! nobody thought of is not) and files (landlock) are where the system can do that; what it cannot is [`Missing`], and said.
//! A program is not loaded but becomes the process (`before_program`), which keeps it from files, others' processes and rights alone.
//! Nothing of this is undone: it holds until the process ends.

mod calls;
mod ending;
mod files;
mod filter;
mod last_words;
mod rights;

pub use ending::Ending;
pub use last_words::{LastWords, WORDS, WORDS_BYTES};

use files::Files;
use filter::Filter;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Signal, getpid, getppid, getrlimit, setrlimit};
use rustix::process::{set_parent_process_death_signal, setsid};
use rustix::thread::{CapabilitySet, set_no_new_privs};
use std::io;
use std::os::fd::RawFd;

/// What a library and those that it needs may take while they are loaded, in bytes, beside the memory that is allowed later.
const LIBRARY: u64 = 1 << 30;

/// What the process of a plug-in keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confinement {
    /// Bytes of memory that it may take beside what is mapped when its work begins.
    pub memory: u64,
    /// The process that started it, with whose thread it ends.
    pub starter: u32,
    /// Descriptors over which it may read, write, send and receive. It may read standard input, and write to standard output and
    /// standard error as well.
    pub speaks_over: Vec<RawFd>,
}

/// What the system cannot do here.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Calls of the system are not limited.
    pub seccomp: bool,
    /// Files are not out of reach.
    pub landlock: bool,
}

impl Missing {
    /// What is missing in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { seccomp: self.seccomp || other.seccomp, landlock: self.landlock || other.landlock }
    }

    /// What that means, for people.
    pub fn texts(self) -> impl Iterator<Item = &'static str> {
        let seccomp = "seccomp is refused here: its process may make any call of the system that its user may";
        let landlock = "landlock is refused here: its process may open files that its user may";
        let both = "seccomp and landlock are refused here: its process may do whatever its user may";
        match (self.seccomp, self.landlock) {
            (false, false) => None,
            (true, false) => Some(seccomp),
            (false, true) => Some(landlock),
            (true, true) => Some(both),
        }
        .into_iter()
    }
}

impl Confinement {
    /// From now on this process can load a library, and do little else: it reads files that anybody may read, starts no other
    /// process or thread, speaks to nobody new, has no terminal, changes nothing of other processes, and dies with the one who
    /// started it. `prepare` runs when its rights have gone, before files and calls of the system are limited.
    ///
    /// # Errors
    /// Where a limit is refused that every system has, other threads run that would keep what this one gives up, or whoever
    /// started it has gone.
    pub fn before_loading(&self, prepare: impl FnOnce()) -> io::Result<Missing> {
        be_alone()?;
        leave_terminal()?;
        set_limit(Resource::Core, 0)?;
        set_limit(Resource::As, self.memory.saturating_add(LIBRARY).saturating_add(mapped()?))?;
        set_limit(Resource::Nproc, 0)?;
        set_no_new_privs(true)?;
        rights::drop_all()?;
        // A change of the user ends that a process dies with its starter, so that this comes behind it.
        self.die_with_starter()?;
        prepare();
        let landlock = files::allow(Files::Read).is_err();
        let own = [0, own_id()];
        let seccomp = (self.lasting())
            .map(|filter| filter.allow(calls::LOADING))
            .and_then(|filter| filter.allow_by_argument(calls::LOADING_BY_ARGUMENT))
            .and_then(|filter| filter.allow_where(calls::LIMITS, 0, &own))
            .and_then(Filter::allow_reading_of_files)
            .and_then(Filter::install);
        Ok(Missing { seccomp: seccomp.is_err(), landlock })
    }

    /// From now on this process computes and speaks over its descriptors, and nothing else: it opens no file, and takes no more
    /// memory than it may. [`Confinement::before_loading`] comes before it.
    ///
    /// # Errors
    /// Where a limit is refused that every system has.
    pub fn before_work(&self) -> io::Result<Missing> {
        // What took more while it was loaded keeps that, and gets nothing: a limit cannot be raised.
        let present = getrlimit(Resource::As).maximum.unwrap_or(u64::MAX);
        set_limit(Resource::As, self.memory.saturating_add(mapped()?).min(present))?;
        let landlock = files::allow(Files::None).is_err();
        let refused = [calls::ASKED_BY_THE_WAY, calls::FILTERING].concat();
        // The second filter is installed by calls that the first one allows, and that are refused from then on.
        let seccomp = (self.lasting())
            .and_then(|filter| filter.allow(&refused).install())
            .and_then(|()| filter::refuse(&refused));
        Ok(Missing { seccomp: seccomp.is_err(), landlock })
    }

    /// From now on this process, and the program that it becomes, reads and starts files and changes none, speaks to nobody new over TCP,
    /// looks into no process outside, has no terminal, gains no rights and has none of root's but to read files, takes no more memory of
    /// its own than it may, and dies with the one who started it. Which calls of the system it makes is not limited, for a program may
    /// need any.
    ///
    /// # Errors
    /// As [`Confinement::before_loading`].
    pub fn before_program(&self) -> io::Result<Missing> {
        be_alone()?;
        leave_terminal()?;
        set_limit(Resource::Core, 0)?;
        // What others can write to, as shared memory, does not count as its own.
        set_limit(Resource::Data, self.memory)?;
        set_no_new_privs(true)?;
        rights::keep(CapabilitySet::DAC_READ_SEARCH)?;
        self.die_with_starter()?;
        Ok(Missing { seccomp: false, landlock: files::allow(Files::ReadAndStart).is_err() })
    }

    /// What it may do at any time.
    fn lasting(&self) -> io::Result<Filter> {
        let speaks_over: Vec<_> = self.speaks_over.iter().map(|&descriptor| descriptor as u32).collect();
        let prints_too: Vec<_> = speaks_over.iter().copied().chain([1, 2]).collect();
        let reads_too: Vec<_> = speaks_over.iter().copied().chain([0]).collect();
        Filter::default()
            .allow(calls::COMPUTING)
            .allow_where(calls::READING, 0, &reads_too)?
            .allow_where(calls::SPEAKING, 0, &speaks_over)?
            .allow_where(calls::PRINTING, 0, &prints_too)?
            // How `abort` ends this process; another one is none of its business.
            .allow_where(calls::SIGNALLING, 0, &[own_id()])
    }

    fn die_with_starter(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() as u32 != self.starter) {
            return Err(io::Error::other("whoever started it has gone"));
        }
        Ok(())
    }
}

fn set_limit(resource: Resource, most: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

fn own_id() -> u32 {
    getpid().as_raw_nonzero().get() as u32
}

/// Rights are each thread's own.
fn be_alone() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        threads => Err(io::Error::other(format!("it has {threads} threads, and each keeps its rights"))),
    }
}

/// Signals of a terminal are for the run, which ends this process in its time; nor can what runs here type into that terminal.
fn leave_terminal() -> io::Result<()> {
    match setsid() {
        // It leads a process group already. That is enough where it leads the session as well.
        Err(Errno::PERM) if session()? == own_id() => Ok(()),
        left => Ok(left.map(drop)?),
    }
}

/// The session of this process; 0 where its leader is outside this PID namespace, as in a container. `rustix::process::getsid` takes
/// that 0 for a process id and panics.
fn session() -> io::Result<u32> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may contain anything. Behind it: state, parent, process group, session.
    let session = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(3)?.parse().ok());
    session.ok_or_else(|| io::Error::other("/proc/self/stat does not show the session"))
}

/// Bytes that this process has mapped.
fn mapped() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm does not say how much is mapped"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_once() {
        let texts = |seccomp, landlock| Missing { seccomp, landlock }.texts().collect::<Vec<_>>();
        assert_eq!(texts(false, false), [""; 0]);
        assert!(texts(true, false)[0].starts_with("seccomp is refused"));
        assert!(texts(false, true)[0].starts_with("landlock is refused"));
        assert!(texts(true, true)[0].starts_with("seccomp and landlock are refused"));
        let (one, other) = (Missing { seccomp: true, landlock: false }, Missing { seccomp: false, landlock: true });
        assert_eq!(one.or(other), Missing { seccomp: true, landlock: true });
        assert_eq!(Missing::default().or(other), other);
    }
}
