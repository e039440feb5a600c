//! Between frames and events: a gatherer makes one fragment of several frames, a divider makes several fragments of one frame.

use super::described::{Held, WideClock};
use super::{FrameCounts, given_up};
use crate::messages::{FragmentFlags, Received};
use core::mem::replace;
use core::time::Duration;
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::framing::{Fields, Framing, MOST_PIECES, Piece, PieceKey, Splitter};
use std::collections::VecDeque;

/// How long the next frame of an event is waited for, where nothing else is said.
pub const GATHER_TIMEOUT: Duration = Duration::from_millis(100);

/// What a frame says of its place among the others of its event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// [`Fields::place`].
    place: Option<u32>,
    /// [`Fields::is_last`].
    is_last: Option<bool>,
    /// [`Fields::sequence`].
    sequence: Option<u64>,
    /// Frames before it are lost, as the source's own numbering shows.
    is_behind_gap: bool,
}

impl Place {
    pub(super) const fn new(fields: &Fields, is_behind_gap: bool) -> Self {
        Self { place: fields.place, is_last: fields.is_last, sequence: fields.sequence, is_behind_gap }
    }

    /// Whether the frame is the one before it once more.
    fn repeats(&self, before: &Self) -> bool {
        let is_same = self.sequence.is_some() && self.sequence == before.sequence;
        is_same || self.place.is_some() && self.place <= before.place
    }

    /// How many frames are missing in front of it, by its place; `next` is the place that it should have.
    fn missing(&self, next: u32) -> u32 {
        self.place.map_or(0, |place| place.saturating_sub(next))
    }

    /// Whether frames are missing between the one before it and this one.
    fn is_behind(&self, before: &Self) -> bool {
        if self.place.is_some() { self.missing(before.next()) > 0 } else { self.is_behind_gap }
    }

    /// The place of the frame behind it.
    fn next(&self) -> u32 {
        self.place.map_or(0, |place| place.saturating_add(1))
    }
}

/// The event whose frames come.
#[derive(Debug)]
struct Open {
    number: u64,
    /// What came of it, or the entry of what was given up.
    fragment: Received,
    /// Of its last frame.
    place: Place,
    heard: Instant,
    /// Nothing more comes of it.
    is_whole: bool,
}

/// Gathers the frames of one source.
///
/// Frames of one event that follow each other become one fragment, where a source sends an event in several.
///
/// ```text
///  put(frame) --> goes on with the event that is open: behind what is there of it
///             \-> is of another one: that one is open now, and the one before leaves
/// ```
/// An event is whole when its last frame says so, when another one begins, when the connection ends, or when nothing came for
/// a while. What is known to be missing in it is flagged ([`FragmentFlags::FRAMES_MISSING`]), and what comes behind it is late.
#[derive(Debug, Default)]
pub(super) struct Gatherer {
    open: Option<Open>,
    /// The event that left last.
    left: Option<u64>,
    /// When the source could not be heard, last: a frame that came before may be looked at only now.
    unheard: Instant,
    /// Frames that went on with an event that was open.
    gathered: u64,
    /// Frames that came twice, one right behind the other.
    repeated: u64,
    /// Frames that their places show to be missing, of a source that does not number them otherwise.
    missing: u64,
}

impl Gatherer {
    /// A frame that came at `now`: at most one entry is appended, that of the event before it or of a frame that came too
    /// late. A fragment that becomes longer than `most` bytes is given up.
    pub(super) fn put(&mut self, now: Instant, frame: Received, place: Place, most: u32, out: &mut Vec<Received>) {
        let number = frame.meta.raw_id;
        let begins = place.place == Some(0) || frame.restarts;
        if let Some(open) = &mut self.open
            && open.number == number
            && (!begins || place.repeats(&open.place))
        {
            if place.repeats(&open.place) {
                self.repeated += 1;
            } else if open.is_whole {
                out.push(given_up(frame.meta.source, Cause::Late));
            } else {
                let missing = place.missing(open.place.next());
                open.append(now.max(self.unheard), frame, place, most);
                self.gathered += 1;
                self.note_missing(place, missing);
            }
            return;
        }
        if !begins && self.left == Some(number) {
            out.push(given_up(frame.meta.source, Cause::Late));
            return;
        }
        self.give(out);
        self.note_missing(place, place.missing(0));
        let mut fragment = frame;
        if place.place > Some(0) {
            fragment.meta.flags = fragment.meta.flags.with(FragmentFlags::FRAMES_MISSING);
        }
        let is_whole = place.is_last == Some(true);
        self.open = Some(Open { number, fragment, place, heard: now.max(self.unheard), is_whole });
    }

    fn note_missing(&mut self, place: Place, count: u32) {
        if place.sequence.is_none() {
            self.missing += u64::from(count);
        }
    }

    /// A frame was lost, of an unknown event.
    pub(super) const fn note_lost(&mut self) {
        if let Some(open) = &mut self.open
            && !open.is_whole
        {
            open.place.is_behind_gap = true;
            open.flag();
        }
    }

