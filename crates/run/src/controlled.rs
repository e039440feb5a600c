//! Front ends under run control: a separate thread that outlives runs, and the part of it that a run has.
//!
//! ```text
//!  Units --start, stop--> FrontEndsOfRun --orders--> FrontEndService's thread --commands--> the run's event manager
//!                  ^------------account------------------/      ^------------phase--------------/
//! ```

use super::base::RunBase;
use super::error::{RunError, endpoint, system};
use super::placement::{FRONT_ENDS, Part, Purpose, ThreadPlacement, disk_thread, pool_of};
use super::resolve::{Addresses, Resolved};
use super::summary_sections::UnbalancedSummary;
use super::worker::{Board, DriveWithPage, Ending, Worker};
use super::workshop::{Workshop, epoch};
use ropewalk_config::Configuration;
use ropewalk_engine::{
    ControlledDrive, ControlledDriveConfig, Drive, FrontEndState, FrontEndsAccount, RunSnapshot, Storage,
};
use ropewalk_flow::control::front_ends::{FrontEndPhase, RunOrder};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_io::disk::RealDisk;
use ropewalk_io::tcp::Tcp;
use ropewalk_io::wait::Waker;
use ropewalk_memory::PoolConfig;
use ropewalk_terms::{ByCause, Cause, EventKey, FragmentAccount, Instant, SourceId};
use ropewalk_wire::front_end::{Named, Stage};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// An order to the thread.
enum Order {
    /// Begin a run, or continue one.
    Start { order: RunOrder, taken_over: bool, nodes: Nodes },
    /// End the run.
    Stop { last: Option<EventKey> },
    /// End the run immediately.
    ForceStop,
    /// Pause or resume the run.
    Pause(bool),
    /// Mask or unmask a source.
    Mask { source: SourceId, is_masked: bool },
}

/// The nodes of a run, as seen by the run control of front ends: commands in, the phase out.
struct Nodes {
    commands: Sender<RunCommand>,
    wakers: Vec<Waker>,
    board: Arc<Board>,
    phase: RunPhase,
}

/// State shared by the thread and its users.
struct Shared {
    orders: Mutex<Sender<Order>>,
    account: Mutex<(FrontEndsAccount, bool)>,
    waker: Waker,
}

/// Run control of front ends on a separate thread. It may serve several runs, one after the other: front ends stay
/// connected between them.
#[derive(Debug)]
pub struct FrontEndService {
    worker: Option<Worker>,
    ending: Arc<Ending>,
    shared: Arc<Shared>,
    address: String,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Size of a block for received messages of front ends, or for staged commands: settings fit into it.
const BLOCK: usize = 64 << 10;
/// Number of blocks for each front end: it fills one, and some are being read or in transit.
const BLOCKS: usize = 4;
/// Number of blocks for unidentified connections.
const SPARE_BLOCKS: usize = 16;
/// Number of blocks for slow readings on their way to the disk.
const RECORDS_BLOCKS: usize = 32;
/// Interval at which the account is updated even without changes.
const PUBLISH: Duration = Duration::from_millis(50);

impl FrontEndService {
    /// Listens for the configured front ends under run control; `None` if none are configured.
    ///
    /// # Errors
    /// If memory, the address or a thread cannot be obtained.
    pub fn open(configuration: &Configuration) -> Result<Option<Self>, RunError> {
        let placement = ThreadPlacement::new(configuration, Part::Other)?;
        let resolved = Resolved::new(configuration, Addresses::in_process(configuration));
        Self::of(&Workshop::new(&resolved, &placement))
    }

