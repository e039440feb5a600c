//! The slots: one row of fragments for each event in work, made once and used again.

use crate::messages::{Fragment, overwrite};
use ropewalk_memory::Returns;
use ropewalk_terms::{Attempt, Cause, EventKey, Instant, Outcome, Verdict};
use ropewalk_wire::message::FragmentFlags;

/// How far a slot's event has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// There is no event.
    Free,
    /// Readout units are still to answer.
    Collecting,
    /// To be emitted.
    Ready,
    /// Emitted: the caller has the event.
    Emitted,
    /// Emitted in a run that is over: the caller has the event, and its progress is no longer reported.
    Leftover,
}

/// An event in work.
#[derive(Copy, Clone, Debug)]
pub(super) struct Slot {
    /// The event.
    pub(super) key: EventKey,
    /// The attempt that will be acknowledged.
    pub(super) attempt: Attempt,
    /// The attempt in which the fragments were requested.
    pub(super) requested_as: Attempt,
    /// The lumisection to which it belongs.
    pub(super) lumisection: u32,
    /// How far it has come.
    pub(super) stage: Stage,
    /// It was acknowledged.
    pub(super) acknowledged: bool,
    /// Its payloads are held.
    pub(super) holds_payloads: bool,
    /// How it ended, from `Ready` on.
    pub(super) outcome: Outcome,
    /// What was decided of it; without a filter, that it is kept.
    pub(super) verdict: Verdict,
    /// Readout units that have not answered.
    pub(super) awaited: u16,
    /// Readout units of whose fragments there are none in it.
    lacking: u16,
    /// Fragments that are there.
    pub(super) filled: u32,
    /// The flags of all of them.
    pub(super) flags: FragmentFlags,
    /// Bytes charged to the credit.
    pub(super) bytes: u32,
    /// When it was assigned.
    pub(super) since: Instant,
}

impl Slot {
    const FREE: Self = Self {
        key: EventKey::MAX,
        attempt: Attempt(0),
        requested_as: Attempt(0),
        lumisection: 0,
        stage: Stage::Free,
        acknowledged: false,
        holds_payloads: false,
        outcome: Outcome::Complete,
        verdict: Verdict::Accepted,
        awaited: 0,
        lacking: 0,
        filled: 0,
        flags: FragmentFlags(0),
        bytes: 0,
        since: Instant::ZERO,
    };
}

/// All slots, and for each one place for each source and two bits for each readout unit.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u32>,
    fragments: Box<[Option<Fragment>]>,
    causes: Box<[Option<Cause>]>,
    awaited: Box<[u64]>,
    lacking: Box<[u64]>,
    /// By source: references that go back together. Holds nothing between two calls.
    returns: Box<[Returns]>,
    sources: usize,
    words: usize,
    /// Charged to the credit by events whose payloads are held.
    held_bytes: u64,
}

impl Slots {
    /// Slots for events of `sources` fragments from `readouts` units.
    pub(super) fn new(slots: u32, sources: usize, readouts: u16) -> Self {
        let (count, words) = (slots as usize, usize::from(readouts).div_ceil(64));
        Self {
            slots: vec![Slot::FREE; count].into_boxed_slice(),
            free: (0..slots).rev().collect(),
            fragments: (0..count * sources).map(|_| None).collect(),
            causes: vec![None; count * sources].into_boxed_slice(),
            awaited: vec![0; count * words].into_boxed_slice(),
            lacking: vec![0; count * words].into_boxed_slice(),
            returns: (0..sources).map(|_| Returns::default()).collect(),
            sources,
            words,
            held_bytes: 0,
        }
    }

    /// Bytes that are charged to the credit.
    pub(super) const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// How many slots there are.
    pub(super) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many hold an event.
    pub(super) const fn in_work(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot, if there is one of that number.
    pub(super) fn get(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize)
    }

    /// A slot whose number came from here.
    pub(super) fn at(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// A slot whose number came from here.
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// The slots that hold an event, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.stage != Stage::Free)
    }

    /// Takes a free slot for an event that begins to be collected.
    pub(super) fn take(&mut self, now: Instant, key: EventKey, attempt: Attempt, bytes: u32) -> Option<u32> {
        let slot = self.free.pop()?;
        self.held_bytes += u64::from(bytes);
        self.slots[slot as usize] = Slot {
            key,
            attempt,
            requested_as: attempt,
            stage: Stage::Collecting,
            holds_payloads: true,
            bytes,
            since: now,
            ..Slot::FREE
        };
        Some(slot)
    }

