//! The short way through a frame that lies in one piece, as nearly all do: everything that is looked at stands in its first
//! bytes, and nothing is asked twice.

use super::Plan;
use super::front::Cut;
use super::number::Field;
use crate::framing::{Fields, plain_by_front};

/// Bytes that fields begin within, and bytes that are then looked at: so many that no place needs a check of its own.
const NEAR: usize = 64;
const HEAD: usize = NEAR + 8;

/// A field near a frame's begin; without bits where the layout has none.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Near {
    mask: u64,
    base: u32,
    down: u8,
    is_big_endian: bool,
}

impl Near {
    /// None where it is counted from the frame's end, or not near.
    fn new(field: &Field) -> Option<Self> {
        let (base, down, mask) = field.place_from_begin()?;
        let base = u32::try_from(base).ok().filter(|&base| base < NEAR as u32)?;
        Some(Self { mask, base, down, is_big_endian: field.number().is_big_endian })
    }

    /// A field that may not be there.
    fn of(field: Option<&Field>) -> Option<Self> {
        field.map_or(Some(Self::default()), Self::new)
    }

    #[inline(always)]
    const fn is_there(&self) -> bool {
        self.mask != 0
    }

    /// Its value; 0 where it is not there.
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

/// What is looked at, side by side.
#[derive(Debug)]
pub(super) struct Quick {
    /// The shortest frame, and how much longer the longest is.
    least: u64,
    range: u64,
    mark: Near,
    mark_value: u64,
    /// Zeros may look like a frame.
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
    /// None where frames need a longer look.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        if plan.matches.is_some() || plan.seconds.is_some() || plan.least < 8 {
            return None;
        }
        let (length, unit, base) = match &plan.cut {
            Cut::Length(rule) => (Near::new(&rule.field)?, rule.unit, rule.base as u64),
            Cut::Fixed => (Near::default(), 0, plan.most as u64),
            _ => return None,
        };
        // No length that can be stated leads beyond what can be computed.
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

    /// The frame at the front, with bytes behind it; none where a longer look is needed.
    #[inline(always)]
    fn look(&self, plan: &Plan, bytes: &[u8]) -> Option<(usize, Fields)> {
        // What lies so near to the end takes the longer look.
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
