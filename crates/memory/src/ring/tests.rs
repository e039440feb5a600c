//! A ring as seen from its two sides.
#![cfg(not(loom))]

use super::*;
#[cfg(not(miri))]
use crate::MemoryKind;
use crate::{Payload, Slice};
use proptest::prelude::*;

const PAGE: usize = 1024;

fn small(pages: usize) -> (RingWriter, RingReader) {
    ring(PoolConfig::heap("ring", PAGE, pages)).unwrap()
}

/// The byte that is written at a position.
fn byte(position: u64) -> u8 {
    (position % 251) as u8
}

/// Writes as much of `most` bytes as there is room for.
fn write(writer: &mut RingWriter, most: usize) -> usize {
    let from = writer.written();
    let space = writer.space();
    let length = space.len().min(most);
    (from..).zip(&mut space[..length]).for_each(|(position, place)| *place = byte(position));
    let _ = writer.commit(length);
    length
}

fn is_right(slice: &[u8], position: u64) -> bool {
    (position..).zip(slice).all(|(position, &found)| found == byte(position))
}

#[test]
fn what_is_written_is_read_where_it_lies_round_after_round() {
    let (mut writer, mut reader) = small(4);
    let (mut read, turns) = (0, if cfg!(miri) { 16 } else { 40 });
    for _ in 0..turns {
        write(&mut writer, 700);
        let end = reader.poll().unwrap();
        while read < end {
            let bytes = reader.bytes(read);
            assert!(is_right(bytes, read));
            read += bytes.len() as u64;
        }
        reader.done_to(read);
    }
    assert!(read > 2 * reader.capacity(), "{read}");
}

#[test]
fn a_slice_keeps_its_page_and_those_behind_it_until_it_is_dropped_anywhere() {
    let (mut writer, mut reader) = small(3);
    assert_eq!(write(&mut writer, 5000), 3 * PAGE);
    let end = reader.poll().unwrap();
    let held = reader.slice(100, 50);
    let later = reader.slice(2 * PAGE as u64, 10);
    reader.done_to(end);
    reader.poll().unwrap();
    // The second page was returned, but has to wait for the first.
    assert_eq!((reader.released(), writer.space().len()), (0, 0));
    assert_eq!(reader.account(), ropewalk_terms::PoolAccount { loans: 3, returned: 1, held: 2 });
    assert!(reader.is_full());
    std::thread::spawn(move || drop(held)).join().unwrap();
    reader.poll().unwrap();
    assert_eq!((reader.released(), writer.space().len()), (2 * PAGE as u64, 2 * PAGE));
    assert!(is_right(&later, 2 * PAGE as u64));
    drop(later);
    reader.poll().unwrap();
    assert_eq!(reader.released(), end);
    assert_eq!(reader.account().held, 0);
}

#[test]
fn a_page_is_read_while_its_rest_is_written() {
    let (mut writer, mut reader) = small(2);
    write(&mut writer, 300);
    reader.poll().unwrap();
    let first = reader.slice(0, 300);
    // The reader is not done with a page until the page is full.
    reader.done_to(300);
    write(&mut writer, 300);
    assert_eq!(reader.poll().unwrap(), 600);
    let second = reader.slice(300, 300);
    assert!(is_right(&first, 0) && is_right(&second, 300));
    assert_eq!(first.block(), second.block());
}

#[test]
fn pieces_of_a_page_are_one_payload_with_one_reference() {
    let (mut writer, mut reader) = small(3);
    write(&mut writer, 3000);
    reader.poll().unwrap();
    let mut payload = Payload::default();
    reader.append(10, 20, &mut payload);
    reader.append(30, 20, &mut payload);
    reader.append(0, 0, &mut payload);
    assert_eq!((payload.len(), payload.piece_count()), (40, 1));
    reader.append(1500, 60, &mut payload);
    reader.append(2100, 50, &mut payload);
    let expected: Vec<u8> = [10..50, 1500..1560, 2100..2150].into_iter().flatten().map(byte).collect();
    assert_eq!(payload.to_vec(), expected);
    reader.done_to(3000);
    drop(payload);
    reader.poll().unwrap();
    assert_eq!(reader.released(), 2 * PAGE as u64);
}

#[test]
fn memory_outlives_its_reader_as_long_as_slices_do_and_is_written_no_more() {
    let (mut writer, mut reader) = small(2);
    write(&mut writer, 5000);
    reader.poll().unwrap();
    let held: Slice = reader.slice(1000, 24);
    drop(reader);
    assert!(writer.is_abandoned());
    assert_eq!(write(&mut writer, 5000), 0);
    assert!(is_right(&held, 1000));
}

#[test]
fn a_writer_that_says_what_cannot_be_is_not_believed() {
    let (writer, mut reader) = small(2);
    let say = |written| writer.area().pointers().write_to(written);
    say(2 * PAGE as u64 + 1);
    assert!(matches!(reader.poll(), Err(RingError::Overrun { from: 0, end: 2048, written: 2049 })));
    say(600);
    assert_eq!(reader.poll().unwrap(), 600);
    say(599);
    assert!(reader.poll().is_err());
}

#[test]
fn a_reader_pointer_that_cannot_be_gives_no_room() {
    let (mut writer, reader) = small(2);
    write(&mut writer, 1500);
    reader.area().pointers().release_to(1 << 40);
    assert_eq!(writer.space().len(), 548);
    reader.area().pointers().release_to(1024);
    write(&mut writer, 548);
    assert_eq!(writer.space().len(), 1024);
}

