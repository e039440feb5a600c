//! Reading and writing the little-endian fields of message bodies.

use super::FrameError;
use ropewalk_terms::EventKey;

/// Takes fields from the front of a body.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    #[inline]
    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(FrameError::Short)?;
        self.0 = tail;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        self.bytes().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.bytes()?))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    pub(crate) fn key(&mut self) -> Result<EventKey, FrameError> {
        Ok(EventKey::from_bits(self.u64()?))
    }

    /// Every field was read: nothing may be left.
    pub(crate) fn end(self) -> Result<(), FrameError> {
        if self.0.is_empty() { Ok(()) } else { Err(FrameError::Long) }
    }
}

/// Appends fields to a body. The vector keeps its capacity between messages.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn key(&mut self, key: EventKey) {
        self.u64(key.to_bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_in_order_and_what_is_missing_or_left_is_told() {
        let mut bytes = Vec::new();
        let mut to = Writer(&mut bytes);
        to.u8(1);
        to.u16(0x0203);
        to.u32(0x0405_0607);
        to.u64(u64::MAX - 1);
        to.key(EventKey::new(2, 9));
        to.bytes(b"end");
        assert_eq!(bytes[..3], [1, 3, 2], "little-endian");
        let mut from = Reader(&bytes);
        assert_eq!((from.u8(), from.u16(), from.u32()), (Ok(1), Ok(0x0203), Ok(0x0405_0607)));
        assert_eq!((from.u64(), from.key()), (Ok(u64::MAX - 1), Ok(EventKey::new(2, 9))));
        assert_eq!((from.u32(), Reader(from.0).end()), (Err(FrameError::Short), Err(FrameError::Long)));
        assert_eq!(from.bytes(), Ok(*b"end"), "what was too much took nothing");
        assert_eq!(from.end(), Ok(()));
    }
}
