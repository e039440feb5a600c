//! `[file_based]`: events go to filter units as files.

use super::filter::{StreamSection, TriggerChoice};
use super::run::room;
use crate::quantity::{Bytes, Time};
use ropewalk_engine::RoomLimits;
use ropewalk_flow::filter::{FilterConfigError, StreamConfig, Streams};
use ropewalk_wire::frd::Version;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// Builder units write files of events instead of run files, and filter units take them (`docs/file-based.md`).
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileBasedSection {
    /// Directory for the directories of the runs (`run000001`), best in memory (`"/dev/shm"`). Without it: `output`.
    /// With several builder units each has a directory of its own name below it. A directory that contains files of
    /// another run with the same number is refused.
    pub directory: Option<PathBuf>,
    /// Version of the event headers: 3, 4 or 5. An event number of more than 32 bits fits only into version 4; with
    /// another version the event is dropped as `write_failed`. An event of 4 GiB or more is dropped as `too_large`.
    pub frd_version: u32,
    /// A file is closed after this many events.
    pub file_events: u32,
    /// A file is closed at this size. The events of a file stay in the memory that received them until the file is
    /// closed. This holds for at most 12 files.
    pub file_bytes: Bytes,
    /// A file is closed after this time.
    pub file_time: Time,
    /// With less free space than this in the file system of the directory the run waits. It continues when filter units
    /// have made room. Without it the run waits when no space is left.
    pub least_free: Option<Bytes>,
    /// Free space with which the run continues. Without it: `least_free` and a tenth more.
    pub resume_free: Option<Bytes>,
    /// Number of filter units that the run starts for the files of each builder unit. The run also starts a broker, and
    /// starts filter units again when they end. It ends when they have decided on all events. With 0, start them
    /// yourself: `ropewalk filter-files`.
    pub units: u32,
    /// Built-in triggers, as those of a `[filter]`; an event that passes one is accepted. Without any, and without
    /// `library`, every event is accepted.
    pub triggers: Vec<TriggerChoice>,
    /// What earlier versions called them.
    #[schemars(skip)]
    pub filter: Option<String>,
    /// [Shared library](filters.md) with a filter that decides instead of `triggers`. Each filter unit runs it in a
    /// process that can do nothing else. It is tested before the run.
    pub library: Option<PathBuf>,
    /// Text that is passed to the library.
    pub configuration: String,
    /// Memory that the library's process may take, at least 1 MiB.
    pub memory: Bytes,
    /// How long a filter unit may take for a file. After that the unit is ended, and another unit gets the file.
    pub timeout: Time,
    /// Number of filter units that may end while they work on a file. Then the file is set aside in `error/`, and the
    /// status is 3.
    pub tries: u16,
}

impl Default for FileBasedSection {
    fn default() -> Self {
        Self {
            directory: None,
            frd_version: Self::FRD_VERSION,
            file_events: 100,
            file_bytes: Bytes(16 << 20),
            file_time: Time(Duration::from_secs(1)),
            least_free: None,
            resume_free: None,
            units: 0,
            triggers: Vec::new(),
            filter: None,
            library: None,
            configuration: String::new(),
            memory: Self::MEMORY,
            timeout: Self::TIMEOUT,
            tries: Self::TRIES,
        }
    }
}

impl FileBasedSection {
    /// The default of `memory`.
    pub const MEMORY: Bytes = Bytes(1 << 30);
    /// The default of `frd_version`.
    pub const FRD_VERSION: u32 = 5;
    /// The default of `timeout`.
    pub const TIMEOUT: Time = Time(Duration::from_secs(60));
    /// The default of `tries`.
    pub const TRIES: u16 = 3;

    /// The version of the events' headers; none if it is not a version that Ropewalk writes.
    pub const fn version(&self) -> Option<Version> {
        written_version(self.frd_version)
    }

    /// When a run waits for room in the directory, and when it continues. `None` if it never waits.
    pub fn room(&self) -> Option<RoomLimits> {
        room(self.least_free, self.resume_free)
    }
}

