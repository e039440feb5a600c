//! Maps frames to events: a gatherer makes one fragment of several frames, a divider makes several fragments of one
//! frame.

use super::described::{Held, WideClock};
use super::{FrameCounts, given_up};
use crate::messages::{FragmentFlags, Received};
use core::mem::replace;
use core::time::Duration;
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::framing::{Fields, Framing, MOST_PIECES, Piece, PieceKey, Splitter};
use std::collections::VecDeque;

/// Default time to wait for the next frame of an event.
pub const GATHER_TIMEOUT: Duration = Duration::from_millis(100);

/// The fields of a frame that determine its place in its event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// [`Fields::place`].
    place: Option<u32>,
    /// [`Fields::is_last`].
    is_last: Option<bool>,
    /// [`Fields::sequence`].
    sequence: Option<u64>,
    /// Whether frames before it are lost, as the source's own numbering shows.
    is_behind_gap: bool,
}

impl Place {
    pub(super) const fn new(fields: &Fields, is_behind_gap: bool) -> Self {
        Self { place: fields.place, is_last: fields.is_last, sequence: fields.sequence, is_behind_gap }
    }

    /// Whether the frame is a repetition of the previous one.
    fn repeats(&self, before: &Self) -> bool {
        let is_same = self.sequence.is_some() && self.sequence == before.sequence;
        is_same || self.place.is_some() && self.place <= before.place
    }

    /// Returns how many frames are missing in front of it, by its place; `next` is the expected place.
    fn missing(&self, next: u32) -> u32 {
        self.place.map_or(0, |place| place.saturating_sub(next))
    }

    /// Whether frames are missing between the previous frame and this one.
    fn is_behind(&self, before: &Self) -> bool {
        if self.place.is_some() { self.missing(before.next()) > 0 } else { self.is_behind_gap }
    }

    /// Returns the place of the next frame.
    fn next(&self) -> u32 {
        self.place.map_or(0, |place| place.saturating_add(1))
    }
}

/// The event whose frames are arriving.
#[derive(Debug)]
struct Open {
    number: u64,
    /// The frames so far, or the entry for a fragment that was given up.
    fragment: Received,
    /// The place of its last frame.
    place: Place,
    heard: Instant,
    /// Whether the event is complete.
    is_whole: bool,
}

/// Gathers the frames of one source.
///
/// Consecutive frames of one event become one fragment, if a source sends an event in several frames.
///
/// ```text
///  put(frame) --> continues the open event: appended to its frames
///             \-> belongs to another event: that one is open now, and the previous one leaves
/// ```
/// An event is complete when its last frame says so, when another event begins, when the connection ends, or after a
/// period of silence. If frames of it are known to be missing it is flagged ([`FragmentFlags::FRAMES_MISSING`]). Frames
/// that arrive after it are late.
#[derive(Debug, Default)]
pub(super) struct Gatherer {
    open: Option<Open>,
    /// The event that was passed on last.
    left: Option<u64>,
    /// When the source last could not be received. A frame that arrived before may be processed only now.
    unheard: Instant,
    /// Number of frames that were appended to an open event.
    gathered: u64,
    /// Number of frames that were immediately repeated.
    repeated: u64,
    /// Number of frames that are missing by their places, for a source that does not number them otherwise.
    missing: u64,
}

impl Gatherer {
    /// Takes a frame that arrived at `now`. At most one entry is appended: the previous event, or a frame that came too
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

    /// Notes the loss of a frame of an unknown event.
    pub(super) const fn note_lost(&mut self) {
        if let Some(open) = &mut self.open
            && !open.is_whole
        {
            open.place.is_behind_gap = true;
            open.flag();
        }
    }

    /// Whether [`Gatherer::give_whole`] has an event to append.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(&self.open, Some(Open { is_whole: true, .. }))
    }

    /// Appends the open event if it is complete.
    pub(super) fn give_whole(&mut self, out: &mut Vec<Received>) {
        if self.is_whole() {
            self.give(out);
        }
    }

    /// Appends the open event, complete or not, at the end of the input.
    pub(super) fn give(&mut self, out: &mut Vec<Received>) {
        let Some(mut open) = self.open.take() else { return };
        // The format marks last frames, and that of this event has not come.
        if !open.is_whole && open.place.is_last == Some(false) {
            open.flag();
            self.note_missing(open.place, 1);
        }
        self.left = Some(open.number);
        out.push(open.fragment);
    }

    /// Applies the time-out: the open event ends once the source could be received for `timeout` and was silent.
    /// `was_heard` says whether it could be received until `now`. Returns whether the open event has ended.
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

    /// Adds the counts since the last call to these.
    pub(super) const fn add_counts(&mut self, counts: FrameCounts) -> FrameCounts {
        FrameCounts {
            gathered: counts.gathered + replace(&mut self.gathered, 0),
            repeated: counts.repeated + replace(&mut self.repeated, 0),
            missing: counts.missing + replace(&mut self.missing, 0),
            ..counts
        }
    }

    /// Returns when [`Gatherer::settle`] is due even without input.
    pub(super) fn next_deadline(&self, timeout: Duration) -> Option<Instant> {
        self.open.as_ref().map(|open| open.heard.after(timeout))
    }

    /// Drops the open event. Returns how many fragments that was.
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

    /// Flags that frames of it are missing.
    const fn flag(&mut self) {
        if self.fragment.meta.missing_cause().is_none() {
            self.fragment.meta.flags = self.fragment.meta.flags.with(FragmentFlags::FRAMES_MISSING);
        }
    }
}

