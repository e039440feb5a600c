//! How events ended that nobody holds any more, told to the readout units now and then: a successor asks them, and its
//! account goes on where the last one's ended.

use super::Manager;
use super::table::Row;
use crate::messages::{Ended, Message};
use ropewalk_terms::{EventAccount, EventKey};

/// What is known of the events behind the table.
#[derive(Debug, Default)]
pub(super) struct EndedLog {
    /// Every event below this key is in an earlier event manager's account.
    below: EventKey,
    /// That account; empty for the first one.
    before: EventAccount,
    /// That, and what has left this manager's own table.
    all: EventAccount,
    /// Events that left the table since the readout units were told.
    untold: u64,
}

impl EndedLog {
    /// A released row leaves the table. One that was never assigned here is no event of this account.
    pub(super) fn pass(&mut self, row: &Row) {
        if row.attempt.0 == 0 {
            return;
        }
        self.all.end(row.ending);
        self.untold += 1;
    }

    /// Readout units tell a successor; whoever was told last knows most.
    fn learn(&mut self, ended: &Ended) {
        if ended.below > self.below {
            self.below = ended.below;
            self.before = ended.account();
            self.all = self.before;
        }
    }

    /// Every event below this key is in an earlier manager's account.
    pub(super) const fn below(&self) -> EventKey {
        self.below
    }

    /// How the events behind the table ended.
    pub(super) const fn all(&self) -> &EventAccount {
        &self.all
    }

    /// What earlier managers accounted for.
    pub(super) const fn before(&self) -> &EventAccount {
        &self.before
    }
}

impl Manager {
    /// A readout unit tells what an earlier event manager left there.
    pub(super) fn earlier_ended(&mut self, ended: &Ended) {
        if self.phase.is_recovering() {
            self.ended.learn(ended);
        }
    }

    /// Leaves word with the readout units. Builder units remember what they did lately, a whole table and twice as many
    /// events as they can have in work: where word is left more often than that, nothing falls between.
    pub(super) fn tell_ended(&mut self) {
        let smallest = self.builders.iter().filter(|link| link.connected).map(|link| link.most_free_events()).min();
        if self.ended.untold >= smallest.unwrap_or(0) / 4 {
            self.tell_ended_now();
        }
    }

    /// Leaves word with the readout units, where there is something new. At the end of the run builder units leave, and with them goes what
    /// they remember.
    pub(super) fn tell_ended_now(&mut self) {
        if core::mem::take(&mut self.ended.untold) == 0 {
            return;
        }
        let ended = Ended::of(self.table.key_at(self.table.tail()), self.ended.all());
        self.send_to_readouts(&Message::Ended(ended));
    }
}
