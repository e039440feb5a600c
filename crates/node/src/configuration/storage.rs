//! `[storage]`: how run files get onto the disk.

use super::parse::Faults;
use crate::drive::RoomLimits;
use crate::quantity::{Bytes, Time};
use ropewalk_io::disk::WriteMode;
use ropewalk_wire::run_file::Compression;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::time::Duration;

/// How run files get onto the disk.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSection {
    /// How bytes get into files.
    pub write: WriteMode,
    /// Reserve space for a whole run file (`segment_bytes`) when it is opened. Space that was not needed is returned
    /// when the file is closed.
    pub preallocate: bool,
    /// Directories on further disks, each of which gets a run directory with the same name. Run files go to `output`
    /// and to these in turn. `verify` reads them all together.
    pub more_outputs: Vec<PathBuf>,
    /// Directory to which closed run files are moved, from where others take them. A relative path is below each
    /// output. It must be on the same file system; otherwise the disk counts as failed (18). It cannot be combined with
    /// `keep`. Before the end of the run distinguish the files by their arrival time: a builder unit that restarts
    /// continues the numbers of the files that it finds.
    pub hand_over: Option<PathBuf>,
    /// With less free space than this on one of its disks a builder unit or gateway writes no more events. The run waits,
    /// as with a full disk. What is already built at the end of the run is written nevertheless.
    pub least_free: Option<Bytes>,
    /// Free space with which it continues. Without it: `least_free` and a tenth more.
    pub resume_free: Option<Bytes>,
    /// With less free space than this, added to `least_free`, no run starts. It applies to every disk to which builder
    /// units write, in this process or in others, and gateways in this one, and to files of events (`[file_based]`). The
    /// refusal names the disk ([control.md](control.md#the-last-checks-of-a-start)). `"0"` switches the check off.
    pub start_free: Bytes,
    /// Write the CRC-32C of each run file into a file of the same name with `.crc32c` appended, when the run file is
    /// closed. The content is eight hexadecimal digits, two spaces and the name, so that a copy can be checked.
    pub checksums: bool,
    /// Compression of run files: `"none"`, `"lz4"`, or `"zstd:1"` (fast) to `"zstd:19"` (small). Separate threads
    /// (`compress_threads`) compress batches of about 4 MiB. `verify`, `inspect`, `replay` and `recover` read such
    /// files like others ([run-file.md](run-file.md#packed-segments)). A level that is too slow slows the run down.
    /// `segment_bytes` and `keep` count bytes before compression.
    #[serde(deserialize_with = "compression", serialize_with = "written")]
    #[schemars(with = "String")]
    pub compress: Compression,
    /// Number of threads that compress the run files of each compressed stream, 1 to 16. Their names are `-disk1.pack0`
    /// and so on. With zstd level 1 each compresses about 0.3 GB/s ([performance.md](performance.md#storing)).
    pub compress_threads: NonZeroU8,
    /// A command that takes closed run files to where they are kept.
    pub transfer: Option<TransferSection>,
}

impl Default for StorageSection {
    fn default() -> Self {
        Self {
            write: WriteMode::default(),
            preallocate: false,
            more_outputs: Vec::new(),
            hand_over: None,
            least_free: None,
            resume_free: None,
            start_free: START_FREE,
            checksums: false,
            compress: Compression::default(),
            compress_threads: NonZeroU8::MIN,
            transfer: None,
        }
    }
}

/// How closed run files are taken away.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferSection {
    /// Program with its arguments, run without a shell. In each argument `{file}` is the path of the run file, `{name}`
    /// its name, and `{run}` the number of its run in six digits. One of the arguments must contain `{file}` or
    /// `{name}`.
    pub command: Vec<String>,
    /// Second command, run when the first one succeeded. The last line of its output begins with the CRC-32C of what
    /// has arrived, in eight hexadecimal digits; all other output is ignored. Without this key the last line of
    /// `command` is used.
    pub checksum: Option<Vec<String>>,
    /// Delete a run file, with its checksum file, when the reported checksum is right. It is compared with the checksum
    /// of the file here; with `checksums`, with the one beside the file. Otherwise the file stays, marked by a file of
    /// the same name with `.transferred` appended. Remove the mark to transfer the file again.
    #[serde(default)]
    pub delete: bool,
    /// A command that takes longer is ended, together with the processes that it started. At the end of a run each file
    /// that is left is tried once more, and all of them together get this time.
    #[serde(default = "transfer_timeout")]
    pub timeout: Time,
    /// Number of run files that are transferred at once, 1 to 64.
    #[serde(default = "one")]
    pub at_once: usize,
}

/// Each has memory for two batches of its own.
const MOST_COMPRESS_THREADS: u8 = 16;

/// Less than a run file, and more than what is said of a run: where there is less, somebody has forgotten to make room.
const START_FREE: Bytes = Bytes(64 << 20);

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
    /// Checks everything; `hands_over` says that a stream of its own has closed files moved, `keep` that the oldest are deleted.
    pub(super) fn check(&self, hands_over: bool, keep: Option<Bytes>, faults: &mut Faults) {
        if (self.hand_over.is_some() || hands_over) && keep.is_some() {
            let message =
                "with run.keep old run files are deleted, which have been handed over already: choose one of both";
            faults.add("storage.hand_over", message);
        }
        if let Some(transfer) = &self.transfer {
            if let Err((key, message)) = transfer.check() {
                faults.add(format!("storage.transfer.{key}"), message);
            }
            if keep.is_some() {
                let message = "with run.keep old run files are deleted, transferred or not: use `delete` in its place";
                faults.add("storage.transfer", message);
            }
        }
        if self.compress_threads.get() > MOST_COMPRESS_THREADS {
            faults.add("storage.compress_threads", "1 to 16 threads for each compressed stream");
        }
        match (self.least_free, self.resume_free) {
            (None, Some(_)) => {
                faults.add("storage.resume_free", "it goes with least_free: with less room the run waits")
            }
            (Some(least), Some(resume)) if resume.0 < least.0 => {
                faults.add("storage.resume_free", "the run would wait again at once: let it be at least least_free")
            }
            _ => {}
        }
    }

    /// With less free bytes than this on one of its disks no run starts.
    pub(crate) fn start_room(&self) -> u64 {
        self.start_free.0.saturating_add(self.least_free_bytes())
    }

    /// With less free bytes than this on one of its disks a run waits.
    pub(crate) fn least_free_bytes(&self) -> u64 {
        self.least_free.map_or(0, |least| least.0)
    }

    /// How full a disk may become, where anything is said of it.
    pub(crate) fn room(&self) -> Option<RoomLimits> {
        let least = self.least_free?.0;
        // A tenth more, so that it does not stop and go on with every file that is deleted.
        Some(RoomLimits { least, resume: self.resume_free.map_or(least + least / 10, |resume| resume.0) })
    }
}

/// The default, for the schema.
fn written<S: Serializer>(compression: &Compression, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(compression)
}

pub(super) fn compression<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Compression, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}
