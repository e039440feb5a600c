//! The members of a run, the clock that turns them, and what faults do to members, network and disks.

use super::cluster::{Active, Cluster, Core, Seeded, seeded};
use super::fault::{ELSEWHERE, Fault, FaultKind, POWER, Place, RESET, Scheduled};
use super::filters::Board;
use super::machines::{
    BuilderMachine, Card, FilterNode, FrontEnd, Journal, ManagerMachine, ReadoutMachine, Site, Stranger, Subscriber,
    builder, readout,
};
use super::node::{Machine, Member, Node, NodeClock};
use super::recorder::{Recorder, Shared};
use super::referee::Safe;
use super::reign::{Reach, Reign};
use super::runner::{Broken, Situation, SystemKind};
use super::scenario::{End, Scenario};
use ropewalk_engine::RunSnapshot;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::manager::ManagerState;
use ropewalk_io::clock::SimulatedClock;
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_io::simulated::{Faults, Network};
use ropewalk_terms::Instant;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// After the last fault is over, and everybody has had his time, so long until the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time that the other nodes have to end after the event manager has ended.
const SHUTDOWN_TIME: Duration = Duration::from_secs(5);

/// A run in virtual time.
pub struct World {
    pub(super) core: Core,
    pub(super) scenario: Rc<Scenario>,
    pub(super) network: Network,
    pub(super) storages: Vec<SimulatedStorage>,
    pub(super) boards: Vec<Board>,
    pub(super) front_ends: Vec<Node<FrontEnd>>,
    /// In the order of the scenario's.
    pub(super) cards: Vec<Node<Card>>,
    /// Of all cards, and what each got in all its lives.
    pub(super) subscribers: Vec<Node<Subscriber>>,
    pub(super) journals: Vec<Journal>,
    pub(super) readouts: Vec<Node<ReadoutMachine>>,
    pub(super) managers: Vec<Node<ManagerMachine>>,
    pub(super) builders: Vec<Node<BuilderMachine>>,
    /// Those of the first builder unit, then those of the second one, and so on.
    pub(super) filter_nodes: Vec<Node<FilterNode>>,
    pub(super) strangers: Vec<Node<Stranger>>,
    /// What really went wrong, for the judge of losses.
    pub(super) happened: Vec<Disturbance>,
    pub(super) safe: Safe,
    pub(super) reign: Reign,
    /// How many of the scenario's words about masks were said.
    pub(super) masks_said: usize,
}

