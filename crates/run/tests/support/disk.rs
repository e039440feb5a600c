//! Faulty disks: one that is soon full, one that freezes or that the system gives up.

use super::wait_for;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of 8 MiB in memory, until dropped.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts the disk; `None` if this process may not mount.
    pub(crate) fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).expect("a directory can be made");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Replaces a directory that a run uses with a file. The run may create files, or the directory, at any time.
pub(crate) fn replace_with_file(directory: &Path) {
    wait_for("a file in the place of the directory", || {
        let _ = fs::remove_dir_all(directory);
        fs::write(directory, "in the way").ok()
    });
}

/// A separate file system in a file, until dropped.
#[derive(Debug)]
pub(crate) struct OwnDisk(PathBuf);

impl OwnDisk {
    /// Mounts the disk; `None` if this process may not mount, or lacks the tools to create one.
    pub(crate) fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).expect("a directory can be made");
        let image = at.with_extension("image");
        fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a file can be made");
        let is_made = is_done(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        let is_mounted = is_made && is_done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(at));
        is_mounted.then(|| Self(at.to_owned()))
    }

    /// Makes every further write wait. Returns false if this process may not do that.
    pub(crate) fn freeze(&self) -> bool {
        is_done(Command::new("fsfreeze").arg("--freeze").arg(&self.0))
    }

    /// Lets writes continue.
    pub(crate) fn thaw(&self) -> bool {
        is_done(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0))
    }

    /// Does what the system does on a damaged file system: from here on it is read-only, including open files.
    pub(crate) fn abort(&self) -> bool {
        is_done(Command::new("mount").args(["-o", "remount,abort"]).arg(&self.0))
    }
}

impl Drop for OwnDisk {
    fn drop(&mut self) {
        self.thaw();
        is_done(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

/// Returns whether a command can be run and succeeds.
fn is_done(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
