//! A ring that an external writer fills: a link card by DMA, or its emulation on another thread or in another process.
//!
//! ```text
//!            released           done                 written
//!  ...        │ pages that slices │ pages that the      │ may be written
//!  (positions)│ still refer to    │ reader looks at     │
//!             ▼ never written     ▼                     ▼
//!  RingWriter::space ◄── read pointer            write pointer ──► RingReader::poll, bytes, append
//! ```
//! Places are *positions*: the number of bytes written before, since the ring began. The memory is used cyclically. The
//! ring is cut into pages, which correspond to a pool's blocks. A page is lent when the write pointer enters it, and
//! its bytes leave as ordinary slices. It is returned when the reader is done with it and the last slice was dropped,
//! on any thread. The read pointer advances over the returned pages in the order of the ring, so the writer never
//! touches a byte that can still be seen.
//!
//! The two pointers lie on separate cache lines in front of the first page (`pointers`, which loom checks). A ring in a
//! memfd is therefore complete: another process opens the file and writes. The bytes that it writes are not trusted,
//! but its use of the pointers is: opening such a file states that it follows their rules.
#![allow(unsafe_code)]

mod pointers;
#[cfg(test)]
mod tests;

use core::ptr::NonNull;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::config::{PoolConfig, PoolError, PoolReport};
use crate::mapping::{Mapping, Others, Touch};
use crate::payload::Payload;
use crate::registry::{self, MOST_POOLS, PoolId, Shared};
use crate::slice::{LOAN_REFERENCES, Slice};
use crate::table::{BlockTable, MOST_BLOCKS};
use pointers::{HEAD_BYTES, Head, Pointers};
use ropewalk_terms::PoolAccount;

/// The smallest page: the head needs that much.
const LEAST_PAGE: usize = 1 << 10;

/// Makes a ring of `config.blocks` pages of `config.block_size` bytes, a multiple of 1024. No slice extends past the
/// end of a page, so a page must be a multiple of the writer's unit. Another process can write a
/// [`MemoryKind::Memfd`](crate::MemoryKind::Memfd) ring ([`RingReader::file`]).
///
/// # Errors
/// As [`Pool::new`](crate::Pool::new).
pub fn ring(config: PoolConfig) -> Result<(RingWriter, RingReader), PoolError> {
    let PoolConfig { blocks, block_size, .. } = config;
    let possible = (1..MOST_BLOCKS).contains(&blocks)
        && block_size.is_multiple_of(LEAST_PAGE)
        && (LEAST_PAGE..=1 << 31).contains(&block_size)
        && block_size.checked_mul(blocks + 1).is_some_and(|bytes| bytes <= isize::MAX as usize);
    if !possible {
        return Err(PoolError::Size { name: config.name, blocks, block_size });
    }
    const { assert!(HEAD_BYTES <= LEAST_PAGE, "the head lies in front of the first page") };
    // One more page, for the head.
    let (mapping, report) =
        Mapping::new(&PoolConfig { blocks: blocks + 1, ..config }, Touch::Everything, Others::Write)?;
    let mapping = Arc::new(mapping);
    let area = Area::lay_out(Arc::clone(&mapping), Head::new(block_size, blocks));
    let reader = RingReader::new(area.clone(), report)?;
    Ok((RingWriter::new(area), reader))
}

/// An error of a ring.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum RingError {
    /// The file is not a ring, or has another version.
    #[error("the file has no ring in it: it must be the memfd of a running reader of the same version")]
    NotARing,
    /// The writer's pointer has an impossible value.
    #[error("the writer says that it has written up to {written}, which lies outside of the room from {from} to {end}")]
    Overrun {
        /// Its value.
        written: u64,
        /// Its previous value.
        from: u64,
        /// End of the writer's room.
        end: u64,
    },
    /// A system call failed.
    #[error("{call}: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// The error.
        source: io::Error,
    },
}

/// A mapping with a ring in it: its head, and the place of its pages.
#[derive(Clone)]
struct Area {
    mapping: Arc<Mapping>,
    /// Bytes of a page, and of all pages.
    page: u64,
    bytes: u64,
}

impl Area {
    /// Makes a new ring in zeroed memory.
    fn lay_out(mapping: Arc<Mapping>, head: Head) -> Self {
        // SAFETY: the mapping begins with a page for the head, is aligned to more than that asks for, and is new.
        unsafe { mapping.base().cast::<Head>().write(head) };
        Self { mapping, page: head.page_bytes, bytes: head.page_bytes * head.pages }
    }

