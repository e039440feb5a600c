//! Why files could not be filtered.

use super::filter::Undecided;
use ropewalk_wire::frd::FrdError;
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong, where, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The broker's thread panicked.
    #[error("{}: the broker panicked; filter what is left by `ropewalk filter-files`", path.display())]
    Panicked {
        /// The directory of the run.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("{}: cannot {action}: {error}", path.display())]
    System {
        /// What was tried, for example `open`.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A document is none.
    #[error("{}: not a document as it should be here: {why}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file of events is none.
    #[error("{}: at {offset}: {error}", path.display())]
    Events {
        /// The file.
        path: PathBuf,
        /// Where, in bytes.
        offset: usize,
        /// What is wrong.
        error: FrdError,
    },
    /// A filter cannot decide on an event.
    #[error("{}: event {event}: {why}", path.display())]
    Undecided {
        /// The file.
        path: PathBuf,
        /// The event's number.
        event: u64,
        /// What the filter says, or did.
        why: Undecided,
    },
    /// Another broker serves the directory.
    #[error("{}: another broker serves this directory; end that one first", path.display())]
    Served {
        /// The directory.
        path: PathBuf,
    },
    /// Filter units end as soon as they are started.
    #[error("filter units ended {times} times in a row before they had a file: {last}")]
    Units {
        /// How often.
        times: u32,
        /// How the last one ended.
        last: String,
    },
    /// The other end said something that nobody understands.
    #[error("the broker said {text:?}, which is nothing that a filter unit knows; are both of the same version?")]
    Line {
        /// What it said.
        text: String,
    },
}

impl FilesError {
    /// Makes an error of what the system said about `action` on `path`.
    pub(super) fn system(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::System { action, path, error }
    }
}
