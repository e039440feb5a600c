//! A slow reading: a voltage, a temperature, whatever a front end reports beside its data.
//!
//! ```text
//! 16 u32 source    20 u16 bytes of the name    22 u16 bytes of the unit    24 i64 time, UTC ns    32 f64 value
//! 40 name in UTF-8, then the unit in UTF-8
//! ```

use super::fields::{Fill, array_at, i64_at, u16_at, u32_at};
use super::record::{Record, RecordError, RecordKind, append_record};
use ropewalk_terms::{SourceId, Utc};

const HEAD_BYTES: usize = 40;

/// A slow reading.
#[derive(Clone, PartialEq, Debug)]
pub struct SlowReading {
    /// Who reported it.
    pub source: SourceId,
    /// When it was read.
    pub time: Utc,
    /// The value.
    pub value: f64,
    /// Of what, such as `hv/ch3`; at most 65,535 bytes are kept.
    pub name: String,
    /// In which unit; may be empty.
    pub unit: String,
}

impl SlowReading {
    /// Appends the record.
    ///
    /// # Errors
    /// [`RecordError::Room`] where the record would be too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let kept = |text: &'_ str| text.floor_char_boundary(usize::from(u16::MAX));
        let (name, unit) = (&self.name[..kept(&self.name)], &self.unit[..kept(&self.unit)]);
        let mut head = [0; HEAD_BYTES - 16];
        Fill::new(&mut head)
            .u32(self.source.0)
            .u16(name.len() as u16)
            .u16(unit.len() as u16)
            .i64(self.time.0)
            .u64(self.value.to_bits());
        append_record(out, RecordKind::SLOW_CONTROL, |out| {
            out.extend_from_slice(&head);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(unit.as_bytes());
        })
    }

    /// What a record says; bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// [`RecordError::Kind`], or [`RecordError::Content`] where a text reaches beyond the record.
    pub fn decode(record: &Record<'_>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::SLOW_CONTROL, HEAD_BYTES)?;
        let (name, unit) = (usize::from(u16_at(content, 20)), usize::from(u16_at(content, 22)));
        let texts = content[HEAD_BYTES..].get(..name + unit).ok_or(RecordError::Content)?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self {
            source: SourceId(u32_at(content, 16)),
            time: Utc(i64_at(content, 24)),
            value: f64::from_le_bytes(array_at(content, 32)),
            name: text(&texts[..name]),
            unit: text(&texts[name..]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_reading_comes_back(
            source in any::<u32>(), time in any::<i64>(), value in any::<f64>(), name in ".{0,80}", unit in ".{0,10}"
        ) {
            let (source, time) = (SourceId(source), Utc(time));
            let reading = SlowReading { source, time, value, name, unit };
            let mut bytes = Vec::new();
            reading.encode(&mut bytes).expect("a short record");
            let record = Record::parse(&bytes).expect("a record");
            let back = SlowReading::decode(&record).expect("a reading");
            prop_assert_eq!(back.value.to_bits(), value.to_bits());
            prop_assert_eq!(SlowReading { value: 0.0, ..back }, SlowReading { value: 0.0, ..reading });
        }
    }

    #[test]
    fn texts_that_reach_beyond_the_record_are_refused() {
        let head = [&7_u32.to_le_bytes()[..], &90_u16.to_le_bytes(), &[0; 18], b"short"].concat();
        let mut bytes = Vec::new();
        append_record(&mut bytes, RecordKind::SLOW_CONTROL, |out| out.extend_from_slice(&head)).expect("a record");
        let record = Record::parse(&bytes).expect("a record");
        assert_eq!(SlowReading::decode(&record), Err(RecordError::Content));
    }
}
