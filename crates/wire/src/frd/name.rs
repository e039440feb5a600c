//! The names of files in a run's directory.
//!
//! ```text
//!  run000042_ls0001_index000007.raw    events        run000042_ls0001_index000007.jsn    how many and how long
//!  run000042_ls0001_EoLS.jsn           a lumisection is closed
//!  run000042_ls0000_EoR.jsn            the run is closed
//! ```

use core::fmt;
use core::str::FromStr;
use ropewalk_terms::RunNumber;

const RAW: &str = ".raw";
const DOCUMENT: &str = ".jsn";

/// What a file is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// Events of a lumisection.
    Raw {
        /// Which of the run's files, counted from 0.
        index: u32,
    },
    /// What is in the file of events of this index.
    Account {
        /// The file's.
        index: u32,
    },
    /// Everything that was written in a lumisection.
    EndOfLumisection,
    /// Everything that was written in the run.
    EndOfRun,
}

/// The name of a file. Orders by run, then by lumisection.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileName {
    /// The run.
    pub run: RunNumber,
    /// The lumisection, counted from 1; 0 for [`FileKind::EndOfRun`].
    pub lumisection: u32,
    /// What it is.
    pub kind: FileKind,
}

impl fmt::Display for FileName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "run{:06}_ls{:04}_", self.run, self.lumisection)?;
        match self.kind {
            FileKind::Raw { index } => write!(out, "index{index:06}{RAW}"),
            FileKind::Account { index } => write!(out, "index{index:06}{DOCUMENT}"),
            FileKind::EndOfLumisection => write!(out, "EoLS{DOCUMENT}"),
            FileKind::EndOfRun => write!(out, "EoR{DOCUMENT}"),
        }
    }
}

/// The text is not the name of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not the name of a file, such as run000042_ls0001_index000007.raw")]
pub struct NotAFile;

impl FromStr for FileName {
    type Err = NotAFile;

    /// Reads what [`Display`](fmt::Display) writes; any number of leading zeros will do.
    fn from_str(text: &str) -> Result<Self, NotAFile> {
        Self::read(text).ok_or(NotAFile)
    }
}

impl FileName {
    fn read(text: &str) -> Option<Self> {
        let (run, rest) = text.strip_prefix("run")?.split_once("_ls")?;
        let (lumisection, rest) = rest.split_once('_')?;
        let kind = match rest.strip_prefix("index") {
            Some(rest) => match (rest.strip_suffix(RAW), rest.strip_suffix(DOCUMENT)) {
                (Some(index), _) => FileKind::Raw { index: number(index)? },
                (_, Some(index)) => FileKind::Account { index: number(index)? },
                _ => return None,
            },
            None => match rest.strip_suffix(DOCUMENT)? {
                "EoLS" => FileKind::EndOfLumisection,
                "EoR" => FileKind::EndOfRun,
                _ => return None,
            },
        };
        Some(Self { run: RunNumber(number(run)?), lumisection: number(lumisection)?, kind })
    }
}

/// Digits alone: `parse` would take a sign too.
fn number(digits: &str) -> Option<u32> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}
