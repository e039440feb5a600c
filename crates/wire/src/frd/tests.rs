//! Events, file headers and names: there and back, every fault, and whatever comes.

use super::*;
use crate::fed;
use proptest::prelude::*;
use ropewalk_terms::{RunNumber, SourceId};

fn header(version: Version, event: u64) -> EventHeader {
    EventHeader { version, flags: 0, run: 42, lumisection: 3, event, data_bytes: 0, padding_bytes: 0, checksum: 0 }
}

fn fragment(source: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    fed::encode(fed::Header::new(SourceId(source), 17, 99), payload, fed::Trailer::new(), &mut bytes).expect("words");
    bytes
}

fn any_version() -> impl Strategy<Value = Version> {
    prop::sample::select(vec![Version::V3, Version::V4, Version::V5, Version::V6])
}

/// Words as they stand in an event's header.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

#[test]
fn the_fields_are_where_the_format_puts_them() {
    let encoded = |version| {
        let mut out = Vec::new();
        encode_event(header(version, 17), &[b"1234", b"56789"], &mut out).expect("it fits");
        out
    };
    // The check values of both checksums are those of "123456789".
    assert_eq!(words(&encoded(Version::V3)[..28]), [3, 42, 3, 17, 9, 0, 0x091E_01DE]);
    assert_eq!(words(&encoded(Version::V4)[..32]), [4, 42, 3, 17, 0, 9, 0, 0x091E_01DE]);
    assert_eq!(words(&encoded(Version::V5)[..24]), [5, 42, 3, 17, 9, 0xE306_9283]);
    assert_eq!(&encoded(Version::V5)[24..], b"123456789");
    let flagged = EventHeader { flags: 1, ..header(Version::V6, 17) };
    let mut out = Vec::new();
    flagged.encode(&mut out).expect("it fits");
    assert_eq!(words(&out)[0], 0x0001_0006);
    assert_eq!(EventHeader::read(&out[..]), Ok(flagged));
}

#[test]
fn the_header_of_a_file_is_22_bytes_packed() {
    let header = FileHeader { events: 0x0102_0304, file_bytes: 0x0A0B_0C0D_0E0F_1011 };
    let bytes = header.to_bytes();
    assert_eq!(&bytes, b"RAW_0001\x16\x00\x04\x03\x02\x01\x11\x10\x0F\x0E\x0D\x0C\x0B\x0A");
    assert_eq!(FileHeader::parse(&bytes), Ok(header));
    for at in [0, 7, 8] {
        let mut wrong = bytes;
        wrong[at] ^= 1;
        assert_eq!(FileHeader::parse(&wrong), Err(FrdError::FileHeader));
    }
}

#[test]
fn an_event_number_beyond_32_bits_fits_version_4_alone() {
    let mut out = Vec::new();
    for version in [Version::V3, Version::V5, Version::V6] {
        let refused = encode_event(header(version, 1 << 32), &[], &mut out);
        assert_eq!(refused, Err(FrdError::EventNumber { event: 1 << 32 }));
        assert!(out.is_empty());
    }
    encode_event(header(Version::V4, 5 << 32 | 7), &[], &mut out).expect("it fits");
    assert_eq!(Event::parse(&out).expect("an event").header().event, 5 << 32 | 7);
}

#[test]
fn other_versions_are_none() {
    for version in [0, 1, 2, 7, 5 | 1 << 16] {
        let bytes = [&u32::to_le_bytes(version)[..], &[0; 40]].concat();
        assert_eq!(EventHeader::read(&bytes[..]), Err(FrdError::Version { version }));
    }
    assert_eq!(EventHeader::read(&[5, 0, 0][..]), Err(FrdError::Short { needed: 4 }));
    assert_eq!(EventHeader::read(&[5, 0, 0, 0][..]), Err(FrdError::Short { needed: 24 }));
    assert_eq!(EventHeader::read(&[4, 0, 0, 0][..]), Err(FrdError::Short { needed: 32 }));
}

#[test]
fn padding_is_no_part_of_the_data() {
    let data = fragment(841, &[7; 16]);
    let mut out = Vec::new();
    encode_event(header(Version::V3, 1), &[&data], &mut out).expect("it fits");
    out[20..24].copy_from_slice(&5_u32.to_le_bytes());
    assert_eq!(Event::parse(&out), Err(FrdError::Short { needed: 28 + 32 + 5 }));
    out.extend_from_slice(b"paddmore");
    let event = Event::parse(&out).expect("an event");
    assert_eq!((event.data(), event.padding(), event.is_right()), (&data[..], &b"paddm"[..], true));
    assert_eq!(event.bytes().len(), out.len() - 3);
}

