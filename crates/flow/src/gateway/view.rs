//! A single event of a set, as storage and those who watch see it: its head, and its fragments where they lie.

use super::gather::{Bytes, FragmentPlace, InPieces, Range};
use super::set::{Ending, EventSet};
use ropewalk_terms::Cause;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::gateway::{EventFlags, PieceHead};

/// Room for where the fragments of one event lie, for [`EventSet::show`].
#[derive(Debug)]
pub struct FragmentPlaces(Vec<FragmentPlace>);

impl FragmentPlaces {
    /// For sets of so many sources: with no more than these nothing is ever allocated for it.
    pub fn new(sources: usize) -> Self {
        Self(Vec::with_capacity(sources))
    }
}

impl EventSet {
    /// Shows an event to somebody who only looks, by its number in the set. Whoever asks for it later finds it as ever, and may have to walk
    /// through the packets once more.
    ///
    /// A set that was dropped has no packets, and no event has a fragment.
    pub fn show<'a>(&'a mut self, event: u16, places: &'a mut FragmentPlaces) -> GatheredEvent<'a> {
        self.gather(event.saturating_sub(is_planted(Flaw::SampleOfNeighbour).into()), &mut places.0);
        GatheredEvent::new(self, event, &places.0)
    }
}

/// What is known of an event, without its sequence number and length.
pub(super) fn head_of(set: &EventSet, event: u16) -> PieceHead {
    let state = &set.events[usize::from(event)];
    let is_whole = set.ending == Ending::Complete || is_planted(Flaw::IncompleteUnflagged);
    let incomplete = if is_whole { EventFlags(0) } else { EventFlags::INCOMPLETE };
    let again = if state.attempt.0 > 1 { EventFlags::SENT_AGAIN } else { EventFlags(0) };
    PieceHead {
        key: set.first.plus(u64::from(event)),
        flow: set.flow,
        flags: incomplete.with(again),
        attempt: state.attempt,
        ..PieceHead::default()
    }
}

/// The bytes of these fragments together.
pub(super) fn bytes_of_all(fragments: &[FragmentPlace]) -> u32 {
    fragments.iter().map(|fragment| u32::from(fragment.length)).sum()
}

/// An event that was found in its set: its head and its bytes, where they lie.
#[derive(Copy, Clone, Debug)]
pub struct GatheredEvent<'a> {
    head: PieceHead,
    set: &'a EventSet,
    event: u16,
    fragments: &'a [FragmentPlace],
}

impl<'a> GatheredEvent<'a> {
    pub(super) fn new(set: &'a EventSet, event: u16, fragments: &'a [FragmentPlace]) -> Self {
        let total = bytes_of_all(fragments);
        Self { head: PieceHead { total, length: total, ..head_of(set, event) }, set, event, fragments }
    }

    /// What is known of the event.
    pub const fn head(&self) -> PieceHead {
        self.head
    }

    /// The trigger word of the decision; 0 before there is one.
    pub fn word(&self) -> u32 {
        self.set.events[usize::from(self.event)].word
    }

    /// Its fragments in the order of sources: whose each is, by its place in the configuration, and how long.
    pub fn fragments(&self) -> impl Iterator<Item = (u16, u16)> + Clone + use<'a> {
        self.fragments.iter().map(|fragment| (fragment.source, fragment.length))
    }

    /// The sources that are missing in it, by their place in the configuration, and why.
    pub fn missing(&self) -> impl Iterator<Item = (u16, Cause)> + Clone + use<'a> {
        self.set.missing()
    }

    /// Its raw banks in the order of sources.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        InPieces::new(self.ranges())
    }

    /// The raw banks of each fragment by itself, in the order of [`GatheredEvent::fragments`].
    pub fn pieces_of_each(&self) -> impl Iterator<Item = impl Iterator<Item = &'a [u8]> + use<'a>> + use<'a> {
        self.ranges().map(|range| InPieces::new(core::iter::once(range)))
    }

    fn ranges(&self) -> impl Iterator<Item = Bytes<'a>> + use<'a> {
        let packets = &self.set.packets;
        self.fragments.iter().map(move |fragment| {
            let packet = &packets[usize::from(fragment.source)];
            Bytes::In(Range::new(packet, usize::from(fragment.start), usize::from(fragment.length)))
        })
    }
}
