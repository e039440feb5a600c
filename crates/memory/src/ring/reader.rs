//! The reader's end: looks at what was written, hands it on as slices, and releases it in the order of the ring.
#![allow(unsafe_code)]

use super::{Area, RingError};
use crate::config::{PoolError, PoolReport};
use crate::loan::LOAN_REFERENCES;
use crate::payload::Payload;
use crate::registry::{self, MOST_POOLS, PoolId, Shared};
use crate::slice::Slice;
use crate::table::BlockTable;
use core::ptr::NonNull;
use ropewalk_terms::PoolAccount;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// One page of the ring, as the reader's thread knows it.
#[derive(Copy, Clone, Default)]
struct Page {
    /// References given to slices since it was lent.
    handed: u64,
    /// Lent and not yet home.
    is_out: bool,
}

/// Reads a ring. Dropping it while slices live is fine: the memory stays until the last of them is gone, and the writer
/// gets no more room.
pub struct RingReader {
    id: PoolId,
    shared: NonNull<Shared>,
    area: Area,
    pages: Box<[Page]>,
    /// Positions, all but the last at the beginning of a page: the read pointer; what the reader is not done with; the
    /// first page that is not lent; the write pointer as it was polled.
    released: u64,
    done: u64,
    lent: u64,
    written: u64,
    /// The writer had ended when it was polled.
    closed: bool,
    loans: u64,
    returned: u64,
    report: PoolReport,
}

// SAFETY: as for `Pool`: the shared part is made for use from several threads, everything else is owned. Not `Sync`.
unsafe impl Send for RingReader {}

impl RingReader {
    pub(super) fn new(area: Area, report: PoolReport) -> Result<Self, PoolError> {
        let pages = (area.bytes / area.page) as usize;
        let shared = Shared { table: BlockTable::new(pages), mapping: Arc::clone(&area.mapping) };
        let Some((id, shared)) = registry::enter(shared) else {
            return Err(PoolError::TooManyPools { name: report.name, most: MOST_POOLS });
        };
        Ok(Self {
            id,
            shared,
            area,
            pages: vec![Page::default(); pages].into(),
            released: 0,
            done: 0,
            lent: 0,
            written: 0,
            closed: false,
            loans: 0,
            returned: 0,
            report,
        })
    }

    fn table(&self) -> &BlockTable {
        // SAFETY: entered by `new`, and freed not before this handle has abandoned it.
        unsafe { &self.shared.as_ref().table }
    }

    /// Looks how far the writer has come, and takes home the pages that nobody needs any more. Returns the position up
    /// to which [`Self::bytes`] can be asked for.
    ///
    /// # Errors
    /// Where the writer says what cannot be: nothing more of it must be believed.
    pub fn poll(&mut self) -> Result<u64, RingError> {
        self.collect();
        // In this order: what a writer that has ended wrote before is seen.
        self.closed = self.area.pointers().is_closed();
        let written = self.area.pointers().written();
        let (from, end) = (self.written, self.released + self.area.bytes);
        if !(from..=end).contains(&written) {
            return Err(RingError::Overrun { written, from, end });
        }
        self.written = written;
        while self.lent < written {
            let block = self.area.page_of(self.lent);
            self.table().issue(block, LOAN_REFERENCES);
            self.pages[block as usize] = Page { handed: 0, is_out: true };
            self.lent += self.area.page;
            self.loans += 1;
        }
        Ok(written)
    }

    /// What lies from `position` on, as far as it was polled and up to where the ring's memory begins anew.
    ///
    /// # Panics
    /// If the reader is done with that position, or it was not polled.
    pub fn bytes(&self, position: u64) -> &[u8] {
        assert!((self.done..=self.written).contains(&position), "what is read was written and is not done with");
        let length = (self.written - position).min(self.area.until_end(position));
        // SAFETY: within the ring, handed over by the write pointer, whose acquire orders it behind what was written;
        // and not written again before the read pointer has passed, which stays before `done`.
        unsafe { core::slice::from_raw_parts(self.area.address(position).as_ptr(), length as usize) }
    }

    /// The `length` bytes from `position` on as a slice, without a copy.
    ///
    /// # Panics
    /// If there are none, the reader is done with that position, they were not polled, or they lie in several pages.
    #[inline]
    pub fn slice(&mut self, position: u64, length: u32) -> Slice {
        let end = position + u64::from(length);
        assert!(
            position >= self.done && end <= self.written && length > 0,
            "what is handed on was written and is not done with"
        );
        let block = self.area.page_of(position);
        assert!(position % self.area.page + u64::from(length) <= self.area.page, "a slice lies in one page");
        let page = &mut self.pages[block as usize];
        debug_assert!(page.handed < LOAN_REFERENCES - 1, "a page does not run out of references");
        page.handed += 1;
        // SAFETY: as in `bytes`; the page is out, for the reader is not done with it, and the slice gets one of the
        // references that the reader owns. The read pointer does not pass a page that has references.
        unsafe { Slice::new(self.area.address(position), length, block, self.id.0) }
    }

