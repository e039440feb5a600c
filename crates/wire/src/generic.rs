//! The generic fragment: Ropewalk's own format over TCP, for front ends without another format
//! (`docs/generic-fragment.md`; senders in `examples/senders/`).
//!
//! A connection begins with one [`Hello`] of 64 bytes. Then each fragment is a [`Header`] of 32 bytes and its
//! payload, back to back. All numbers are little-endian.

use arrayvec::ArrayString;

use crate::framing::Front;
use ropewalk_terms::{Cause, SourceId};

/// The version of the format. Other versions are refused.
pub const VERSION: u8 = 1;

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 64;

/// Bytes of a fragment's header.
pub const HEADER_BYTES: usize = 32;

/// The longest name of a front end, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 32;

/// An error in a hello or a fragment's header.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GenericError {
    /// The bytes do not begin with the magic number.
    #[error("no generic hello or fragment begins here (wrong magic number)")]
    Magic,
    /// The sender speaks another version of the format.
    #[error("the sender speaks another version of the generic format")]
    Version,
    /// The hello's name is no UTF-8, or has bytes behind its end.
    #[error("the name in the hello is not UTF-8 filled up with zeros")]
    Name,
    /// The header names another source than the hello or the configuration.
    #[error("the header names another source")]
    Source,
    /// The header states a longer payload than allowed.
    #[error("the payload is longer than allowed")]
    Oversize,
}

impl GenericError {
    /// Its name in the ledger.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Magic | Self::Version => Cause::FramingLost,
            Self::Name => Cause::Malformed,
            Self::Source => Cause::WrongSource,
            Self::Oversize => Cause::Oversize,
        }
    }

    /// Whether the boundary of the next fragment is unknown, so that the connection must be closed.
    pub const fn loses_framing(self) -> bool {
        !matches!(self, Self::Source)
    }
}

/// The element at the front of a stream: a hello, or a fragment.
pub fn front(bytes: &[u8]) -> Front {
    if bytes.len() >= 4 && Hello::may_begin_with(bytes) {
        return if bytes.len() < HELLO_BYTES {
            Front::Needs { bytes: HELLO_BYTES }
        } else {
            Front::Frame { bytes: HELLO_BYTES }
        };
    }
    let Some(header) = bytes.first_chunk() else { return Front::Needs { bytes: HEADER_BYTES } };
    match Header::parse(header) {
        Ok(header) if bytes.len() < header.fragment_bytes() => Front::Needs { bytes: header.fragment_bytes() },
        Ok(header) => Front::Frame { bytes: header.fragment_bytes() },
        Err(error) => Front::Lost { cause: error.cause() },
    }
}

/// The bytes `at .. at + N`.
const fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    let mut index = 0;
    while index < N {
        array[index] = bytes[at + index];
        index += 1;
    }
    array
}

const HELLO_MAGIC: [u8; 4] = *b"RWHI";

/// The name of a front end.
pub type Name = ArrayString<MAX_NAME_BYTES>;

/// The name is too long or contains a zero byte.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a front end's name has at most 32 bytes, none of them zero")]
pub struct NameError;

/// Flags of a hello. Undefined bits are kept and ignored.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HelloFlags(pub u16);

impl HelloFlags {
    /// Timestamps count from 1970-01-01T00:00:00Z; otherwise from a zero point chosen by the sender.
    pub const UTC: Self = Self(1);

    /// Whether timestamps count from 1970-01-01T00:00:00Z.
    pub const fn has_utc(self) -> bool {
        self.0 & Self::UTC.0 != 0
    }
}

/// The beginning of a connection.
///
/// ```text
///  0 "RWHI"   4 version u8   5 zero   6 flags u16   8 source id u32   12 zeros (4)
/// 16 name: UTF-8, filled up with zeros (32)         48 zeros (16)
/// ```
/// Receivers ignore the zero fields: later versions may use them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The source of the following fragments.
    pub source: SourceId,
    /// The flags.
    pub flags: HelloFlags,
    /// The front end's name, for people.
    pub name: Name,
}

