//! In which events of a run a source took no part, put together from what each life of its readout unit told.

use ropewalk_terms::EventKey;

/// Events of a run in which a source took no part, because it was masked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MaskedInterval {
    /// The first one.
    pub from: EventKey,
    /// The first one in which it took part again; none where it did not.
    pub to: Option<EventKey>,
}

/// Whether a source takes part in a run that goes on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// It does.
    #[default]
    Takes,
    /// It is masked.
    Masked,
    /// It is to take part again, and has sent nothing yet that goes on with the run's numbers.
    AskedBack,
}

/// What masks have done to a source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MaskRecord {
    /// Whether it takes part now.
    pub part: Part,
    /// When it did not, in the order of events.
    pub intervals: Vec<MaskedInterval>,
}

impl MaskRecord {
    /// Another life of the readout unit begins, in which the source takes part. Of the life before that it may not have told.
    pub(super) fn begin(&mut self, key: EventKey) {
        self.intervals.retain(|interval| interval.from < key);
        if let Some(open) = self.intervals.last_mut() {
            open.to.get_or_insert(key);
        }
    }

    /// The next turn of a source in one life of its readout unit. Of a life that ended while the source was masked the next one goes
    /// on with that.
    pub(super) fn turn(&mut self, turn: usize, key: EventKey) {
        let last = self.intervals.last_mut();
        match last.filter(|last| last.to.is_none()) {
            Some(last) if turn % 2 == 1 => last.to = Some(key),
            None if turn.is_multiple_of(2) => self.intervals.push(MaskedInterval { from: key, to: None }),
            _ => {}
        }
    }
}
