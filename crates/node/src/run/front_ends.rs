//! Front ends under run control: a thread of their own that outlives runs, and what a run has of it.
//!
//! ```text
//!  Units --start, stop--> Conducted --orders--> FrontEndService's thread --commands--> the run's event manager
//!                  ^------------account------------------/      ^------------phase--------------/
//! ```

use super::assemble::{RunError, Workshop, endpoint, epoch, system};
use super::handle::RunBase;
use super::placement::{FRONT_ENDS, Part, Purpose, disk_thread, pool_of};
use super::resolve::{Addresses, Resolved};
use super::thread_placement::ThreadPlacement;
use super::units::{Board, Units};
use super::worker::{Ending, Worker};
use crate::configuration::Configuration;
use crate::drive::{ControlledDrive, ControlledDriveConfig, Drive, FrontEndsAccount, Storage};
use ropewalk_flow::control::front_ends::{FrontEndPhase, RunOrder};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_io::disk::RealDisk;
use ropewalk_io::tcp::Tcp;
use ropewalk_io::wait::Waker;
use ropewalk_memory::PoolConfig;
use ropewalk_terms::{EventKey, Instant, SourceId};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// What the thread is told.
enum Order {
    /// Begin a run, or go on with one.
    Start { order: RunOrder, taken_over: bool, nodes: Nodes },
    /// End it.
    Stop { last: Option<EventKey> },
    /// End it at once.
    ForceStop,
    /// Pause the run, or let it go on.
    Pause(bool),
    /// A source takes part no longer, or again.
    Mask { source: SourceId, is_masked: bool },
}

/// The nodes of a run, as front ends' run control sees them: commands in, the phase out.
struct Nodes {
    commands: Sender<RunCommand>,
    wakers: Vec<Waker>,
    board: Arc<Board>,
    phase: RunPhase,
}

/// What the thread and its users share.
struct Shared {
    orders: Mutex<Sender<Order>>,
    account: Mutex<(FrontEndsAccount, bool)>,
    waker: Waker,
}

/// Run control of front ends on a thread of its own. It may serve several runs, one after the other: front ends stay
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

/// A block into which words of front ends are received, and one in which commands are staged: settings fit into it.
const BLOCK: usize = 64 << 10;
/// Blocks for each front end: it fills one, and some are read or on their way.
const BLOCKS: usize = 4;
/// Blocks for connections that have not said who they are.
const SPARE_BLOCKS: usize = 16;
/// Blocks for slow readings on their way to the disk.
const RECORDS_BLOCKS: usize = 32;
/// How often the account is renewed although nothing changes.
const PUBLISH: Duration = Duration::from_millis(50);

impl FrontEndService {
    /// Listens for the front ends under run control that are configured; none where there are none.
    ///
    /// # Errors
    /// Where memory, the address or a thread cannot be had.
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
        let worker = Worker::start(FRONT_ENDS, vec![Box::new(conductor)], Arc::clone(&ending), on_start)
            .map_err(system(format!("thread {FRONT_ENDS}")))?;
        let shared = Arc::new(Shared { orders: Mutex::new(orders), account, waker: worker.waker() });
        // The thread publishes from its next turn on.
        let _ = slot.set(Arc::clone(&shared));
        Ok(Self { worker: Some(worker), ending, shared, address })
    }

    /// Where front ends connect to, port filled in.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The front ends as they were a moment ago.
    pub fn account(&self) -> FrontEndsAccount {
        self.shared.account().0
    }

    /// What a run has of it. `addresses` are those of the readout units to which the front ends send, in their order.
    pub(super) fn conducted(&self, addresses: Vec<String>) -> Conducted {
        Conducted { shared: Arc::clone(&self.shared), addresses }
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
        // Only a thread that has ended no longer listens; then there is nobody to order.
        let _ = self.orders.lock().unwrap_or_else(PoisonError::into_inner).send(order);
        self.waker.wake();
    }
}

/// The front ends of one run.
#[derive(Debug)]
pub(super) struct Conducted {
    shared: Arc<Shared>,
    addresses: Vec<String>,
}

impl Conducted {
    /// Begins the run as soon as all front ends are ready.
    pub(super) fn start(
        &self,
        base: &RunBase,
        units: &Units,
        (first, last): (EventKey, Option<EventKey>),
        taken_over: bool,
    ) {
        units.board.watch(self.shared.waker.clone());
        let nodes = Nodes {
            commands: units.commands.clone(),
            wakers: base.workers.iter().map(Worker::waker).collect(),
            board: Arc::clone(&units.board),
            phase: RunPhase::Initial,
        };
        let order = RunOrder { run: base.run, first, last, addresses: self.addresses.clone() };
        // Whoever asks before the thread has begun is not to hear of the last run.
        self.shared.account.lock().unwrap_or_else(PoisonError::into_inner).1 = false;
        self.shared.order(Order::Start { order, taken_over, nodes });
    }

    pub(super) fn stop(&self, last: Option<EventKey>) {
        self.shared.order(Order::Stop { last });
    }

    pub(super) fn force_stop(&self) {
        self.shared.order(Order::ForceStop);
    }

    /// Holds the trigger source, then the nodes; or lets them go on.
    pub(super) fn pause(&self, is_paused: bool) {
        self.shared.order(Order::Pause(is_paused));
    }

    pub(super) fn mask(&self, source: SourceId, is_masked: bool) {
        self.shared.order(Order::Mask { source, is_masked });
    }

    pub(super) fn account(&self) -> FrontEndsAccount {
        self.shared.account().0
    }

    /// Nothing of the run is left to be done.
    pub(super) fn is_at_rest(&self) -> bool {
        self.shared.account().1
    }
}

/// The drive with its lines to the outside.
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
