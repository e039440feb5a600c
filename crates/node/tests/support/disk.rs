//! A disk that is full soon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of 8 MiB in memory, until dropped.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None where this process may not mount.
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
