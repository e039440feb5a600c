//! The members of a run, the clock that turns them, and the moments at which something goes wrong.

use super::cluster::{Active, Cluster, Core, Seeded};
use super::fault::{Place, Scheduled};
use super::inject::Disturbance;
use super::machines::{
    BuilderMachine, Card, FrontEnd, Journal, ManagerMachine, ReadoutMachine, Site, Stranger, Subscriber, builder,
    readout,
};
use super::node::{Machine, Member, Node, NodeClock};
use super::outcome::Broken;
use super::recorder::{Recorder, Shared};
use super::referee::Safe;
use super::reign::Reign;
use super::runner::{Situation, SystemKind};
use super::scenario::{End, Scenario};
use ropewalk_engine::RunSnapshot;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::manager::ManagerState;
use ropewalk_io::clock::SimulatedClock;
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_io::simulated::Network;
use ropewalk_terms::Instant;
use std::rc::Rc;
use std::time::Duration;

/// After the last fault is over, and everybody has had his time, so long until the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long after the event manager has ended everybody has who was dismissed.
const FAREWELL: Duration = Duration::from_secs(5);

/// A run in virtual time.
pub struct World {
    pub(super) core: Core,
    pub(super) scenario: Rc<Scenario>,
    pub(super) network: Network,
    pub(super) storages: Vec<SimulatedStorage>,
    pub(super) front_ends: Vec<Node<FrontEnd>>,
    /// In the order of the scenario's.
    pub(super) cards: Vec<Node<Card>>,
    /// Of all cards, and what each got in all its lives.
    pub(super) subscribers: Vec<Node<Subscriber>>,
    pub(super) journals: Vec<Journal>,
    pub(super) readouts: Vec<Node<ReadoutMachine>>,
    pub(super) managers: Vec<Node<ManagerMachine>>,
    pub(super) builders: Vec<Node<BuilderMachine>>,
    pub(super) strangers: Vec<Node<Stranger>>,
    /// What really went wrong, for the judge of losses.
    pub(super) happened: Vec<Disturbance>,
    pub(super) safe: Safe,
    pub(super) reign: Reign,
    /// How many of the scenario's words about masks were said.
    pub(super) masks_said: usize,
}

impl Seeded for Scenario {
    type World = World;

    const KIND: SystemKind = SystemKind::Pull;

    fn world(self, recorder: Recorder) -> World {
        World::new(self, recorder)
    }

    fn faults(&self) -> &[Scheduled] {
        &self.faults
    }

    fn faults_mut(&mut self) -> &mut Vec<Scheduled> {
        &mut self.faults
    }
}

/// Members whose machines are still to be started.
fn nodes<M: Machine>(
    places: impl Iterator<Item = Place>,
    scenario: &Scenario,
    clock: &SimulatedClock,
    recorder: &Shared,
) -> Vec<Node<M>> {
    places.map(|place| Node::new(place, NodeClock::new(clock.clone(), scenario.drift(place)), recorder)).collect()
}

impl World {
    /// All members of a scenario and the command to start; no member has had a turn yet.
    fn new(scenario: Scenario, recorder: Recorder) -> Self {
        let core = Core::new(scenario.seed, &scenario.faults, recorder);
        let (clock, recorder) = (&core.clock, &core.recorder);
        let front_ends = (0..scenario.sources.len() as u16).map(Place::Source);
        let cards = scenario.cards.iter().map(|card| Place::Card(card.readout));
        let subscribers = (0..scenario.subscribers().count() as u16).map(Place::Subscriber);
        let readouts = (0..scenario.readouts).map(Place::Readout);
        let builders = (0..scenario.builders).map(Place::Builder);
        let disk = |index: u16| SimulatedStorage::new(scenario.seed ^ u64::from(index) << 32, scenario.disk.clone());
        let mut world = Self {
            network: Network::new(scenario.seed, scenario.network.clone()),
            storages: (0..scenario.builders).map(disk).collect(),
            front_ends: nodes(front_ends, &scenario, clock, recorder),
            cards: nodes(cards, &scenario, clock, recorder),
            journals: subscribers.clone().map(|_| Journal::default()).collect(),
            subscribers: nodes(subscribers, &scenario, clock, recorder),
            readouts: nodes(readouts, &scenario, clock, recorder),
            managers: nodes(scenario.manager_places(), &scenario, clock, recorder),
            builders: nodes(builders, &scenario, clock, recorder),
            strangers: Vec::new(),
            happened: Vec::new(),
            safe: Safe::default(),
            reign: Reign::new(&scenario),
            masks_said: 0,
            core,
            scenario: Rc::new(scenario),
        };
        world.start_everybody();
        world
    }

