//! The common parts of this crate's protocols: messages between nodes ([`message`](crate::message)), chunks for
//! subscribers ([`stream`](crate::stream)), and messages between gateways and their farm ([`gateway`](crate::gateway)).
//!
//! ```text
//!  magic number | kind | length of the body | ...     kinds!: the kinds and their numbers; frame!: the shorter heads
//!  body: little-endian fields                         Reader, Writer: one after the other
//!  hello: version, name padded with zeros             padded_name, unpadded_name
//! ```
//! Every fault in a message is a [`FrameError`].

use ropewalk_terms::EventKey;

/// An error in a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The bytes do not begin with the protocol's magic number.
    #[error("not a message of this protocol (wrong magic number)")]
    Magic,
    /// A kind, or another field, has no meaning here.
    #[error("a field holds a number without meaning")]
    Meaning,
    /// The body ends before its fields do.
    #[error("the message ends before its fields do")]
    Short,
    /// A list is longer than allowed, or the body is longer than its fields, or than allowed.
    #[error("the message is longer than allowed")]
    Long,
}

/// Declares `Kind`: each kind with its number and its description.
macro_rules! kinds {
    ($($(#[doc = $help:literal])* $name:ident = $number:literal,)*) => {
        /// The kind of a message.
        #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Kind { $($(#[doc = $help])* $name = $number),* }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The kind with this number on the wire, if there is one.
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}
pub(crate) use kinds;

/// Declares `Frame`, the eight bytes in front of every message: for the `Kind` in scope, with a magic number of three
/// bytes and a function that returns the maximum body length of a kind.
macro_rules! frame {
    ($magic:expr, $longest:expr) => {
        /// Bytes of a frame's head.
        pub const FRAME_BYTES: usize = 8;

        /// The head of a message.
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        pub struct Frame {
            /// The kind of the body.
            pub kind: Kind,
            /// Its length in bytes.
            pub body: u32,
        }

        impl Frame {
            /// The head's bytes.
            pub const fn to_bytes(self) -> [u8; FRAME_BYTES] {
                let ([m0, m1, m2], [a, b, c, d]) = ($magic, self.body.to_le_bytes());
                [m0, m1, m2, self.kind as u8, a, b, c, d]
            }

            /// Reads a head.
            ///
            /// # Errors
            /// [`FrameError::Magic`] if the bytes are something else, [`FrameError::Meaning`] for an unknown kind,
            /// [`FrameError::Long`] for a body that is too long.
            pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Self, FrameError> {
                let [m0, m1, m2, kind, a, b, c, d] = *bytes;
                if [m0, m1, m2] != $magic {
                    return Err(FrameError::Magic);
                }
                let kind = Kind::from_u8(kind).ok_or(FrameError::Meaning)?;
                let body = u32::from_le_bytes([a, b, c, d]);
                if body as usize > $longest(kind) { Err(FrameError::Long) } else { Ok(Self { kind, body }) }
            }
        }
    };
}
pub(crate) use frame;

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

    /// Checks that every byte was read.
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

/// Bytes of a name.
pub const NAME_BYTES: usize = 32;

/// A name padded with zeros; a longer one is truncated.
pub(crate) fn padded_name(name: &str) -> [u8; NAME_BYTES] {
    let mut padded = [0; NAME_BYTES];
    padded.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    padded
}

/// The name up to its first zero; bytes that are not UTF-8 are replaced.
pub(crate) fn unpadded_name(name: &[u8; NAME_BYTES]) -> String {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "kinds are what users of a protocol match on")]
mod tests {
    use super::*;

    kinds! {
        /// Asks.
        Question = 3,
        /// Says.
        Answer = 7,
    }

    #[test]
    fn a_kind_is_its_number_and_no_other_number_is_a_kind() {
        assert_eq!(Kind::ALL, [Kind::Question, Kind::Answer]);
        let kinds = (0..=255).filter_map(|number| Kind::from_u8(number).map(|kind| (number, kind)));
        assert!(kinds.eq([(3, Kind::Question), (7, Kind::Answer)]));
    }

    #[test]
    fn fields_come_back_in_order_and_missing_or_left_bytes_are_errors() {
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

    #[test]
    fn a_name_comes_back_and_a_long_one_is_cut() {
        assert_eq!(unpadded_name(&padded_name("ru0")), "ru0");
        assert_eq!(unpadded_name(&padded_name(&"long".repeat(20))), "long".repeat(8));
        assert_eq!(unpadded_name(&[0xff; NAME_BYTES]), "\u{fffd}".repeat(NAME_BYTES));
    }
}
