//! Fields are read as they were written, of any width and order; checksums are those of the catalogue.

use super::*;
use crate::framing::{Part, Tick, Widths};
use crate::message::FragmentFlags;
use proptest::prelude::*;

/// What a number is, bit by bit.
fn slowly(number: &Number, frame: &[u8]) -> Option<u64> {
    let at =
        if number.at < 0 { frame.len().checked_sub(number.at.unsigned_abs() as usize)? } else { number.at as usize };
    let mut bytes = frame.get(at..at + usize::from(number.bytes))?.to_vec();
    if !number.is_big_endian {
        bytes.reverse();
    }
    let value = bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    let mask = number.mask.unwrap_or(u64::MAX);
    Some((value & mask) >> number.shift.map_or(mask.trailing_zeros(), u32::from))
}

prop_compose! {
    fn any_number()(at in -12i32..12, bytes in 1u8..=8, is_big_endian: bool, low in 0u32..64, count in 1u32..=64, all: bool)
        -> Number {
        let at = if at < 0 { at.min(-i32::from(bytes)) } else { at };
        let bits = 8 * u32::from(bytes);
        let low = low % bits;
        let mask = u64::MAX >> (64 - count.min(bits - low)) << low;
        Number { at, bytes, is_big_endian, mask: if all { None } else { Some(mask) }, shift: None }
    }
}

proptest! {
    #[test]
    fn numbers_are_read_as_they_stand(number in any_number(), frame in proptest::collection::vec(any::<u8>(), 0..24)) {
        let field = super::super::number::Field::new(number).expect("a number");
        prop_assert_eq!(field.read(&frame[..]), slowly(&number, &frame));
        prop_assert!(field.read(&frame[..]).is_none_or(|value| value <= field.largest()));
        // A part of something longer ends where it ends.
        let longer = [&[7; 5][..], &frame, &[9; 9]].concat();
        let part = Part::new(&longer[..], 5, frame.len());
        prop_assert_eq!(field.read(&part), slowly(&number, &frame));
    }

    #[test]
    fn numbers_are_read_as_they_were_written(number in any_number(), value: u64, fill: u8) {
        let field = super::super::number::Field::new(number).expect("a number");
        let mut frame = vec![fill; 24];
        field.write(value, &mut frame);
        prop_assert_eq!(field.read(&frame[..]), Some(value & field.largest()));
        field.write(slowly(&number, &[fill; 24]).expect("long enough"), &mut frame);
        prop_assert_eq!(frame, vec![fill; 24], "only its own bits are touched");
    }

    #[test]
    fn whatever_a_frame_is_asked_it_does_not_panic(
        frame in proptest::collection::vec(any::<u8>(), 0..64), which in 0usize..6,
    ) {
        let plan = plan(&streams()[which]);
        let _ = (plan.fields(&frame[..]), plan.checksum(&frame[..]), plan.is_matched(&frame[..]));
    }

    #[test]
    fn checksums_do_not_depend_on_the_cut(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
        let (one, other) = bytes.split_at(cut.min(bytes.len()));
        for kind in CHECKSUM_KINDS {
            prop_assert_eq!(kind.of([&bytes[..]]), kind.of([one, other]), "{}", kind.name());
        }
    }
}

