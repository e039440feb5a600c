//! Adds up the documents of all builder units of a run.

use super::archive::write_whole;
use super::counts::Counts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// The form's name and version of a builder unit's document.
pub(super) const DOCUMENT_SCHEMA: &str = "ropewalk-lumisection-1";
/// The form's name and version of the sum: `docs/schema/histograms.json`.
pub const HISTOGRAMS_SCHEMA: &str = "ropewalk-histograms-1";
/// The file of the sum in a run's directory.
pub const MERGED_FILE: &str = "histograms.json";

/// What one builder unit counted in one lumisection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Document {
    /// [`DOCUMENT_SCHEMA`].
    pub(super) schema: String,
    pub(super) run: u32,
    /// The builder unit.
    pub(super) writer: String,
    pub(super) lumisection: u32,
    pub(super) counts: Counts,
}

/// What the filters of a run counted, of all builder units.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(
    title = "What the filters of a run counted: `histograms.json` in its directory, and the output of `ropewalk histograms RUNDIR... --json`"
)]
pub struct Histograms {
    /// The form's name and version.
    #[schemars(extend("const" = HISTOGRAMS_SCHEMA))]
    pub schema: &'static str,
    /// The run's number.
    pub run: u32,
    /// The builder units of which there are documents.
    pub builders: BTreeSet<String>,
    /// All lumisections together.
    pub total: Counts,
    /// Each of them, in order.
    pub lumisections: Vec<LumisectionCounts>,
}

/// What was counted in one lumisection.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct LumisectionCounts {
    /// Its number.
    pub lumisection: u32,
    /// The number of documents of builder units in the sum.
    pub documents: u64,
    /// What they say.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Why documents cannot be added up.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The system refused something.
    #[error("{}: cannot {action}: {error}", path.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// There are none.
    #[error(
        "{places}: no documents of filters here, such as run000001-bu0-ls000001.json; name the directories of a run with a [filter]"
    )]
    Nothing {
        /// Where they were looked for.
        places: String,
    },
    /// A file with such a name that is none.
    #[error("{}: not what a builder unit writes of a filter: {why}; remove it, or name it otherwise", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Documents of different runs.
    #[error("{}: of run {found}, and others are of run {expected}; name the directories of one run", path.display())]
    SeveralRuns {
        /// A document of another run.
        path: PathBuf,
        /// Its run.
        found: u32,
        /// The run of the others.
        expected: u32,
    },
    /// A histogram that is not the same everywhere.
    #[error(
        "{}: histogram `{name}` has other bins here than in other documents of the run; give it another name where it is another one",
        path.display()
    )]
    Shapes {
        /// The document.
        path: PathBuf,
        /// The histogram.
        name: String,
    },
}

/// Adds up the documents in some directories of one run.
///
/// # Errors
/// Where there are none, one cannot be read, or they are not of one run.
pub fn merge(directories: &[PathBuf]) -> Result<Histograms, MergeError> {
    let mut paths = BTreeSet::new();
    for directory in directories {
        let system = |error| MergeError::System { action: "read the directory", path: directory.clone(), error };
        for entry in std::fs::read_dir(directory).map_err(system)? {
            let path = entry.map_err(system)?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(is_document) {
                paths.insert(path);
            }
        }
    }
    let (mut run, mut builders, mut total) = (None, BTreeSet::new(), Counts::default());
    let mut lumisections: BTreeMap<u32, LumisectionCounts> = BTreeMap::new();
    for path in paths {
        let document = read(&path)?;
        let expected = *run.get_or_insert(document.run);
        if document.run != expected {
            return Err(MergeError::SeveralRuns { path, found: document.run, expected });
        }
        builders.insert(document.writer);
        let lumisection = document.lumisection;
        let empty = || LumisectionCounts { lumisection, documents: 0, counts: Counts::default() };
        let known = lumisections.entry(lumisection).or_insert_with(empty);
        known.documents += 1;
        for counts in [&mut known.counts, &mut total] {
            counts.add(&document.counts).map_err(|name| MergeError::Shapes { path: path.clone(), name })?;
        }
    }
    let places = || directories.iter().map(|one| one.display().to_string()).collect::<Vec<_>>().join(", ");
    let run = run.ok_or_else(|| MergeError::Nothing { places: places() })?;
    let lumisections = lumisections.into_values().collect();
    Ok(Histograms { schema: HISTOGRAMS_SCHEMA, run, builders, total, lumisections })
}

/// Whether a file has the name of a document: `run000001-bu0-ls000001.json`, or one with a life behind it.
fn is_document(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("run").and_then(|rest| rest.strip_suffix(".json")) else { return false };
    let mut parts = rest.split('-');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_run = parts.next().is_some_and(is_number);
    let is_builder = parts.next().is_some_and(|part| part.strip_prefix("bu").is_some_and(is_number));
    let is_lumisection = parts.next().is_some_and(|part| part.strip_prefix("ls").is_some_and(is_number));
    is_run && is_builder && is_lumisection && parts.next().is_none_or(is_number) && parts.next().is_none()
}

fn read(path: &Path) -> Result<Document, MergeError> {
    let system = |error| MergeError::System { action: "read it", path: path.to_owned(), error };
    let malformed = |why: String| MergeError::Malformed { path: path.to_owned(), why };
    let bytes = std::fs::read(path).map_err(system)?;
    let document: Document = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    if document.schema != DOCUMENT_SCHEMA {
        return Err(malformed(format!("its schema is `{}` and not `{DOCUMENT_SCHEMA}`", document.schema)));
    }
    Ok(document)
}

impl Histograms {
    /// Writes the sum into a run's directory.
    ///
    /// # Errors
    /// Where the system refuses it.
    pub fn keep(&self, directory: &Path) -> io::Result<()> {
        write_whole(&directory.join(MERGED_FILE), self)
    }
}
