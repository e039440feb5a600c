//! A scenario from its first event to its last file.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::super::stand::pool;
use super::assigner::{Assigner, SOURCES};
use super::kept::Kept;
use super::node::{FILTER, SimulatedNode};
use super::referee::judge;
use super::scenario::{Lines, Scenario, TIMEOUT};
use super::unit::{Notes, SimulatedUnit};
use ropewalk_flow::builder::{Builder, BuilderConfig, BuilderSource};
use ropewalk_flow::filter::FarmConfig;
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_io::simulated::{Network, SimulatedConfig};
use ropewalk_memory::Staging;
use ropewalk_node::drive::{
    EventOutput, FilterLink, Filtering, RESULT_BYTES, RemoteUnit, Storage, StorageConfig, StreamStorage,
};
use ropewalk_terms::{Incarnation, Instant, NodeId, RunNumber, Utc, Verdict};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Everything has ended by then.
const LONGEST: Duration = Duration::from_secs(120);
const RESTART_DELAY: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(1);

/// The machines of filter units that are elsewhere, and the network between.
struct Elsewhere {
    network: Network,
    nodes: Vec<SimulatedNode>,
    /// Connections that are still to be lost, the first one last.
    losses: Vec<(Instant, u16)>,
}

impl Elsewhere {
    /// The machines, and what a builder unit has of each.
    fn new(scenario: &Scenario, lines: &Lines, notes: &Arc<Mutex<Notes>>) -> (Self, Vec<Box<dyn FilterLink>>) {
        let network = Network::new(scenario.seed, lines.faults.clone());
        let config = SimulatedConfig::default();
        let (mut nodes, mut links) = (Vec::new(), Vec::new());
        for index in 0..scenario.units {
            let address = format!("filter node {index}");
            let unit = SimulatedUnit::new(scenario, index, Arc::clone(notes));
            let peers = network.dispatcher(config, pool("events", 4 << 10, 32));
            nodes.push(SimulatedNode::new(peers, &address, scenario, unit, Arc::clone(notes)));
            let peers = network.dispatcher(config, pool("decisions", 8 << 10, 64));
            let heads = Staging::new(pool("heads", 4 << 10, 64));
            links.push(Box::new(RemoteUnit::new(address, FILTER, peers, heads)) as Box<dyn FilterLink>);
        }
        let mut losses: Vec<_> = lines.losses.iter().map(|(at, unit)| (Instant::ZERO.after(*at), *unit)).collect();
        losses.sort_by(|one, other| other.cmp(one));
        (Self { network, nodes, losses }, links)
    }

    /// Loses what connections are to be lost by now, and gives each machine a turn.
    fn turn(&mut self, now: Instant) -> Result<usize, Broken> {
        while let Some((_, unit)) = self.losses.pop_if(|(at, _)| now >= *at) {
            let host = self.nodes[usize::from(unit)].host();
            for (_, endpoint) in self.network.connections_of(host) {
                self.network.reset(host, endpoint);
            }
        }
        self.nodes.iter_mut().map(|node| node.turn(now)).sum()
    }
}

/// Builder unit, filter units, disk.
pub struct World {
    scenario: Scenario,
    clock: SimulatedClock,
    medium: SimulatedStorage,
    builder: Builder,
    output: EventOutput,
    assigner: Assigner,
    kept: Kept,
    notes: Arc<Mutex<Notes>>,
    elsewhere: Option<Elsewhere>,
}

fn builder(scenario: &Scenario) -> Builder {
    let source = |id| BuilderSource { bunch_crossing_mask: 0, ..BuilderSource::new(id, 0) };
    Builder::new(BuilderConfig {
        slots: scenario.slots,
        table: 0,
        credit_bytes: 1 << 20,
        event_timeout: LONGEST,
        check_bunch_crossing: false,
        orbit: 0,
        ..BuilderConfig::new(0, 1, SOURCES.map(source).into())
    })
}

