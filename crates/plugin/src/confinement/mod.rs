//! What the process of a plug-in gives up, whatever kind of plug-in it is.
//!
//! ```text
//!  LastWords --> before_loading --> its library is loaded --> before_work --> it computes, and speaks over what it was given
//!  who ends      reads files, and    constructors run          no files       everything else ends it, and an Ending says
//!  says why      nothing else                                                 what that was
//! ```
//! Rights of root, memory and processes are limited everywhere. System calls (seccomp: a list of what is allowed, so that one which
//! nobody thought of is not) and files (landlock) are where the system can do that; what it cannot is [`Missing`], and said.
//! A program is not loaded but becomes the process (`before_program`), which keeps it from files, others' processes and rights alone.
//! Nothing of this is undone: it holds until the process ends.

mod calls;
mod ending;
mod filter;
mod landlock;
mod last_words;

pub use ending::Ending;
pub use last_words::{LastWords, WORDS, WORDS_BYTES};

use filter::Filter;
use landlock::Files;
use rustix::process::{Gid, Uid, set_parent_process_death_signal};
use rustix::process::{Resource, Rlimit, Signal, getpid, getppid, getuid, setrlimit};
use rustix::thread::{set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid};
use std::io;
use std::os::fd::RawFd;

/// The user and group that have no rights.
const NOBODY: u32 = 65_534;
/// What a library and those that it needs may take while they are loaded, in bytes, beside the memory that is allowed later.
const LIBRARY: u64 = 1 << 30;

/// What the process of a plug-in keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confinement {
    /// Bytes of memory that it may take beside what is mapped when its work begins.
    pub memory: u64,
    /// The process that started it, with whose thread it ends.
    pub starter: u32,
    /// Descriptors over which it may read, write, send and receive. It may write to standard output and standard error as well.
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
    /// From now on this process can load a library, and must not do much else: it reads files, starts no other process or
    /// thread, speaks to nobody new, and dies with the one who started it.
    ///
    /// # Errors
    /// Where a limit is refused that every system has, or whoever started it has gone.
    pub fn before_loading(&self) -> io::Result<Missing> {
        set_limit(Resource::Core, 0)?;
        set_limit(Resource::As, self.memory.saturating_add(LIBRARY).saturating_add(mapped()?))?;
        set_limit(Resource::Nproc, 0)?;
        set_no_new_privs(true)?;
        self.die_with_starter()?;
        let landlock = landlock::allow(Files::Read).is_err();
        let seccomp = self.complete(Filter::new().allow(calls::LOADING).allow_reading_of_files()).install().is_err();
        Ok(Missing { seccomp, landlock })
    }

    /// From now on this process computes and speaks over its descriptors, and nothing else: it has no rights of root, opens no
    /// file, and takes no more memory than it may. [`Confinement::before_loading`] comes before it.
    ///
    /// # Errors
    /// As [`Confinement::before_loading`].
    pub fn before_work(&self) -> io::Result<Missing> {
        set_limit(Resource::As, self.memory.saturating_add(mapped()?))?;
        if getuid().is_root() {
            set_thread_groups(&[])?;
            let (group, user) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
            set_thread_gid(group)?;
            set_thread_uid(user)?;
            // A change of the user ends that a process dies with its starter.
            self.die_with_starter()?;
        }
        let landlock = landlock::allow(Files::None).is_err();
        let seccomp = self.complete(Filter::new().refuse(calls::ASKED_BY_THE_WAY)).install().is_err();
        Ok(Missing { seccomp, landlock })
    }

    /// From now on this process, and the program that it becomes, reads and starts files and changes none, speaks to nobody new over TCP,
    /// looks into no process outside, gains no rights, takes no more memory of its own than it may, and dies with the one who
    /// started it. Which calls of the system it makes is not limited, for a program may need any.
    ///
    /// # Errors
    /// As [`Confinement::before_loading`].
    pub fn before_program(&self) -> io::Result<Missing> {
        set_limit(Resource::Core, 0)?;
        // What others can write to, as shared memory, does not count as its own.
        set_limit(Resource::Data, self.memory)?;
        set_no_new_privs(true)?;
        self.die_with_starter()?;
        Ok(Missing { seccomp: false, landlock: landlock::allow(Files::ReadAndStart).is_err() })
    }

    /// What it may do at any time, behind what was answered before.
    fn complete(&self, filter: Filter) -> Filter {
        let own = getpid().as_raw_nonzero().get() as u32;
        let speaks_over: Vec<_> = self.speaks_over.iter().map(|&descriptor| descriptor as u32).collect();
        let prints_too: Vec<_> = speaks_over.iter().copied().chain([1, 2]).collect();
        filter
            .allow(calls::COMPUTING)
            .allow_of(calls::SPEAKING, &speaks_over)
            .allow_of(calls::PRINTING, &prints_too)
            // How `abort` ends this process; another one is none of its business.
            .allow_of(calls::SIGNALLING, &[own])
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
