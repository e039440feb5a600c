//! Rules for some disks only: writing past the page cache, packing, and power cuts.

use std::time::Duration;

use proptest::prelude::*;
use ropewalk_io::Clock;
use ropewalk_io::disk::{
    Completion, Disk, DiskCause, DiskFaults, NewFile, RealDisk, RealDiskConfig, WriteMode, WriteProbe, probe_writes,
    write_probe,
};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_wire::run_file::{Compression, Item, Items, PackedStretch};

use super::{Directory, Said, Settings, Simulation, Source, World};

/// Bytes of a block of the pool.
const BLOCK: usize = 1 << 20;

/// Bytes that depend on their offset, in as many slices as needed.
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

/// Writes appends of these lengths; returns the number of bytes copied for them.
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

#[test]
fn published_files_have_the_configured_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::default();
    for permissions in [0o440, 0o664] {
        let config = RealDiskConfig { permissions: Some(permissions), ..RealDiskConfig::default() };
        let mut disk = RealDisk::new(config, || {}).expect("a thread and two eventfds");
        let (open, closed) = (directory.path.join("file.open"), directory.path.join(format!("{permissions:o}")));
        let file = disk.create(&open, NewFile::default());
        disk.publish(file, &closed, 0);
        wait(&mut disk, 2);
        let mode = std::fs::metadata(&closed).expect("the file is there").permissions().mode();
        assert_eq!(mode & 0o777, permissions);
    }
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
pub(super) fn each_way_writes_what_was_appended() {
    for mode in [WriteMode::Buffered, WriteMode::Direct, WriteMode::Auto] {
        write(mode, &[1000, 3 << 20, 5000, 0, 4096, (1 << 20) + 1]);
    }
}

#[test]
fn only_what_is_much_goes_past_the_page_cache_by_itself() {
    const TEST: &str = "disk::files::only_what_is_much_goes_past_the_page_cache_by_itself";
    if write(WriteMode::Direct, &[10]) == 0 {
        return ropewalk_tidy::skipped(TEST, "the file system of the target directory knows no O_DIRECT");
    }
    assert_eq!(write(WriteMode::Auto, &[1000, 1000]), 0);
    // The content of the file's last piece is copied and written once more. From then on, direct writes continue.
    let copied = write(WriteMode::Auto, &[1000, 2 << 20, 1000]);
    if copied == 0 && write_probe(&Directory::default().path).is_some_and(|probe| !probe.prefers_direct()) {
        return ropewalk_tidy::skipped(TEST, "a probe found the page cache to be faster");
    }
    assert_eq!(copied, 1000 + (2 << 20) + 2000);
    let mut slow = [500 << 10; 20];
    slow[19] = 2 << 20;
    assert_eq!(write(WriteMode::Auto, &slow), 0, "what began slowly stays in the page cache");
    assert_eq!(write(WriteMode::Buffered, &[2 << 20]), 0);
}

/// Two threads would write it out of order, which makes file systems discard many small pieces.
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

/// Appends follow each other without a pause, so that each is gathered while earlier ones are being written.
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

/// The unpacked stretches of a file, concatenated.
fn unpacked(file: &[u8]) -> Vec<u8> {
    let (mut all, mut stretch) = (Vec::new(), Vec::new());
    for item in Items::new(file) {
        let Item::Record { record, .. } = item else { panic!("{item:?}") };
        let packed = PackedStretch::parse(&record).expect("a packed stretch");
        assert_eq!(packed.offset, all.len() as u64);
        packed.unpack(&mut stretch).expect("what was packed");
        all.extend_from_slice(&stretch);
    }
    all
}

#[test]
fn a_packed_file_unpacks_to_what_was_appended() {
    for mode in [WriteMode::Buffered, WriteMode::Direct] {
        for compression in [Compression::Zstd(1), Compression::Lz4] {
            let (directory, mut source) = (Directory::default(), Source::new());
            let config = RealDiskConfig { mode, threads: 2, ..RealDiskConfig::default() };
            let mut disk = RealDisk::new(config, || {}).expect("two threads and three eventfds");
            let [packed, plain] = ["packed", "plain"].map(|name| directory.path.join(name));
            let how = NewFile { compression, thread: 1, ..NewFile::default() };
            let first = disk.create(&packed.with_extension("open"), how);
            let second = disk.create(&plain.with_extension("open"), NewFile::default());
            let (mut expected, mut completions) = (Vec::new(), Vec::new());
            for number in 0..30_u8 {
                let bytes: Vec<u8> = (0..900).map(|place| (place / 50) as u8 ^ number).collect();
                for file in [first, second] {
                    disk.append(file, 0, &mut source.slices(&bytes, 100)).expect("room in the queue");
                }
                expected.extend(bytes);
                while disk.queued_bytes() > 0 {
                    disk.poll(&mut completions);
                }
                completions.clear();
            }
            disk.publish(first, &packed, 0);
            disk.publish(second, &plain, 0);
            drop(disk);
            let read = |path| std::fs::read(path).expect("the file is closed");
            let file = read(&packed);
            assert_eq!(unpacked(&file), expected, "{compression}");
            assert!(file.len() < expected.len(), "{compression} makes {} B of {}", file.len(), expected.len());
            assert_eq!(read(&plain), expected);
        }
    }
}

