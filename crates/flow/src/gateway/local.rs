//! Events that a gateway decides itself, without a farm. They lie in slots like those of a builder unit, with their
//! fragments where they were received, until they are written or dropped.
//!
//! ```text
//!  set --> events wait --> slot, emitted --> decided --> written: slot and set are free
//!                             \--> rejected, or taken by no stream: free
//! ```
//! The decider reports the result for a slot: first [`Farm::decided`], then [`Farm::finished`].

use super::dispatch::EventPlace;
use super::farm::{Farm, Ruling, is_waiting};
use super::set::{Ending, Stage, append_range};
use super::{FlowConfig, GatewayConfig};
use crate::builder::{BuilderSource, EventView};
use crate::messages::{Fragment, FragmentFlags, FragmentMeta};
use ropewalk_memory::{Payload, Slice};
use ropewalk_terms::{Attempt, Instant, Verdict};

/// The account of events that a gateway decided itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalCounts {
    /// Accepted and quarantined events that were written in all their streams.
    pub written: u64,
    /// Events that could not be written.
    pub failed: u64,
    /// Accepted events that no stream selected.
    pub left_out: u64,
}

/// The slots.
#[derive(Debug)]
pub(super) struct Local {
    /// The event in each slot.
    places: Box<[Option<EventPlace>]>,
    vacant: Vec<u32>,
    /// Fragments by slot and source.
    fragments: Box<[Option<Fragment>]>,
    /// Maximum number of sources of a flow.
    width: usize,
    /// By flow.
    sources: Box<[Box<[BuilderSource]>]>,
    pieces: Vec<Slice>,
    counts: LocalCounts,
}

impl Local {
    /// Creates the slots of a gateway; `None` if nodes decide.
    pub(super) fn new(config: &GatewayConfig) -> Option<Self> {
        let slots = config.farm.local_events;
        let width = config.flows.iter().map(|flow| flow.sources.len()).max().unwrap_or_default();
        let sources = |flow: &FlowConfig| flow.sources.iter().map(|source| BuilderSource::new(source.id, 0)).collect();
        (slots > 0).then(|| Self {
            places: vec![None; slots as usize].into_boxed_slice(),
            vacant: (0..slots).rev().collect(),
            fragments: core::iter::repeat_with(|| None).take(slots as usize * width).collect(),
            width,
            sources: config.flows.iter().map(sources).collect(),
            pieces: Vec::with_capacity(64),
            counts: LocalCounts::default(),
        })
    }

    fn row(&self, slot: u32) -> core::ops::Range<usize> {
        let begin = slot as usize * self.width;
        begin..begin + self.width
    }

    fn place(&self, slot: u32) -> Option<EventPlace> {
        *self.places.get(slot as usize)?
    }
}

impl Farm {
    /// Takes the next event to decide and returns its slot; `None` if no event waits or every slot is in use.
    pub fn next_local(&mut self) -> Option<u32> {
        let Self { local, flows, slots, stored_fragments, .. } = self;
        let local = local.as_mut()?;
        let &slot = local.vacant.last()?;
        let next = |flow: &mut super::farm::FarmFlow| {
            core::iter::from_fn(|| flow.waiting.pop_front()).find(|place| is_waiting(*place, slots))
        };
        let place = flows.iter_mut().find_map(next)?;
        let held = slots[usize::from(place.slot)].as_mut()?;
        held.set.gather(place.event, stored_fragments);
        let state = &mut held.set.events[usize::from(place.event)];
        (state.stage, state.attempt) = (Stage::Local, Attempt(1));
        let raw_id = Self::key(held, place.event).number() & 0xFFFF_FFFF;
        let sources = &local.sources[usize::from(held.set.flow)];
        let begin = local.row(slot).start;
        for place in stored_fragments.iter() {
            let (source, start, length) = (usize::from(place.source), place.start.into(), place.length.into());
            append_range(&held.set.packets[source], start, length, &mut local.pieces);
            let mut payload = Payload::default();
            local.pieces.drain(..).for_each(|piece| payload.push(piece));
            let meta = FragmentMeta {
                source: sources[source].id,
                length: u32::from(place.length),
                flags: FragmentFlags(0),
                bunch_crossing: 0,
                trigger_type: 0,
                raw_id,
                time: 0,
            };
            local.fragments[begin + source] = Some(Fragment { meta, payload });
        }
        local.places[slot as usize] = Some(place);
        local.vacant.pop()
    }

    /// Returns the event in a slot, between [`Farm::next_local`] and [`Farm::finished`].
    ///
    /// # Panics
    /// If the slot is empty.
    pub fn event(&self, slot: u32) -> EventView<'_> {
        let local = self.local.as_ref().expect("the gateway decides itself");
        let place = local.place(slot).expect("there is an event in the slot");
        let held = self.slots[usize::from(place.slot)].as_ref().expect("the set of an event in a slot is held");
        EventView {
            key: Self::key(held, place.event),
            attempt: held.set.events[usize::from(place.event)].attempt,
            lumisection: held.set.lumisection,
            complete: held.set.ending == Ending::Complete,
            sources: &local.sources[usize::from(held.set.flow)],
            fragments: &local.fragments[local.row(slot)],
            causes: &held.set.absent,
        }
    }

    /// Records the decision on the event in a slot. All events but rejected ones are held until [`Farm::finished`].
    pub fn decided(&mut self, slot: u32, verdict: Verdict, now: Instant) {
        let Some(place) = self.local.as_ref().and_then(|local| local.place(slot)) else { return };
        let is_open =
            self.held(place).is_some_and(|held| held.set.events[usize::from(place.event)].stage == Stage::Local);
        if is_open {
            self.decide(place, Ruling { verdict, word: 0, by_default: false }, now);
        }
    }

    /// Ends the event in a slot: it was written in all its streams, or could not be written, or was not to be written.
    pub fn finished(&mut self, slot: u32, is_written: bool) {
        let Some(local) = &mut self.local else { return };
        let Some(place) = local.places[slot as usize].take() else { return };
        let bytes: u64 = local.fragments[local.row(slot)].iter().flatten().map(|it| u64::from(it.meta.length)).sum();
        let row = local.row(slot);
        local.fragments[row].fill_with(|| None);
        local.vacant.push(slot);
        let Some(held) = self.slots[usize::from(place.slot)].as_mut().filter(|held| held.serial == place.serial) else {
            return;
        };
        let verdict = held.set.events[usize::from(place.event)].verdict;
        if verdict == Verdict::Rejected {
            return;
        }
        held.leaving -= 1;
        *(match verdict {
            Verdict::Unselected => &mut local.counts.left_out,
            _ if is_written => &mut local.counts.written,
            _ => &mut local.counts.failed,
        }) += 1;
        let account = &mut self.flows[usize::from(held.set.flow)].account;
        (account.stored, account.stored_bytes) = (account.stored + 1, account.stored_bytes + bytes);
        self.release(place.slot);
    }

    /// Returns the account of events decided here.
    pub fn local_counts(&self) -> LocalCounts {
        self.local.as_ref().map(|local| local.counts).unwrap_or_default()
    }
}
