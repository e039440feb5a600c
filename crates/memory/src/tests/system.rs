//! Memory that the system maps: kinds of pages, files, NUMA nodes, and blocks that the kernel holds.
#![cfg(not(miri))]
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::process::Command;

use rustix::fs::fstat;
use rustix::io::Errno;

use super::{held, pool, slice};
use crate::{HugePages, Lock, MemoryKind, Owner, PageKind, Pool, PoolConfig, PoolError};

fn config(memory: MemoryKind, huge_pages: HugePages) -> PoolConfig {
    PoolConfig { memory, huge_pages, ..PoolConfig::heap("system", 64 << 10, 40) }
}

const MAPPED: [(MemoryKind, HugePages); 4] = [
    (MemoryKind::Anonymous, HugePages::Never),
    (MemoryKind::Anonymous, HugePages::Auto),
    (MemoryKind::Memfd, HugePages::Never),
    (MemoryKind::Memfd, HugePages::Auto),
];

/// Threads that make and drop pools at the same time do not touch each other's memory, whether or not huge pages are
/// missing: an address that one thread unmaps twice could belong to another thread by then.
#[test]
fn pools_that_are_made_at_the_same_time_do_not_touch_each_other() {
    let make = |thread: u8| {
        for round in 0..60 {
            let (memory, huge_pages) = MAPPED[(round + usize::from(thread)) % MAPPED.len()];
            let config = PoolConfig { memory, huge_pages, ..PoolConfig::heap("side by side", 64 << 10, 4) };
            let mut pool = Pool::new(config).unwrap();
            let slices: Vec<_> = (0..4).map(|_| slice(&mut pool, &[thread; 60_000])).collect();
            std::thread::yield_now();
            assert!(slices.iter().all(|slice| slice.iter().all(|&byte| byte == thread)), "round {round}");
        }
    };
    std::thread::scope(|scope| (1..=6).for_each(|thread| drop(scope.spawn(move || make(thread)))));
}

#[test]
fn every_kind_of_memory_says_what_it_is_and_keeps_its_bytes() {
    for (memory, huge_pages) in MAPPED {
        let mut pool = Pool::new(config(memory, huge_pages)).unwrap();
        let report = pool.report().clone();
        assert_eq!(report.memory, memory);
        let huge = matches!(report.pages, PageKind::Huge2MiB | PageKind::Transparent);
        assert_eq!(huge, report.huge_bytes > 0);
        assert!(report.huge_bytes <= report.bytes);
        match huge_pages {
            HugePages::Never => assert_eq!((report.pages, report.bytes), (PageKind::Plain, 40 * (64 << 10))),
            HugePages::Auto => assert_eq!(report.bytes, 4 << 20),
        }
        let first = slice(&mut pool, b"first");
        let alignment = if huge_pages == HugePages::Auto { 2 << 20 } else { 4096 };
        assert!(first.as_ptr().addr().is_multiple_of(alignment) && first.block() == 0);
        let mut loans: Vec<_> = (1..40).map(|_| pool.loan(Owner::SHARED).unwrap()).collect();
        loans.iter_mut().for_each(|loan| loan.spare().fill(0xa5));
        assert!(pool.loan(Owner::SHARED).is_none());
        assert_eq!(&*first, b"first");
        drop(loans);
        assert_eq!(held(&mut pool), 1);
        drop(pool);
        assert_eq!(&*first, b"first", "the memory stays as long as a slice");
    }
}

#[test]
fn memory_that_others_can_read_is_listed_once_and_stays_while_it_is_held() {
    let listed_at = |address: usize| {
        let all = crate::shared_memories();
        all.into_iter().filter(|memory| memory.addresses().contains(&address)).collect::<Vec<_>>()
    };
    let (mut first, mut second) = Pool::pair(config(MemoryKind::Memfd, HugePages::Never), 10).unwrap();
    let addresses = [slice(&mut first, b"one"), slice(&mut second, b"other")].map(|bytes| bytes.as_ptr().addr());
    let [memory] = &listed_at(addresses[0])[..] else { panic!("two pools of one mapping are one memory") };
    assert!(memory.addresses().contains(&addresses[1]));
    assert_eq!(fstat(memory.file()).unwrap().st_size as usize, memory.addresses().len());
    let kept = memory.clone();
    drop((first, second));
    assert_eq!(listed_at(addresses[0]).len(), 1, "it is still there, and still readable:");
    let mut there = [0; 3];
    let offset = addresses[0] - kept.addresses().start;
    assert_eq!(rustix::io::pread(kept.file(), &mut there, offset as u64).unwrap(), 3);
    assert_eq!(&there, b"one");
    let anonymous = Pool::new(config(MemoryKind::Anonymous, HugePages::Never)).unwrap();
    assert!(listed_at(anonymous.address().as_ptr().addr()).is_empty(), "no other process can map it");
}

