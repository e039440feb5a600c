//! Memory whose blocks are filled in another order than a pool's: a ring that the kernel maps, an area that is used
//! cyclically. [`NextPacket`] and [`PacketAllocator`] are the two ways to manage packet memory that paper 1 compares
//! (section III-B).
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::slice::from_raw_parts_mut;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::config::{PoolConfig, PoolError};
use crate::mapping::{Mapping, Others, Pieces, Touch};
use crate::registry::{self, MOST_POOLS, PoolId, Shared};
use crate::slice::{LOAN_REFERENCES, Slice};
use crate::table::{BlockTable, MOST_BLOCKS};
use ropewalk_terms::PoolAccount;

/// One block, as the owner's thread knows it.
#[derive(Copy, Clone, Default)]
struct Block {
    /// References given to slices since the block was lent.
    handed: u64,
    state: State,
}

#[derive(Copy, Clone, PartialEq, Eq, Default)]
enum State {
    /// Not lent: being filled, or unused.
    #[default]
    Home,
    /// Slices may be cut from it.
    Lent,
    /// The owner is done with the block; slices may still hold it.
    Kept,
}

/// Equal blocks of memory that the owner's thread lends in an order of its choice. A block is returned when the owner
/// is [done](Self::done) with it and the last slice was dropped, on any thread.
///
/// May be dropped while slices exist: the memory stays until the last of them is dropped.
pub struct Frames {
    name: String,
    id: PoolId,
    shared: NonNull<Shared>,
    block_size: usize,
    blocks: Box<[Block]>,
    held: usize,
    loans: u64,
    returned: u64,
}

// SAFETY: as for `Pool`: the shared part is made for use from several threads, everything else is owned. Not `Sync`.
unsafe impl Send for Frames {}

impl Frames {
    /// Allocates private memory.
    ///
    /// # Errors
    /// As [`Pool::new`](crate::Pool::new).
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        check(&config)?;
        let (mapping, _) = Mapping::new(&config, Touch::Everything, Others::Read)?;
        Self::of(mapping, config)
    }

    /// Makes blocks whose memory is allocated one by one.
    pub(crate) fn of_pieces(name: &str, blocks: usize) -> Result<Self, PoolError> {
        let config = PoolConfig::heap(name, 1, blocks);
        check(&config)?;
        Self::of(Mapping::of_pieces(blocks), config)
    }

    /// Maps kernel memory at the beginning of a descriptor, as for packet rings. The mapping keeps the memory, also
    /// after the descriptor is closed.
    ///
    /// # Errors
    /// Impossible sizes, or an error of the kernel.
    pub fn map(name: &str, descriptor: BorrowedFd<'_>, block_size: usize, blocks: usize) -> Result<Self, PoolError> {
        let config = PoolConfig::heap(name, block_size, blocks);
        check(&config)?;
        let mapping = Mapping::of_descriptor(descriptor, block_size * blocks)
            .map_err(|(call, errno)| config.no_memory(block_size * blocks, call, errno.into()))?;
        Self::of(mapping, config)
    }

    fn of(mapping: Mapping, config: PoolConfig) -> Result<Self, PoolError> {
        let PoolConfig { name, blocks, block_size, .. } = config;
        let shared = Shared { table: BlockTable::new(blocks), mapping: Arc::new(mapping) };
        let Some((id, shared)) = registry::enter(shared) else {
            return Err(PoolError::TooManyPools { name, most: MOST_POOLS });
        };
        let blocks = vec![Block::default(); blocks].into();
        Ok(Self { name, id, shared, block_size, blocks, held: 0, loans: 0, returned: 0 })
    }

    fn shared(&self) -> &Shared {
        // SAFETY: entered by `of`, and not freed before this handle has abandoned it.
        unsafe { self.shared.as_ref() }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.shared().mapping
    }

    /// Returns the address of a block.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn address(&self, block: u32) -> NonNull<u8> {
        assert!((block as usize) < self.blocks.len(), "the block exists");
        // SAFETY: within the mapping, which has `blocks * block_size` bytes.
        unsafe { self.mapping().base().add(block as usize * self.block_size) }
    }

    /// Lends a block. Slices can be cut from it until the owner is [done](Self::done) with it.
    ///
    /// # Panics
    /// If the block is already lent or held.
    pub fn lend(&mut self, block: u32) {
        assert!(self.is_home(block), "a block is lent once at a time");
        self.blocks[block as usize] = Block { handed: 0, state: State::Lent };
        self.shared().table.issue(block, LOAN_REFERENCES);
        self.loans += 1;
        self.held += 1;
    }

    /// Returns the `length` bytes at `start` as a slice, without a copy.
    ///
    /// # Safety
    /// The bytes must lie in memory that belongs to this block, be initialised, and not be written until the block has
    /// been returned.
    ///
    /// # Panics
    /// If the block is not lent.
    #[inline]
    pub unsafe fn slice(&mut self, block: u32, start: NonNull<u8>, length: u32) -> Slice {
        let entry = &mut self.blocks[block as usize];
        assert!(entry.state == State::Lent, "slices are cut from what is lent");
        debug_assert!(entry.handed < LOAN_REFERENCES - 1, "a block does not run out of references");
        entry.handed += 1;
        // SAFETY: the caller's promise; the slice gets one of the references that were issued.
        unsafe { Slice::new(start, length, block, self.id.0) }
    }

    /// Releases a block on the owner's side; slices keep it.
    ///
    /// # Panics
    /// If the block is not lent.
    pub fn done(&mut self, block: u32) {
        let entry = &mut self.blocks[block as usize];
        assert!(entry.state == State::Lent, "the owner is done once");
        entry.state = State::Kept;
        let left = LOAN_REFERENCES - entry.handed;
        // SAFETY: issued by `lend`; references that were handed out belong to slices.
        unsafe { registry::give_back(self.id.0, block, left) }
    }

    /// Collects the blocks whose last reference was dropped, and calls `home` for each.
    #[inline]
    pub fn collect(&mut self, mut home: impl FnMut(u32)) {
        if !self.shared().table.has_returned() {
            return;
        }
        // SAFETY: as in `shared`; spelled out so that the other fields can be changed meanwhile.
        let table = unsafe { &self.shared.as_ref().table };
        for block in table.take_returned() {
            self.blocks[block as usize].state = State::Home;
            self.held -= 1;
            self.returned += 1;
            home(block);
        }
    }

    /// Whether the block is neither lent nor referred to, according to the blocks collected so far.
    pub fn is_home(&self, block: u32) -> bool {
        self.blocks[block as usize].state == State::Home
    }

    /// Number of blocks not returned, according to the blocks collected so far.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Number of blocks.
    pub const fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of a block.
    pub const fn block_size(&self) -> usize {
        self.block_size
    }

    /// The number of this memory, as in its slices.
    pub const fn id(&self) -> PoolId {
        self.id
    }

    /// Returns the account of the blocks for the ledger, with held ones counted from the table. Collect first to bring
    /// it up to date.
    pub fn account(&self) -> PoolAccount {
        let held = self.blocks.iter().filter(|block| block.state != State::Home).count() as u64;
        PoolAccount { loans: self.loans, returned: self.returned, held }
    }
}

