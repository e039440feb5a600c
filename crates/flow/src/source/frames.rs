//! The frames of emulated front ends: the data of each trigger, in the front end's own format.
//!
//! ```text
//!  trigger n, so many bytes --> FED fragment | generic fragment | a layout's frame | frames of a named format --> Frames
//! ```
//! The event number and time of a trigger are the same in every format, as far as its fields reach. The rest of a frame
//! reveals mix-ups: a word that names source and event, then [`PATTERN`], which begins at another place for each event.
//! A sender that supports gathering avoids the copy: it gets the payload's range in the pattern instead of its bytes.

use super::Trigger;
use core::ops::Range;
use ropewalk_terms::SourceId;
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::framing::Framing;
use ropewalk_wire::layout::{Contents, Frame, Plan};
use ropewalk_wire::mep::{
    BANK_HEADER_BYTES, Bank, FRAGMENT_HEADER_BYTES, LARGEST_MEP_BYTES, MEP_HEADER_BYTES, encode_bank, encode_mep,
};
use ropewalk_wire::{fed, generic};

/// The format of a front end's frames.
#[derive(Clone, Debug)]
pub enum FrameKind {
    /// CMS FED fragments.
    Fed,
    /// Generic fragments.
    Generic,
    /// Frames of a layout or of a named format.
    Described(Description),
}

/// Length of the pattern, in words.
const WORDS: usize = 8192;
/// Length of the pattern, in bytes: it stays in a core's cache.
pub const PATTERN_BYTES: usize = 8 * WORDS;
/// The content of payloads after their first word. It is repeated at its end.
pub static PATTERN: [u8; PATTERN_BYTES] = words();
/// Number of places, one word apart, at which payloads begin.
const PLACES: u64 = 1021;
/// Shorter payloads, in bytes, are copied: that costs less than a further piece in a system call.
const REFERRED: usize = 1024;

const fn words() -> [u8; PATTERN_BYTES] {
    let mut bytes = [0; PATTERN_BYTES];
    let mut place = 0;
    while place < PATTERN_BYTES {
        let word = (0x5057_524c_0000_0000 ^ (place as u64 / 8)).to_le_bytes();
        bytes[place] = word[place % 8];
        place += 1;
    }
    bytes
}

/// The range of a payload in the pattern.
#[derive(Copy, Clone, Debug)]
struct Stretch {
    from: usize,
    bytes: usize,
}

impl Stretch {
    /// Returns the range of a payload of `bytes` bytes, after its first word.
    const fn of(source: SourceId, number: u64, bytes: usize) -> Self {
        Self { from: 8 * ((number + 31 * source.0 as u64) % PLACES) as usize, bytes }
    }

    /// Returns its pieces in order.
    fn pieces<'a>(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self;
        core::iter::from_fn(move || {
            let piece = rest.first()?;
            rest = rest.behind(piece.len());
            Some(&PATTERN[piece])
        })
    }

    /// Returns the part up to the pattern's end, or to its own.
    fn first(self) -> Option<Range<usize>> {
        (self.bytes > 0).then(|| self.from..PATTERN_BYTES.min(self.from + self.bytes))
    }

    /// Returns the range without its first bytes.
    const fn behind(self, bytes: usize) -> Self {
        Self { from: (self.from + bytes) % PATTERN_BYTES, bytes: self.bytes - bytes }
    }
}

/// The trailers of FED fragments of one length. The CRC is linear: it is computed once per payload, and the change
/// caused by the words that name source and event costs a few nanoseconds.
#[derive(Clone, Debug)]
struct Trailers {
    /// 0 before the first payload.
    payload_bytes: usize,
    header: fed::Patch,
    word: fed::Patch,
    /// Trailers by the place of the payload, with a header and a first word of zeros.
    known: Vec<Option<fed::Trailer>>,
}

impl Default for Trailers {
    fn default() -> Self {
        let nothing = fed::Patch::for_length(0);
        Self { payload_bytes: 0, header: nothing.clone(), word: nothing, known: vec![None; PLACES as usize] }
    }
}

