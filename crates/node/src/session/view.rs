//! A sequence of runs as it can be seen from outside.

use super::controls::Holder;
use super::parameters::LiveParameter;
use crate::drive::{FrontEndsAccount, RunSnapshot};
use crate::fields::Fields;
use crate::run::{DiskLeft, HistogramDefinition, RunSummary};
use crate::tap::Tap;
use ropewalk_flow::control::operation::{Command, Fault, OperationState, Task};
use ropewalk_monitor::Sample;
use ropewalk_terms::{RunNumber, SourceId, Utc};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A sequence of runs as it was a moment ago.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// When it was so.
    pub at: Utc,
    /// Where it is.
    pub state: OperationState,
    /// Since when.
    pub since: Utc,
    /// What is being done.
    pub task: Option<Task>,
    /// Why nothing goes on, in [`OperationState::Error`].
    pub fault: Option<Fault>,
    /// What was wrong last, for people; of a fault or a refusal, until the next command is carried out.
    pub trouble: Option<String>,
    /// The run that is set up or under way.
    pub run: Option<RunNumber>,
    /// Its directory.
    pub directory: Option<PathBuf>,
    /// How long it has gone on.
    pub age: Duration,
    /// Its numbers.
    pub snapshot: RunSnapshot,
    /// The same by node and source, for monitoring; updated twice a second, or once with many sources ([`super::SamplingInterval`]).
    pub sample: Arc<Sample>,
    /// What is left of the disks.
    pub disk_left: Option<DiskLeft>,
    /// Front ends under run control.
    pub front_ends: Option<FrontEndsAccount>,
    /// Names and addresses where something listens.
    pub addresses: Vec<(String, String)>,
    /// Where copies of the run's events can be asked for; none where no builder unit of it is in this process.
    pub tap: Option<Tap>,
    /// What is counted of sources' fragments, of the run that was set up last; the sample has the numbers.
    pub histograms: Arc<[HistogramDefinition]>,
    /// How many sources there are.
    pub sources: usize,
    /// What was asked of the system, refused, and gone without.
    pub warnings: Vec<String>,
    /// The account of the last run that was closed.
    pub last: Option<Arc<RunSummary>>,
    /// The operator who holds the controls.
    pub operator: Option<Holder>,
    /// What has to be said of a run when it is started.
    pub required_fields: Arc<[String]>,
    /// What was said of the run that is under way.
    pub fields: Fields,
    /// Sources that operators have taken out.
    pub masked: Arc<BTreeSet<SourceId>>,
    /// What can be changed while a run goes on.
    pub parameters: Arc<[LiveParameter]>,
    /// By which the next run is set up, or was: TOML, as it is kept with each run.
    pub configuration: Arc<str>,
    /// The number of the last entry in the journal.
    pub last_entry: u64,
}

impl SessionView {
    pub(super) fn new(at: Utc) -> Self {
        Self {
            at,
            state: OperationState::Initial,
            since: at,
            task: None,
            fault: None,
            trouble: None,
            run: None,
            directory: None,
            age: Duration::ZERO,
            snapshot: RunSnapshot::default(),
            sample: Arc::default(),
            disk_left: None,
            front_ends: None,
            addresses: Vec::new(),
            tap: None,
            histograms: Arc::default(),
            sources: 0,
            warnings: Vec::new(),
            last: None,
            operator: None,
            required_fields: Arc::default(),
            fields: Fields::default(),
            masked: Arc::default(),
            parameters: Arc::default(),
            configuration: Arc::from(""),
            last_entry: 0,
        }
    }

    /// What can be asked for now.
    pub const fn allowed(&self) -> &'static [Command] {
        self.state.allowed()
    }
}
