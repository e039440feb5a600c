//! The rules of all disks on separate file systems, in files behind loop devices: ext4 with and without `discard`, XFS,
//! and one in memory. Skipped if this process may not mount, or lacks the tools to make them.

use super::{Directory, PastTheCache, removal, with_every_rule};
use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

thread_local! {
    static PRESENT: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// The file system on which this thread's tests write; `None` for that of the target directory.
pub(super) fn present() -> Option<PathBuf> {
    PRESENT.with_borrow(Clone::clone)
}

/// A mounted file system, until dropped: the tests of this thread write there.
struct Mounted {
    point: PathBuf,
    /// The directory made for it.
    _directory: Directory,
}

impl Mounted {
    /// With this size; `None` if this process may not mount, or lacks the tools to make one.
    fn new(kind: &str, mebibytes: u64, options: &str) -> Option<Self> {
        let directory = Directory::default();
        let (image, point) = (directory.path.join("image"), directory.path.join("point"));
        std::fs::create_dir(&point).expect("a directory can be made");
        let mut mount = Command::new("mount");
        mount.args(["-t", kind]);
        if kind == "tmpfs" {
            mount.args(["-o", &format!("{options},size={mebibytes}m"), "tmpfs"]);
        } else {
            File::create(&image).and_then(|file| file.set_len(mebibytes << 20)).expect("a file can be made");
            let force = if kind == "xfs" { "-f" } else { "-F" };
            if !is_done(Command::new(format!("mkfs.{kind}")).args(["-q", force]).arg(&image)) {
                return None;
            }
            mount.args(["-o", &format!("{options},loop")]).arg(&image);
        }
        if !is_done(mount.arg(&point)) {
            return None;
        }
        PRESENT.set(Some(point.clone()));
        Some(Self { point, _directory: directory })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        PRESENT.set(None);
        is_done(Command::new("umount").arg("--lazy").arg(&self.point));
    }
}

/// Whether a command can be run, and succeeds.
fn is_done(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

macro_rules! all_of_them {
    ($medium:ident: $($rule:ident),* $(,)?) => {
        $(super::rules::$rule::<$medium>();)*
    };
}

/// Every rule, both ways, and the deletion of files.
fn conforms(test: &str, kind: &str, options: &str) {
    // XFS needs at least this size.
    let Some(mounted) = Mounted::new(kind, 320, options) else {
        return ropewalk_tidy::skipped(test, &format!("no {kind} can be made and mounted"));
    };
    assert!(Path::new(&super::Directory::default().path).starts_with(&mounted.point));
    with_every_rule!(all_of_them!(Directory));
    with_every_rule!(all_of_them!(PastTheCache));
    removal::a_reader_goes_on_reading_what_is_deleted();
    removal::a_file_with_a_second_name_keeps_its_content_there();
    removal::what_a_killed_process_left_half_deleted_is_deleted();
    super::files::each_way_writes_what_was_appended();
}

#[test]
fn ext4_conforms() {
    conforms("disk::file_systems::ext4_conforms", "ext4", "nodiscard");
}

#[test]
fn ext4_with_discard_conforms() {
    conforms("disk::file_systems::ext4_with_discard_conforms", "ext4", "discard");
}

#[test]
fn xfs_conforms() {
    conforms("disk::file_systems::xfs_conforms", "xfs", "rw");
}

#[test]
fn a_file_system_in_memory_conforms() {
    conforms("disk::file_systems::a_file_system_in_memory_conforms", "tmpfs", "rw");
}
