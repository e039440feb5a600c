//! The event manager in the simulated system: the real machine.

use super::host::Work;
use super::system::System;
use super::world::{PATIENCE, World};
use ropewalk_flow::manager::{Manager, ManagerAction, ManagerConfig};
use ropewalk_flow::messages::Message;
use ropewalk_terms::{Instant, NodeId};

/// The event manager.
#[derive(Debug)]
pub(super) struct ManagerUnit {
    pub(super) machine: Manager,
    pub(super) inbox: Vec<u32>,
    /// Events that this turn releases: the first number and how many.
    released: Vec<(u64, u64)>,
    readouts: u16,
    /// Events that were assigned or released in this life.
    assigned: u64,
    ended: u64,
    /// The most events that were assigned and not released.
    pub(super) most_assigned: u64,
}

impl ManagerUnit {
    pub(super) fn new(system: &System) -> Self {
        let config = ManagerConfig {
            capacity: system.manager.capacity,
            policy: system.manager.policy,
            batch: system.manager.batch as usize,
            event_timeout: PATIENCE,
            drain_timeout: PATIENCE,
            ..ManagerConfig::new(system.readouts, system.builders)
        };
        Self {
            machine: Manager::new(config),
            inbox: Vec::new(),
            released: Vec::new(),
            readouts: system.readouts,
            assigned: 0,
            ended: 0,
            most_assigned: 0,
        }
    }

    pub(super) const fn reset(&mut self) {
        self.most_assigned = 0;
    }
}

impl World<'_> {
    /// Reads messages, then asks the machine what to do.
    pub(super) fn turn_manager(&mut self, work: &mut Work) {
        let now = Instant::from_nanoseconds(self.now);
        let mut inbox = std::mem::take(&mut self.manager.inbox);
        for place in inbox.drain(..) {
            let (from, message) = self.mail.read(place);
            self.manager.machine.message(now, from, message);
            self.mail.discard(place);
            work.messages += 1;
        }
        self.manager.inbox = inbox;
        while let Some(action) = self.manager.machine.poll(now) {
            let ManagerAction::Send { to, message } = action else { continue };
            work.messages += 1;
            let unit = self.unit_of(to);
            match &message {
                Message::Assign(assign) => {
                    self.manager.assigned += assign.entries.len() as u64;
                    let in_work = self.manager.assigned - self.manager.ended;
                    self.manager.most_assigned = self.manager.most_assigned.max(in_work);
                }
                // Released is what the last readout unit is told of.
                Message::Release(release) if unit == u32::from(self.manager.readouts) => {
                    let ranges = release.entries.iter().map(|entry| (entry.first.number(), u64::from(entry.count)));
                    self.manager.released.extend(ranges);
                }
                _ => {}
            }
            let place = self.mail.keep(NodeId::MANAGER, message);
            self.outbox.push((unit, place));
        }
    }

    /// The turn is over: the releases have left.
    pub(super) fn manager_has_sent(&mut self) {
        for (first, count) in self.manager.released.drain(..) {
            self.manager.ended += count;
            for event in first..first + count {
                self.released.add(self.now - self.front_ends.triggered_at(event));
            }
        }
    }
}
