//! Where events are written to.

use std::path::PathBuf;

use ropewalk_host::{Mount, disk_with};

use super::{Rule, Seen, bytes};
use crate::found::{Found, Unread};
use crate::{Form, Group, Setting, Sureness, Wish};

/// Rules on storage.
pub(super) const STORAGE: &[Rule] = &[
    Rule {
        name: "file_system",
        group: Group::Storage,
        what: "The file system of each output directory. One on a local disk that writes in place: ext4, xfs. An \
               unknown one is reported.",
        why: "One over the network, or in layers as containers have it, is as fast as its slowest part and may stand still; \
              one in memory loses everything with the machine; one that copies on writing works twice for run files.",
        source: "open(2), O_DIRECT; the kernel's filesystems/overlayfs.rst",
        worth: "2.8 to 3.1 GB/s written past the cache on a local disk; `ropewalk bench write` in that directory",
        sureness: Sureness::Documented,
        look: file_system,
    },
    Rule {
        name: "mount_options",
        group: Group::Storage,
        what: "How the file system of each output directory is mounted. Writable; without `sync`, `discard`, \
               `data=journal`.",
        why: "With `sync` each write waits for the disk. With `discard` each deleted file does, and on ext4 so does each piece that was \
              written out of order: use `fstrim.timer`. With `data=journal` all is written twice. `data=ordered`, the default of \
              ext4, has a sync wait for all that lies in the page cache, but not for what goes past it.",
        source: "mount(8); ext4(5); docs/decisions/0022-write-files-in-order.md",
        worth: "1.87 GB/s in place of 0.71 with `discard` and writes out of order; deleting 12 GB took 9.5 s with it; measure with \
                `ropewalk bench write` in that directory",
        sureness: Sureness::Documented,
        look: mount_options,
    },
    Rule {
        name: "disk_scheduler",
        group: Group::Storage,
        what: "Who orders the requests of the disk (`queue/scheduler`); of all disks that a volume (LVM, RAID, encryption) is \
               made of. `none` for one without moving parts, `mq-deadline` for one that turns.",
        why: "Ropewalk writes large pieces in order, and a disk without moving parts gains nothing by waiting for others.",
        source: "the kernel's block/switching-sched.rst",
        worth: "some percent; measure with `ropewalk bench write`",
        sureness: Sureness::Guess,
        look: disk_scheduler,
    },
    Rule {
        name: "free_space",
        group: Group::Storage,
        what: "The room in the file system of each output directory. More than 10 GB, and more than a tenth.",
        why: "A full disk ends a run, or holds it up; file systems become slow before they are full.",
        source: "docs/operating.md",
        worth: "the run; no bench of Ropewalk shows it: docs/operating.md says what a full disk does",
        sureness: Sureness::Documented,
        look: free_space,
    },
];

/// All mounts that are known.
fn mounts(found: &Found) -> Result<Vec<Mount<'_>>, Unread> {
    Ok(Mount::all(found.must("proc/self/mountinfo")?))
}

