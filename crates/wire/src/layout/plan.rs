//! The compiled layout: made from its description, used to read fields, and to compose frames for emulators and tests.

use super::fields::{Check, Constant, Field, Joined, PieceFields};
use super::front::{Cut, LengthRule, Quick};
use super::{
    Counts, End, Frame, Layout, LayoutError, LayoutFault, Length, MOST_FRAME_BYTES, Number, Pattern, Pieces, Place,
    Size,
};
use crate::framing::{Fields, Framing, Front, PieceHead, Search, Tick, Widths, Window};
use crate::message::FragmentFlags;
use crate::zeros;
use ropewalk_terms::Cause;

/// A layout, compiled once: see the module's text.
#[derive(Debug)]
pub struct Plan {
    pub(super) layout: Layout,
    pub(super) cut: Cut,
    /// Bytes that mark the beginning of a frame, and the cause for bytes that are skipped until they are found.
    pub(super) mark: Option<(Constant, Cause)>,
    /// Further fixed bytes of frames.
    pub(super) matches: Option<Constant>,
    /// The shortest and the longest frame.
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) event: Option<Joined>,
    pub(super) ticks: Option<Joined>,
    pub(super) seconds: Option<Field>,
    pub(super) tick: Tick,
    pub(super) source: Option<Field>,
    pub(super) demux: Option<Field>,
    pub(super) trigger_type: Option<Field>,
    pub(super) sequence: Option<Field>,
    pub(super) status: Option<Field>,
    pub(super) check: Option<Check>,
    pub(super) pieces: Option<PieceFields>,
    pub(super) quick: Option<Quick>,
    pub(super) extents: Extents,
}

impl Plan {
    /// Checks a layout and prepares it.
    ///
    /// # Errors
    /// The error in it, with the key.
    pub fn compile(layout: &Layout) -> Result<Self, LayoutError> {
        compile(layout)
    }

    /// The layout that it was made of.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The shortest frame that has room for all fields, in bytes.
    pub const fn least(&self) -> usize {
        self.least
    }

    /// Whether frames come in datagrams, and not in a stream.
    pub const fn is_of_datagrams(&self) -> bool {
        self.layout.frame.is_of_datagrams()
    }

    /// Number of fixed bits of each frame in a stream.
    pub fn mark_bits(&self) -> u32 {
        let bits = |constant: &Constant| constant.field().largest().count_ones();
        // An end that leads back to a beginning is as significant as a word.
        let trailer = if matches!(self.cut, Cut::Trailer { .. }) { u16::BITS } else { 0 };
        trailer + self.mark.as_ref().map_or(0, |(mark, _)| bits(mark)) + self.matches.as_ref().map_or(0, bits)
    }

    /// Whether frames of a stream end with bytes that occur nowhere else in a frame.
    pub const fn is_delimited(&self) -> bool {
        matches!(self.cut, Cut::Delimiter(_))
    }

    /// Whether frames contain their event number.
    pub const fn has_event(&self) -> bool {
        self.event.is_some()
    }

    /// The board of a frame, by the field that distinguishes several boards; `None` if the layout has none.
    pub fn board_of(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        self.demux.as_ref()?.read(frame)
    }

    /// The clock in ticks, or in nanoseconds if it has seconds as well.
    fn time(&self, ticks: u64, seconds: Option<u64>) -> u64 {
        let Some(seconds) = seconds else { return ticks };
        seconds.wrapping_mul(1_000_000_000).wrapping_add(self.tick.nanoseconds_of(ticks))
    }

    pub(super) fn flags(&self, bits: u64) -> FragmentFlags {
        let Some(status) = &self.layout.status else { return FragmentFlags::default() };
        let error = if bits & status.error == 0 { FragmentFlags::default() } else { FragmentFlags::STATUS_ERROR };
        if bits & status.busy == 0 { error } else { error.with(FragmentFlags::BUSY) }
    }

