//! Memory for packets received from sockets, managed in three ways: those of paper 1's Table II and one more.
#![allow(unsafe_code)]

use ropewalk_memory::{Loan, NextPacket, Owner, PacketAllocator, Pool, Slice};

use super::MemoryInUse;

/// Alignment of packets in bytes.
const ALIGNMENT: usize = 16;

/// Memory to receive into.
#[derive(Debug)]
pub enum PacketMemory {
    /// Blocks of a pool, filled with packets one behind the other. The block returned last is used first, because it is
    /// still in the cache.
    Pool(PoolMemory),
    /// Paper 1's own way: one area that is used cyclically, behind a pointer `next_packet`. Freed packets are only
    /// counted; the pointer waits while memory that it would overwrite is still held.
    Ring(NextPacket),
    /// The C library: allocates as much as the largest packet may have, shrinks it to the received bytes, and frees it
    /// with the packet.
    Stdlib(PacketAllocator),
}

/// Blocks of a pool, one of which is being filled.
#[derive(Debug)]
pub struct PoolMemory {
    pool: Pool,
    loan: Option<Loan>,
}

impl PacketMemory {
    /// Receives into blocks of this pool. Each must have room for the largest packet, and should have room for many.
    pub const fn pool(pool: Pool) -> Self {
        Self::Pool(PoolMemory { pool, loan: None })
    }

    /// Returns room for one or several packets of `least` bytes, and its number of bytes; `None` while all of the
    /// memory is held. Memory of the C library is not initialised.
    pub(super) fn room(&mut self, least: usize) -> Option<(*mut u8, usize)> {
        match self {
            Self::Pool(PoolMemory { pool, loan }) => {
                if loan.as_ref().is_none_or(|loan| loan.spare_len() < least) {
                    // The old block is dropped first: it may be the only one.
                    *loan = None;
                    *loan = pool.loan(Owner::SHARED);
                }
                let room = loan.as_mut()?.spare();
                (room.len() >= least).then_some((room.as_mut_ptr(), room.len()))
            }
            Self::Ring(ring) => ring.room(least).map(|room| (room.as_mut_ptr(), room.len())),
            Self::Stdlib(allocator) => allocator.room(least).map(|room| (room.as_mut_ptr().cast(), room.len())),
        }
    }

    /// Takes the first `bytes` bytes of the room, into which a packet was received. The next room begins `distance`
    /// bytes further, but not before the packet's end.
    ///
    /// # Safety
    /// These bytes must have been written.
    pub(super) unsafe fn take(&mut self, bytes: usize, distance: usize) -> Option<Slice> {
        let distance = distance.max(bytes.next_multiple_of(ALIGNMENT));
        match self {
            Self::Pool(PoolMemory { loan, .. }) => {
                let loan = loan.as_mut()?;
                loan.commit(distance.min(loan.spare_len()));
                let mut slice = loan.split_committed()?;
                slice.truncate(bytes);
                Some(slice)
            }
            Self::Ring(ring) => ring.take(bytes, distance),
            // SAFETY: the caller's promise.
            Self::Stdlib(allocator) => unsafe { allocator.take(bytes) },
        }
    }

    /// Usage of the memory.
    pub(super) fn in_use(&mut self) -> MemoryInUse {
        match self {
            Self::Pool(PoolMemory { pool, .. }) => {
                pool.collect();
                MemoryInUse { held: pool.blocks() - pool.available(Owner::SHARED), all: pool.blocks() }
            }
            Self::Ring(ring) => MemoryInUse { held: ring.held(), all: ring.blocks() },
            Self::Stdlib(allocator) => MemoryInUse { held: allocator.held(), all: allocator.packets() },
        }
    }

    /// Bytes of the largest packet for which there can be room.
    pub(super) fn largest(&self) -> usize {
        match self {
            Self::Pool(PoolMemory { pool, .. }) => pool.block_size(),
            Self::Ring(ring) => ring.block_size(),
            Self::Stdlib(_) => usize::MAX,
        }
    }
}

impl From<Pool> for PacketMemory {
    fn from(pool: Pool) -> Self {
        Self::pool(pool)
    }
}
