//! A real disk that is full, in a process of its own: the limit of file sizes stands in for a small disk.
#![allow(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use ropewalk_io::disk::{Completion, Disk, DiskCause, NewFile, RealDisk, RealDiskConfig, WriteMode};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_wire::run_file::{Compression, Item, Items, PackedStretch};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn limit_file_size(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).expect("lowering the own limit");
}

fn piece(pool: &mut Pool, number: u8) -> Vec<Slice> {
    let mut loan = pool.loan(Owner::SHARED).expect("a block for each piece");
    loan.spare().fill(number);
    loan.commit(loan.spare_len());
    let mut rest = loan.split_committed().expect("what was just committed");
    let head = rest.split_to(100);
    vec![head, rest]
}

fn completions(disk: &mut RealDisk, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    for _ in 0..100_000 {
        if completions.len() >= count {
            break;
        }
        if disk.poll(&mut completions) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    assert_eq!(completions.len(), count);
    completions
}

#[test]
fn a_full_disk_cuts_back_gives_back_and_goes_on() {
    // SAFETY: ignoring a signal installs no handler, and nothing else in this process uses this one.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for mode in [WriteMode::Buffered, WriteMode::Direct] {
        write_to_the_limit(mode);
        for compression in [Compression::Zstd(1), Compression::Lz4] {
            for packing_threads in [1, 3] {
                pack_to_the_limit(mode, compression, packing_threads);
            }
        }
    }
}

/// Where what is packed ends nobody can say before; but it unpacks to everything, in order.
fn pack_to_the_limit(mode: WriteMode, compression: Compression, packing_threads: u8) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("disk-full-packed-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut pool = Pool::new(PoolConfig::heap("source", 1000, 64)).expect("memory for a test");
    let config = RealDiskConfig { mode, packing_threads, ..RealDiskConfig::default() };
    let mut disk = RealDisk::new(config, || {}).expect("a thread and two eventfds");
    let file = disk.create(&path, NewFile { compression, ..NewFile::default() });
    limit_file_size(Some(1000));
    for number in 0..40 {
        disk.append(file, number.into(), &mut piece(&mut pool, number)).expect("room in the queue");
    }
    let mut back = Vec::new();
    let mut good = 0;
    for completion in completions(&mut disk, 41).into_iter().skip(1) {
        match completion {
            Completion::Appended { .. } => good += 1,
            Completion::AppendFailed { cookie, cause, data, .. } => {
                assert_eq!((cookie, cause), (good + back.len() as u64, DiskCause::Full));
                back.push(data);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(!back.is_empty(), "{good} fit");
    limit_file_size(None);
    for (data, cookie) in back.iter_mut().zip(good..) {
        disk.append(file, cookie, data).expect("room in the queue");
    }
    let ends = completions(&mut disk, back.len());
    assert!(ends.iter().all(|end| matches!(end, Completion::Appended { .. })), "{ends:?}");
    disk.publish(file, &path.with_extension("closed"), 0);
    completions(&mut disk, 1);
    drop(disk);
    let written = std::fs::read(path.with_extension("closed")).expect("the file is closed");
    let (mut all, mut stretch) = (Vec::new(), Vec::new());
    for item in Items::new(&written) {
        let Item::Record { record, .. } = item else { panic!("{item:?}") };
        let packed = PackedStretch::parse(&record).expect("a packed stretch");
        assert_eq!(packed.offset, all.len() as u64);
        packed.unpack(&mut stretch).expect("what was packed");
        all.extend_from_slice(&stretch);
    }
    let expected: Vec<u8> = (0..40_000).map(|place| (place / 1000) as u8).collect();
    assert_eq!(all, expected);
    std::fs::remove_file(path.with_extension("closed")).expect("removing the test's file");
}

fn write_to_the_limit(mode: WriteMode) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("disk-full-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut pool = Pool::new(PoolConfig::heap("source", 1000, 16)).expect("memory for a test");
    let mut disk =
        RealDisk::new(RealDiskConfig { mode, ..RealDiskConfig::default() }, || {}).expect("a thread and two eventfds");
    let file = disk.create(&path, NewFile::default());
    limit_file_size(Some(3500));
    for number in 0..6 {
        disk.append(file, number.into(), &mut piece(&mut pool, number)).expect("room in the queue");
    }
    let mut back = Vec::new();
    for (number, completion) in completions(&mut disk, 7).into_iter().skip(1).enumerate() {
        match completion {
            Completion::Appended { offset, .. } if number < 3 => assert_eq!(offset, 1000 * number as u64),
            Completion::AppendFailed { cookie, cause, data, .. } if number >= 3 => {
                assert_eq!((cookie, cause), (number as u64, DiskCause::Full));
                assert!(data.iter().all(|slice| slice.iter().all(|&byte| byte == number as u8)));
                back.push((cookie, data));
            }
            other => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(std::fs::read(&path).map(|bytes| bytes.len()).ok(), Some(3000), "cut back to the last good append");
    limit_file_size(None);
    for (cookie, data) in &mut back {
        disk.append(file, *cookie, data).expect("room in the queue");
    }
    assert!(completions(&mut disk, 3).iter().all(|completion| matches!(completion, Completion::Appended { .. })));
    drop(disk);
    let expected: Vec<u8> = (0..6000).map(|place| (place / 1000) as u8).collect();
    assert!(std::fs::read(&path).is_ok_and(|bytes| bytes == expected));
    std::fs::remove_file(&path).expect("removing the test's file");
    pool.collect();
    assert_eq!(pool.held(), 0);
}
