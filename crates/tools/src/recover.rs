//! Closes files that a crash left open: keeps every record that reached the file, and rebuilds the index.
//!
//! ```text
//! X.rwk.open --copy whole records, append footer, sync--> X.rwk.recovering --rename--> X.rwk, then X.rwk.open goes
//! ```
//! Compressed data are kept as far as they can be decompressed; the new file is not compressed. At every moment the
//! directory holds one complete copy of the records, so that an interrupted recovery can start again. A file with
//! damage before its end is kept beside the new one as `X.rwk.damaged`. Each closed file gets its checksum in
//! `X.rwk.crc32c`.

use super::segment::{SegmentBytes, note_checksum};
use super::{OfflineError, SegmentFile, SegmentScan, segment_files};
use ropewalk_terms::Utc;
use ropewalk_wire::run_file::{DELETED_EXTENSION, IndexEntry, OPEN_EXTENSION, SegmentIndex, SegmentName};
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The form's name and version.
pub const RECOVER_SCHEMA: &str = "ropewalk-recover-1";

const RECOVERING_EXTENSION: &str = ".recovering";
const DAMAGED_EXTENSION: &str = ".damaged";

/// What was done in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RecoverReport {
    /// [`RECOVER_SCHEMA`].
    pub schema: &'static str,
    /// The directory.
    pub directory: PathBuf,
    /// Segments that were whole and closed: nothing was done to them.
    pub untouched: u64,
    /// The others, in the order of their names.
    pub segments: Vec<RecoveredSegment>,
}

/// What was done to a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoverAction {
    /// Only the last rename was missing.
    Closed,
    /// Its records were copied and got a new index.
    Rebuilt,
    /// An interrupted recovery was finished: the new file was there already.
    Finished,
    /// No record had reached it; an empty file was removed, an unreadable one put aside as `.damaged`.
    Empty,
    /// Another process is writing it: left alone.
    InUse,
    /// A closed file of the same name holds other events: both were left alone.
    Conflict,
}

/// What became of a segment, and what is missing in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RecoveredSegment {
    /// The file as it was found.
    pub file: String,
    /// What was done.
    pub action: RecoverAction,
    /// Events in it.
    pub events: u64,
    /// The last event that was written completely; everything after it is missing.
    pub last_key: Option<String>,
    /// Bytes of the record that was being written when the writer stopped: gone.
    pub cut_bytes: u64,
    /// Bytes before that in which no record could be read: gone, but see `original`.
    pub damaged_bytes: u64,
    /// Whether the segment's header, with its source table, is readable.
    pub header: bool,
    /// The original file, if it was damaged before its end.
    pub original: Option<String>,
}

/// Closes every segment in a run directory that is not whole and closed. A repeated call changes nothing.
///
/// # Errors
/// If a file cannot be read, written or renamed. Everything is then still there, and another call continues.
pub fn recover(directory: &Path) -> Result<RecoverReport, OfflineError> {
    finish_interrupted(directory)?;
    let mut report =
        RecoverReport { schema: RECOVER_SCHEMA, directory: directory.to_owned(), untouched: 0, segments: Vec::new() };
    let files = match segment_files(&[directory]) {
        // What was empty is gone after the first call: nothing more to do is no error.
        Err(OfflineError::NoSegments { known: None, .. }) => Vec::new(),
        files => files?,
    };
    for file in files {
        match recover_segment(&file)? {
            Some(segment) => report.segments.push(segment),
            None => report.untouched += 1,
        }
    }
    Ok(report)
}

/// Completes or undoes an interrupted recovery: a copy is valid only if it is complete and the only one.
fn finish_interrupted(directory: &Path) -> Result<(), OfflineError> {
    for entry in directory.read_dir().map_err(OfflineError::system("list", directory))? {
        let copy = entry.map_err(OfflineError::system("list", directory))?.path();
        if without(&copy, DELETED_EXTENSION).is_some_and(|segment| is_segment(&segment)) {
            // The writer was killed while it deleted it. A living writer has it open, and frees it all the same.
            remove(&copy)?;
            continue;
        }
        let Some(target) = without(&copy, RECOVERING_EXTENSION) else { continue };
        let others = target.exists() || extended(&target, OPEN_EXTENSION).exists();
        if !others && SegmentScan::of(&copy)?.is_whole() {
            rename(&copy, &target)?;
        } else {
            remove(&copy)?;
        }
    }
    Ok(())
}

/// Recovers one segment; `None` if there was nothing to do.
fn recover_segment(file: &SegmentFile) -> Result<Option<RecoveredSegment>, OfflineError> {
    let path = &file.path;
    let handle = File::open(path).map_err(OfflineError::system("open", path))?;
    // Writers hold a lock on their file. On a file system without locks a writer cannot be detected.
    let in_use = matches!(handle.try_lock(), Err(TryLockError::WouldBlock));
    let scan = SegmentScan::of(path)?;
    if !file.open && scan.is_whole() {
        return Ok(None);
    }
    let mut segment = RecoveredSegment {
        file: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        action: RecoverAction::InUse,
        events: scan.events.len() as u64,
        last_key: scan.events.last().map(|event| event.key.to_string()),
        cut_bytes: scan.cut_bytes,
        damaged_bytes: scan.damaged_bytes - scan.cut_bytes,
        header: scan.header.is_some(),
        original: None,
    };
    if in_use {
        return Ok(Some(segment));
    }
    let target = closed_path(path);
    segment.action = if file.open && target.exists() {
        drop_if_held(path, &scan, &target)?
    } else if scan.whole.is_empty() {
        put_aside_or_remove(path, &mut segment)?
    } else if scan.is_whole() {
        note_checksum(path, &target).map_err(OfflineError::system("note the checksum of", path))?;
        rename(path, &target)?;
        RecoverAction::Closed
    } else {
        rebuild(path, &scan, &target, &mut segment)?;
        RecoverAction::Rebuilt
    };
    sync_directory(&target)?;
    Ok(Some(segment))
}

