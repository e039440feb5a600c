//! A set of events: the packets of all sources for N consecutive events. Allocated before the run and reused.

use super::config::FlowConfig;
use crate::messages::{append, overwrite};
use core::time::Duration;
use ropewalk_memory::{Payload, Returns, Slice, Staging};
use ropewalk_terms::{Attempt, Cause, EventKey, Instant, Verdict};
use ropewalk_wire::gateway::{EventFlags, PieceHead};
use ropewalk_wire::mep::{FragmentHeader, MEP_HEADER_BYTES};

/// How a set ended.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// Every participating source is present.
    Complete,
    /// Some packets are missing; its events go to nodes nevertheless.
    Incomplete,
    /// Its events are lost, for this cause. Its packets were dropped.
    Dropped(Cause),
}

/// State of an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It waits for a node.
    Waiting,
    /// A node has it, under this sequence number.
    Sent { node: u16, sequence: u64 },
    /// The gateway itself decides on it.
    Local,
    /// It has a decision.
    Decided,
}

/// Known properties of an event.
#[derive(Copy, Clone, Debug)]
pub(super) struct EventState {
    pub(super) stage: Stage,
    pub(super) attempt: Attempt,
    pub(super) verdict: Verdict,
    pub(super) by_default: bool,
    pub(super) word: u32,
}

impl EventState {
    const NEW: Self =
        Self { stage: Stage::Waiting, attempt: Attempt(0), verdict: Verdict::Rejected, by_default: false, word: 0 };
}

/// The packets of all sources for N consecutive events.
///
/// Passes from assembly to the farm and returns empty. Some 130 bytes move; the tables stay in place.
#[derive(Debug)]
pub struct EventSet {
    pub(super) flow: u8,
    pub(super) first: EventKey,
    /// The lumisection of its events.
    pub(super) lumisection: u32,
    pub(super) opened: Instant,
    /// Time-out for its packets.
    pub(super) waits_until: Instant,
    pub(super) ending: Ending,
    /// No set before this event is in assembly any more.
    pub(super) open_from: EventKey,
    /// Packets by source; an empty payload if the packet is absent.
    pub(super) packets: Box<[Payload]>,
    /// Known cause of an absent packet, by source.
    pub(super) absent: Box<[Option<Cause>]>,
    pub(super) received: u16,
    /// Number of participating sources.
    pub(super) wanted: u16,
    /// Number of its packets that lay in the evacuation memory at the last look.
    moved: u16,
    /// State of each event, for the farm.
    pub(super) events: Box<[EventState]>,
    /// The event that `places` refers to, by source.
    cursor: u16,
    places: Box<[u16]>,
}

impl EventSet {
    /// Creates an empty set of this flow.
    pub(super) fn new(flow: u8, config: &FlowConfig) -> Self {
        let sources = config.sources.len();
        Self {
            flow,
            first: EventKey::MIN,
            lumisection: 1,
            opened: Instant::ZERO,
            waits_until: Instant::ZERO,
            ending: Ending::Complete,
            open_from: EventKey::MIN,
            packets: core::iter::repeat_with(Payload::default).take(sources).collect(),
            absent: vec![None; sources].into_boxed_slice(),
            received: 0,
            wanted: sources as u16,
            moved: 0,
            events: vec![EventState::NEW; usize::from(config.packing)].into_boxed_slice(),
            cursor: 0,
            places: vec![MEP_HEADER_BYTES as u16; sources].into_boxed_slice(),
        }
    }

    /// Returns the index of the flow in the configuration.
    pub const fn flow(&self) -> u8 {
        self.flow
    }

    /// Returns its first event.
    pub const fn first(&self) -> EventKey {
        self.first
    }

    /// Returns the lumisection of its events, from 1.
    pub const fn lumisection(&self) -> u32 {
        self.lumisection
    }

    /// Sets the lumisection of its events. Must be called before the set goes to the farm.
    pub const fn set_lumisection(&mut self, number: u32) {
        self.lumisection = number;
    }

