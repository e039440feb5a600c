//! The front of a stream for each kind of framing: frames, zeros between frames, and the fast path for whole frames.

use super::Plan;
use super::fields::{Check, Constant, Field, Joined};
use crate::framing::{Fields, Framing, Front, Part, Search, Window, plain_by_front};
use crate::zeros::{self, Begin, Headed};
use ropewalk_terms::Cause;

/// A frame with a delimiter does not begin with this many zeros.
const MOST_ZEROS: usize = 64;

/// The way in which the end of a frame is found.
#[derive(Copy, Clone, Debug)]
pub(super) enum Cut {
    /// By a length field near its beginning.
    Length(LengthRule),
    /// By its fixed length.
    Fixed,
    /// By a length field at its end.
    Trailer { length: LengthRule, mark: Option<Constant>, step: usize },
    /// By a delimiter at its end.
    Delimiter(Constant),
    /// By the end of the datagram.
    Datagram,
}

/// The rule for computing a length from its field.
#[derive(Copy, Clone, Debug)]
pub(super) struct LengthRule {
    pub(super) field: Field,
    pub(super) unit: u64,
    /// Bytes that the field does not count.
    pub(super) base: i64,
}

impl LengthRule {
    /// Bytes of a frame whose field has this value; more than any frame has if the value is impossible.
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