impl Trailers {
    /// Whether they are for payloads of this length: that of the first payload.
    fn are_for(&mut self, payload_bytes: usize) -> bool {
        if self.payload_bytes == 0 {
            let length = payload_bytes + fed::MIN_BYTES;
            let (header, word) = (fed::Patch::for_length(length), fed::Patch::for_length(length - fed::WORD_BYTES));
            (self.payload_bytes, self.header, self.word) = (payload_bytes, header, word);
        }
        self.payload_bytes == payload_bytes
    }

    fn of(&mut self, header: fed::Header, word: u64, rest: Stretch) -> Result<fed::Trailer, fed::FedError> {
        let known = &mut self.known[rest.from / 8];
        let plain = match *known {
            Some(plain) => plain,
            None => {
                let zeros = [0; 2 * fed::WORD_BYTES];
                let plain = fed::trailer_of(fed::Trailer::new(), core::iter::once(&zeros[..]).chain(rest.pieces()))?;
                *known.insert(plain)
            }
        };
        Ok(plain.with_crc(plain.crc() ^ self.header.change(header.to_word()) ^ self.word.change(word)))
    }
}

/// A piece of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// These of [`PATTERN`].
    Pattern(Range<usize>),
}

/// The bytes of one trigger: frames, or the datagrams of frames; or a frame of several triggers.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// A payload that was not copied, and the offset in `bytes` before which it is sent.
    payload: Option<(usize, Stretch)>,
    /// The end of each frame or datagram; in a stream they are contiguous.
    ends: Vec<usize>,
    /// Number of events in them.
    events: u64,
}

impl Frames {
    /// Returns all bytes, except a payload that was not copied ([`FrameMaker::by_reference`]).
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of bytes, copied or not.
    pub fn length(&self) -> usize {
        self.bytes.len() + self.payload.map_or(0, |(_, stretch)| stretch.bytes)
    }

    /// Returns the piece that begins at an offset, of at most `most` bytes.
    pub fn piece(&self, from: usize, most: usize) -> Piece<'_> {
        let (place, stretch) = self.payload.unwrap_or((self.bytes.len(), Stretch { from: 0, bytes: 0 }));
        let cut = |range: Range<usize>| range.start..range.end.min(range.start.saturating_add(most));
        if from < place {
            return Piece::Bytes(&self.bytes[cut(from..place)]);
        }
        match from.checked_sub(place + stretch.bytes) {
            Some(behind) => Piece::Bytes(&self.bytes[cut(place + behind..self.bytes.len())]),
            None => Piece::Pattern(cut(stretch.behind(from - place).first().unwrap_or_default())),
        }
    }

    /// Returns the range of the frame or datagram with this index; `None` past the last one.
    pub fn range(&self, index: usize) -> Option<Range<usize>> {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends.get(before).copied().unwrap_or(0));
        self.ends.get(index).map(|&end| begin..end)
    }

    /// Returns the number of events in them.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Replaces the content by a copy of one frame.
    pub fn put(&mut self, frame: &[u8]) {
        self.put_events(1, |bytes| bytes.extend_from_slice(frame));
    }

    /// Replaces the content by one frame of `events` events, which `append` writes.
    fn put_events(&mut self, events: u64, append: impl FnOnce(&mut Vec<u8>)) {
        self.clear();
        append(&mut self.bytes);
        self.end();
        self.events = events;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.payload = None;
        self.ends.clear();
        self.events = 1;
    }

    fn end(&mut self) {
        self.ends.push(self.length());
    }
}

/// The most bytes of each datagram of a frame that is sent in several.
const PIECE_BYTES: usize = 8192;
/// The longest payload of a UDP datagram.
const MOST_DATAGRAM: usize = 65_507;
/// Clock advance per trigger if triggers are issued without times, at full speed.
const NOMINAL_NANOSECONDS: u64 = 1000;
/// Payload bytes with which the overhead of a named format's frame is measured.
const TRIAL_BYTES: usize = 64;