    /// Returns the keys of its events in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = EventKey> + use<> {
        let first = self.first;
        (0..self.events.len() as u32).map(move |index| first.plus(u64::from(index)))
    }

    /// Returns when its first packet arrived.
    pub const fn opened(&self) -> Instant {
        self.opened
    }

    /// Returns how it ended.
    pub const fn ending(&self) -> Ending {
        self.ending
    }

    /// Returns the missing sources, by their index in the configuration, with causes. Non-participating sources are not
    /// missing.
    pub fn missing(&self) -> impl Iterator<Item = (u16, Cause)> + Clone + '_ {
        (0..).zip(&self.absent).filter_map(|(source, cause)| Some((source, (*cause)?)))
    }

    /// Whether every participating source is present.
    pub(super) const fn is_whole(&self) -> bool {
        self.received == self.wanted
    }

    /// Starts an empty set with this first event, number of participating sources and time-out.
    pub(super) fn begin(&mut self, first: EventKey, wanted: u16, now: Instant, timeout: Duration) {
        (self.first, self.wanted) = (first, wanted);
        (self.opened, self.waits_until) = (now, now.after(timeout));
    }

    /// Whether a source does not participate.
    #[inline]
    pub(super) const fn is_partial(&self) -> bool {
        (self.wanted as usize) < self.packets.len()
    }

    /// Stores a packet in its place, which must be empty.
    #[inline]
    pub(super) fn place(&mut self, source: u16, packet: Payload) {
        overwrite(&mut self.packets[usize::from(source)], packet);
        self.absent[usize::from(source)] = None;
        self.received += 1;
    }

    /// Ends the set: missing participating sources without a known cause get this one.
    pub(super) fn end(&mut self, cause: Cause, takes_part: impl Fn(u16) -> bool) {
        self.ending = if self.is_whole() { Ending::Complete } else { Ending::Incomplete };
        for ((source, packet), absent) in (0..).zip(&self.packets).zip(&mut self.absent) {
            if packet.is_empty() && takes_part(source) {
                *absent = absent.or(Some(cause));
            }
        }
    }

    /// Copies packets that lie elsewhere to `room`, as far as it has space, and releases their old places. Returns
    /// their number.
    pub(super) fn evacuate(&mut self, room: &mut Staging) -> u64 {
        let mut count = 0;
        for source in (0..self.packets.len()).take_while(|_| self.moved < self.received) {
            if self.packets[source].is_empty() || self.packets[source].lies_in(room.pool()) {
                continue;
            }
            let Some(copy) = self.packets[source].evacuate(room) else { return count };
            self.packets[source] = copy;
            count += 1;
        }
        self.moved = self.received;
        count
    }

    /// Drops the packets.
    pub(super) fn let_go(&mut self) {
        let mut returns = Returns::default();
        self.packets.iter_mut().for_each(|packet| returns.take(packet));
    }

    /// Empties the set.
    pub(super) fn clear(&mut self) {
        self.let_go();
        if self.ending != Ending::Complete {
            self.absent.fill(None);
        }
        self.ending = Ending::Complete;
        (self.received, self.moved) = (0, 0);
        self.events.fill(EventState::NEW);
        self.rewind();
    }

    fn rewind(&mut self) {
        self.cursor = 0;
        self.places.fill(MEP_HEADER_BYTES as u16);
    }

    /// Finds the fragments of an event, in the order of sources, without those of size 0. Returns their size in bytes.
    ///
    /// Events are mostly requested in order, so that each packet is scanned once.
    pub(super) fn gather(&mut self, event: u16, fragments: &mut Vec<FragmentPlace>) -> u32 {
        if event < self.cursor {
            self.rewind();
        }
        while self.cursor < event {
            self.step(|_, _, _| {});
        }
        fragments.clear();
        fragments.reserve(self.packets.len());
        let mut total = 0;
        self.step(|source, start, length| {
            if length > 0 {
                append(fragments, FragmentPlace { source, start, length });
                total += u32::from(length);
            }
        });
        total
    }

    /// Advances to the next event; `visit` gets the bytes that each packet has for this event.
    #[inline]
    fn step(&mut self, mut visit: impl FnMut(u16, u16, u16)) {
        for ((source, packet), place) in (0..).zip(&self.packets).zip(&mut self.places) {
            let Some(bytes) = packet.read_array(usize::from(*place)) else { continue };
            let FragmentHeader { length, .. } = FragmentHeader::from_bytes(bytes);
            let start = *place + size_of_val(&bytes) as u16;
            visit(source, start, length);
            // Never beyond the packet's end: `check` verified that.
            *place = start + length;
        }
        self.cursor += 1;
    }
}

