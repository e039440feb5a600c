//! The filter's result, as stored with an event: the payload of one more fragment, whose source is
//! [`SourceId::FILTER`](ropewalk_terms::SourceId::FILTER).
//!
//! ```text
//!  0 u32 0x52544C46 ("FLTR")   4 u16 version, 1   6 u8 verdict: 0 accepted, 3 set aside
//!  7 u8 cause, where it was set aside: its number; 255 without a cause
//!  8 u128 triggers that it passed: bit n is trigger n
//! 24 u32 streams that it was written to: bit n is stream n of the configuration
//! 28 u32 bytes of the filter's own data
//! 32 the filter's own data, at most 65,536 bytes
//! ```

use ropewalk_terms::{Cause, StreamSet, TriggerBits, Verdict};

/// Bytes before the filter's own data.
pub const HEAD_BYTES: usize = 32;
/// Maximum bytes of a filter's own data stored with an event.
pub const MOST_RESULT_BYTES: usize = 64 << 10;

const MAGIC: u32 = u32::from_le_bytes(*b"FLTR");
const VERSION: u16 = 1;
const NO_CAUSE: u8 = u8::MAX;

/// The result of a filter, without its own data.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FilterResult {
    /// The verdict on the event.
    pub verdict: Verdict,
    /// The cause if the event was set aside.
    pub cause: Option<Cause>,
    /// The triggers that it passed.
    pub triggers: TriggerBits,
    /// The streams to which it was written.
    pub streams: StreamSet,
}

/// An error in a filter result.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FilterResultError {
    /// There are fewer bytes than needed.
    #[error("a filter's result is longer than the {0} bytes that are there")]
    Short(usize),
    /// They begin with another magic number.
    #[error("these bytes are no filter's result")]
    Magic,
    /// The version is unknown to this program.
    #[error("a filter's result of version {0}; this program reads version 1")]
    Version(u16),
    /// A number in it has no meaning.
    #[error("a number in a filter's result means nothing")]
    Meaning,
}

impl FilterResult {
    /// Writes the result with the filter's own data to the front of `to`; returns the number of bytes.
    ///
    /// # Panics
    /// If there is less room, or `own` is longer than [`MOST_RESULT_BYTES`].
    pub fn encode(&self, own: &[u8], to: &mut [u8]) -> usize {
        assert!(own.len() <= MOST_RESULT_BYTES, "the data of a filter are bounded");
        to[..4].copy_from_slice(&MAGIC.to_le_bytes());
        to[4..6].copy_from_slice(&VERSION.to_le_bytes());
        to[6] = self.verdict as u8;
        to[7] = self.cause.map_or(NO_CAUSE, |cause| cause as u8);
        to[8..24].copy_from_slice(&self.triggers.0.to_le_bytes());
        to[24..28].copy_from_slice(&self.streams.to_bits().to_le_bytes());
        to[28..32].copy_from_slice(&(own.len() as u32).to_le_bytes());
        to[HEAD_BYTES..HEAD_BYTES + own.len()].copy_from_slice(own);
        HEAD_BYTES + own.len()
    }

    /// Reads the result, and the filter's own data.
    ///
    /// # Errors
    /// If the bytes are no filter result of this version.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), FilterResultError> {
        let (head, own) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(FilterResultError::Short(bytes.len()))?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != MAGIC {
            return Err(FilterResultError::Magic);
        }
        let version = u16::from_le_bytes([head[4], head[5]]);
        if version != VERSION {
            return Err(FilterResultError::Version(version));
        }
        let verdict = Verdict::from_u8(head[6]).ok_or(FilterResultError::Meaning)?;
        let cause = match head[7] {
            NO_CAUSE => None,
            number => Some(Cause::from_u8(number).ok_or(FilterResultError::Meaning)?),
        };
        let triggers = head[8..24].iter().rev().fold(0, |bits: u128, &byte| bits << 8 | u128::from(byte));
        let own = own.get(..word(28) as usize).ok_or(FilterResultError::Short(bytes.len()))?;
        let streams = StreamSet::from_bits(word(24));
        Ok((Self { verdict, cause, triggers: TriggerBits(triggers), streams }, own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn result() -> impl Strategy<Value = FilterResult> {
        let verdict =
            prop_oneof![Just((Verdict::Accepted, None)), Just((Verdict::Quarantined, Some(Cause::FilterFailed)))];
        (verdict, any::<u128>(), any::<u32>()).prop_map(|((verdict, cause), triggers, streams)| FilterResult {
            verdict,
            cause,
            triggers: TriggerBits(triggers),
            streams: StreamSet::from_bits(streams),
        })
    }

    proptest! {
        #[test]
        fn it_goes_there_and_back(result in result(), own in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = vec![0; HEAD_BYTES + own.len() + 7];
            let length = result.encode(&own, &mut bytes);
            prop_assert_eq!(FilterResult::decode(&bytes), Ok((result, &own[..])));
            prop_assert_eq!(FilterResult::decode(&bytes[..length - 1]).is_err(), true);
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), good in any::<bool>()) {
            let mut bytes = bytes;
            if good && bytes.len() >= 6 {
                bytes[..6].copy_from_slice(b"FLTR\x01\0");
            }
            let _ = FilterResult::decode(&bytes);
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let result = FilterResult {
            verdict: Verdict::Quarantined,
            cause: Some(Cause::FilterFailed),
            triggers: TriggerBits::of(9),
            streams: StreamSet::from_bits(6),
        };
        let mut bytes = [0xee; 40];
        assert_eq!(result.encode(b"own", &mut bytes), 35);
        assert_eq!(&bytes[..8], [b'F', b'L', b'T', b'R', 1, 0, 3, Cause::FilterFailed as u8]);
        assert_eq!((bytes[9], bytes[24], bytes[28], &bytes[32..36]), (2, 6, 3, &b"own\xee"[..]));
    }
}
