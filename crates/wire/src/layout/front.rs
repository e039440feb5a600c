//! What stands at the front of a stream, by each kind of framing.

use super::Plan;
use super::checksum::Check;
use super::number::{Constant, Field};
use crate::framing::{Front, Part, Search, Window};
use crate::zeros;
use ropewalk_terms::Cause;

/// A frame with a delimiter does not begin with so many zeros.
const MOST_ZEROS: usize = 64;

/// How the end of a frame is found.
#[derive(Copy, Clone, Debug)]
pub(super) enum Cut {
    /// A field near its begin says it.
    Length(LengthRule),
    /// It is always as long.
    Fixed,
    /// A field at its end says where it began.
    Trailer { length: LengthRule, mark: Option<Constant>, step: usize },
    /// It ends behind these bytes.
    Delimiter(Constant),
    /// It is all there is.
    Datagram,
}

/// How a length is computed from its field.
#[derive(Copy, Clone, Debug)]
pub(super) struct LengthRule {
    pub(super) field: Field,
    pub(super) unit: u64,
    /// Bytes that are not counted.
    pub(super) base: i64,
}

impl LengthRule {
    /// The bytes of a frame whose field has this value; more than any where that cannot be.
    #[inline]
    pub(super) const fn bytes(&self, value: u64) -> u64 {
        match value.checked_mul(self.unit) {
            Some(bytes) => bytes.saturating_add_signed(self.base),
            None => u64::MAX,
        }
    }
}

impl Plan {
    #[inline]
    pub(super) fn find_front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        match &self.cut {
            Cut::Length(rule) => self.counted(window, search, Some(rule)),
            Cut::Fixed => self.counted(window, search, None),
            Cut::Trailer { length, mark, step } => {
                Trailed { plan: self, length, mark: mark.as_ref(), step: *step }.front(window, search)
            }
            Cut::Delimiter(delimiter) => self.delimited(window, search, delimiter),
            Cut::Datagram => self.whole(window),
        }
    }

    /// A frame whose length is known from its begin.
    #[inline]
    fn counted(&self, window: &(impl Window + ?Sized), search: &mut Search, rule: Option<&LengthRule>) -> Front {
        // Even the shortest frame has all that is looked at.
        if window.len() < self.least {
            return Front::Needs { bytes: self.least };
        }
        if self.is_like_zeros()
            && let Some(front) = self.pass_zeros(window, search)
        {
            return front;
        }
        if let Some((mark, cause)) = &self.mark
            && !mark.stands_in(window)
        {
            return skip_to(mark, window, *cause, search);
        }
        let bytes = match rule {
            Some(rule) => rule.bytes(rule.field.of(window)),
            None => self.most as u64,
        };
        if bytes < self.least as u64 || bytes > self.most as u64 {
            return self.believed_by_nobody(bytes, search);
        }
        let bytes = bytes as usize;
        if search.adrift
            && let Some(front) = self.doubt(window, bytes, search)
        {
            return front;
        }
        if window.len() < bytes { Front::Needs { bytes } } else { Front::Frame { bytes } }
    }

    /// A length that no frame has: with something to look for the stream goes on, otherwise it is lost.
    #[cold]
    fn believed_by_nobody(&self, bytes: u64, search: &mut Search) -> Front {
        let too_long = bytes > self.most as u64;
        match &self.mark {
            Some((_, cause)) => search.skip(1, if too_long { Cause::Oversize } else { *cause }),
            None => Front::Lost { cause: if too_long { Cause::Oversize } else { Cause::FramingLost } },
        }
    }

    /// After a loss what looks like a frame's begin may lie within another one. It is believed when its checksum is right, or the
    /// next one stands right behind it: which of a board that hardly ever sends is not there for long.
    #[cold]
    fn doubt(&self, window: &(impl Window + ?Sized), bytes: usize, search: &mut Search) -> Option<Front> {
        let (mark, cause) = self.mark.as_ref()?;
        let end = bytes + mark.end();
        let follows = || window.len() >= end && mark.is_in(&Part::new(window, bytes, window.len() - bytes));
        let is_right = |check: &Check| window.len() >= bytes && check.is_right(&Part::new(window, 0, bytes));
        if follows() || self.check.as_ref().is_some_and(is_right) {
            return None;
        }
        let needed = if self.check.is_some() && window.len() < bytes { bytes } else { end };
        Some(if window.len() < needed { Front::Needs { bytes: needed } } else { search.skip(1, *cause) })
    }

    /// A frame that ends with some bytes.
    fn delimited(&self, window: &(impl Window + ?Sized), search: &mut Search, delimiter: &Constant) -> Front {
        let length = delimiter.end();
        let from = (search.seen + 1).saturating_sub(length);
        let end = delimiter.find(window, from).map(|at| at + length);
        match end {
            Some(bytes) if self.is_whole_line(window, bytes) && !search.adrift => Front::Frame { bytes },
            Some(bytes) => {
                // What stands behind it is the begin of a frame again.
                let cause = match bytes {
                    _ if search.adrift => Cause::SyncLost,
                    _ if bytes > self.most => Cause::Oversize,
                    _ => Cause::Malformed,
                };
                *search = Search::default();
                Front::Skip { bytes, cause }
            }
            // A delimiter may have begun at the very end.
            None if window.len() >= self.most + length => search.skip(window.len() + 1 - length, Cause::Oversize),
            None => {
                search.seen = window.len();
                Front::Needs { bytes: window.len() + 1 }
            }
        }
    }

    /// Whether what ends with a delimiter is a frame, and no zeros precede it, which would hide where it began.
    fn is_whole_line(&self, window: &(impl Window + ?Sized), bytes: usize) -> bool {
        (self.least..=self.most).contains(&bytes) && zeros::leading(window, MOST_ZEROS) < MOST_ZEROS
    }

    /// The last frame of a stream, where it says at its end how long it is.
    pub(super) fn trailed_at_end(&self, window: &(impl Window + ?Sized), search: &Search) -> Option<Front> {
        let Cut::Trailer { length, mark, step } = &self.cut else { return None };
        let trailed = Trailed { plan: self, length, mark: mark.as_ref(), step: *step };
        if search.adrift { None } else { trailed.at_end(window) }
    }

    fn whole(&self, window: &(impl Window + ?Sized)) -> Front {
        let bytes = window.len();
        if bytes < self.least {
            Front::Needs { bytes: self.least }
        } else if self.is_blank(window) {
            Front::Skip { bytes, cause: Cause::Malformed }
        } else if bytes > self.most {
            Front::Skip { bytes, cause: Cause::Oversize }
        } else {
            Front::Frame { bytes }
        }
    }
}

