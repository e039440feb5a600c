//! Layouts: faults in descriptions, fields and datagrams.

mod streams;

use proptest::prelude::*;

use super::*;
use crate::framing::{Framing, Front, Part, Search, Tick, Widths};
use crate::message::FragmentFlags;

/// A length of 32 bits in front, in units of a byte.
fn length_at(at: i32) -> Length {
    Length { number: Number::little_endian(at, 4), unit: 1, counts: Counts::Frame, add: 0 }
}

/// The stream of a common make of digitisers: length in words, event counter, clock.
fn digitiser() -> Layout {
    let length =
        Length { number: Number::little_endian(0, 4).masked(0x0fff_ffff), unit: 4, counts: Counts::Frame, add: 0 };
    let ticks = vec![Number::little_endian(12, 4).masked(0x7fff_ffff)];
    Layout {
        event: vec![Number::little_endian(8, 4).masked(0xff_ffff)],
        time: Some(Clock { ticks, tick_attoseconds: 8_000_000_000, seconds: None }),
        ..Layout::new(Frame::Length(length), 1 << 20)
    }
}

/// Frames of 24 bytes.
fn fixed() -> Layout {
    Layout { event: vec![Number::big_endian(4, 4)], ..Layout::new(Frame::Fixed { bytes: 24 }, 24) }
}

/// A sync word, and a length that counts the bytes behind it.
fn synchronised() -> Layout {
    let length = Length { number: Number::big_endian(4, 2), unit: 1, counts: Counts::AfterField, add: 0 };
    let frame = Frame::Sync { word: vec![0xca, 0xfe, 0xba, 0xbe], size: Size::Length(length) };
    Layout { event: vec![Number::big_endian(6, 3)], ..Layout::new(frame, 400) }
}

/// A sync word, and a fixed length.
fn synchronised_fixed() -> Layout {
    let frame = Frame::Sync { word: vec![0x5a, 0xa5], size: Size::Fixed { bytes: 20 } };
    Layout { event: vec![Number::little_endian(2, 2)], ..Layout::new(frame, 100) }
}

/// Words of 64 bits with the length at the end, as in S-LINK64.
fn trailed() -> Layout {
    let length =
        Length { number: Number::little_endian(-4, 4).masked(0xff_ffff), unit: 8, counts: Counts::Frame, add: 0 };
    let mark = Some(Pattern { at: -1, bytes: vec![0xa0], mask: Some(vec![0xf0]) });
    let begin = Pattern { at: 7, bytes: vec![0x50], mask: Some(vec![0xf0]) };
    Layout {
        matches: Some(begin),
        event: vec![Number::little_endian(4, 4).masked(0xff_ffff)],
        ..Layout::new(Frame::Trailer { length, mark, step: 8 }, 4096)
    }
}

/// Lines of text, whose first eight letters are read as a number.
fn lines() -> Layout {
    let frame = Frame::Delimiter { bytes: b"\r\n".to_vec() };
    Layout { event: vec![Number::big_endian(0, 8)], ..Layout::new(frame, 200) }
}

/// Every framing of a stream.
fn streams() -> [Layout; 6] {
    [digitiser(), fixed(), synchronised(), synchronised_fixed(), trailed(), lines()]
}

fn plan(layout: &Layout) -> Plan {
    Plan::compile(layout).expect("a good layout")
}

