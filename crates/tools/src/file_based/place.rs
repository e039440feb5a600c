//! The names in a run's directory, and its content.

use super::documents::{FilteredFile, StreamFile};
use super::filter::Undecided;
use ropewalk_flow::files::{FileId, Work};
use ropewalk_terms::{Attempt, RunNumber};
use ropewalk_wire::frd::{FileKind, FileName, FrdError};
use ropewalk_wire::run_file::StreamName;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A run's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    directory: PathBuf,
    run: RunNumber,
}

/// The content of the directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Contents {
    /// Files of events.
    pub(super) raw: BTreeSet<FileId>,
    /// Closed lumisections.
    pub(super) lumisections: BTreeSet<u32>,
    /// Files of events of other runs, which are not given to a unit.
    pub(super) of_other_runs: BTreeSet<String>,
    /// The run is closed.
    pub(super) is_over: bool,
}

/// What filter units left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Outputs {
    /// Files whose document with the outcome exists.
    pub(super) decided: BTreeSet<FileId>,
    /// Tries for which there is something, and what.
    pub(super) tries: BTreeMap<Work, Vec<PathBuf>>,
    /// Files that were set aside.
    pub(super) set_aside: BTreeSet<FileId>,
}

impl Place {
    /// Opens the directory of a run, which is named after it: `run000042`.
    ///
    /// # Errors
    /// If it has another name, or cannot be opened.
    pub fn open(directory: &Path) -> Result<Self, FilesError> {
        let directory = directory.canonicalize().map_err(FilesError::system("enter", directory))?;
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = name.strip_prefix("run").and_then(|number| number.parse().ok());
        let run = number.ok_or_else(|| FilesError::Document {
            path: directory.clone(),
            why: "the directory of a run is named after it, such as run000042".to_owned(),
        })?;
        Ok(Self { directory, run: RunNumber(run) })
    }

    /// The run.
    pub const fn run(&self) -> RunNumber {
        self.run
    }