#[test]
fn a_pools_file_is_read_by_others_but_neither_written_nor_cut() {
    let mut pool = Pool::new(config(MemoryKind::Memfd, HugePages::Never)).unwrap();
    let bytes = slice(&mut pool, b"to be read elsewhere");
    let file = pool.file().unwrap();
    assert_eq!(fstat(file).unwrap().st_size as usize, pool.report().bytes);
    let mut there = [0; 20];
    assert_eq!(rustix::io::pread(file, &mut there, 0).unwrap(), 20);
    assert_eq!(there, *bytes);
    assert_eq!(rustix::io::pwrite(file, b"x", 0).unwrap_err(), Errno::PERM);
    assert_eq!(rustix::fs::ftruncate(file, 0).unwrap_err(), Errno::PERM);
    assert!(Pool::new(PoolConfig::heap("none", 8, 1)).unwrap().file().is_none());
    let long = PoolConfig { name: "x".repeat(300), ..config(MemoryKind::Memfd, HugePages::Never) };
    assert!(Pool::new(long).is_ok(), "a name that the kernel refuses does not matter");
}

#[test]
fn a_pool_lies_on_the_node_that_was_asked_for() {
    for (memory, huge_pages) in MAPPED {
        let pool = Pool::new(PoolConfig { numa_node: Some(0), ..config(memory, huge_pages) }).unwrap();
        assert_eq!(pool.report().numa_node, Some(0));
        for node in [1023, 1024, u16::MAX] {
            let error = Pool::new(PoolConfig { numa_node: Some(node), ..config(memory, huge_pages) }).unwrap_err();
            assert!(matches!(error, PoolError::NoSuchNode { node: named, .. } if named == node), "{error}");
        }
    }
    let heap = PoolConfig { numa_node: Some(0), ..PoolConfig::heap("heap", 8, 1) };
    assert!(matches!(Pool::new(heap), Err(PoolError::HeapNotBound { .. })));
}

/// Bytes of this process that are locked into memory.
fn locked_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() * 1024
}

/// Runs the test of this name alone, in a separate process; true in that process.
fn is_alone(name: &str) -> bool {
    const ALONE: &str = "ROPEWALK_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--test-threads=1"]).env(ALONE, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    false
}

#[test]
fn a_locked_pool_stays_in_memory_until_it_is_dropped() {
    if !is_alone("tests::system::a_locked_pool_stays_in_memory_until_it_is_dropped") {
        return;
    }
    let pool = Pool::new(config(MemoryKind::Anonymous, HugePages::Never)).unwrap();
    assert_eq!((pool.report().lock, locked_bytes()), (Lock::NotAsked, 0));
    // 2.5 MiB: within every user's limit of locked memory.
    for (memory, huge_pages) in MAPPED {
        let wanted = PoolConfig { lock: true, ..config(memory, huge_pages) };
        let pool = Pool::new_untouched(wanted).unwrap();
        assert_eq!(pool.report().lock, Lock::Held);
        let is_reserved = pool.report().pages == PageKind::Huge2MiB;
        assert_eq!(locked_bytes(), if is_reserved { 0 } else { pool.report().bytes }, "reserved pages always stay");
        drop(pool);
        assert_eq!(locked_bytes(), 0);
    }
}

#[test]
fn a_pool_that_may_not_be_locked_is_had_unlocked_and_says_so() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    if !is_alone("tests::system::a_pool_that_may_not_be_locked_is_had_unlocked_and_says_so") {
        return;
    }
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    setrlimit(Resource::Memlock, Rlimit { current: Some(64 << 10), maximum: Some(64 << 10) }).unwrap();
    let wanted = PoolConfig { lock: true, ..config(MemoryKind::Anonymous, HugePages::Never) };
    let mut pool = Pool::new(wanted).unwrap();
    assert_eq!((pool.report().lock, locked_bytes()), (Lock::Refused, 0));
    assert_eq!(&*slice(&mut pool, b"as good"), b"as good");
}

#[test]
fn an_untouched_pool_takes_memory_only_as_it_is_used() {
    const BLOCKS: usize = 512;
    for (memory, huge_pages) in MAPPED {
        let config = PoolConfig { blocks: BLOCKS, numa_node: Some(0), ..config(memory, huge_pages) };
        let mut pool = Pool::new_untouched(config).unwrap();
        if pool.report().pages == PageKind::Huge2MiB {
            continue;
        }
        let mut loans: Vec<_> = (0..BLOCKS).map(|_| pool.loan(Owner::SHARED).unwrap()).collect();
        let page = |loan: &mut crate::Loan| loan.spare().as_ptr().addr() / 4096 * 4096;
        let last = page(&mut loans[BLOCKS - 1]);
        assert!(is_present(page(&mut loans[0])) && !is_present(last));
        assert_eq!(loans[BLOCKS - 1].spare()[0], 0);
        loans[BLOCKS - 1].spare()[0] = 1;
        assert!(is_present(last));
    }
}