    /// Whether [`Gatherer::give_whole`] has something to give.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(&self.open, Some(Open { is_whole: true, .. }))
    }

    /// Appends the event that is open, if nothing more comes of it.
    pub(super) fn give_whole(&mut self, out: &mut Vec<Received>) {
        if self.is_whole() {
            self.give(out);
        }
    }

    /// Appends the open event, complete or not: nothing more comes.
    pub(super) fn give(&mut self, out: &mut Vec<Received>) {
        let Some(mut open) = self.open.take() else { return };
        // The format marks last frames, and this one's has not come.
        if !open.is_whole && open.place.is_last == Some(false) {
            open.flag();
            self.note_missing(open.place, 1);
        }
        self.left = Some(open.number);
        out.push(open.fragment);
    }

    /// Time passes, in which the source could be heard (`was_heard`) or not: the open event ends once the source could
    /// be heard for `timeout` and was silent. Returns whether the open event has ended.
    pub(super) fn settle(&mut self, now: Instant, was_heard: bool, timeout: Duration) -> bool {
        if !was_heard {
            self.unheard = now;
        }
        let Some(open) = &mut self.open else { return false };
        open.heard = open.heard.max(self.unheard);
        if !open.is_whole && now >= open.heard.after(timeout) {
            if open.place.is_last == Some(false) {
                open.flag();
                self.missing += u64::from(open.place.sequence.is_none());
            }
            open.is_whole = true;
        }
        open.is_whole
    }

    /// What was seen since it was asked last, beside these.
    pub(super) const fn add_counts(&mut self, counts: FrameCounts) -> FrameCounts {
        FrameCounts {
            gathered: counts.gathered + replace(&mut self.gathered, 0),
            repeated: counts.repeated + replace(&mut self.repeated, 0),
            missing: counts.missing + replace(&mut self.missing, 0),
            ..counts
        }
    }

    /// When [`Gatherer::settle`] is due even if nothing comes.
    pub(super) fn next_deadline(&self, timeout: Duration) -> Option<Instant> {
        self.open.as_ref().map(|open| open.heard.after(timeout))
    }

    /// Drops the event that is open, and says how many fragments that were.
    pub(super) fn abandon(&mut self) -> u64 {
        u64::from(self.open.take().is_some())
    }
}

impl Open {
    fn append(&mut self, now: Instant, frame: Received, place: Place, most: u32) {
        let is_behind = place.is_behind(&self.place);
        (self.place, self.heard, self.is_whole) = (place, now, place.is_last == Some(true));
        if self.fragment.meta.missing_cause().is_some() {
            return;
        }
        let length = self.fragment.meta.length.saturating_add(frame.meta.length);
        if length > most {
            self.fragment = given_up(frame.meta.source, Cause::Oversize);
            return;
        }
        self.fragment.meta.length = length;
        self.fragment.meta.flags = self.fragment.meta.flags.with(frame.meta.flags);
        if is_behind {
            self.flag();
        }
        self.fragment.payload.append(frame.payload);
    }

    /// Frames of it are missing.
    const fn flag(&mut self) {
        if self.fragment.meta.missing_cause().is_none() {
            self.fragment.meta.flags = self.fragment.meta.flags.with(FragmentFlags::FRAMES_MISSING);
        }
    }
}

