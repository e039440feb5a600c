//! From a layout to a plan: everything is checked once.

use super::checksum::Check;
use super::extent::Extents;
use super::front::{Cut, LengthRule};
use super::number::{Constant, Field, Joined};
use super::pieces::PieceFields;
use super::quick::Quick;
use super::specification::{End, Place};
use super::{Counts, Frame, Layout, LayoutError, LayoutFault, Length, MOST_FRAME_BYTES, Number, Pattern, Pieces};
use super::{Plan, Size};
use crate::framing::Tick;
use ropewalk_terms::Cause;

/// The longest tick that a clock is believed to have.
const LONGEST_TICK: u64 = 10_000_000_000_000_000_000;

type Compiled<T> = Result<T, LayoutError>;

/// A layout on its way to a plan.
struct Compiler<'a> {
    layout: &'a Layout,
    extents: Extents,
}

/// What the begin of a frame is known by, and the cause of what is skipped until it is found.
type Mark = Option<(Constant, Cause)>;

/// How frames are found, and what their begin is known by.
struct Found {
    cut: Cut,
    mark: Mark,
    /// Where all frames are as long.
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
                self.extents.reach(i32::try_from(header).unwrap_or(i32::MAX));
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

    /// What a stream's frames begin with is looked for after a loss; of what has its begin anyway it is a condition.
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

    /// The shortest and the longest frame.
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
            let fault = LayoutFault::Outside { end: needed, frame: max };
            return Err(LayoutError::new(self.extents.farthest(), fault));
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