#[test]
fn checksums_are_those_of_the_catalogue() {
    let of_the_digits = [
        ("crc16-arc", 0xbb3d),
        ("crc16-cms", 0xaee7),
        ("crc16-modbus", 0x4b37),
        ("crc16-usb", 0xb4c8),
        ("crc16-umts", 0xfee8),
        ("crc16-ccitt", 0x29b1),
        ("crc16-xmodem", 0x31c3),
        ("crc16-kermit", 0x2189),
        ("crc16-x25", 0x906e),
        ("crc16-genibus", 0xd64e),
        ("crc16-dnp", 0xea82),
        ("crc16-t10-dif", 0xd0db),
        ("crc32", 0xcbf4_3926),
        ("crc32c", 0xe306_9283),
        ("crc32-bzip2", 0xfc89_1918),
        ("crc32-mpeg2", 0x0376_e6e7),
        ("crc32-cksum", 0x765e_7680),
        ("crc32-jamcrc", 0x340b_c6d9),
        ("crc32-autosar", 0x1697_d06a),
        ("adler32", 0x091e_01de),
        ("sum8", 0xdd),
        // 3231 + 3433 + 3635 + 3837 + 0039, and the other way round.
        ("sum16le", 0xd509),
        ("sum16be", 0x09d4),
        ("sum32le", 0x6c6a_689f),
        ("sum32be", 0x9f68_6a6c),
        ("xor8", 0x31),
        ("xor16le", 0x0839),
        ("xor16be", 0x3908),
        ("internet", 0xf62a),
    ];
    for (name, value) in of_the_digits {
        let kind = ChecksumKind::from_name(name).expect(name);
        assert_eq!(kind.of([&b"123456789"[..]]), value, "{name}");
    }
    assert_eq!(ChecksumKind::Xor32Le.of([&[1, 2, 3, 4, 0xff][..]]), 0x0403_02fe);
    assert_eq!(ChecksumKind::Xor32Be.of([&[1, 2, 3, 4, 0xff][..]]), 0xfe02_0304);
    assert_eq!(ChecksumKind::from_name("crc7"), None);
}

#[test]
fn a_frame_says_what_it_was_made_to_say() {
    let number = |at, bytes| Number::big_endian(at, bytes);
    let layout = Layout {
        matches: Some(Pattern { at: 2, bytes: b"ESS".to_vec(), mask: None }),
        event: vec![number(10, 4), number(14, 4)],
        time: Some(Clock {
            ticks: vec![number(30, 4)],
            tick_attoseconds: 11_356_860_964,
            seconds: Some(number(34, 4)),
        }),
        source: Some(Source { number: number(38, 2), is: Some(77) }),
        trigger_type: Some(number(5, 1)),
        sequence: Some(number(26, 4)),
        status: Some(Status { number: number(8, 1), error: 0x30, busy: 0x40 }),
        checksum: Some(Checksum { kind: ChecksumKind::Crc32, number: number(-4, 4), from: 0, to: 0 }),
        ..Layout::new(Frame::Datagram, 9000)
    };
    let plan = plan(&layout);
    let time = 67_484_500_000_000;
    let contents =
        Contents { event: 67_484 << 32 | 1_619_617, time, source: 5, trigger_type: 9, sequence: 12, status: 0x60 };
    let mut frame = Vec::new();
    assert_eq!(plan.compose(&contents, &[0xee; 100], &mut frame), 100);
    let fields = plan.fields(&frame[..]);
    assert_eq!((fields.event, fields.sequence), (Some(contents.event), Some(12)));
    assert!(fields.time.expect("it has one").abs_diff(time) <= 12, "a tick at the most");
    assert_eq!((fields.source, fields.trigger_type, plan.board()), (Some(77), Some(9), Some(77)));
    assert_eq!(fields.flags, FragmentFlags::STATUS_ERROR.with(FragmentFlags::BUSY));
    assert!(plan.is_matched(&frame[..]));
    assert_eq!(plan.checksum(&frame[..]), Some(true));
    frame[50] ^= 1;
    assert_eq!(plan.checksum(&frame[..]), Some(false));
    frame[3] ^= 1;
    assert!(!plan.is_matched(&frame[..]));
    assert_eq!(plan.widths(), Widths { event: 64, time: 64, sequence: 32 });
    assert_eq!(plan.tick(), Tick::NANOSECOND);
    assert_eq!((plan.least(), plan.most()), (44, 9000));
}

#[test]
fn a_layout_is_drawn_byte_by_byte() {
    let drawing = plan(&trailed()).to_string();
    let expected = "            0          1          2          3          4          5          6          7     \n\
\x20    0 |          |          |          |          |             event              |  match   |\n\
\x20      |  ... 16 to 4096 bytes in all\n\
\x20   -8 |          |          |          |          |             length             |   mark   |\n";
    assert_eq!(drawing, expected, "\n{drawing}");
}
