//! `[storage]`: how run files get onto the disk.

use crate::drive::RoomLimits;
use crate::quantity::{Bytes, Time};
use ropewalk_io::disk::WriteMode;
use ropewalk_wire::run_file::Compression;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::time::Duration;

/// How run files are written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSection {
    /// Which way bytes go into files.
    pub write: WriteChoice,
    /// Room for a whole run file is set aside when it is begun, where the file system can do that.
    pub preallocate: bool,
    /// Directories on further disks: run files go to them and to `output` in turn.
    pub more_outputs: Vec<PathBuf>,
    /// Where closed run files are moved to, in the same file system.
    pub hand_over: Option<PathBuf>,
    /// With less room than this on a disk the run waits.
    pub least_free: Option<Bytes>,
    /// With so much room it goes on.
    pub resume_free: Option<Bytes>,
    /// With less room than this on a disk, besides `least_free`, no run starts; 64 MiB unless given.
    pub start_free: Option<Bytes>,
    /// The checksum of each run file is written into a file beside it.
    pub checksums: bool,
    /// How run files are packed: `none`, `lz4`, or `zstd:1` to `zstd:19`.
    #[serde(deserialize_with = "compression")]
    #[schemars(with = "String")]
    pub compress: Compression,
    /// How many threads pack the run files of each stream that is packed, 1 (without this) to 16.
    pub compress_threads: Option<NonZeroU8>,
    /// A command that takes closed run files to where they are kept.
    pub transfer: Option<TransferSection>,
}

/// How closed run files are taken away. In every word `{file}` is the path of the run file, `{name}` its name and `{run}` the
/// number of its run in six digits.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferSection {
    /// The command and its arguments. Without `checksum` the last line that it writes begins with the CRC-32C of what has arrived.
    pub command: Vec<String>,
    /// A second command, run behind the first one; the last line that it writes begins with the CRC-32C of what has arrived.
    pub checksum: Option<Vec<String>>,
    /// Run files whose checksum was confirmed are deleted.
    #[serde(default)]
    pub delete: bool,
    /// A command that takes longer is ended, and the file tried again.
    #[serde(default = "transfer_timeout")]
    pub timeout: Time,
    /// How many run files are transferred at once, 1 to 64.
    #[serde(default = "one")]
    pub at_once: usize,
}

/// Less than a run file, and more than what is said of a run: where there is less, somebody has forgotten to make room.
pub(crate) const START_FREE: Bytes = Bytes(64 << 20);

const fn transfer_timeout() -> Time {
    Time(Duration::from_secs(600))
}

const fn one() -> usize {
    1
}

impl TransferSection {
    /// What is wrong with it, by the name of the key.
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let commands = [("command", Some(&self.command)), ("checksum", self.checksum.as_ref())];
        for (key, words) in commands.into_iter().filter_map(|(key, words)| Some((key, words?))) {
            let names_file = words.iter().any(|word| word.contains("{file}") || word.contains("{name}"));
            if words.first().is_none_or(String::is_empty) || !names_file {
                return Err((key, "a program and its arguments, one of which says where {file} or {name} goes"));
            }
        }
        if self.timeout.0.is_zero() {
            return Err(("timeout", "every command would be ended at once: give it the time that a run file takes"));
        }
        if !(1..=64).contains(&self.at_once) {
            return Err(("at_once", "1 to 64 run files at once"));
        }
        Ok(())
    }
}

impl StorageSection {
    /// With less free bytes than this on one of its disks no run starts.
    pub(crate) fn start_room(&self) -> u64 {
        let start = self.start_free.unwrap_or(START_FREE).0;
        start.saturating_add(self.least_free.map_or(0, |least| least.0))
    }

    /// How full a disk may become, where anything is said of it.
    pub(crate) fn room(&self) -> Option<RoomLimits> {
        let least = self.least_free?.0;
        // A tenth more, so that it does not stop and go on with every file that is deleted.
        Some(RoomLimits { least, resume: self.resume_free.map_or(least + least / 10, |resume| resume.0) })
    }
}

pub(super) fn compression<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Compression, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Which way bytes go into files.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteChoice {
    /// Past the page cache where much is written at once, otherwise through it.
    #[default]
    Auto,
    /// Through the page cache.
    Buffered,
    /// Past it, where the file system knows that.
    Direct,
}

impl From<WriteChoice> for WriteMode {
    fn from(choice: WriteChoice) -> Self {
        match choice {
            WriteChoice::Auto => Self::Auto,
            WriteChoice::Buffered => Self::Buffered,
            WriteChoice::Direct => Self::Direct,
        }
    }
}
