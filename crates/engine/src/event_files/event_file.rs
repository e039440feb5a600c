//! A file of events with its document: the document is there before the file is. Each is there as a whole or not at all: it
//! is written under another name, then renamed.

use ropewalk_io::disk::{Completion, Disk, DiskCause, FileToken, NewFile};
use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use ropewalk_wire::frd::FILE_HEADER_BYTES;
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Events and pieces of them for which a file has room before it asks for memory.
const EVENTS: usize = 1024;
const PIECES: usize = 16 << 10;

/// One file of events while it is written. Used again for the next one, with its memory.
#[derive(Debug)]
pub(super) struct EventFile {
    /// Its events. The header is written last, when its content is known.
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
        let may_have_its_name = self.account.is_done();
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
        self.is_done()
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

/// Pause before refused work is offered again.
const RETRY: Duration = Duration::from_millis(500);
/// Longer paths than this have to grow once.
const PATH_BYTES: usize = 1024;

/// What is done next, or being done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Step {
    /// It is not known yet what will be in it.
    Gather,
    Create,
    Append,
    Publish,
    /// It has its name.
    Done,
}

/// One file. Used again for the next one, with its memory.
#[derive(Debug)]
pub(super) struct WholeFile {
    /// What will be in it, or is with the disk.
    pub(super) data: Vec<Slice>,
    file: Option<FileToken>,
    path: PathBuf,
    /// Until it has its name.
    open_path: PathBuf,
    step: Step,
    /// The disk has the step in work.
    is_asked: bool,
    retry: Option<Instant>,
    /// Why the disk refuses the step, and since when.
    refused: Option<(DiskCause, Instant)>,
}

impl WholeFile {
    /// One that will gather this many pieces.
    pub(super) fn new(pieces: usize) -> Self {
        Self {
            data: Vec::with_capacity(pieces),
            file: None,
            path: PathBuf::with_capacity(PATH_BYTES),
            open_path: PathBuf::with_capacity(PATH_BYTES),
            step: Step::Done,
            is_asked: false,
            retry: None,
            refused: None,
        }
    }

    /// Begins with a file of this name in `directory`, which is written in `open`.
    pub(super) fn begin(&mut self, directory: &Path, open: &Path, name: impl Display) {
        set_path(&mut self.path, directory, &name);
        set_path(&mut self.open_path, open, name);
        self.data.clear();
        (self.file, self.step, self.is_asked, self.retry, self.refused) = (None, Step::Gather, false, None, None);
    }

    /// Its data are all there: it may be written.
    pub(super) const fn close(&mut self) {
        self.step = Step::Create;
    }

    /// Whether all of it is in the file, which may still have no name.
    pub(super) fn is_written(&self) -> bool {
        matches!(self.step, Step::Publish | Step::Done)
    }

    /// Whether it has its name.
    pub(super) fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    pub(super) const fn is_with_disk(&self) -> bool {
        self.is_asked
    }

    /// Why the disk refuses it, and since when.
    pub(super) const fn refusal(&self) -> Option<(DiskCause, Instant)> {
        self.refused
    }

    /// When refused work is to be offered again.
    pub(super) const fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// Gives the disk its next step, one at a time; the last one only where it `may_have_its_name`.
    pub(super) fn flush(&mut self, now: Instant, disk: &mut impl Disk, may_have_its_name: bool) {
        if self.is_asked || self.retry.is_some_and(|retry| now < retry) {
            return;
        }
        self.retry = None;
        match (self.step, self.file) {
            (Step::Create, _) => self.file = Some(disk.create(&self.open_path, NewFile::default())),
            (Step::Append, Some(file)) => {
                if disk.append(file, 0, &mut self.data).is_err() {
                    // The queue is full of other files: at the next turn.
                    return;
                }
            }
            (Step::Publish, Some(file)) if may_have_its_name => disk.publish(file, &self.path, 0),
            _ => return,
        }
        self.is_asked = true;
    }

    /// Takes what the disk did, if it is about this file; whether it is.
    pub(super) fn take(&mut self, now: Instant, completion: &mut Completion) -> bool {
        let (of, refused, next) = match completion {
            Completion::Created { file, result } => (*file, result.err(), Step::Append),
            Completion::Appended { file, .. } => (*file, None, Step::Publish),
            Completion::AppendFailed { file, cause, data, .. } if self.file == Some(*file) => {
                self.data.append(data);
                (*file, Some(*cause), Step::Publish)
            }
            Completion::Published { file, result, .. } => (*file, result.err(), Step::Done),
            Completion::AppendFailed { .. }
            | Completion::Synced { .. }
            | Completion::Removed { .. }
            | Completion::LookedFor { .. } => return false,
        };
        if self.file != Some(of) {
            return false;
        }
        self.is_asked = false;
        match refused {
            Some(cause) => {
                self.refused.get_or_insert((cause, now)).0 = cause;
                self.retry = Some(now.after(RETRY));
            }
            None => (self.step, self.refused) = (next, None),
        }
        true
    }

    /// Lets go of what the disk has not taken.
    pub(super) fn give_up(&mut self) {
        self.data.clear();
        (self.file, self.step, self.retry) = (None, Step::Done, None);
    }
}

/// Sets a path to that of a file in a directory, in the memory that it has.
fn set_path(path: &mut PathBuf, directory: &Path, name: impl Display) {
    path.clear();
    path.push(directory);
    path.push("");
    // Writing into text cannot fail.
    let _ = write!(path.as_mut_os_string(), "{name}");
}
