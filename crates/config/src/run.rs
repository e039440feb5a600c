//! `[run]` and `[storage]`: the place of a run, its end, its checks, and the writing of run files. The key `black_box`
//! of a source is here as well: how many of the last bytes are written after an incident.

use super::error::Faults;
use crate::quantity::{Bytes, Time};
use ropewalk_engine::{RoomLimits, StorageConfig};
use ropewalk_flow::builder::IncompletePolicy;
use ropewalk_flow::control::operation::AfterRun;
use ropewalk_io::disk::WriteMode;
use ropewalk_io::tcp::Mechanism;
use ropewalk_terms::AcknowledgementLevel;
use ropewalk_wire::run_file::Compression;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::time::Duration;

/// The run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunSection {
    /// Directory in which each run gets a directory of its own (`run000001`, `run000002` and so on). It is created if
    /// it does not exist. If it is not writable, the program ends with status 4. `--output` overrides it.
    pub output: PathBuf,
    /// The run ends after it has taken data for this time. `--duration` overrides it.
    pub duration: Option<Time>,
    /// The run ends after exactly this many triggers. Events 1 to N are built; later fragments count as `after_stop`.
    /// `--events` overrides it.
    pub events: Option<u64>,
    /// The run ends when this many bytes of fragments have arrived. What arrived together with the last of them still
    /// belongs to the run. `--bytes` overrides it.
    pub bytes: Option<Bytes>,
    /// What follows a run that ends by itself. Without it: `"wait"` in `ropewalk run --control`, otherwise `"over"`.
    /// Nodes that are separate processes stay for the next run only with `"wait"` or `"next"`. `--then` overrides it.
    pub then: Option<AfterRun>,
    /// The run ends when every source has connected and all connections have ended. The run waits for a source that
    /// never connects, except where its `requirement` is `"optional"`. If a readout unit dies, its sources are waited
    /// for until it is back, and for ten seconds more.
    pub until_sources_end: bool,
    /// Write run files; `false` builds and checks events and writes nothing. `false` needs `acknowledge = "built"`.
    pub write: bool,
    /// Total size of the newest run files to keep. Older files of the same run are deleted, counted, and named in
    /// `run.json`. They count until they are gone. If files are written faster than the disk deletes them, the run
    /// waits. Without `keep` a full disk pauses the run until there is room. Without it: all files.
    pub keep: Option<Bytes>,
    /// When readout units may forget an event. With a `[filter]`, `"built"` acts as `"handed"`.
    pub acknowledge: AcknowledgementLevel,
    /// When run files are synced to the disk.
    pub sync: SyncChoice,
    /// What happens to an event that stays incomplete.
    pub incomplete: IncompletePolicy,
    /// What happens when a source restarts its numbering during the run and its fragments cannot be assigned to events.
    /// It is reported as an incident: [a board that restarts](front-ends.md#a-board-that-restarts).
    pub on_restart: RestartChoice,
    /// A run file is closed at this size. `keep` deletes whole files, so it should be several times this size.
    pub segment_bytes: Bytes,
    /// A run file is closed after this many events.
    pub segment_events: Option<u64>,
    /// A run file is closed after this time.
    pub segment_time: Option<Time>,
    /// Fields that an operator must give to start a run, such as `["beam", "target", "shifter"]`. Without them the run
    /// does not start. They are given with `--field NAME=VALUE` of `run` and `ctl start`, or on the dashboard.
    /// `run.json` keeps them under `fields`, together with any other field that was given. A name has 1 to 32
    /// lower-case letters, digits and `_`, and begins with a letter. A value is one line of at most 1 KiB. A run has at
    /// most 64 fields.
    pub required_fields: Vec<String>,
    /// Length of a lumisection, such as `{ events = 10000 }` or `{ time = "23s" }`. All builder units, or all
    /// [gateways](gateway-configuration.md#lumisections), have the same lumisections. Each one is closed when its last
    /// event has ended, with an account in `run.json`. Without it: the whole run.
    pub lumisection: Option<LumisectionChoice>,
    /// Check the fragments' checksums. Fragments with a wrong checksum are flagged and counted, never dropped.
    pub check_crc: bool,
    /// Compare the bunch crossings within an event. Differences are flagged.
    pub check_bunch_crossing: bool,
    /// Address to which front ends under run control (`controlled`) connect. `0.0.0.0:5100` admits other machines. If
    /// the address is taken, the program ends with status 4.
    pub front_ends: String,
    /// Kernel interface for TCP ([endpoints.md](endpoints.md#mechanisms)).
    pub tcp: Mechanism,
    /// The old name of `drain` of `[timeouts]` for gateways.
    #[schemars(skip)]
    pub drain: Option<Time>,
    /// Placement of threads and pools that no `[[thread]]` or `[[pool]]` rule matches.
    pub placement: PlacementChoice,
}

impl Default for RunSection {
    fn default() -> Self {
        Self {
            output: PathBuf::from("."),
            duration: None,
            events: None,
            bytes: None,
            then: None,
            until_sources_end: false,
            write: true,
            keep: None,
            acknowledge: AcknowledgementLevel::default(),
            sync: SyncChoice::default(),
            incomplete: IncompletePolicy::default(),
            on_restart: RestartChoice::default(),
            segment_bytes: Bytes(StorageConfig::SEGMENT_BYTES),
            segment_events: None,
            segment_time: None,
            required_fields: Vec::new(),
            lumisection: None,
            check_crc: true,
            check_bunch_crossing: true,
            front_ends: any_port(),
            tcp: Mechanism::default(),
            drain: None,
            placement: PlacementChoice::default(),
        }
    }
}

