//! Deletion of files of the machine: hidden first, in steps, on a thread that writes nothing, and not while readers
//! have the file open.

use super::{Directory, Medium, Said, Settings, Simulation, World};
use ropewalk_io::Clock;
use ropewalk_io::disk::{Disk, DiskFaults, NewFile};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

const SEGMENT: &str = "run000001-bu0-000001.rwk";

/// Larger than the bytes freed at once.
const LARGE: u64 = 200 << 20;

fn settings() -> Settings {
    Settings { queue_bytes: 64 << 10, sync_on_publish: true }
}

fn large(path: &Path) -> File {
    let file = File::create(path).expect("a file can be made");
    file.set_len(LARGE).expect("it may have a hole");
    file
}

#[test]
fn a_large_file_is_deleted_by_a_thread_that_writes_nothing() {
    let mut world = World::<Directory>::new(settings());
    let path = world.path(SEGMENT);
    drop(large(&path));
    world.disk.remove(&path, 1);
    world.wait_for(1);
    assert_eq!(world.said[0], Said::Removed(1, Ok(())));
    let left = fs::read_dir(world.medium.directory()).expect("it is there").count();
    assert_eq!(left, 0, "under no name");
    let names = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let names = names.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    assert!(names.into_iter().any(|name| name.trim_end() == "disk.remove"));
    world.finish();
}

#[test]
pub(super) fn a_reader_goes_on_reading_what_is_deleted() {
    let mut world = World::<Directory>::new(settings());
    let path = world.path(SEGMENT);
    drop(large(&path));
    let mut reader = File::open(&path).expect("it is there");
    world.disk.remove(&path, 1);
    world.wait_for(1);
    assert!(!path.exists());
    reader.seek(SeekFrom::Start(LARGE - 1)).expect("a place in the file");
    assert_eq!(reader.read(&mut [0; 2]).expect("a file"), 1, "it is as long as it was");
    world.finish();
}

#[test]
pub(super) fn a_file_with_a_second_name_keeps_its_content_there() {
    let mut world = World::<Directory>::new(settings());
    let (path, other) = (world.path(SEGMENT), world.path("other"));
    drop(large(&path));
    fs::hard_link(&path, &other).expect("the file system has links");
    world.disk.remove(&path, 1);
    world.wait_for(1);
    assert_eq!((path.exists(), fs::metadata(&other).map(|found| found.len()).ok()), (false, Some(LARGE)));
    world.finish();
}

#[test]
pub(super) fn what_a_killed_process_left_half_deleted_is_deleted() {
    let mut world = World::<Directory>::new(settings());
    let of = |name: &str| world.medium.directory().join(name);
    let left = [of("run000001").join(format!("{SEGMENT}.deleted")), of("run000002").join(format!("{SEGMENT}.deleted"))];
    let others = [
        of("run000001").join(SEGMENT),
        of("run000001").join("notes.deleted"),
        of("other").join(format!("{SEGMENT}.deleted")),
        of("runs").join(format!("{SEGMENT}.deleted")),
    ];
    for path in left.iter().chain(&others) {
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory can be made");
        drop(large(path));
    }
    world.disk.enter_directory(&of("run000002"));
    // The earlier request has completed.
    let path = of(SEGMENT);
    world.disk.remove(&path, 1);
    world.wait_for(1);
    assert!(left.iter().all(|path| !path.exists()));
    assert!(others.iter().all(|path| path.exists()), "none of them is Ropewalk's");
    world.finish();
}

#[test]
fn no_append_waits_for_a_deletion() {
    let simulation = Simulation::default();
    let (storage, clock) = (simulation.storage.clone(), simulation.clock.clone());
    let mut world = World::over(simulation, settings());
    let (old, path) = (world.path("old"), world.path("file"));
    let gone = world.disk.create(&old, NewFile::default());
    world.disk.publish(gone, &world.path(SEGMENT), 1);
    let file = world.disk.create(&path, NewFile::default());
    world.wait_for(3);
    let second = Duration::from_secs(1);
    storage.set_faults(DiskFaults { least_latency: second, most_latency: second, ..DiskFaults::default() });
    let begin = clock.now();
    world.disk.remove(&world.path(SEGMENT), 2);
    clock.advance(Duration::from_millis(1));
    assert_eq!(world.disk.poll(&mut Vec::new()), 0);
    let hidden = format!("{SEGMENT}.deleted");
    assert!(world.read(SEGMENT).is_none() && world.read(&hidden).is_some(), "hidden, and not gone");
    storage.set_faults(DiskFaults::default());
    world.append(file, 3, b"meanwhile");
    world.wait_for(4);
    assert!(clock.now().since(begin) < second);
    assert_eq!(world.said[3], Said::Appended(3, 0));
    world.wait_for(5);
    assert_eq!((&world.said[4], world.read(&hidden)), (&Said::Removed(2, Ok(())), None));
    world.finish();
}