/// Skips what stands before the next mark, but not the front itself: there it is not.
#[cold]
fn skip_to(mark: &Constant, window: &(impl Window + ?Sized), cause: Cause, search: &mut Search) -> Front {
    let bytes = mark.find(window, 1).unwrap_or_else(|| (window.len() + 1).saturating_sub(mark.end()).max(1));
    search.skip(bytes, cause)
}

/// Frames that say at their end how long they are.
///
/// Words of payload may look like an end. So one is believed only if the length in it leads back to the frame's begin,
/// and the checksum, where there is one, is right or another frame begins behind it. When nothing within the longest
/// frame is such an end, the begin was none: from then on any end counts that leads back to something like a begin and
/// has another begin behind it.
struct Trailed<'a> {
    plan: &'a Plan,
    length: &'a LengthRule,
    mark: Option<&'a Constant>,
    step: usize,
}

impl Trailed<'_> {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        let Some((begin, cause)) = self.plan.mark.as_ref() else { return Front::Lost { cause: Cause::FramingLost } };
        if window.len() < self.plan.least {
            return Front::Needs { bytes: self.plan.least };
        }
        if !search.adrift && !begin.is_in(window) {
            return self.go_adrift(search, *cause);
        }
        // Whoever lost his way may have lost the rhythm of the words as well.
        let step = if search.adrift { 1 } else { self.step };
        let last = if search.adrift { window.len() } else { window.len().min(self.plan.most) };
        let mut end = (search.seen + 1).max(self.plan.least).div_ceil(step) * step;
        while end <= last {
            match self.look(window, end, begin, search.adrift) {
                Look::Nothing => {}
                Look::Begin(0) => return Front::Frame { bytes: end },
                Look::Begin(start) => return search.skip(start, *cause),
                Look::Needs(bytes) => return Front::Needs { bytes },
            }
            search.seen = end;
            end += step;
        }
        if !search.adrift && end > self.plan.most {
            return self.go_adrift(search, *cause);
        }
        // What was seen ends no frame; one that ends behind it begins at most so far before.
        let passed = search.seen.saturating_sub(self.plan.most);
        if search.adrift && passed > 0 { search.skip(passed, *cause) } else { Front::Needs { bytes: end } }
    }

    /// A frame that ends with the stream: nothing can begin behind it that would show that a wrong checksum is none of the framing.
    fn at_end(&self, window: &(impl Window + ?Sized)) -> Option<Front> {
        let bytes = window.len();
        let (begin, _) = self.plan.mark.as_ref()?;
        let is_end = self.mark.is_none_or(|mark| mark.is_in(window));
        let is_whole = is_end && (self.plan.least..=self.plan.most).contains(&bytes) && begin.is_in(window);
        let stated = self.length.bytes(self.length.field.read(window)?);
        (is_whole && stated == bytes as u64).then_some(Front::Frame { bytes })
    }

    /// The front is no frame. Only ends of such frames were looked for that begin there.
    fn go_adrift(&self, search: &mut Search, cause: Cause) -> Front {
        search.seen = 0;
        search.skip(1, cause)
    }

    fn look(&self, window: &(impl Window + ?Sized), end: usize, begin: &Constant, adrift: bool) -> Look {
        let until = Part::new(window, 0, end);
        if self.mark.is_some_and(|mark| !mark.is_in(&until)) {
            return Look::Nothing;
        }
        let stated = self.length.bytes(self.length.field.read(&until).unwrap_or(0));
        let possible = self.plan.least as u64..=self.plan.most.min(end) as u64;
        if !possible.contains(&stated) || !stated.is_multiple_of(self.step as u64) || !adrift && stated != end as u64 {
            return Look::Nothing;
        }
        let start = end - stated as usize;
        let frame = Part::new(window, start, end - start);
        if !begin.is_in(&frame) {
            return Look::Nothing;
        }
        let is_right = self.plan.check.as_ref().map(|check| check.is_right(&frame));
        if is_right == Some(true) || is_right.is_none() && !adrift {
            return Look::Begin(start);
        }
        if window.len() < end + begin.end() {
            return Look::Needs(end + begin.end());
        }
        let follows = begin.is_in(&Part::new(window, end, window.len() - end));
        if follows { Look::Begin(start) } else { Look::Nothing }
    }
}

/// What a place is that may be the end of a frame.
enum Look {
    Nothing,
    /// The end of a frame that begins here.
    Begin(usize),
    /// So many bytes are needed to know it.
    Needs(usize),
}