/// Buffer for the places of one event's fragments, for [`EventSet::show`].
#[derive(Debug)]
pub struct FragmentPlaces(Vec<FragmentPlace>);

impl FragmentPlaces {
    /// Creates a buffer for sets of this many sources, which then never grows.
    pub fn new(sources: usize) -> Self {
        Self(Vec::with_capacity(sources))
    }
}

impl EventSet {
    /// Returns an event for an observer, by its index. The farm finds the event unchanged later, but may have to scan
    /// the packets once more.
    ///
    /// A dropped set has no packets, and its events have no fragments.
    pub fn show<'a>(&'a mut self, event: u16, places: &'a mut FragmentPlaces) -> GatheredEvent<'a> {
        self.gather(event, &mut places.0);
        GatheredEvent::new(self, event, &places.0)
    }
}

/// Returns the head of an event, without its sequence number and length.
pub(super) fn head_of(set: &EventSet, event: u16) -> PieceHead {
    let state = &set.events[usize::from(event)];
    let is_whole = set.ending == Ending::Complete;
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

/// Returns the total size of these fragments in bytes.
pub(super) fn bytes_of_all(fragments: &[FragmentPlace]) -> u32 {
    fragments.iter().map(|fragment| u32::from(fragment.length)).sum()
}

/// An event of a set: its head and references to its bytes.
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

    /// Returns the head of the event.
    pub const fn head(&self) -> PieceHead {
        self.head
    }

    /// Returns its lumisection, from 1.
    pub const fn lumisection(&self) -> u32 {
        self.set.lumisection
    }

    /// Returns the trigger word of the decision; 0 before the decision.
    pub fn word(&self) -> u32 {
        self.set.events[usize::from(self.event)].word
    }

    /// Returns its fragments in the order of sources: the index of the source in the configuration, and the size.
    pub fn fragments(&self) -> impl Iterator<Item = (u16, u16)> + Clone + use<'a> {
        self.fragments.iter().map(|fragment| (fragment.source, fragment.length))
    }

    /// Returns the missing sources, by their index in the configuration, with causes.
    pub fn missing(&self) -> impl Iterator<Item = (u16, Cause)> + Clone + use<'a> {
        self.set.missing()
    }

    /// Returns its raw banks in the order of sources.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        InPieces::new(self.ranges())
    }

    /// Returns the raw banks of each fragment separately, in the order of [`GatheredEvent::fragments`].
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

/// Place of a source's banks for an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct FragmentPlace {
    /// Index of the source.
    pub(super) source: u16,
    /// Offset in its packet.
    pub(super) start: u16,
    /// Size in bytes.
    pub(super) length: u16,
}

/// A range of a packet.
#[derive(Copy, Clone, Debug)]
pub(super) struct Range<'a> {
    packet: &'a Payload,
    start: usize,
    length: usize,
}

impl<'a> Range<'a> {
    pub(super) const fn new(packet: &'a Payload, start: usize, length: usize) -> Self {
        Self { packet, start, length }
    }

