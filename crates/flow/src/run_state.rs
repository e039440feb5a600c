//! The state of a run that the event manager announces to each node: lumisections that have begun or ended, and changed
//! parameters.

use crate::messages::{Lumisection, LumisectionEnd, Message, Setting};
use arrayvec::ArrayVec;
use ropewalk_terms::EventKey;
use std::collections::VecDeque;

/// Lumisections as the event manager reported them.
#[derive(Debug, Default)]
pub(crate) struct KnownLumisections {
    /// Lumisections that have begun and not ended, oldest first.
    open: VecDeque<Lumisection>,
    /// The last one that has ended.
    ended: Option<LumisectionEnd>,
    /// How often a lumisection was reported to begin that has ended: by a successor that had not received the reports
    /// of all builder units.
    contradicted: u64,
}

impl KnownLumisections {
    /// Clears the state when a run begins.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
        (self.ended, self.contradicted) = (None, 0);
    }

    /// Notes that a lumisection has begun. A successor may report another beginning.
    pub(crate) fn begin(&mut self, begun: Lumisection) {
        if self.ended.is_some_and(|ended| begun.number <= ended.number) {
            self.contradicted += 1;
            return;
        }
        let place = self.open.partition_point(|known| known.number < begun.number);
        match self.open.get_mut(place).filter(|known| known.number == begun.number) {
            Some(known) => *known = begun,
            None => self.open.insert(place, begun),
        }
    }

    /// Notes that a lumisection has ended. Returns false if that is known already.
    pub(crate) fn end(&mut self, end: &LumisectionEnd) -> bool {
        let is_new = self.ended.is_none_or(|known| known.number < end.number);
        if is_new {
            self.open.retain(|known| known.number > end.number);
            self.ended = Some(*end);
        }
        is_new
    }

    /// Returns the number of the last one that has ended; 0 if none has.
    pub(crate) fn last_ended(&self) -> u32 {
        self.ended.map_or(0, |ended| ended.number)
    }

    /// Returns how often a lumisection was reported to begin that has ended.
    pub(crate) const fn contradicted(&self) -> u64 {
        self.contradicted
    }

    /// Returns the number of the lumisection that contains an event, from 1.
    pub(crate) fn of(&self, key: EventKey) -> u32 {
        let oldest = || self.ended.map_or(1, |ended| ended.number + 1);
        let own = self.open.iter().rev().find(|known| known.first <= key);
        own.or(self.open.front()).map_or_else(oldest, |known| known.number)
    }

    /// Returns the messages for a successor of the event manager.
    pub(crate) fn told(&self) -> impl Iterator<Item = Message> {
        let ended = self.ended.map(Message::LumisectionEnd);
        ended.into_iter().chain(self.open.iter().map(|one| Message::Lumisection(*one)))
    }
}

/// More than the number of parameters, with a prescale for each of the most streams.
const MOST_SETTINGS: usize = 128;

/// The last value of each parameter, in the order of their first changes. Further parameters are not kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(ArrayVec<Setting, MOST_SETTINGS>);

impl Settings {
    /// Keeps a value.
    pub(crate) fn keep(&mut self, setting: Setting) {
        let same = |known: &&mut Setting| (known.parameter, known.of) == (setting.parameter, setting.of);
        match self.0.iter_mut().find(same) {
            Some(known) => *known = setting,
            // A system has fewer parameters.
            None => _ = self.0.try_push(setting),
        }
    }

    /// Keeps a value unless there is one already.
    pub(crate) fn keep_unless_known(&mut self, setting: Setting) -> bool {
        let same = |known: &&Setting| (known.parameter, known.of) == (setting.parameter, setting.of);
        let is_new = !self.0.iter().any(|known| same(&known));
        if is_new {
            self.keep(setting);
        }
        is_new
    }

    /// Returns all values.
    pub(crate) fn all(&self) -> impl Iterator<Item = Setting> + '_ {
        self.0.iter().copied()
    }
}
