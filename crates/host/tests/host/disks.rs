//! A disk of this machine: a file system in a file behind a loop device, whose discards are seen.

use ropewalk_host::{DiskActivity, DiskCounters, disk_of};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// ext4 with `discard`, until dropped.
struct WithDiscard(PathBuf);

impl WithDiscard {
    /// `None` if this process may not mount, or has nothing to make one with.
    fn mount() -> Option<Self> {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("discard-{}", std::process::id()));
        let (image, point) = (directory.join("image"), directory.join("point"));
        std::fs::create_dir_all(&point).expect("a directory can be made");
        File::create(&image).and_then(|file| file.set_len(128 << 20)).expect("a file can be made");
        let is_mounted = is_done(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))
            && is_done(Command::new("mount").args(["-o", "loop,discard"]).arg(&image).arg(&point));
        let mounted = Self(directory);
        is_mounted.then_some(mounted)
    }

    fn point(&self) -> PathBuf {
        self.0.join("point")
    }
}

impl Drop for WithDiscard {
    fn drop(&mut self) {
        is_done(Command::new("umount").arg(self.point()));
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a command can be run, and ends well.
fn is_done(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn writes_and_discards_of_a_file_system_are_those_of_its_disk() {
    const TEST: &str = "disks::writes_and_discards_of_a_file_system_are_those_of_its_disk";
    const BYTES: usize = 64 << 20;
    let Some(mounted) = WithDiscard::mount() else { return ropewalk_tidy::skipped(TEST, "may not mount") };
    let disk = disk_of(&mounted.point().join("to/be/made")).expect("it is on a loop device");
    assert!(disk.starts_with("loop"), "{disk}");
    let (before, began) = (DiskCounters::read(&disk).expect("it has a line"), Instant::now());
    let path = mounted.point().join("file");
    let mut file = File::create(&path).expect("a file can be made");
    file.write_all(&vec![0x5a; BYTES]).expect("there is room");
    file.sync_all().expect("the disk is good");
    drop(file);
    std::fs::remove_file(&path).expect("it is there");
    let seen = || {
        // The file system discards when it commits.
        File::open(mounted.point()).and_then(|directory| directory.sync_all()).expect("the disk is good");
        let now = DiskCounters::read(&disk).expect("it has a line");
        DiskActivity::between(&before, &now, began.elapsed().as_secs_f64()).expect("time went on")
    };
    while seen().discards_per_second == 0.0 && began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let activity = seen();
    if activity.discards_per_second == 0.0 {
        return ropewalk_tidy::skipped(TEST, "the loop device discards nothing");
    }
    assert!(
        activity.busy > 0.0 && activity.bytes_per_second > 0.0 && activity.discards <= activity.busy,
        "{activity:?}"
    );
}
