//! Packed files: what was appended is what they unpack to, also where an append was refused.

use ropewalk_io::disk::{Completion, Disk, NewFile, RealDisk, RealDiskConfig, WriteMode};
use ropewalk_memory::{Owner, Pool, PoolConfig};
use ropewalk_wire::run_file::{Compression, Item, Items, PackedStretch};

use super::Directory;
use crate::world::{Said, Source, World};

/// What the stretches of a file unpack to, one behind the other.
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
fn whoever_packs_it_the_file_is_in_its_order() {
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
            // Long ones behind short ones, which are packed before them.
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
    let mut world =
        World::over(Threads::default(), crate::world::Settings { queue_bytes: 1 << 20, sync_on_publish: false });
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

impl crate::world::Medium for Threads {
    type D = RealDisk;

    fn disk(&mut self, settings: crate::world::Settings) -> RealDisk {
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