impl Hello {
    /// A hello.
    ///
    /// # Errors
    /// If the name is longer than [`MAX_NAME_BYTES`] or contains a zero byte.
    pub fn new(source: SourceId, flags: HelloFlags, name: &str) -> Result<Self, NameError> {
        if name.contains('\0') {
            return Err(NameError);
        }
        Ok(Self { source, flags, name: Name::from(name).map_err(|_| NameError)? })
    }

    /// Decodes a hello.
    ///
    /// # Errors
    /// [`GenericError::Magic`], [`GenericError::Version`] or [`GenericError::Name`].
    pub fn parse(bytes: &[u8; HELLO_BYTES]) -> Result<Self, GenericError> {
        if array_at(bytes, 0) != HELLO_MAGIC {
            return Err(GenericError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(GenericError::Version);
        }
        let name: [u8; MAX_NAME_BYTES] = array_at(bytes, 16);
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(MAX_NAME_BYTES);
        if name[end..].iter().any(|&byte| byte != 0) {
            return Err(GenericError::Name);
        }
        let text = core::str::from_utf8(&name[..end]).map_err(|_| GenericError::Name)?;
        Ok(Self {
            source: SourceId(u32::from_le_bytes(array_at(bytes, 8))),
            flags: HelloFlags(u16::from_le_bytes(array_at(bytes, 6))),
            name: Name::from(text).map_err(|_| GenericError::Name)?,
        })
    }

    /// Whether a hello can begin with these bytes: a wrong format is detected earlier than a right one.
    pub fn may_begin_with(bytes: &[u8]) -> bool {
        bytes.iter().zip(HELLO_MAGIC).all(|(&byte, expected)| byte == expected)
    }

    /// Encodes the hello.
    pub fn to_bytes(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&HELLO_MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.source.0.to_le_bytes());
        bytes[16..16 + self.name.len()].copy_from_slice(self.name.as_bytes());
        bytes
    }
}

const FRAGMENT_MAGIC: [u8; 4] = *b"RWFR";

/// Flags of a header. Undefined bits are kept and ignored.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// The source's numbering restarts with this fragment: a resynchronisation.
    pub const RESYNC: Self = Self(1);

    /// Whether the source's numbering restarts with this fragment.
    pub const fn has_resync(self) -> bool {
        self.0 & Self::RESYNC.0 != 0
    }
}

/// The header of a fragment.
///
/// ```text
///  0 "RWFR"   4 version u8   5 zero   6 flags u16   8 source id u32   12 payload length u32
/// 16 event number u64                              24 timestamp u64
/// ```
/// Receivers ignore the zero fields: later versions may use them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The source; the same as in the hello.
    pub source: SourceId,
    /// The flags.
    pub flags: Flags,
    /// The event's number: grows by one from trigger to trigger and is the same in all sources. Below 2^48.
    pub event_number: u64,
    /// Time of the trigger, in nanoseconds of the clock stated in the hello; 0 if the source has no clock.
    pub timestamp: u64,
    /// Bytes of payload behind this header.
    pub payload_bytes: u32,
}

impl Header {
    /// Decodes a header.
    ///
    /// # Errors
    /// [`GenericError::Magic`] or [`GenericError::Version`]: the stream's framing is lost.
    pub const fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, GenericError> {
        if u32::from_le_bytes(array_at(bytes, 0)) != u32::from_le_bytes(FRAGMENT_MAGIC) {
            return Err(GenericError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(GenericError::Version);
        }
        Ok(Self {
            source: SourceId(u32::from_le_bytes(array_at(bytes, 8))),
            flags: Flags(u16::from_le_bytes(array_at(bytes, 6))),
            event_number: u64::from_le_bytes(array_at(bytes, 16)),
            timestamp: u64::from_le_bytes(array_at(bytes, 24)),
            payload_bytes: u32::from_le_bytes(array_at(bytes, 12)),
        })
    }

    /// Encodes the header.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&FRAGMENT_MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.source.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.event_number.to_le_bytes());
        bytes[24..].copy_from_slice(&self.timestamp.to_le_bytes());
        bytes
    }

