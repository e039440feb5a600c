//! Removes incomplete frames from a stream that misses bytes.
//!
//! ```text
//!  bytes, and how many are missing between them --> Mender --> whole frames
//!                                                      \-> Mended: the holes, and what they cost
//!  resume   where frames go on behind a hole
//! ```
//! A capture may miss packets of a connection. Behind such a hole stands the middle of a frame, and whoever reads on as if nothing were
//! missing makes frames of pieces of others.

mod resume;

pub use resume::{Resumed, StreamFrames};

use crate::framing::{Front, Search};

/// This many holes are reported with their places.
const FIRST_HOLES: usize = 8;

/// So many of the first frames show what kinds there are.
const FIRST_FRAMES: usize = 64;

/// Bytes that are missing from a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hole {
    /// How many bytes of the stream are before it.
    pub at: u64,
    /// How many are missing.
    pub bytes: u64,
    /// How many around it belong to frames of which a part is missing, or stand where nobody knows how frames go on.
    pub dropped: u64,
}

/// What was missing, and what it cost.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mended {
    /// Places at which bytes are missing.
    pub holes: u64,
    /// How many are.
    pub missing_bytes: u64,
    /// Bytes that came and were not given on.
    pub dropped_bytes: u64,
    /// The first holes.
    pub first_holes: Vec<Hole>,
}

/// Gives on the frames of a stream. Until something is missing that is every byte.
#[derive(Debug)]
pub struct Mender {
    frames: Option<StreamFrames>,
    /// The longest frame.
    most: usize,
    /// Bytes that came, and were not given on yet.
    held: Vec<u8>,
    search: Search,
    state: State,
    /// The kinds of its first frames, of which so many are still to be looked at.
    kinds: Vec<u64>,
    to_look_at: usize,
    /// Bytes of the stream so far.
    at: u64,
    mended: Mended,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// A frame begins where the held bytes do.
    Straight,
    /// Where the next frame begins is not known.
    Searching,
    /// The reader of the bytes has to cope with them.
    Through,
}

impl Mender {
    /// Of a stream of these frames, none longer than `most` bytes. Without a description nothing is held back.
    pub fn new(frames: Option<StreamFrames>, most: usize) -> Self {
        let state = if frames.is_some() { State::Straight } else { State::Through };
        let (search, mended) = (Search::default(), Mended::default());
        let (held, kinds) = (Vec::new(), Vec::new());
        Self { frames, most, held, search, state, kinds, to_look_at: FIRST_FRAMES, at: 0, mended }
    }

    /// What was missing so far.
    pub const fn mended(&self) -> &Mended {
        &self.mended
    }

    /// Takes the next bytes, and passes on whole frames; false where no more are wanted.
    pub fn push(&mut self, bytes: &[u8], give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.at += bytes.len() as u64;
        if self.state == State::Through {
            return give(bytes);
        }
        self.held.extend_from_slice(bytes);
        self.go_on(false, give)
    }

    /// So many bytes are missing before those that come next.
    pub fn miss(&mut self, bytes: u64, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let is_wanted_still = self.break_off(give);
        self.mended.holes += 1;
        self.mended.missing_bytes += bytes;
        if self.mended.first_holes.len() < FIRST_HOLES {
            self.mended.first_holes.push(Hole { at: self.at, bytes, dropped: 0 });
        }
        self.at += bytes;
        // The rest of the frame before belongs to this hole as well.
        self.drop_held(self.held.len());
        self.state = if self.frames.is_some() { State::Searching } else { State::Through };
        is_wanted_still
    }

    /// The stream begins anew: another connection.
    pub fn begin(&mut self, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let is_wanted_still = self.break_off(give);
        self.drop_held(self.held.len());
        self.state = if self.frames.is_some() { State::Straight } else { State::Through };
        self.search = Search::default();
        is_wanted_still
    }

    /// No more bytes come: passes on the rest.
    pub fn end(&mut self, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let is_wanted_still = self.break_off(give);
        if self.state == State::Searching {
            self.drop_held(self.held.len());
        }
        let rest = core::mem::take(&mut self.held);
        is_wanted_still && (rest.is_empty() || give(&rest))
    }

    /// Gives on the frames that end here, where that was not known before.
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

    /// How many of the held bytes are whole frames, and what stands between them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Description;
    use crate::foreign::ForeignFormat;
    use crate::generic;
    use crate::layout::{Counts, Frame, Layout, Length, Number, Pattern, Plan};
    use proptest::prelude::*;
    use ropewalk_terms::SourceId;
    use std::sync::Arc;

    /// What comes of a stream of frames from which a stretch is missing, however it is cut.
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

    /// The whole frames of which nothing is missing.
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

    /// Frames of a layout: a length, a word, the event, and anything.
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