    /// The fields of bytes that are shorter than any frame, as far as they are present.
    #[cold]
    fn fields_of_less(&self, bytes: &(impl Window + ?Sized)) -> Fields {
        let number = |field: &Option<Field>| field.as_ref()?.read(bytes);
        let joined = |joined: &Option<Joined>| joined.as_ref()?.read(bytes);
        Fields {
            event: joined(&self.event),
            time: joined(&self.ticks).map(|ticks| self.time(ticks, number(&self.seconds))),
            source: number(&self.source).map(|source| source as u32),
            trigger_type: number(&self.trigger_type).map(|kind| kind as u16),
            sequence: number(&self.sequence),
            flags: self.flags(number(&self.status).unwrap_or(0)),
            ..Fields::default()
        }
    }
}

impl Framing for Plan {
    #[inline]
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        self.find_front(window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        let has_length = matches!(self.cut, Cut::Length(_) | Cut::Fixed);
        if has_length && self.is_like_zeros() {
            zeros::front_at_end(self, window, search)
        } else {
            self.trailed_at_end(window, search)
        }
    }

    #[inline]
    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        // Every frame that is at least as long as the shortest has all of them.
        if frame.len() < self.least {
            return self.fields_of_less(frame);
        }
        let number = |field: &Option<Field>| field.as_ref().map(|field| field.of(frame));
        let ticks = self.ticks.as_ref().map(|ticks| ticks.of(frame));
        Fields {
            event: self.event.as_ref().map(|event| event.of(frame)),
            time: ticks.map(|ticks| self.time(ticks, number(&self.seconds))),
            source: number(&self.source).map(|source| source as u32),
            trigger_type: number(&self.trigger_type).map(|kind| kind as u16),
            sequence: number(&self.sequence),
            flags: number(&self.status).map_or(FragmentFlags::default(), |bits| self.flags(bits)),
            ..Fields::default()
        }
    }

    fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
        self.check.as_ref().map(|check| check.is_right(frame))
    }

    #[inline(always)]
    fn plain(&self, bytes: &[u8]) -> Option<(usize, Fields)> {
        self.look_quickly(bytes)
    }

    #[inline]
    fn is_matched(&self, frame: &(impl Window + ?Sized)) -> bool {
        self.matches.as_ref().is_none_or(|matches| matches.is_in(frame))
    }

    fn piece(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
        self.pieces.as_ref()?.read(datagram)
    }

    fn comes_in_pieces(&self) -> bool {
        self.pieces.is_some()
    }

    fn most(&self) -> usize {
        self.most
    }

    fn board(&self) -> Option<u32> {
        self.layout.source.and_then(|source| source.is)
    }

    fn widths(&self) -> Widths {
        let width = |bits: Option<u32>| bits.map_or(64, |bits| bits as u8);
        let time = if self.seconds.is_some() { None } else { self.ticks.as_ref().map(Joined::bits) };
        Widths {
            event: width(self.event.as_ref().map(Joined::bits)),
            time: width(time),
            sequence: width(self.sequence.as_ref().map(Field::bits)),
        }
    }

    fn tick(&self) -> Tick {
        if self.seconds.is_some() { Tick::NANOSECOND } else { self.tick }
    }
}

/// Maximum length of a clock's tick, in attoseconds.
const LONGEST_TICK: u64 = 10_000_000_000_000_000_000;

type Compiled<T> = Result<T, LayoutError>;

/// The state of a compilation.
struct Compiler<'a> {
    layout: &'a Layout,
    extents: Extents,
}

/// Bytes that mark the beginning of a frame, and the cause for bytes that are skipped until they are found.
type Mark = Option<(Constant, Cause)>;

/// The compiled framing, and the mark of a frame's beginning.
struct Found {
    cut: Cut,
    mark: Mark,
    /// The length of all frames, if it is fixed.
    fixed: Option<u32>,
}