/// The value of a number, computed bit by bit.
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
        let field = super::fields::Field::new(number).expect("a number");
        prop_assert_eq!(field.read(&frame[..]), slowly(&number, &frame));
        prop_assert!(field.read(&frame[..]).is_none_or(|value| value <= field.largest()));
        // A part of a longer window ends at its own end.
        let longer = [&[7; 5][..], &frame, &[9; 9]].concat();
        let part = Part::new(&longer[..], 5, frame.len());
        prop_assert_eq!(field.read(&part), slowly(&number, &frame));
    }

    #[test]
    fn numbers_are_read_as_they_were_written(number in any_number(), value: u64, fill: u8) {
        let field = super::fields::Field::new(number).expect("a number");
        let mut frame = vec![fill; 24];
        field.write(value, &mut frame);
        prop_assert_eq!(field.read(&frame[..]), Some(value & field.largest()));
        field.write(slowly(&number, &[fill; 24]).expect("long enough"), &mut frame);
        prop_assert_eq!(frame, vec![fill; 24], "only its own bits are touched");
    }

    #[test]
    fn any_question_to_any_frame_is_answered_without_a_panic(
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

/// The key and the fault of a layout after a change that makes it invalid.
fn wrong(layout: Layout, change: impl FnOnce(&mut Layout)) -> (String, LayoutFault) {
    assert!(Plan::compile(&layout).is_ok(), "it is good before");
    let mut layout = layout;
    change(&mut layout);
    let LayoutError { key, fault } = Plan::compile(&layout).expect_err("it is wrong now");
    (key, fault)
}

fn check(layout: Layout, change: impl FnOnce(&mut Layout), key: &str, fault: LayoutFault) {
    assert_eq!(wrong(layout, change), (key.to_owned(), fault));
}

const fn number(at: i32, bytes: u8) -> Number {
    Number::little_endian(at, bytes)
}

#[test]
fn every_layout_of_these_tests_is_good() {
    for layout in streams() {
        assert!(Plan::compile(&layout).is_ok(), "{layout:?}");
    }
}

#[test]
fn numbers_that_are_none_are_refused() {
    let event = |number| move |layout: &mut Layout| layout.event = vec![number];
    check(digitiser(), event(number(4, 0)), "event", LayoutFault::Width(0));
    check(digitiser(), event(number(4, 9)), "event", LayoutFault::Width(9));
    check(digitiser(), event(number(4, 4).masked(0)), "event", LayoutFault::Mask { mask: 0, bits: 32 });
    let gaps = 0xf0f;
    check(digitiser(), event(number(4, 4).masked(gaps)), "event", LayoutFault::Mask { mask: gaps, bits: 32 });
    let beyond = 1 << 32;
    check(digitiser(), event(number(4, 4).masked(beyond)), "event", LayoutFault::Mask { mask: beyond, bits: 32 });
    let shifted = Number { shift: Some(40), ..number(4, 4) };
    check(digitiser(), event(shifted), "event", LayoutFault::Shift(40));
    check(digitiser(), event(number(4, 4).masked(0x7f)), "event", LayoutFault::Bits { bits: 7, least: 8, most: 64 });
    check(digitiser(), event(number(-2, 4)), "event", LayoutFault::Outside { end: 2, frame: 0 });
    let five = |layout: &mut Layout| layout.event = vec![number(4, 1); 5];
    check(digitiser(), five, "event", LayoutFault::Parts(5));
    let nine = |layout: &mut Layout| layout.event = vec![number(20, 8), number(28, 1)];
    check(digitiser(), nine, "event", LayoutFault::Bits { bits: 72, least: 8, most: 64 });
    let kind = |layout: &mut Layout| layout.trigger_type = Some(number(20, 4));
    check(digitiser(), kind, "trigger_type", LayoutFault::Bits { bits: 32, least: 1, most: 16 });
}

#[test]
fn fields_that_overlap_are_refused_but_one_may_mean_two_things() {
    let overlapping = |layout: &mut Layout| layout.sequence = Some(number(10, 4));
    check(digitiser(), overlapping, "sequence", LayoutFault::Overlap("event".to_owned()));
    let length = |layout: &mut Layout| layout.status = Some(Status { number: number(0, 4), error: 1, busy: 0 });
    check(digitiser(), length, "status", LayoutFault::Overlap("frame.length".to_owned()));
    // The upper four bits are free.
    let beside = number(0, 4).masked(0xf000_0000);
    let mut layout = digitiser();
    layout.status = Some(Status { number: beside, error: 1, busy: 2 });
    layout.sequence = Some(layout.event[0]);
    assert!(Plan::compile(&layout).is_ok());
    let constant = |layout: &mut Layout| layout.matches = Some(Pattern { at: 5, bytes: vec![1, 2], mask: None });
    check(fixed(), constant, "event", LayoutFault::Overlap("match".to_owned()));
}

fn check_from_both_ends(sequence: Number, key: &str, fault: LayoutFault) {
    check(fixed(), |layout| layout.sequence = Some(sequence), key, fault);
}

#[test]
fn fields_outside_of_the_frame_are_refused() {
    let beyond = LayoutFault::Outside { end: 26, frame: 24 };
    check_from_both_ends(number(22, 4), "sequence", beyond);
    check_from_both_ends(number(-26, 4), "sequence", LayoutFault::Outside { end: 26, frame: 24 });
    check_from_both_ends(number(-18, 4), "sequence", LayoutFault::Overlap("event".to_owned()));
    let fault = LayoutFault::MaxTooSmall { needed: 408, front: 408, back: 0, max: 400 };
    check(synchronised(), |layout| layout.sequence = Some(number(400, 8)), "frame.max", fault);
    let range = |layout: &mut Layout| {
        let kind = ChecksumKind::Sum16Le;
        layout.checksum = Some(Checksum { kind, number: number(-2, 2), from: 0, to: 30 });
    };
    check(fixed(), range, "checksum", LayoutFault::Outside { end: 30, frame: 24 });
}

#[test]
fn lengths_that_fit_no_frame_are_refused() {
    let narrow = |layout: &mut Layout| {
        let length = Length { number: number(0, 1), unit: 1, counts: Counts::Frame, add: 0 };
        layout.frame = Frame::Length(length);
        layout.event = vec![number(300, 4)];
    };
    let fault = LayoutFault::TooShort { needed: 304, possible: 255 };
    check(fixed(), |layout| (narrow(layout), layout.max = 1000).1, "frame.length", fault);
    let unit = |layout: &mut Layout| layout.frame = Frame::Length(Length { unit: 0, ..length_at(0) });
    check(digitiser(), unit, "frame.length.unit", LayoutFault::Zero);
    let behind = |layout: &mut Layout| layout.frame = Frame::Length(length_at(-4));
    check(digitiser(), behind, "frame.length.at", LayoutFault::WrongEnd("begin (0 or more)"));
    check(fixed(), |layout| layout.frame = Frame::Fixed { bytes: 0 }, "frame.fixed", LayoutFault::Zero);
    let fault = LayoutFault::TooShort { needed: 24, possible: 20 };
    check(fixed(), |layout| layout.max = 20, "frame.max", fault);
    check(fixed(), |layout| layout.max = 0, "frame.max", LayoutFault::Max(0));
    check(fixed(), |layout| layout.max = u32::MAX, "frame.max", LayoutFault::Max(u32::MAX));
}

/// A length that excludes header and checksum may say so in one number.
#[test]
fn a_checksum_may_be_among_the_bytes_that_a_length_excludes() {
    let of_header = |header: u32, add: i32| {
        let length = Length { number: Number::big_endian(4, 2), unit: 1, counts: Counts::Payload { header }, add };
        let number = Number::big_endian(-4, 4);
        Layout {
            event: vec![Number::big_endian(8, 4)],
            checksum: Some(Checksum { kind: ChecksumKind::Crc32, number, from: 0, to: -4 }),
            ..Layout::new(Frame::Length(length), 1 << 10)
        }
    };
    let least = |layout: Layout| Plan::compile(&layout).map(|plan| plan.least());
    assert_eq!(least(of_header(16, 0)), Ok(16), "12 bytes of fields and the checksum");
    assert_eq!(least(of_header(12, 4)), Ok(16));
    assert_eq!(least(of_header(24, 0)), Ok(24));
    assert_eq!(least(of_header(8, 0)), Ok(16), "all fields have room");
    let too_short = Layout { max: 20, ..of_header(24, 0) };
    let fault = LayoutFault::MaxTooSmall { needed: 24, front: 20, back: 4, max: 20 };
    assert_eq!(least(too_short), Err(LayoutError::new("frame.max", fault)));
}

#[test]
fn trailers_that_contradict_themselves_are_refused() {
    check(trailed(), |layout| layout.matches = None, "frame.trailer", LayoutFault::TrailerWithoutMatch);
    let at_end = |layout: &mut Layout| layout.matches = Some(Pattern { at: -16, bytes: vec![5], mask: None });
    check(trailed(), at_end, "match.at", LayoutFault::TrailerWithoutMatch);
    let change = |change: fn(&mut Length, &mut Option<Pattern>, &mut u32)| {
        move |layout: &mut Layout| {
            let Frame::Trailer { length, mark, step } = &mut layout.frame else { panic!("a trailer") };
            change(length, mark, step);
        }
    };
    check(trailed(), change(|_, _, step| *step = 0), "frame.trailer.step", LayoutFault::Zero);
    let front = change(|length, _, _| length.number.at = 0);
    check(trailed(), front, "frame.trailer.length.at", LayoutFault::WrongEnd("end (below 0)"));
    let after = change(|length, _, _| length.counts = Counts::AfterField);
    let fault = LayoutFault::Contradiction("nothing follows a length at the frame's end");
    check(trailed(), after, "frame.trailer.length.counts", fault);
    let front = change(|_, mark, _| *mark = Some(Pattern { at: 0, bytes: vec![1], mask: None }));
    check(trailed(), front, "frame.trailer.mark.at", LayoutFault::WrongEnd("end (below 0)"));
}

#[test]
fn words_that_are_none_are_refused() {
    let word =
        |word: Vec<u8>| move |layout: &mut Layout| layout.frame = Frame::Sync { word, size: Size::Fixed { bytes: 20 } };
    check(fixed(), word(Vec::new()), "frame.sync", LayoutFault::Pattern(0));
    check(fixed(), word(vec![7; 9]), "frame.sync", LayoutFault::Pattern(9));
    let mask = |mask: Vec<u8>| {
        move |layout: &mut Layout| layout.matches = Some(Pattern { at: 0, bytes: vec![1, 2], mask: Some(mask) })
    };
    check(fixed(), mask(vec![1]), "match", LayoutFault::PatternMask);
    check(fixed(), mask(vec![0, 0]), "match", LayoutFault::PatternMask);
}

#[test]
fn clocks_statuses_and_checksums_that_contradict_themselves_are_refused() {
    let tick = |tick| move |layout: &mut Layout| layout.time.as_mut().expect("it has one").tick_attoseconds = tick;
    check(digitiser(), tick(0), "time.tick", LayoutFault::Tick);
    check(digitiser(), tick(u64::MAX), "time.tick", LayoutFault::Tick);
    let status = |layout: &mut Layout| layout.status = Some(Status { number: number(16, 1), error: 0x100, busy: 0 });
    check(digitiser(), status, "status.error", LayoutFault::Mask { mask: 0x100, bits: 8 });
    let checksum = |bytes, from, to| {
        let kind = ChecksumKind::Crc32;
        let number = number(-4, bytes);
        move |layout: &mut Layout| layout.checksum = Some(Checksum { kind, number, from, to })
    };
    check(digitiser(), checksum(2, 0, -4), "checksum", LayoutFault::ChecksumWidth(32));
    check(digitiser(), checksum(4, 8, 4), "checksum", LayoutFault::Range);
    check(digitiser(), checksum(4, -4, -8), "checksum", LayoutFault::Range);
}

#[test]
fn pieces_that_contradict_themselves_are_refused() {
    let pieces = |place, end| Pieces { header: 16, frame: Number::big_endian(0, 8), place, end };
    let layout = |pieces| Layout::new(Frame::Pieces(pieces), 1 << 16);
    let good = || layout(pieces(Place::Offset(number(8, 4)), End::Length(number(12, 4))));
    let change = |place, end| move |layout: &mut Layout| layout.frame = Frame::Pieces(pieces(place, end));
    let wrong = change(Place::Offset(number(8, 4)), End::Count(number(12, 4)));
    check(good(), wrong, "frame.pieces.count", LayoutFault::PlaceAndEnd);
    let wrong = change(Place::Index(number(8, 4)), End::Length(number(12, 4)));
    check(good(), wrong, "frame.pieces.length", LayoutFault::PlaceAndEnd);
    let wrong = change(Place::Index(number(8, 4)), End::Last(number(14, 4)));
    check(good(), wrong, "frame.pieces.last", LayoutFault::OutsideHeader { header: 16 });
    let wrong = change(Place::Index(number(-8, 4)), End::Last(number(12, 4)));
    check(good(), wrong, "frame.pieces.index", LayoutFault::OutsideHeader { header: 16 });
}

fn in_pieces(place: Place, end: End) -> Layout {
    let pieces = Pieces { header: 12, frame: Number::big_endian(0, 4), place, end };
    let checksum = Checksum { kind: ChecksumKind::Crc32, number: Number::big_endian(-4, 4), from: 0, to: -4 };
    Layout {
        event: vec![Number::big_endian(0, 4)],
        checksum: Some(checksum),
        ..Layout::new(Frame::Pieces(pieces), 100_000)
    }
}

/// Reassembles the datagrams, in any order.
fn put_together(plan: &Plan, datagrams: &[&[u8]]) -> Vec<u8> {
    let mut bodies = Vec::new();
    let mut whole = None;
    for datagram in datagrams {
        let head = plan.piece(*datagram).expect("a header");
        assert_eq!(head.frame, 77);
        whole = whole.or(head.whole);
        bodies.push((head.place, head.is_in_bytes, &datagram[head.header..]));
    }
    bodies.sort_by_key(|(place, ..)| *place);
    let mut frame = datagrams[0][..12].to_vec();
    for (index, (place, is_in_bytes, body)) in bodies.iter().enumerate() {
        assert_eq!(*place as usize, if *is_in_bytes { frame.len() - 12 } else { index });
        frame.extend_from_slice(body);
    }
    let end = if bodies[0].1 { frame.len() - 12 } else { bodies.len() };
    assert_eq!(whole, Some(end as u64), "some header says when the frame is whole");
    frame
}

#[test]
fn a_composed_frame_is_sent_in_as_many_datagrams_as_it_takes() {
    let (offset, index) = (Place::Offset(Number::big_endian(4, 4)), Place::Index(Number::big_endian(4, 1)));
    let ends = [End::Length(Number::big_endian(8, 4)), End::Last(Number::big_endian(8, 1))];
    let counted = [End::Count(Number::big_endian(8, 1)), End::Last(Number::big_endian(8, 1))];
    let layouts = ends.map(|end| in_pieces(offset, end)).into_iter().chain(counted.map(|end| in_pieces(index, end)));
    for layout in layouts {
        let plan = plan(&layout);
        for (length, most, count) in
            [(40, 100, 1), (1012, 112, 10), (1013, 112, 11), (40_000, 1400, 29), (40_012, 60, 834)]
        {
            let payload: Vec<u8> = (0..length).map(|place| place as u8).collect();
            let (mut out, mut ends) = (vec![9; 5], Vec::new());
            let contents = Contents { event: 77, ..Contents::default() };
            plan.compose_datagrams(&contents, &payload, most, &mut out, &mut ends);
            let begins = [5].into_iter().chain(ends.iter().copied());
            let datagrams: Vec<&[u8]> = begins.zip(&ends).map(|(begin, &end)| &out[begin..end]).collect();
            assert_eq!(ends.last(), Some(&out.len()));
            // A byte cannot count more than 255.
            let is_narrow = !matches!(layout.frame, Frame::Pieces(Pieces { place: Place::Offset(_), .. }));
            assert!(
                datagrams.len() == count || is_narrow && count > 255 && datagrams.len() <= 256,
                "{length}: {}",
                datagrams.len()
            );
            let frame = put_together(&plan, &datagrams);
            assert_eq!((frame.len(), plan.checksum(&frame[..])), (length, Some(true)), "{layout:?}");
            assert_eq!(&frame[12..length - 4], &payload[12..length - 4]);
        }
    }
}

#[test]
fn a_frame_of_one_datagram_is_composed_as_it_is() {
    let plan = plan(&Layout { event: vec![Number::big_endian(0, 4)], ..Layout::new(Frame::Datagram, 1000) });
    let (mut out, mut ends) = (Vec::new(), Vec::new());
    plan.compose_datagrams(&Contents { event: 3, ..Contents::default() }, &[1; 20], 8, &mut out, &mut ends);
    assert_eq!((out.len(), ends), (20, vec![20]));
    assert_eq!(plan.fields(&out[..]).event, Some(3));
}
