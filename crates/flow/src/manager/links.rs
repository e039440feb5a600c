//! What the manager knows about each readout unit and each builder unit, and the arithmetic of credit.

use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{EventKey, Incarnation, Instant};
use ropewalk_wire::message::{AnnounceEntry, Credit};
use std::collections::VecDeque;

/// How often a readout unit that waits for none of its sources learns of new events, at most.
const FOLLOWING: Duration = Duration::from_millis(1);

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
    /// Up to this key the unit knows that events exist; and when it was last told so.
    pub(super) told: (EventKey, Instant),
    /// Announced further ahead than the table reaches; in key order.
    pub(super) waiting: VecDeque<AnnounceEntry>,
    /// Since when the first of `waiting` waits.
    pub(super) waiting_since: Instant,
    /// Since when it holds nothing unreleased and says nothing. None while it holds something: then it may be
    /// silent because it is full, and back-pressure is not absence.
    pub(super) quiet_since: Option<Instant>,
    /// When anything came from it last.
    pub(super) last_heard: Instant,
    /// It is connected, and nothing comes from it.
    pub(super) unreachable: bool,
    /// Where it began, if an earlier life of it had taken part that this event manager, a successor, knows nothing of.
    pub(super) untold_before: Option<EventKey>,
    /// Its answer to the question for the highest key.
    pub(super) highest: Option<EventKey>,
    /// It announced something in this run.
    pub(super) heard: bool,
    /// In some life it has reported to this event manager how far the run had come before.
    pub(super) has_told: bool,
    /// It was asked to announce everything again. Until it answers the question behind that, what it says is no proof
    /// that nothing lies below: only the highest settled bound is kept here.
    pub(super) repeats: Option<EventKey>,
    /// It waits for none of its sources: what others hold it settles as soon as it hears of that.
    pub(super) follows: bool,
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
            told: (EventKey::MIN, Instant::ZERO),
            waiting: VecDeque::with_capacity(Self::WAITING),
            waiting_since: Instant::ZERO,
            quiet_since: None,
            last_heard: Instant::ZERO,
            unreachable: false,
            untold_before: None,
            highest: None,
            heard: false,
            has_told: false,
            repeats: None,
            follows: false,
            finished: false,
        }
    }

    /// A run begins for it at `first`.
    pub(super) fn begin(&mut self, now: Instant, first: EventKey) {
        self.settled = first;
        self.announced = EventKey::MIN;
        self.left_out = EventKey::MIN;
        self.told = (EventKey::MIN, Instant::ZERO);
        self.waiting.clear();
        self.quiet_since = Some(now);
        self.highest = None;
        self.heard = false;
        self.repeats = None;
        self.follows = false;
        self.finished = false;
    }

    /// It says that everything up to `key` is settled.
    pub(super) fn settle(&mut self, now: Instant, key: EventKey) {
        if let Some(bound) = &mut self.repeats {
            *bound = key.next().max(*bound);
        } else if key >= self.settled {
            self.settled = key.next();
            self.quiet_since = Some(now);
        }
    }

    /// Something came from it. Where it could not be reached before, what it has to say is on its way.
    pub(super) fn hear(&mut self, now: Instant) {
        if core::mem::take(&mut self.unreachable) {
            self.quiet_since = self.quiet_since.map(|_| now);
        }
        self.last_heard = now;
    }

    /// It answers the question for its highest key. Where it was asked to announce everything again, it has.
    pub(super) fn answer(&mut self, now: Instant, highest: EventKey) {
        self.highest = Some(highest);
        // A new life knows of nothing before the key at which it began, and may say so in an announcement of nothing.
        self.has_told |= self.announced > EventKey::MIN || highest >= self.settled;
        self.repeat_is_over(now);
    }

    /// What it said is settled, is.
    pub(super) fn repeat_is_over(&mut self, now: Instant) {
        if let Some(bound) = self.repeats.take() {
            self.settled = self.settled.max(bound);
            self.quiet_since = self.quiet_since.map(|_| now);
        }
    }

    /// Keeps an announcement until the table reaches so far. Repeated ones may be older than what waits already.
    pub(super) fn keep(&mut self, now: Instant, entry: AnnounceEntry) {
        if self.waiting.is_empty() {
            self.waiting_since = now;
        }
        let place = self.waiting.partition_point(|waiting| waiting.key <= entry.key);
        self.waiting.insert(place, entry);
    }

    /// Everything below this key is settled there and is in the table, or is not waited for.
    pub(super) fn bound(&self) -> EventKey {
        let placed = self.waiting.front().map_or(self.settled, |first| self.settled.min(first.key));
        placed.max(self.left_out)
    }

    /// The earliest time to tell it of events that others hold, one of which has waited for it since `since`.
    pub(super) fn told_next(&self, since: Instant, haste: Duration) -> Instant {
        if self.follows { self.told.1.after(FOLLOWING.min(haste)) } else { since.max(self.told.1).after(haste) }
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
    /// It has reported to a successor everything that it has.
    pub(super) told_all: bool,
    /// When it was lost with events in work, until it reports what became of them or is not waited for any longer.
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