pub(super) fn compile(layout: &Layout) -> Compiled<Plan> {
    if !(1..=MOST_FRAME_BYTES).contains(&layout.max) {
        return Err(LayoutError::new("frame.max", LayoutFault::Max(layout.max)));
    }
    let mut compiler = Compiler { layout, extents: Extents::default() };
    let found = compiler.frame()?;
    let (mark, matches) = compiler.matches(&found)?;
    let event = compiler.joined("event", &layout.event, 8..=64)?;
    let sequence = compiler.number("sequence", layout.sequence, 4..=64)?;
    let (ticks, seconds) = compiler.clock()?;
    let source = compiler.number("board", layout.source.map(|source| source.number), 1..=32)?;
    let demux = compiler.number("demux", layout.demux, 1..=64)?;
    let trigger_type = compiler.number("trigger_type", layout.trigger_type, 1..=16)?;
    let status = compiler.status()?;
    let check = compiler.checksum()?;
    let pieces = if let Frame::Pieces(pieces) = &layout.frame { Some(compiler.pieces(pieces)?) } else { None };
    let (least, most) = compiler.limits(&found)?;
    let tick = layout.time.as_ref().map_or(Tick::NANOSECOND, |time| Tick::of_attoseconds(time.tick_attoseconds));
    let (layout, extents, cut) = (layout.clone(), compiler.extents, found.cut);
    let mut plan = Plan {
        layout,
        cut,
        mark,
        matches,
        least,
        most,
        event,
        ticks,
        seconds,
        tick,
        source,
        demux,
        trigger_type,
        sequence,
        status,
        check,
        pieces,
        quick: None,
        extents,
    };
    plan.quick = Quick::new(&plan);
    Ok(plan)
}

