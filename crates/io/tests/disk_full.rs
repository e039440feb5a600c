//! A real disk that is full, in a process of its own: the limit of file sizes stands in for a small disk.
#![allow(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use ropewalk_io::disk::{Completion, Disk, DiskCause, NewFile, RealDisk, RealDiskConfig, WriteMode};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
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
    }
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