    fn start_everybody(&mut self) {
        // Doors first: front ends that find none look again a moment later.
        let managers = if self.reign.service.is_some() { self.managers.len() } else { 1 };
        let managers = (0..managers as u16).map(Place::Manager);
        let places = (0..self.readouts.len() as u16).map(Place::Readout).chain(managers);
        let places = places.chain((0..self.builders.len() as u16).map(Place::Builder));
        let sources =
            (0..self.front_ends.len() as u16).filter(|&source| self.scenario.card_of(source.into()).is_none());
        let subscribers = (0..self.subscribers.len() as u16).map(Place::Subscriber);
        let places: Vec<Place> = places.chain(sources.map(Place::Source)).chain(subscribers).collect();
        for (node, setting) in self.cards.iter_mut().zip(&self.scenario.cards) {
            node.start((Card::new(&self.scenario, setting), Vec::new()));
        }
        places.into_iter().for_each(|place| self.start(place));
        self.command_the_start();
    }

    /// What machines are wired to.
    pub(super) fn site(&self) -> Site<'_> {
        let Self { scenario, network, storages, reign, .. } = self;
        Site { scenario, network, storages, coordination: reign.service.as_ref() }
    }

    /// A process is started, for the first time or again.
    pub(super) fn start(&mut self, place: Place) {
        match place {
            Place::Manager(index) => self.start_manager(index),
            Place::Readout(index) => {
                let mut begun = readout(&self.site(), &self.readouts[usize::from(index)].around, index);
                begun.1.extend(self.attach_card(index, &mut begun.0));
                self.readouts[usize::from(index)].start(begun);
            }
            Place::Builder(index) => {
                let begun = builder(&self.site(), &self.builders[usize::from(index)].around, index);
                self.builders[usize::from(index)].start(begun);
            }
            Place::Source(index) => {
                let begun = FrontEnd::new(&self.site(), &self.front_ends[usize::from(index)].around, index);
                self.front_ends[usize::from(index)].start(begun);
            }
            Place::Subscriber(index) => {
                let (node, journal) = (&self.subscribers[usize::from(index)], &self.journals[usize::from(index)]);
                let wanted = self.scenario.subscribers().nth(index.into());
                let (card, setting) = wanted.expect("there are as many subscribers as the scenario has");
                let ring = self.ring_of(index.into());
                let begun = Subscriber::new(&self.site(), &node.around, card, setting, journal, ring);
                self.subscribers[usize::from(index)].start(begun);
            }
            // Cards are there from the beginning, and no processes.
            _ => {}
        }
    }

    /// A stranger begins to bother a readout unit.
    pub(super) fn invite_stranger(&mut self, readout: Place) -> Place {
        let place = Place::Source((self.front_ends.len() + self.strangers.len()) as u16);
        let mut node = Node::new(place, NodeClock::new(self.core.clock.clone(), 0), &self.core.recorder);
        let seed = self.scenario.seed + self.strangers.len() as u64;
        node.start(Stranger::new(&self.site(), &node.around, readout.index(), seed));
        self.strangers.push(node);
        place
    }

    /// Everybody, in a fixed order.
    pub(super) fn members(&mut self) -> Vec<&mut dyn Member> {
        let mut all: Vec<&mut dyn Member> = Vec::with_capacity(16);
        all.extend(self.front_ends.iter_mut().map(|node| node as &mut dyn Member));
        all.extend(self.cards.iter_mut().map(|node| node as &mut dyn Member));
        all.extend(self.readouts.iter_mut().map(|node| node as &mut dyn Member));
        all.extend(self.managers.iter_mut().map(|node| node as &mut dyn Member));
        all.extend(self.builders.iter_mut().map(|node| node as &mut dyn Member));
        all.extend(self.strangers.iter_mut().map(|node| node as &mut dyn Member));
        all.extend(self.subscribers.iter_mut().map(|node| node as &mut dyn Member));
        all
    }

    /// One member.
    pub(super) fn member(&mut self, place: Place) -> &mut dyn Member {
        match place {
            Place::Manager(index) => &mut self.managers[usize::from(index)],
            Place::Readout(index) => &mut self.readouts[usize::from(index)],
            Place::Builder(index) => &mut self.builders[usize::from(index)],
            Place::Source(index) => match self.scenario.card_of(index.into()) {
                Some((card, _)) => &mut self.cards[card],
                None => &mut self.front_ends[usize::from(index)],
            },
            Place::Subscriber(index) => &mut self.subscribers[usize::from(index)],
            _ => {
                let card = self.scenario.cards.iter().position(|card| place == Place::Card(card.readout));
                &mut self.cards[card.expect("only cards that are there are asked for")]
            }
        }
    }

    /// The run as its event manager knows it.
    pub(super) fn snapshot(&mut self) -> RunSnapshot {
        let speaker = self.speaker().map(usize::from);
        let machine = speaker.and_then(|index| self.managers[index].machine.as_mut());
        machine.map(|manager| RunSnapshot::of(manager.drive_mut().standing())).unwrap_or_default()
    }

    /// The next event of each front end and of each card.
    fn progress(&self) -> Vec<u64> {
        let front_ends = self.front_ends.iter().filter_map(|node| Some(node.machine()?.next));
        front_ends.chain(self.cards.iter().filter_map(|node| Some(node.machine()?.next()))).collect()
    }
}