impl Compiler<'_> {
    fn frame(&mut self) -> Compiled<Found> {
        let (mut mark, mut fixed) = (None, None);
        let cut = match &self.layout.frame {
            Frame::Length(length) => self.sized(&Size::Length(*length), &mut fixed)?,
            Frame::Fixed { bytes } => self.sized(&Size::Fixed { bytes: *bytes }, &mut fixed)?,
            Frame::Several(size) => self.sized(size, &mut fixed)?,
            Frame::Sync { word, size } => {
                let pattern = Pattern { at: 0, bytes: word.clone(), mask: None };
                mark = Some((self.constant("frame.sync", &pattern)?, Cause::SyncLost));
                self.sized(size, &mut fixed)?
            }
            Frame::Trailer { length, mark, step } => {
                if *step == 0 {
                    return Err(LayoutError::new("frame.trailer.step", LayoutFault::Zero));
                }
                let mark = mark.as_ref().map(|mark| self.trailer_mark(mark)).transpose()?;
                let length = self.length("frame.trailer.length", length, true)?;
                Cut::Trailer { length, mark, step: *step as usize }
            }
            Frame::Delimiter { bytes } => {
                let pattern = Pattern { at: 0, bytes: bytes.clone(), mask: None };
                let fault = |fault| LayoutError::new("frame.delimiter", fault);
                self.extents.reach(-(bytes.len().min(8) as i32));
                Cut::Delimiter(Constant::new(&pattern).map_err(fault)?)
            }
            Frame::Datagram | Frame::Pieces(_) => Cut::Datagram,
        };
        Ok(Found { cut, mark, fixed })
    }

    fn sized(&mut self, size: &Size, fixed: &mut Option<u32>) -> Compiled<Cut> {
        match size {
            Size::Length(length) => Ok(Cut::Length(self.length("frame.length", length, false)?)),
            Size::Fixed { bytes: 0 } => Err(LayoutError::new("frame.fixed", LayoutFault::Zero)),
            Size::Fixed { bytes } => {
                *fixed = Some(*bytes);
                Ok(Cut::Fixed)
            }
        }
    }

    fn length(&mut self, key: &str, length: &Length, is_at_end: bool) -> Compiled<LengthRule> {
        let at = |name: &str| format!("{key}.{name}");
        let field = self.field(key, length.number, 1..=64)?;
        if (length.number.at < 0) != is_at_end {
            let end = if is_at_end { "end (below 0)" } else { "begin (0 or more)" };
            return Err(LayoutError::new(at("at"), LayoutFault::WrongEnd(end)));
        }
        if length.unit == 0 {
            return Err(LayoutError::new(at("unit"), LayoutFault::Zero));
        }
        let uncounted = match length.counts {
            Counts::Frame => 0,
            Counts::AfterField if is_at_end => {
                let fault = LayoutFault::Contradiction("nothing follows a length at the frame's end");
                return Err(LayoutError::new(at("counts"), fault));
            }
            Counts::AfterField => i64::from(length.number.at) + i64::from(length.number.bytes),
            Counts::Payload { header } => {
                self.extents.uncounted = header.into();
                i64::from(header)
            }
        };
        Ok(LengthRule { field, unit: length.unit.into(), base: uncounted + i64::from(length.add) })
    }

    fn trailer_mark(&mut self, pattern: &Pattern) -> Compiled<Constant> {
        if pattern.at >= 0 {
            return Err(LayoutError::new("frame.trailer.mark.at", LayoutFault::WrongEnd("end (below 0)")));
        }
        self.constant("frame.trailer.mark", pattern)
    }

    /// In a stream the fixed bytes at a frame's beginning are searched for after a loss; otherwise they are only a
    /// condition.
    fn matches(&mut self, found: &Found) -> Compiled<(Mark, Option<Constant>)> {
        let is_trailed = matches!(found.cut, Cut::Trailer { .. });
        let Some(pattern) = &self.layout.matches else {
            let fault = LayoutError::new("frame.trailer", LayoutFault::TrailerWithoutMatch);
            return if is_trailed { Err(fault) } else { Ok((found.mark, None)) };
        };
        let constant = self.constant("match", pattern)?;
        let is_at_begin = pattern.at >= 0;
        if is_trailed && !is_at_begin {
            return Err(LayoutError::new("match.at", LayoutFault::TrailerWithoutMatch));
        }
        let has_length = matches!(found.cut, Cut::Length(_) | Cut::Fixed | Cut::Trailer { .. });
        if found.mark.is_none() && has_length && is_at_begin {
            let cause = if is_trailed { Cause::SyncLost } else { Cause::NotMatched };
            return Ok((Some((constant, cause)), None));
        }
        Ok((found.mark, Some(constant)))
    }

    fn clock(&mut self) -> Compiled<(Option<Joined>, Option<Field>)> {
        let Some(clock) = &self.layout.time else { return Ok((None, None)) };
        if !(1..=LONGEST_TICK).contains(&clock.tick_attoseconds) {
            return Err(LayoutError::new("time.tick", LayoutFault::Tick));
        }
        let ticks = self.joined("time", &clock.ticks, 4..=64)?;
        Ok((ticks, self.number("time.seconds", clock.seconds, 1..=64)?))
    }

    fn status(&mut self) -> Compiled<Option<Field>> {
        let Some(status) = &self.layout.status else { return Ok(None) };
        let fault = |fault| LayoutError::new("status", fault);
        let field = Field::of_any_bits(status.number).map_err(fault)?;
        self.extents.take("status", &field)?;
        for (key, mask) in [("status.error", status.error), ("status.busy", status.busy)] {
            if mask & !field.largest() != 0 {
                return Err(LayoutError::new(key, LayoutFault::Mask { mask, bits: field.bits() }));
            }
        }
        Ok(Some(field))
    }

    fn checksum(&mut self) -> Compiled<Option<Check>> {
        let Some(checksum) = self.layout.checksum else { return Ok(None) };
        let bits = checksum.kind.bits();
        let field = self.field("checksum", checksum.number, 1..=64)?;
        if field.bits() != bits {
            return Err(LayoutError::new("checksum", LayoutFault::ChecksumWidth(bits)));
        }
        let (from, to) = (checksum.from, checksum.to);
        let same_end = (from < 0) == (to <= 0);
        if same_end && from >= to && !(from < 0 && to == 0) {
            return Err(LayoutError::new("checksum", LayoutFault::Range));
        }
        self.extents.reach(from);
        self.extents.reach(to);
        Ok(Some(Check { kind: checksum.kind, field, from, to }))
    }

    fn pieces(&mut self, pieces: &Pieces) -> Compiled<PieceFields> {
        let header = pieces.header;
        let mut field = |key: &str, number: &Number| {
            let field = self.field(key, *number, 1..=64)?;
            let end = i64::from(number.at) + i64::from(number.bytes);
            let is_within = number.at >= 0 && end <= i64::from(header);
            if is_within { Ok(field) } else { Err(LayoutError::new(key, LayoutFault::OutsideHeader { header })) }
        };
        let (place, end) = (pieces.place, pieces.end);
        let (place_key, end_key) = (place_key(&place), end_key(&end));
        let fits = match end {
            End::Length(_) => matches!(place, Place::Offset(_)),
            End::Count(_) => matches!(place, Place::Index(_)),
            End::Last(_) => true,
        };
        if !fits {
            return Err(LayoutError::new(end_key, LayoutFault::PlaceAndEnd));
        }
        let frame = field("frame.pieces.frame", &pieces.frame)?;
        let (place, end) = (field(place_key, place.number())?, field(end_key, end.number())?);
        self.extents.reach(i32::try_from(header).unwrap_or(i32::MAX));
        Ok(PieceFields { specification: *pieces, frame, place, end })
    }

    /// Returns the length of the shortest and of the longest frame.
    fn limits(&self, found: &Found) -> Compiled<(usize, usize)> {
        let (needed, max) = (self.extents.least().max(1), u64::from(self.layout.max));
        if let Some(bytes) = found.fixed {
            self.extents.fit(bytes)?;
            if u64::from(bytes) > max {
                let fault = LayoutFault::TooShort { needed: bytes.into(), possible: max };
                return Err(LayoutError::new("frame.max", fault));
            }
            return Ok((bytes as usize, bytes as usize));
        }
        if needed > max {
            let Extents { back, .. } = self.extents;
            let front = needed - back;
            return Err(LayoutError::new("frame.max", LayoutFault::MaxTooSmall { needed, front, back, max }));
        }
        let (key, rule, step) = match &found.cut {
            Cut::Length(rule) => ("frame.length", Some(rule), 1),
            Cut::Trailer { length, step, .. } => ("frame.trailer.length", Some(length), *step as u64),
            _ => ("", None, 1),
        };
        let needed = needed.next_multiple_of(step);
        if needed > max {
            return Err(LayoutError::new("frame.max", LayoutFault::TooShort { needed, possible: max }));
        }
        let possible = rule.map_or(u64::MAX, |rule| rule.bytes(rule.field.largest()));
        if possible < needed {
            return Err(LayoutError::new(key, LayoutFault::TooShort { needed, possible }));
        }
        Ok((needed as usize, max as usize))
    }

    fn number(
        &mut self,
        key: &str,
        number: Option<Number>,
        bits: core::ops::RangeInclusive<u32>,
    ) -> Compiled<Option<Field>> {
        number.map(|number| self.field(key, number, bits)).transpose()
    }

    fn field(&mut self, key: &str, number: Number, bits: core::ops::RangeInclusive<u32>) -> Compiled<Field> {
        let field = Field::new(number).map_err(|fault| LayoutError::new(key, fault))?;
        check_bits(key, field.bits(), &bits)?;
        self.extents.take(key, &field)?;
        Ok(field)
    }

    fn joined(
        &mut self,
        key: &str,
        numbers: &[Number],
        bits: core::ops::RangeInclusive<u32>,
    ) -> Compiled<Option<Joined>> {
        let joined = Joined::new(numbers).map_err(|fault| LayoutError::new(key, fault))?;
        let Some(joined) = joined else { return Ok(None) };
        check_bits(key, joined.bits(), &bits)?;
        joined.fields().try_for_each(|field| self.extents.take(key, field))?;
        Ok(Some(joined))
    }

    fn constant(&mut self, key: &str, pattern: &Pattern) -> Compiled<Constant> {
        let constant = Constant::new(pattern).map_err(|fault| LayoutError::new(key, fault))?;
        self.extents.take(key, constant.field())?;
        Ok(constant)
    }
}

