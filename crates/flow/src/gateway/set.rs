//! A set of events: the packets of all sources for N consecutive events. Made before the run and used again and again.

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
    /// Every source is there that takes part.
    Complete,
    /// Something is missing; its events go to nodes nevertheless.
    Incomplete,
    /// Its events are lost, for this cause. It has no packets any more.
    Dropped(Cause),
}

/// How far an event is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It waits for a node.
    Waiting,
    /// A node has it, under this sequence number.
    Sent { node: u16, sequence: u64 },
    /// The gateway itself decides on it.
    Local,
    /// It is decided.
    Decided,
}

/// What is known of an event.
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
/// Goes from assembly to the farm and comes back empty. Some 130 bytes move; the tables behind them stay where they are.
#[derive(Debug)]
pub struct EventSet {
    pub(super) flow: u8,
    pub(super) first: EventKey,
    /// The lumisection of its events.
    pub(super) lumisection: u32,
    pub(super) opened: Instant,
    /// Until then it waits for its packets.
    pub(super) waits_until: Instant,
    pub(super) ending: Ending,
    /// No set before this event is in assembly any more.
    pub(super) open_from: EventKey,
    /// By source; an empty payload if its packet is absent.
    pub(super) packets: Box<[Payload]>,
    /// By source: why the packet is absent, if a reason was seen.
    pub(super) absent: Box<[Option<Cause>]>,
    pub(super) received: u16,
    /// Sources that take part in it.
    pub(super) wanted: u16,
    /// So many of them lay where they had been moved to when it was looked last.
    moved: u16,
    /// By event: for the farm.
    pub(super) events: Box<[EventState]>,
    /// The event that `places` points to, by source.
    cursor: u16,
    places: Box<[u16]>,
}

impl EventSet {
    /// An empty set of this flow.
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

    /// Which flow, by its place in the configuration.
    pub const fn flow(&self) -> u8 {
        self.flow
    }

    /// Its first event.
    pub const fn first(&self) -> EventKey {
        self.first
    }

    /// The lumisection of its events, from 1.
    pub const fn lumisection(&self) -> u32 {
        self.lumisection
    }

    /// Its events are of this lumisection. To be said before the set goes to the farm.
    pub const fn set_lumisection(&mut self, number: u32) {
        self.lumisection = number;
    }

    /// Its events, in their order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = EventKey> + use<> {
        let first = self.first;
        (0..self.events.len() as u32).map(move |index| first.plus(u64::from(index)))
    }

    /// When its first packet came.
    pub const fn opened(&self) -> Instant {
        self.opened
    }

    /// How it ended.
    pub const fn ending(&self) -> Ending {
        self.ending
    }

    /// The sources that are missing, by their place in the configuration, and why. One that takes no part is not.
    pub fn missing(&self) -> impl Iterator<Item = (u16, Cause)> + Clone + '_ {
        (0..).zip(&self.absent).filter_map(|(source, cause)| Some((source, (*cause)?)))
    }

    /// Whether every source is there that takes part.
    pub(super) const fn is_whole(&self) -> bool {
        self.received == self.wanted
    }

    /// Begins with a first event, of so many sources, for which it waits so long; the set is empty.
    pub(super) fn begin(&mut self, first: EventKey, wanted: u16, now: Instant, timeout: Duration) {
        (self.first, self.wanted) = (first, wanted);
        (self.opened, self.waits_until) = (now, now.after(timeout));
    }

    /// Whether a source takes no part in it.
    #[inline]
    pub(super) const fn is_partial(&self) -> bool {
        (self.wanted as usize) < self.packets.len()
    }

    /// Puts a packet in its place, which must be vacant.
    #[inline]
    pub(super) fn place(&mut self, source: u16, packet: Payload) {
        overwrite(&mut self.packets[usize::from(source)], packet);
        self.absent[usize::from(source)] = None;
        self.received += 1;
    }

    /// Ends the set: sources that take part and are missing without a known cause get this one.
    pub(super) fn end(&mut self, cause: Cause, takes_part: impl Fn(u16) -> bool) {
        self.ending = if self.is_whole() { Ending::Complete } else { Ending::Incomplete };
        for ((source, packet), absent) in (0..).zip(&self.packets).zip(&mut self.absent) {
            if packet.is_empty() && takes_part(source) {
                *absent = absent.or(Some(cause));
            }
        }
    }

    /// Copies packets that lie elsewhere to `room`, as far as there is any, and lets go of where they lay. How many that were.
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

    /// Lets the packets go.
    pub(super) fn let_go(&mut self) {
        let mut returns = Returns::default();
        self.packets.iter_mut().for_each(|packet| returns.take(packet));
    }

    /// Empty again.
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

    /// Finds the fragments of an event, in the order of sources; those without bytes are left out. Returns their bytes.
    ///
    /// Events are mostly asked for one after the other: then each packet is walked through once.
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

    /// Goes to the next event; `visit` sees the bytes that each packet has for this one.
    #[inline]
    fn step(&mut self, mut visit: impl FnMut(u16, u16, u16)) {
        for ((source, packet), place) in (0..).zip(&self.packets).zip(&mut self.places) {
            let Some(bytes) = packet.read_array(usize::from(*place)) else { continue };
            let FragmentHeader { length, .. } = FragmentHeader::from_bytes(bytes);
            let start = *place + size_of_val(&bytes) as u16;
            visit(source, start, length);
            // Never beyond the packet's end: that was checked when it was placed.
            *place = start + length;
        }
        self.cursor += 1;
    }
}

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
    /// Shows an event to an observer, by its number in the set. The farm finds the event unchanged later, but may have
    /// to walk through the packets once more.
    ///
    /// A set that was dropped has no packets, and no event has a fragment.
    pub fn show<'a>(&'a mut self, event: u16, places: &'a mut FragmentPlaces) -> GatheredEvent<'a> {
        self.gather(event, &mut places.0);
        GatheredEvent::new(self, event, &places.0)
    }
}

