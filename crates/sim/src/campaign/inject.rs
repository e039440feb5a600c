//! Faults begin and end: what each does to the members, the network and the disks.

use super::fault::{Fault, Place, Scheduled};
use super::machines::Misbehaviour;
use super::recorder::Happening;
use super::reign::Service;
use super::runner::Situation;
use super::world::World;
use ropewalk_io::simulated::Faults;
use ropewalk_terms::Instant;
use std::time::Duration;

/// Bytes on their way to a subscriber that is slow, at most.
const SLOW_WINDOW: usize = 1 << 10;

/// Whom a fault struck.
#[derive(Clone, Debug, Default)]
pub(super) struct Struck {
    /// The stranger that it brought.
    stranger: Option<usize>,
    /// The event manager.
    manager: Option<Place>,
}

type Active = super::cluster::Active<Fault, Struck>;

/// What really happened, for the judge of losses.
#[derive(Clone, Debug)]
pub(super) struct Disturbance {
    pub(super) from: Instant,
    pub(super) until: Instant,
    pub(super) fault: Fault,
}

impl World {
    /// Lets faults begin and end whose time has come.
    pub(super) fn inject(&mut self) {
        let now = self.now();
        if self.situation() == Situation::Ended {
            self.schedule.stop();
        }
        while let Some(active) = self.schedule.take_ended(now) {
            self.recorder.borrow_mut().note(now, Happening::Ends(&active.scheduled));
            self.end_fault(&active);
        }
        while let Some(scheduled) = self.schedule.take_due(now) {
            self.begin(now, scheduled);
        }
    }

    fn begin(&mut self, now: Instant, scheduled: Scheduled) {
        let situation = self.situation();
        let until = Instant::ZERO.after(scheduled.end()).max(now);
        let mut active = Active { until, scheduled, struck: Struck::default() };
        if !self.begin_fault(now, &mut active) {
            return;
        }
        let fault = active.scheduled.fault.clone();
        self.coverage.hit(fault.kind(), situation);
        self.recorder.borrow_mut().note(now, Happening::Begins(&active.scheduled));
        // Whoever is not told that a connection is dead finds out so much later.
        let until = match fault {
            Fault::HalfOpen { .. } | Fault::ManagerPowerCut(_) | Fault::ManagerReplaced { power: true, .. } => {
                until.max(now.after(self.scenario.network.give_up))
            }
            _ => until,
        };
        self.happened.push(Disturbance { from: now, until, fault });
        self.schedule.keep(now, active);
    }

    /// Carries out a fault; false where there is nothing to go wrong.
    fn begin_fault(&mut self, now: Instant, active: &mut Active) -> bool {
        let until = active.until;
        if active.scheduled.fault.places().iter().any(|&place| self.scenario.is_on_card(place)) {
            self.trouble_card(&active.scheduled.fault, until);
            return true;
        }
        match active.scheduled.fault {
            Fault::Pause(place) | Fault::Reconnect(place) => return self.member(place).pause(),
            Fault::Crash(place) => return self.crash(place, false),
            Fault::PowerCut(place) => return self.crash(place, true),
            Fault::ManagerCrash(_)
            | Fault::ManagerPowerCut(_)
            | Fault::ManagerPause(_)
            | Fault::ManagerCutOff(_)
            | Fault::CoordinationCut(_)
            | Fault::CoordinationLate { .. }
            | Fault::ManagerReplaced { .. }
            | Fault::ManagerOvertaken { .. } => return self.begin_fault_of_managers(active),
            Fault::Reset { one, other } => return self.cut_connections(one, other, true),
            Fault::HalfOpen { one, other } => return self.cut_connections(one, other, false),
            Fault::ClockStep { place, milliseconds } => {
                self.member(place).around().clock.step_utc(milliseconds * 1_000_000);
            }
            Fault::ClockDrift { place, ppm } => self.member(place).around().clock.set_drift(ppm),
            Fault::PoolDry(place) => {
                self.member(place).around().dry.set(true);
            }
            Fault::Garbage(readout) => active.struck.stranger = Some(self.invite_stranger(readout)),
            Fault::DiskFull(builder) | Fault::DiskErrors(builder) | Fault::DiskSlow { builder, .. } => {
                self.set_disk(builder, Some(&active.scheduled.fault));
            }
            Fault::Delay { .. } | Fault::SlowLink { .. } | Fault::Partition { .. } | Fault::OneWay { .. } => {
                self.set_link(&active.scheduled.fault, true);
            }
            Fault::StopMidFragment(source) => self.order(now, source, Misbehaviour::StopMidFragment(until)),
            Fault::Disconnect(source) => self.order(now, source, Misbehaviour::Disconnect(until)),
            Fault::SendTwice { source, count } => self.order(now, source, Misbehaviour::SendTwice(count)),
            Fault::Skip { source, count } => self.order(now, source, Misbehaviour::Skip(count)),
            Fault::ResetCounter { source, count } => self.order(now, source, Misbehaviour::ResetCounter(count)),
            Fault::Jump(source) => self.order(now, source, Misbehaviour::Jump),
            Fault::WrongCrc(source) => self.order(now, source, Misbehaviour::Damage),
            Fault::HugeLength(source) => self.order(now, source, Misbehaviour::Huge),
            // All sources know it from the beginning.
            Fault::Resync { .. } => {}
            Fault::Slow(source) => self.order(now, source, Misbehaviour::Slow(until)),
            Fault::Link { .. } | Fault::CardStalls(_) | Fault::CardBurst { .. } => {
                self.trouble_card(&active.scheduled.fault, until);
            }
            Fault::SubscriberKilled(one) => return self.crash(Place::Subscriber(one), false),
            Fault::SubscriberSleeps(one) => return self.member(Place::Subscriber(one)).pause(),
            Fault::SubscriberReset(one) => {
                return self.cut_connections(Place::Subscriber(one), self.server_of(one), true);
            }
            Fault::SubscriberCutOff(one) | Fault::SubscriberSlow { subscriber: one, .. } => {
                self.set_line_of_subscriber(&active.scheduled.fault, one, true);
            }
        }
        true
    }