    /// Whether all bytes were taken.
    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes the next contiguous bytes: all of them, unless the packet lies in several slices.
    #[inline]
    pub(super) fn take_piece(&mut self) -> Option<&'a [u8]> {
        let (start, length) = (self.start, core::mem::take(&mut self.length));
        match self.packet.contiguous() {
            Some(bytes) => bytes.get(start..start + length).filter(|bytes| !bytes.is_empty()),
            None => self.take_of_several(start, length),
        }
    }

    #[cold]
    fn take_of_several(&mut self, start: usize, length: usize) -> Option<&'a [u8]> {
        let mut before = 0;
        let here = self.packet.pieces().find_map(|piece| {
            let part = piece.get(start - before..).filter(|part| !part.is_empty());
            before += if part.is_none() { piece.len() } else { 0 };
            part
        })?;
        let part = &here[..length.min(here.len())];
        (self.start, self.length) = (start + part.len(), length - part.len());
        (!part.is_empty()).then_some(part)
    }
}

/// Iterates over the contiguous pieces of ranges.
#[derive(Clone, Debug)]
pub(super) struct InPieces<'a, I> {
    ranges: I,
    rest: Option<Range<'a>>,
}

impl<'a, I> InPieces<'a, I> {
    pub(super) const fn new(ranges: I) -> Self {
        Self { ranges, rest: None }
    }
}

impl<'a, I: Iterator<Item = Bytes<'a>>> Iterator for InPieces<'a, I> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if let Some(rest) = &mut self.rest {
                let piece = rest.take_piece();
                if rest.length == 0 {
                    self.rest = None;
                }
                if piece.is_some() {
                    return piece;
                }
                self.rest = None;
            }
            match self.ranges.next()? {
                Bytes::Here(bytes) => return Some(bytes),
                Bytes::In(mut range) => {
                    let piece = range.take_piece();
                    if range.length > 0 {
                        self.rest = Some(range);
                    }
                    if piece.is_some() {
                        return piece;
                    }
                }
            }
        }
    }
}

/// Bytes to be sent: of a head, or of a packet.
#[derive(Copy, Clone, Debug)]
pub(super) enum Bytes<'a> {
    Here(&'a [u8]),
    In(Range<'a>),
}

/// Appends a range of a packet as slices, without a copy.
pub(super) fn append_range(packet: &Payload, start: usize, length: usize, out: &mut Vec<Slice>) {
    let (mut skip, mut left) = (start, length);
    for mut slice in packet.clone().into_slices() {
        let from = skip.min(slice.len());
        let length = left.min(slice.len() - from);
        (skip, left) = (skip - from, left - length);
        if length > 0 {
            slice.skip(from);
            slice.truncate(length);
            out.push(slice);
        }
    }
}

/// Number of a set: events between the run's first event and its own, divided by the packing factor.
pub(super) type SetNumber = u64;

/// Known state of a set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// Not known: it would be new.
    New,
    /// It is in assembly, in this slot.
    Open(u16),
    /// It was complete.
    Complete,
    /// It was finished without everything.
    Incomplete,
    /// It was refused for lack of room.
    Refused(Cause),
    /// It lies before the window.
    Past,
}

const NO_SET: SetNumber = SetNumber::MAX;

/// A ring of places over set numbers.
///
/// It holds the state of the newest sets, each in its own place, so that no search is needed.
#[derive(Debug)]
pub(super) struct Window {
    places: Box<[(SetNumber, Known)]>,
    /// For each place: the sources that had arrived when the set was finished incomplete.
    came: Box<[u64]>,
    words: usize,
    /// One past the newest set.
    end: SetNumber,
}

impl Window {
    pub(super) fn new(sets: u32, sources: usize) -> Self {
        let (places, words) = ((sets as usize).next_power_of_two(), sources.div_ceil(64));
        Self {
            places: vec![(NO_SET, Known::New); places].into_boxed_slice(),
            came: vec![0; places * words].into_boxed_slice(),
            words,
            end: 0,
        }
    }

    /// One past the newest set.
    pub(super) const fn end(&self) -> SetNumber {
        self.end
    }

    /// Returns the number of sets in the window.
    pub(super) const fn places(&self) -> SetNumber {
        self.places.len() as SetNumber
    }

    const fn index(&self, set: SetNumber) -> usize {
        set as usize & (self.places.len() - 1)
    }

