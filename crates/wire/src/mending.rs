//! Removes incomplete frames from a stream that has lost bytes.
//!
//! ```text
//!  bytes, and how many are missing between them --> Mender --> whole frames
//!                                                      \-> Mended: the holes, and what they cost
//! ```
//! A capture may lack packets of a connection. The bytes behind such a hole are the middle of a frame, and a reader
//! that ignored the hole would join pieces of different frames. [`StreamFrames`] and [`Resumed`] find the next frame
//! behind a hole.

use core::fmt::Arguments;

use crate::description::Description;
use crate::foreign::{Describe, ForeignFormat, Inspector, Value};
use crate::framing::{Fields, Framing, Front, Search};
use crate::generic;
use crate::message::FragmentFlags;

/// Number of holes that are reported with their places.
const FIRST_HOLES: usize = 8;

/// Number of first frames that show which kinds exist.
const FIRST_FRAMES: usize = 64;

/// Missing bytes of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hole {
    /// Offset in the stream.
    pub at: u64,
    /// Number of missing bytes.
    pub bytes: u64,
    /// Number of bytes around it that belong to incomplete frames, or precede the next known start of a frame.
    pub dropped: u64,
}

/// The missing bytes, and the resulting loss.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mended {
    /// Number of places with missing bytes.
    pub holes: u64,
    /// Number of missing bytes.
    pub missing_bytes: u64,
    /// Number of received bytes that were not passed on.
    pub dropped_bytes: u64,
    /// The first holes.
    pub first_holes: Vec<Hole>,
}

/// Passes on the frames of a stream. As long as nothing is missing, it passes on every byte.
#[derive(Debug)]
pub struct Mender {
    frames: Option<StreamFrames>,
    /// Maximum length of a frame.
    most: usize,
    /// Received bytes that were not passed on yet.
    held: Vec<u8>,
    search: Search,
    state: State,
    /// The kinds of its first frames, and the number of frames still to be examined.
    kinds: Vec<u64>,
    to_look_at: usize,
    /// Number of bytes of the stream so far.
    at: u64,
    mended: Mended,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// A frame begins at the first held byte.
    Straight,
    /// The start of the next frame is unknown.
    Searching,
    /// The bytes are passed on to the reader unchecked.
    Through,
}

impl Mender {
    /// Makes a mender for a stream of these frames, none longer than `most` bytes. Without a description nothing is
    /// held back.
    pub fn new(frames: Option<StreamFrames>, most: usize) -> Self {
        let state = if frames.is_some() { State::Straight } else { State::Through };
        let (search, mended) = (Search::default(), Mended::default());
        let (held, kinds) = (Vec::new(), Vec::new());
        Self { frames, most, held, search, state, kinds, to_look_at: FIRST_FRAMES, at: 0, mended }
    }

    /// The losses so far.
    pub const fn mended(&self) -> &Mended {
        &self.mended
    }

    /// Takes the next bytes, and passes on whole frames. False if no more are wanted.
    pub fn push(&mut self, bytes: &[u8], give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.at += bytes.len() as u64;
        if self.state == State::Through {
            return give(bytes);
        }
        self.held.extend_from_slice(bytes);
        self.go_on(false, give)
    }

    /// Reports that `bytes` bytes are missing before the next ones.
    pub fn miss(&mut self, bytes: u64, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let is_wanted_still = self.break_off(give);
        self.mended.holes += 1;
        self.mended.missing_bytes += bytes;
        if self.mended.first_holes.len() < FIRST_HOLES {
            self.mended.first_holes.push(Hole { at: self.at, bytes, dropped: 0 });
        }
        self.at += bytes;
        // The rest of the frame before also belongs to this hole.
        self.drop_held(self.held.len());
        self.state = if self.frames.is_some() { State::Searching } else { State::Through };
        is_wanted_still
    }

    /// Begins the stream again, for another connection.
    pub fn begin(&mut self, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let is_wanted_still = self.break_off(give);
        self.drop_held(self.held.len());
        self.state = if self.frames.is_some() { State::Straight } else { State::Through };
        self.search = Search::default();
        is_wanted_still
    }

    /// Ends the stream: passes on the rest.
    pub fn end(&mut self, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let is_wanted_still = self.break_off(give);
        if self.state == State::Searching {
            self.drop_held(self.held.len());
        }
        let rest = core::mem::take(&mut self.held);
        is_wanted_still && (rest.is_empty() || give(&rest))
    }