fn storage(scenario: &Scenario, medium: &SimulatedStorage, clock: &SimulatedClock) -> Storage<SimulatedDisk> {
    let config = StorageConfig {
        epoch: Utc(1),
        streams: scenario
            .streams()
            .names()
            .map(|name| StreamStorage { name, selected: true, ..StreamStorage::default() })
            .collect(),
        segment_bytes: 16 << 10,
        batch_bytes: 4 << 10,
        give_up_after: LONGEST,
        ..StorageConfig::new(NodeId::builder(0), "/data")
    };
    let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
    Storage::new(disk, config, Staging::new(pool("records", 4 << 10, 64)))
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let clock = SimulatedClock::new(Utc(1));
        let medium = SimulatedStorage::new(scenario.seed, scenario.faults.clone());
        let notes = Arc::new(Mutex::new(Notes::default()));
        let unit = |index| Box::new(SimulatedUnit::new(&scenario, index, Arc::clone(&notes))) as Box<dyn FilterLink>;
        let supervision = SupervisorConfig {
            timeout: TIMEOUT,
            start_timeout: Duration::from_secs(2),
            restart_delay: RESTART_DELAY,
            restarts: scenario.restarts,
        };
        let (elsewhere, links) = match &scenario.lines {
            None => (None, (0..scenario.units).map(unit).collect()),
            Some(lines) => {
                let (elsewhere, links) = Elsewhere::new(&scenario, lines, &notes);
                (Some(elsewhere), links)
            }
        };
        let farm = FarmConfig { units: scenario.units, slots: scenario.slots, supervision };
        let results = Staging::new(pool("results", RESULT_BYTES, scenario.results));
        let filtering = Filtering::units(farm, links, scenario.streams(), results);
        let kept = Kept::default();
        let filtering = filtering.with_keeper(Box::new(kept.clone()));
        let storage = storage(&scenario, &medium, &clock);
        let patience = scenario.drain.map_or(LONGEST, |(_, patience)| patience);
        let mut output = EventOutput::new(Some(Box::new(storage)), scenario.slots).with_filtering(filtering, patience);
        let (mut builder, now) = (builder(&scenario), clock.now());
        builder.manager_connected(now);
        builder.readout_connected(now, 0);
        output.begin(now, RunNumber(1), Incarnation(1));
        let assigner = Assigner::new(&scenario);
        Self { scenario, clock, medium, builder, output, assigner, kept, notes, elsewhere }
    }

    /// Mixed from everything that happened: equal for equal histories.
    pub fn digest(&self) -> u64 {
        mixed(Notes::of(&self.notes).digest, self.clock.now().as_nanoseconds(), self.assigner.ended.len() as u64)
    }

    /// Connections to filter nodes that were lost while a process was behind them.
    pub fn lost_connections(&self) -> usize {
        Notes::of(&self.notes).lost_connections
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        while !self.assigner.is_over() {
            if self.scenario.drain.is_some_and(|(from, _)| self.clock.now() >= Instant::ZERO.after(from)) {
                self.output.drain(self.clock.now());
            }
            let work = self.turn()?;
            self.look()?;
            self.go_on(work)?;
        }
        self.medium.set_faults(DiskFaults::default());
        while !self.output.close(self.clock.now()) {
            self.turn()?;
            self.go_on(0)?;
        }
        Broken::unless(self.output.is_idle() && self.assigner.held() == 0, Checker::Pools, || {
            format!("{} blocks of fragments are held, and every event has ended", self.assigner.held())
        })?;
        self.output.end();
        self.kept.judge(&self.scenario, &self.assigner.ended)?;
        let notes = Notes::of(&self.notes);
        for (event, ending) in &self.assigner.ended {
            let is_right = ending.verdict == Verdict::Quarantined || notes.decided.contains(event);
            Broken::unless(is_right, Checker::Loss, || {
                format!("event {event} ended as {ending:?}, and nobody decided on it who was to be believed")
            })?;
        }
        let ended = &self.assigner.ended;
        judge(&self.scenario, ended, &self.medium, &self.builder, &self.output, notes.lost_connections)
    }

    /// Everybody has a turn.
    fn turn(&mut self) -> Result<usize, Broken> {
        let now = self.clock.now();
        let mut work = self.assigner.turn(now, &mut self.builder);
        while let Some(action) = self.builder.poll(now) {
            let output = &mut self.output;
            self.assigner.hear(action, |slot| output.push(slot))?;
            work += 1;
        }
        if let Some(elsewhere) = &mut self.elsewhere {
            work += elsewhere.turn(now)?;
        }
        Ok(work + self.output.turn(now, &mut self.builder))
    }

    /// Lets time pass, to where something happens.
    fn go_on(&mut self, work: usize) -> Result<(), Broken> {
        let now = self.clock.now();
        let nodes = self.elsewhere.iter().flat_map(|elsewhere| &elsewhere.nodes);
        let nodes = nodes.filter_map(SimulatedNode::next_deadline);
        let next = nodes.chain(self.output.next_deadline()).min().unwrap_or(Instant::FAR_FUTURE);
        let step = if work > 0 { STEP / 20 } else { next.since(now).clamp(STEP / 20, 10 * STEP) };
        self.clock.advance(step);
        Broken::unless(now < Instant::ZERO.after(LONGEST), Checker::Liveness, || {
            format!("{} of {} events have ended", self.assigner.ended.len(), self.scenario.events)
        })
    }

    /// What must hold at every step.
    fn look(&self) -> Result<(), Broken> {
        let notes = Notes::of(&self.notes);
        Broken::unless(notes.most_at_once <= 1, Checker::Bounds, || "a unit has two processes".to_owned())?;
        for (unit, has) in &notes.has {
            for &(slot, key) in has {
                let found = self.builder.event(slot).key;
                Broken::unless(found == key, Checker::Bounds, || {
                    format!("unit {unit} has event {key} in slot {slot}, where event {found} is now")
                })?;
            }
        }
        let account = self.builder.account();
        let decided = account.accepted + account.rejected + account.quarantined;
        Broken::unless(account.built + account.incomplete_emitted == decided, Checker::Ledger, || {
            format!("{account:?}")
        })
    }
}