    pub(super) fn of(workshop: &Workshop<'_>) -> Result<Option<Self>, RunError> {
        let front_ends = workshop.resolved.front_ends();
        if front_ends.front_ends.is_empty() {
            return Ok(None);
        }
        let blocks = BLOCKS * front_ends.front_ends.len() + SPARE_BLOCKS;
        let pool = |purpose, blocks| PoolConfig::anonymous(&pool_of(FRONT_ENDS, purpose), BLOCK, blocks);
        let control = workshop.placement.untouched_pool(pool(Purpose::Control, blocks))?;
        let peers = Tcp::new(workshop.resolved.tcp(), control).map_err(endpoint(FRONT_ENDS))?;
        let staging = workshop.spare_pool(pool(Purpose::Staging, blocks))?;
        let storage = match workshop.resolved.readings(epoch()) {
            None => None,
            Some(config) => {
                let disk = workshop.resolved.run_files().disk_config(disk_thread(FRONT_ENDS), &config);
                let on_start = workshop.placement.on_start(&disk.thread_name);
                let disk = RealDisk::new(disk, on_start).map_err(system("thread for slow readings"))?;
                Some(Storage::new(disk, config, workshop.spare_pool(pool(Purpose::Records, RECORDS_BLOCKS))?))
            }
        };
        let config = ControlledDriveConfig {
            front_ends,
            listen: workshop.resolved.front_ends_address(),
            incarnation: workshop.incarnation,
        };
        let drive = ControlledDrive::new(config, peers, staging, storage).map_err(endpoint("run.front_ends"))?;
        Self::start(drive, workshop).map(Some)
    }

    fn start(drive: ControlledDrive<Tcp, RealDisk>, workshop: &Workshop<'_>) -> Result<Self, RunError> {
        let address = drive.address();
        let (orders, received) = channel();
        let ending = Arc::new(Ending::default());
        let account = Mutex::new((drive.account(), true));
        let slot = Arc::new(OnceLock::new());
        let conductor = Conductor {
            drive,
            orders: received,
            nodes: None,
            shared: Arc::clone(&slot),
            published: (FrontEndPhase::Idle, true),
            publish_due: Instant::ZERO,
        };
        let on_start = workshop.placement.on_start(FRONT_ENDS);
        let worker = Worker::start(
            FRONT_ENDS,
            vec![DriveWithPage::new(Box::new(conductor), None)],
            Arc::clone(&ending),
            on_start,
        )
        .map_err(system(format!("thread {FRONT_ENDS}")))?;
        let shared = Arc::new(Shared { orders: Mutex::new(orders), account, waker: worker.waker() });
        // The thread publishes from its next turn on.
        let _ = slot.set(Arc::clone(&shared));
        Ok(Self { worker: Some(worker), ending, shared, address })
    }

    /// Returns the address that front ends connect to, including the port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the recent state of the front ends.
    pub fn account(&self) -> FrontEndsAccount {
        self.shared.account().0
    }

    /// Returns the part of a run. `addresses` are those of the readout units to which the front ends send, in order.
    pub(super) fn of_run(&self, addresses: Vec<String>) -> FrontEndsOfRun {
        FrontEndsOfRun { shared: Arc::clone(&self.shared), addresses }
    }
}

impl Drop for FrontEndService {
    fn drop(&mut self) {
        self.ending.halt();
        self.shared.waker.wake();
        if let Some(worker) = self.worker.take() {
            worker.join();
        }
    }
}

impl Shared {
    fn account(&self) -> (FrontEndsAccount, bool) {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn order(&self, order: Order) {
        // Sending fails only if the thread has ended, which makes the order pointless.
        let _ = self.orders.lock().unwrap_or_else(PoisonError::into_inner).send(order);
        self.waker.wake();
    }
}

/// The front ends of one run.
#[derive(Debug)]
pub(super) struct FrontEndsOfRun {
    shared: Arc<Shared>,
    addresses: Vec<String>,
}

impl FrontEndsOfRun {
    /// Begins the run as soon as all front ends are ready.
    pub(super) fn start(
        &self,
        base: &RunBase,
        (board, commands): (&Arc<Board>, &Sender<RunCommand>),
        (first, last): (EventKey, Option<EventKey>),
        taken_over: bool,
    ) {
        board.watch(self.shared.waker.clone());
        let nodes = Nodes {
            commands: commands.clone(),
            wakers: base.workers.iter().map(Worker::waker).collect(),
            board: Arc::clone(board),
            phase: RunPhase::Initial,
        };
        let order = RunOrder { run: base.run, first, last, addresses: self.addresses.clone() };
        // A query before the thread has begun must not get the account of the last run.
        self.shared.account.lock().unwrap_or_else(PoisonError::into_inner).1 = false;
        self.shared.order(Order::Start { order, taken_over, nodes });
    }