    /// Finds a frame whose length is known from its beginning.
    #[inline]
    fn counted(&self, window: &(impl Window + ?Sized), search: &mut Search, rule: Option<&LengthRule>) -> Front {
        // Even the shortest frame contains all fields that are read.
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
            return self.unbelieved(bytes, search);
        }
        let bytes = bytes as usize;
        if search.adrift
            && let Some(front) = self.doubt(window, bytes, search)
        {
            return front;
        }
        if window.len() < bytes { Front::Needs { bytes } } else { Front::Frame { bytes } }
    }

    /// Handles a length that no frame has: with a mark to search for the stream continues, otherwise it is lost.
    #[cold]
    fn unbelieved(&self, bytes: u64, search: &mut Search) -> Front {
        let too_long = bytes > self.most as u64;
        match &self.mark {
            Some((_, cause)) => search.skip(1, if too_long { Cause::Oversize } else { *cause }),
            None => Front::Lost { cause: if too_long { Cause::Oversize } else { Cause::FramingLost } },
        }
    }

    /// After a loss an apparent beginning of a frame may lie within another frame. It is accepted if its checksum is
    /// right, or if the next frame directly follows it. For a board that rarely sends, the next frame may not arrive
    /// for a long time.
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

    /// Finds a frame that ends with a delimiter.
    fn delimited(&self, window: &(impl Window + ?Sized), search: &mut Search, delimiter: &Constant) -> Front {
        let length = delimiter.end();
        let from = (search.seen + 1).saturating_sub(length);
        let end = delimiter.find(window, from).map(|at| at + length);
        match end {
            Some(bytes) if self.is_whole_line(window, bytes) && !search.adrift => Front::Frame { bytes },
            Some(bytes) => {
                // The next frame begins behind the delimiter.
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

    /// Whether the bytes up to a delimiter are a frame, without zeros in front, which would hide its beginning.
    fn is_whole_line(&self, window: &(impl Window + ?Sized), bytes: usize) -> bool {
        (self.least..=self.most).contains(&bytes) && zeros::leading(window, MOST_ZEROS) < MOST_ZEROS
    }

    /// Finds the last frame of a stream, if its length is at its end.
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

/// Skips the bytes before the next mark; the search begins behind the front, which has none.
#[cold]
fn skip_to(mark: &Constant, window: &(impl Window + ?Sized), cause: Cause, search: &mut Search) -> Front {
    let bytes = mark.find(window, 1).unwrap_or_else(|| (window.len() + 1).saturating_sub(mark.end()).max(1));
    search.skip(bytes, cause)
}

/// Frames whose length is at their end.
///
/// Words of payload may look like an end. An end is therefore accepted only if the length in it leads back to the
/// frame's beginning, and the checksum, if there is one, is right or another frame begins behind it. If there is no
/// such end within the longest frame, the beginning was wrong: from then on any end counts that leads back to an
/// apparent beginning and is followed by another one.
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
        // After a loss the alignment of words may be lost as well.
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
        // The examined bytes end no frame; a frame that ends behind them begins at most the maximum length before.
        let passed = search.seen.saturating_sub(self.plan.most);
        if search.adrift && passed > 0 { search.skip(passed, *cause) } else { Front::Needs { bytes: end } }
    }

    /// Finds a frame that ends with the stream: no frame behind it can confirm it, so it must be valid by itself.
    fn at_end(&self, window: &(impl Window + ?Sized)) -> Option<Front> {
        let bytes = window.len();
        let (begin, _) = self.plan.mark.as_ref()?;
        let is_end = self.mark.is_none_or(|mark| mark.is_in(window));
        let is_whole = is_end && (self.plan.least..=self.plan.most).contains(&bytes) && begin.is_in(window);
        let stated = self.length.bytes(self.length.field.read(window)?);
        (is_whole && stated == bytes as u64).then_some(Front::Frame { bytes })
    }

    /// Handles a front that is no frame. Only ends of frames that begin there were searched for.
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

/// The result of examining a possible end of a frame.
enum Look {
    Nothing,
    /// The end of a frame with this beginning.
    Begin(usize),
    /// This many bytes are needed to decide.
    Needs(usize),
}

// The fast path for a frame in one piece, as nearly all frames are: all fields lie in its first bytes, and each is
// loaded once.

/// Maximum offset of fields, and number of bytes then read: enough that no place needs a separate check.
const NEAR: usize = 64;
const HEAD: usize = NEAR + 8;

/// A field near a frame's beginning; without bits if the layout does not have it.
#[derive(Copy, Clone, Debug, Default)]
struct Near {
    mask: u64,
    base: u32,
    down: u8,
    is_big_endian: bool,
}

impl Near {
    /// `None` if it is counted from the frame's end, or is not near.
    fn new(field: &Field) -> Option<Self> {
        let (base, down, mask) = field.place_from_begin()?;
        let base = u32::try_from(base).ok().filter(|&base| base < NEAR as u32)?;
        Some(Self { mask, base, down, is_big_endian: field.number().is_big_endian })
    }

    /// The field if present.
    fn of(field: Option<&Field>) -> Option<Self> {
        field.map_or(Some(Self::default()), Self::new)
    }

    #[inline(always)]
    const fn is_there(&self) -> bool {
        self.mask != 0
    }

    /// Its value; 0 if it is not present.
    #[inline(always)]
    fn read(&self, head: &[u8; HEAD]) -> u64 {
        let base = self.base as usize % NEAR;
        let word = u64::from_le_bytes(*head[base..base + 8].first_chunk().unwrap_or(&[0; 8]));
        let word = if self.is_big_endian { word.swap_bytes() } else { word };
        word >> (self.down & 63) & self.mask
    }

    #[inline(always)]
    fn read_if_there(&self, head: &[u8; HEAD]) -> Option<u64> {
        self.is_there().then(|| self.read(head))
    }
}

/// The fields of the fast path, side by side.
#[derive(Debug)]
pub(super) struct Quick {
    /// Length of the shortest frame, and the excess of the longest.
    least: u64,
    range: u64,
    mark: Near,
    mark_value: u64,
    /// Whether zeros may look like a frame.
    looks_for_zeros: bool,
    length: Near,
    unit: u64,
    base: u64,
    event: Near,
    time: Near,
    board: Near,
    trigger_type: Near,
    sequence: Near,
    status: Near,
}

impl Quick {
    /// `None` if frames need the slow path.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        if plan.matches.is_some() || plan.seconds.is_some() || plan.least < 8 {
            return None;
        }
        let (length, unit, base) = match &plan.cut {
            Cut::Length(rule) => (Near::new(&rule.field)?, rule.unit, rule.base as u64),
            Cut::Fixed => (Near::default(), 0, plan.most as u64),
            _ => return None,
        };
        // No length that the field can state overflows the computation.
        length.mask.checked_mul(unit).filter(|&longest| longest < 1 << 62)?;
        let mark = plan.mark.as_ref().map(|(mark, _)| mark);
        Some(Self {
            least: plan.least as u64,
            range: (plan.most - plan.least) as u64,
            mark: Near::of(mark.map(|mark| mark.field()))?,
            looks_for_zeros: plan.is_like_zeros(),
            mark_value: mark.map_or(0, |mark| mark.value()),
            length,
            unit,
            base,
            event: match &plan.event {
                None => Near::default(),
                Some(event) => Near::new(event.alone()?)?,
            },
            time: match &plan.ticks {
                None => Near::default(),
                Some(ticks) => Near::new(ticks.alone()?)?,
            },
            board: Near::of(plan.source.as_ref())?,
            trigger_type: Near::of(plan.trigger_type.as_ref())?,
            sequence: Near::of(plan.sequence.as_ref())?,
            status: Near::of(plan.status.as_ref())?,
        })
    }

    /// The frame at the front, with bytes behind it; `None` if the slow path is needed.
    #[inline(always)]
    fn look(&self, plan: &Plan, bytes: &[u8]) -> Option<(usize, Fields)> {
        // Frames near the end take the slow path.
        let head = bytes.first_chunk::<HEAD>()?;
        if self.looks_for_zeros && head.starts_with(&[0; 8]) {
            return None;
        }
        if self.mark.read(head) != self.mark_value {
            return None;
        }
        let length = self.length.read(head).wrapping_mul(self.unit).wrapping_add(self.base);
        if length.wrapping_sub(self.least) > self.range || length >= bytes.len() as u64 {
            return None;
        }
        let mut fields = Fields {
            event: self.event.read_if_there(head),
            time: self.time.read_if_there(head),
            source: self.board.read_if_there(head).map(|board| board as u32),
            trigger_type: self.trigger_type.read_if_there(head).map(|kind| kind as u16),
            sequence: self.sequence.read_if_there(head),
            ..Fields::default()
        };
        if self.status.is_there() {
            fields.flags = plan.flags(self.status.read(head));
        }
        Some((length as usize, fields))
    }
}

