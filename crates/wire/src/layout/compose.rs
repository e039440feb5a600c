//! Frames of a layout, made: for emulators and tests.

use super::Plan;
use super::front::{Cut, LengthRule};
use crate::framing::Framing;

/// What a frame is to say. Fields that its layout does not have are left out.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// The event's number; of which the field holds as many bits as it has.
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
    /// Appends a frame that says this, whose other bytes come from `payload` as far as they reach: its bytes are written
    /// over by the fields. It is as long as `payload`, but as short and as long as frames can be, and as the unit of the
    /// length demands. Of a layout whose frames come in pieces it is the whole frame, as it is put together. Returns its
    /// length.
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

    /// Appends the datagrams in which such a frame is sent, and where each ends: one, or where frames are sent in pieces as
    /// many as it takes with at most `most` bytes in each (or with as many as the header can count).
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
        // From the last one on, so that each moves to where nothing lies any more.
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
        // Last: where the event's number is the sequence as well, it is what counts.
        self.event.iter().for_each(|event| event.write(contents.event, frame));
    }

    /// The length of a frame that is about so long.
    fn possible_length(&self, wanted: usize) -> usize {
        let (rule, step) = match &self.cut {
            Cut::Length(rule) => (Some(rule), 1),
            Cut::Trailer { length, step, .. } => (Some(length), *step),
            Cut::Fixed | Cut::Datagram | Cut::Delimiter(_) => (None, 1),
        };
        let wanted = wanted.clamp(self.least, self.most);
        let Some(rule) = rule else { return wanted };
        // Up to the next length that can be stated, or down where there is none.
        let largest = rule.bytes(rule.field.largest()).min(self.most as u64) as usize;
        let stated = |length: usize| {
            let counted = (length as i64) - rule.base;
            counted >= 0 && (counted as u64).is_multiple_of(rule.unit) && length.is_multiple_of(step)
        };
        let up = (wanted..=largest).take(rule.unit as usize * step).find(|&length| stated(length));
        up.or_else(|| (self.least..=largest.min(wanted)).rev().find(|&length| stated(length))).unwrap_or(self.least)
    }
}
