//! The checksum of records.

/// Jenkins' one-at-a-time hash of these bytes, taken as signed numbers as LHCb's own code does.
pub fn hash32<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hash = 0_u32;
    for &byte in pieces.into_iter().flatten() {
        hash = hash.wrapping_add(byte.cast_signed() as u32);
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}
