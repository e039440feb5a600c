//! The generic fragment: there and back, arbitrary bytes, every fault.

use super::*;
use proptest::prelude::*;
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