/// What is known of an event, without its sequence number and length.
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

    /// The lumisection to which it belongs, from 1.
    pub const fn lumisection(&self) -> u32 {
        self.set.lumisection
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

/// The banks of one source for an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct FragmentPlace {
    /// Whose.
    pub(super) source: u16,
    /// Where they begin in its packet.
    pub(super) start: u16,
    /// How many bytes they have.
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

    /// Whether all of it was taken.
    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes the bytes off the front that lie in one piece: all of them, unless the packet itself lies in several.
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

/// Goes through ranges, piece by piece.
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

/// Bytes that are to be sent: of a head, or in a packet.
#[derive(Copy, Clone, Debug)]
pub(super) enum Bytes<'a> {
    Here(&'a [u8]),
    In(Range<'a>),
}

/// Appends a range of a packet as slices, where it lies.
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

/// The number of a set: events before its first one since the run's first, divided by the packing factor.
pub(super) type SetNumber = u64;

/// What is known of a set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// Nothing: it would be new.
    New,
    /// It is in assembly, in this slot.
    Open(u16),
    /// It was complete.
    Complete,
    /// It was finished without everything.
    Incomplete,
    /// There was no room for it.
    Refused(Cause),
    /// It lies before everything that is remembered.
    Past,
}

const NO_SET: SetNumber = SetNumber::MAX;

/// A ring of places over the numbers of sets.
///
/// Which sets are known: the newest ones, each in a place of its own, so that none is searched for.
#[derive(Debug)]
pub(super) struct Window {
    places: Box<[(SetNumber, Known)]>,
    /// For each place which sources had come when the set was finished incomplete.
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

    /// Number of sets that can be told apart.
    pub(super) const fn places(&self) -> SetNumber {
        self.places.len() as SetNumber
    }

    const fn index(&self, set: SetNumber) -> usize {
        set as usize & (self.places.len() - 1)
    }

    /// What is known of a set.
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

    /// The slot of an open set that would have to go for this new one, because it lies too far back.
    pub(super) fn open_before(&self, set: SetNumber) -> Option<u16> {
        match self.places[self.index(set)] {
            (number, Known::Open(slot)) if number != set => Some(slot),
            _ => None,
        }
    }

    /// Notes what is known of a set that is not past.
    pub(super) fn set(&mut self, set: SetNumber, known: Known) {
        let index = self.index(set);
        self.places[index] = (set, known);
        self.end = self.end.max(set + 1);
    }

    /// A set was finished without everything; which sources had come?
    pub(super) fn set_incomplete(&mut self, set: SetNumber, came: impl Iterator<Item = bool>) {
        self.set(set, Known::Incomplete);
        let start = self.index(set) * self.words;
        let words = &mut self.came[start..][..self.words];
        words.fill(0);
        for (source, _) in came.enumerate().filter(|(_, came)| *came) {
            words[source / 64] |= 1 << (source % 64);
        }
    }

    /// Whether a source had come when a set was finished incomplete.
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
