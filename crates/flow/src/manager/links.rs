//! The manager's state of each readout unit and builder unit, and the arithmetic of credit.

use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{EventKey, Incarnation, Instant};
use ropewalk_wire::message::{AnnounceEntry, Credit};
use std::collections::VecDeque;

/// Minimum interval of messages about new events to a readout unit that waits for no source.
const FOLLOWING: Duration = Duration::from_millis(1);

/// State of one readout unit. Bounds are exclusive: `settled` is the first key that is not settled.
#[derive(Debug)]
pub(super) struct ReadoutLink {
    /// Whether it is connected.
    pub(super) present: bool,
    /// Its last known incarnation.
    pub(super) incarnation: Option<Incarnation>,
    /// Everything below this key is settled there.
    pub(super) settled: EventKey,
    /// All announced keys are below this one.
    pub(super) announced: EventKey,
    /// It is no longer waited for below this key, because it was silent for too long.
    pub(super) left_out: EventKey,
    /// The key up to which the unit knows that events exist, and when it was last told.
    pub(super) told: (EventKey, Instant),
    /// Announcements beyond the reach of the table, in key order.
    pub(super) waiting: VecDeque<AnnounceEntry>,
    /// When the first of `waiting` arrived.
    pub(super) waiting_since: Instant,
    /// Since when it holds nothing unreleased and sends nothing; `None` while it holds something. Then it may be silent
    /// because it is full, and back-pressure is not absence.
    pub(super) quiet_since: Option<Instant>,
    /// When it was last heard.
    pub(super) last_heard: Instant,
    /// Whether it is connected and sends nothing.
    pub(super) unreachable: bool,
    /// Where it began, if an earlier incarnation had taken part that this event manager, a successor, does not know.
    pub(super) untold_before: Option<EventKey>,
    /// Its answer to the question for the highest key.
    pub(super) highest: Option<EventKey>,
    /// Whether it has announced something in this run.
    pub(super) heard: bool,
    /// Whether any of its incarnations has reported the progress of the run before this event manager.
    pub(super) has_told: bool,
    /// Set after it was asked to announce everything again. Until it answers the following question, its messages do
    /// not prove that nothing lies below; only the highest settled bound is kept here.
    pub(super) repeats: Option<EventKey>,
    /// Whether it waits for none of its sources: it settles events of others as soon as it hears of them.
    pub(super) follows: bool,
    /// Whether it has finished.
    pub(super) finished: bool,
}

impl ReadoutLink {
    /// Initial capacity for announcements beyond the reach of the table.
    const WAITING: usize = 1024;

    /// Creates the state of an unknown readout unit.
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

    /// Starts a run for it at `first`.
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

    /// Records that everything up to `key` is settled.
    pub(super) fn settle(&mut self, now: Instant, key: EventKey) {
        if let Some(bound) = &mut self.repeats {
            *bound = key.next().max(*bound);
        } else if key >= self.settled {
            self.settled = key.next();
            self.quiet_since = Some(now);
        }
    }

    /// Records that it was heard. If it was unreachable, its pending messages are on the way.
    pub(super) fn hear(&mut self, now: Instant) {
        if core::mem::take(&mut self.unreachable) {
            self.quiet_since = self.quiet_since.map(|_| now);
        }
        self.last_heard = now;
    }

    /// Records its answer to the question for its highest key. A repetition of all announcements is complete then.
    pub(super) fn answer(&mut self, now: Instant, highest: EventKey) {
        self.highest = Some(highest);
        // A new incarnation knows nothing before the key at which it began, and may say so in an empty announcement.
        self.has_told |= self.announced > EventKey::MIN || highest >= self.settled;
        self.repeat_is_over(now);
    }

    /// Applies the settled bound after a repetition.
    pub(super) fn repeat_is_over(&mut self, now: Instant) {
        if let Some(bound) = self.repeats.take() {
            self.settled = self.settled.max(bound);
            self.quiet_since = self.quiet_since.map(|_| now);
        }
    }