    /// Passes on the frames that end here, if that was not known before.
    fn break_off(&mut self, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.state != State::Searching || self.go_on(true, give)
    }

    fn go_on(&mut self, is_over: bool, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let Some(frames) = &self.frames else { return true };
        if self.state == State::Searching {
            match frames.resume(&self.held, is_over, self.most, &self.kinds) {
                Resumed::Unknown(bytes) => {
                    self.drop_held(bytes);
                    return true;
                }
                Resumed::Behind(bytes) => {
                    self.drop_held(bytes);
                    (self.state, self.search) = (State::Straight, Search::default());
                }
            }
        }
        let whole = self.whole();
        if self.state == State::Through {
            let held = core::mem::take(&mut self.held);
            return give(&held);
        }
        let is_wanted_still = whole == 0 || give(&self.held[..whole]);
        self.held.drain(..whole);
        is_wanted_still
    }

    /// Number of held bytes that are whole frames, with the bytes between them.
    fn whole(&mut self) -> usize {
        let Some(frames) = &self.frames else { return 0 };
        let mut whole = 0;
        loop {
            match frames.front(&self.held[whole..], &mut self.search) {
                Front::Frame { bytes } if bytes <= self.most => {
                    if self.to_look_at > 0 {
                        self.to_look_at -= 1;
                        let kind = frames.kind_of(&self.held[whole..whole + bytes]);
                        self.kinds.extend(kind.filter(|kind| !self.kinds.contains(kind)));
                    }
                    (whole, self.search) = (whole + bytes, Search::default());
                }
                Front::Skip { bytes, .. } => whole += bytes,
                Front::Needs { bytes } if bytes <= self.most.max(self.held.len() - whole + 1) => return whole,
                // The reader of the bytes reports the error.
                Front::Frame { .. } | Front::Needs { .. } | Front::Lost { .. } => {
                    self.state = State::Through;
                    return whole;
                }
            }
        }
    }

    fn drop_held(&mut self, bytes: usize) {
        self.held.drain(..bytes);
        self.mended.dropped_bytes += bytes as u64;
        let is_told = self.mended.holes <= FIRST_HOLES as u64;
        if let Some(hole) = self.mended.first_holes.last_mut().filter(|_| is_told) {
            hole.dropped += bytes as u64;
        }
    }
}

// Finding the next frame in a stream that has lost bytes.
//
// ```text
// ... frame | frame | fra[ bytes that are missing ]me | frame | frame ...
//                                                   ^ may be the middle of a frame
// ```
// A position is taken as the beginning of a frame if further frames follow it and their contents confirm it: by fixed
// bytes common to all frames of the source, by right checksums, or by consecutive numbers.

/// Number of consecutive frames that are accepted as proof.
const FRAMES: usize = 3;

/// The result of a search behind missing bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Resumed {
    /// A frame begins behind this many bytes.
    Behind(usize),
    /// No frame begins within this many bytes; more bytes are needed to decide about the rest.
    Unknown(usize),
}

/// The description of a stream's frames, as far as needed to find where one begins.
#[derive(Clone, Debug)]
pub enum StreamFrames {
    /// With a description.
    Described(Description),
    /// Generic fragments behind a hello.
    Generic,
}

impl From<Description> for StreamFrames {
    fn from(description: Description) -> Self {
        Self::Described(description)
    }
}

impl StreamFrames {
    /// The element at the front of some bytes.
    pub fn front(&self, bytes: &[u8], search: &mut Search) -> Front {
        match self {
            Self::Described(description) => description.front(bytes, search),
            Self::Generic => generic::front(bytes),
        }
    }

    /// The kind of a frame, as a number for comparison: frames of some formats contain others, which are frames as
    /// well.
    pub fn kind_of(&self, frame: &[u8]) -> Option<u64> {
        let Self::Described(Description::Format(format) | Description::Board(format, _)) = self else { return None };
        let mut kind = Kind(0);
        format.describe(frame, &mut kind);
        if *format == ForeignFormat::Eudaq {
            crate::foreign::eudaq::description(frame).iter().for_each(|byte| kind.add(*byte));
        }
        Some(kind.0)
    }

