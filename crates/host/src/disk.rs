//! Disks: which one a directory is on, and what takes its time.
//!
//! ```text
//! directory --/proc/self/mountinfo--> Mount --/sys/block--> disk --/proc/diskstats, twice--> DiskActivity
//! ```

use std::path::{Path, PathBuf};

use crate::files;

/// A line of /proc/self/mountinfo (proc(5)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount<'a> {
    /// The number of its device, `MAJOR:MINOR`.
    pub device: &'a str,
    /// The mount point.
    pub point: PathBuf,
    /// Its options and those of its file system.
    pub options: Vec<&'a str>,
    /// The file system, such as `ext4`.
    pub kind: &'a str,
    /// What is mounted, such as `/dev/sda1`.
    pub source: &'a str,
}

/// The kernel writes space, tab, newline and backslash in octal.
fn unescaped(text: &str) -> PathBuf {
    let text = text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\");
    PathBuf::from(text)
}

impl<'a> Mount<'a> {
    /// The mounts in the text of /proc/self/mountinfo.
    pub fn all(text: &'a str) -> Vec<Self> {
        text.lines().filter_map(Self::parse).collect()
    }

    fn parse(line: &'a str) -> Option<Self> {
        let (own, file_system) = line.split_once(" - ")?;
        let own: Vec<&str> = own.split(' ').collect();
        let [kind, source, of_file_system] = file_system.splitn(3, ' ').collect::<Vec<_>>()[..] else { return None };
        let options = own.get(5)?.split(',').chain(of_file_system.split(','));
        Some(Self { device: own.get(2)?, point: unescaped(own.get(4)?), options: options.collect(), kind, source })
    }

    /// The mount that contains a directory: the one with the longest mount point, and of several the last.
    pub fn of<'b>(mounts: &'b [Self], directory: &Path) -> Option<&'b Self> {
        let above = mounts.iter().filter(|mount| directory.starts_with(&mount.point));
        above.max_by_key(|mount| mount.point.components().count())
    }

    /// Whether it is mounted with this option.
    pub fn has(&self, option: &str) -> bool {
        self.options.contains(&option)
    }

    /// The disk that it is on, by its name in /sys/block. `devices` are the paths and texts of the files
    /// `sys/block/DISK/dev` and `sys/block/DISK/PARTITION/dev`.
    pub fn disk<'d>(&self, devices: impl Iterator<Item = (&'d str, &'d str)>) -> Option<&'d str> {
        let node = self.source.strip_prefix("/dev/").map(|name| format!("/{name}/dev"));
        // Some file systems have a number of their own, and name their disk alone.
        disk_with(devices, |path, number| {
            number == self.device || node.as_ref().is_some_and(|end| path.ends_with(end.as_str()))
        })
    }
}

/// The disk of a device number, which may be that of a partition; `devices` as in [`Mount::disk`].
pub fn disk_with<'d>(
    mut devices: impl Iterator<Item = (&'d str, &'d str)>,
    is_meant: impl Fn(&str, &str) -> bool,
) -> Option<&'d str> {
    let (path, _) = devices.find(|(path, number)| is_meant(path, number))?;
    path.strip_prefix("sys/block/")?.split('/').next()
}

/// The disk that a directory is on, or will be once it is made, by its name in /sys/block. `None` for file systems in
/// memory or over the network, and for those in layers.
pub fn disk_of(directory: &Path) -> Option<String> {
    let directory = std::path::absolute(directory).ok()?;
    let directory = directory.ancestors().find_map(|above| above.canonicalize().ok())?;
    disk_below(Path::new("/"), &directory)
}

fn disk_below(root: &Path, directory: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mounts = Mount::all(&text);
    let mount = Mount::of(&mounts, directory)?;
    let devices = devices(root);
    mount.disk(devices.iter().map(|(path, number)| (path.as_str(), number.as_str()))).map(str::to_owned)
}

