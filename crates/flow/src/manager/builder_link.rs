//! What the manager knows about one builder unit, and the arithmetic of credit.

use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::message::Credit;

/// One builder unit.
///
/// Both sides of the credit are absolute since the connection began. A message of credit that is repeated or
/// lost therefore changes nothing, and an assignment that was lost with its connection is forgotten on both sides.
#[derive(Debug, Default)]
pub(super) struct BuilderLink {
    /// It is connected.
    pub(super) connected: bool,
    /// The life in which it was seen last.
    pub(super) incarnation: Option<Incarnation>,
    /// Rows of the table that are assigned to it.
    pub(super) in_work: u32,
    /// It told a successor everything that it has.
    pub(super) told_all: bool,
    /// When it was lost with events in work, until it has told what became of them or is not waited for any longer.
    pub(super) lost: Option<Instant>,
    /// It said that it is finished.
    pub(super) finished: bool,
    granted: Credit,
    used: Credit,
    most_free_events: u64,
    most_free_bytes: u64,
}

impl BuilderLink {
    /// A connection begins: what the builder still has in work it takes off the credit that it sends.
    pub(super) fn connect(&mut self, incarnation: Incarnation) {
        // Another process knows nothing of what the former one had.
        let lost = self.lost.filter(|_| self.incarnation == Some(incarnation));
        *self = Self { connected: true, incarnation: Some(incarnation), lost, ..Self::default() };
    }

    /// The builder grants this much since the connection began. Grants only grow.
    pub(super) fn grant(&mut self, credit: Credit) {
        self.granted.events = self.granted.events.max(credit.events);
        self.granted.bytes = self.granted.bytes.max(credit.bytes);
        self.most_free_events = self.most_free_events.max(self.free_events());
        self.most_free_bytes = self.most_free_bytes.max(self.free_bytes());
    }

    /// Events that could be assigned when it was as free as it ever was.
    pub(super) const fn most_free_events(&self) -> u64 {
        self.most_free_events
    }

    /// Events that can still be assigned.
    pub(super) const fn free_events(&self) -> u64 {
        self.granted.events.saturating_sub(self.used.events)
    }

    /// Bytes that can still be assigned.
    pub(super) const fn free_bytes(&self) -> u64 {
        self.granted.bytes.saturating_sub(self.used.bytes)
    }

    /// Whether an event of `bytes` can be assigned. One that is larger than all credit goes to a builder that is
    /// as free as it ever was, or it would wait for ever.
    pub(super) fn has_room(&self, bytes: u32) -> bool {
        let (free, needed) = (self.free_bytes(), bytes as u64);
        let has_credit = self.used.events < self.granted.events && (needed <= free || free >= self.most_free_bytes);
        self.connected && (has_credit || is_planted(Flaw::CreditIgnored))
    }

    /// An event of `bytes` is assigned to it.
    pub(super) const fn assign(&mut self, bytes: u32) {
        self.used.events += 1;
        self.used.bytes += bytes as u64;
        self.in_work += 1;
    }
}
