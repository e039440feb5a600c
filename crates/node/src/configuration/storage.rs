//! `[storage]`: how run files get onto the disk.

use crate::drive::RoomLimits;
use crate::quantity::Bytes;
use ropewalk_io::disk::WriteMode;
use ropewalk_wire::run_file::Compression;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;

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
    /// The checksum of each run file is written into a file beside it.
    pub checksums: bool,
    /// How run files are packed: `none`, `lz4`, or `zstd:1` to `zstd:19`.
    #[serde(deserialize_with = "compression")]
    #[schemars(with = "String")]
    pub compress: Compression,
}

impl StorageSection {
    /// How full a disk may become, where anything is said of it.
    pub(crate) fn room(&self) -> Option<RoomLimits> {
        let least = self.least_free?.0;
        // A tenth more, so that it does not stop and go on with every file that is deleted.
        Some(RoomLimits { least, resume: self.resume_free.map_or(least + least / 10, |resume| resume.0) })
    }
}

fn compression<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Compression, D::Error> {
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