    fn end_fault(&mut self, active: &Active) {
        match active.scheduled.fault {
            Fault::Pause(place) => self.member(place).resume(),
            Fault::Reconnect(place) => {
                self.forget_connections(place);
                self.member(place).resume();
            }
            Fault::Crash(place) | Fault::PowerCut(place) => self.revive(place),
            Fault::ClockDrift { place, .. } => {
                let usual = self.scenario.drift(place);
                self.member(place).around().clock.set_drift(usual);
            }
            Fault::PoolDry(place) => {
                self.member(place).around().dry.set(false);
            }
            Fault::DiskFull(builder) | Fault::DiskErrors(builder) | Fault::DiskSlow { builder, .. } => {
                self.set_disk(builder, None);
            }
            Fault::Delay { .. } | Fault::SlowLink { .. } | Fault::Partition { .. } | Fault::OneWay { .. } => {
                self.set_link(&active.scheduled.fault, false);
            }
            Fault::SubscriberKilled(one) => self.revive(Place::Subscriber(one)),
            Fault::SubscriberSleeps(one) => self.member(Place::Subscriber(one)).resume(),
            Fault::SubscriberCutOff(one) | Fault::SubscriberSlow { subscriber: one, .. } => {
                self.set_line_of_subscriber(&active.scheduled.fault, one, false);
            }
            _ => self.end_fault_of_managers(active),
        }
        if let Some(stranger) = active.struck.stranger.and_then(|index| self.strangers.get_mut(index))
            && let Some(machine) = &mut stranger.machine
        {
            machine.leave();
        }
    }

    /// The readout unit whose card a subscriber listens to.
    fn server_of(&self, subscriber: u16) -> Place {
        let card = self.scenario.subscribers().nth(subscriber.into());
        Place::Readout(card.map_or(0, |(card, _)| card.readout))
    }

    /// The line between a subscriber and its readout unit is dead or slow, or well again.
    fn set_line_of_subscriber(&mut self, fault: &Fault, subscriber: u16, begins: bool) {
        let (one, other) = (Place::Subscriber(subscriber), self.server_of(subscriber));
        match *fault {
            // Who is slow has also little room: what waits for it waits at the server.
            Fault::SubscriberSlow { rate, .. } => {
                let slow = Faults { bandwidth: Some(rate), window: SLOW_WINDOW, ..self.scenario.network.clone() };
                for (one, other) in if begins { self.pairs(one, other) } else { self.pairs_ever(one, other) } {
                    self.network.set_link(one, other, begins.then(|| slow.clone()));
                }
            }
            _ => self.set_link(&Fault::Partition { one, other }, begins),
        }
    }