/// Whether the page at this address of this process has memory (bit 63 of its entry in `pagemap`).
fn is_present(address: usize) -> bool {
    let mut entry = [0; 8];
    let pages = std::fs::File::open("/proc/self/pagemap").unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&pages, &mut entry, (address / 4096 * 8) as u64).unwrap();
    u64::from_ne_bytes(entry) >> 63 == 1
}

#[test]
fn more_memory_than_there_are_addresses_is_an_error() {
    for (memory, huge_pages) in MAPPED {
        let config = PoolConfig { block_size: 1 << 31, blocks: 1 << 31, ..config(memory, huge_pages) };
        let error = Pool::new(config).unwrap_err();
        assert!(matches!(error, PoolError::Memory { .. }), "{error}");
        assert!(error.to_string().contains("system") && error.to_string().contains("mmap"), "{error}");
    }
}

/// A pipe and a plain `read` represent the kernel: the test checks which side owns which bytes when.
#[test]
fn the_kernel_fills_a_posted_block_while_its_head_is_read() {
    let mut pool = Pool::new(config(MemoryKind::Anonymous, HugePages::Auto)).unwrap();
    let mut loan = pool.loan(Owner::SHARED).unwrap();
    let head = loan.append(b"head ").unwrap();
    let mut posted = loan.post();
    assert_eq!(posted.capacity(), (64 << 10) - 5);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let fill = |posted: &crate::Posted, bytes: &[u8]| {
        rustix::io::write(&writer, bytes).unwrap();
        // SAFETY: no other reference to these bytes exists while the block is posted.
        let result = unsafe { libc::read(raw(&reader), posted.address().as_ptr().cast(), posted.capacity()) };
        assert_eq!(result, bytes.len() as isize);
    };
    fill(&posted, b"middle ");
    // SAFETY: read by the call above, which is over.
    let middle = unsafe { posted.split_filled(7) }.unwrap();
    fill(&posted, b"tail");
    // SAFETY: as above.
    let mut loan = unsafe { posted.reclaim(4) };
    let tail = loan.split_committed().unwrap();
    assert_eq!((&*head, &*middle, &*tail), (&b"head "[..], &b"middle "[..], &b"tail"[..]));
    assert!(head.is_followed_by(&middle) && middle.is_followed_by(&tail));
    drop((loan, head, middle, tail));
    assert_eq!(held(&mut pool), 0);
}

fn raw(descriptor: &impl AsFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&descriptor.as_fd())
}

#[test]
fn a_posted_block_that_is_not_reclaimed_stays_out() {
    let mut pool = Pool::new(PoolConfig::heap("posted", 8, 2)).unwrap();
    drop(pool.loan(Owner::SHARED).unwrap().post());
    assert_eq!(held(&mut pool), 1);
}

/// Runs in its own process, so that no other test changes the mappings meanwhile.
#[test]
fn dropped_pools_leave_no_mapping_behind() {
    if !is_alone("tests::system::dropped_pools_leave_no_mapping_behind") {
        return;
    }
    let size = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096
    };
    let round = |(memory, huge_pages)| {
        let mut pool = Pool::new(PoolConfig { blocks: 512, ..config(memory, huge_pages) }).unwrap();
        let last = slice(&mut pool, b"last");
        drop(pool);
        assert_eq!(&*last, b"last");
    };
    MAPPED.into_iter().for_each(round);
    let before = size();
    (0..5).for_each(|_| MAPPED.into_iter().for_each(round));
    assert!(size() < before + (32 << 20), "20 pools of 32 MiB came and went");
}

#[test]
fn a_block_that_was_given_out_comes_home_with_its_only_slice_or_as_a_loan() {
    let mut pool = pool(64, 3);
    let blocks: Vec<u32> = std::iter::from_fn(|| pool.give_out()).collect();
    assert_eq!((blocks.len(), pool.available(Owner::SHARED)), (3, 0));
    // SAFETY: each block is given out and is not written.
    let (first, second) = unsafe { (pool.filled(blocks[0], 0, 64), pool.filled(blocks[1], 60, 4)) };
    assert_eq!((first.len(), second.len()), (64, 4));
    assert_eq!(second.as_ptr().addr() - pool.address().as_ptr().addr(), blocks[1] as usize * 64 + 60);
    assert!(first.is_alone());
    let again = first.clone();
    drop((first, second));
    assert_eq!(held(&mut pool), 2);
    drop(again);
    assert_eq!(held(&mut pool), 1);
    // SAFETY: as above.
    let mut loan = unsafe { pool.take_back(blocks[2]) };
    let slice = loan.append(&[7; 64]).unwrap();
    drop(loan);
    assert_eq!((held(&mut pool), &*slice), (1, &[7; 64][..]));
    drop(slice);
    assert_eq!((held(&mut pool), pool.give_out().is_some()), (0, true));
}