/// An open file beside the closed one: what an earlier recovery did not come to remove.
fn drop_if_held(open: &Path, scan: &SegmentScan, closed: &Path) -> Result<RecoverAction, OfflineError> {
    let held = SegmentScan::of(closed)?;
    let identity = |event: &IndexEntry| (event.key, event.attempt, event.incarnation, event.length);
    let identities: HashSet<_> = held.events.iter().map(identity).collect();
    let all_held = held.is_whole() && scan.events.iter().all(|event| identities.contains(&identity(event)));
    if !all_held {
        return Ok(RecoverAction::Conflict);
    }
    if scan.damaged_bytes == scan.cut_bytes {
        remove(open)?;
    } else {
        rename(open, &free_path(closed))?;
    }
    Ok(RecoverAction::Finished)
}

fn put_aside_or_remove(path: &Path, segment: &mut RecoveredSegment) -> Result<RecoverAction, OfflineError> {
    if segment.damaged_bytes == 0 {
        remove(path)?;
    } else {
        put_aside(path, segment)?;
    }
    Ok(RecoverAction::Empty)
}

/// Keeps a damaged file under another name.
fn put_aside(path: &Path, segment: &mut RecoveredSegment) -> Result<(), OfflineError> {
    let aside = free_path(&closed_path(path));
    rename(path, &aside)?;
    segment.original = aside.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(())
}

/// Writes the whole records and a new footer into a new file, which then takes the old one's place.
fn rebuild(path: &Path, scan: &SegmentScan, target: &Path, segment: &mut RecoveredSegment) -> Result<(), OfflineError> {
    let copy = extended(target, RECOVERING_EXTENSION);
    write_copy(path, scan, &copy).map_err(OfflineError::system("write", &copy))?;
    // An older checksum belongs to the file before.
    note_checksum(&copy, target).map_err(OfflineError::system("note the checksum of", &copy))?;
    if segment.damaged_bytes > 0 {
        put_aside(path, segment)?;
    }
    rename(&copy, target)?;
    if path != target && segment.original.is_none() {
        sync_directory(target)?;
        remove(path)?;
    }
    Ok(())
}

fn write_copy(path: &Path, scan: &SegmentScan, copy: &Path) -> io::Result<()> {
    let mut original = SegmentBytes::open(path)?;
    let mut to = File::create(copy)?;
    let mut index = SegmentIndex::with_capacity(scan.events.len());
    let mut events = scan.events.iter().peekable();
    let mut end = 0;
    for stretch in &scan.whole {
        original.seek(SeekFrom::Start(stretch.start))?;
        let length = stretch.end - stretch.start;
        if io::copy(&mut (&mut original).take(length), &mut to)? != length {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read"));
        }
        while let Some(event) = events.next_if(|event| stretch.contains(&event.offset)) {
            index.push(IndexEntry { offset: event.offset - stretch.start + end, ..*event });
        }
        end += length;
    }
    let mut footer = Vec::new();
    index.encode(&mut footer, end, Utc(0), true).map_err(io::Error::other)?;
    to.write_all(&footer)?;
    to.sync_all()
}

/// The name of the closed segment.
fn closed_path(path: &Path) -> PathBuf {
    without(path, OPEN_EXTENSION).unwrap_or_else(|| path.to_owned())
}

/// Whether a file of this name is a segment.
fn is_segment(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.parse::<SegmentName>().is_ok())
}

/// The path without the extension, if it has it.
fn without(path: &Path, extension: &str) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_suffix(extension)?;
    Some(path.with_file_name(name))
}

fn extended(path: &Path, extension: &str) -> PathBuf {
    let mut extended = path.as_os_str().to_owned();
    extended.push(extension);
    PathBuf::from(extended)
}

/// An unused name beside `target` for a damaged file.
fn free_path(target: &Path) -> PathBuf {
    let first = extended(target, DAMAGED_EXTENSION);
    let numbered = (2u32..).map(|number| extended(target, &format!("{DAMAGED_EXTENSION}{number}")));
    std::iter::once(first.clone()).chain(numbered).find(|path| !path.exists()).unwrap_or(first)
}

fn rename(from: &Path, to: &Path) -> Result<(), OfflineError> {
    fs::rename(from, to).map_err(OfflineError::system("rename", from))
}

fn remove(path: &Path) -> Result<(), OfflineError> {
    fs::remove_file(path).map_err(OfflineError::system("remove", path))
}

/// Makes renames in the directory of `path` survive a power cut.
fn sync_directory(path: &Path) -> Result<(), OfflineError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|handle| handle.sync_all()).map_err(OfflineError::system("sync", directory))
}
