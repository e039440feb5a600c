//! Reading and writing the little-endian fields of message bodies.

use ropewalk_terms::EventKey;

/// What is wrong with a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// The bytes do not begin with the protocol's magic number.
    #[error("not a Ropewalk message (wrong magic number)")]
    Magic,
    /// The kind, a role, a level or a cause has no meaning here.
    #[error("a field holds a number without meaning")]
    Meaning,
    /// The body ends before its fields do.
    #[error("the message ends before its fields do")]
    Short,
    /// A list is longer than allowed, or the body is longer than its fields.
    #[error("the message is longer than allowed")]
    Long,
}

/// Takes fields from the front of a body.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(MessageError::Short)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        self.array()
    }

    pub(super) fn u8(&mut self) -> Result<u8, MessageError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, MessageError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, MessageError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, MessageError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn key(&mut self) -> Result<EventKey, MessageError> {
        Ok(EventKey::from_bits(self.u64()?))
    }

    /// Every field was read: nothing may be left.
    pub(super) fn end(self) -> Result<(), MessageError> {
        if self.0.is_empty() { Ok(()) } else { Err(MessageError::Long) }
    }
}

/// Appends fields to a body. The vector keeps its capacity between messages.
pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn key(&mut self, key: EventKey) {
        self.u64(key.to_bits());
    }
}