    pub(super) fn stop(&self, last: Option<EventKey>) {
        self.shared.order(Order::Stop { last });
    }

    pub(super) fn force_stop(&self) {
        self.shared.order(Order::ForceStop);
    }

    /// Pauses or resumes: on a pause the trigger source is held first, then the nodes.
    pub(super) fn pause(&self, is_paused: bool) {
        self.shared.order(Order::Pause(is_paused));
    }

    pub(super) fn mask(&self, source: SourceId, is_masked: bool) {
        self.shared.order(Order::Mask { source, is_masked });
    }

    pub(super) fn account(&self) -> FrontEndsAccount {
        self.shared.account().0
    }

    /// Returns whether all work for the run is done.
    pub(super) fn is_at_rest(&self) -> bool {
        self.shared.account().1
    }
}

/// The drive with its channels to other threads.
struct Conductor {
    drive: ControlledDrive<Tcp, RealDisk>,
    orders: Receiver<Order>,
    nodes: Option<Nodes>,
    shared: Arc<OnceLock<Arc<Shared>>>,
    published: (FrontEndPhase, bool),
    publish_due: Instant,
}

impl Conductor {
    fn obey(&mut self, now: Instant, order: Order) {
        match order {
            Order::Start { order, taken_over, nodes } => {
                self.nodes = Some(nodes);
                self.drive.start(now, order, taken_over);
            }
            Order::Stop { last } => self.drive.stop(now, last),
            Order::ForceStop => self.drive.force_stop(now),
            Order::Pause(is_paused) => self.drive.pause(now, is_paused),
            Order::Mask { source, is_masked } => self.drive.mask(now, source, is_masked),
        }
    }

    fn speak_with_nodes(&mut self, now: Instant) {
        let Some(nodes) = &mut self.nodes else { return };
        let phase = nodes.board.phase();
        if std::mem::replace(&mut nodes.phase, phase) != phase {
            self.drive.nodes_are(now, phase);
        }
        while let Some(command) = self.drive.next_for_nodes() {
            let _ = nodes.commands.send(command);
            nodes.wakers.iter().for_each(Waker::wake);
        }
    }

    fn publish(&mut self, now: Instant) {
        let standing = (self.drive.machine().phase(), self.drive.is_at_rest());
        if now < self.publish_due && standing == self.published {
            return;
        }
        let Some(shared) = self.shared.get() else { return };
        (self.publish_due, self.published) = (now.after(PUBLISH), standing);
        *shared.account.lock().unwrap_or_else(PoisonError::into_inner) = (self.drive.account(), standing.1);
    }
}

impl Drive for Conductor {
    fn turn(&mut self, now: Instant) -> usize {
        while let Ok(order) = self.orders.try_recv() {
            self.obey(now, order);
        }
        let work = self.drive.turn(now);
        self.speak_with_nodes(now);
        self.publish(now);
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.drive.next_deadline().map_or(self.publish_due, |deadline| deadline.min(self.publish_due)))
    }

    fn prepare_wait(&mut self) -> bool {
        self.drive.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.drive.wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.drive.is_done()
    }
}

/// Front ends under run control, in one run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FrontEndsSummary {
    /// The number of the first event.
    pub first: u64,
    /// The number of the last event, if the trigger source or the stop of the run gave it.
    pub last: Option<u64>,
    /// Triggers, if the trigger source reports them: issued = accepted + vetoed.
    pub trigger: Option<TriggerSummary>,
    /// Each front end, by source id.
    pub by_source: BTreeMap<String, FrontEndSummary>,
    /// What went wrong with them, in the order in which it did.
    pub incidents: Vec<IncidentSummary>,
    /// Incidents for which there was no room in the list.
    pub incidents_beyond: u64,
    /// The equations that do not hold, in the form of the ledger's.
    #[serde(skip)]
    pub(super) unbalanced: Vec<UnbalancedSummary>,
}