/// The layout of event headers of this version, if Ropewalk writes it.
pub const fn written_version(number: u32) -> Option<Version> {
    match number {
        3 => Some(Version::V3),
        4 => Some(Version::V4),
        5 => Some(Version::V5),
        _ => None,
    }
}

/// The stream of a run that has no other one.
const SELECTED: &str = "selected";

/// The streams of filter units that take files: those of the configuration; without any, one called `selected` that
/// takes everything.
///
/// # Errors
/// If they make no sense together.
pub fn unit_streams(streams: &[StreamSection]) -> Result<Streams, FilterConfigError> {
    let mut streams: Vec<StreamConfig> = streams.iter().filter_map(StreamSection::stream).collect();
    if streams.is_empty() {
        let name = SELECTED.parse().expect("small letters alone");
        streams.push(StreamConfig { name, ..StreamConfig::everything() });
    }
    // There is no error stream: a file with events without a decision is set aside unchanged.
    Streams::new(streams, false)
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use ropewalk_wire::run_file::StreamName;

    const NODES: &str =
        "[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nreadout = \"ru0\"\n";

    #[test]
    fn what_does_not_go_with_files_of_events_is_said_with_its_key() {
        let told = |text: &str| parse("files", &format!("version = 1\n{text}\n{NODES}"), &|_| None);
        assert!(told("[file_based]").is_ok());
        let streams =
            "[file_based]\ntriggers = [\"all\", { every = 7 }]\n[[stream]]\nname = \"a\"\ntriggers = [1]\nprescale = 3";
        let streams = told(streams).expect("it makes sense").streams();
        assert!(streams.names().eq([StreamName::UNNAMED]), "builder units write all events: filter units choose");
        for (text, key) in [
            ("[file_based]\nfrd_version = 6", "file_based.frd_version"),
            ("[file_based]\nfile_events = 0", "file_based.file_events"),
            ("[file_based]\ntries = 0", "file_based.tries"),
            ("[file_based]\nfilter = \"size=1\"", "file_based.filter"),
            ("[file_based]\ntriggers = [\"all\"]\nlibrary = \"x.so\"", "file_based.triggers"),
            ("[file_based]\nmemory = \"1kB\"", "file_based.memory"),
            ("[file_based]\ntriggers = [{ present = 7 }]", "file_based.triggers[0]"),
            ("[file_based]\nresume_free = \"1MiB\"", "file_based.resume_free"),
            ("[file_based]\nleast_free = \"2MiB\"\nresume_free = \"1MiB\"", "file_based.resume_free"),
            ("[file_based]\n[filter]\ntriggers = [\"all\"]", "filter"),
            ("[file_based]\n[[stream]]\nname = \"a\"\n[[stream]]\nname = \"a\"", "stream"),
            ("[file_based]\n[[stream]]\nname = \"a\"\nprescale = 0", "stream"),
            ("[file_based]\n[[stream]]\nname = \"a\"\ntriggers = [128]", "stream[0].triggers"),
            ("[file_based]\n[[stream]]\nname = \"a\"\ntriggers = [1]", "trigger 1 does not exist: [file_based] has 1"),
            ("[file_based]\n[[stream]]\nname = \"a\"\nordered = true", "stream[0].ordered"),
            ("[file_based]\n[[stream]]\nname = \"a\"\ncompress = \"lz4\"", "stream[0].compress"),
            ("[file_based]\n[run]\nkeep = \"1GiB\"", "run.keep"),
            ("[file_based]\n[run]\nwrite = false\nacknowledge = \"built\"", "run.write"),
            ("[file_based]\n[storage]\nhand_over = \"there\"", "storage.hand_over"),
            ("[file_based]\n[storage]\nmore_outputs = [\"there\"]", "storage.more_outputs"),
        ] {
            let error = told(text).err().unwrap_or_else(|| panic!("{text}: is taken")).to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
    }
}