/// The numbers of the disks and their partitions.
fn devices(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut note = |path: String| {
        if let Ok(number) = files::text(&root.join(&path)) {
            found.push((path, number));
        }
    };
    for disk in files::names(&root.join("sys/block")) {
        note(format!("sys/block/{disk}/dev"));
        let parts = files::names(&root.join("sys/block").join(&disk)).into_iter();
        parts.filter(|part| part.starts_with(&disk)).for_each(|part| note(format!("sys/block/{disk}/{part}/dev")));
    }
    found
}

/// What a disk has done since the machine was started: its line of /proc/diskstats (the kernel's
/// admin-guide/iostats.rst). Times are in milliseconds; those of requests that were under way together add up.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskCounters {
    /// Time of requests to read.
    pub read_ms: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time of requests to write.
    pub write_ms: u64,
    /// Time in which there was any request.
    pub busy_ms: u64,
    /// Requests to discard; 0 if the kernel does not count them (before Linux 4.18).
    pub discards: u64,
    /// Time of these.
    pub discard_ms: u64,
    /// Time of requests to empty the disk's own cache (from Linux 5.5 on).
    pub flush_ms: u64,
}

impl DiskCounters {
    /// Those of a disk in the text of /proc/diskstats; `None` if it has no line there.
    pub fn of(disk: &str, text: &str) -> Option<Self> {
        /// The kernel counts in this unit for every block size of the device.
        const SECTOR: u64 = 512;
        let line = text.lines().find(|line| line.split_ascii_whitespace().nth(2) == Some(disk))?;
        // The kernel's documentation numbers the fields after the name from 1.
        let field = |number: usize| {
            line.split_ascii_whitespace().nth(2 + number).map_or(Some(0), |text| text.parse::<u64>().ok())
        };
        Some(Self {
            read_ms: field(4)?,
            written_bytes: field(7)?.saturating_mul(SECTOR),
            write_ms: field(8)?,
            busy_ms: field(10)?,
            discards: field(12)?,
            discard_ms: field(15)?,
            flush_ms: field(17)?,
        })
    }

    /// Those of a disk of this machine now.
    pub fn read(disk: &str) -> Option<Self> {
        Self::of(disk, &std::fs::read_to_string("/proc/diskstats").ok()?)
    }
}

/// Smaller shares of a disk's time are not reported.
const NOTABLE: f64 = 0.2;

/// What took a disk's time between two looks.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct DiskActivity {
    /// The share of the time, 0 to 1, in which it had a request. A disk that serves many at once may be able to do
    /// more.
    pub busy: f64,
    /// The part of the time that discards took: `busy`, divided among the kinds of requests by their times.
    pub discards: f64,
    /// The share of time that flushes of its cache took.
    pub flushes: f64,
    /// Bytes written, per second.
    pub bytes_per_second: f64,
    /// Discards, per second.
    pub discards_per_second: f64,
}

impl DiskActivity {
    /// What a disk did in `seconds`; `None` if the counters do not follow each other.
    pub fn between(before: &DiskCounters, now: &DiskCounters, seconds: f64) -> Option<Self> {
        let grown = |field: fn(&DiskCounters) -> u64| Some(field(now).checked_sub(field(before))? as f64);
        let (reads, writes) = (grown(|one| one.read_ms)?, grown(|one| one.write_ms)?);
        let (discards, flushes) = (grown(|one| one.discard_ms)?, grown(|one| one.flush_ms)?);
        if seconds <= 0.0 {
            return None;
        }
        let busy = (grown(|one| one.busy_ms)? / 1e3 / seconds).min(1.0);
        let all = reads + writes + discards + flushes;
        let part = |time: f64| if all > 0.0 { busy * time / all } else { 0.0 };
        Some(Self {
            busy,
            discards: part(discards),
            flushes: part(flushes),
            bytes_per_second: grown(|one| one.written_bytes)? / seconds,
            discards_per_second: grown(|one| one.discards)? / seconds,
        })
    }