#[test]
fn with_any_packing_threads_the_file_keeps_its_order() {
    for (packing_threads, compression) in [(1, Compression::Zstd(1)), (2, Compression::Lz4), (5, Compression::Zstd(1))]
    {
        let directory = Directory::default();
        let mut pool = Pool::new(PoolConfig::heap("appends", 50_000, 200)).expect("memory for a test");
        let config = RealDiskConfig { packing_threads, ..RealDiskConfig::default() };
        let mut disk = RealDisk::new(config, || {}).expect("a thread and two eventfds");
        let path = directory.path.join("packed");
        let file = disk.create(&path.with_extension("open"), NewFile { compression, ..NewFile::default() });
        let (mut expected, mut completions) = (Vec::new(), Vec::new());
        for number in 0..200_usize {
            // Long ones after short ones, which are packed before them.
            let length = if number % 3 == 0 { 50_000 } else { 100 + number };
            let bytes: Vec<u8> = (0..length).map(|place| (place / 7 + number) as u8).collect();
            let mut loan = pool.loan(Owner::SHARED).expect("a block for each append");
            loan.spare()[..length].copy_from_slice(&bytes);
            loan.commit(length);
            let slice = loan.split_committed().expect("what was just committed");
            disk.append(file, number as u64, &mut vec![slice]).expect("room in the queue");
            expected.extend(bytes);
        }
        while disk.queued_bytes() > 0 {
            disk.poll(&mut completions);
        }
        let appended = completions.iter().filter_map(|completion| match completion {
            Completion::Appended { cookie, .. } => Some(*cookie),
            _ => None,
        });
        assert!(appended.eq(0..200), "{packing_threads} threads: {completions:?}");
        disk.publish(file, &path, 0);
        drop(disk);
        assert_eq!(unpacked(&std::fs::read(path).expect("the file is closed")), expected, "{packing_threads} threads");
    }
}

#[test]
fn files_of_several_threads_end_in_their_own_order() {
    let mut world = World::over(Threads::default(), super::Settings { queue_bytes: 1 << 20, sync_on_publish: false });
    let path = world.path("file");
    let file = world.disk.create(&path, NewFile { thread: 1, ..NewFile::default() });
    for number in 0..50 {
        world.append(file, number, &[number as u8; 100]);
    }
    world.wait_for(51);
    let offsets = (0..50).map(|number| Said::Appended(number, 100 * number));
    assert!(world.said[1..].iter().cloned().eq(offsets), "{:?}", world.said);
    world.finish();
}

/// A directory whose files two threads write.
#[derive(Default)]
struct Threads(Directory);

impl super::Medium for Threads {
    type D = RealDisk;

    fn disk(&mut self, settings: super::Settings) -> RealDisk {
        let queue_bytes = settings.queue_bytes;
        let config = RealDiskConfig { queue_bytes, threads: 2, ..RealDiskConfig::default() };
        RealDisk::new(config, || {}).expect("two threads and three eventfds")
    }

    fn directory(&self) -> std::path::PathBuf {
        self.0.path.clone()
    }

    fn read(&self, path: &std::path::Path) -> Option<Vec<u8>> {
        std::fs::read(path).ok()
    }

    fn remove_directory(&self, path: &std::path::Path) {
        self.0.remove_directory(path);
    }

    fn idle(&mut self) {
        std::thread::yield_now();
    }
}

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
    // Would fit, but must not overtake the previous one.
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
fn a_failing_write_is_reported_with_its_cause() {
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

/// The names and the bytes left by a power cut after 1,000 synced bytes of a file and 3,000 more, published or not.
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

#[test]
fn a_disk_is_probed_both_ways_and_files_in_memory_are_not() {
    const TEST: &str = "disk::files::a_disk_is_probed_both_ways_and_files_in_memory_are_not";
    assert_eq!(probe_writes(std::path::Path::new("/dev/shm")).expect("it can be written"), None);
    let directory = Directory::default();
    let begin = std::time::Instant::now();
    let Some(probe) = probe_writes(&directory.path).expect("it can be written") else {
        return ropewalk_tidy::skipped(TEST, "the file system of the target directory offers no choice");
    };
    assert!(probe.direct > 0.0 && probe.buffered > 0.0, "{probe}");
    assert!(begin.elapsed() < Duration::from_secs(20), "it is bounded");
    let left = std::fs::read_dir(&directory.path).expect("it is there").count();
    assert_eq!(left, 0, "its files have no name");
}

#[test]
fn the_first_fast_file_has_its_disk_probed_beside_it() {
    const TEST: &str = "disk::files::the_first_fast_file_has_its_disk_probed_beside_it";
    let directory = Directory::default();
    if probe_writes(&directory.path).is_ok_and(|probe| probe.is_none()) {
        return ropewalk_tidy::skipped(TEST, "the file system of the target directory offers no choice");
    }
    // Dropped disks have completed their work.
    write(WriteMode::Auto, &[2 << 20]);
    let probe = write_probe(&directory.path).expect("it was probed");
    assert!(probe.direct > 0.0 && probe.buffered > 0.0, "{probe}");
}

#[test]
fn the_page_cache_must_be_clearly_faster_to_be_chosen() {
    let prefers_direct = |direct, buffered| WriteProbe { direct, buffered }.prefers_direct();
    assert!(prefers_direct(1e9, 0.5e9) && prefers_direct(1e9, 2e9) && !prefers_direct(0.2e9, 1e9));
    let text = WriteProbe { direct: 1.87e9, buffered: 0.64e9 }.to_string();
    assert_eq!(text, "1.87 GB/s past the page cache, 0.64 GB/s through it");
}