#[test]
fn data_fall_apart_into_fragments_or_not_at_all() {
    let parts = [fragment(841, &[]), fragment(843, &[1; 24]), fragment(7, &[0xA0; 8])];
    let mut out = Vec::new();
    encode_event(header(Version::V5, 1), &[&parts[0], &parts[1], &parts[2]], &mut out).expect("it fits");
    let event = Event::parse(&out).expect("an event");
    let fragments = event.fragments().expect("they are whole");
    assert_eq!(fragments.iter().map(|place| &event.data()[place.clone()]).collect::<Vec<_>>(), parts);
    // A header is lost, a trailer, a length.
    for at in [24 + 7, 24 + 15, 24 + 16 + 40 - 4] {
        let mut wrong = out.clone();
        wrong[at] ^= 0xF0 | 3;
        assert_eq!(Event::parse(&wrong).expect("an event").fragments(), None, "{at}");
    }
    assert_eq!(fed::split_event(&[]), Some(vec![]));
    assert_eq!(fed::split_event(&[0; 8]), None);
}

#[test]
fn names_are_those_of_the_schema() {
    let name = |lumisection, kind| FileName { run: RunNumber(42), lumisection, kind };
    for (text, name) in [
        ("run000042_ls0001_index000007.raw", name(1, FileKind::Raw { index: 7 })),
        ("run000042_ls0001_index000007.jsn", name(1, FileKind::Account { index: 7 })),
        ("run000042_ls12345_EoLS.jsn", name(12_345, FileKind::EndOfLumisection)),
        ("run000042_ls0000_EoR.jsn", name(0, FileKind::EndOfRun)),
    ] {
        assert_eq!(name.to_string(), text);
        assert_eq!(text.parse(), Ok(name));
    }
    for text in [
        "",
        "run42",
        "run_ls0001_EoLS.jsn",
        "run1_ls_EoR.jsn",
        "run1_ls1_index.raw",
        "run1_ls1_index+1.raw",
        "run1_ls1_index1.dat",
        "run1_ls1_BoLS.jsn",
        "run1_ls1_EoLS.raw",
        "run1_ls1_index99999999999.raw",
        "run000042_ls0001_index000007.jsn.tmp",
    ] {
        assert_eq!(text.parse::<FileName>(), Err(NotAFile), "{text:?}");
    }
    assert!(name(1, FileKind::EndOfRun) < name(2, FileKind::Raw { index: 0 }), "names order by lumisection");
}

proptest! {
    #[test]
    fn an_event_comes_back_as_it_was_written(
        version in any_version(),
        (run, lumisection, event) in any::<(u32, u32, u32)>(),
        data in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..4),
        flipped in any::<prop::sample::Index>(),
    ) {
        let header = EventHeader { run, lumisection, ..header(version, event.into()) };
        let pieces: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut out = Vec::new();
        encode_event(header, &pieces, &mut out).expect("it fits");
        let found = Event::parse(&out).expect("an event");
        prop_assert_eq!(found.data(), data.concat());
        prop_assert!(found.is_right());
        let mut again = Vec::new();
        found.header().encode(&mut again).expect("it fits");
        prop_assert_eq!(&again[..], &out[..version.header_bytes()]);
        // Less of it is none, and another bit of the data is another checksum.
        for length in 0..out.len() {
            let needs_more = matches!(Event::parse(&out[..length]), Err(FrdError::Short { needed }) if needed > length);
            prop_assert!(needs_more, "of {} bytes {length}", out.len());
        }
        if !found.data().is_empty() {
            let bit = flipped.index(8 * found.data().len());
            let at = version.header_bytes() + bit / 8;
            out[at] ^= 1 << (bit % 8);
            prop_assert!(!Event::parse(&out).expect("an event").is_right());
        }
    }

    #[test]
    fn any_bytes_may_be_asked(bytes in prop::collection::vec(any::<u8>(), 0..80), version in any_version(), text in ".*") {
        let bytes = [&(version as u32).to_le_bytes()[..], &bytes].concat();
        for bytes in [&bytes[..], &bytes[4..]] {
            if let Ok(event) = Event::parse(bytes) {
                let _ = (event.is_right(), event.fragments(), event.padding());
            }
        }
        let _ = text.parse::<FileName>();
    }

    #[test]
    fn any_name_comes_back(run in any::<u32>(), lumisection in any::<u32>(), index in any::<u32>()) {
        for kind in [FileKind::Raw { index }, FileKind::Account { index }, FileKind::EndOfLumisection, FileKind::EndOfRun] {
            let name = FileName { run: RunNumber(run), lumisection, kind };
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }
    }
}
