//! Zeros where a frame should begin, in streams whose frames have no mark that zeros lack.

use super::Plan;
use super::front::{Cut, LengthRule};
use super::number::Joined;
use crate::framing::{Fields, Framing, Front, Part, Search, Window};
use crate::zeros::{self, Begin, Headed};
use ropewalk_terms::Cause;

impl Plan {
    /// Whether zeros may look like the begin of a frame.
    #[inline]
    pub(super) fn is_like_zeros(&self) -> bool {
        self.mark.as_ref().is_none_or(|(mark, _)| mark.value() == 0)
    }

    /// What stands at the front where that are zeros, or where zeros were. A frame of nothing but zeros is none: behind them two
    /// frames are looked for that number each other, or one whose checksum is right.
    #[inline]
    pub(super) fn pass_zeros(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        if window.array(0) == Some([0]) && zeros::leading(window, self.least) == self.least {
            return self.zeros_in_front(window, search);
        }
        search.adrift.then(|| zeros::resume(self, window, search))
    }

    /// Whether a datagram of which something is known is nothing but zeros.
    pub(super) fn is_blank(&self, datagram: &(impl Window + ?Sized)) -> bool {
        let says_something = self.numbers_frames() || self.ticks.is_some() || self.source.is_some();
        let bytes = datagram.len();
        says_something && zeros::leading(datagram, bytes) == bytes && self.is_matched(datagram)
    }

    #[cold]
    fn zeros_in_front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        let bytes = self.stated(window);
        if let Some(bytes) = bytes
            && !search.adrift
        {
            // An event may be number 0, and have something in it.
            if zeros::leading(window, bytes) < bytes.min(window.len()) {
                return None;
            }
            if window.len() < bytes {
                return Some(Front::Needs { bytes });
            }
            if matches!(self.cut, Cut::Fixed) {
                let whole = Front::Skip { bytes, cause: Cause::FramingLost };
                let kept = if self.numbers_frames() { self.keep_alignment(window, bytes) } else { Some(whole) };
                if kept.is_some() {
                    return kept;
                }
            }
        }
        Some(zeros::skip(window, self.least - 1, search))
    }

    /// Zeros in the place of frames of `bytes` bytes leave those behind them where they were, which two show that number each other. None
    /// where that is not so: bytes were lost as well, or zeros came in between.
    fn keep_alignment(&self, window: &(impl Window + ?Sized), bytes: usize) -> Option<Front> {
        let zeros = zeros::leading(window, window.len());
        let blank = zeros / bytes * bytes;
        let skip = |bytes| Some(Front::Skip { bytes, cause: Cause::FramingLost });
        if zeros == window.len() {
            // The last of them is kept until something else comes.
            return if blank > bytes { skip(blank - bytes) } else { Some(Front::Needs { bytes: zeros + 1 }) };
        }
        // Of the first frame that is not blank the begin may be zeros.
        for at in [blank, blank + bytes] {
            let rest = Part::new(window, at.min(window.len()), window.len().saturating_sub(at));
            let is_frame = match self.begin(&rest) {
                Begin::No => Ok(false),
                Begin::Needs(more) => Err(more),
                Begin::Surely(_) => Ok(true),
                Begin::Perhaps(_) => self.follows(&rest, bytes),
            };
            match is_frame {
                Ok(true) => return skip(at),
                Ok(false) => {}
                Err(more) => return Some(Front::Needs { bytes: at + more }),
            }
        }
        None
    }

    /// How long the frame at the front says that it is; none where none is as long.
    fn stated(&self, window: &(impl Window + ?Sized)) -> Option<usize> {
        let rule = |rule: &LengthRule| rule.bytes(rule.field.of(window));
        let bytes = if let Cut::Length(length) = &self.cut { rule(length) } else { self.most as u64 };
        (self.least as u64..=self.most as u64).contains(&bytes).then_some(bytes as usize)
    }

    const fn numbers_frames(&self) -> bool {
        self.event.is_some() || self.sequence.is_some()
    }

    fn numbers_from_begin(&self) -> bool {
        let event = self.event.iter().flat_map(Joined::fields);
        let time = self.ticks.iter().flat_map(Joined::fields);
        let mut all = event.chain(time).chain(&self.sequence).chain(&self.seconds);
        all.all(|field| field.place_from_begin().is_some()) && self.matches.is_none()
    }

    /// Whether one frame comes right behind another one: by their own numbers, or else by those of their events. A field that
    /// is read in the wrong place may stay as it is or grow by much, but hardly by one.
    fn go_on(&self, one: &Fields, next: &Fields) -> bool {
        let is_next =
            |one: u64, next: u64, bits: u8| next.wrapping_sub(one) & u64::MAX >> (64 - bits.clamp(1, 64)) == 1;
        let widths = self.widths();
        match (one.sequence.zip(next.sequence), one.event.zip(next.event), one.time.zip(next.time)) {
            (Some((one, next)), ..) => is_next(one, next, widths.sequence),
            (_, Some((one, next)), _) => is_next(one, next, widths.event),
            (.., Some((one, next))) => one <= next,
            _ => true,
        }
    }
}

impl Headed for Plan {
    fn begin(&self, window: &(impl Window + ?Sized)) -> Begin {
        if window.len() < self.least {
            return Begin::Needs(self.least);
        }
        if zeros::leading(window, self.least) == self.least {
            return Begin::No;
        }
        let is_marked = self.mark.as_ref().is_none_or(|(mark, _)| mark.stands_in(window));
        let Some(bytes) = self.stated(window).filter(|_| is_marked) else { return Begin::No };
        if self.check.is_none() {
            return Begin::Perhaps(bytes);
        }
        match window.len() >= bytes {
            false => Begin::Needs(bytes),
            true if self.checksum(&Part::new(window, 0, bytes)) == Some(true) => Begin::Surely(bytes),
            true => Begin::No,
        }
    }

    fn follows(&self, window: &(impl Window + ?Sized), bytes: usize) -> Result<bool, usize> {
        let (one, rest) = (Part::new(window, 0, bytes), Part::new(window, bytes, window.len() - bytes));
        match self.begin(&rest) {
            Begin::No => Ok(false),
            Begin::Needs(more) => Err(bytes + more),
            Begin::Perhaps(more) | Begin::Surely(more) => {
                // The shortest frame has all fields at its begin.
                let needed = if self.numbers_from_begin() { self.least } else { more };
                if rest.len() < needed {
                    return Err(bytes + needed);
                }
                let next = Part::new(&rest, 0, needed);
                Ok(self.is_matched(&one)
                    && self.is_matched(&next)
                    && self.go_on(&self.fields(&one), &self.fields(&next)))
            }
        }
    }
}