/// What says into which pieces frames fall apart.
pub trait Divides {
    /// Appends the pieces of the frame whose turn it is, or returns what is wrong with it; `None` if they are not known
    /// yet: then it is asked again about the same frame.
    fn divide(&mut self, frame: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>>;

    /// Bytes of frames that were copied for it.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

impl<S: Splitter> Divides for S {
    fn divide(&mut self, frame: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        Some(self.split(&Held(frame), pieces))
    }
}

/// Divides frames that hold several events into one fragment for each, without a copy. It takes the frames of a source from its
/// framer and returns their pieces in batches.
///
/// ```text
///  put(frame) --> waits for its turn --> Divides: its pieces, at once or when they are known --> fragments, in batches
/// ```
/// Frames leave in the order in which they came, and while some wait no others should come: so the reader of the source
/// is held back by it ([`Divider::is_empty`]).
#[derive(Debug)]
pub struct Divider {
    source: SourceId,
    /// Of pieces that are kept apart by time.
    clock: WideClock,
    /// Frames, and the entries of lost ones, each with its time of arrival.
    waiting: VecDeque<(Instant, Received)>,
    /// The frame that falls apart.
    current: Option<Received>,
    pieces: Vec<Piece>,
    /// The next piece of it.
    next: usize,
    divided: u64,
}

/// Frames that wait at most: more should not be put.
pub const MOST_FRAMES: usize = 64;

impl Divider {
    /// For the frames of this source, which are described so: times of pieces are in the ticks of its clock.
    pub fn new(source: SourceId, framing: &impl Framing) -> Self {
        Self {
            source,
            clock: WideClock::new(framing.widths(), framing.tick()),
            waiting: VecDeque::with_capacity(MOST_FRAMES),
            current: None,
            pieces: Vec::with_capacity(MOST_PIECES),
            next: 0,
            divided: 0,
        }
    }

    /// Whether nothing is left of what was put.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// How many fragments wait, as far as they are known: a frame that was not divided yet counts as one.
    pub fn fragments(&self) -> u64 {
        let of_current = if self.current.is_some() { self.pieces.len() - self.next } else { 0 };
        (of_current + self.waiting.len()) as u64
    }

    /// Frames that wait to be divided, in the order in which they will be.
    pub fn frames(&self) -> impl Iterator<Item = &Payload> {
        let waiting = self.waiting.iter().map(|(_, frame)| frame);
        waiting.filter(|frame| frame.meta.missing_cause().is_none()).map(|frame| &frame.payload)
    }

    /// Whether the next fragment is known: that of a frame which falls apart, or the entry of one that was lost.
    pub fn is_known(&self) -> bool {
        let lost = self.waiting.front().is_some_and(|(_, frame)| frame.meta.missing_cause().is_some());
        self.current.is_some() || lost
    }

    /// A frame that came at `now`, or the entry of one that was lost.
    pub fn put(&mut self, now: Instant, frame: Received) {
        self.waiting.push_back((now, frame));
    }

    /// Drops what was put and not taken.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.current = None;
    }

    /// How many frames fell apart since it was asked last.
    pub const fn take_divided(&mut self) -> u64 {
        core::mem::replace(&mut self.divided, 0)
    }

    /// Appends the next fragments, at most so many; fewer where no more frames were put, or where it is not known yet into
    /// what the next one falls apart. A frame that could not be divided, and a piece that does not lie in its frame, are an
    /// entry with the cause, as in [`Framer::next_batch`](super::Framer::next_batch).
    pub fn next_batch(&mut self, by: &mut (impl Divides + ?Sized), out: &mut Vec<Received>, at_most: usize) {
        let end = out.len().saturating_add(at_most);
        while out.len() < end {
            let Some(frame) = &self.current else {
                if !self.begin_next(by, out) {
                    return;
                }
                continue;
            };
            let last = self.pieces.len().min(self.next + (end - out.len()));
            let is_first = |place| self.next == 0 && place == 0;
            let cut = |(place, piece)| cut(frame, piece, is_first(place));
            out.extend(self.pieces[self.next..last].iter().enumerate().map(cut));
            self.next = last;
            if last == self.pieces.len() {
                self.current = None;
            }
        }
    }

    /// Goes on to the next frame, and appends it if it is the entry of a lost one; false if no frame waits, or its
    /// pieces are not known yet.
    fn begin_next(&mut self, by: &mut (impl Divides + ?Sized), out: &mut Vec<Received>) -> bool {
        let Some((came, frame)) = self.waiting.front() else { return false };
        let came = *came;
        let is_lost = frame.meta.missing_cause().is_some();
        if !is_lost {
            self.pieces.clear();
            self.next = 0;
            match by.divide(&frame.payload, &mut self.pieces) {
                None => return false,
                Some(Ok(())) => {
                    self.divided += 1;
                    self.widen_times(came);
                    let (_, frame) = self.waiting.pop_front().expect("it was looked at above");
                    // One without pieces holds no event, and leaves nothing.
                    self.current = Some(frame).filter(|_| !self.pieces.is_empty());
                    return true;
                }
                Some(Err(cause)) => out.push(given_up(self.source, cause)),
            }
        }
        let taken = self.waiting.pop_front();
        out.extend(taken.map(|(_, frame)| frame).filter(|_| is_lost));
        true
    }

    /// Times become nanoseconds, and wide, as those of whole frames are.
    fn widen_times(&mut self, came: Instant) {
        for piece in &mut self.pieces {
            if let PieceKey::Time(ticks) = &mut piece.key {
                *ticks = self.clock.nanoseconds(*ticks, came);
            }
        }
    }
}

/// The part of a frame that belongs to one event.
fn cut(frame: &Received, piece: &Piece, is_first: bool) -> Received {
    let end = piece.offset.checked_add(piece.length);
    if end.is_none_or(|end| end > frame.payload.len()) {
        return given_up(frame.meta.source, Cause::Malformed);
    }
    let mut payload = frame.payload.clone();
    payload.skip(piece.offset);
    payload.truncate(piece.length);
    if piece.length == 0 {
        payload = Payload::default();
    }
    let mut meta = frame.meta;
    meta.length = piece.length as u32;
    match piece.key {
        PieceKey::Event(number) => meta.raw_id = number,
        PieceKey::Time(nanoseconds) => {
            (meta.raw_id, meta.time) = (nanoseconds, nanoseconds);
            meta.flags = meta.flags.with(FragmentFlags::HAS_TIME);
        }
    }
    // Where the numbering starts again with the frame, it does so with its first event alone.
    Received { meta, restarts: frame.restarts && is_first, payload }
}
