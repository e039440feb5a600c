//! Landlock: files and addresses out of reach (linux/landlock.h; Linux 5.13 and later).
#![allow(unsafe_code)]

use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Which files may be reached.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Files {
    /// All that the user may read, to be read.
    Read,
    /// The same, to be read and to be started.
    ReadAndStart,
    /// None.
    None,
}

/// `struct landlock_ruleset_attr`: what is forbidden unless a rule allows it.
#[repr(C)]
struct Handled {
    files: u64,
    network: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    parent: RawFd,
}

const EXECUTE: u64 = 1 << 0;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
const RULE_PATH_BENEATH: u32 = 1;
const CREATE_RULESET_VERSION: u32 = 1;

/// What this version of landlock can forbid: all of it is.
const fn handled(version: i64) -> Handled {
    let files = match version {
        1 => (1 << 13) - 1,
        2 => (1 << 14) - 1,
        3 | 4 => (1 << 15) - 1,
        _ => (1 << 16) - 1,
    };
    // To bind and to connect; since version 6 abstract addresses, and signals to others, as well.
    Handled { files, network: if version >= 4 { 3 } else { 0 }, scoped: if version >= 6 { 3 } else { 0 } }
}

/// From now on this thread reaches no other files than these, and no network.
pub(super) fn allow(files: Files) -> io::Result<()> {
    let none = core::ptr::null::<Handled>();
    // SAFETY: with this flag the kernel reads nothing and returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, CREATE_RULESET_VERSION) };
    let handled = handled(checked(version)?);
    // SAFETY: the kernel reads the struct, of that size, during the call; what a kernel does not know in it is zero.
    let rules =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<Handled>(), 0_u32) };
    // SAFETY: what it returned is a new descriptor, which nobody else has.
    let rules = unsafe { OwnedFd::from_raw_fd(checked(rules)? as RawFd) };
    let allowed = match files {
        Files::Read => READ_FILE | READ_DIRECTORY,
        Files::ReadAndStart => EXECUTE | READ_FILE | READ_DIRECTORY,
        Files::None => 0,
    };
    if allowed > 0 {
        let root = open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let rule = Beneath { allowed, parent: root.as_raw_fd() };
        // SAFETY: the kernel reads the struct during the call; both descriptors are there.
        let added = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0_u32)
        };
        checked(added)?;
    }
    // SAFETY: it takes no memory; the descriptor is there.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) })?;
    Ok(())
}

fn checked(returned: i64) -> io::Result<i64> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_forbids_what_it_knows() {
        // linux/landlock.h: LANDLOCK_ACCESS_FS_MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV are the last ones of these versions.
        let files = [1, 2, 3, 4, 5, 6, 7, 8].map(|version| handled(version).files.trailing_ones());
        assert_eq!(files, [13, 14, 15, 15, 16, 16, 16, 16]);
        assert_eq!(
            [3, 4, 5, 6].map(|version| (handled(version).network, handled(version).scoped)),
            [(0, 0), (3, 0), (3, 0), (3, 3)]
        );
        assert_eq!(size_of::<Beneath>(), 12);
    }
}
