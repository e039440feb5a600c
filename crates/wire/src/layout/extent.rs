//! Which bits of a frame its fields take: so that no two share one, and none lies outside.

use super::number::Field;
use super::{LayoutError, LayoutFault};

/// What has been placed in a frame so far.
#[derive(Debug, Default)]
pub(super) struct Extents {
    taken: Vec<(String, Field)>,
    /// Bytes that are needed from the frame's begin.
    front: u64,
    /// Bytes that are needed before the frame's end.
    back: u64,
}

impl Extents {
    /// Takes a field's bits. One that is the same as another is welcome: a number may mean two things.
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

    /// Bytes that are needed up to this place.
    pub(super) fn reach(&mut self, at: i32) {
        if at < 0 {
            self.back = self.back.max(u64::from(at.unsigned_abs()));
        } else {
            self.front = self.front.max(at as u64);
        }
    }

    /// The shortest frame that has room for all.
    pub(super) const fn least(&self) -> u64 {
        self.front + self.back
    }

    /// Checks that everything fits into frames of exactly `bytes` bytes, where begin and end may share bytes, but fields no
    /// bits.
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

    /// The key of what reaches farthest from the begin.
    pub(super) fn farthest(&self) -> &str {
        let end =
            |field: &Field| if field.number().at < 0 { 0 } else { field.number().at + i32::from(field.number().bytes) };
        self.taken.iter().max_by_key(|(_, field)| end(field)).map_or("frame", |(key, _)| key)
    }

    /// What was placed, in the order in which it was.
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

/// Whether they share bits where `other` begins `distance` bytes behind `one`.
fn share_bits(one: &Field, other: &Field, distance: i32) -> bool {
    (0..i32::from(one.number().bytes)).any(|byte| {
        let same = byte - distance;
        same >= 0 && one.bits_of_byte(byte as usize) & other.bits_of_byte(same as usize) != 0
    })
}