/// What is seen of each output directory by its mount; a directory without a mount is reported as such.
fn each(found: &Found, wish: &Wish, what: &str, one: fn(String, &Mount<'_>) -> Seen) -> Result<Vec<Seen>, Unread> {
    let mounts = mounts(found)?;
    let seen = |directory: &PathBuf| {
        let name = format!("{}: {what}", directory.display());
        match Mount::of(&mounts, directory) {
            Some(mount) => one(name, mount),
            None => nowhere(name),
        }
    };
    Ok(wish.outputs.iter().map(seen).collect())
}

/// For a directory that is in no known file system.
fn nowhere(name: String) -> Seen {
    Seen::told(name, "could not be read", "see in which file system it lies, and write its whole path")
}

fn file_system(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    each(found, wish, "file system", |name, mount| {
        let (told, advised) = (format!("{} at {}", mount.kind, mount.point.display()), "ext4 or xfs on a local disk");
        match mount.kind {
            "tmpfs" | "ramfs" => {
                Seen::harmful(name, told, format!("{advised}: what is in memory goes with the machine"))
            }
            "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "lustre" | "gpfs" | "beegfs" | "9p" | "overlay" | "btrfs"
            | "zfs" => Seen::better(name, told, advised),
            kind if kind.starts_with("fuse") => Seen::better(name, told, advised),
            "ext2" | "ext3" | "ext4" | "xfs" | "f2fs" | "jfs" => Seen::good(name, told),
            _ => Seen::told(
                name,
                told,
                "nothing is known of it here: measure with `ropewalk bench write` in that directory",
            ),
        }
    })
}

fn mount_options(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    each(found, wish, "mount options", |name, mount| {
        let has = |option: &&str| mount.has(option);
        let slow: Vec<&str> = ["sync", "discard", "data=journal"].into_iter().filter(has).collect();
        if has(&"ro") {
            Seen::harmful(name, "ro", "rw: nothing can be written there")
        } else if slow.is_empty() {
            Seen::good(name, mount.options.join(","))
        } else {
            let instead = if mount.has("discard") { ", and `fstrim.timer` in its place" } else { "" };
            let advised =
                format!("without it: `mount -o remount,...`, /etc/fstab for {}{instead}", mount.point.display());
            Seen::better(name, slow.join(","), advised)
        }
    })
}

/// The numbers of disks and their partitions.
fn devices(found: &Found) -> impl Iterator<Item = (&str, &str)> {
    found.each("sys/block/", "/dev").filter(|(path, _)| !path.contains("/slaves/"))
}

fn scheduler_of(disk: &str) -> String {
    format!("sys/block/{disk}/queue/scheduler")
}

/// The disks that schedule the requests of a disk that only passes them on, as volumes of LVM, RAID and encryption do;
/// the disk itself if none is known. Volumes have a few layers at most.
fn ordering<'a>(found: &'a Found, disk: &'a str, most_layers: u8) -> Vec<&'a str> {
    let slaves = format!("sys/block/{disk}/slaves/");
    let below =
        found.each(&slaves, "/dev").filter_map(|(_, number)| disk_with(devices(found), |_, other| other == number));
    let below: Vec<&str> = below.collect();
    let has_choice = found.text(&scheduler_of(disk)).is_some_and(|text| text.contains('['));
    if has_choice || below.is_empty() || most_layers == 0 {
        return vec![disk];
    }
    below.into_iter().flat_map(|disk| ordering(found, disk, most_layers - 1)).collect()
}

fn disk_scheduler(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const MOST_LAYERS: u8 = 4;
    let (mounts, mut seen) = (mounts(found)?, Vec::<Seen>::new());
    let disks = wish.outputs.iter().filter_map(|directory| Mount::of(&mounts, directory)?.disk(devices(found)));
    for disk in disks.flat_map(|disk| ordering(found, disk, MOST_LAYERS)) {
        let one = scheduler(found, disk);
        seen.extend(one.filter(|one| seen.iter().all(|other| other.subject != one.subject)));
    }
    Ok(seen)
}

fn scheduler(found: &Found, disk: &str) -> Option<Seen> {
    let path = scheduler_of(disk);
    let text = found.text(&path)?;
    let turns = found.number(&format!("sys/block/{disk}/queue/rotational"))?;
    let wanted = if turns == 1 { "mq-deadline" } else { "none" };
    let subject = format!("{disk}: scheduler");
    let has_wanted = text.split(['[', ']', ' ']).any(|name| name == wanted);
    Some(match text.split(['[', ']']).nth(1) {
        None if text == "none" => Seen::good(subject, "none: it hands requests on as they come"),
        None => {
            Seen::told(format!("/{path}"), "could not be read", "see which schedulers stand there, one in brackets")
        }
        Some(present) if present == wanted || !has_wanted => Seen::good(subject, present),
        Some(present) => {
            Seen::better(subject, present, wanted).change(Setting::File { path, form: Form::Choice }, text, wanted)
        }
    })
}

fn free_space(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const LEAST: u64 = 10_000_000_000;
    let one = |directory: &PathBuf| {
        let name = format!("{}: free space", directory.display());
        let near = found.probed.space.iter().filter(|space| directory.starts_with(&space.directory));
        let Some(space) = near.max_by_key(|space| space.directory.components().count()) else { return nowhere(name) };
        let told = format!("{} of {}", bytes(space.free_bytes), bytes(space.total_bytes));
        if space.free_bytes < LEAST {
            Seen::harmful(name, told, "more than 10 GB")
        } else if space.free_bytes < space.total_bytes / 10 {
            Seen::better(name, told, "more than a tenth")
        } else {
            Seen::good(name, told)
        }
    };
    Ok(wish.outputs.iter().map(one).collect())
}