fn check_bits(key: &str, bits: u32, allowed: &core::ops::RangeInclusive<u32>) -> Compiled<()> {
    let (least, most) = (*allowed.start(), *allowed.end());
    if allowed.contains(&bits) {
        return Ok(());
    }
    Err(LayoutError::new(key, LayoutFault::Bits { bits, least, most }))
}

const fn place_key(place: &Place) -> &'static str {
    match place {
        Place::Offset(_) => "frame.pieces.offset",
        Place::Index(_) => "frame.pieces.index",
    }
}

const fn end_key(end: &End) -> &'static str {
    match end {
        End::Length(_) => "frame.pieces.length",
        End::Count(_) => "frame.pieces.count",
        End::Last(_) => "frame.pieces.last",
    }
}

/// The fields placed in a frame so far.
#[derive(Debug, Default)]
pub(super) struct Extents {
    taken: Vec<(String, Field)>,
    /// Required bytes from the frame's beginning.
    front: u64,
    /// Required bytes before the frame's end.
    back: u64,
    /// Bytes that the length does not count. A trailer, such as a checksum, may be among them.
    uncounted: u64,
}

impl Extents {
    /// Takes a field's bits. Two equal fields are allowed: a number may have two meanings.
    pub(super) fn take(&mut self, key: &str, field: &Field) -> Result<(), LayoutError> {
        let fault = |fault| Err(LayoutError::new(key, fault));
        let shared = self.taken.iter().find(|(_, other)| other.number() != field.number() && overlap(other, field));
        if let Some((other, _)) = shared {
            return fault(LayoutFault::Overlap(other.clone()));
        }
        let (at, bytes) = (field.number().at, u64::from(field.number().bytes));
        if at < 0 {
            self.back = self.back.max(u64::from(at.unsigned_abs()));
        } else {
            self.front = self.front.max(at as u64 + bytes);
        }
        self.taken.push((key.to_owned(), *field));
        Ok(())
    }