    /// Finds a ring that another process laid out.
    ///
    /// # Errors
    /// If the mapping contains no ring.
    fn find(mapping: Mapping) -> Result<Self, RingError> {
        if mapping.bytes() < LEAST_PAGE {
            return Err(RingError::NotARing);
        }
        // SAFETY: within the mapping, all of whose bytes are initialised; read once, and checked as a copy.
        let head = unsafe { mapping.base().cast::<Head>().read_volatile() };
        let bytes = head.ring_bytes().ok_or(RingError::NotARing)?;
        if bytes.checked_add(head.page_bytes).is_none_or(|all| all > mapping.bytes() as u64) {
            return Err(RingError::NotARing);
        }
        Ok(Self { mapping: Arc::new(mapping), page: head.page_bytes, bytes })
    }

    /// The pointers that both sides share.
    fn pointers(&self) -> &Pointers {
        // SAFETY: behind the head in the first page, aligned; atomics, for which any bits are good.
        unsafe { self.mapping.base().add(size_of::<Head>()).cast::<Pointers>().as_ref() }
    }

    /// Returns the address of the byte at a position.
    fn address(&self, position: u64) -> NonNull<u8> {
        // SAFETY: the ring lies behind the head's page, and the remainder is below its size.
        unsafe { self.mapping.base().add((self.page + position % self.bytes) as usize) }
    }

    /// Returns the page of a position.
    fn page_of(&self, position: u64) -> u32 {
        (position % self.bytes / self.page) as u32
    }

    /// Returns the number of bytes from a position to the wrap-around of the memory.
    fn until_end(&self, position: u64) -> u64 {
        self.bytes - position % self.bytes
    }
}

/// One page of the ring, as the reader's thread knows it.
#[derive(Copy, Clone, Default)]
struct Page {
    /// References given to slices since the page was lent.
    handed: u64,
    /// Whether the page is lent and not yet returned.
    is_out: bool,
}

/// Reads a ring. It may be dropped while slices exist: the memory stays until the last of them is dropped, and the
/// writer gets no more room.
pub struct RingReader {
    id: PoolId,
    shared: NonNull<Shared>,
    area: Area,
    pages: Box<[Page]>,
    /// Positions, all but the last at the beginning of a page: the read pointer; the first byte that the reader still
    /// needs; the first page that is not lent; the write pointer at the last poll.
    released: u64,
    done: u64,
    lent: u64,
    written: u64,
    /// Whether the writer had ended at the last poll.
    closed: bool,
    loans: u64,
    returned: u64,
    report: PoolReport,
}

// SAFETY: as for `Pool`: the shared part is made for use from several threads, everything else is owned. Not `Sync`.
unsafe impl Send for RingReader {}

impl RingReader {
    fn new(area: Area, report: PoolReport) -> Result<Self, PoolError> {
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
        // SAFETY: entered by `new`, and not freed before this handle has abandoned it.
        unsafe { &self.shared.as_ref().table }
    }

    /// Reads the write pointer and collects the pages that are no longer referred to. Returns the position up to which
    /// [`Self::bytes`] can be read.
    ///
    /// # Errors
    /// If the write pointer has an impossible value. The writer must not be trusted any more.
    pub fn poll(&mut self) -> Result<u64, RingError> {
        self.collect();
        // In this order: everything that an ended writer wrote is seen.
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

    /// Returns the bytes from `position` on, up to the last poll or the wrap-around of the ring's memory.
    ///
    /// # Panics
    /// If the reader is done with that position, or the position was not polled.
    pub fn bytes(&self, position: u64) -> &[u8] {
        assert!((self.done..=self.written).contains(&position), "what is read was written and is not done with");
        let length = (self.written - position).min(self.area.until_end(position));
        // SAFETY: within the ring, handed over by the write pointer, whose acquire orders it behind what was written;
        // and not written again before the read pointer has passed, which stays before `done`.
        unsafe { core::slice::from_raw_parts(self.area.address(position).as_ptr(), length as usize) }
    }

    /// Returns the `length` bytes from `position` on as a slice, without a copy.
    ///
    /// # Panics
    /// If `length` is 0, the reader is done with that position, the bytes were not polled, or they lie in several
    /// pages.
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

    /// Appends the `length` bytes from `position` on to a payload, without a copy; otherwise like [`Self::slice`].
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

    /// Releases everything before `position` on the reader's side; slices keep the bytes that they refer to.
    pub fn done_to(&mut self, position: u64) {
        let position = position.min(self.written);
        while self.done + self.area.page <= position {
            self.give_back(self.done);
            self.done += self.area.page;
        }
    }

    /// Gives back the references of a page that were not handed to slices.
    fn give_back(&self, position: u64) {
        let block = self.area.page_of(position);
        let left = LOAN_REFERENCES - self.pages[block as usize].handed;
        // SAFETY: the page was lent with that many references, of which the others belong to slices.
        unsafe { registry::give_back(self.id.0, block, left) }
    }

    /// Collects the pages whose last reference was dropped, and hands the frontmost of them to the writer.
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

    /// Prepares the reader's thread for sleep. False if there is something to do at once. Otherwise asks the writer to
    /// ring the bell after its next write.
    pub fn prepare_wait(&mut self) -> bool {
        let pointers = self.area.pointers();
        pointers.fall_asleep();
        let is_idle = pointers.written() == self.written && pointers.is_closed() == self.closed;
        if !is_idle {
            pointers.wake();
        }
        is_idle
    }

    /// Notes that the reader's thread is awake, so that the bell need not be rung.
    pub fn wake(&mut self) {
        self.area.pointers().wake();
    }

    /// Whether the writer had ended at the last poll: no bytes follow [`Self::written`].
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// The write pointer at the last poll.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// The beginning of the first page that the reader is not done with.
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// Position up to which the ring may be overwritten.
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

    /// Whether the writer had used all its room at the last poll.
    pub const fn is_full(&self) -> bool {
        self.written - self.released == self.area.bytes
    }

    /// The pool whose blocks are the pages, as in its slices.
    pub const fn id(&self) -> PoolId {
        self.id
    }

    /// Returns the account of the pages for the ledger. Poll first to bring it up to date.
    pub fn account(&self) -> PoolAccount {
        let held = self.pages.iter().filter(|page| page.is_out).count() as u64;
        PoolAccount { loans: self.loans, returned: self.returned, held }
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The file behind a [`MemoryKind::Memfd`](crate::MemoryKind::Memfd) ring, for [`RingWriter::open`] in another
    /// process. Its size cannot be changed.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.area.mapping.file()
    }

    /// Properties of the memory that the ring got.
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
    const fn area(&self) -> &Area {
        &self.area
    }
}

impl core::fmt::Debug for RingReader {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { released, done, written, .. } = self;
        write!(out, "RingReader({}: released {released}, done {done}, written {written})", self.report.name)
    }
}