impl Plan {
    /// See [`Framing::plain`](crate::framing::Framing::plain).
    #[inline(always)]
    pub(super) fn look_quickly(&self, bytes: &[u8]) -> Option<(usize, Fields)> {
        match &self.quick {
            Some(quick) => quick.look(self, bytes),
            None => plain_by_front(self, bytes),
        }
    }
}

impl Plan {
    /// Whether zeros may look like the beginning of a frame.
    #[inline]
    pub(super) fn is_like_zeros(&self) -> bool {
        self.mark.as_ref().is_none_or(|(mark, _)| mark.value() == 0)
    }

    /// Examines a front that is zeros, or follows skipped zeros. A frame of nothing but zeros is not accepted: after
    /// them, the search looks for two frames with consecutive numbers, or one whose checksum is right.
    #[inline]
    fn pass_zeros(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        if window.array(0) == Some([0]) && zeros::leading(window, self.least) == self.least {
            return self.zeros_in_front(window, search);
        }
        search.adrift.then(|| zeros::resume(self, window, search))
    }

    /// Whether a datagram with known fields is nothing but zeros.
    fn is_blank(&self, datagram: &(impl Window + ?Sized)) -> bool {
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
            // An event may have number 0 and still have contents.
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

    /// Skips zeros instead of frames of `bytes` bytes if the frames after them are still aligned, as shown by two with
    /// consecutive numbers, or by a right checksum. `None` if they are not: bytes were lost as well, or zeros were
    /// inserted.
    fn keep_alignment(&self, window: &(impl Window + ?Sized), bytes: usize) -> Option<Front> {
        let zeros = zeros::leading(window, window.len());
        let blank = zeros / bytes * bytes;
        let skip = |bytes| Some(Front::Skip { bytes, cause: Cause::FramingLost });
        if zeros == window.len() {
            // The last of them is kept until other bytes arrive.
            return if blank > bytes { skip(blank - bytes) } else { Some(Front::Needs { bytes: zeros + 1 }) };
        }
        // The first frame that is not blank may begin with zeros.
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

    /// The length that the frame at the front states; `None` if no frame has that length.
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

    /// Whether one frame directly follows another one: by their own numbers, or else by those of their events. A field
    /// that is read at a wrong place may stay constant or grow by much, but rarely by one.
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
                // The shortest frame has all fields at its beginning.
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
