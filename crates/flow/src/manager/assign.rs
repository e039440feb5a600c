//! Assignment: which events go to which builder unit, first those whose builder was lost, then new ones by key.

use super::builder_link::BuilderLink;
use super::table::Stage;
use super::{BuilderLoad, Manager, ManagerAction};
use crate::messages::{Assign, AssignEntry, Batch, Message};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Attempt, Cause, Instant, NodeId, Outcome};

impl Manager {
    /// The next batch of events for one builder unit, if there are events and credit.
    pub(super) fn next_assignment(&mut self, now: Instant) -> Option<ManagerAction> {
        if !self.phase.assigns() {
            return None;
        }
        let first = self.next_assignable()?;
        // Nobody is there who could send anything of it: a builder unit could only drop what another one may have written.
        if self.readouts.iter().all(|link| !link.present) {
            return None;
        }
        // Builder units hear of a lumisection before they get events of it.
        if self.begins_lumisection(first) {
            self.begin_lumisection(now);
            return None;
        }
        let bytes = self.table.row(first).bytes;
        let candidates = (0..).zip(&self.builders).filter(|(_, link)| link.has_room(bytes));
        let loads = candidates.map(|(builder, link): (u16, &BuilderLink)| BuilderLoad {
            builder,
            in_work: link.in_work,
            free_bytes: link.free_bytes(),
        });
        let builder = self.config.policy.choose(self.last_builder, loads)?;
        self.last_builder = Some(builder);
        let mut entries = Batch::new();
        while entries.len() < self.config.batch {
            let Some(position) = self.next_assignable() else { break };
            let has_room = self.builders[usize::from(builder)].has_room(self.table.row(position).bytes);
            if !has_room || self.begins_lumisection(position) {
                break;
            }
            entries.push(self.assign(position, builder));
        }
        Some(ManagerAction::Send { to: NodeId::builder(builder), message: Message::Assign(Assign { entries }) })
    }

    /// Everything that `builder` has is to be assigned again, in key order and before new events.
    pub(super) fn assign_again(&mut self, builder: u16) {
        for position in self.table.tail()..self.table.head() {
            let row = self.table.row_mut(position);
            if row.stage == Stage::Assigned && row.builder == builder && !is_planted(Flaw::LostBuilderForgotten) {
                row.stage = Stage::Again;
                self.again.push(position);
            }
        }
        // The oldest is popped first.
        self.again.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// The position of the next event that has to be assigned.
    fn next_assignable(&mut self) -> Option<u64> {
        while let Some(&position) = self.again.last() {
            // The row of a key that ended meanwhile may be another key's by now.
            if position >= self.table.tail() && self.table.row(position).stage == Stage::Again {
                return Some(position);
            }
            self.again.pop();
        }
        self.advance_cursor();
        if self.is_paused {
            return None;
        }
        let settled = self.table.position_before(self.floor.key);
        (self.floor.cursor < settled.min(self.table.head())).then_some(self.floor.cursor)
    }

    /// Whether the event at this position, which is to be assigned next, is the first of another lumisection.
    fn begins_lumisection(&self, position: u64) -> bool {
        position == self.floor.cursor && self.lumisections.is_full(self.config.lumisection)
    }

    /// Moves the cursor to the next settled event that waits for a builder unit, or as far as all is settled.
    /// Events that the trigger source did not open end here.
    pub(super) fn advance_cursor(&mut self) {
        let end = self.table.position_before(self.floor.key).min(self.table.head());
        let needs_trigger = self.config.trigger_readout.is_some();
        while self.floor.cursor < end {
            let position = self.floor.cursor;
            if self.table.row(position).stage == Stage::Empty {
                self.adopt_unannounced(position);
            }
            let row = self.table.row(position);
            if row.stage == Stage::Open {
                if row.triggered || !needs_trigger {
                    break;
                }
                self.end(position, Outcome::Dropped(Cause::NoTrigger));
            }
            self.floor.cursor += 1;
        }
        self.advance_watch();
    }

    /// Moves the watch to the first open row at or behind the cursor.
    pub(super) fn advance_watch(&mut self) {
        let floor = &mut self.floor;
        floor.watch = floor.watch.max(floor.cursor);
        while floor.watch < self.table.head() && self.table.row(floor.watch).stage != Stage::Open {
            floor.watch += 1;
        }
    }

    fn assign(&mut self, position: u64, builder: u16) -> AssignEntry {
        let first_attempt = self.first_attempt();
        let row = self.table.row_mut(position);
        let again = row.stage == Stage::Again;
        if !(again && is_planted(Flaw::SameAttemptAgain)) {
            row.attempt = Attempt(row.attempt.0.saturating_add(1)).max(first_attempt);
        }
        row.is_repeated = again;
        row.stage = Stage::Assigned;
        row.builder = builder;
        let entry = AssignEntry { key: row.key, bytes: row.bytes, attempt: row.attempt };
        self.builders[usize::from(builder)].assign(entry.bytes);
        if again {
            self.counts.reassigned += 1;
            self.again.pop();
        } else {
            self.account.assigned += 1;
            self.lumisections.count(entry.key);
            self.advance_cursor();
            if is_planted(Flaw::ReleasedBeforeWritten) {
                self.releases.release_too_early(position);
            }
        }
        entry
    }
}
