//! Why run files could not be read or written.

use ropewalk_terms::{EventKey, RunNumber, SourceId};
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::run_file::RecordError;
use std::io;
use std::path::{Path, PathBuf};

/// How a format is named, and the names.
fn name_it() -> String {
    let names: Vec<&str> = ForeignFormat::ALL.iter().map(|format| format.name()).collect();
    format!("name its format with --format (with --from of `convert`): {}", names.join(", "))
}

/// The system's error about a file.
fn system_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists if error.get_ref().is_none() => {
            "the file exists already; choose another --output".to_owned()
        }
        _ => error.to_string(),
    }
}

/// What went wrong, where, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// The system refused something.
    #[error("{}: cannot {action}: {}", path.display(), system_text(error))]
    System {
        /// What was tried, for example `open`.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Nothing of a file can be read or unpacked.
    #[error("{}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No segment was found.
    #[error("{places}: no run files here; {}", match known.as_deref() {
        Some(known) => format!("name one of its run directories: {known}, or files that end in .rwk"),
        None if *has_account => "this directory has only the account; the run files are in the output directories of the \
                                 builder units".to_owned(),
        None => "name a run directory, such as run000001, or files that end in .rwk".to_owned(),
    })]
    NoSegments {
        /// The places that were searched.
        places: String,
        /// Run directories that lie there.
        known: Option<String>,
        /// Whether an account lies in one of the places.
        has_account: bool,
    },
    /// A file that was named is no run file.
    #[error("{}: this is no run file, and no known format begins with {begin}; if you know its format, name it with \
             --format", path.display())]
    NoRunFile {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        begin: String,
    },
    /// The segments are of different runs.
    #[error("{}: this file is of run {found}, others are of run {expected}; name the directories of one run", path.display())]
    SeveralRuns {
        /// A file of another run.
        path: PathBuf,
        /// Its run.
        found: RunNumber,
        /// The run of the files before it.
        expected: RunNumber,
    },
    /// The version of the segment is unknown to this program.
    #[error("{}: {error}; use a newer program", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Which version it is.
        error: RecordError,
    },
    /// A file is not what it was when it was indexed.
    #[error("{}: the file was changed while it was read; try again when it is not being written", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The event that was asked for is nowhere.
    #[error("event {key} is in none of these files")]
    NoSuchEvent {
        /// The event.
        key: EventKey,
    },
    /// A source that was asked for is not in the run.
    #[error("source {source_id} is not in this run; there are {known}")]
    NoSuchSource {
        /// The source.
        source_id: SourceId,
        /// The run's sources.
        known: String,
    },
    /// Events are to keep their distances in time, but no times were recorded.
    #[error("the fragments hold no times; play them at full speed (--speed max)")]
    NoTimes,
    /// A source's connection cannot be opened, or broke.
    #[error("source {source_id}: {error}; is the source configured there, and does the run still go on?")]
    Line {
        /// The source.
        source_id: SourceId,
        /// What the system said.
        error: io::Error,
    },
    /// A stream has no FELIX blocks.
    #[error("{}: no FELIX blocks here: it begins with `{begin}`; a block begins with 2 bytes of e-link and sequence, then \
             cd ab (1 KiB), ce ab (1 KiB, 32-bit trailers) or ce cN (N + 1 KiB), and another block follows it", path.display())]
    NoBlocks {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        begin: String,
    },
    /// A recording cannot take the place of the sources that are meant.
    #[error("{}: {why}", path.display())]
    Recording {
        /// The recording.
        path: PathBuf,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// The format of a file is unknown.
    #[error("{}: no known format begins with `{begin}`; {}", path.display(), name_it())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        begin: String,
    },
    /// A capture has no datagram or connection of a known format.
    #[error("{}: nothing in this capture is of a known format; {}; boards with a layout of their own: `convert --by board.toml`", path.display(), name_it())]
    NothingKnown {
        /// The capture.
        path: PathBuf,
    },
    /// An event does not fit into the target format.
    #[error("event {key}: {why}")]
    DoesNotFit {
        /// The event.
        key: EventKey,
        /// What does not fit, and where.
        why: String,
    },
    /// A format travels in datagrams alone, and the file has none.
    #[error("{}: {format} is sent in datagrams. A plain file does not contain where they end; record a capture (pcap, pcapng)", path.display())]
    NeedsCapture {
        /// The file.
        path: PathBuf,
        /// The format's name.
        format: &'static str,
    },
    /// What is played does not go out.
    #[error("{target}: {error}; is a server listening there?")]
    Target {
        /// The target.
        target: String,
        /// What the system said.
        error: io::Error,
    },
    /// The blocks that were asked for are not there.
    #[error("there is no block {first}; there are {blocks}, counted from 0")]
    NoSuchBlock {
        /// The first one that was asked for.
        first: u64,
        /// How many there are.
        blocks: u64,
    },
    /// A document beside files of events could not be written.
    #[error(transparent)]
    Files(#[from] crate::file_based::FilesError),
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

impl OfflineError {
    /// Makes an error of what the system said about `action` on `path`.
    pub(super) fn system(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::System { action, path, error }
    }
}
