//! The past as bytes: places of a fixed size, each with a checksum, so that a file is written in place and a torn write costs one place.
//!
//! ```text
//!  0        8                16          64
//!  │ magic  │ series         │ zeros     │ 3,600 seconds │ 10,080 minutes │
//!
//!  of a place:  number (8) │ values (4 each, NaN for none) │ counts (2 each) │ checksum (8)
//! ```
//! All numbers are little-endian. Which series there are is a checksum of their names: a file of others is not read.

use super::SERIES;
use super::ring::Point;

/// First bytes of a file.
const MAGIC: &[u8; 8] = b"RWhistor";
/// Bytes before the first place.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes of a place.
pub(super) const RECORD_BYTES: usize = 8 + SERIES.len() * (4 + 2) + 8;

/// A place as it stands in a file.
pub type Record = [u8; RECORD_BYTES];

/// What stands before the places.
pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    let names: Vec<u8> = SERIES.iter().flat_map(|series| series.name.bytes().chain([0])).collect();
    header[8..16].copy_from_slice(&checksum(&names).to_le_bytes());
    header
}

/// A place as bytes.
pub(super) fn encode(point: &Point) -> Record {
    let mut record = [0; RECORD_BYTES];
    let values = point.values.iter().flat_map(|value| value.unwrap_or(f32::NAN).to_le_bytes());
    let counts = point.counts.iter().flat_map(|count| count.to_le_bytes());
    let bytes = point.number.to_le_bytes().into_iter().chain(values).chain(counts);
    record.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    let end = RECORD_BYTES - 8;
    let sum = checksum(&record[..end]);
    record[end..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// A place from bytes; none where nothing was written or not all of it.
pub(super) fn decode(record: &[u8]) -> Option<Point> {
    let (content, sum) = record.split_last_chunk::<8>()?;
    if content.len() != RECORD_BYTES - 8 || u64::from_le_bytes(*sum) != checksum(content) {
        return None;
    }
    let (number, rest) = content.split_first_chunk::<8>()?;
    let (values, counts) = rest.split_at(4 * SERIES.len());
    let mut point = Point::empty(i64::from_le_bytes(*number));
    for (value, bytes) in point.values.iter_mut().zip(values.as_chunks().0) {
        *value = Some(f32::from_le_bytes(*bytes)).filter(|value| value.is_finite());
    }
    for (count, bytes) in point.counts.iter_mut().zip(counts.as_chunks().0) {
        *count = u16::from_le_bytes(*bytes);
    }
    Some(point)
}

/// FNV-1a of 64 bits: enough to tell a torn write, and ten lines of no library. What is empty has another one than zeros have.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point() -> Point {
        let mut point = Point::empty(1_700_000_000);
        (point.values[0], point.counts[0]) = (Some(98_304.5), 3);
        point.values[SERIES.len() - 1] = Some(0.25);
        point
    }

    #[test]
    fn a_place_goes_there_and_back() {
        assert_eq!(decode(&encode(&point())), Some(point()));
    }

    #[test]
    fn what_was_torn_or_never_written_is_nothing() {
        let (old, new) = (encode(&Point { number: 1_699_996_400, ..point() }), encode(&point()));
        for written in 1..RECORD_BYTES {
            let torn: Vec<u8> = new[..written].iter().chain(&old[written..]).copied().collect();
            // Where both are alike, the torn one is the old one or the new one.
            assert!(torn == old || torn == new || decode(&torn).is_none(), "{written}");
        }
        assert_eq!(decode(&[0; RECORD_BYTES]), None);
        assert_eq!(decode(&new[1..]), None);
    }
}