#[test]
fn a_sleeping_reader_is_woken_once_and_never_sleeps_on_news() {
    let (mut writer, mut reader) = small(2);
    assert!(!writer.commit(0), "no reader sleeps");
    reader.poll().unwrap();
    assert!(reader.prepare_wait());
    writer.space()[0] = 1;
    assert!(writer.commit(1), "the reader sleeps");
    assert!(!writer.commit(0), "it is awake by now");
    assert!(!reader.prepare_wait(), "there is news");
    reader.poll().unwrap();
    assert!(reader.prepare_wait());
    assert!(writer.close());
    assert!(!reader.prepare_wait());
    reader.poll().unwrap();
    assert!(reader.is_closed() && reader.prepare_wait());
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for (page, pages) in [(0, 1), (512, 4), (1500, 4), (1024, 0)] {
        assert!(matches!(ring(PoolConfig::heap("ring", page, pages)), Err(PoolError::Size { .. })), "{page} {pages}");
    }
}

#[test]
#[cfg(not(miri))]
fn another_process_writes_into_a_file_and_goes_on_after_one_that_died() {
    let config = PoolConfig { memory: MemoryKind::Memfd, ..PoolConfig::heap("ring", 4096, 4) };
    let (first, mut reader) = ring(config).unwrap();
    drop(first);
    let open = |reader: &RingReader| RingWriter::open(reader.file().unwrap().try_clone_to_owned().unwrap()).unwrap();
    let mut writer = open(&reader);
    assert_eq!((writer.capacity(), write(&mut writer, 5000)), (16384, 5000));
    let end = reader.poll().unwrap();
    let held = reader.slice(4090, 6);
    reader.done_to(end);
    drop(writer);
    let mut writer = open(&reader);
    assert_eq!(writer.written(), 5000);
    write(&mut writer, 100);
    assert_eq!(reader.poll().unwrap(), 5100);
    assert!(is_right(&held, 4090) && is_right(reader.bytes(4096), 4096));
}

#[test]
#[cfg(not(miri))]
fn a_file_without_a_ring_is_refused() {
    use crate::Pool;
    let config = PoolConfig { memory: MemoryKind::Memfd, ..PoolConfig::heap("pool", 4096, 4) };
    let pool = Pool::new(config).unwrap();
    let file = pool.file().unwrap().try_clone_to_owned().unwrap();
    assert!(matches!(RingWriter::open(file), Err(RingError::System { .. })), "a pool is not for others to write");
    let other = rustix::fs::memfd_create("other", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&other, 8192).unwrap();
    let sealed = rustix::fs::fcntl_add_seals(&other, rustix::fs::SealFlags::SHRINK);
    sealed.unwrap();
    assert!(matches!(RingWriter::open(other), Err(RingError::NotARing)));
    let unsealed = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::empty()).unwrap();
    assert!(matches!(RingWriter::open(unsealed), Err(RingError::System { .. })), "it could shrink");
}

#[test]
fn a_writer_and_a_reader_on_two_threads_agree_on_every_byte() {
    let all: u64 = if cfg!(miri) { 20_000 } else { 2_000_000 };
    let (mut writer, mut reader) = small(4);
    let thread = std::thread::spawn(move || {
        while writer.written() < all {
            if write(&mut writer, 777) == 0 {
                std::thread::yield_now();
            }
        }
        let _ = writer.close();
    });
    let (sender, held) = std::sync::mpsc::sync_channel::<(Slice, u64)>(8);
    let dropper = std::thread::spawn(move || held.iter().all(|(slice, position)| is_right(&slice, position)));
    let mut read = 0;
    loop {
        let end = reader.poll().unwrap();
        if read == end && reader.is_closed() {
            break;
        }
        while read < end {
            let length = (end - read).min(PAGE as u64 - read % PAGE as u64);
            sender.send((reader.slice(read, length as u32), read)).unwrap();
            read += length;
        }
        reader.done_to(read);
        std::thread::yield_now();
    }
    drop(sender);
    thread.join().unwrap();
    assert!(dropper.join().unwrap());
    assert!(read >= all);
}

/// Every step checks every held byte.
const STEPS: usize = if cfg!(miri) { 20 } else { 200 };

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, ..ProptestConfig::default() })]

    #[test]
    fn visible_bytes_are_never_overwritten(
        steps in prop::collection::vec((0..5_u8, 0..3000_usize, any::<prop::sample::Index>()), 1..STEPS),
    ) {
        let (mut writer, mut reader) = small(3);
        let mut held: Vec<(Slice, u64)> = Vec::new();
        let mut done = 0;
        for (step, number, which) in steps {
            match step {
                0 | 1 => _ = write(&mut writer, number),
                2 => {
                    let end = reader.poll().unwrap();
                    let from = done + which.index((end - done) as usize + 1) as u64;
                    let most = (end - from).min(PAGE as u64 - from % PAGE as u64);
                    if most > 0 {
                        held.push((reader.slice(from, most.min(number as u64 + 1) as u32), from));
                    }
                }
                3 if !held.is_empty() => _ = held.swap_remove(which.index(held.len())),
                _ => {
                    let end = reader.poll().unwrap();
                    done += which.index((end - done) as usize + 1) as u64;
                    reader.done_to(done);
                }
            }
            for (slice, position) in &held {
                prop_assert!(is_right(slice, *position));
                prop_assert!(reader.released() <= *position);
            }
            prop_assert!(is_right(reader.bytes(done), done));
            prop_assert!(writer.written() <= reader.released() + writer.capacity());
        }
        held.clear();
        reader.poll().unwrap();
        reader.done_to(reader.written());
        reader.poll().unwrap();
        prop_assert_eq!(reader.released(), reader.written() / PAGE as u64 * PAGE as u64);
        let account = reader.account();
        prop_assert_eq!(account.loans, account.returned + account.held);
    }
}
