//! Where sockets receive into: three ways to manage the memory of packets, those of paper 1's Table II and one more.
#![allow(unsafe_code)]

use ropewalk_memory::{Loan, NextPacket, Owner, PacketAllocator, Pool, Slice};

use super::MemoryInUse;

/// Packets begin at multiples of so many bytes.
const ALIGNMENT: usize = 16;

/// Memory to receive into.
#[derive(Debug)]
pub enum PacketMemory {
    /// Blocks of a pool, filled one packet behind the other. The block that came home last is used first, for it is still
    /// in the cache.
    Pool(PoolMemory),
    /// Paper 1's own: one area that is filled round and round, behind a pointer `next_packet`. What is freed is only
    /// counted; the pointer waits while what it would overwrite is still held.
    Ring(NextPacket),
    /// The C library: as much as the largest packet may have is allocated, cut down to what came, and freed with it.
    Stdlib(PacketAllocator),
}

/// Blocks of a pool, one of which is being filled.
#[derive(Debug)]
pub struct PoolMemory {
    pool: Pool,
    loan: Option<Loan>,
}

impl PacketMemory {
    /// Receives into blocks of this pool, each of which must have room for the largest packet, and should have for many.
    pub const fn pool(pool: Pool) -> Self {
        Self::Pool(PoolMemory { pool, loan: None })
    }

    /// Where there is room for a packet of `least` bytes, or for several, and for how many bytes; `None` while all of
    /// it is held. Memory of the C library is not initialised.
    pub(super) fn room(&mut self, least: usize) -> Option<(*mut u8, usize)> {
        match self {
            Self::Pool(PoolMemory { pool, loan }) => {
                if loan.as_ref().is_none_or(|loan| loan.spare_len() < least) {
                    // The old block first: it may be the only one.
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

    /// Takes the first `bytes` of the room, into which a packet was received. The next room begins `distance` bytes
    /// further, but not before the packet's end.
    ///
    /// # Safety
    /// They must have been written.
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
            // SAFETY: says the caller.
            Self::Stdlib(allocator) => unsafe { allocator.take(bytes) },
        }
    }

    /// How much of it is held.
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