seeded!(Pull);

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
            boards: (0..scenario.builders).map(|_| Board::default()).collect(),
            front_ends: nodes(front_ends, &scenario, clock, recorder),
            cards: nodes(cards, &scenario, clock, recorder),
            journals: subscribers.clone().map(|_| Journal::default()).collect(),
            subscribers: nodes(subscribers, &scenario, clock, recorder),
            readouts: nodes(readouts, &scenario, clock, recorder),
            managers: nodes(scenario.manager_places(), &scenario, clock, recorder),
            builders: nodes(builders, &scenario, clock, recorder),
            filter_nodes: nodes(scenario.filter_nodes(), &scenario, clock, recorder),
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
        let places = places.chain(sources.map(Place::Source)).chain(subscribers);
        let places: Vec<Place> = self.scenario.filter_nodes().chain(places).collect();
        for (node, setting) in self.cards.iter_mut().zip(&self.scenario.cards) {
            node.start((Card::new(&self.scenario, setting), Vec::new()));
        }
        places.into_iter().for_each(|place| self.start(place));
        self.command_the_start();
    }

    /// What machines are wired to.
    pub(super) fn site(&self) -> Site<'_> {
        let Self { scenario, network, storages, boards, reign, .. } = self;
        Site { scenario, network, storages, boards, coordination: reign.service.as_ref() }
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
            Place::Filter(builder, unit) => {
                let index = self.filter_node(builder, unit);
                let filters = self.scenario.filters.as_ref().expect("a scenario with filter nodes has filters");
                let begun = FilterNode::new(&self.site(), &self.filter_nodes[index].around, filters, (builder, unit));
                self.filter_nodes[index].start(begun);
            }
            // Cards are there from the beginning, and no processes.
            _ => {}
        }
    }

    /// The index of a builder unit's filter node.
    fn filter_node(&self, builder: u16, unit: u16) -> usize {
        let units = self.scenario.filters.as_ref().map_or(0, |filters| filters.units);
        usize::from(builder * units + unit)
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
        all.extend(self.filter_nodes.iter_mut().map(|node| node as &mut dyn Member));
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
            Place::Filter(builder, unit) => {
                let index = self.filter_node(builder, unit);
                &mut self.filter_nodes[index]
            }
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

    /// Carries out a fault; false if nothing can go wrong.
    fn begin_fault(&mut self, now: Instant, active: &mut Active) -> bool {
        use FaultKind::*;
        let (until, fault) = (active.until, &active.scheduled.fault);
        if fault.places.iter().any(|&place| self.scenario.is_on_card(place)) {
            self.trouble_card(fault, until);
            return true;
        }
        match fault.kind {
            Pause | Reconnect | ManagerPause | SubscriberSleeps => {
                return self.member(fault.place()).pause();
            }
            Crash | ManagerCrash | SubscriberKilled => {
                return self.crash(fault.place(), false);
            }
            PowerCut | ManagerPowerCut => return self.crash(fault.place(), true),
            ManagerReplaced | ManagerOvertaken => return self.replace_manager(active),
            Reset => return self.cut_connections(fault.places[0], fault.places[1], true),
            HalfOpen => return self.cut_connections(fault.places[0], fault.places[1], false),
            SubscriberReset => {
                return self.cut_connections(fault.place(), self.server_of(fault.place()), true);
            }
            ClockStep => self.member(fault.place()).around().clock.step_utc(fault.number * 1_000_000),
            ClockDrift => self.member(fault.place()).around().clock.set_drift(fault.number as i32),
            Garbage => active.struck = Some(self.invite_stranger(fault.place())),
            // All sources know it from the beginning.
            Resync => {}
            kind if FaultKind::OF_FRONT_ENDS.contains(&kind) => self.order(now, until, fault),
            CardStalls | CardBurst => self.trouble_card(fault, until),
            kind if FaultKind::OF_FILTERS.contains(&kind) => return self.trouble_filter(fault),
            _ => self.set_state(fault, true),
        }
        true
    }

    /// A fault that is a state of disks, pools, lines or the coordination service begins or ends.
    fn set_state(&mut self, fault: &Fault, begins: bool) {
        use FaultKind::*;
        match fault.kind {
            PoolDry => self.member(fault.place()).around().dry.store(begins, Ordering::Relaxed),
            DiskFull | DiskErrors | DiskSlow => {
                self.set_disk(fault.place(), begins.then_some(fault));
            }
            SubscriberCutOff | SubscriberSlow => self.set_line_of_subscriber(fault, begins),
            ManagerCutOff => self.set_cut_off(fault.place(), begins),
            CoordinationCut => self.set_coordination(fault, |reach| {
                reach.cuts = reach.cuts.saturating_add_signed(if begins { 1 } else { -1 });
            }),
            CoordinationLate => {
                let late = if begins { fault.time } else { Duration::ZERO };
                self.set_coordination(fault, |reach| reach.late = late);
            }
            _ => self.set_link(fault, begins),
        }
    }

    /// The readout unit whose card a subscriber listens to.
    fn server_of(&self, subscriber: Place) -> Place {
        let card = self.scenario.subscribers().nth(subscriber.index().into());
        Place::Readout(card.map_or(0, |(card, _)| card.readout))
    }

    /// The line between a subscriber and its readout unit is dead or slow, or well again.
    fn set_line_of_subscriber(&mut self, fault: &Fault, begins: bool) {
        let (one, other) = (fault.place(), self.server_of(fault.place()));
        if fault.kind == FaultKind::SubscriberCutOff {
            return self.set_link(&Fault::between(FaultKind::Partition, one, other), begins);
        }
        // Who is slow has also little room: what waits for it waits at the server.
        let usual = self.scenario.network.clone();
        let slow = Faults { bandwidth: Some(fault.count()), window: SLOW_WINDOW, ..usual };
        for (one, other) in self.pairs(one, other, !begins) {
            self.network.set_link(one, other, begins.then(|| slow.clone()));
        }
    }

    /// The present event manager dies or falls asleep; in the latter case its successor is started at once.
    fn replace_manager(&mut self, active: &mut Active) -> bool {
        let (fault, present) = (&active.scheduled.fault, Place::Manager(self.reign.present));
        active.struck = Some(present);
        if fault.kind == FaultKind::ManagerReplaced {
            return self.crash(present, fault.is(POWER));
        }
        let Some(successor) = self.free_manager().filter(|_| self.member(present).pause()) else { return false };
        if fault.is(RESET) {
            self.forget_connections(present);
        }
        self.take_over(successor);
        true
    }

    /// Between an event manager and all units nothing passes, or everything again.
    fn set_cut_off(&mut self, manager: Place, begins: bool) {
        let units = (0..self.scenario.readouts).map(Place::Readout);
        let units: Vec<Place> = units.chain((0..self.scenario.builders).map(Place::Builder)).collect();
        for unit in units {
            self.set_link(&Fault::between(FaultKind::Partition, manager, unit), begins);
        }
    }

    /// Changes how an event manager, or all of them, reach the coordination service.
    fn set_coordination(&self, fault: &Fault, change: impl Fn(&mut Reach)) {
        let Some(service) = &self.reign.service else { return };
        let managers = 0..self.managers.len() as u16;
        let struck = managers.filter(|&one| fault.places.is_empty() || fault.places == [Place::Manager(one)]);
        struck.for_each(|manager| change(&mut service.borrow_mut().reach[usize::from(manager)]));
    }

    /// A process ends; where its machine's power is cut, the network is not told, and the disk loses what it had not
    /// synced.
    fn crash(&mut self, place: Place, power: bool) -> bool {
        if self.member(place).is_down() || self.member(place).is_done() || self.has_ended_the_run(place) {
            return false;
        }
        self.note_safe(place, power);
        if power {
            for host in self.member(place).hosts(false) {
                self.network.power_off(host);
            }
        }
        self.member(place).kill();
        if let (true, Place::Builder(index)) = (power, place) {
            self.storages[usize::from(index)].cut_power();
            self.note_safe_after_power_cut();
        }
        true
    }

    fn revive(&mut self, place: Place) {
        if !self.member(place).is_down() {
            return;
        }
        self.start(place);
        self.strike_again(place);
    }

    /// What goes wrong on a node's lines goes on in its new life, which has another place on the network.
    fn strike_again(&mut self, place: Place) {
        let faults: Vec<Fault> = self.core.schedule.active().cloned().collect();
        for fault in &faults {
            if fault.kind == FaultKind::ManagerCutOff && !place.is_outside() {
                self.set_cut_off(fault.place(), true);
            } else if fault.places.contains(&place) {
                self.set_link(fault, true);
            }
        }
    }

    /// Something goes wrong with a card, which has a turn then.
    fn trouble_card(&mut self, fault: &Fault, until: Instant) {
        let [place] = fault.places[..] else { return };
        let index = match place {
            Place::Source(source) => self.scenario.card_of(source.into()),
            Place::Card(readout) => {
                self.scenario.cards.iter().position(|card| card.readout == readout).map(|card| (card, 0))
            }
            _ => None,
        };
        let Some((card, link)) = index else { return };
        self.cards[card].machine.iter_mut().for_each(|machine| machine.order(link, until, fault));
        self.cards[card].wake();
    }

    fn order(&mut self, now: Instant, until: Instant, fault: &Fault) {
        let node = &mut self.front_ends[usize::from(fault.place().index())];
        node.machine.iter_mut().for_each(|machine| machine.order(now, until, fault));
        node.wake();
    }

    /// Every pair of places on the network of two members; where `ever`, in all their lives.
    fn pairs(&mut self, one: Place, other: Place, ever: bool) -> Vec<(u32, u32)> {
        let [ones, others] = [one, other].map(|place| self.member(place).hosts(ever));
        ones.iter().flat_map(|&one| others.iter().map(move |&other| (one, other))).collect()
    }

    fn set_link(&mut self, fault: &Fault, begins: bool) {
        let &[one, other] = fault.places.as_slice() else { return };
        let usual = &self.scenario.network;
        let changed = match fault.kind {
            FaultKind::Delay => Faults { least_latency: fault.time, most_latency: fault.time, ..usual.clone() },
            FaultKind::SlowLink => Faults { bandwidth: Some(fault.count()), ..usual.clone() },
            _ => usual.clone(),
        };
        // What a process said before it died, and did not arrive, arrives when its lines are well again.
        for (one, other) in self.pairs(one, other, !begins) {
            match fault.kind {
                FaultKind::Delay | FaultKind::SlowLink => {
                    self.network.set_link(one, other, begins.then(|| changed.clone()));
                }
                FaultKind::Partition if begins => self.network.partition(one, other),
                FaultKind::OneWay if begins => self.network.partition_one_way(one, other),
                FaultKind::Partition | FaultKind::OneWay => self.network.heal(one, other),
                _ => {}
            }
        }
    }

    /// Ends the connections between two members; false where there are none.
    fn cut_connections(&mut self, one: Place, other: Place, told: bool) -> bool {
        let mut any = false;
        for (one, other) in self.pairs(one, other, false) {
            let between = self.network.connections_of(one).into_iter().filter(|&(peer, _)| peer == other);
            for (_, endpoint) in between {
                any = true;
                if told { self.network.reset(one, endpoint) } else { self.network.half_open(one, endpoint) }
            }
        }
        any
    }

    fn forget_connections(&mut self, place: Place) {
        for host in self.member(place).hosts(false) {
            for (_, endpoint) in self.network.connections_of(host) {
                self.network.reset(host, endpoint);
            }
        }
    }

    /// The disk of a builder unit as all faults that go on, and perhaps one more, make it.
    fn set_disk(&mut self, builder: Place, one_more: Option<&Fault>) {
        let mut disk = self.scenario.disk.clone();
        for fault in self.core.schedule.active().chain(one_more).filter(|fault| fault.places == [builder]) {
            fault.strike_disk(&mut disk);
        }
        self.storages[usize::from(builder.index())].set_faults(disk);
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

    /// Carries out a fault and remembers it.
    fn begin(&mut self, now: Instant, active: &mut Active) -> bool {
        if !self.begin_fault(now, active) {
            return false;
        }
        let fault = active.scheduled.fault.clone();
        // A member that hears nothing of a dead connection finds out so much later.
        let is_untold = match fault.kind {
            FaultKind::HalfOpen | FaultKind::ManagerPowerCut => true,
            FaultKind::ManagerReplaced => fault.is(POWER),
            _ => false,
        };
        let found_out = if is_untold { now.after(self.scenario.network.give_up) } else { now };
        self.happened.push(Disturbance { from: now, until: active.until.max(found_out), fault });
        true
    }

    fn end(&mut self, active: &Active) {
        use FaultKind::*;
        let fault = &active.scheduled.fault;
        match fault.kind {
            Pause | ManagerPause | SubscriberSleeps => {
                self.member(fault.place()).resume();
            }
            Reconnect => {
                self.forget_connections(fault.place());
                self.member(fault.place()).resume();
            }
            Crash | PowerCut | ManagerCrash | ManagerPowerCut | SubscriberKilled => self.revive(fault.place()),
            ClockDrift => {
                let usual = self.scenario.drift(fault.place());
                self.member(fault.place()).around().clock.set_drift(usual);
            }
            ManagerReplaced => {
                // A run that has ended needs no new manager.
                let dead = active.struck.filter(|_| self.reign.ended.is_none());
                let Some(Place::Manager(dead)) = dead else { return };
                let successor = self.free_manager().filter(|_| fault.is(ELSEWHERE)).unwrap_or(dead);
                self.take_over(successor);
                self.strike_again(Place::Manager(successor));
            }
            ManagerOvertaken => {
                active.struck.into_iter().for_each(|place| self.member(place).resume());
            }
            Garbage => {
                let index = active.struck.map(|place| usize::from(place.index()) - self.front_ends.len());
                let stranger = index.and_then(|index| self.strangers.get_mut(index));
                stranger.and_then(|stranger| stranger.machine.as_mut()).into_iter().for_each(Stranger::leave);
            }
            _ => self.set_state(fault, false),
        }
    }

    fn command(&mut self) {
        self.command_the_end();
        self.command_masks();
    }

    fn round(&mut self) -> Result<(bool, usize), Broken> {
        let scenario = Rc::clone(&self.scenario);
        let count = self.members().len();
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
        let shutdown = self.reign.ended.map(|(_, since)| since.after(SHUTDOWN_TIME));
        let commands = [end, shutdown].into_iter().flatten().filter(|&time| time > now);
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
        let is_over = self.core.now() >= since.after(SHUTDOWN_TIME);
        is_over || self.readouts.iter().all(Member::is_done) && self.builders.iter().all(Member::is_done)
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

/// Bytes on their way to a subscriber that is slow, at most.
const SLOW_WINDOW: usize = 1 << 10;

/// What really happened, for the judge of losses.
#[derive(Clone, Debug)]
pub(super) struct Disturbance {
    pub(super) from: Instant,
    pub(super) until: Instant,
    pub(super) fault: Fault,
}
