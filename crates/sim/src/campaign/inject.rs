//! Faults begin and end: what each does to the members, the network and the disks.

use super::cluster::Active;
use super::fault::{ELSEWHERE, Fault, FaultKind, POWER, Place, RESET};
use super::machines::Stranger;
use super::reign::Reach;
use super::world::World;
use ropewalk_io::simulated::Faults;
use ropewalk_terms::Instant;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes on their way to a subscriber that is slow, at most.
const SLOW_WINDOW: usize = 1 << 10;

/// What really happened, for the judge of losses.
#[derive(Clone, Debug)]
pub(super) struct Disturbance {
    pub(super) from: Instant,
    pub(super) until: Instant,
    pub(super) fault: Fault,
}

impl World {
    /// Carries out a fault and remembers it; false where there is nothing to go wrong.
    pub(super) fn begin(&mut self, now: Instant, active: &mut Active) -> bool {
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

    /// Carries out a fault; false where there is nothing to go wrong.
    fn begin_fault(&mut self, now: Instant, active: &mut Active) -> bool {
        let (until, fault) = (active.until, &active.scheduled.fault);
        if fault.places.iter().any(|&place| self.scenario.is_on_card(place)) {
            self.trouble_card(fault, until);
            return true;
        }
        match fault.kind {
            FaultKind::Pause | FaultKind::Reconnect | FaultKind::ManagerPause | FaultKind::SubscriberSleeps => {
                return self.member(fault.place()).pause();
            }
            FaultKind::Crash | FaultKind::ManagerCrash | FaultKind::SubscriberKilled => {
                return self.crash(fault.place(), false);
            }
            FaultKind::PowerCut | FaultKind::ManagerPowerCut => return self.crash(fault.place(), true),
            FaultKind::ManagerReplaced | FaultKind::ManagerOvertaken => return self.replace_manager(active),
            FaultKind::Reset => return self.cut_connections(fault.places[0], fault.places[1], true),
            FaultKind::HalfOpen => return self.cut_connections(fault.places[0], fault.places[1], false),
            FaultKind::SubscriberReset => {
                return self.cut_connections(fault.place(), self.server_of(fault.place()), true);
            }
            FaultKind::ClockStep => self.member(fault.place()).around().clock.step_utc(fault.number * 1_000_000),
            FaultKind::ClockDrift => self.member(fault.place()).around().clock.set_drift(fault.number as i32),
            FaultKind::Garbage => active.struck = Some(self.invite_stranger(fault.place())),
            // All sources know it from the beginning.
            FaultKind::Resync => {}
            kind if FaultKind::OF_FRONT_ENDS.contains(&kind) => self.order(now, until, fault),
            FaultKind::CardStalls | FaultKind::CardBurst => self.trouble_card(fault, until),
            _ => self.set_state(fault, true),
        }
        true
    }

    pub(super) fn end_fault(&mut self, active: &Active) {
        let fault = &active.scheduled.fault;
        match fault.kind {
            FaultKind::Pause | FaultKind::ManagerPause | FaultKind::SubscriberSleeps => {
                self.member(fault.place()).resume();
            }
            FaultKind::Reconnect => {
                self.forget_connections(fault.place());
                self.member(fault.place()).resume();
            }
            FaultKind::Crash
            | FaultKind::PowerCut
            | FaultKind::ManagerCrash
            | FaultKind::ManagerPowerCut
            | FaultKind::SubscriberKilled => self.revive(fault.place()),
            FaultKind::ClockDrift => {
                let usual = self.scenario.drift(fault.place());
                self.member(fault.place()).around().clock.set_drift(usual);
            }
            FaultKind::ManagerReplaced => {
                // A run that has ended needs no new manager.
                let dead = active.struck.filter(|_| self.reign.ended.is_none());
                let Some(Place::Manager(dead)) = dead else { return };
                let successor = self.free_manager().filter(|_| fault.is(ELSEWHERE)).unwrap_or(dead);
                self.take_over(successor);
                self.strike_again(Place::Manager(successor));
            }
            FaultKind::ManagerOvertaken => {
                active.struck.into_iter().for_each(|place| self.member(place).resume());
            }
            FaultKind::Garbage => {
                let index = active.struck.map(|place| usize::from(place.index()) - self.front_ends.len());
                let stranger = index.and_then(|index| self.strangers.get_mut(index));
                stranger.and_then(|stranger| stranger.machine.as_mut()).into_iter().for_each(Stranger::leave);
            }
            _ => self.set_state(fault, false),
        }
    }

    /// A fault that is a state of disks, pools, lines or the coordination service begins or ends.
    fn set_state(&mut self, fault: &Fault, begins: bool) {
        match fault.kind {
            FaultKind::PoolDry => self.member(fault.place()).around().dry.store(begins, Ordering::Relaxed),
            FaultKind::DiskFull | FaultKind::DiskErrors | FaultKind::DiskSlow => {
                self.set_disk(fault.place(), begins.then_some(fault));
            }
            FaultKind::SubscriberCutOff | FaultKind::SubscriberSlow => self.set_line_of_subscriber(fault, begins),
            FaultKind::ManagerCutOff => self.set_cut_off(fault.place(), begins),
            FaultKind::CoordinationCut => self.set_coordination(fault, |reach| {
                reach.cuts = reach.cuts.saturating_add_signed(if begins { 1 } else { -1 });
            }),
            FaultKind::CoordinationLate => {
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
