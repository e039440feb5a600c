//! The closed run files on the disks, and what says that one is safe elsewhere.

use crate::offline::checksum_of;
use ropewalk_terms::NodeId;
use ropewalk_wire::run_file::{CHECKSUM_EXTENSION, SegmentName};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Behind the name of a run file: it was transferred, and stays.
const MARK_EXTENSION: &str = ".transferred";

/// A closed run file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// The number of its run.
    pub(super) run: u32,
}

/// Where they may lie.
#[derive(Debug)]
pub(super) struct Places {
    /// Where run directories are, and where closed files are moved from there.
    outputs: Vec<(PathBuf, Option<PathBuf>)>,
    writers: Vec<NodeId>,
}

impl Places {
    pub(super) const fn new(outputs: Vec<(PathBuf, Option<PathBuf>)>, writers: Vec<NodeId>) -> Self {
        Self { outputs, writers }
    }

    /// The closed run files of these writers, of any run, that are not known to be safe elsewhere. A directory that cannot be
    /// read has none.
    pub(super) fn list(&self) -> Vec<Found> {
        let mut directories = Vec::new();
        for (output, hand_over) in &self.outputs {
            match hand_over {
                // One that is named from the root stays what it is.
                Some(place) => directories.push(output.join(place)),
                None => directories.extend(entries(output).filter(|path| path.is_dir())),
            }
        }
        directories.sort();
        directories.dedup();
        directories.iter().flat_map(|directory| entries(directory)).filter_map(|path| self.found(path)).collect()
    }

    fn found(&self, path: PathBuf) -> Option<Found> {
        let name: SegmentName = path.file_name()?.to_str()?.parse().ok()?;
        let is_wanted = self.writers.contains(&name.writer) && !is_transferred(&path);
        is_wanted.then_some(Found { path, run: name.run.0 })
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The file of this name with something behind it.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(extension);
    path.with_file_name(name)
}

/// A file's CRC-32C and how many bytes it has. What its writer noted beside it counts, where it did: of bytes that have
/// changed since they were written no copy is a good one.
pub(super) fn checksum(path: &Path) -> io::Result<(u32, u64)> {
    if let Some(noted) = noted(&beside(path, CHECKSUM_EXTENSION))? {
        return Ok((noted, fs::metadata(path)?.len()));
    }
    let (checksum, bytes) = checksum_of(path)?;
    Ok((checksum.value(), bytes))
}

/// What stands in a checksum file, where there is one.
fn noted(path: &Path) -> io::Result<Option<u32>> {
    match fs::read_to_string(path) {
        Ok(text) => super::command::read_checksum(&text)
            .map(Some)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("no checksum stands in {}", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether it stands beside the file that it is safe elsewhere.
pub(in crate::run) fn is_transferred(path: &Path) -> bool {
    beside(path, MARK_EXTENSION).exists()
}

/// Notes beside the file that it is safe elsewhere.
pub(super) fn mark(path: &Path, checksum: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    fs::write(beside(path, MARK_EXTENSION), format!("{checksum:08x}  {name}\n"))
}

/// Deletes the file, and the checksum beside it.
pub(super) fn delete(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    match fs::remove_file(beside(path, CHECKSUM_EXTENSION)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
