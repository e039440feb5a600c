//! Paper 1's ways to manage packets.
#![cfg(not(loom))]

use super::*;

const BLOCK: usize = 1024;

fn next_packet(blocks: usize) -> NextPacket {
    NextPacket::new(PoolConfig::heap("next_packet", BLOCK, blocks)).unwrap()
}

/// A packet of `bytes` bytes of the same value.
fn receive(memory: &mut NextPacket, value: u8, bytes: usize) -> Option<Slice> {
    memory.room(bytes)?[..bytes].fill(value);
    memory.take(bytes, bytes.next_multiple_of(16))
}

#[test]
fn packets_lie_behind_each_other_and_the_area_is_used_round_and_round() {
    let mut memory = next_packet(2);
    let mut last = receive(&mut memory, 0, 100).unwrap();
    let first = last.as_ptr();
    for value in 1..60 {
        let next = receive(&mut memory, value, 100).unwrap();
        let distance = next.as_ptr() as isize - last.as_ptr() as isize;
        // Nine packets fit into a block.
        let expected = if value % 18 == 0 {
            -1024 - 8 * 112
        } else if value % 9 == 0 {
            128
        } else {
            112
        };
        assert_eq!((distance, &*next), (expected, &[value; 100][..]), "{value}");
        last = next;
    }
    assert_eq!(receive(&mut memory, 1, 1024).map(|packet| packet.as_ptr()), Some(first.wrapping_add(1024)));
}

#[test]
fn the_pointer_waits_for_what_is_held_and_goes_on_when_it_was_dropped() {
    let mut memory = next_packet(3);
    let held = receive(&mut memory, 7, 100).unwrap();
    drop([1, 2].map(|value| receive(&mut memory, value, 1000).unwrap()));
    assert!(receive(&mut memory, 3, 1000).is_none(), "the first block is next");
    assert!(memory.room(10).is_none(), "and stays it");
    assert_eq!((&*held, memory.held()), (&[7; 100][..], 1));
    let thread = std::thread::spawn(move || drop(held));
    thread.join().unwrap();
    assert_eq!(memory.held(), 0);
    assert_eq!(receive(&mut memory, 3, 1000).as_deref(), Some(&[3; 1000][..]));
    let account = memory.frames().account();
    assert_eq!(account.loans, account.returned + account.held);
}

#[test]
fn a_packet_larger_than_a_block_has_no_room() {
    let mut memory = next_packet(1);
    assert!(memory.room(BLOCK + 1).is_none());
    assert_eq!(memory.room(BLOCK).map(|room| room.len()), Some(BLOCK));
}

fn allocate(memory: &mut PacketAllocator, value: u8, bytes: usize) -> Option<Slice> {
    memory.room(2000)?[..bytes].fill(MaybeUninit::new(value));
    // SAFETY: just written.
    unsafe { memory.take(bytes) }
}

#[test]
fn packets_of_the_library_are_freed_when_they_were_dropped_and_counted_until_then() {
    let mut memory = PacketAllocator::new("stdlib", 3).unwrap();
    let packets = [1, 2, 3].map(|value| allocate(&mut memory, value, 100 * usize::from(value)).unwrap());
    assert!(memory.room(1).is_none(), "all packets are held");
    for (packet, value) in packets.iter().zip(1..) {
        assert_eq!(**packet, vec![value; 100 * usize::from(value)]);
    }
    let [first, second, third] = packets;
    std::thread::spawn(move || drop(second)).join().unwrap();
    assert_eq!((memory.held(), memory.packets()), (2, 3));
    assert_eq!(allocate(&mut memory, 9, 2000).as_deref(), Some(&[9; 2000][..]));
    let account = memory.frames().account();
    assert_eq!((account.loans, account.held), (4, 3));
    drop(memory);
    assert_eq!((&first[..3], &third[297..]), (&[1; 3][..], &[3; 3][..]), "memory stays as long as its packet");
}

#[test]
fn room_that_was_not_used_is_there_for_a_packet_of_another_size() {
    let mut memory = PacketAllocator::new("stdlib", 1).unwrap();
    assert_eq!(memory.room(10).map(|room| room.len()), Some(10));
    assert_eq!(memory.room(20).map(|room| room.len()), Some(20));
    assert_eq!(allocate(&mut memory, 1, 5).as_deref(), Some(&[1; 5][..]));
}
