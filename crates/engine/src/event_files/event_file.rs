//! An event file and its document. The document appears before the file. Each appears atomically: it is written under
//! another name and then renamed.

use ropewalk_io::disk::{Completion, Disk, DiskCause, FileToken, NewFile};
use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use ropewalk_wire::frd::FILE_HEADER_BYTES;
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Initial capacities of a file, in events and in pieces.
const EVENTS: usize = 1024;
const PIECES: usize = 16 << 10;

/// One event file while it is written. It is reused, with its memory, for the next one.
#[derive(Debug)]
pub(super) struct EventFile {
    /// The event data. The header is written last, when the content is known.
    pub(super) raw: WholeFile,
    /// The document that describes the content.
    pub(super) account: WholeFile,
    pub(super) lumisection: u32,
    pub(super) opened: Instant,
    /// The events' slots in the builder unit.
    pub(super) slots: Vec<u32>,
    pub(super) events: u64,
    /// Size in bytes, including the header.
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

    /// Begins a file of a lumisection. The names of both files are set already.
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

    /// Closes the file: it gets this header and this document.
    pub(super) fn close(&mut self, header: Slice, account: Slice) {
        self.raw.data.insert(0, header);
        self.account.data.push(account);
        self.raw.close();
        self.account.close();
    }

    /// Gives the disk the next step.
    pub(super) fn flush(&mut self, now: Instant, disk: &mut impl Disk) {
        // A document with its final name whose file is not in `open` belongs to a file with its final name. This tells
        // the next incarnation which files count.
        self.account.flush(now, disk, self.raw.is_written());
        let may_have_its_name = self.account.is_done();
        self.raw.flush(now, disk, may_have_its_name);
    }

    /// Takes a completion of the disk if it is about this file. Returns whether it was.
    pub(super) fn take(&mut self, now: Instant, completion: &mut Completion) -> bool {
        self.raw.take(now, completion) || self.account.take(now, completion)
    }

    /// Returns whether file and document have their final names.
    pub(super) fn is_done(&self) -> bool {
        self.raw.is_done() && self.account.is_done()
    }

    /// Returns whether its events count as written. A file without its final name is not visible to filter units.
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

    /// Drops everything that the disk has not taken.
    pub(super) fn give_up(&mut self) {
        self.raw.give_up();
        self.account.give_up();
    }
}

/// Pause before a refused operation is retried.
const RETRY: Duration = Duration::from_millis(500);
/// Initial capacity of paths. Longer ones have to grow once.
const PATH_BYTES: usize = 1024;

/// The next step, or the one in progress.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Its content is not known yet.
    Gather,
    Create,
    Append,
    Publish,
    /// It has its final name.
    Done,
}

/// One file. It is reused, with its memory, for the next one.
#[derive(Debug)]
pub(super) struct WholeFile {
    /// Its future content, or the data that is with the disk.
    pub(super) data: Vec<Slice>,
    file: Option<FileToken>,
    path: PathBuf,
    /// Path until it has its final name.
    open_path: PathBuf,
    step: Step,
    /// Whether the disk is working on the step.
    is_asked: bool,
    retry: Option<Instant>,
    /// Why the disk refuses the step, and since when.
    refused: Option<(DiskCause, Instant)>,
}

impl WholeFile {
    /// Creates a file that will gather this many pieces.
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

    /// Begins a file of this name in `directory`, which is written in `open`.
    pub(super) fn begin(&mut self, directory: &Path, open: &Path, name: impl Display) {
        set_path(&mut self.path, directory, &name);
        set_path(&mut self.open_path, open, name);
        self.data.clear();
        (self.file, self.step, self.is_asked, self.retry, self.refused) = (None, Step::Gather, false, None, None);
    }

    /// Marks its data as complete: it may be written.
    pub(super) const fn close(&mut self) {
        self.step = Step::Create;
    }

    /// Returns whether all data is in the file, which may still lack its final name.
    pub(super) fn is_written(&self) -> bool {
        matches!(self.step, Step::Publish | Step::Done)
    }

    /// Returns whether it has its final name.
    pub(super) fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    pub(super) const fn is_with_disk(&self) -> bool {
        self.is_asked
    }

    /// Returns why the disk refuses it, and since when.
    pub(super) const fn refusal(&self) -> Option<(DiskCause, Instant)> {
        self.refused
    }

    /// Returns the time to retry a refused operation.
    pub(super) const fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// Gives the disk its next step, one at a time; the last one only if it `may_have_its_name`.
    pub(super) fn flush(&mut self, now: Instant, disk: &mut impl Disk, may_have_its_name: bool) {
        if self.is_asked || self.retry.is_some_and(|retry| now < retry) {
            return;
        }
        self.retry = None;
        match (self.step, self.file) {
            (Step::Create, _) => self.file = Some(disk.create(&self.open_path, NewFile::default())),
            (Step::Append, Some(file)) => {
                if disk.append(file, 0, &mut self.data).is_err() {
                    // The queue is full of other files. Retried at the next turn.
                    return;
                }
            }
            (Step::Publish, Some(file)) if may_have_its_name => disk.publish(file, &self.path, 0),
            _ => return,
        }
        self.is_asked = true;
    }

    /// Takes a completion of the disk if it is about this file. Returns whether it was.
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

    /// Drops everything that the disk has not taken.
    pub(super) fn give_up(&mut self) {
        self.data.clear();
        (self.file, self.step, self.retry) = (None, Step::Done, None);
    }
}

/// Sets a path to that of a file in a directory, reusing its memory.
fn set_path(path: &mut PathBuf, directory: &Path, name: impl Display) {
    path.clear();
    path.push(directory);
    path.push("");
    // Writing into text cannot fail.
    let _ = write!(path.as_mut_os_string(), "{name}");
}