    /// Checks that the fragment is allowed on a connection of `source`, with at most `max_payload_bytes`.
    ///
    /// # Errors
    /// [`GenericError::Oversize`] (first, since it decides whether the stream can continue) or
    /// [`GenericError::Source`].
    pub const fn check(&self, source: SourceId, max_payload_bytes: u32) -> Result<(), GenericError> {
        if self.payload_bytes > max_payload_bytes {
            return Err(GenericError::Oversize);
        }
        if self.source.0 != source.0 {
            return Err(GenericError::Source);
        }
        Ok(())
    }

    /// Bytes of the whole fragment, header included.
    pub const fn fragment_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes as usize
    }
}

/// A view of a fragment at the front of some bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fragment<'a> {
    /// The fragment's header.
    pub header: Header,
    /// The source's data.
    pub payload: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Splits off the first fragment of `bytes`, and returns the bytes behind it too; `None` while the fragment is
    /// incomplete.
    ///
    /// # Errors
    /// As [`Header::parse`].
    pub fn split_first(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, GenericError> {
        let Some((header, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let header = Header::parse(header)?;
        Ok(rest.split_at_checked(header.payload_bytes as usize).map(|(payload, rest)| (Self { header, payload }, rest)))
    }

    /// Copies the fragment into an owned value.
    pub fn to_value(&self) -> OwnedFragment {
        OwnedFragment { header: self.header, payload: self.payload.to_vec() }
    }
}

/// An owned fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedFragment {
    /// The header; [`OwnedFragment::encode`] sets its payload length.
    pub header: Header,
    /// The source's data.
    pub payload: Vec<u8>,
}

impl OwnedFragment {
    /// Appends the fragment's bytes; see [`encode`].
    ///
    /// # Errors
    /// As [`encode`].
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), GenericError> {
        encode(&self.header, &self.payload, out)
    }
}

