//! What the event manager is told: which events are held, and up to which key everything is settled.

use super::machine::Readout;
use super::table::State;
use super::timeline::{ORIGIN, Position};
use crate::lumisections::KnownLumisections;
use crate::messages::{Announce, AnnounceEntry, Batch, Ended, Message};
use crate::settings::Settings;
use ropewalk_terms::EventKey;
use ropewalk_terms::flaws::{Flaw, is_planted};
use std::collections::VecDeque;

/// How far the announcements have come.
#[derive(Debug)]
pub(super) struct Announcing {
    /// Events before this one were announced.
    next: Position,
    /// Up to which key the event manager knows everything to be settled; none where it is a new one.
    told: Option<EventKey>,
    /// It was told that nothing more comes at all.
    pub(super) told_all: bool,
    /// How the events ended that nobody holds any more, as the event manager left it here for its successor.
    ended: Option<Ended>,
    /// No source is waited for: events are settled as others show them.
    pub(super) follows: bool,
    /// What the event manager was told of that.
    told_follows: bool,
    /// The lumisections that it told of, for its successor too.
    pub(super) lumisections: KnownLumisections,
    /// A new event manager has not been told of that, of masked sources and changed parameters, and of the run's end.
    ended_due: bool,
    lumisections_due: VecDeque<Message>,
    orders_due: VecDeque<Message>,
    /// Parameters that were changed, for its successor too.
    pub(super) settings: Settings,
    stop_due: bool,
}

impl Default for Announcing {
    fn default() -> Self {
        Self {
            next: ORIGIN,
            told: Some(EventKey::MIN),
            told_all: false,
            ended: None,
            follows: false,
            told_follows: false,
            lumisections: KnownLumisections::default(),
            ended_due: false,
            lumisections_due: VecDeque::new(),
            orders_due: VecDeque::new(),
            settings: Settings::default(),
            stop_due: false,
        }
    }
}

impl Readout {
    /// The next announcement; none when the event manager knows everything.
    pub(super) fn next_announce(&mut self) -> Option<Announce> {
        let told = self.announcing.told;
        if self.announcing.next == self.head && told.is_some() && !self.may_announce_end() {
            return None;
        }
        let mut entries = Batch::new();
        let end = self.head.min(self.table.end());
        let mut next = self.announcing.next;
        while next < end && !entries.is_full() {
            if let Some(slot) = self.table.slot(next)
                && slot.state == State::Settled
                && slot.fragments > 0
            {
                let key = self.timeline.key(next);
                let (bytes, fragments, triggered) = (slot.bytes, slot.fragments, slot.triggered);
                entries.push(AnnounceEntry { key, bytes, fragments, triggered });
            }
            next += 1;
        }
        if is_planted(Flaw::AnnouncedBackwards) {
            entries.reverse();
        }
        self.announcing.next = if next < end { next } else { self.head };
        let settled = self.settled_key();
        self.announcing.told = told.max(Some(settled));
        let ends = self.note_end_announced();
        (!entries.is_empty() || Some(settled) > told || ends).then_some(Announce { settled, entries })
    }

    /// Up to which key everything was announced: without end where nothing more can come.
    fn settled_key(&self) -> EventKey {
        let key = self.timeline.key_before(self.announcing.next);
        match &self.stop {
            None if self.announcing.next == self.head && self.is_exhausted() => EventKey::MAX,
            _ => key,
        }
    }

    /// Whether there is an end that the event manager has not been told.
    fn may_announce_end(&self) -> bool {
        match &self.stop {
            Some(stop) => !stop.announced && self.head >= stop.end,
            None => !self.announcing.told_all && self.is_exhausted(),
        }
    }

    /// Takes note that the end is told by this announcement; says whether it is.
    fn note_end_announced(&mut self) -> bool {
        if self.announcing.next < self.head || !self.may_announce_end() {
            return false;
        }
        match &mut self.stop {
            Some(stop) => stop.announced = true,
            None => self.announcing.told_all = true,
        }
        true
    }

    /// Whether no source is waited for, where the event manager does not know that.
    pub(super) fn next_follows(&mut self) -> Option<Message> {
        let Announcing { follows, told_follows, told_all, .. } = &mut self.announcing;
        let is_news = *follows != *told_follows && !*told_all;
        *told_follows = *follows;
        is_news.then_some(Message::Follows(*follows))
    }

    /// The event manager says how events ended: kept for its successor.
    pub(super) fn keep_ended(&mut self, ended: &Ended) {
        if self.announcing.ended.is_none_or(|known| known.below <= ended.below) {
            self.announcing.ended = Some(*ended);
        }
    }

    /// What an earlier event manager left here, once for each new one: how events ended, which lumisections there are, which
    /// sources are masked, which parameters were changed, and the run's end.
    pub(super) fn next_left(&mut self) -> Option<Message> {
        let Announcing { ended, ended_due, lumisections_due, orders_due, stop_due, .. } = &mut self.announcing;
        let ended = ended.filter(|_| core::mem::take(ended_due)).map(Message::Ended);
        ended.or_else(|| lumisections_due.pop_front()).or_else(|| orders_due.pop_front()).or_else(|| {
            let stop = self.stop.as_ref().filter(|_| core::mem::take(stop_due));
            stop.map(|stop| Message::StopAt(stop.last))
        })
    }

    /// A new event manager knows nothing: everything held is announced again.
    pub(super) fn announce_again(&mut self) {
        self.announcing.next = self.table.base();
        self.announcing.told = None;
        self.announcing.told_follows = false;
        (self.announcing.ended_due, self.announcing.stop_due) = (true, true);
        self.announcing.lumisections_due = self.announcing.lumisections.told().collect();
        self.announcing.orders_due = self.masks().collect();
        self.announcing.orders_due.extend(self.announcing.settings.all().map(Message::Set));
        if let Some(stop) = &mut self.stop {
            stop.announced = false;
        }
    }
}
