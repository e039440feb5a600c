//! The members of a run, the clock that turns them, and the moments at which something goes wrong.

use super::broken::{Broken, Checker};
use super::clock::NodeClock;
use super::coverage::{Coverage, Situation};
use super::draw::Draw;
use super::inject::Injection;
use super::machines::{
    BuilderMachine, FrontEnd, ManagerMachine, ReadoutMachine, Site, Stranger, builder, manager, readout,
};
use super::node::{Health, Member, Node};
use super::place::Place;
use super::recorder::{Recorder, Shared};
use super::referee::Safe;
use super::scenario::{End, Scenario};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_io::simulated::Network;
use ropewalk_node::drive::RunSnapshot;
use ropewalk_terms::{EventKey, Instant, RunNumber, Utc};
use std::rc::Rc;
use std::time::Duration;

/// When the first run of every simulation begins, in UTC: some day in 2023.
const BEGIN: Utc = Utc(1_700_000_000_000_000_000);
/// After the last fault is over, and everybody has had his time, so long until the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long after the last fault and the last event somebody wonders why the run does not end.
const SURPRISE: Duration = Duration::from_secs(15);
/// So long after the event manager has ended everybody has who was dismissed.
const FAREWELL: Duration = Duration::from_secs(5);
/// Turns without time going on; more means that nodes keep each other busy for nothing.
const MOST_TURNS: u32 = 20_000;
/// Steps in a row in which nobody does anything, a microsecond apart; more means that a deadline is never met.
const MOST_IDLE: u32 = 20_000;

/// A run in virtual time.
pub struct World {
    pub(super) scenario: Rc<Scenario>,
    pub(super) network: Network,
    pub(super) storages: Vec<SimulatedStorage>,
    pub(super) clock: SimulatedClock,
    pub(super) recorder: Shared,
    pub(super) front_ends: Vec<Node<FrontEnd>>,
    pub(super) readouts: Vec<Node<ReadoutMachine>>,
    pub(super) manager: Node<ManagerMachine>,
    pub(super) builders: Vec<Node<BuilderMachine>>,
    pub(super) strangers: Vec<Node<Stranger>>,
    pub(super) injection: Injection,
    pub(super) coverage: Coverage,
    pub(super) safe: Safe,
    order: Draw,
    commanded: bool,
    /// When the event manager ended.
    manager_done: Option<Instant>,
    idle_steps: u32,
}

impl World {
    /// All members of a scenario and the command to start; nobody has had a turn yet.
    pub fn new(scenario: Scenario) -> Self {
        Self::recorded(scenario, Recorder::default())
    }

    /// The same, with a record of everything as a text.
    pub fn with_text(scenario: Scenario) -> Self {
        Self::recorded(scenario, Recorder::default().with_text())
    }

    /// The same, with a trace for Perfetto.
    pub fn with_trace(scenario: Scenario) -> Self {
        Self::recorded(scenario, Recorder::default().with_perfetto())
    }

    fn recorded(scenario: Scenario, recorder: Recorder) -> Self {
        let recorder = recorder.shared();
        let clock = SimulatedClock::new(BEGIN);
        let node_clock = |place| NodeClock::new(clock.clone(), scenario.drift(place));
        let front_ends = (0..scenario.sources.len() as u16).map(Place::Source);
        let readouts = (0..scenario.readouts).map(Place::Readout);
        let builders = (0..scenario.builders).map(Place::Builder);
        let disk = |index: u16| SimulatedStorage::new(scenario.seed ^ u64::from(index) << 32, scenario.disk.clone());
        let mut world = Self {
            network: Network::new(scenario.seed, scenario.network.clone()),
            storages: (0..scenario.builders).map(disk).collect(),
            front_ends: front_ends.map(|place| Node::new(place, node_clock(place), &recorder)).collect(),
            readouts: readouts.map(|place| Node::new(place, node_clock(place), &recorder)).collect(),
            manager: Node::new(Place::Manager, node_clock(Place::Manager), &recorder),
            builders: builders.map(|place| Node::new(place, node_clock(place), &recorder)).collect(),
            strangers: Vec::new(),
            injection: Injection::new(&scenario),
            coverage: Coverage::default(),
            safe: Safe::default(),
            order: Draw::new(scenario.seed, 3),
            commanded: false,
            manager_done: None,
            idle_steps: 0,
            recorder,
            clock,
            scenario: Rc::new(scenario),
        };
        world.start_everybody();
        world
    }

    fn start_everybody(&mut self) {
        // Doors first: front ends that find none look again a moment later.
        let places = (0..self.readouts.len() as u16).map(Place::Readout).chain([Place::Manager]);
        let places = places.chain((0..self.builders.len() as u16).map(Place::Builder));
        for place in places.chain((0..self.front_ends.len() as u16).map(Place::Source)) {
            self.start(place);
        }
        let last = (self.scenario.end == End::Last).then_some(EventKey::new(0, self.scenario.events));
        let start = RunCommand::Start { run: RunNumber(1), first: EventKey::new(0, 1), last };
        if let Some(manager) = &mut self.manager.machine {
            manager.command(Instant::ZERO, start);
        }
    }

