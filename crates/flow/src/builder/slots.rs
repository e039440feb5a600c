//! The slots: one row of fragments for each event in work, allocated once and reused.

use crate::messages::{Fragment, overwrite};
use ropewalk_memory::Returns;
use ropewalk_terms::{Attempt, Cause, EventKey, Instant, Outcome, Verdict};
use ropewalk_wire::message::FragmentFlags;

/// State of a slot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// No event.
    Free,
    /// Waits for answers of readout units.
    Collecting,
    /// Ready to be emitted.
    Ready,
    /// Emitted: the caller has the event.
    Emitted,
    /// Emitted in a run that is over: the caller has the event, and its progress is no longer reported.
    Leftover,
}

/// An event in work.
#[derive(Copy, Clone, Debug)]
pub(super) struct Slot {
    /// Its key.
    pub(super) key: EventKey,
    /// The attempt that will be acknowledged.
    pub(super) attempt: Attempt,
    /// The attempt in which the fragments were requested.
    pub(super) requested_as: Attempt,
    /// Its lumisection.
    pub(super) lumisection: u32,
    /// Its state.
    pub(super) stage: Stage,
    /// Whether it was acknowledged.
    pub(super) acknowledged: bool,
    /// Whether its payloads are held.
    pub(super) holds_payloads: bool,
    /// Its outcome, from `Ready` on.
    pub(super) outcome: Outcome,
    /// The verdict on it; without a filter it is accepted.
    pub(super) verdict: Verdict,
    /// Number of readout units that have not answered.
    pub(super) awaited: u16,
    /// Number of readout units without fragments in it.
    lacking: u16,
    /// Number of its fragments.
    pub(super) filled: u32,
    /// The flags of all fragments.
    pub(super) flags: FragmentFlags,
    /// Bytes charged to the credit.
    pub(super) bytes: u32,
    /// Time of its assignment.
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

/// All slots, each with one place per source and two bits per readout unit.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u32>,
    fragments: Box<[Option<Fragment>]>,
    causes: Box<[Option<Cause>]>,
    awaited: Box<[u64]>,
    lacking: Box<[u64]>,
    /// By source: references that are returned together. Empty between two calls.
    returns: Box<[Returns]>,
    sources: usize,
    words: usize,
    /// Bytes charged to the credit by events whose payloads are held.
    held_bytes: u64,
}

impl Slots {
    /// Creates slots for events of `sources` fragments from `readouts` units.
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

    /// Returns the bytes charged to the credit.
    pub(super) const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Returns the number of slots.
    pub(super) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of slots in use.
    pub(super) const fn in_work(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the slot with this number, if it exists.
    pub(super) fn get(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize)
    }

    /// Returns a slot by a number that was returned from here.
    pub(super) fn at(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Returns a slot by a number that was returned from here.
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// Returns the slots in use, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.stage != Stage::Free)
    }

    /// Takes a free slot to collect an event.
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

    /// Drops the payloads of these slots. A source's fragments of several events often lie in one block.
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

    /// Frees the slot, whose payloads must be dropped already.
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

    /// Returns the fragments by source; `None` for a source without one.
    pub(super) fn fragments(&self, slot: u32) -> &[Option<Fragment>] {
        &self.fragments[self.range(slot)]
    }

    /// Returns the known causes of missing fragments, by place.
    pub(super) fn causes(&self, slot: u32) -> &[Option<Cause>] {
        &self.causes[self.range(slot)]
    }

    /// Returns slot, fragments and causes together.
    pub(super) fn row_mut(&mut self, slot: u32) -> (&mut Slot, &mut [Option<Fragment>], &mut [Option<Cause>]) {
        let range = self.range(slot);
        (&mut self.slots[slot as usize], &mut self.fragments[range.clone()], &mut self.causes[range])
    }

    /// Marks the readout unit as awaited.
    pub(super) fn await_answer(&mut self, slot: u32, readout: u16) {
        let (word, bit) = self.bit(slot, readout);
        if self.awaited[word] & bit == 0 {
            self.awaited[word] |= bit;
            self.slots[slot as usize].awaited += 1;
        }
    }

    /// Whether the readout unit is awaited.
    pub(super) fn is_awaited(&self, slot: u32, readout: u16) -> bool {
        let (word, bit) = self.bit(slot, readout);
        self.awaited[word] & bit != 0
    }

    /// Marks the readout unit as no longer awaited.
    pub(super) fn answered(&mut self, slot: u32, readout: u16) {
        let (word, bit) = self.bit(slot, readout);
        if self.awaited[word] & bit != 0 {
            self.awaited[word] &= !bit;
            self.slots[slot as usize].awaited -= 1;
        }
    }

    /// Marks all readout units as no longer awaited.
    pub(super) fn await_none(&mut self, slot: u32) {
        let words = self.words_of(slot);
        self.awaited[words].fill(0);
        self.slots[slot as usize].awaited = 0;
    }

    /// Records that the event has nothing of this readout unit, which did not answer or reported that it holds nothing.
    pub(super) fn lack(&mut self, slot: u32, readout: u16) {
        let (word, bit) = self.bit(slot, readout);
        self.slots[slot as usize].lacking += u16::from(self.lacking[word] & bit == 0);
        self.lacking[word] |= bit;
    }

    /// Returns one bit per readout unit, set if the event has nothing of it; `None` if no unit is lacking.
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
