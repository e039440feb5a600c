//! The memory of pools that other processes can be given to read.

use core::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::mapping::Mapping;

/// Mappings of files that others can map for reading only, in the order in which they were made.
static MAPPINGS: Mutex<Vec<Weak<Mapping>>> = Mutex::new(Vec::new());

/// The memory of a [`MemoryKind::Memfd`](crate::MemoryKind::Memfd) pool, or of the two of a
/// [`Pool::pair`](crate::Pool::pair). It stays where it is as long as this is there, even when the pool has gone: so no other
/// memory can come to lie at its addresses.
#[derive(Clone)]
pub struct SharedMemory(Arc<Mapping>);

impl SharedMemory {
    /// Where its bytes lie in this process.
    pub fn addresses(&self) -> Range<usize> {
        self.0.addresses()
    }

    /// The file behind it: others can map it for reading only, and nobody can change its size, which is that of the addresses.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.file().expect("only mappings of files are entered")
    }
}

impl core::fmt::Debug for SharedMemory {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "SharedMemory({} bytes)", self.addresses().len())
    }
}

/// The memory of all pools of this process that others can be given to read, in the order in which they were made.
pub fn shared_memories() -> Vec<SharedMemory> {
    let mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
    mappings.iter().filter_map(Weak::upgrade).map(SharedMemory).collect()
}

/// Notes a mapping, if it is of a file. It must be one that others cannot write to.
pub(crate) fn enter(mapping: &Arc<Mapping>) {
    if mapping.file().is_some() {
        let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
        mappings.retain(|known| known.strong_count() > 0);
        mappings.push(Arc::downgrade(mapping));
    }
}
