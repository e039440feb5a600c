//! What the process of a plug-in gives up before the plug-in has anything to do.

use rustix::process::{Gid, Uid, set_parent_process_death_signal};
use rustix::process::{Resource, Rlimit, Signal, getppid, getuid, setrlimit};
use rustix::thread::{set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid};
use std::io;

/// The user and group that have no rights.
const NOBODY: u32 = 65_534;

/// From now on: no rights of root, none to be gained, no other processes or threads, at most so many bytes of memory beside
/// what there is, and death with the one who started it.
pub(super) fn confine(memory: u64, starter: u32) -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let most = memory.saturating_add(mapped()?);
    setrlimit(Resource::As, Rlimit { current: Some(most), maximum: Some(most) })?;
    set_no_new_privs(true)?;
    if getuid().is_root() {
        set_thread_groups(&[])?;
        let (group, user) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
        set_thread_gid(group)?;
        set_thread_uid(user)?;
    }
    // After the change of the user, which is free to start a new life otherwise.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    setrlimit(Resource::Nproc, Rlimit { current: Some(0), maximum: Some(0) })?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() as u32 != starter) {
        return Err(io::Error::other("whoever started it has gone"));
    }
    Ok(())
}

/// Bytes that this process has mapped.
fn mapped() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm does not say how much is mapped"))?;
    Ok(pages * rustix::param::page_size() as u64)
}
