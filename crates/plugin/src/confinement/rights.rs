//! What a process of root, or one with capabilities, gives up.

use rustix::process::{Gid, Uid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_thread_gid, set_thread_groups, set_thread_uid,
};
use std::io;

/// The user and group that have no rights.
const NOBODY: u32 = 65_534;

/// From now on this process is not one of root and has no capabilities, whatever it starts. Where there is no other user, as in a
/// container with a single one, it keeps its user, and what that may do to its own files.
pub(super) fn drop_all() -> io::Result<()> {
    bound(CapabilitySet::empty())?;
    if getuid().is_root() {
        // Where that is refused the capabilities go all the same.
        let _ = become_nobody();
    }
    keep_in_effect(CapabilitySet::empty())
}

/// From now on this process, and whatever it becomes, has no capabilities but those of these that it had.
pub(super) fn keep(kept: CapabilitySet) -> io::Result<()> {
    bound(kept)?;
    keep_in_effect(kept)
}

fn become_nobody() -> io::Result<()> {
    set_thread_groups(&[])?;
    set_thread_gid(Gid::from_raw(NOBODY))?;
    Ok(set_thread_uid(Uid::from_raw(NOBODY))?)
}

/// No program that it becomes has others.
fn bound(kept: CapabilitySet) -> io::Result<()> {
    if capabilities(None)?.permitted.contains(CapabilitySet::SETPCAP) {
        for one in CapabilitySet::all().difference(kept).iter() {
            // An older kernel does not know all of them.
            let _ = remove_capability_from_bounding_set(one);
        }
    }
    // Kernels before 4.3 have no such set.
    let _ = clear_ambient_capability_set();
    Ok(())
}

fn keep_in_effect(kept: CapabilitySet) -> io::Result<()> {
    let left = capabilities(None)?.permitted & kept;
    Ok(set_capabilities(
        None,
        CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() },
    )?)
}