/// A front end under run control: expected = in_events + missing.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct FrontEndSummary {
    /// Whether its control connection is open.
    pub connected: bool,
    /// Its own counters, as last reported.
    pub counters: BTreeMap<String, u64>,
    /// Accepted triggers, if every event needs this front end; null otherwise.
    pub expected: Option<u64>,
    /// The first event that it sent; null if none, or not reported.
    pub first: Option<u64>,
    /// Its fragments in events of the run.
    pub in_events: u64,
    /// The last event that it sent; null if none, or not reported.
    pub last: Option<u64>,
    /// The run gave it up.
    pub left_behind: bool,
    /// Events without its fragment, by cause.
    pub missing: ByCause,
    /// The name that it reports.
    pub name: String,
    /// Slow readings that were taken.
    pub readings: u64,
    /// Slow readings dropped for their rate or for lack of room.
    pub readings_refused: u64,
    /// Fragments sent, as last reported.
    pub sent: u64,
    /// The SHA-256 of the settings with which it became ready, in hexadecimal digits; null if it did not, or has none.
    pub settings_sha256: Option<String>,
    /// Its last state.
    #[schemars(extend("enum" = stages()))]
    pub stage: &'static str,
    /// Its last message.
    pub text: String,
    /// The versions of firmware and library that it reports.
    pub versions: String,
    /// Seconds of back-pressure.
    #[schemars(range(min = 0))]
    pub waited_s: f64,
}

/// The trigger source's account: issued = accepted + vetoed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TriggerSummary {
    /// The trigger source's id.
    pub source: u32,
    /// Triggers that there were.
    pub issued: u64,
    /// Triggers that made an event: one for each event number from the first to the last.
    pub accepted: u64,
    /// Vetoed triggers, by the trigger source's own causes.
    pub vetoed: BTreeMap<String, u64>,
    /// Accepted triggers without any fragment at the end of the run: the fragments were lost with a readout unit.
    /// `missing` of the sources contains them, too.
    pub without_event: u64,
}

/// Something that went wrong with a front end.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IncidentSummary {
    /// The source's id.
    pub source: u32,
    /// When, in seconds from the run's start.
    #[schemars(range(min = 0))]
    pub at_s: f64,
    /// What happened.
    pub what: String,
}

/// Returns the states of a front end.
fn stages() -> Vec<&'static str> {
    (0..).map_while(Stage::from_u8).map(Stage::name).collect()
}

fn numbers(list: &[Named]) -> BTreeMap<String, u64> {
    list.iter().map(|number| (number.name.clone(), number.count)).collect()
}

/// Returns the number of a source's fragments in the run's events, as counted by the readout units.
fn in_events(account: &FragmentAccount) -> u64 {
    account.expected() - account.missing.total()
}

impl FrontEndSummary {
    /// Creates the summary. `expected` is the number of accepted triggers, for a front end that every event needs;
    /// `settings` is the digest of its settings.
    fn new(state: &FrontEndState, account: &FragmentAccount, expected: Option<u64>, settings: Option<&String>) -> Self {
        let stopped = state.stopped.as_ref();
        Self {
            connected: state.is_connected,
            counters: numbers(&state.status.counters),
            expected,
            first: stopped.and_then(|stopped| stopped.first),
            in_events: in_events(account),
            last: stopped.and_then(|stopped| stopped.last),
            left_behind: state.is_left_behind,
            missing: account.missing,
            name: state.name.clone(),
            readings: state.readings,
            readings_refused: state.readings_refused,
            sent: stopped.map_or(state.status.sent, |stopped| stopped.sent),
            settings_sha256: settings.filter(|_| state.was_ready).cloned(),
            stage: state.stage.name(),
            text: state.status.text.clone(),
            versions: state.versions.clone(),
            waited_s: state.status.waited_ns as f64 * 1e-9,
        }
    }
}