/// Makes the frames of one front end.
#[derive(Clone, Debug)]
pub struct FrameMaker {
    source: SourceId,
    /// The value of its counter in the run's first event.
    first: u64,
    kind: FrameKind,
    /// The longest frame, in bytes.
    most: usize,
    payload: Vec<u8>,
    /// For a named format: the bytes of an empty frame, and of a frame with [`TRIAL_BYTES`] of payload without these.
    measure: (usize, usize),
    /// The packet that is being filled, if frames hold several events.
    packet: Option<Packet>,
    /// Whether its user sends payloads by reference.
    by_reference: bool,
    trailers: Option<Box<Trailers>>,
}

impl FrameMaker {
    /// Creates the maker of a source's frames of at most `most` bytes, whose numbers begin with `first`. Frames in
    /// datagrams are no longer than UDP allows.
    pub fn new(source: SourceId, first: u64, kind: FrameKind, most: usize, comes_in_datagrams: bool) -> Self {
        let in_pieces = matches!(&kind, FrameKind::Described(description) if description.comes_in_pieces());
        let most = if comes_in_datagrams && !in_pieces { most.min(MOST_DATAGRAM) } else { most };
        let measure = match &kind {
            FrameKind::Described(Description::Format(format) | Description::Board(format, _)) => {
                let bytes = |payload: &[u8]| {
                    let frames = format.emulate(source.0, first as u32, payload).unwrap_or_default();
                    frames.iter().map(Vec::len).sum::<usize>()
                };
                let empty = bytes(&[]);
                (empty, bytes(&[0; TRIAL_BYTES]).saturating_sub(empty).max(1))
            }
            _ => (0, 1),
        };
        Self {
            source,
            first,
            kind,
            most,
            payload: Vec::new(),
            measure,
            packet: None,
            by_reference: false,
            trailers: None,
        }
    }

    /// Packs the events of this many triggers into each frame, a multi-event packet; fewer if it would be too long.
    #[must_use]
    pub fn packed(mut self, packing: u16) -> Self {
        self.packet = Some(Packet::new(self.source, packing, self.most));
        self
    }

    /// Does not copy the payloads of FED and generic fragments, except short ones: [`Frames::piece`] returns where they
    /// lie.
    #[must_use]
    pub fn by_reference(mut self) -> Self {
        self.by_reference = true;
        self.trailers = self.is_fed().then(|| Box::new(Trailers::default()));
        self
    }

    /// Whether its frames are FED fragments, which travel in FEROL blocks.
    pub const fn is_fed(&self) -> bool {
        matches!(self.kind, FrameKind::Fed)
    }

