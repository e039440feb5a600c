//! The writer's end: what a card's DMA engine does.
#![allow(unsafe_code)]

use super::{Area, RingError};
use crate::mapping::Mapping;
use std::os::fd::OwnedFd;

/// Writes into a ring: the only one who does.
pub struct RingWriter {
    area: Area,
    written: u64,
    /// The read pointer as it was seen last: asked for again where the room does not suffice.
    released: u64,
}

// SAFETY: the memory belongs to no thread; the writer is the only one who touches what it has not handed over.
unsafe impl Send for RingWriter {}

impl RingWriter {
    pub(super) fn new(area: Area) -> Self {
        Self { written: area.pointers().written(), released: 0, area }
    }

    /// The ring of another process, from its [`RingReader::file`](super::RingReader::file). Two rules hold between the
    /// processes, and nobody can check them: at most one writes at a time, and both keep to the pointers. A writer that
    /// comes after another one goes on where that one stopped.
    ///
    /// # Errors
    /// If the file cannot be mapped or has no ring in it.
    pub fn open(file: OwnedFd) -> Result<Self, RingError> {
        let mapping =
            Mapping::attach(file).map_err(|(call, errno)| RingError::System { call, source: errno.into() })?;
        Ok(Self::new(Area::find(mapping)?))
    }

    /// The bytes that may be written now, up to where the ring's memory begins anew: a whole number of pages, less what
    /// was written of the first one. Old bytes.
    pub fn space(&mut self) -> &mut [u8] {
        let pointers = self.area.pointers();
        let room = |released: u64| (released + self.area.bytes).saturating_sub(self.written);
        let wanted = self.area.until_end(self.written);
        if room(self.released) < wanted {
            // Another process may have written anything there: no room is better than room that is none.
            let released = pointers.released();
            if released <= self.written && released >= self.released {
                self.released = released;
            }
        }
        let length = room(self.released).min(wanted) as usize;
        let start = self.area.address(self.written);
        // SAFETY: `length` bytes from there lie within the ring. The reader makes references to nothing behind the write
        // pointer and, since it released what lies a whole ring before these bytes, to nothing of the last round. The
        // acquire of its pointer orders what was read there before what is written now.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// Hands the first `bytes` bytes of [`Self::space`] over. True if the reader sleeps and its bell must be rung.
    ///
    /// # Panics
    /// If there is not so much room.
    #[must_use = "a reader that sleeps waits for its bell"]
    pub fn commit(&mut self, bytes: usize) -> bool {
        let end = self.written + bytes as u64;
        assert!(end <= self.released + self.area.bytes, "no more is handed over than there was room for");
        self.written = end;
        self.area.pointers().write_to(end)
    }

    /// Nothing more comes. True if the reader sleeps and its bell must be rung.
    #[must_use = "a reader that sleeps waits for its bell"]
    pub fn close(&mut self) -> bool {
        self.area.pointers().close()
    }

    /// Bytes written since the ring began.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of the ring.
    pub const fn capacity(&self) -> u64 {
        self.area.bytes
    }

    /// Whether the reader has ended: there will be no more room.
    pub fn is_abandoned(&self) -> bool {
        self.area.pointers().is_gone()
    }
}

#[cfg(all(test, not(loom)))]
impl RingWriter {
    pub(super) const fn area(&self) -> &Area {
        &self.area
    }
}

impl core::fmt::Debug for RingWriter {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "RingWriter(written {}, released {})", self.written, self.released)
    }
}