    /// In words: `discards take 45 % of the time of disk sda`, or what else the disk of this name does.
    pub fn sentence(&self, disk: &str) -> String {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        if self.discards >= NOTABLE && self.discards >= self.flushes {
            format!("discards take {} of the time of disk {disk}", percent(self.discards))
        } else if self.flushes >= NOTABLE {
            format!("flushes take {} of the time of disk {disk}", percent(self.flushes))
        } else {
            let rate = self.bytes_per_second / 1e9;
            format!("disk {disk} is {} busy with writes of {rate:.2} GB/s", percent(self.busy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATISTICS: &str = "   8       0 sda 100 0 800 50 4114 0 2000000 3400 2 9500 8150 397 12 5000 4300 7 400\n   \
                              8       1 sda1 1 0 8 5 4 0 20 3 0 9 8 0 0 0 0 0 0\n 253       0 old 1 2 3 4 5 6 7 8 9 10 11\n";

    #[test]
    fn a_disk_is_found_by_its_name_and_older_kernels_have_fewer_fields() {
        let disk = DiskCounters::of("sda", STATISTICS).expect("it has a line");
        assert_eq!((disk.read_ms, disk.write_ms, disk.busy_ms), (50, 3400, 9500));
        assert_eq!((disk.discards, disk.discard_ms, disk.flush_ms), (397, 4300, 400));
        assert_eq!(disk.written_bytes, 1_024_000_000);
        let old = DiskCounters::of("old", STATISTICS).expect("it has a line");
        assert_eq!((old.write_ms, old.busy_ms, old.discards, old.flush_ms), (8, 10, 0, 0));
        assert_eq!(DiskCounters::of("sdb", STATISTICS), None);
        assert_eq!(DiskCounters::of("sda", " 8 0 sda 1 2 x 4 5 6 7 8 9 x 11"), None);
    }

    #[test]
    fn what_takes_the_time_of_a_disk_is_said() {
        let now = DiskCounters::of("sda", STATISTICS).expect("it has a line");
        let activity = DiskActivity::between(&DiskCounters::default(), &now, 10.0).expect("time went on");
        assert!((activity.busy - 0.95).abs() < 1e-9);
        assert_eq!(activity.sentence("sda"), "discards take 50 % of the time of disk sda");
        let of_flushes = DiskActivity { discards: 0.1, flushes: 0.3, ..activity };
        assert_eq!(of_flushes.sentence("sda"), "flushes take 30 % of the time of disk sda");
        let of_writes = DiskActivity { discards: 0.1, bytes_per_second: 9e8, ..activity };
        assert_eq!(of_writes.sentence("sda"), "disk sda is 95 % busy with writes of 0.90 GB/s");
        assert_eq!(DiskActivity::between(&now, &DiskCounters::default(), 1.0), None, "it was replaced");
        let still = DiskActivity::between(&now, &now, 1.0).expect("time went on");
        assert_eq!((still.busy, still.discards), (0.0, 0.0));
    }

    #[test]
    fn a_directory_is_on_the_disk_of_its_mount() {
        let text = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,discard\n\
                    23 22 0:40 / /my\\040data rw - btrfs /dev/nvme0n1p2 rw,ssd\n\
                    24 22 0:41 / /memory rw - tmpfs tmpfs rw\n25 22 7:0 / /loop rw - xfs /dev/loop0 rw\n";
        let mounts = Mount::all(text);
        let devices = [
            ("sys/block/loop0/dev", "7:0"),
            ("sys/block/nvme0n1/dev", "259:0"),
            ("sys/block/nvme0n1/nvme0n1p2/dev", "259:2"),
            ("sys/block/sda/dev", "8:0"),
            ("sys/block/sda/sda1/dev", "8:1"),
        ];
        let disk = |path: &str| Mount::of(&mounts, Path::new(path)).and_then(|mount| mount.disk(devices.into_iter()));
        let expected = [("/data/run", Some("sda")), ("/my data/run", Some("nvme0n1")), ("/memory", None)];
        expected.into_iter().for_each(|(path, expected)| assert_eq!(disk(path), expected, "{path}"));
        assert_eq!(disk("/loop/a"), Some("loop0"));
        assert!(Mount::of(&mounts, Path::new("/data")).is_some_and(|mount| mount.has("discard")));
    }
}
