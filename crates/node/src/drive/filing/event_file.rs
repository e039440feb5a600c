//! A file of events with its document: the document is there before the file is.

use super::whole_file::WholeFile;
use ropewalk_io::disk::{Completion, Disk, DiskCause};
use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::frd::FILE_HEADER_BYTES;

/// Events and pieces of them for which a file has room before it asks for memory.
const EVENTS: usize = 1024;
const PIECES: usize = 16 << 10;

/// One file of events while it is written. Used again for the next one, with its memory.
#[derive(Debug)]
pub(super) struct EventFile {
    /// Its events; its header comes last, when it is known what stands in it.
    pub(super) raw: WholeFile,
    /// What is in it, as a document.
    pub(super) account: WholeFile,
    pub(super) lumisection: u32,
    pub(super) opened: Instant,
    /// Where its events are in the builder unit.
    pub(super) slots: Vec<u32>,
    pub(super) events: u64,
    /// Bytes of it, its header included.
    pub(super) bytes: u64,
}

impl EventFile {
    pub(super) fn new() -> Self {
        Self {
            raw: WholeFile::new(PIECES),
            account: WholeFile::new(1),
            lumisection: 0,
            opened: Instant::ZERO,
            slots: Vec::with_capacity(EVENTS),
            events: 0,
            bytes: 0,
        }
    }

    /// Begins with events of a lumisection; the names of both files are set already.
    pub(super) fn begin(&mut self, now: Instant, lumisection: u32) {
        (self.lumisection, self.opened) = (lumisection, now);
        (self.events, self.bytes) = (0, FILE_HEADER_BYTES as u64);
        self.slots.clear();
    }

    /// Adds an event: its header and the pieces of its data.
    pub(super) fn add(&mut self, slot: u32, bytes: u64, header: Slice, pieces: &mut Vec<Slice>) {
        self.slots.push(slot);
        self.events += 1;
        self.bytes += bytes;
        self.raw.data.push(header);
        self.raw.data.append(pieces);
    }

    /// Nothing more is added: the file begins with this header, and its document is this.
    pub(super) fn close(&mut self, header: Slice, account: Slice) {
        self.raw.data.insert(0, header);
        self.account.data.push(account);
        self.raw.close();
        self.account.close();
    }

    /// Gives the disk what is next.
    pub(super) fn flush(&mut self, now: Instant, disk: &mut impl Disk) {
        // A document that has its name without a file in `open` is one of a file that has its name, too: so the next life tells
        // what counts.
        self.account.flush(now, disk, self.raw.is_written());
        let may_have_its_name = self.account.is_done() || is_planted(Flaw::FileBeforeItsDocument);
        self.raw.flush(now, disk, may_have_its_name);
    }

    /// Takes what the disk did, if it is about this file; whether it is.
    pub(super) fn take(&mut self, now: Instant, completion: &mut Completion) -> bool {
        self.raw.take(now, completion) || self.account.take(now, completion)
    }

    /// Whether file and document have their names.
    pub(super) fn is_done(&self) -> bool {
        self.raw.is_done() && self.account.is_done()
    }

    /// Whether its events count as written: a file without its name is no filter unit's.
    pub(super) fn has_reached(&self) -> bool {
        self.is_done() || is_planted(Flaw::UnnamedFileAcknowledged) && self.raw.is_written()
    }

    pub(super) const fn is_with_disk(&self) -> bool {
        self.raw.is_with_disk() || self.account.is_with_disk()
    }

    pub(super) fn refusal(&self) -> Option<(DiskCause, Instant)> {
        self.raw.refusal().or(self.account.refusal())
    }

    pub(super) fn retry(&self) -> Option<Instant> {
        self.raw.retry().into_iter().chain(self.account.retry()).min()
    }

    /// Lets go of what the disk has not taken.
    pub(super) fn give_up(&mut self) {
        self.raw.give_up();
        self.account.give_up();
    }
}