/// Appends a fragment to `out`: the header, with the length of the payload, then the payload.
///
/// # Errors
/// [`GenericError::Oversize`] if the length does not fit into 32 bits; nothing is appended then.
pub fn encode(header: &Header, payload: &[u8], out: &mut Vec<u8>) -> Result<(), GenericError> {
    let payload_bytes = u32::try_from(payload.len()).map_err(|_| GenericError::Oversize)?;
    out.extend_from_slice(&Header { payload_bytes, ..*header }.to_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

#[cfg(test)]
mod tests {
    //! The generic fragment: round trips, arbitrary bytes, every fault.

    use proptest::prelude::*;

    use super::*;
    use ropewalk_terms::SourceId;

    fn any_header() -> impl Strategy<Value = Header> {
        (any::<u32>(), any::<u16>(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
            |(source, flags, event_number, timestamp, payload_bytes)| Header {
                source: SourceId(source),
                flags: Flags(flags),
                event_number,
                timestamp,
                payload_bytes,
            },
        )
    }

    const EXAMPLE: Header = Header {
        source: SourceId(0x0102_0304),
        flags: Flags::RESYNC,
        event_number: 0x1112_1314_1516_1718,
        timestamp: 0x2122_2324_2526_2728,
        payload_bytes: 0x3132_3334,
    };

    #[test]
    fn the_fields_are_where_the_format_puts_them() {
        let bytes = [
            b'R', b'W', b'F', b'R', 1, 0, 1, 0, 4, 3, 2, 1, 0x34, 0x33, 0x32, 0x31, // first line of the drawing
            0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
        ];
        assert_eq!(EXAMPLE.to_bytes(), bytes);
        assert!(EXAMPLE.flags.has_resync());
        let hello = Hello::new(SourceId(7), HelloFlags::UTC, "caf\u{e9}").expect("a short name");
        let mut bytes = [0; HELLO_BYTES];
        bytes[..12].copy_from_slice(&[b'R', b'W', b'H', b'I', 1, 0, 1, 0, 7, 0, 0, 0]);
        bytes[16..21].copy_from_slice("caf\u{e9}".as_bytes());
        assert_eq!(hello.to_bytes(), bytes);
        assert!(hello.flags.has_utc());
    }

    #[test]
    fn each_fault_has_its_name() {
        let good = EXAMPLE.to_bytes();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            Header::parse(&bytes)
        };
        assert_eq!(with(0, b'r'), Err(GenericError::Magic));
        assert_eq!(with(4, 2), Err(GenericError::Version));
        assert_eq!(with(5, 9), Ok(EXAMPLE));
        assert_eq!(EXAMPLE.check(EXAMPLE.source, u32::MAX), Ok(()));
        assert_eq!(EXAMPLE.check(SourceId(1), u32::MAX), Err(GenericError::Source));
        assert_eq!(EXAMPLE.check(SourceId(1), 4096), Err(GenericError::Oversize));
        let framing = [GenericError::Magic, GenericError::Version, GenericError::Oversize, GenericError::Name];
        assert!(framing.iter().all(|error| error.loses_framing()));
        assert!(!GenericError::Source.loses_framing());
        assert_eq!(GenericError::Magic.cause(), Cause::FramingLost);
        assert_eq!(GenericError::Source.cause(), Cause::WrongSource);
        assert_eq!(GenericError::Oversize.cause(), Cause::Oversize);
    }

    #[test]
    fn names_are_checked_on_both_sides() {
        let new = |name: &str| Hello::new(SourceId(1), HelloFlags::default(), name);
        assert_eq!(new(&"x".repeat(33)), Err(NameError));
        assert_eq!(new("a\0b"), Err(NameError));
        let full = new(&"x".repeat(32)).expect("32 bytes fit");
        assert_eq!(Hello::parse(&full.to_bytes()), Ok(full));
        let with = |at: usize, value: u8| {
            let mut bytes = new("left").expect("a short name").to_bytes();
            bytes[at] = value;
            Hello::parse(&bytes)
        };
        assert_eq!(with(17, 0xFF), Err(GenericError::Name));
        assert_eq!(with(30, b'x'), Err(GenericError::Name));
        assert_eq!(with(0, b'x'), Err(GenericError::Magic));
        assert_eq!(with(4, 0), Err(GenericError::Version));
        assert!(with(63, 1).is_ok());
    }

    proptest! {
        #[test]
        fn headers_come_back(header in any_header()) {
            prop_assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        }

        #[test]
        fn hellos_come_back(source: u32, flags: u16, name in "[^\0]{0,8}") {
            let hello = Hello::new(SourceId(source), HelloFlags(flags), &name).expect("at most 8 characters of 4 bytes");
            prop_assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        }

        #[test]
        fn streams_of_fragments_come_back(
            fragments in prop::collection::vec((any_header(), prop::collection::vec(any::<u8>(), 0..100)), 0..8),
            cut: prop::sample::Index,
        ) {
            let mut stream = Vec::new();
            for (header, payload) in &fragments {
                encode(header, payload, &mut stream).expect("a short payload");
            }
            let mut rest = &stream[..];
            for (header, payload) in &fragments {
                let (fragment, behind) = Fragment::split_first(rest).expect("a fragment").expect("a whole one");
                let missing = &rest[..cut.index(fragment.header.fragment_bytes())];
                prop_assert_eq!(Fragment::split_first(missing), Ok(None));
                prop_assert_eq!(fragment.payload, &payload[..]);
                prop_assert_eq!(fragment.header, Header { payload_bytes: payload.len() as u32, ..*header });
                let mut again = Vec::new();
                fragment.to_value().encode(&mut again).expect("a short payload");
                prop_assert_eq!(&again, &rest[..rest.len() - behind.len()]);
                rest = behind;
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), signed: bool) {
            let mut bytes = bytes;
            if signed && bytes.len() > 4 {
                bytes[..5].copy_from_slice(b"RWFR\x01");
            }
            let _ = Fragment::split_first(&bytes);
            if let Some(hello) = bytes.first_chunk_mut::<HELLO_BYTES>() {
                hello[..5].copy_from_slice(b"RWHI\x01");
                let _ = Hello::parse(hello);
            }
        }
    }
}