impl FrontEndsSummary {
    /// Creates the summary of an account, for a run that started at this time. `snapshot` has the counts of the readout
    /// units, `settings` the digests of the configured settings of front ends.
    pub(super) fn new(
        account: &FrontEndsAccount,
        snapshot: &RunSnapshot,
        started: Instant,
        settings: &BTreeMap<SourceId, String>,
    ) -> Self {
        let trigger = account.front_ends.iter().find_map(|state| {
            let vetoed = state.vetoed.as_ref().filter(|_| state.is_trigger)?;
            let up_to = |last: u64| (last + 1).saturating_sub(account.first);
            // Triggers issued after the run's last event do not belong to the run.
            let wanted = up_to(account.last.map_or(vetoed.last, |last| last.min(vetoed.last)));
            let assigned = snapshot.ledger.events.assigned;
            Some(TriggerSummary {
                source: state.source.0,
                issued: vetoed.issued,
                accepted: up_to(vetoed.last),
                vetoed: numbers(&vetoed.vetoed),
                without_event: if snapshot.phase.is_final() { wanted.saturating_sub(assigned) } else { 0 },
            })
        });
        let incident = |incident: &ropewalk_flow::control::front_ends::Incident| IncidentSummary {
            source: incident.source.0,
            at_s: incident.at.since(started).as_secs_f64(),
            what: incident.kind.to_string(),
        };
        let mut unbalanced = trigger.as_ref().and_then(TriggerSummary::unbalanced).into_iter().collect::<Vec<_>>();
        let mut by_source = BTreeMap::new();
        for one in &account.front_ends {
            let received = snapshot.sources.get(&one.source).copied().unwrap_or_default();
            let expected = trigger.as_ref().map(|trigger| trigger.accepted).filter(|_| one.is_required);
            unbalanced.extend(expected.and_then(|expected| unexpected(one, &received, expected, snapshot)));
            let summary = FrontEndSummary::new(one, &received, expected, settings.get(&one.source));
            by_source.insert(one.source.to_string(), summary);
        }
        Self {
            first: account.first,
            last: account.last,
            trigger,
            by_source,
            incidents: account.incidents.iter().map(incident).collect(),
            incidents_beyond: account.incidents_beyond,
            unbalanced,
        }
    }

    /// Returns the number of accepted triggers without an event.
    pub(super) fn without_event(&self) -> u64 {
        self.trigger.as_ref().map_or(0, |trigger| trigger.without_event)
    }
}

/// Returns the equation `expected = in events + missing` of a source, if it does not hold. It applies to runs that
/// ended in order and whose event manager knows every accepted trigger: an event that no source has shown cannot be
/// missed.
fn unexpected(
    state: &FrontEndState,
    account: &FragmentAccount,
    expected: u64,
    snapshot: &RunSnapshot,
) -> Option<UnbalancedSummary> {
    let is_whole = snapshot.phase.is_final()
        && snapshot.ledger.events.assigned == expected
        && [Cause::ForcedStop, Cause::OutcomeUnknown, Cause::ReadoutLost].map(|cause| account.dropped.get(cause))
            == [0; 3];
    let right = account.expected();
    let equation = format!("expected of source {}", state.source);
    (is_whole && right != expected).then(|| UnbalancedSummary::sides(equation, expected, right))
}