/// Placement of threads and pools that no rule matches.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementChoice {
    /// The kernel decides.
    #[default]
    Rules,
    /// Readout units run beside the core that takes the interrupts of their network card, with their memory on the
    /// card's NUMA node. Everything else runs elsewhere ([placement.md](placement.md)).
    Auto,
}

/// Length of a lumisection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LumisectionChoice {
    /// Number of events, at least 1.
    Events(u64),
    /// Time, at least 100 ms, regardless of data.
    Time(Time),
}

/// When run files are synced to the disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncChoice {
    /// Never; the kernel decides.
    Never,
    /// When a file is closed.
    #[default]
    Segment,
    /// After every write.
    Batch,
}

/// What happens when a source restarts its numbering and its fragments cannot be assigned to events.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RestartChoice {
    /// Events are built without the source.
    #[default]
    Flag,
    /// Events are built without the source, and the run is paused.
    Pause,
    /// The run stops; what was triggered before is still built.
    Stop,
}

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
    /// A FIFO, or else a Unix socket that is created, to which accepted events are written in place of run files
    /// ([pipe.md](pipe.md)). With several builder units or input queues of gateways each has its own: its name is
    /// appended, `.bu0` for example.
    pub pipe: Option<PathBuf>,
    /// With less free space than this on one of its disks a builder unit or gateway writes no more events. The run
    /// waits, as with a full disk. What is already built at the end of the run is written nevertheless.
    pub least_free: Option<Bytes>,
    /// Free space with which it continues. Without it: `least_free` and a tenth more.
    pub resume_free: Option<Bytes>,
    /// With less free space than this, added to `least_free`, no run starts. It applies to every disk to which builder
    /// units write, in this process or in others, and gateways in this one, and to files of events (`[file_based]`).
    /// The refusal names the disk ([control.md](control.md#the-last-checks-of-a-start)). `"0"` switches the check off.
    pub start_free: Bytes,
    /// Permissions of closed run files, as three octal digits such as `"440"` (read-only). The umask does not apply.
    /// Without it: `"644"` less the umask.
    #[serde(deserialize_with = "permissions")]
    #[schemars(with = "Option<String>")]
    pub file_mode: Option<u32>,
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
    /// A command that transfers closed run files to permanent storage.
    pub transfer: Option<TransferSection>,
}

impl Default for StorageSection {
    fn default() -> Self {
        Self {
            write: WriteMode::default(),
            preallocate: false,
            more_outputs: Vec::new(),
            hand_over: None,
            pipe: None,
            least_free: None,
            resume_free: None,
            start_free: START_FREE,
            file_mode: None,
            checksums: false,
            compress: Compression::default(),
            compress_threads: NonZeroU8::MIN,
            transfer: None,
        }
    }
}

pub(super) fn any_port() -> String {
    "127.0.0.1:0".to_owned()
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
    /// `command` is used. A file without a right checksum counts as not transferred.
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

/// Each has memory for two batches.
const MOST_COMPRESS_THREADS: u8 = 16;

/// Less than a run file, and more than the files that describe a run. Less free space means that the operator forgot to
/// make room.
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
    /// Checks everything; `hands_over`: a stream has its closed files moved; `keep`: the oldest files are deleted.
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
        check_room("storage", self.least_free, self.resume_free, faults);
    }

    /// With less free bytes than this on one of its disks no run starts.
    pub fn start_room(&self) -> u64 {
        self.start_free.0.saturating_add(self.least_free_bytes())
    }

    /// With less free bytes than this on one of its disks a run waits.
    pub fn least_free_bytes(&self) -> u64 {
        self.least_free.map_or(0, |least| least.0)
    }

    /// When a run waits for room, and when it continues. `None` if it never waits.
    pub fn room(&self) -> Option<RoomLimits> {
        room(self.least_free, self.resume_free)
    }
}

/// The free space at which a run waits and at which it resumes: by default a tenth more.
pub(super) fn room(least: Option<Bytes>, resume: Option<Bytes>) -> Option<RoomLimits> {
    let least = least?.0;
    Some(RoomLimits { least, resume: resume.map_or(least + least / 10, |resume| resume.0) })
}

pub(super) fn check_room(section: &str, least: Option<Bytes>, resume: Option<Bytes>, faults: &mut Faults) {
    let wrong = match (least, resume) {
        (None, Some(_)) => "it goes with least_free: with less room the run waits",
        (Some(least), Some(resume)) if resume.0 < least.0 => {
            "the run would wait again at once: let it be at least least_free"
        }
        _ => return,
    };
    faults.add(format!("{section}.resume_free"), wrong);
}

/// The default, for the schema.
fn written<S: Serializer>(compression: &Compression, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(compression)
}

pub(super) fn compression<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Compression, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Permissions as three octal digits, with or without a 0 before them.
fn permissions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = if text.len() == 4 { text.strip_prefix('0').unwrap_or(&text) } else { &text };
    let is_octal = digits.len() == 3 && digits.bytes().all(|digit| (b'0'..b'8').contains(&digit));
    let mode = u32::from_str_radix(digits, 8).ok().filter(|_| is_octal);
    mode.map(Some).ok_or_else(|| D::Error::custom("permissions are three octal digits, such as \"440\""))
}