    /// Requires the bytes up to this place.
    pub(super) fn reach(&mut self, at: i32) {
        if at < 0 {
            self.back = self.back.max(u64::from(at.unsigned_abs()));
        } else {
            self.front = self.front.max(at as u64);
        }
    }

    /// Length of the shortest frame with room for all fields.
    pub(super) const fn least(&self) -> u64 {
        let fields = self.front + self.back;
        if fields > self.uncounted { fields } else { self.uncounted }
    }

    /// Checks that everything fits into frames of exactly `bytes` bytes, where the parts counted from the beginning and
    /// from the end may share bytes, but fields no bits.
    pub(super) fn fit(&self, bytes: u32) -> Result<(), LayoutError> {
        let frame = u64::from(bytes);
        for (key, field) in &self.taken {
            let (at, length) = (field.number().at, u64::from(field.number().bytes));
            let end = if at < 0 { u64::from(at.unsigned_abs()) } else { at as u64 + length };
            if end > frame {
                return Err(LayoutError::new(key.as_str(), LayoutFault::Outside { end, frame }));
            }
        }
        let end = self.front.max(self.back);
        if end > frame {
            return Err(LayoutError::new("checksum", LayoutFault::Outside { end, frame }));
        }
        for (index, (key, field)) in self.taken.iter().enumerate() {
            let shared = self.taken[..index].iter().find(|(_, other)| overlap_in(other, field, bytes));
            if let Some((other, _)) = shared {
                return Err(LayoutError::new(key.as_str(), LayoutFault::Overlap(other.clone())));
            }
        }
        Ok(())
    }