/// Checks the sizes.
fn check(config: &PoolConfig) -> Result<(), PoolError> {
    let &PoolConfig { blocks, block_size, .. } = config;
    let possible = (1..=MOST_BLOCKS).contains(&blocks)
        && (1..=1 << 31).contains(&block_size)
        && blocks.checked_mul(block_size).is_some_and(|bytes| bytes <= isize::MAX as usize);
    if possible { Ok(()) } else { Err(PoolError::Size { name: config.name.clone(), blocks, block_size }) }
}

impl Drop for Frames {
    fn drop(&mut self) {
        for block in 0..self.blocks.len() as u32 {
            if self.blocks[block as usize].state == State::Lent {
                self.done(block);
            }
        }
        let came_home = self.shared().table.close().count();
        let out = self.held - came_home;
        // SAFETY: closed above; `out` blocks were lent and not taken from the queue.
        unsafe {
            if BlockTable::abandon(&raw const (*self.shared.as_ptr()).table, out as u64) {
                registry::free(self.id.0);
            }
        }
    }
}

impl core::fmt::Debug for Frames {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { name, block_size, held, .. } = self;
        write!(out, "Frames({name}: {} blocks of {block_size} bytes, {held} held)", self.blocks.len())
    }
}

/// Paper 1's own memory management: packets are received behind a pointer, `next_packet`, which advances by the
/// received bytes and wraps around at the end. To free a packet means to count it. The area is so large that old
/// packets are freed long before the pointer reaches them again, "although this is checked for safety": the check is by
/// block, and if a block is still held the pointer waits.
#[derive(Debug)]
pub struct NextPacket {
    frames: Frames,
    /// The block that contains the pointer, and the offset in it; no block is lent before the first packet.
    block: u32,
    offset: usize,
    is_lent: bool,
}