/// The only writer of a ring.
pub struct RingWriter {
    area: Area,
    written: u64,
    /// The read pointer as last seen; read again if the room is not enough.
    released: u64,
}

// SAFETY: the memory belongs to no thread; only the writer touches bytes that it has not handed over.
unsafe impl Send for RingWriter {}

impl RingWriter {
    fn new(area: Area) -> Self {
        Self { written: area.pointers().written(), released: 0, area }
    }

    /// Opens the ring of another process, from its [`RingReader::file`]. Two rules between the processes cannot be
    /// checked: at most one writes at a time, and both use the pointers correctly. A later writer continues at the
    /// position where the previous one stopped.
    ///
    /// # Errors
    /// If the file cannot be mapped or contains no ring.
    pub fn open(file: OwnedFd) -> Result<Self, RingError> {
        let mapping =
            Mapping::attach(file).map_err(|(call, errno)| RingError::System { call, source: errno.into() })?;
        Ok(Self::new(Area::find(mapping)?))
    }

    /// Returns the bytes that may be written now, up to the wrap-around of the ring's memory: a whole number of pages,
    /// less the written part of the first one. They still have their old values.
    pub fn space(&mut self) -> &mut [u8] {
        let pointers = self.area.pointers();
        let room = |released: u64| (released + self.area.bytes).saturating_sub(self.written);
        let wanted = self.area.until_end(self.written);
        if room(self.released) < wanted {
            // Another process may have written any value there: no room is better than room that does not exist.
            let released = pointers.released();
            if released <= self.written && released >= self.released {
                self.released = released;
            }
        }
        let length = room(self.released).min(wanted) as usize;
        let start = self.area.address(self.written);
        // SAFETY: `length` bytes from there lie within the ring. The reader makes no references to bytes behind the
        // write pointer. Since it released the bytes one whole ring before these, it has none to bytes of the previous
        // round either. The acquire of its pointer orders the reads there before the writes that follow.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// Hands over the first `bytes` bytes of [`Self::space`]. True if the reader sleeps and its bell must be rung.
    ///
    /// # Panics
    /// If there is less room.
    #[must_use = "a reader that sleeps waits for its bell"]
    pub fn commit(&mut self, bytes: usize) -> bool {
        let end = self.written + bytes as u64;
        assert!(end <= self.released + self.area.bytes, "no more is handed over than there was room for");
        self.written = end;
        self.area.pointers().write_to(end)
    }

    /// Ends the stream. True if the reader sleeps and its bell must be rung.
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

    /// Whether the reader has ended, so that there will be no more room.
    pub fn is_abandoned(&self) -> bool {
        self.area.pointers().is_gone()
    }
}

#[cfg(all(test, not(loom)))]
impl RingWriter {
    const fn area(&self) -> &Area {
        &self.area
    }
}

impl core::fmt::Debug for RingWriter {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "RingWriter(written {}, released {})", self.written, self.released)
    }
}