    fn begin_fault_of_managers(&mut self, active: &mut Active) -> bool {
        match active.scheduled.fault {
            Fault::ManagerCrash(manager) => return self.crash(Place::Manager(manager), false),
            Fault::ManagerPowerCut(manager) => return self.crash(Place::Manager(manager), true),
            Fault::ManagerPause(manager) => return self.member(Place::Manager(manager)).pause(),
            Fault::ManagerCutOff(manager) => self.set_cut_off(manager, true),
            Fault::CoordinationCut(manager) => {
                self.set_coordination(manager, |service, one| service.set_cut(one, true))
            }
            Fault::CoordinationLate { manager, late } => {
                self.set_coordination(Some(manager), |service, one| service.set_late(one, late));
            }
            Fault::ManagerReplaced { power, .. } => {
                let present = self.present_manager();
                active.struck.manager = Some(present);
                return self.crash(present, power);
            }
            Fault::ManagerOvertaken { reset } => {
                let present = self.present_manager();
                active.struck.manager = Some(present);
                let Some(successor) = self.free_manager().filter(|_| self.member(present).pause()) else {
                    return false;
                };
                if reset {
                    self.forget_connections(present);
                }
                self.take_over(successor);
            }
            _ => {}
        }
        true
    }

    fn end_fault_of_managers(&mut self, active: &Active) {
        match active.scheduled.fault {
            Fault::ManagerCrash(manager) | Fault::ManagerPowerCut(manager) => self.revive(Place::Manager(manager)),
            Fault::ManagerPause(manager) => self.member(Place::Manager(manager)).resume(),
            Fault::ManagerCutOff(manager) => self.set_cut_off(manager, false),
            Fault::CoordinationCut(manager) => {
                self.set_coordination(manager, |service, one| service.set_cut(one, false))
            }
            Fault::CoordinationLate { manager, .. } => {
                self.set_coordination(Some(manager), |service, one| service.set_late(one, Duration::ZERO));
            }
            Fault::ManagerReplaced { elsewhere, .. } => {
                // Nobody takes over what is over.
                let dead = active.struck.manager.filter(|_| self.reign.ended.is_none());
                let Some(Place::Manager(dead)) = dead else { return };
                let successor = self.free_manager().filter(|_| elsewhere).unwrap_or(dead);
                self.take_over(successor);
                self.strike_again(Place::Manager(successor));
            }
            Fault::ManagerOvertaken { .. } => {
                active.struck.manager.into_iter().for_each(|place| self.member(place).resume())
            }
            _ => {}
        }
    }

    /// Between an event manager and all units nothing passes, or everything again.
    fn set_cut_off(&mut self, manager: u16, begins: bool) {
        let units = (0..self.scenario.readouts).map(Place::Readout);
        let units: Vec<Place> = units.chain((0..self.scenario.builders).map(Place::Builder)).collect();
        for unit in units {
            self.set_link(&Fault::Partition { one: Place::Manager(manager), other: unit }, begins);
        }
    }

    /// Changes how an event manager, or all of them, reach the coordination service.
    fn set_coordination(&self, manager: Option<u16>, change: impl Fn(&mut Service, u16)) {
        let Some(service) = &self.reign.service else { return };
        let managers = manager.map_or(0..self.managers.len() as u16, |manager| manager..manager + 1);
        managers.for_each(|manager| change(&mut service.borrow_mut(), manager));
    }