impl NextPacket {
    /// Makes an area of `config.blocks` blocks. Packets lie within a block, and a held packet keeps its block.
    ///
    /// # Errors
    /// As [`Pool::new`](crate::Pool::new).
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        Ok(Self { frames: Frames::new(config)?, block: 0, offset: 0, is_lent: false })
    }

    /// Returns room for `least` bytes behind the pointer; `None` if the memory there is still held, or a block is
    /// smaller.
    #[inline]
    pub fn room(&mut self, least: usize) -> Option<&mut [u8]> {
        if least > self.block_size() {
            return None;
        }
        if !self.is_lent || self.offset + least > self.block_size() {
            self.next_block()?;
        }
        // SAFETY: the rest of a block that is lent, behind everything that slices were cut from.
        let start = unsafe { self.frames.address(self.block).add(self.offset) };
        // SAFETY: as above, and initialised when the memory was made.
        Some(unsafe { from_raw_parts_mut(start.as_ptr(), self.block_size() - self.offset) })
    }

    fn next_block(&mut self) -> Option<()> {
        let mut next = self.block;
        if self.is_lent {
            self.frames.done(self.block);
            self.is_lent = false;
            next = (self.block + 1) % self.frames.blocks() as u32;
            (self.block, self.offset) = (next, 0);
        }
        self.frames.collect(|_| {});
        if !self.frames.is_home(next) {
            return None;
        }
        self.frames.lend(next);
        self.is_lent = true;
        Some(())
    }

    /// Takes the first `bytes` bytes of the room as a slice and advances the pointer by `distance`, at most to the
    /// block's end.
    ///
    /// # Panics
    /// If there is less room.
    #[inline]
    pub fn take(&mut self, bytes: usize, distance: usize) -> Option<Slice> {
        assert!(self.is_lent && self.offset + bytes <= self.block_size(), "no more is taken than there was room for");
        // SAFETY: within the block.
        let start = unsafe { self.frames.address(self.block).add(self.offset) };
        self.offset = (self.offset + distance.max(bytes)).min(self.block_size());
        // SAFETY: in the block, initialised, and behind the pointer from now on until the block has been returned.
        Some(unsafe { self.frames.slice(self.block, start, bytes as u32) })
    }

    /// Number of held blocks, including the one that contains the pointer.
    pub fn held(&mut self) -> usize {
        self.frames.collect(|_| {});
        self.frames.held()
    }

    /// Number of blocks.
    pub const fn blocks(&self) -> usize {
        self.frames.blocks()
    }

    /// Bytes of a block.
    pub const fn block_size(&self) -> usize {
        self.frames.block_size()
    }

    /// The blocks, for their account.
    pub const fn frames(&self) -> &Frames {
        &self.frames
    }
}

/// The C library's memory: allocates as much as the largest packet may have, keeps only the received part (`realloc`),
/// and frees it some time after the last slice of it was dropped, on the receiving thread. One packet is one block.
#[derive(Debug)]
pub struct PacketAllocator {
    frames: Frames,
    /// Free blocks, without memory.
    free: Vec<u32>,
    /// The block that is being filled, and the size of its memory in bytes.
    current: Option<(u32, usize)>,
}

impl PacketAllocator {
    /// Makes memory for at most `packets` packets at a time.
    ///
    /// # Errors
    /// If `packets` is 0 or too large, or if there are too many pools.
    pub fn new(name: &str, packets: usize) -> Result<Self, PoolError> {
        let frames = Frames::of_pieces(name, packets)?;
        Ok(Self { frames, free: (0..packets as u32).rev().collect(), current: None })
    }

    fn pieces(&self) -> &Pieces {
        self.frames.mapping().pieces().expect("the memory was made of pieces")
    }

    /// Returns room for a packet of `least` bytes; `None` if all packets are held, or the system has no memory.
    pub fn room(&mut self, least: usize) -> Option<&mut [MaybeUninit<u8>]> {
        let (block, size) = match self.current {
            Some((block, size)) if size >= least => (block, size),
            _ => self.allocate(least)?,
        };
        let start = self.pieces().get(block)?;
        // SAFETY: allocated with this size, and in no slice yet.
        Some(unsafe { from_raw_parts_mut(start.as_ptr().cast(), size) })
    }

    fn allocate(&mut self, size: usize) -> Option<(u32, usize)> {
        self.collect();
        let block = self.current.take().map_or_else(|| self.free.pop(), |(block, _)| Some(block))?;
        // SAFETY: returned, or not filled further: no reference to it is left.
        unsafe { self.pieces().free(block) };
        if self.pieces().allocate(block, size).is_none() {
            self.free.push(block);
            return None;
        }
        self.current = Some((block, size));
        self.current
    }

    /// Takes the first `bytes` bytes of the room as a slice and returns the rest to the library. `None` if `bytes` is
    /// 0; the room then stays.
    ///
    /// # Safety
    /// These bytes must have been written.
    ///
    /// # Panics
    /// If there is less room.
    pub unsafe fn take(&mut self, bytes: usize) -> Option<Slice> {
        let (block, size) = if bytes == 0 { None } else { self.current.take() }?;
        assert!(bytes <= size, "no more is taken than there was room for");
        // SAFETY: the room's borrow has ended, and no slice was cut from it.
        let start = unsafe { self.pieces().shrink(block, bytes) }?;
        self.frames.lend(block);
        // SAFETY: the block's own memory, which stays as it is until the block has been returned.
        let slice = unsafe { self.frames.slice(block, start, bytes as u32) };
        self.frames.done(block);
        Some(slice)
    }

    /// Frees the memory of the packets that were dropped.
    fn collect(&mut self) {
        let before = self.free.len();
        let Self { frames, free, .. } = self;
        frames.collect(|block| free.push(block));
        for &block in &self.free[before..] {
            // SAFETY: the block was returned: no reference to it is left.
            unsafe { self.pieces().free(block) };
        }
    }

    /// Number of held packets.
    pub fn held(&mut self) -> usize {
        self.collect();
        self.frames.held()
    }

    /// Maximum number of held packets.
    pub const fn packets(&self) -> usize {
        self.frames.blocks()
    }

    /// The packets, for their account.
    pub const fn frames(&self) -> &Frames {
        &self.frames
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    //! Paper 1's ways to manage packets.

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
}
