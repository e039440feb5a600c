//! `[storage]`: how run files get onto the disk.

use ropewalk_io::disk::WriteMode;
use ropewalk_wire::run_file::Compression;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// How run files are written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSection {
    /// Which way bytes go into files.
    pub write: WriteChoice,
    /// Room for a whole run file is set aside when it is begun, where the file system can do that.
    pub preallocate: bool,
    /// How run files are packed: `none`, `lz4`, or `zstd:1` to `zstd:19`.
    #[serde(deserialize_with = "compression")]
    #[schemars(with = "String")]
    pub compress: Compression,
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
