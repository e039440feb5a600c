//! What the manager knows about one readout unit.

use ropewalk_terms::{EventKey, Incarnation, Instant};
use ropewalk_wire::message::AnnounceEntry;
use std::collections::VecDeque;

/// One readout unit. Bounds are exclusive: `settled` is the first key that is not settled.
#[derive(Debug)]
pub(super) struct ReadoutLink {
    /// It is connected.
    pub(super) present: bool,
    /// The life in which it was seen last.
    pub(super) incarnation: Option<Incarnation>,
    /// Everything below this key is settled there.
    pub(super) settled: EventKey,
    /// It announced nothing at or above this key.
    pub(super) announced: EventKey,
    /// Below this key it is not waited for: it was silent for too long.
    pub(super) left_out: EventKey,
    /// Announced further ahead than the table reaches; in key order.
    pub(super) waiting: VecDeque<AnnounceEntry>,
    /// Since when the first of `waiting` waits.
    pub(super) waiting_since: Instant,
    /// Since when it holds nothing unreleased and says nothing. None while it holds something: then it may be
    /// silent because it is full, and back-pressure is not absence.
    pub(super) quiet_since: Option<Instant>,
    /// Its answer to the question for the highest key.
    pub(super) highest: Option<EventKey>,
    /// It announced something in this run.
    pub(super) heard: bool,
    /// It said that it is finished.
    pub(super) finished: bool,
}

impl ReadoutLink {
    /// Announcements beyond the table's reach for which no memory is needed later.
    const WAITING: usize = 1024;

    /// A readout unit that was never seen.
    pub(super) fn new() -> Self {
        Self {
            present: false,
            incarnation: None,
            settled: EventKey::MIN,
            announced: EventKey::MIN,
            left_out: EventKey::MIN,
            waiting: VecDeque::with_capacity(Self::WAITING),
            waiting_since: Instant::ZERO,
            quiet_since: None,
            highest: None,
            heard: false,
            finished: false,
        }
    }

    /// A run begins for it at `first`.
    pub(super) fn begin(&mut self, now: Instant, first: EventKey) {
        self.settled = first;
        self.announced = EventKey::MIN;
        self.left_out = EventKey::MIN;
        self.waiting.clear();
        self.quiet_since = Some(now);
        self.highest = None;
        self.heard = false;
        self.finished = false;
    }

    /// Everything below this key is settled there and is in the table, or is not waited for.
    pub(super) fn bound(&self) -> EventKey {
        let placed = self.waiting.front().map_or(self.settled, |first| self.settled.min(first.key));
        placed.max(self.left_out)
    }

    /// Notes whether it holds something unreleased, where `oldest` is the oldest unreleased key of all.
    pub(super) fn note_quiet(&mut self, now: Instant, oldest: EventKey) {
        if self.announced > oldest {
            self.quiet_since = None;
        } else if self.quiet_since.is_none() {
            self.quiet_since = Some(now);
        }
    }
}
