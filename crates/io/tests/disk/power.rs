//! The faults of the simulated disk: full, failing, slow, and a power cut.

use std::time::Duration;

use ropewalk_io::Clock;
use ropewalk_io::disk::{Disk, DiskCause, DiskFaults, NewFile};

use crate::Simulation;
use crate::world::{Said, Settings, World};

fn world(sync_on_publish: bool) -> World<Simulation> {
    World::new(Settings { queue_bytes: 1 << 20, sync_on_publish })
}

#[test]
fn a_full_disk_gives_everything_behind_back_and_goes_on_when_there_is_room() {
    let mut world = world(false);
    let storage = world.medium.storage.clone();
    storage.set_faults(DiskFaults { capacity: 25, ..storage.faults() });
    let path = world.path("file");
    let file = world.disk.create(&path, NewFile::default());
    world.append(file, 1, b"0123456789");
    world.append(file, 2, b"0123456789");
    world.append(file, 3, b"abcdefghij");
    // Would fit, but must not overtake the one before.
    world.append(file, 4, b"k");
    world.wait_for(5);
    let full = "no room left on the disk".to_owned();
    assert_eq!(world.said[3..], [Said::Failed(3, full.clone()), Said::Failed(4, full)]);
    assert_eq!(world.disk.free_bytes(&path), Ok(5));
    storage.set_faults(DiskFaults { capacity: 31, ..storage.faults() });
    for (cookie, mut data) in core::mem::take(&mut world.back) {
        world.disk.append(file, cookie, &mut data).expect("room in the queue");
    }
    world.wait_for(7);
    assert_eq!(world.said[5..], [Said::Appended(3, 20), Said::Appended(4, 30)]);
    assert_eq!(world.read("file"), Some(b"01234567890123456789abcdefghijk".to_vec()));
    world.finish();
}

#[test]
fn a_failing_write_is_told_with_its_cause() {
    let mut world = world(false);
    let storage = world.medium.storage.clone();
    let path = world.path("file");
    let file = world.disk.create(&path, NewFile::default());
    storage.set_faults(DiskFaults { write_error: 1.0, sync_error: 1.0, ..storage.faults() });
    world.append(file, 1, b"x");
    world.disk.sync(file, 2);
    world.wait_for(3);
    let cause = DiskCause::System(5).to_string();
    assert_eq!(world.said[1..], [Said::Failed(1, cause.clone()), Said::Synced(2, Err(cause))]);
    storage.set_faults(DiskFaults { read_error: 1.0, ..storage.faults() });
    assert_eq!(storage.read(&path), Err(DiskCause::System(5)));
    world.finish();
}

#[test]
fn a_slow_disk_takes_its_time() {
    let mut world = world(false);
    let storage = world.medium.storage.clone();
    storage.set_faults(DiskFaults { bandwidth: Some(1_000_000), ..storage.faults() });
    let path = world.path("file");
    let file = world.disk.create(&path, NewFile::default());
    let start = world.medium.clock.now();
    for cookie in 0..50 {
        world.append(file, cookie, &[1; 1000]);
    }
    assert!(world.disk.prepare_wait() && world.disk.next_deadline().is_some());
    world.wait_for(51);
    let took = world.medium.clock.now().since(start);
    assert!((Duration::from_millis(50)..Duration::from_millis(55)).contains(&took), "{took:?}");
    world.finish();
}

/// What a power cut leaves of a file of 1,000 synced bytes and 3,000 more, published or not.
fn after_a_cut(seed: u64, sync_on_publish: bool) -> (Vec<String>, Vec<u8>) {
    let medium = Simulation::new(seed);
    let mut world = World::over(medium, Settings { queue_bytes: 1 << 20, sync_on_publish });
    let (path, final_path) = (world.path("file.open"), world.path("file"));
    let file = world.disk.create(&path, NewFile::default());
    world.append(file, 1, &[1; 1000]);
    world.disk.sync(file, 2);
    for cookie in 3..6 {
        world.append(file, cookie, &[cookie as u8; 1000]);
    }
    world.disk.publish(file, &final_path, 6);
    world.wait_for(7);
    world.medium.storage.cut_power();
    let names = world.medium.storage.paths();
    let bytes = names.first().and_then(|name| world.medium.storage.read(name).ok()).unwrap_or_default();
    (names.iter().filter_map(|name| Some(name.file_name()?.to_str()?.to_owned())).collect(), bytes)
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_may_lose_or_tear_the_rest() {
    let (mut torn, mut lost, mut old_name) = (0, 0, 0);
    for seed in 0..200 {
        let (names, bytes) = after_a_cut(seed, false);
        assert_eq!(names.len(), 1, "a synced file has one of its names");
        assert!((1000..=4000).contains(&bytes.len()) && bytes[..1000] == [1; 1000]);
        let expected = |place: usize| if place < 1000 { 1 } else { (place / 1000 + 2) as u8 };
        torn += usize::from(bytes.iter().enumerate().any(|(place, &byte)| byte != expected(place)));
        lost += usize::from(bytes.len() < 4000);
        old_name += usize::from(names == ["file.open"]);
    }
    assert!(torn > 10 && lost > 100 && old_name > 50, "{torn} torn, {lost} shorter, {old_name} with the old name");
}

#[test]
fn what_was_published_with_sync_survives_a_power_cut_whole() {
    for seed in 0..50 {
        let (names, bytes) = after_a_cut(seed, true);
        assert_eq!((names, bytes.len()), (vec!["file".to_owned()], 4000));
    }
}

#[test]
fn files_are_not_open_after_a_power_cut() {
    let mut world = world(true);
    let path = world.path("file");
    let file = world.disk.create(&path, NewFile::default());
    world.wait_for(1);
    world.medium.storage.cut_power();
    world.append(file, 1, b"late");
    world.wait_for(2);
    assert_eq!(world.said[1], Said::Failed(1, "the file is not open".to_owned()));
    world.finish();
}
