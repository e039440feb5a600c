//! Memory of the C library, one piece for each block.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Pieces of memory of any size, for as many blocks as there are. The owner's thread alone gets and frees them; atomic
/// since the last one to go may be on another thread, which frees what is left.
pub(crate) struct Pieces(Box<[AtomicPtr<u8>]>);

impl Pieces {
    pub(crate) fn new(blocks: usize) -> Self {
        Self((0..blocks).map(|_| AtomicPtr::new(null_mut())).collect())
    }

    /// Where a block's piece begins, if it has one.
    pub(crate) fn get(&self, block: u32) -> Option<NonNull<u8>> {
        NonNull::new(self.0[block as usize].load(Ordering::Relaxed))
    }

    /// Gets a piece for a block that has none, not initialised; none where the system has no memory.
    pub(crate) fn allocate(&self, block: u32, bytes: usize) -> Option<NonNull<u8>> {
        debug_assert!(self.get(block).is_none(), "a block has one piece");
        // SAFETY: any size will do; what is got is not read before it was written.
        let piece = unsafe { libc::malloc(bytes) };
        self.0[block as usize].store(piece.cast(), Ordering::Relaxed);
        self.get(block)
    }

    /// Gives back what a block's piece has behind its first `bytes` bytes, and says where it is now.
    ///
    /// # Safety
    /// Nobody else may refer to the piece.
    pub(crate) unsafe fn shrink(&self, block: u32, bytes: usize) -> Option<NonNull<u8>> {
        let piece = self.get(block)?;
        // SAFETY: allocated by `allocate`, and nobody's but the caller's.
        let shrunk = unsafe { libc::realloc(piece.as_ptr().cast(), bytes) };
        // Where that fails the piece stays as it was.
        if !shrunk.is_null() {
            self.0[block as usize].store(shrunk.cast(), Ordering::Relaxed);
        }
        self.get(block)
    }

    /// Frees a block's piece, if it has one.
    ///
    /// # Safety
    /// Nobody may refer to the piece.
    pub(crate) unsafe fn free(&self, block: u32) {
        let piece = self.0[block as usize].swap(null_mut(), Ordering::Relaxed);
        // SAFETY: allocated by `allocate` or null, and forgotten just now.
        unsafe { libc::free(piece.cast::<c_void>()) };
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        for block in 0..self.0.len() as u32 {
            // SAFETY: this goes with the last slice.
            unsafe { self.free(block) };
        }
    }
}