    /// Keeps an announcement until the table reaches it. Repeated ones may be older than the waiting ones.
    pub(super) fn keep(&mut self, now: Instant, entry: AnnounceEntry) {
        if self.waiting.is_empty() {
            self.waiting_since = now;
        }
        let place = self.waiting.partition_point(|waiting| waiting.key <= entry.key);
        self.waiting.insert(place, entry);
    }

    /// The key below which everything is settled and in the table, or not waited for.
    pub(super) fn bound(&self) -> EventKey {
        let placed = self.waiting.front().map_or(self.settled, |first| self.settled.min(first.key));
        placed.max(self.left_out)
    }

    /// The earliest time to tell it of events that others hold, of which one has waited for it since `since`.
    pub(super) fn told_next(&self, since: Instant, haste: Duration) -> Instant {
        if self.follows { self.told.1.after(FOLLOWING.min(haste)) } else { since.max(self.told.1).after(haste) }
    }

    /// Records whether it holds something unreleased, where `oldest` is the oldest unreleased key of all.
    pub(super) fn note_quiet(&mut self, now: Instant, oldest: EventKey) {
        if self.announced > oldest {
            self.quiet_since = None;
        } else if self.quiet_since.is_none() {
            self.quiet_since = Some(now);
        }
    }
}

/// State of one builder unit.
///
/// Both sides of the credit are totals since the connection began. A repeated or lost credit message therefore changes
/// nothing, and an assignment that was lost with its connection is forgotten on both sides.
#[derive(Debug, Default)]
pub(super) struct BuilderLink {
    /// Whether it is connected.
    pub(super) connected: bool,
    /// Its last known incarnation.
    pub(super) incarnation: Option<Incarnation>,
    /// Number of rows of the table that are assigned to it.
    pub(super) in_work: u32,
    /// Whether it has reported everything that it has to a successor.
    pub(super) told_all: bool,
    /// When it was lost with events in work, until it reports their fate or is given up.
    pub(super) lost: Option<Instant>,
    /// Whether it has finished.
    pub(super) finished: bool,
    granted: Credit,
    used: Credit,
    most_free_events: u64,
    most_free_bytes: u64,
}

impl BuilderLink {
    /// Starts a connection. The builder subtracts its events in work from the credit that it sends.
    pub(super) fn connect(&mut self, incarnation: Incarnation) {
        // A new process knows nothing of the former one's events.
        let lost = self.lost.filter(|_| self.incarnation == Some(incarnation));
        *self = Self { connected: true, incarnation: Some(incarnation), lost, ..Self::default() };
    }

    /// Sets the total credit since the connection began. Totals only grow.
    pub(super) fn grant(&mut self, credit: Credit) {
        self.granted.events = self.granted.events.max(credit.events);
        self.granted.bytes = self.granted.bytes.max(credit.bytes);
        self.most_free_events = self.most_free_events.max(self.free_events());
        self.most_free_bytes = self.most_free_bytes.max(self.free_bytes());
    }

    /// Returns the largest number of free events that it ever had.
    pub(super) const fn most_free_events(&self) -> u64 {
        self.most_free_events
    }

    /// Returns the number of events that can still be assigned.
    pub(super) const fn free_events(&self) -> u64 {
        self.granted.events.saturating_sub(self.used.events)
    }

    /// Returns the number of bytes that can still be assigned.
    pub(super) const fn free_bytes(&self) -> u64 {
        self.granted.bytes.saturating_sub(self.used.bytes)
    }

    /// Whether an event of `bytes` can be assigned. An event larger than the whole credit goes to a builder that is as
    /// free as it ever was; otherwise it would wait for ever.
    pub(super) fn has_room(&self, bytes: u32) -> bool {
        let (free, needed) = (self.free_bytes(), bytes as u64);
        let has_credit = self.used.events < self.granted.events && (needed <= free || free >= self.most_free_bytes);
        self.connected && (has_credit || is_planted(Flaw::CreditIgnored))
    }

    /// Charges an event of `bytes`.
    pub(super) const fn assign(&mut self, bytes: u32) {
        self.used.events += 1;
        self.used.bytes += bytes as u64;
        self.in_work += 1;
    }
}