impl Cluster for World {
    const MOST_ROUNDS: u32 = 20_000;
    const MOST_IDLE: u32 = 20_000;

    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn situation(&self) -> Option<Situation> {
        let away = self.readouts.iter().any(|node| !node.is_up())
            || self.builders.iter().any(|node| !node.is_up())
            || self.managers.iter().any(|node| node.pauses > 0);
        let leaderless = if self.reign.obedience.is_empty() { Situation::Idle } else { Situation::Recovering };
        let Some(manager) = self.spoken_for().map(ManagerMachine::drive) else { return Some(leaderless) };
        let account = manager.machine().account();
        let away = away || manager.machine().state() == ManagerState::Recovering;
        let next = self.progress();
        let sent_all = next.into_iter().all(|next| next > self.scenario.events);
        let is_begun = manager.machine().state() != ManagerState::Idle;
        Some(match manager.phase() {
            RunPhase::Initial | RunPhase::Configured if !is_begun => Situation::Idle,
            RunPhase::Initial | RunPhase::Configured => Situation::Starting,
            RunPhase::Ended => return None,
            _ if away => Situation::Recovering,
            RunPhase::Draining => Situation::Draining,
            RunPhase::Running if sent_all => Situation::Draining,
            RunPhase::Running if account.built + account.incomplete_emitted == 0 => Situation::Starting,
            RunPhase::Running => Situation::Running,
        })
    }

    fn begin(&mut self, now: Instant, active: &mut Active) -> bool {
        Self::begin(self, now, active)
    }

    fn end(&mut self, active: &Active) {
        self.end_fault(active);
    }

    fn command(&mut self) {
        self.command_the_end();
        self.command_masks();
    }

    fn round(&mut self) -> Result<(bool, usize), Broken> {
        let scenario = Rc::clone(&self.scenario);
        let count = self.front_ends.len() + self.cards.len() + self.readouts.len() + self.managers.len();
        let count = count + self.builders.len() + self.strangers.len() + self.subscribers.len();
        let turns = self.core.in_turns(count);
        let mut obedience = std::mem::take(&mut self.reign.obedience);
        let mut members = self.members();
        let (mut any, mut work, mut result) = (false, 0, Ok(()));
        for index in turns {
            let member = &mut members[index];
            if !member.is_due() {
                continue;
            }
            any = true;
            match member.turn(&scenario) {
                Ok(done) => work += done,
                Err(broken) => result = result.and(Err(broken)),
            }
            result = result.and(obedience.look(&**member));
        }
        self.reign.obedience = obedience;
        result?;
        if any {
            self.look_at_cards();
        }
        Ok((any, work))
    }

    fn rest(&mut self) -> Result<(), Broken> {
        self.watch()?;
        self.look_at_managers();
        Ok(())
    }

    fn next_moment(&mut self) -> Option<Instant> {
        let now = self.core.now();
        let next = self.members().into_iter().filter_map(|member| member.next_time()).min();
        let end = Some(Instant::ZERO.after(self.end_command().0));
        let farewell = self.reign.ended.map(|(_, since)| since.after(FAREWELL));
        let commands = [end, farewell].into_iter().flatten().filter(|&time| time > now);
        commands.chain(next).chain(self.next_mask()).min()
    }

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
    fn has_ended(&self) -> bool {
        let Some((_, since)) = self.reign.ended.filter(|_| self.core.schedule.is_over()) else { return false };
        // A unit that was away when the run ended waits for another event manager, longer than the simulation lasts.
        let patience = self.core.now() >= since.after(FAREWELL);
        patience || self.readouts.iter().all(Member::is_done) && self.builders.iter().all(Member::is_done)
    }

    fn judge(&mut self) -> Result<(), Broken> {
        Self::judge(self)
    }

    fn described(&mut self) -> String {
        let (now, next, RunSnapshot { phase, nodes, ledger, .. }) =
            (self.core.now().since(Instant::ZERO), self.progress(), self.snapshot());
        let state = self.spoken_for().map(|manager| manager.drive().machine().state());
        let (fragments, events) = (ledger.fragments, ledger.events);
        format!(
            "at {now:?}, sources are at {next:?}, {phase:?} ({state:?}), nodes {nodes:?}, {fragments:?}, {events:?}"
        )
    }
}