    /// The numbers that do not consist of whole bytes, with their places.
    pub(super) fn masked(&self) -> impl Iterator<Item = String> + '_ {
        self.taken.iter().filter_map(|(key, field)| {
            let number = field.number();
            let mask = number.mask?;
            let is_whole = mask.trailing_zeros().is_multiple_of(8) && (mask.ilog2() + 1).is_multiple_of(8);
            if is_whole || key == "match" || key.ends_with(".mark") {
                return None;
            }
            let bytes = if number.bytes == 1 { "byte".to_owned() } else { format!("{} bytes", number.bytes) };
            let bits = match (mask.trailing_zeros(), mask.ilog2()) {
                (one, last) if one == last => format!("bit {one}"),
                (first, last) => format!("bits {first} to {last}"),
            };
            Some(format!("{key}: {bits} of the {bytes} at {} (mask {mask:#x})", number.at))
        })
    }

    /// The placed fields, in the order of placement.
    pub(super) fn taken(&self) -> &[(String, Field)] {
        &self.taken
    }
}

/// Whether two fields that are counted from the same end share bits.
fn overlap(one: &Field, other: &Field) -> bool {
    (one.number().at < 0) == (other.number().at < 0) && share_bits(one, other, other.number().at - one.number().at)
}

/// Whether a field counted from the begin and one counted from the end share bits in a frame of this length.
fn overlap_in(one: &Field, other: &Field, bytes: u32) -> bool {
    let place = |field: &Field| {
        let at = i64::from(field.number().at);
        if at < 0 { at + i64::from(bytes) } else { at }
    };
    (one.number().at < 0) != (other.number().at < 0)
        && i32::try_from(place(other) - place(one)).is_ok_and(|distance| share_bits(one, other, distance))
}

/// Whether they share bits if `other` begins `distance` bytes behind `one`.
fn share_bits(one: &Field, other: &Field, distance: i32) -> bool {
    (0..i32::from(one.number().bytes)).any(|byte| {
        let same = byte - distance;
        same >= 0 && one.bits_of_byte(byte as usize) & other.bits_of_byte(same as usize) != 0
    })
}

/// The contents of a frame. Fields that its layout does not have are ignored.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// The event number; excess bits are cut off.
    pub event: u64,
    /// Ticks of the clock (nanoseconds where the layout has seconds as well).
    pub time: u64,
    /// The number of the board.
    pub source: u32,
    /// Trigger type.
    pub trigger_type: u16,
    /// The frame's own number.
    pub sequence: u64,
    /// The status.
    pub status: u64,
}

impl Plan {
    /// Appends a frame with these contents. Its other bytes are taken from `payload` as far as it reaches; fields
    /// overwrite them. It is as long as `payload`, within the limits of frames and in the units of the length field.
    /// For a layout whose frames are sent in pieces it is the reassembled frame. Returns its length.
    pub fn compose(&self, contents: &Contents, payload: &[u8], out: &mut Vec<u8>) -> usize {
        let length = self.possible_length(payload.len());
        let start = out.len();
        let copied = payload.len().min(length);
        out.extend_from_slice(&payload[..copied]);
        out.resize(start + length, 0);
        let frame = &mut out[start..];
        if let Some((mark, _)) = &self.mark {
            mark.write(frame);
        }
        if let Some(matches) = &self.matches {
            matches.write(frame);
        }
        self.write_end(length, frame);
        self.write_fields(contents, frame);
        if let Some(check) = &self.check {
            check.write(frame);
        }
        length
    }