    /// Returns the known state of a set.
    #[inline]
    pub(super) fn get(&self, set: SetNumber) -> Known {
        let (number, known) = self.places[self.index(set)];
        if number == set {
            known
        } else if set + (self.places.len() as SetNumber) < self.end {
            Known::Past
        } else {
            Known::New
        }
    }

    /// Returns the slot of the open set that this new set would push out of the window.
    pub(super) fn open_before(&self, set: SetNumber) -> Option<u16> {
        match self.places[self.index(set)] {
            (number, Known::Open(slot)) if number != set => Some(slot),
            _ => None,
        }
    }

    /// Sets the state of a set within the window.
    pub(super) fn set(&mut self, set: SetNumber, known: Known) {
        let index = self.index(set);
        self.places[index] = (set, known);
        self.end = self.end.max(set + 1);
    }

    /// Records an incomplete set and the sources that had arrived.
    pub(super) fn set_incomplete(&mut self, set: SetNumber, came: impl Iterator<Item = bool>) {
        self.set(set, Known::Incomplete);
        let start = self.index(set) * self.words;
        let words = &mut self.came[start..][..self.words];
        words.fill(0);
        for (source, _) in came.enumerate().filter(|(_, came)| *came) {
            words[source / 64] |= 1 << (source % 64);
        }
    }

    /// Whether a source had arrived when a set was finished incomplete.
    pub(super) fn had_come(&self, set: SetNumber, source: u16) -> bool {
        let word = self.index(set) * self.words + usize::from(source) / 64;
        self.came[word] >> (source % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_memory::{Pool, PoolConfig, Staging};

    proptest! {
        #[test]
        fn a_range_is_found_however_the_packet_lies(cuts in prop::collection::vec(1_usize..20, 1..6), a in 0_usize..40, b in 0_usize..40) {
            let bytes: Vec<u8> = (0..cuts.iter().sum::<usize>() as u8).collect();
            let mut staging = Staging::new(Pool::new(PoolConfig::heap("gather", 20, 8)).expect("memory"));
            let mut rest = &bytes[..];
            let mut packet = Payload::default();
            for cut in cuts {
                let (piece, behind) = rest.split_at(cut);
                packet.push(staging.write(piece).expect("room"));
                rest = behind;
            }
            let (start, end) = (a.min(b).min(bytes.len()), a.max(b).min(bytes.len()));
            let ranges = [Bytes::In(Range::new(&packet, start, end - start)), Bytes::Here(&[7, 7])];
            let found: Vec<u8> = InPieces::new(ranges.into_iter()).flatten().copied().collect();
            prop_assert_eq!(found, [&bytes[start..end], &[7, 7]].concat());
            let mut slices = Vec::new();
            append_range(&packet, start, end - start, &mut slices);
            let sliced: Vec<u8> = slices.iter().flat_map(|slice| slice.iter()).copied().collect();
            prop_assert_eq!(&sliced, &bytes[start..end]);
        }
    }

    #[test]
    fn the_newest_sets_are_known_and_what_lies_before_them_is_past() {
        let mut window = Window::new(3, 70);
        assert_eq!((window.get(0), window.end()), (Known::New, 0));
        window.set(0, Known::Open(7));
        window.set_incomplete(2, (0..70).map(|source| source % 3 == 0));
        assert_eq!((window.get(0), window.get(1), window.get(2)), (Known::Open(7), Known::New, Known::Incomplete));
        assert!((0..70).all(|source| window.had_come(2, source) == (source % 3 == 0)));
        assert_eq!((window.open_before(4), window.open_before(0), window.open_before(5)), (Some(7), None, None));
        window.set(5, Known::Complete);
        assert_eq!(
            (window.get(0), window.get(1), window.get(2), window.get(4)),
            (Known::Open(7), Known::Past, Known::Incomplete, Known::New)
        );
        window.set(4, Known::Complete);
        assert_eq!((window.get(0), window.end()), (Known::Past, 6));
    }
}