/// Determines the pieces into which frames are divided.
pub trait Divides {
    /// Appends the pieces of the frame whose turn it is, or returns its error. Returns `None` if they are not known
    /// yet; it is then called again for the same frame.
    fn divide(&mut self, frame: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>>;

    /// Returns the bytes of frames that were copied for it.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

impl<S: Splitter> Divides for S {
    fn divide(&mut self, frame: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        Some(self.split(&Held(frame), pieces))
    }
}

/// Divides frames that hold several events into one fragment per event, without a copy. It takes the frames of a source
/// from its framer and returns their pieces in batches.
///
/// ```text
///  put(frame) --> waits for its turn --> Divides: its pieces, at once or when they are known --> fragments, in batches
/// ```
/// Frames leave in the order of their arrival. While some wait no others should be put, so the reader of the source is
/// held back ([`Divider::is_empty`]).
#[derive(Debug)]
pub struct Divider {
    source: SourceId,
    /// The clock of pieces that are distinguished by time.
    clock: WideClock,
    /// Frames, and the entries for lost ones, each with its time of arrival.
    waiting: VecDeque<(Instant, Received)>,
    /// The frame that is being divided.
    current: Option<Received>,
    pieces: Vec<Piece>,
    /// Index of its next piece.
    next: usize,
    divided: u64,
}

/// The most frames that may wait; no more should be put.
pub const MOST_FRAMES: usize = 64;

impl Divider {
    /// Creates a divider for the frames of this source, with this description. Times of pieces are in the ticks of its
    /// clock.
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

    /// Whether everything that was put has been taken.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// Returns the number of waiting fragments, as far as known: a frame that was not divided yet counts as one.
    pub fn fragments(&self) -> u64 {
        let of_current = if self.current.is_some() { self.pieces.len() - self.next } else { 0 };
        (of_current + self.waiting.len()) as u64
    }

    /// Returns the frames that wait to be divided, in their order.
    pub fn frames(&self) -> impl Iterator<Item = &Payload> {
        let waiting = self.waiting.iter().map(|(_, frame)| frame);
        waiting.filter(|frame| frame.meta.missing_cause().is_none()).map(|frame| &frame.payload)
    }

    /// Whether the next fragment is known: one of a frame that is being divided, or the entry for a lost one.
    pub fn is_known(&self) -> bool {
        let lost = self.waiting.front().is_some_and(|(_, frame)| frame.meta.missing_cause().is_some());
        self.current.is_some() || lost
    }

    /// Puts a frame that arrived at `now`, or the entry for a lost one.
    pub fn put(&mut self, now: Instant, frame: Received) {
        self.waiting.push_back((now, frame));
    }

    /// Drops everything that was put and not taken.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.current = None;
    }

    /// Returns how many frames were divided since the last call.
    pub const fn take_divided(&mut self) -> u64 {
        core::mem::replace(&mut self.divided, 0)
    }

    /// Appends the next fragments, at most `at_most`; fewer if no more frames were put, or if the pieces of the next
    /// one are not known yet. A frame that could not be divided, and a piece that lies outside its frame, become an
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

    /// Starts on the next frame, and appends it if it is the entry for a lost one. Returns false if no frame waits, or
    /// its pieces are not known yet.
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
                    // A frame without pieces holds no event.
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

    /// Converts times to nanoseconds and extends them, as for whole frames.
    fn widen_times(&mut self, came: Instant) {
        for piece in &mut self.pieces {
            if let PieceKey::Time(ticks) = &mut piece.key {
                *ticks = self.clock.nanoseconds(*ticks, came);
            }
        }
    }
}

/// Returns the part of a frame that belongs to one event.
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
    // If the numbering restarts with the frame, it does so with its first event only.
    Received { meta, restarts: frame.restarts && is_first, payload }
}