    /// A process is started, for the first time or again.
    pub(super) fn start(&mut self, place: Place) {
        let site = Site { scenario: &self.scenario, network: &self.network, storages: &self.storages };
        match place {
            Place::Manager => self.manager.start(manager(&site, &self.manager.around)),
            Place::Readout(index) => {
                let node = &mut self.readouts[usize::from(index)];
                node.start(readout(&site, &node.around, index));
            }
            Place::Builder(index) => {
                let node = &mut self.builders[usize::from(index)];
                node.start(builder(&site, &node.around, index));
            }
            Place::Source(index) => {
                let node = &mut self.front_ends[usize::from(index)];
                node.start(FrontEnd::new(&site, &node.around, index));
            }
        }
    }

    /// Somebody begins to bother a readout unit.
    pub(super) fn invite_stranger(&mut self, readout: u16) -> usize {
        let place = Place::Source((self.front_ends.len() + self.strangers.len()) as u16);
        let mut node = Node::new(place, NodeClock::new(self.clock.clone(), 0), &self.recorder);
        let site = Site { scenario: &self.scenario, network: &self.network, storages: &self.storages };
        let seed = self.scenario.seed + self.strangers.len() as u64;
        node.start(Stranger::new(&site, &node.around, readout, seed));
        self.strangers.push(node);
        self.strangers.len() - 1
    }

    /// The present time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Mixed from everything that happened: equal for equal histories.
    pub fn digest(&self) -> u64 {
        self.recorder.borrow().digest()
    }

    /// Everything that happened, line by line, where that was asked for.
    pub fn take_text(&mut self) -> String {
        self.recorder.borrow_mut().take_text()
    }

    /// The trace for Perfetto, where that was asked for.
    pub fn take_trace(&mut self) -> Option<serde_json::Value> {
        let trace = self.recorder.borrow_mut().perfetto.take();
        trace.map(|trace| trace.finish(self.clock.now()))
    }

    /// Everybody, in a fixed order.
    pub(super) fn members(&mut self) -> Vec<&mut dyn Member> {
        let mut all: Vec<&mut dyn Member> = Vec::with_capacity(16);
        all.extend(self.front_ends.iter_mut().map(|node| node as &mut dyn Member));
        all.extend(self.readouts.iter_mut().map(|node| node as &mut dyn Member));
        all.push(&mut self.manager);
        all.extend(self.builders.iter_mut().map(|node| node as &mut dyn Member));
        all.extend(self.strangers.iter_mut().map(|node| node as &mut dyn Member));
        all
    }

    /// One member.
    pub(super) fn member(&mut self, place: Place) -> &mut dyn Member {
        match place {
            Place::Manager => &mut self.manager,
            Place::Readout(index) => &mut self.readouts[usize::from(index)],
            Place::Builder(index) => &mut self.builders[usize::from(index)],
            Place::Source(index) => &mut self.front_ends[usize::from(index)],
        }
    }

    /// Turns everybody who is due, beginning with somebody else each time. Whether anybody was, and did something.
    fn round(&mut self) -> Result<(bool, usize), Broken> {
        let scenario = Rc::clone(&self.scenario);
        let count = self.front_ends.len() + self.readouts.len() + 1 + self.builders.len() + self.strangers.len();
        let first = self.order.below(count as u64) as usize;
        let mut members = self.members();
        let (mut any, mut work, mut result) = (false, 0, Ok(()));
        for index in 0..count {
            let member = &mut members[(first + index) % count];
            if !member.is_due() {
                continue;
            }
            any = true;
            match member.turn(&scenario) {
                Ok(done) => work += done,
                Err(broken) => result = result.and(Err(broken)),
            }
        }
        result.map(|()| (any, work))
    }

    /// Turns everybody until nobody is due, then moves the clock to when somebody is, or something goes wrong.
    ///
    /// # Errors
    /// What a checker found.
    pub fn step(&mut self) -> Result<(), Broken> {
        self.inject();
        self.command_the_end();
        let (mut rounds, mut done) = (0, 0);
        loop {
            let (any, work) = self.round()?;
            if !any {
                break;
            }
            (rounds, done) = (rounds + 1, done + work);
            Broken::unless(rounds < MOST_TURNS, Checker::Liveness, || "nodes do not come to rest".to_owned())?;
        }
        self.watch()?;
        if self.manager.is_done() {
            self.manager_done.get_or_insert(self.clock.now());
        }
        self.idle_steps = if done > 0 { 0 } else { self.idle_steps + 1 };
        Broken::unless(self.idle_steps < MOST_IDLE, Checker::Liveness, || {
            let soon = self.now().after(Duration::from_micros(1));
            let members = self.members().into_iter();
            let restless = members.filter(|member| member.next_time().is_some_and(|time| time <= soon));
            let names: Vec<String> = restless.map(|member| member.around().place.to_string()).collect();
            format!("{names:?} have turns again and again and do nothing")
        })?;
        let next = self.members().into_iter().filter_map(|member| member.next_time()).min();
        let end = (!self.commanded).then(|| Instant::ZERO.after(self.end_command().0));
        let farewell = self.manager_done.map(|since| since.after(FAREWELL)).filter(|&farewell| farewell > self.now());
        let next = [next, self.injection.next(), end, farewell].into_iter().flatten().min();
        let now = self.now();
        let limit = self.limit();
        Broken::unless(next.is_some() || self.has_ended(), Checker::Liveness, || {
            format!("nobody waits for anything: {}", self.described())
        })?;
        self.clock.set(next.unwrap_or(now).max(now.after(Duration::from_nanos(1))).min(limit));
        Ok(())
    }