    /// Returns the bytes at the beginning of a connection; empty if there are none.
    pub fn greeting(&self) -> Vec<u8> {
        let hello = generic::Hello::new(self.source, generic::HelloFlags::default(), "emulator");
        match (&self.kind, hello) {
            (FrameKind::Generic, Ok(hello)) => hello.to_bytes().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Returns the counter's value at a trigger.
    pub const fn number(&self, trigger: &Trigger) -> u64 {
        self.first.wrapping_add(trigger.number - 1)
    }

    /// Adds the data of a trigger, about `bytes` bytes. Returns true if `frames` were replaced, false if the data waits
    /// for the events of other triggers.
    pub fn add(&mut self, trigger: &Trigger, bytes: usize, frames: &mut Frames) -> bool {
        let number = self.number(trigger);
        let Some(mut packet) = self.packet.take() else {
            self.make(trigger, bytes, frames);
            return true;
        };
        self.fill(number, packet.data_bytes(bytes));
        // Waiting events are sent without the new one if there is no room for it.
        let is_early = !packet.is_empty() && packet.is_too_short_for(self.payload.len());
        if is_early {
            packet.send(frames);
        }
        packet.put(number, &self.payload);
        let is_sent = !is_early && packet.is_full();
        if is_sent {
            packet.send(frames);
        }
        self.packet = Some(packet);
        is_early || is_sent
    }

    /// Whether events wait for others.
    pub fn holds_back(&self) -> bool {
        self.packet.as_ref().is_some_and(|packet| !packet.is_empty())
    }

    /// Replaces `frames` by the waiting events, if there are any.
    pub fn send_rest(&mut self, frames: &mut Frames) -> bool {
        let waits = self.holds_back();
        self.packet.iter_mut().filter(|_| waits).for_each(|packet| packet.send(frames));
        waits
    }

    /// Replaces `frames` by the data of a trigger, about `bytes` bytes: as near as the format allows.
    pub fn make(&mut self, trigger: &Trigger, bytes: usize, frames: &mut Frames) {
        frames.clear();
        let (number, bytes) = (self.number(trigger), bytes.min(self.most));
        // Only a reference is cloned.
        match self.kind.clone() {
            FrameKind::Fed => {
                let header = fed::Header::new(self.source, number as u32 & 0xff_ffff, trigger.bunch_crossing);
                self.fed(header, number, bytes, frames);
                frames.end();
            }
            FrameKind::Generic => {
                let payload_bytes = bytes.saturating_sub(generic::HEADER_BYTES);
                let header = generic::Header {
                    source: self.source,
                    flags: generic::Flags::default(),
                    event_number: number,
                    timestamp: nanoseconds(trigger),
                    payload_bytes: payload_bytes as u32,
                };
                frames.bytes.extend_from_slice(&header.to_bytes());
                self.payload(number, payload_bytes, frames);
                frames.end();
            }
            FrameKind::Described(Description::Layout(plan)) => self.layout(&plan, trigger, number, bytes, frames),
            FrameKind::Described(Description::Format(format) | Description::Board(format, _)) => {
                self.format(format, number, bytes, frames);
            }
        }
    }

    fn fed(&mut self, header: fed::Header, number: u64, bytes: usize, frames: &mut Frames) {
        // Sizes of emulated fragments are multiples of 8 within the range of FED fragments.
        let payload_bytes = bytes.saturating_sub(fed::MIN_BYTES);
        frames.bytes.extend_from_slice(&header.to_bytes());
        self.payload(number, payload_bytes, frames);
        let base = self.base(number);
        let trailer = match frames.payload {
            Some((place, rest)) => {
                // Trailers are kept for the first length only; with a distribution of sizes there are too many.
                let trailers = self.trailers.as_deref_mut();
                match trailers.and_then(|trailers| trailers.are_for(payload_bytes).then_some(trailers)) {
                    Some(trailers) => trailers.of(header, base, rest),
                    None => {
                        let pieces = core::iter::once(&frames.bytes[..place]).chain(rest.pieces());
                        fed::trailer_of(fed::Trailer::new(), pieces)
                    }
                }
            }
            None => fed::trailer_of(fed::Trailer::new(), core::iter::once(&frames.bytes[..])),
        };
        debug_assert!(trailer.is_ok(), "an emulated fragment of {bytes} bytes is refused");
        frames.bytes.extend_from_slice(&trailer.unwrap_or_default().to_bytes());
    }

    /// Appends a payload, or notes its range in the pattern.
    fn payload(&self, number: u64, bytes: usize, frames: &mut Frames) {
        let base = self.base(number).to_le_bytes();
        let first = bytes.min(base.len());
        frames.bytes.extend_from_slice(&base[..first]);
        let rest = Stretch::of(self.source, number, bytes - first);
        if self.by_reference && bytes >= REFERRED {
            frames.payload = Some((frames.bytes.len(), rest));
        } else {
            rest.pieces().for_each(|piece| frames.bytes.extend_from_slice(piece));
        }
    }

    fn layout(&mut self, plan: &Plan, trigger: &Trigger, number: u64, bytes: usize, frames: &mut Frames) {
        self.fill(number, bytes);
        if let Frame::Delimiter { bytes: delimiter } = &plan.layout().frame {
            write_text(delimiter, &mut self.payload);
        }
        let contents = Contents {
            event: number,
            time: plan.tick().ticks_in(nanoseconds(trigger)),
            source: self.source.0,
            sequence: number,
            ..Contents::default()
        };
        plan.compose_datagrams(&contents, &self.payload, PIECE_BYTES, &mut frames.bytes, &mut frames.ends);
    }

    fn format(&mut self, format: ForeignFormat, number: u64, bytes: usize, frames: &mut Frames) {
        let (empty, trial) = self.measure;
        let mut length = bytes.saturating_sub(empty) * TRIAL_BYTES / trial;
        let made = loop {
            self.fill(number, length);
            match format.emulate(self.source.0, number as u32, &self.payload) {
                Some(made) => break made,
                None if length == 0 => break Vec::new(),
                // The length exceeds the fields of the format.
                None => length /= 2,
            }
        };
        for frame in made {
            frames.bytes.extend_from_slice(&frame);
            frames.end();
        }
    }

    /// Returns the first word of a payload.
    fn base(&self, number: u64) -> u64 {
        (u64::from(self.source.0) << 48) ^ (number << 16)
    }

    /// Copies a payload.
    fn fill(&mut self, number: u64, bytes: usize) {
        let base = self.base(number).to_le_bytes();
        let first = bytes.min(base.len());
        self.payload.clear();
        self.payload.extend_from_slice(&base[..first]);
        let rest = Stretch::of(self.source, number, bytes - first);
        rest.pieces().for_each(|piece| self.payload.extend_from_slice(piece));
    }
}

/// Returns the time of a trigger, in nanoseconds since the start.
fn nanoseconds(trigger: &Trigger) -> u64 {
    if trigger.at.is_zero() { NOMINAL_NANOSECONDS.wrapping_mul(trigger.number) } else { trigger.at.as_nanos() as u64 }
}

/// Fills the payload with text that does not contain these bytes.
fn write_text(without: &[u8], payload: &mut [u8]) {
    let letters = (b'a'..=b'z').filter(|letter| !without.contains(letter));
    for (place, letter) in payload.iter_mut().zip(letters.cycle()) {
        *place = letter;
    }
}

/// The partition in the packets.
const PARTITION: u32 = 1;

/// The packet that a board is filling.
#[derive(Clone, Debug)]
struct Packet {
    source: SourceId,
    /// The most events in a packet.
    packing: usize,
    /// The most bytes of a packet.
    most: usize,
    first: u64,
    /// The banks of the events in order, and the end of each.
    banks: Vec<u8>,
    ends: Vec<usize>,
}

impl Packet {
    /// Creates an empty packet of at most `packing` events and `most` bytes.
    pub(super) fn new(source: SourceId, packing: u16, most: usize) -> Self {
        let (packing, most) = (packing.max(1).into(), most.min(LARGEST_MEP_BYTES));
        Self { source, packing, most, first: 0, banks: Vec::new(), ends: Vec::with_capacity(packing) }
    }

    /// Returns the data bytes in the bank of a fragment of `fragment_bytes` bytes, at most those that it may have.
    fn data_bytes(&self, fragment_bytes: usize) -> usize {
        let most = self.most.saturating_sub(MEP_HEADER_BYTES) / 4 * 4;
        fragment_bytes.min(most).saturating_sub(FRAGMENT_HEADER_BYTES + BANK_HEADER_BYTES)
    }

    /// Whether the packet is empty.
    pub(super) const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether the packet holds the most events.
    const fn is_full(&self) -> bool {
        self.ends.len() == self.packing
    }

    /// Whether an event with this much data would make the packet too long.
    const fn is_too_short_for(&self, data_bytes: usize) -> bool {
        let events = self.ends.len() + 1;
        let bank = (BANK_HEADER_BYTES + data_bytes).next_multiple_of(4);
        MEP_HEADER_BYTES + events * FRAGMENT_HEADER_BYTES + self.banks.len() + bank > self.most
    }

    /// Appends the next event.
    fn put(&mut self, number: u64, data: &[u8]) {
        if self.is_empty() {
            self.first = number;
        }
        let bank = Bank { kind: 1, version: 1, source: self.source.0 as i16, data };
        let encoded = encode_bank(&bank, &mut self.banks);
        debug_assert!(encoded.is_ok(), "a bank of {} bytes is refused", data.len());
        self.ends.push(self.banks.len());
    }

    /// Replaces `frames` by the packet, and begins the next one.
    fn send(&mut self, frames: &mut Frames) {
        let starts = core::iter::once(0).chain(self.ends.iter().copied());
        let banks = starts.zip(&self.ends).map(|(start, &end)| &self.banks[start..end]);
        frames.put_events(self.ends.len() as u64, |bytes| {
            let encoded = encode_mep(self.first as u32, PARTITION, banks, bytes);
            debug_assert!(encoded.is_ok(), "a packet of {} events is refused", self.ends.len());
        });
        self.banks.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_wire::layout::{Layout, Number};
    use ropewalk_wire::mep::MepView;
    use std::sync::Arc;

    fn trigger(number: u64) -> Trigger {
        Trigger { number, bunch_crossing: 5, at: core::time::Duration::from_micros(40 * number) }
    }

    fn maker(kind: FrameKind, most: usize, comes_in_datagrams: bool) -> FrameMaker {
        FrameMaker::new(SourceId(3), 4, kind, most, comes_in_datagrams)
    }

    #[test]
    fn frames_are_as_long_as_wanted_and_as_the_format_allows() {
        let layout = Layout { event: vec![Number::big_endian(0, 4)], ..Layout::new(Frame::Datagram, 5000) };
        let plan = Plan::compile(&layout).map(|plan| Description::from(Arc::new(plan))).expect("a layout");
        let named = |format: ForeignFormat| FrameKind::Described(format.into());
        let cases = [
            (maker(FrameKind::Fed, 4096, false), [(64, 64), (1 << 16, 4096)]),
            (maker(FrameKind::Generic, 4096, false), [(16, generic::HEADER_BYTES), (1000, 1000)]),
            (maker(FrameKind::Described(plan), 1 << 20, true), [(2, 4), (9000, 5000)]),
            (maker(named(ForeignFormat::Dune), 1 << 20, true), [(1000, 1000), (1 << 20, MOST_DATAGRAM)]),
            (maker(named(ForeignFormat::Srs), 4000, true), [(1000, 1000), (8000, 4000)]),
        ];
        let mut frames = Frames::default();
        for (mut maker, sizes) in cases {
            for (wanted, length) in sizes {
                maker.make(&trigger(1), wanted, &mut frames);
                assert_eq!(frames.bytes().len(), length, "{:?}, {wanted}", maker.kind);
                assert_eq!((frames.range(0), frames.range(1)), (Some(0..length), None));
            }
        }
    }

    #[test]
    fn every_payload_has_its_crc_also_the_second_time() {
        let mut maker = maker(FrameKind::Fed, 4096, false).by_reference();
        let mut frames = Frames::default();
        for number in 1..2500 {
            maker.make(&trigger(number), if number % 7 == 0 { 1504 } else { 1496 }, &mut frames);
            let bytes = put_together(&frames, usize::MAX);
            fed::Fragment::parse(&bytes).and_then(|fragment| fragment.check_crc()).expect("a fragment");
        }
    }

    /// Joins all pieces into contiguous bytes.
    fn put_together(frames: &Frames, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < frames.length() {
            let before = all.len();
            match frames.piece(before, most) {
                Piece::Bytes(bytes) => all.extend_from_slice(bytes),
                Piece::Pattern(place) => all.extend_from_slice(&PATTERN[place]),
            }
            assert!((1..=most).contains(&(all.len() - before)), "{before}");
        }
        all
    }

    #[test]
    fn payloads_by_reference_are_those_that_would_be_copied() {
        for kind in [FrameKind::Fed, FrameKind::Generic] {
            let mut copying = maker(kind.clone(), 1 << 20, false);
            let mut referring = maker(kind.clone(), 1 << 20, false).by_reference();
            let (mut copied, mut referred) = (Frames::default(), Frames::default());
            for (number, bytes) in (1..).zip([16, 24, 64, 1000, 2048, 65_536, 200_000]) {
                copying.make(&trigger(number), bytes, &mut copied);
                referring.make(&trigger(number), bytes, &mut referred);
                assert_eq!((referred.length(), referred.range(0)), (copied.bytes().len(), copied.range(0)));
                for most in [7, 4000, usize::MAX] {
                    assert!(put_together(&referred, most) == copied.bytes(), "{kind:?}, {bytes} B, {most}");
                }
                assert!(bytes < 2048 || referred.bytes().len() < 64, "{kind:?}, {bytes} B");
                if matches!(kind, FrameKind::Fed) {
                    fed::Fragment::parse(copied.bytes()).and_then(|fragment| fragment.check_crc()).expect("a fragment");
                }
            }
        }
    }

    #[test]
    fn no_payload_looks_like_another() {
        let mut payloads = std::collections::BTreeSet::new();
        for source in [3, 4] {
            for number in 1..=900 {
                let mut frames = Frames::default();
                FrameMaker::new(SourceId(source), 1, FrameKind::Fed, 4096, false).make(
                    &trigger(number),
                    512,
                    &mut frames,
                );
                // Without header and trailer, and without the word that names source and event.
                assert!(payloads.insert(frames.bytes()[16..504].to_vec()) || source == 4, "event {number}");
                let first = u64::from_le_bytes(frames.bytes()[8..16].try_into().expect("a word"));
                assert_eq!(first, u64::from(source) << 48 ^ number << 16);
            }
        }
    }

    /// The numbers of events in a packet.
    fn events_of(frames: &Frames) -> Vec<u16> {
        let view = ropewalk_wire::mep::MepView::parse(frames.bytes()).expect("a packet");
        assert_eq!(frames.events(), view.fragments().count() as u64);
        view.fragments().map(|(event, _)| event).collect()
    }

    #[test]
    fn a_board_that_gathers_sends_a_packet_when_it_is_full_or_would_be_too_long_and_the_rest_in_the_end() {
        let kind = FrameKind::Described(ForeignFormat::LhcbMep.into());
        let mut maker = maker(kind, 200, true).packed(3);
        let (mut frames, mut sent) = (Frames::default(), Vec::new());
        for (number, bytes) in [(1, 40), (2, 40), (3, 40), (4, 120), (5, 120), (6, 2000), (7, 0)] {
            if maker.add(&trigger(number), bytes, &mut frames) {
                assert!(frames.bytes().len() <= 200);
                sent.push(events_of(&frames));
            }
        }
        assert!(maker.holds_back() && maker.send_rest(&mut frames));
        sent.push(events_of(&frames));
        assert!(!maker.holds_back() && !maker.send_rest(&mut frames));
        assert_eq!(sent, [vec![4, 5, 6], vec![7], vec![8], vec![9], vec![10]], "its counter begins with 4");
    }

    #[test]
    fn text_never_holds_the_end_of_its_line() {
        let mut text = [0; 60];
        write_text(b"ae", &mut text);
        assert!(text.is_ascii() && !text.contains(&b'a') && !text.contains(&b'e'));
    }

    #[test]
    fn a_packet_holds_what_was_put_into_it_and_is_no_longer_than_it_may_be() {
        let mut packet = Packet::new(SourceId(7), 3, 100);
        let mut frames = Frames::default();
        assert_eq!((packet.data_bytes(20), packet.data_bytes(1000)), (8, 76));
        for event in 40..42 {
            assert!(!packet.is_full() && !packet.is_too_short_for(8));
            packet.put(event, &[event as u8; 8]);
        }
        // 12 of the packet, 20 of each event.
        assert!(packet.is_too_short_for(37) && !packet.is_too_short_for(36));
        packet.put(42, &[]);
        assert!(packet.is_full());
        packet.send(&mut frames);
        assert!(packet.is_empty());
        assert_eq!(frames.events(), 3);
        let view = MepView::parse(frames.bytes()).expect("a packet");
        let events: Vec<_> =
            view.fragments().map(|(event, bank)| (event, bank[BANK_HEADER_BYTES..].to_vec())).collect();
        assert_eq!(events, [(40, vec![40; 8]), (41, vec![41; 8]), (42, vec![])]);
        assert_eq!(view.header().first_event, 40);
    }
}
