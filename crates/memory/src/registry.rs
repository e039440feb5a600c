//! The registry of pools. A slice knows only the number of its pool and finds the pool here when it is dropped. A
//! second list holds the memory that other processes can be given to read.
#![allow(unsafe_code)]

use core::ops::Range;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::mapping::Mapping;
use crate::table::BlockTable;

/// Maximum number of pools at the same time in one process.
pub(crate) const MOST_POOLS: usize = 4096;

static POOLS: [AtomicPtr<Shared>; MOST_POOLS] = [const { AtomicPtr::new(null_mut()) }; MOST_POOLS];

/// The number of a pool in this process; reused after the pool is freed.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolId(pub(crate) u16);

impl PoolId {
    /// The number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The bytes and the table of blocks. They live as long as any loan or slice of the pool.
pub(crate) struct Shared {
    pub(crate) table: BlockTable,
    /// Shared with a ring's writer.
    pub(crate) mapping: Arc<Mapping>,
}

/// Enters a pool; `None` if there are [`MOST_POOLS`] already.
pub(crate) fn enter(shared: Shared) -> Option<(PoolId, NonNull<Shared>)> {
    let shared = NonNull::from(Box::leak(Box::new(shared)));
    for (index, place) in POOLS.iter().enumerate() {
        // Release: a thread that loads the pointer finds a complete pool behind it.
        if place.compare_exchange(null_mut(), shared.as_ptr(), Ordering::Release, Ordering::Relaxed).is_ok() {
            return Some((PoolId(index as u16), shared));
        }
    }
    // SAFETY: leaked above and entered nowhere.
    drop(unsafe { Box::from_raw(shared.as_ptr()) });
    None
}

/// Returns the pool of a reference that the caller owns.
///
/// # Safety
/// The caller must own a reference (loan, slice, the handle) of the pool with this number; the pointer is valid as long
/// as it does.
#[inline]
pub(crate) unsafe fn find(pool: u16) -> *const Shared {
    // Relaxed: the reference was made after the pool was entered and came to this thread through something
    // that synchronises, so neither an older nor a later pool of this number can be seen.
    POOLS[pool as usize].load(Ordering::Relaxed)
}

/// Takes `count` more references of a block.
///
/// # Safety
/// The caller must own a reference of the block.
#[inline]
pub(crate) unsafe fn charge(pool: u16, block: u32, count: u64) {
    // SAFETY: the caller's reference keeps the pool.
    unsafe { (*find(pool)).table.charge(block, count) }
}

/// Gives back `count` references of a block, and keeps at least one.
///
/// # Safety
/// The caller must own more than `count` references of the block.
#[inline]
pub(crate) unsafe fn refund(pool: u16, block: u32, count: u64) {
    // SAFETY: the caller's remaining reference keeps the pool.
    unsafe { (*find(pool)).table.refund(block, count) }
}

/// Whether a block has one reference.
///
/// # Safety
/// The caller must own a reference of the block.
pub(crate) unsafe fn is_alone(pool: u16, block: u32) -> bool {
    // SAFETY: the caller's reference keeps the pool.
    unsafe { (*find(pool)).table.is_alone(block) }
}

/// Gives back `count` references of a block. The last reference of a pool without a handle frees the pool.
///
/// # Safety
/// The caller must own `count` references of the block, and does not own them any more afterwards.
#[inline]
pub(crate) unsafe fn give_back(pool: u16, block: u32, count: u64) {
    // SAFETY: the caller's references keep the pool up to the subtraction.
    unsafe {
        let shared = find(pool);
        if BlockTable::give_back(&raw const (*shared).table, block, count) {
            free(pool);
        }
    }
}

/// Frees a pool: releases its number and unmaps its memory.
///
/// # Safety
/// Only for the caller to which [`BlockTable::give_back`] or [`BlockTable::abandon`] returned true, once.
#[cold]
pub(crate) unsafe fn free(pool: u16) {
    let shared = POOLS[pool as usize].swap(null_mut(), Ordering::Relaxed);
    // SAFETY: made by `enter`; the table's count says that no other reference exists. The acquire-release of
    // that count orders all other uses before this.
    drop(unsafe { Box::from_raw(shared) });
}

/// Mappings of files that others can map for reading only, in the order in which they were made.
static MAPPINGS: Mutex<Vec<Weak<Mapping>>> = Mutex::new(Vec::new());

/// The memory of a [`MemoryKind::Memfd`](crate::MemoryKind::Memfd) pool, or of both pools of a
/// [`Pool::pair`](crate::Pool::pair). It stays mapped as long as this value exists, even when the pool is gone, so that
/// no other memory can be mapped at its addresses.
#[derive(Clone)]
pub struct SharedMemory(Arc<Mapping>);

impl SharedMemory {
    /// The addresses of its bytes in this process.
    pub fn addresses(&self) -> Range<usize> {
        self.0.addresses()
    }

    /// The file behind it. Others can only map it for reading, and its size, that of the addresses, cannot change.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.file().expect("only mappings of files are entered")
    }
}

impl core::fmt::Debug for SharedMemory {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "SharedMemory({} bytes)", self.addresses().len())
    }
}

/// Returns the memory of all pools of this process that others can be given to read, in the order in which they were
/// made.
pub fn shared_memories() -> Vec<SharedMemory> {
    let mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
    mappings.iter().filter_map(Weak::upgrade).map(SharedMemory).collect()
}

/// Records a mapping if it has a file. Other processes must not be able to write to it.
pub(crate) fn enter_shared(mapping: &Arc<Mapping>) {
    if mapping.file().is_some() {
        let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
        mappings.retain(|known| known.strong_count() > 0);
        mappings.push(Arc::downgrade(mapping));
    }
}