    /// Searches behind missing bytes for a place at which frames continue. None is longer than `most`, and the first
    /// has one of the known kinds, if there are any. `is_over`: no more bytes will arrive.
    pub fn resume(&self, bytes: &[u8], is_over: bool, most: usize, kinds: &[u64]) -> Resumed {
        if let Self::Described(Description::Layout(plan)) = self
            && plan.is_delimited()
        {
            // Bytes before the first end of a frame are the rest of a frame.
            return match plan.front(bytes, &mut Search { seen: 0, adrift: true }) {
                Front::Skip { bytes, .. } => Resumed::Behind(bytes),
                _ => Resumed::Unknown(0),
            };
        }
        for at in 0..bytes.len() {
            match self.judge(&bytes[at..], is_over, most, kinds) {
                Place::Begin => return Resumed::Behind(at),
                Place::Open => return Resumed::Unknown(at),
                Place::Other => {}
            }
        }
        Resumed::Unknown(bytes.len())
    }

    fn judge(&self, bytes: &[u8], is_over: bool, most: usize, kinds: &[u64]) -> Place {
        let (mut at, mut proof) = (0, Proof::default());
        while proof.frames < FRAMES {
            let rest = &bytes[at..];
            match self.front(rest, &mut Search::default()) {
                Front::Frame { bytes } if bytes <= most && self.agrees(&rest[..bytes]) => {
                    if at == 0
                        && !kinds.is_empty()
                        && self.kind_of(&rest[..bytes]).is_some_and(|kind| !kinds.contains(&kind))
                    {
                        return Place::Other;
                    }
                    proof.add(self, &rest[..bytes]);
                    at += bytes;
                }
                Front::Skip { bytes, .. } if proof.frames > 0 && self.is_filler(&rest[..bytes]) => at += bytes,
                Front::Needs { bytes } if bytes <= most.saturating_add(rest.len()) => {
                    if !is_over && rest.len() <= most {
                        return Place::Open;
                    }
                    break;
                }
                _ => return Place::Other,
            }
        }
        if self.is_proven(&proof) { Place::Begin } else { Place::Other }
    }

    fn is_filler(&self, bytes: &[u8]) -> bool {
        matches!(self, Self::Described(description) if description.is_filler(bytes))
    }

    /// Whether a frame contains no contradiction.
    fn agrees(&self, frame: &[u8]) -> bool {
        if frame.iter().all(|byte| *byte == 0) {
            return false;
        }
        match self {
            Self::Generic => true,
            Self::Described(Description::Layout(plan)) => plan.is_matched(frame) && plan.checksum(frame) != Some(false),
            Self::Described(Description::Format(format) | Description::Board(format, _)) => is_plain(*format, frame),
        }
    }

    /// Whether this many consistent frames are more than chance.
    fn is_proven(&self, proof: &Proof) -> bool {
        const ENOUGH_BITS: usize = 16;
        let bits = match self {
            Self::Generic | Self::Described(Description::Format(_) | Description::Board(..)) => ENOUGH_BITS,
            Self::Described(Description::Layout(plan)) => plan.mark_bits() as usize,
        };
        proof.frames > 0
            && (bits * proof.frames >= ENOUGH_BITS || proof.right == proof.frames || proof.counts && proof.frames > 1)
    }
}

enum Place {
    Begin,
    Other,
    /// More bytes are needed to decide.
    Open,
}

/// The combined evidence of consecutive frames.
#[derive(Debug, Default)]
struct Proof {
    frames: usize,
    /// Number of frames with right checksums.
    right: usize,
    /// Whether their numbers are consecutive.
    counts: bool,
    number: Option<u64>,
}

impl Proof {
    fn add(&mut self, stream: &StreamFrames, frame: &[u8]) {
        if let StreamFrames::Described(description) = stream {
            let Fields { event, sequence, .. } = description.fields(frame);
            let (number, bits) = match sequence {
                Some(number) => (Some(number), description.widths().sequence),
                None => (event, description.widths().event),
            };
            let follows = self.number.zip(number).is_some_and(|(before, number)| {
                number.wrapping_sub(before.wrapping_add(1)) << (64 - u32::from(bits.clamp(1, 64))) == 0
            });
            self.counts = if self.frames == 0 { number.is_some() } else { self.counts && follows };
            self.number = number;
            self.right += usize::from(description.checksum(frame) == Some(true));
        }
        self.frames += 1;
    }
}

