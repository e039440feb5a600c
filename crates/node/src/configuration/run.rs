//! `[run]`: where a run is written, when it ends, and what it checks.

use super::model::any_port;
use crate::drive::StorageConfig;
use crate::quantity::{Bytes, Time};
use ropewalk_flow::builder::IncompletePolicy;
use ropewalk_flow::control::operation::AfterRun;
use ropewalk_io::tcp::Mechanism;
use ropewalk_terms::AcknowledgementLevel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunSection {
    /// Directory in which each run gets a directory of its own (`run000001`, `run000002` and so on). It is created if it
    /// does not exist. If it is not writable, the program ends with status 4. `--output` overrides it.
    pub output: PathBuf,
    /// The run ends after it has taken data for this time. `--duration` overrides it.
    pub duration: Option<Time>,
    /// The run ends after exactly this many triggers. Events 1 to N are built; later fragments count as `after_stop`.
    /// `--events` overrides it.
    pub events: Option<u64>,
    /// The run ends when this many bytes of fragments have arrived. What arrived together with the last of them still
    /// belongs to the run. `--bytes` overrides it.
    pub bytes: Option<Bytes>,
    /// What follows a run that ends by itself. Without it: `"wait"` with `--control`, otherwise `"over"`. Nodes that are
    /// separate processes stay for the next run, except with `"over"`. `--then` overrides it.
    pub then: Option<AfterRun>,
    /// The run ends when every source has connected and all connections have ended. The run waits for a source that
    /// never connects, except where its `requirement` is `"optional"`. If a readout unit dies, its sources are waited
    /// for until it is back, and for ten seconds more.
    pub until_sources_end: bool,
    /// Write run files; `false` builds and checks events and writes nothing. `false` needs `acknowledge = "built"`.
    pub write: bool,
    /// Total size of the newest run files to keep. Older files of the same run are deleted, counted, and named in
    /// `run.json`. Without `keep` a full disk pauses the run until there is room. Without it: all files.
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
    /// `run.json` keeps them under `fields`, together with any other field that was given. A name has 1 to 32 lower-case
    /// letters, digits and `_`, and begins with a letter. A value is one line of at most 1 KiB. A run has at most 64 fields.
    pub required_fields: Vec<String>,
    /// Length of a lumisection, such as `{ events = 10000 }` or `{ time = "23s" }`. All builder units have the same
    /// lumisections. Each one is closed when its last event has ended, with an account in `run.json`. Without it: the
    /// whole run.
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
    /// Time, at least 100 ms, whatever arrives.
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