    /// Appends the datagrams of such a frame, and returns their ends. Usually one; if frames are sent in pieces, as
    /// many as needed with at most `most` bytes in each (or as many as the header can count).
    pub fn compose_datagrams(
        &self,
        contents: &Contents,
        payload: &[u8],
        most: usize,
        out: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) {
        let start = out.len();
        let length = self.compose(contents, payload, out);
        let Some(pieces) = &self.pieces else { return ends.push(start + length) };
        let header = (pieces.specification.header as usize).min(length);
        let bodies = length - header;
        let each = pieces.body_bytes(bodies, most.saturating_sub(header));
        let count = bodies.div_ceil(each).max(1);
        pieces.write(contents.event, 0, count, (each, bodies), &mut out[start..]);
        if let Some(check) = &self.check {
            check.write(&mut out[start..]);
        }
        // From the last one on, so that each moves to free memory.
        out.resize(start + length + (count - 1) * header, 0);
        for index in (1..count).rev() {
            let body = start + header + index * each..start + length.min(header + (index + 1) * each);
            let to = body.start + (index - 1) * header;
            out.copy_within(body, to + header);
            out.copy_within(start..start + header, to);
            pieces.write(contents.event, index, count, (each, bodies), &mut out[to..to + header]);
        }
        let end_of = |index: usize| start + (index + 1) * header + bodies.min((index + 1) * each);
        ends.extend((0..count).map(end_of));
    }

    fn write_end(&self, length: usize, frame: &mut [u8]) {
        let count = |rule: &LengthRule| (length as u64).saturating_add_signed(-rule.base) / rule.unit;
        match &self.cut {
            Cut::Length(rule) => rule.field.write(count(rule), frame),
            Cut::Trailer { length, mark, .. } => {
                length.field.write(count(length), frame);
                mark.iter().for_each(|mark| mark.write(frame));
            }
            Cut::Delimiter(delimiter) => {
                let at = frame.len() - delimiter.end();
                delimiter.write(&mut frame[at..]);
            }
            Cut::Fixed | Cut::Datagram => {}
        }
    }

    fn write_fields(&self, contents: &Contents, frame: &mut [u8]) {
        if let Some(ticks) = &self.ticks {
            let mut time = contents.time;
            if let Some(seconds) = &self.seconds {
                seconds.write(time / 1_000_000_000, frame);
                time = self.tick.ticks_in(time % 1_000_000_000);
            }
            ticks.write(time, frame);
        }
        let board = self.board().unwrap_or(contents.source);
        let fields = [
            (&self.source, u64::from(board)),
            (&self.trigger_type, contents.trigger_type.into()),
            (&self.status, contents.status),
            (&self.sequence, contents.sequence),
        ];
        for (field, value) in fields {
            field.iter().for_each(|field| field.write(value, frame));
        }
        // Last: if the event number is the sequence as well, it takes precedence.
        self.event.iter().for_each(|event| event.write(contents.event, frame));
    }

    /// The possible length of a frame that is closest to this one.
    fn possible_length(&self, wanted: usize) -> usize {
        let (rule, step) = match &self.cut {
            Cut::Length(rule) => (Some(rule), 1),
            Cut::Trailer { length, step, .. } => (Some(length), *step),
            Cut::Fixed | Cut::Datagram | Cut::Delimiter(_) => (None, 1),
        };
        let wanted = wanted.clamp(self.least, self.most);
        let Some(rule) = rule else { return wanted };
        // Up to the next length that can be stated, or else down to one.
        let largest = rule.bytes(rule.field.largest()).min(self.most as u64) as usize;
        let stated = |length: usize| {
            let counted = (length as i64) - rule.base;
            counted >= 0 && (counted as u64).is_multiple_of(rule.unit) && length.is_multiple_of(step)
        };
        let up = (wanted..=largest).take(rule.unit as usize * step).find(|&length| stated(length));
        up.or_else(|| (self.least..=largest.min(wanted)).rev().find(|&length| stated(length))).unwrap_or(self.least)
    }
}
