//! Two ways to manage the memory of packets that paper 1 compares (section III-B), beside the pool.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::slice::from_raw_parts_mut;

use crate::config::{PoolConfig, PoolError};
use crate::frames::Frames;
use crate::pieces::Pieces;
use crate::slice::Slice;

/// Paper 1's own memory: packets are received behind a pointer, `next_packet`, which moves on by what came and begins anew
/// at the end. To free a packet means to count it. The area is so large that what the pointer comes to was freed long ago,
/// "although this is checked for safety": by block, and where one is still held the pointer waits.
#[derive(Debug)]
pub struct NextPacket {
    frames: Frames,
    /// The block that the pointer is in, and where in it; no block is lent before the first packet.
    block: u32,
    offset: usize,
    is_lent: bool,
}

impl NextPacket {
    /// An area of `config.blocks` blocks. Packets lie within a block, and one that is held keeps its block.
    ///
    /// # Errors
    /// As [`Pool::new`](crate::Pool::new).
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        Ok(Self { frames: Frames::new(config)?, block: 0, offset: 0, is_lent: false })
    }

    /// Room for `least` bytes behind the pointer; none where somebody holds what lies there, or a block is smaller.
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

    /// Takes the first `bytes` bytes of the room as a slice and moves the pointer on by `distance`, if there is as much.
    ///
    /// # Panics
    /// If there is not so much room.
    #[inline]
    pub fn take(&mut self, bytes: usize, distance: usize) -> Option<Slice> {
        assert!(self.is_lent && self.offset + bytes <= self.block_size(), "no more is taken than there was room for");
        // SAFETY: within the block.
        let start = unsafe { self.frames.address(self.block).add(self.offset) };
        self.offset = (self.offset + distance.max(bytes)).min(self.block_size());
        // SAFETY: in the block, initialised, and behind the pointer from now on until the block has come home.
        Some(unsafe { self.frames.slice(self.block, start, bytes as u32) })
    }

    /// Blocks that are held, the one that the pointer is in among them.
    pub fn held(&mut self) -> usize {
        self.frames.collect(|_| {});
        self.frames.held()
    }

    /// How many blocks there are.
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

/// The C library's memory: as much as the largest packet may have is allocated, what came is kept (`realloc`), and it is
/// freed some time after the last slice of it was dropped, by the thread that receives. One packet is one block.
#[derive(Debug)]
pub struct PacketAllocator {
    frames: Frames,
    /// Blocks at home, without memory.
    free: Vec<u32>,
    /// The block that is being filled, and the size of its memory.
    current: Option<(u32, usize)>,
}

impl PacketAllocator {
    /// Memory for at most so many packets at a time.
    ///
    /// # Errors
    /// Without packets, or with too many, or where there are too many pools.
    pub fn new(name: &str, packets: usize) -> Result<Self, PoolError> {
        let frames = Frames::of_pieces(name, packets)?;
        Ok(Self { frames, free: (0..packets as u32).rev().collect(), current: None })
    }

    fn pieces(&self) -> &Pieces {
        self.frames.mapping().pieces().expect("the memory was made of pieces")
    }

    /// Room for a packet of `least` bytes; none where the packets are all held, or the system gives no memory.
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
        // SAFETY: at home, or filled no further: nobody refers to it.
        unsafe { self.pieces().free(block) };
        if self.pieces().allocate(block, size).is_none() {
            self.free.push(block);
            return None;
        }
        self.current = Some((block, size));
        self.current
    }

    /// Takes the first `bytes` bytes of the room as a slice; the rest goes back to the library. None, and the room stays,
    /// where that is nothing.
    ///
    /// # Safety
    /// They must have been written.
    ///
    /// # Panics
    /// If there is not so much room.
    pub unsafe fn take(&mut self, bytes: usize) -> Option<Slice> {
        let (block, size) = if bytes == 0 { None } else { self.current.take() }?;
        assert!(bytes <= size, "no more is taken than there was room for");
        // SAFETY: the room's borrow has ended, and no slice was cut from it.
        let start = unsafe { self.pieces().shrink(block, bytes) }?;
        self.frames.lend(block);
        // SAFETY: the block's own memory, which stays as it is until the block has come home.
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
            // SAFETY: it came home: nobody refers to it.
            unsafe { self.pieces().free(block) };
        }
    }

    /// Packets that are held.
    pub fn held(&mut self) -> usize {
        self.collect();
        self.frames.held()
    }

    /// How many packets can be held.
    pub const fn packets(&self) -> usize {
        self.frames.blocks()
    }

    /// The packets, for their account.
    pub const fn frames(&self) -> &Frames {
        &self.frames
    }
}

#[cfg(test)]
mod tests;