    /// The socket of the broker.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("broker.socket")
    }

    /// Connects to the broker of the run.
    ///
    /// # Errors
    /// No broker listens: it has not started, or the run is over.
    pub fn connect(&self) -> Result<UnixStream, FilesError> {
        let socket = self.socket();
        UnixStream::connect(&socket).map_err(FilesError::system("reach the broker at", &socket))
    }

    /// A file of events.
    pub fn raw(&self, file: FileId) -> PathBuf {
        self.named(file.lumisection, FileKind::Raw { index: file.index })
    }

    /// Whether the run is closed: no more files come.
    pub fn is_closed(&self) -> bool {
        self.named(0, FileKind::EndOfRun).exists()
    }

    pub(super) fn end_of_lumisection(&self, lumisection: u32) -> PathBuf {
        self.named(lumisection, FileKind::EndOfLumisection)
    }

    fn named(&self, lumisection: u32, kind: FileKind) -> PathBuf {
        self.directory.join(FileName { run: self.run, lumisection, kind }.to_string())
    }

    /// Where everything is that filter units write.
    pub(super) fn output(&self) -> PathBuf {
        self.directory.join("output")
    }

    fn error(&self) -> PathBuf {
        self.directory.join("error")
    }

    /// Makes what has to be there.
    pub(super) fn prepare(&self) -> Result<(), FilesError> {
        let make = |path: PathBuf| std::fs::create_dir_all(&path).map_err(FilesError::system("make", &path));
        make(self.output()).and_then(|()| make(self.error()))
    }

    /// What a stream takes by a try.
    pub(super) fn stream_file(&self, work: Work, stream: StreamName) -> PathBuf {
        let Work { file: FileId { lumisection, index }, attempt } = work;
        let (run, attempt) = (self.run.0, attempt.0);
        self.output().join(format!("run{run:06}_ls{lumisection:04}_stream{stream}_index{index:06}-{attempt}.raw"))
    }

    /// Whether the output of a try for a stream, as reported, exists.
    pub(super) fn is_there(&self, work: Work, told: &StreamFile) -> bool {
        let Ok(stream) = told.stream.parse() else { return false };
        let there = std::fs::metadata(self.stream_file(work, stream)).map_or(0, |file| file.len());
        there == told.bytes && (told.written == 0) == (told.bytes == 0)
    }

    /// The document of a try, before it counts.
    pub(super) fn draft(&self, work: Work) -> PathBuf {
        let Work { file: FileId { lumisection, index }, attempt } = work;
        let name = format!("run{:06}_ls{lumisection:04}_index{index:06}-{}.jsn", self.run.0, attempt.0);
        self.output().join(name)
    }

    /// The document with the outcome of a file.
    pub(super) fn document(&self, file: FileId) -> PathBuf {
        let kind = FileKind::Account { index: file.index };
        self.output().join(FileName { run: self.run, lumisection: file.lumisection, kind }.to_string())
    }

    /// The sum of what a stream took of a lumisection.
    pub(super) fn stream_sum(&self, lumisection: u32, stream: &str) -> PathBuf {
        self.output().join(format!("run{:06}_ls{lumisection:04}_stream{stream}.jsn", self.run.0))
    }

    /// The sum of a lumisection.
    pub(super) fn sum(&self, lumisection: u32) -> PathBuf {
        let kind = FileKind::EndOfLumisection;
        self.output().join(FileName { run: self.run, lumisection, kind }.to_string())
    }

    /// The new path of a file that is set aside.
    pub(super) fn aside(&self, file: FileId) -> PathBuf {
        let kind = FileKind::Raw { index: file.index };
        self.error().join(FileName { run: self.run, lumisection: file.lumisection, kind }.to_string())
    }

    /// Reads the content of the directory.
    pub(super) fn contents(&self) -> Result<Contents, FilesError> {
        let mut contents = Contents::default();
        for name in self.names(&self.directory)? {
            let Ok(FileName { run, lumisection, kind }) = name.parse() else { continue };
            match kind {
                FileKind::Raw { .. } if run != self.run => _ = contents.of_other_runs.insert(name),
                _ if run != self.run => {}
                FileKind::Raw { index } => _ = contents.raw.insert(FileId { lumisection, index }),
                FileKind::EndOfLumisection => _ = contents.lumisections.insert(lumisection),
                FileKind::EndOfRun => contents.is_over = true,
                FileKind::Account { .. } => {}
            }
        }
        Ok(contents)
    }

    /// What filter units left.
    pub(super) fn outputs(&self) -> Result<Outputs, FilesError> {
        let mut outputs = Outputs::default();
        for name in self.names(&self.output())? {
            if let Some(work) = self.work_of(&name) {
                outputs.tries.entry(work).or_default().push(self.output().join(&name));
            } else if let Some(FileName { lumisection, kind: FileKind::Account { index }, .. }) = self.parse(&name) {
                outputs.decided.insert(FileId { lumisection, index });
            }
        }
        for name in self.names(&self.error())? {
            if let Some(FileName { lumisection, kind: FileKind::Raw { index }, .. }) = self.parse(&name) {
                outputs.set_aside.insert(FileId { lumisection, index });
            }
        }
        Ok(outputs)
    }

    /// What a document says came of a file.
    pub(super) fn filtered(&self, file: FileId) -> Result<FilteredFile, FilesError> {
        super::documents::read_whole(&self.document(file))
    }

    fn names(&self, directory: &Path) -> Result<Vec<String>, FilesError> {
        let read = std::fs::read_dir(directory).map_err(FilesError::system("read", directory))?;
        Ok(read.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    /// The name of a file of this run.
    fn parse(&self, name: &str) -> Option<FileName> {
        name.parse().ok().filter(|name: &FileName| name.run == self.run)
    }

    /// Whose try a file is of: its name has index and attempt.
    fn work_of(&self, name: &str) -> Option<Work> {
        let (front, rest) = name.strip_prefix(&format!("run{:06}_ls", self.run.0))?.rsplit_once("_index")?;
        let (lumisection, index) = (front.split('_').next()?, rest.split('.').next()?);
        let (index, attempt) = index.split_once('-')?;
        let file = FileId { lumisection: lumisection.parse().ok()?, index: index.parse().ok()? };
        Some(Work { file, attempt: Attempt(attempt.parse().ok()?) })
    }
}

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
    /// A document is not valid.
    #[error("{}: not a document as it should be here: {why}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file of events is not valid.
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
    /// Filter units end immediately after their start.
    #[error("filter units ended {times} times in a row before they had a file: {last}")]
    Units {
        /// The number of attempts.
        times: u32,
        /// How the last one ended.
        last: String,
    },
    /// The broker sent a line that this filter unit cannot parse.
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