    /// Appends the `length` bytes from `position` on to a payload, without a copy; as [`Self::slice`].
    #[inline]
    pub fn append(&mut self, position: u64, length: u32, payload: &mut Payload) {
        if length == 0 {
            return;
        }
        let slice = self.slice(position, length);
        if payload.join(&slice) {
            // Its reference serves a later slice.
            self.pages[slice.block() as usize].handed -= 1;
            core::mem::forget(slice);
        } else {
            payload.push_apart(slice);
        }
    }

    /// The reader needs nothing before `position` for itself any more; slices keep what they refer to.
    pub fn done_to(&mut self, position: u64) {
        let position = position.min(self.written);
        while self.done + self.area.page <= position {
            self.give_back(self.done);
            self.done += self.area.page;
        }
    }

    /// Gives back the references of a page that no slice got.
    fn give_back(&self, position: u64) {
        let block = self.area.page_of(position);
        let left = LOAN_REFERENCES - self.pages[block as usize].handed;
        // SAFETY: the page was lent with so many references, of which the others belong to slices.
        unsafe { registry::give_back(self.id.0, block, left) }
    }

    /// Takes home the pages whose last reference was dropped, and lets the writer have those that are at the front.
    pub fn collect(&mut self) {
        if !self.table().has_returned() {
            return;
        }
        // SAFETY: as in `table`; spelled out so that the other fields can be changed meanwhile.
        let table = unsafe { &self.shared.as_ref().table };
        for block in table.take_returned() {
            self.pages[block as usize].is_out = false;
            self.returned += 1;
        }
        let before = self.released;
        while self.released < self.done && !self.pages[self.area.page_of(self.released) as usize].is_out {
            self.released += self.area.page;
        }
        if self.released > before {
            self.area.pointers().release_to(self.released);
        }
    }

    /// Before the reader's thread sleeps: false if there is something to do at once. Otherwise the writer is told that
    /// its next word must be followed by the bell.
    pub fn prepare_wait(&mut self) -> bool {
        let pointers = self.area.pointers();
        pointers.fall_asleep();
        let is_idle = pointers.written() == self.written && pointers.is_closed() == self.closed;
        if !is_idle {
            pointers.wake();
        }
        is_idle
    }

    /// The reader's thread is awake: the bell need not be rung.
    pub fn wake(&mut self) {
        self.area.pointers().wake();
    }

    /// Whether the writer had ended when it was polled last: nothing comes behind [`Self::written`].
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Up to where the writer had come when it was polled last.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// The beginning of the first page that the reader is not done with.
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// Up to where the ring may be written again.
    pub const fn released(&self) -> u64 {
        self.released
    }

    /// Bytes of the ring.
    pub const fn capacity(&self) -> u64 {
        self.area.bytes
    }

    /// Bytes of a page.
    pub const fn page_bytes(&self) -> u64 {
        self.area.page
    }

    /// Whether the writer had used all its room when it was polled last.
    pub const fn is_full(&self) -> bool {
        self.written - self.released == self.area.bytes
    }

    /// The pool whose blocks the pages are, as slices name it.
    pub const fn id(&self) -> PoolId {
        self.id
    }

    /// The account of the pages for the ledger. Poll first for an up-to-date one.
    pub fn account(&self) -> PoolAccount {
        let held = self.pages.iter().filter(|page| page.is_out).count() as u64;
        PoolAccount { loans: self.loans, returned: self.returned, held }
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The file behind a [`MemoryKind::Memfd`](crate::MemoryKind::Memfd) ring, for
    /// [`RingWriter::open`](super::RingWriter::open) in another process. Nobody can change its size.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.area.mapping.file()
    }

    /// What memory the ring got.
    pub const fn report(&self) -> &PoolReport {
        &self.report
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        self.area.pointers().go();
        while self.done < self.lent {
            self.give_back(self.done);
            self.done += self.area.page;
        }
        let came_home = self.table().close().count();
        let out = self.account().held - came_home as u64;
        // SAFETY: closed above; `out` pages were lent and not taken from the queue.
        unsafe {
            if BlockTable::abandon(&raw const (*self.shared.as_ptr()).table, out) {
                registry::free(self.id.0);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
impl RingReader {
    pub(super) const fn area(&self) -> &Area {
        &self.area
    }
}

impl core::fmt::Debug for RingReader {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { released, done, written, .. } = self;
        write!(out, "RingReader({}: released {released}, done {done}, written {written})", self.report.name)
    }
}