impl TriggerSummary {
    /// Returns the equation `issued = accepted + vetoed`, if it does not hold.
    fn unbalanced(&self) -> Option<UnbalancedSummary> {
        let right = self.accepted + self.vetoed.values().sum::<u64>();
        (self.issued != right).then(|| UnbalancedSummary::sides("triggers", self.issued, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::RunNumber;
    use ropewalk_wire::front_end::{Status, Vetoed};

    fn account(issued: u64) -> FrontEndsAccount {
        let vetoed = vec![Named { name: "busy".to_owned(), count: 3 }];
        let trigger = FrontEndState {
            source: SourceId(7),
            is_trigger: true,
            is_required: true,
            is_connected: true,
            is_left_behind: false,
            name: "trigger".to_owned(),
            versions: String::new(),
            was_ready: true,
            stage: Stage::Stopped,
            status: Status::default(),
            vetoed: Some(Vetoed { run: RunNumber(1), last: 100, issued, vetoed }),
            held: None,
            stopped: None,
            readings: 0,
            readings_refused: 0,
        };
        FrontEndsAccount { first: 1, last: Some(100), front_ends: vec![trigger], ..FrontEndsAccount::default() }
    }

    /// Returns a run of a hundred events that has ended. The source sent this many of them.
    fn snapshot(sent: u64, missing: u64) -> RunSnapshot {
        let mut snapshot = RunSnapshot { phase: ropewalk_flow::control::RunPhase::Ended, ..RunSnapshot::default() };
        snapshot.ledger.events.assigned = 100;
        let mut account = FragmentAccount { received: sent, in_complete_events: sent, ..FragmentAccount::default() };
        account.missing.add(Cause::Skipped, missing);
        snapshot.sources.insert(SourceId(7), account);
        snapshot
    }

    #[test]
    fn what_the_trigger_issued_was_accepted_or_vetoed() {
        let good = FrontEndsSummary::new(&account(103), &snapshot(100, 0), Instant::ZERO, &BTreeMap::new());
        assert_eq!(good.trigger.as_ref().map(|trigger| (trigger.issued, trigger.accepted)), Some((103, 100)));
        assert!(good.unbalanced.is_empty());
        let bad = FrontEndsSummary::new(&account(104), &snapshot(100, 0), Instant::ZERO, &BTreeMap::new()).unbalanced;
        assert_eq!(bad, [UnbalancedSummary::sides("triggers", 104, 103)]);
    }

    #[test]
    fn a_trigger_that_never_came_to_an_event_accepted_none() {
        let mut account = account(3);
        account.front_ends[0].vetoed.as_mut().expect("it told").last = 0;
        let summary = FrontEndsSummary::new(&account, &RunSnapshot::default(), Instant::ZERO, &BTreeMap::new());
        assert_eq!(summary.trigger.as_ref().map(|trigger| trigger.accepted), Some(0));
        assert!(summary.unbalanced.is_empty());
    }

    #[test]
    fn every_event_that_the_trigger_issued_has_a_fragment_or_lacks_it_for_a_cause() {
        let unbalanced = |sent, missing| {
            FrontEndsSummary::new(&account(103), &snapshot(sent, missing), Instant::ZERO, &BTreeMap::new()).unbalanced
        };
        assert_eq!(unbalanced(97, 3), []);
        assert_eq!(unbalanced(97, 2), [UnbalancedSummary::sides("expected of source 7", 100, 99)]);
        // An event that no source has shown cannot be missed.
        let mut unseen = snapshot(97, 2);
        unseen.ledger.events.assigned = 99;
        assert!(FrontEndsSummary::new(&account(103), &unseen, Instant::ZERO, &BTreeMap::new()).unbalanced.is_empty());
    }

    #[test]
    fn a_trigger_that_became_no_event_is_lost_once_the_run_has_ended() {
        let summary = |snapshot: &_| FrontEndsSummary::new(&account(103), snapshot, Instant::ZERO, &BTreeMap::new());
        assert_eq!(summary(&snapshot(100, 0)).without_event(), 0);
        let mut unseen = snapshot(98, 2);
        unseen.ledger.events.assigned = 98;
        assert_eq!(summary(&unseen).without_event(), 2);
        // While the run continues they may be in transit.
        unseen.phase = ropewalk_flow::control::RunPhase::Running;
        assert_eq!(summary(&unseen).without_event(), 0);
    }

    #[test]
    fn the_settings_of_a_front_end_are_reported_if_it_confirmed_them() {
        let settings = BTreeMap::from([(SourceId(7), "5e77".to_owned())]);
        let mut account = account(103);
        let told = |account: &_| {
            let summary = FrontEndsSummary::new(account, &snapshot(100, 0), Instant::ZERO, &settings);
            summary.by_source["7"].settings_sha256.clone()
        };
        assert_eq!(told(&account).as_deref(), Some("5e77"));
        account.front_ends[0].was_ready = false;
        assert_eq!(told(&account), None);
    }
}
