//! Writes past the page cache, mixed with others: whatever is appended, the file holds it.

use proptest::prelude::*;
use ropewalk_io::disk::{Completion, Disk, NewFile, RealDisk, RealDiskConfig, WriteMode};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};

use super::Directory;

/// Bytes of a block of the pool.
const BLOCK: usize = 1 << 20;

/// Bytes that differ from place to place, in as many slices as it takes.
fn piece(pool: &mut Pool, length: usize, number: usize) -> (Vec<Slice>, Vec<u8>) {
    let bytes: Vec<u8> = (0..length).map(|place| (place ^ (place >> 8) ^ number) as u8 | 1).collect();
    let slices = bytes.chunks(BLOCK).map(|chunk| {
        let mut loan = pool.loan(Owner::SHARED).expect("blocks come back");
        loan.spare()[..chunk.len()].copy_from_slice(chunk);
        loan.commit(chunk.len());
        loan.split_committed().expect("what was just committed")
    });
    (slices.collect(), bytes)
}

fn wait(disk: &mut RealDisk, count: usize) {
    let mut completions = Vec::new();
    while completions.len() < count {
        if disk.poll(&mut completions) == 0 {
            std::thread::yield_now();
        }
    }
}

/// Writes appends of these lengths; returns how many bytes were copied for it.
fn write(mode: WriteMode, lengths: &[usize]) -> u64 {
    let directory = Directory::default();
    let mut pool = Pool::new(PoolConfig::heap("source", BLOCK, 8)).expect("memory for a test");
    let config = RealDiskConfig { mode, ..RealDiskConfig::default() };
    let mut disk = RealDisk::new(config, || {}).expect("a thread and two eventfds");
    let (open, closed) = (directory.path.join("file.open"), directory.path.join("file"));
    let file = disk.create(&open, NewFile { preallocate: 8 << 20, ..NewFile::default() });
    wait(&mut disk, 1);
    let mut expected = Vec::new();
    for (number, &length) in lengths.iter().enumerate() {
        pool.collect();
        let (mut slices, bytes) = piece(&mut pool, length, number);
        disk.append(file, 0, &mut slices).expect("room in the queue");
        expected.extend(bytes);
        if number % 3 != 0 || pool.held() > 4 {
            while disk.queued_bytes() > 0 {
                wait(&mut disk, 1);
            }
        }
    }
    while disk.queued_bytes() > 0 {
        wait(&mut disk, 1);
    }
    let held = std::fs::read(&open).expect("the file is there");
    assert!(held.starts_with(&expected) && held[expected.len()..].iter().all(|&byte| byte == 0));
    assert!(held.len() - expected.len() < 4096, "zeros only up to the next multiple");
    disk.publish(file, &closed, 0);
    wait(&mut disk, 1);
    assert!(std::fs::read(&closed).is_ok_and(|bytes| bytes == expected), "appends of {lengths:?}");
    disk.copied_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn appends_of_any_length_stand_in_the_file(
        lengths in proptest::collection::vec(prop_oneof![0..5000_usize, Just(4096), (1_usize << 20)..(3 << 20)], 1..12),
        auto: bool,
    ) {
        write(if auto { WriteMode::Auto } else { WriteMode::Direct }, &lengths);
    }
}

#[test]
fn only_what_is_much_goes_past_the_page_cache_by_itself() {
    if write(WriteMode::Direct, &[10]) == 0 {
        return ropewalk_tidy::skipped(
            "direct::only_what_is_much_goes_past_the_page_cache_by_itself",
            "the file system of the target directory knows no O_DIRECT",
        );
    }
    assert_eq!(write(WriteMode::Auto, &[1000, 1000]), 0);
    // What stands in the last piece of the file is copied and written once more.
    assert_eq!(write(WriteMode::Auto, &[1000, 2 << 20, 1000]), 1000 + (2 << 20));
    assert_eq!(write(WriteMode::Buffered, &[2 << 20]), 0);
}

/// Two threads would write it out of order, which file systems answer with many small discards.
#[test]
fn a_file_past_the_page_cache_is_written_by_one_thread() {
    let directory = Directory::default();
    let mut pool = Pool::new(PoolConfig::heap("source", BLOCK, 8)).expect("memory for a test");
    let name = "in-order";
    let config = RealDiskConfig { thread_name: name.to_owned(), mode: WriteMode::Direct, ..RealDiskConfig::default() };
    let mut disk = RealDisk::new(config, || {}).expect("a thread and two eventfds");
    let file = disk.create(&directory.path.join("file"), NewFile::default());
    disk.append(file, 0, &mut piece(&mut pool, 4 * BLOCK, 0).0).expect("room in the queue");
    wait(&mut disk, 2);
    let tasks = std::fs::read_dir("/proc/self/task").expect("every process has one");
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let mut ours: Vec<_> = names.map(|name| name.trim().to_owned()).filter(|found| found.starts_with(name)).collect();
    ours.sort();
    assert_eq!(ours, [name.to_owned(), format!("{name}.write")]);
}

/// Appends follow each other without a pause, so that each is gathered while those before are on their way.
#[test]
fn appends_that_follow_without_a_pause_end_in_their_order() {
    const APPENDS: usize = 60;
    let directory = Directory::default();
    let mut pool = Pool::new(PoolConfig::heap("source", BLOCK, 24)).expect("memory for a test");
    let config = RealDiskConfig { mode: WriteMode::Direct, ..RealDiskConfig::default() };
    let mut disk = RealDisk::new(config, || {}).expect("a thread and two eventfds");
    let (open, closed) = (directory.path.join("file.open"), directory.path.join("file"));
    let file = disk.create(&open, NewFile { checksum: true, ..NewFile::default() });
    wait(&mut disk, 1);
    let (mut expected, mut ended, mut completions) = (Vec::new(), Vec::new(), Vec::new());
    let mut offsets = Vec::new();
    while ended.len() < APPENDS {
        pool.collect();
        if offsets.len() < APPENDS && pool.held() < 20 {
            let length = [BLOCK + 37, 3 * BLOCK, 5000, 2 * BLOCK - 1][offsets.len() % 4];
            let (mut slices, bytes) = piece(&mut pool, length, offsets.len());
            disk.append(file, offsets.len() as u64, &mut slices).expect("room in the queue");
            offsets.push(expected.len() as u64);
            expected.extend(bytes);
        }
        disk.poll(&mut completions);
        ended.extend(completions.drain(..).map(|completion| match completion {
            Completion::Appended { cookie, offset, .. } => (cookie, offset),
            other => panic!("{other:?}"),
        }));
    }
    assert_eq!(ended, (0..).zip(offsets).collect::<Vec<_>>());
    disk.publish(file, &closed, 0);
    wait(&mut disk, 1);
    assert!(std::fs::read(&closed).is_ok_and(|bytes| bytes == expected));
}