/// Whether a frame of a named format has the fixed properties of the format.
fn is_plain(format: ForeignFormat, frame: &[u8]) -> bool {
    let is_plain = match format {
        // Hardly any other field of its header is constant.
        ForeignFormat::Nscldaq => format.looks_like(frame),
        ForeignFormat::Midas => crate::foreign::midas::has_banks(frame),
        _ => true,
    };
    let mut faults = Faults(0);
    let flags = format.fields(frame).flags;
    let is_whole = |flag: FragmentFlags| flags.0 & flag.0 == 0;
    if !is_plain || !is_whole(FragmentFlags::MALFORMED) || format.checksum(frame) == Some(false) {
        return false;
    }
    format.describe(frame, &mut faults);
    faults.0 == 0
}

/// The name of a frame's kind, as a number.
struct Kind(u64);

impl Kind {
    fn add(&mut self, byte: u8) {
        self.0 = self.0.wrapping_mul(0x0100_0000_01B3) ^ u64::from(byte);
    }
}

impl Inspector for Kind {
    fn kind(&mut self, name: &str) {
        name.bytes().for_each(|byte| self.add(byte));
    }

    fn field(&mut self, _: &str, _: usize, _: usize, _: Value<'_>) {}

    fn part(&mut self, _: Arguments<'_>, _: usize, _: usize) {}

    fn fault(&mut self, _: usize, _: &'static str) {}
}

/// Counts contradictions.
struct Faults(usize);

impl Inspector for Faults {
    fn kind(&mut self, _: &str) {}

    fn field(&mut self, _: &str, _: usize, _: usize, _: Value<'_>) {}

    fn part(&mut self, _: Arguments<'_>, _: usize, _: usize) {}

    fn fault(&mut self, _: usize, _: &'static str) {
        self.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::description::Description;
    use crate::foreign::ForeignFormat;
    use crate::generic;
    use crate::layout::{Counts, Frame, Layout, Length, Number, Pattern, Plan};
    use ropewalk_terms::SourceId;

    /// The result for a stream of frames with a missing stretch, however it is cut.
    fn mended(frames: StreamFrames, stream: &[u8], hole: core::ops::Range<usize>, piece: usize) -> (Vec<u8>, Mended) {
        let (mut mender, mut out) = (Mender::new(Some(frames), 1 << 16), Vec::new());
        let mut give = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            true
        };
        stream[..hole.start].chunks(piece).for_each(|piece| _ = mender.push(piece, &mut give));
        mender.miss(hole.len() as u64, &mut give);
        stream[hole.end..].chunks(piece).for_each(|piece| _ = mender.push(piece, &mut give));
        mender.end(&mut give);
        (out, mender.mended().clone())
    }

    /// The whole frames without missing bytes.
    fn expected(frames: &[Vec<u8>], hole: &core::ops::Range<usize>) -> Vec<u8> {
        let mut at = 0;
        let is_whole = |frame: &&Vec<u8>| {
            at += frame.len();
            at <= hole.start || at - frame.len() >= hole.end
        };
        frames.iter().filter(is_whole).flatten().copied().collect()
    }

    fn noise(event: u32, bytes: usize) -> Vec<u8> {
        let mut state = u64::from(event) | 1 << 40;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        core::iter::repeat_with(next).take(bytes).collect()
    }

    /// Frames of a layout: a length, a word, the event, and arbitrary bytes.
    fn own(events: u32) -> Vec<Vec<u8>> {
        let frame = |event: u32| {
            let payload = noise(event, 20 + (event % 50) as usize);
            let length = (8 + payload.len()) as u16;
            [&length.to_be_bytes()[..], &[0xbe, 0xef], &event.to_be_bytes(), &payload].concat()
        };
        (1..=events).map(frame).collect()
    }

    fn own_layout(marked: bool, counted: bool) -> StreamFrames {
        let length = Length { number: Number::big_endian(0, 2), unit: 1, counts: Counts::Frame, add: 0 };
        let pattern = Pattern { at: 2, bytes: vec![0xbe, 0xef], mask: None };
        let layout = Layout {
            matches: marked.then_some(pattern),
            event: if counted { vec![Number::big_endian(4, 4)] } else { Vec::new() },
            ..Layout::new(Frame::Length(length), 1 << 12)
        };
        Description::from(Arc::new(Plan::compile(&layout).expect("it makes sense"))).into()
    }

    fn named(format: ForeignFormat, events: u32) -> Vec<Vec<u8>> {
        let frame = |event| {
            let payload = noise(event, 24 + 8 * (event % 20) as usize);
            format.emulate(3, event, &payload).expect("it is short")
        };
        (1..=events).flat_map(frame).collect()
    }

    fn generic(events: u32) -> Vec<Vec<u8>> {
        let frame = |event: u32| {
            let payload = noise(event, (event % 90) as usize);
            let header = generic::Header {
                source: SourceId(3),
                flags: generic::Flags::default(),
                event_number: event.into(),
                timestamp: 0,
                payload_bytes: payload.len() as u32,
            };
            [&header.to_bytes()[..], &payload].concat()
        };
        (1..=events).map(frame).collect()
    }

    fn streams() -> Vec<(&'static str, StreamFrames, Vec<Vec<u8>>)> {
        let formats = ForeignFormat::ALL.iter().filter(|format| !format.needs_datagrams());
        let named = formats.map(|&format| (format.name(), StreamFrames::Described(format.into()), named(format, 60)));
        let own = [("match", own_layout(true, false), own(60)), ("event", own_layout(false, true), own(60))];
        named.chain(own).chain([("generic", StreamFrames::Generic, generic(60))]).collect()
    }

    #[test]
    fn behind_a_hole_frames_go_on_in_every_format() {
        for (name, frames, all) in streams() {
            let stream = all.concat();
            for (begin, bytes, piece) in [(1000, 1, 7), (1003, 700, 64), (1500, 1448, 1448), (1111, 97, 1 << 20)] {
                let hole = begin..begin + bytes;
                let (out, mended) = mended(frames.clone(), &stream, hole.clone(), piece);
                let expected = expected(&all, &hole);
                assert!(out == expected, "{name}, {hole:?}: {} of {} bytes", out.len(), expected.len());
                assert_eq!((mended.holes, mended.missing_bytes), (1, bytes as u64), "{name}");
                let dropped = stream.len() - bytes - expected.len();
                assert_eq!(mended.dropped_bytes, dropped as u64, "{name}");
                assert_eq!(
                    mended.first_holes,
                    [Hole { at: begin as u64, bytes: bytes as u64, dropped: dropped as u64 }]
                );
            }
        }
    }

    #[test]
    fn where_nothing_shows_how_frames_go_on_the_rest_is_dropped_and_counted() {
        let (all, frames) = (own(60), own_layout(false, false));
        let (out, mended) = mended(frames, &all.concat(), 1000..1100, 64);
        assert!(all.concat().starts_with(&out) && out.len() > 900);
        assert_eq!(mended.dropped_bytes, (all.concat().len() - 100 - out.len()) as u64);
    }

    #[test]
    fn a_stream_that_begins_anew_is_not_put_together_with_the_one_before() {
        let all = own(10);
        let (mut mender, mut out) = (Mender::new(Some(own_layout(true, true)), 1 << 16), Vec::new());
        let mut give = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            true
        };
        let half = [&all[..5].concat()[..], &all[5][..9]].concat();
        mender.push(&half, &mut give);
        mender.begin(&mut give);
        mender.push(&all[6..].concat(), &mut give);
        mender.end(&mut give);
        assert_eq!((mender.mended().holes, mender.mended().dropped_bytes), (0, 9));
        assert!(out == [&all[..5].concat()[..], &all[6..].concat()].concat());
    }

    #[test]
    fn zeros_are_no_frames_behind_a_hole() {
        for (name, frames, all) in streams() {
            let (mut mender, mut out) = (Mender::new(Some(frames), 1 << 16), Vec::new());
            let mut give = |bytes: &[u8]| {
                out.extend_from_slice(bytes);
                true
            };
            mender.push(&all[0], &mut give);
            mender.miss(5, &mut give);
            mender.push(&[0; 4096], &mut give);
            mender.end(&mut give);
            assert!(out.len() <= all[0].len() && mender.mended().dropped_bytes >= 4096, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_given_on_or_counted(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000),
            which in 0_usize..20, at in 0_usize..3000, missing in 0_u64..5000, piece in 1_usize..500,
        ) {
            let streams = streams();
            let frames = streams[which % streams.len()].1.clone();
            let (mut mender, mut given) = (Mender::new(Some(frames), 512), 0);
            let (before, behind) = bytes.split_at(at.min(bytes.len()));
            let mut give = |bytes: &[u8]| {
                given += bytes.len();
                true
            };
            before.chunks(piece).for_each(|piece| _ = mender.push(piece, &mut give));
            mender.miss(missing, &mut give);
            behind.chunks(piece).for_each(|piece| _ = mender.push(piece, &mut give));
            mender.end(&mut give);
            prop_assert_eq!(given as u64 + mender.mended().dropped_bytes, bytes.len() as u64);
        }
    }
}
