//! The memory itself: got once, touched once, given back when nobody refers to it any more.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;

use crate::config::{MemoryKind, PageKind, PoolConfig, PoolError, PoolReport};

/// Blocks begin where direct disk writes may begin.
const HEAP_ALIGNMENT: usize = 4096;

/// One piece of memory, all of whose bytes are initialised.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

enum Origin {
    Heap(Layout),
}

// SAFETY: the mapping is plain memory, which belongs to no thread; who may touch which bytes is settled by
// loans and slices.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Gets the memory of a pool and says what it got.
    pub(crate) fn new(config: &PoolConfig) -> Result<(Self, PoolReport), PoolError> {
        let name = || config.name.clone();
        let bytes = config.block_size * config.blocks;
        let mapping = match config.memory {
            MemoryKind::Heap | MemoryKind::Anonymous | MemoryKind::Memfd => Self::heap(bytes),
        };
        let mapping = mapping.map_err(|(call, source)| PoolError::Memory { name: name(), bytes, call, source })?;
        let report = PoolReport {
            name: name(),
            memory: config.memory,
            pages: PageKind::Heap,
            numa_node: None,
            bytes: mapping.bytes,
        };
        Ok((mapping, report))
    }

    fn heap(bytes: usize) -> Result<Self, (&'static str, io::Error)> {
        let refused = || ("alloc", io::Error::from(io::ErrorKind::OutOfMemory));
        let layout = Layout::from_size_align(bytes, HEAP_ALIGNMENT).map_err(|_| refused())?;
        // SAFETY: the layout is not empty: a pool has at least one block of at least one byte.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        Ok(Self { base, bytes, origin: Origin::Heap(layout) })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated with this layout, and this is the only owner.
            Origin::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
        }
    }
}