    /// Lets go of the payloads of these slots. What one source sent of several events often lies in one block.
    pub(super) fn drop_payloads(&mut self, slots: &[u32]) {
        for &slot in slots {
            self.held_bytes = self.held_bytes.saturating_sub(u64::from(self.at(slot).bytes));
            self.at_mut(slot).holds_payloads = false;
            let range = self.range(slot);
            for (fragment, returns) in self.fragments[range].iter_mut().zip(&mut self.returns) {
                if let Some(fragment) = fragment {
                    returns.take(&mut fragment.payload);
                }
                overwrite(fragment, None);
            }
        }
        self.returns.fill_with(Returns::default);
    }

    /// The slot is free again. Its payloads must be dropped.
    pub(super) fn give_back(&mut self, slot: u32) {
        let range = self.range(slot);
        self.causes[range].fill(None);
        if self.at(slot).lacking > 0 {
            let words = self.words_of(slot);
            self.lacking[words].fill(0);
        }
        *self.at_mut(slot) = Slot::FREE;
        self.free.push(slot);
    }

    /// The fragments by source; `None` if the source has none.
    pub(super) fn fragments(&self, slot: u32) -> &[Option<Fragment>] {
        &self.fragments[self.range(slot)]
    }

    /// Why a source has no fragment, by place, where that is known.
    pub(super) fn causes(&self, slot: u32) -> &[Option<Cause>] {
        &self.causes[self.range(slot)]
    }

    /// Fragments and causes of one slot together.
    pub(super) fn row_mut(&mut self, slot: u32) -> (&mut Slot, &mut [Option<Fragment>], &mut [Option<Cause>]) {
        let range = self.range(slot);
        (&mut self.slots[slot as usize], &mut self.fragments[range.clone()], &mut self.causes[range])
    }

    /// The readout unit has to answer.
    pub(super) fn await_answer(&mut self, slot: u32, readout: u16) {
        let (word, bit) = self.bit(slot, readout);
        if self.awaited[word] & bit == 0 {
            self.awaited[word] |= bit;
            self.slots[slot as usize].awaited += 1;
        }
    }

    /// Whether the readout unit has to answer.
    pub(super) fn is_awaited(&self, slot: u32, readout: u16) -> bool {
        let (word, bit) = self.bit(slot, readout);
        self.awaited[word] & bit != 0
    }

    /// The readout unit has answered or is not waited for any more.
    pub(super) fn answered(&mut self, slot: u32, readout: u16) {
        let (word, bit) = self.bit(slot, readout);
        if self.awaited[word] & bit != 0 {
            self.awaited[word] &= !bit;
            self.slots[slot as usize].awaited -= 1;
        }
    }

    /// No readout unit has to answer for this event any more.
    pub(super) fn await_none(&mut self, slot: u32) {
        let words = self.words_of(slot);
        self.awaited[words].fill(0);
        self.slots[slot as usize].awaited = 0;
    }

    /// The event will have nothing of this readout unit, which did not answer or said that it holds nothing.
    pub(super) fn lack(&mut self, slot: u32, readout: u16) {
        let (word, bit) = self.bit(slot, readout);
        self.slots[slot as usize].lacking += u16::from(self.lacking[word] & bit == 0);
        self.lacking[word] |= bit;
    }

    /// One bit per readout unit, set if the event has nothing of it; `None` if it lacks no unit.
    pub(super) fn lacking(&self, slot: u32) -> Option<&[u64]> {
        (self.at(slot).lacking > 0).then(|| &self.lacking[self.words_of(slot)])
    }

    const fn words_of(&self, slot: u32) -> core::ops::Range<usize> {
        let first = slot as usize * self.words;
        first..first + self.words
    }

    const fn range(&self, slot: u32) -> core::ops::Range<usize> {
        let first = slot as usize * self.sources;
        first..first + self.sources
    }

    const fn bit(&self, slot: u32, readout: u16) -> (usize, u64) {
        (slot as usize * self.words + readout as usize / 64, 1 << (readout % 64))
    }
}