    /// A process ends; where its machine's power is cut, the network is not told, and the disk loses what it had not
    /// synced.
    fn crash(&mut self, place: Place, power: bool) -> bool {
        if self.member(place).is_down() || self.member(place).is_done() || self.has_ended_the_run(place) {
            return false;
        }
        self.note_safe(place, power);
        if power {
            for host in self.member(place).hosts().to_vec() {
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
        let faults: Vec<Fault> = self.schedule.active().cloned().collect();
        for fault in &faults {
            match *fault {
                Fault::ManagerCutOff(manager) if !place.is_outside() => self.set_cut_off(manager, true),
                _ if fault.places().contains(&place) => self.set_link(fault, true),
                _ => {}
            }
        }
    }

    /// Something goes wrong with a card, which has a turn then.
    fn trouble_card(&mut self, fault: &Fault, until: Instant) {
        let [place] = fault.places()[..] else { return };
        let index = match place {
            Place::Source(source) => self.scenario.card_of(source.into()),
            Place::Card(readout) => {
                self.scenario.cards.iter().position(|card| card.readout == readout).map(|card| (card, 0))
            }
            _ => None,
        };
        let Some((card, link)) = index else { return };
        if let Some(card) = &mut self.cards[card].machine {
            match *fault {
                Fault::Link { trouble, .. } => card.order(link, until, trouble),
                Fault::CardStalls(_) => card.stall(until),
                Fault::CardBurst { count, .. } => card.hurry(count),
                Fault::SendTwice { count, .. } => card.link(link).send_twice(count),
                Fault::Skip { count, .. } => card.link(link).skip(count),
                Fault::Jump(_) => card.link(link).jump(),
                Fault::Slow(_) => card.link(link).be_slow(until),
                _ => {}
            }
        }
        self.cards[card].wake();
    }

    fn order(&mut self, now: Instant, source: u16, order: Misbehaviour) {
        let node = &mut self.front_ends[usize::from(source)];
        if let Some(machine) = &mut node.machine {
            machine.order(now, order);
        }
        node.wake();
    }

    /// Every pair of places on the network of two members.
    fn pairs(&mut self, one: Place, other: Place) -> Vec<(u32, u32)> {
        let others = self.member(other).hosts().to_vec();
        let ones = self.member(one).hosts().to_vec();
        ones.iter().flat_map(|&one| others.iter().map(move |&other| (one, other))).collect()
    }

    /// The same for all their lives.
    fn pairs_ever(&mut self, one: Place, other: Place) -> Vec<(u32, u32)> {
        let [ones, others] = [one, other].map(|place| {
            let member = self.member(place);
            [member.former_hosts(), member.hosts()].concat()
        });
        ones.iter().flat_map(|&one| others.iter().map(move |&other| (one, other))).collect()
    }

    fn set_link(&mut self, fault: &Fault, begins: bool) {
        let places = fault.places();
        let &[one, other] = places.as_slice() else { return };
        // What a process said before it died, and did not arrive, arrives when its lines are well again.
        let pairs = if begins { self.pairs(one, other) } else { self.pairs_ever(one, other) };
        let usual = self.scenario.network.clone();
        for (one, other) in pairs {
            match (fault, begins) {
                (Fault::Delay { latency, .. }, true) => {
                    let slow = Faults { least_latency: *latency, most_latency: *latency, ..usual.clone() };
                    self.network.set_link(one, other, Some(slow));
                }
                (Fault::SlowLink { rate, .. }, true) => {
                    self.network.set_link(one, other, Some(Faults { bandwidth: Some(*rate), ..usual.clone() }));
                }
                (Fault::Delay { .. } | Fault::SlowLink { .. }, false) => self.network.set_link(one, other, None),
                (Fault::Partition { .. }, true) => self.network.partition(one, other),
                (Fault::OneWay { .. }, true) => self.network.partition_one_way(one, other),
                (Fault::Partition { .. } | Fault::OneWay { .. }, false) => self.network.heal(one, other),
                _ => {}
            }
        }
    }

    /// Ends the connections between two members; false where there are none.
    fn cut_connections(&mut self, one: Place, other: Place, told: bool) -> bool {
        let mut any = false;
        for (one, other) in self.pairs(one, other) {
            let between = self.network.connections_of(one).into_iter().filter(|&(peer, _)| peer == other);
            for (_, endpoint) in between {
                any = true;
                if told { self.network.reset(one, endpoint) } else { self.network.half_open(one, endpoint) }
            }
        }
        any
    }

    fn forget_connections(&mut self, place: Place) {
        for host in self.member(place).hosts().to_vec() {
            for (_, endpoint) in self.network.connections_of(host) {
                self.network.reset(host, endpoint);
            }
        }
    }

    /// The disk of a builder unit as all faults that go on, and perhaps one more, make it.
    fn set_disk(&mut self, builder: u16, one_more: Option<&Fault>) {
        let mut disk = self.scenario.disk.clone();
        for fault in self.schedule.active().chain(one_more).filter(|fault| fault.places() == [Place::Builder(builder)])
        {
            match fault {
                Fault::DiskFull(_) => disk.capacity = 0,
                Fault::DiskErrors(_) => (disk.write_error, disk.sync_error) = (0.5, 0.5),
                Fault::DiskSlow { latency, .. } => (disk.least_latency, disk.most_latency) = (*latency, *latency),
                _ => {}
            }
        }
        self.storages[usize::from(builder)].set_faults(disk);
    }
}
