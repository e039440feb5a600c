//! Frames of one event that follow each other become one fragment, where a source sends an event in several.
//!
//! ```text
//!  put(frame) --> goes on with the event that is open: behind what is there of it
//!             \-> is of another one: that one is open now, and the one before leaves
//! ```
//! An event is whole when its last frame says so, when another one begins, when the connection ends, or when nothing came for
//! a while. What is known to be missing in it is flagged ([`FragmentFlags::FRAMES_MISSING`]), and what comes behind it is late.

use super::{FrameCounts, given_up};
use crate::messages::{FragmentFlags, Received};
use core::mem::replace;
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::framing::Fields;

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

    /// A frame was lost, and nobody knows of which event.
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

    /// Appends the event that is open, whatever may be missing: nothing more comes.
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

    /// Time passes, in which the source could have been heard if it had said something, or could not: nothing more is waited
    /// for where it was silent for so long. Returns whether that is so now.
    pub(super) fn settle(&mut self, now: Instant, was_heard: bool, timeout: Duration) -> bool {
        if !was_heard && !is_planted(Flaw::GatheredUnheard) {
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
        if is_behind && !is_planted(Flaw::GatheredWithHoles) {
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