    /// What ends the run if it does not end by itself, and when: somebody stops a run whose last event got lost on its
    /// way from every source, since nobody else can know that it will not come.
    fn end_command(&self) -> (Duration, RunCommand) {
        let stop = RunCommand::Stop { last: None };
        match self.scenario.end {
            End::Stop(time) => (time, stop),
            End::Force(time) => (time, RunCommand::ForceStop),
            End::Last => {
                (self.scenario.faults_end().max(self.scenario.pace * self.scenario.events as u32) + SURPRISE, stop)
            }
        }
    }

    fn command_the_end(&mut self) {
        let (time, command) = self.end_command();
        if self.commanded || self.now() < Instant::ZERO.after(time) {
            return;
        }
        self.commanded = true;
        let now = self.manager.around.clock.now();
        if let Some(manager) = &mut self.manager.machine {
            manager.command(now, command);
        }
        self.manager.set_health(self.manager.health);
    }

    /// When everything should be over.
    fn limit(&self) -> Instant {
        let scenario = &self.scenario;
        let commanded = match scenario.end {
            End::Stop(time) | End::Force(time) => time,
            End::Last => Duration::ZERO,
        };
        let last = scenario.faults_end().max(commanded).max(scenario.pace * scenario.events as u32);
        Instant::ZERO.after(last + PATIENCE)
    }

    /// The run is over, and everybody who was dismissed has ended.
    pub(super) fn has_ended(&self) -> bool {
        if !self.manager.is_done() || !self.injection.is_over() {
            return false;
        }
        // Whoever was away when the run ended waits for another event manager, for longer than anybody here.
        let patience = self.manager_done.is_some_and(|since| self.now() >= since.after(FAREWELL));
        patience || self.readouts.iter().all(Member::is_done) && self.builders.iter().all(Member::is_done)
    }

    /// Goes on until the run is over.
    ///
    /// # Errors
    /// What a checker found, or that the run does not end.
    pub fn run(&mut self) -> Result<(), Broken> {
        while !self.has_ended() {
            Broken::unless(self.now() < self.limit(), Checker::Liveness, || {
                format!("the run does not end: {}", self.described())
            })?;
            self.step()?;
        }
        Ok(())
    }

    /// How far the run is.
    pub(super) fn situation(&self) -> Situation {
        let away = self.readouts.iter().any(|node| node.health != Health::Up)
            || self.builders.iter().any(|node| node.health != Health::Up)
            || self.manager.health != Health::Up;
        let Some(manager) = &self.manager.machine else { return Situation::Recovering };
        let account = manager.machine().account();
        let sent_all =
            self.front_ends.iter().all(|node| node.machine().is_some_and(|one| one.next > self.scenario.events));
        match manager.phase() {
            RunPhase::Initial | RunPhase::Configured => Situation::Idle,
            RunPhase::Ended => Situation::Ended,
            _ if away => Situation::Recovering,
            RunPhase::Draining => Situation::Draining,
            RunPhase::Running if sent_all => Situation::Draining,
            RunPhase::Running if account.built + account.incomplete_emitted == 0 => Situation::Starting,
            RunPhase::Running => Situation::Running,
        }
    }

    /// The run as its event manager knows it.
    pub fn snapshot(&mut self) -> RunSnapshot {
        self.manager.machine.as_mut().map(|manager| RunSnapshot::of(manager.standing())).unwrap_or_default()
    }

    /// How far everybody is, for people.
    pub fn described(&mut self) -> String {
        let snapshot = self.snapshot();
        let next: Vec<u64> = self.front_ends.iter().filter_map(|node| Some(node.machine()?.next)).collect();
        let (fragments, events) = (snapshot.ledger.fragments, snapshot.ledger.events);
        let dropped: Vec<_> = fragments.dropped.iter().chain(events.incomplete_dropped.iter()).collect();
        let state = self.manager.machine().map(|manager| manager.machine().state());
        format!(
            "at {:?}, sources are at {next:?}, phase {:?} ({state:?}), nodes {:?}, {} fragments received, {} complete, \
             {} not, {} late, {} in flight, {} events assigned, {} built, {} incomplete, {} in flight, dropped {dropped:?}",
            self.now().since(Instant::ZERO),
            snapshot.phase,
            snapshot.nodes.iter().map(|(node, connected)| format!("{node} {connected}")).collect::<Vec<_>>(),
            fragments.received,
            fragments.in_complete_events,
            fragments.in_incomplete_events,
            fragments.late,
            fragments.in_flight,
            events.assigned,
            events.built,
            events.incomplete_emitted,
            events.in_flight,
        )
    }
}
