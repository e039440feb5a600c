//! Small kernel files with one value each; none if the kernel or the machine does not have the file.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{CpuList, CpuListError};

/// Why the machine could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file that every Linux has is not there or cannot be read.
    #[error("cannot read {}: {source}; are /proc and /sys mounted?", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file says something that is no list of CPUs.
    #[error("{}: {source}", path.display())]
    NoCpuList {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: CpuListError,
    },
}

/// A file that must be there, without the space around its text.
pub(crate) fn text(path: &Path) -> Result<String, MachineError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(source) => Err(MachineError::Unreadable { path: path.to_owned(), source }),
    }
}

/// A list of CPUs (or of nodes, which are written alike) that must be there.
pub(crate) fn list(path: &Path) -> Result<CpuList, MachineError> {
    text(path)?.parse().map_err(|source| MachineError::NoCpuList { path: path.to_owned(), source })
}

/// A list that need not be there.
pub(crate) fn list_if_there(path: &Path) -> Result<Option<CpuList>, MachineError> {
    if path.exists() { list(path).map(Some) } else { Ok(None) }
}

/// The value of a file; `None` if the file is missing or says something else.
pub(crate) fn value<T: FromStr>(path: &Path) -> Option<T> {
    text(path).ok()?.parse().ok()
}

/// The value of the first line `name : value`.
pub(crate) fn field(path: &Path, name: &str) -> Option<String> {
    let text = text(path).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// The list in the first line `name : list`.
pub(crate) fn list_field(path: &Path, name: &str) -> Result<Option<CpuList>, MachineError> {
    let Some(list) = field(path, name) else { return Ok(None) };
    list.parse().map(Some).map_err(|source| MachineError::NoCpuList { path: path.to_owned(), source })
}

/// The names in a directory, in order; empty if it is missing.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The last part of what a link points to, such as a driver's name.
pub(crate) fn target_name(link: &Path) -> Option<String> {
    std::fs::read_link(link).ok()?.file_name()?.to_str().map(str::to_owned)
}

/// The directory without links on the way to it.
pub(crate) fn real(directory: &Path) -> Option<PathBuf> {
    directory.canonicalize().ok()
}
