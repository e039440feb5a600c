//! Faults of a board's frames are reported with their place, and good frames are not.

use super::*;
use core::net::Ipv4Addr;
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::layout::{
    Checksum, ChecksumKind, Clock, Contents, Counts, End, Layout, Length, Number, Pattern, Pieces, Place, Plan,
};
use std::sync::Arc;

impl TrialAccount {
    /// Whether every byte belongs to a frame whose checksum, if it has one, is right.
    fn is_intact(&self) -> bool {
        let wrong = self.boards.iter().map(|(_, account)| account.wrong_checksums).sum::<u64>();
        self.faults.is_empty() && self.skipped_bytes + self.left_over_bytes + wrong == 0
    }
}

/// A length, 16 bits of sequence, a clock of 8 ns, a CRC at the end.
fn layout() -> Layout {
    let length = Length { number: Number::little_endian(4, 4), unit: 1, counts: Counts::Frame, add: 0 };
    let ticks = vec![Number::big_endian(10, 4)];
    Layout {
        matches: Some(Pattern { at: 0, bytes: vec![0xca, 0xfe, 0xba, 0xbe], mask: None }),
        sequence: Some(Number::big_endian(8, 2)),
        time: Some(Clock { ticks, tick_attoseconds: 8_000_000_000, seconds: None }),
        checksum: Some(Checksum { kind: ChecksumKind::Crc32, number: Number::little_endian(-4, 4), from: 0, to: -4 }),
        ..Layout::new(Frame::Length(length), 1000)
    }
}

fn plan(layout: &Layout) -> Description {
    Arc::new(Plan::compile(layout).expect("a good layout")).into()
}

/// Returns frames with these numbers, each 1 us after the previous one.
fn frames(framing: &Description, numbers: impl IntoIterator<Item = u64>) -> Vec<Vec<u8>> {
    let Description::Layout(plan) = framing else { panic!("only layouts compose") };
    let contents = |(index, sequence): (u64, u64)| Contents { sequence, time: 125 * index, ..Contents::default() };
    let compose = |contents: Contents| {
        let mut bytes = Vec::new();
        plan.compose(&contents, &[0x55; 40], &mut bytes);
        bytes
    };
    (0..).zip(numbers).map(contents).map(compose).collect()
}

fn tried(plan: &Description, bytes: &[u8], piece: usize) -> TrialAccount {
    let mut trial = Trial::new(plan);
    let mut offset = 0;
    for piece in bytes.chunks(piece) {
        trial.stream(Arrival { offset, ..Arrival::default() }, piece);
        offset += piece.len() as u64;
    }
    trial.end()
}

#[test]
fn a_good_stream_has_no_bad_place_however_it_is_cut() {
    let plan = plan(&layout());
    let bytes = frames(&plan, (65_500..65_600).map(|number| number % 65_536)).concat();
    for piece in [1, 7, 40, 4096] {
        let account = tried(&plan, &bytes, piece);
        let board = &account.boards[0].1;
        assert!(account.is_intact() && account.is_complete() && account.first_bad.is_none(), "{account:?}");
        assert_eq!((board.frames, board.sequence.wraps, board.right_checksums), (100, 1, 100));
        assert_eq!(board.intervals.counts().collect::<Vec<_>>(), [Interval { from: 1000, to: 2000, count: 99 }]);
    }
}

/// In a captured connection a place is the packet in which it appears, however frames are distributed over packets.
#[test]
fn a_place_in_a_capture_is_a_packet() {
    let plan = plan(&layout());
    let mut all = frames(&plan, 0..5);
    all[2][30] ^= 1;
    let mut trial = Trial::new(&plan);
    for (packet, bytes) in (0..).zip(all.concat().chunks(11)) {
        trial.stream(Arrival { offset: packet, is_packet: true, ..Arrival::default() }, bytes);
    }
    assert_eq!(trial.end().first_bad.map(|bad| (bad.key, bad.offset)), Some(("checksum", 120 / 11)));
    let mut datagrams = Trial::new(&plan);
    datagrams.datagram(Arrival { offset: 7, is_packet: true, ..Arrival::default() }, &all.concat());
    assert_eq!(datagrams.end().first_bad.map(|bad| (bad.key, bad.offset)), Some(("checksum", 7)));
}

#[test]
fn gaps_doubles_and_a_board_that_restarts_are_distinguished() {
    let plan = plan(&layout());
    let bytes =
        frames(&plan, [100, 101, 105, 106, 106, 104, 107, 0, 1].map(|number| number + 1000 * u64::from(number > 1)))
            .concat();
    let account = tried(&plan, &bytes, 64);
    let numbers = account.boards[0].1.sequence;
    let found = (numbers.gaps, numbers.missing, numbers.duplicates, numbers.out_of_order, numbers.restarts);
    assert_eq!(found, (1, 2, 1, 1, 1), "{numbers:?}");
    assert!(account.is_intact() && !account.is_complete());
    let bad = account.first_bad.expect("a gap");
    assert_eq!((bad.key, bad.offset, bad.marked), ("sequence", 80, Some(8..10)));
    assert!(bad.what.contains("1105 comes after 1101: 3 missing"), "{}", bad.what);
    assert_eq!((bad.before, &bad.bytes[bad.before..bad.before + 2]), (32, &[0xca, 0xfe][..]));
}

#[test]
fn damage_is_counted_once_and_points_at_its_rule() {
    let plan = plan(&layout());
    let mut all = frames(&plan, 0..5);
    all[2][30] ^= 1;
    all.insert(4, vec![0x11; 33]);
    let account = tried(&plan, &all.concat(), 50);
    assert_eq!(account.boards[0].1.wrong_checksums, 1);
    assert_eq!((account.skipped_bytes, account.faults.values().sum::<u64>()), (33, 1), "{account:?}");
    assert_eq!(account.first_bad.as_ref().map(|bad| (bad.key, bad.offset)), Some(("checksum", 80)));
    let account = tried(&plan, &all[3..].concat(), 50);
    assert_eq!(account.first_bad.map(|bad| (bad.key, bad.offset)), Some(("match", 40)));
}

#[test]
fn an_impossible_length_ends_a_stream_without_anything_to_look_for() {
    let plan = plan(&Layout { matches: None, checksum: None, ..layout() });
    let mut all = frames(&plan, 0..4);
    all[2][4..8].copy_from_slice(&5000_u32.to_le_bytes());
    let account = tried(&plan, &all.concat(), 60);
    assert_eq!((account.frames(), account.left_over_bytes), (2, 80), "{account:?}");
    assert_eq!(account.first_bad.map(|bad| (bad.key, bad.marked)), Some(("frame.max", Some(4..8))));
}

#[test]
fn datagrams_of_two_boards_have_numbers_of_their_own() {
    let layout = Layout { frame: Frame::Datagram, checksum: None, ..layout() };
    let plan = plan(&layout);
    let mut trial = Trial::new(&plan);
    let from = |last: u8| Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
    for frame in frames(&plan, 7..27) {
        for last in [1, 2] {
            trial.datagram(Arrival { from: from(last), ..Arrival::default() }, &frame);
        }
    }
    trial.datagram(Arrival { from: from(1), offset: 99, ..Arrival::default() }, &[0xca, 0xfe]);
    let account = trial.end();
    assert_eq!((account.datagrams, account.frames(), account.boards.len()), (41, 40, 2));
    assert!(account.is_complete() && !account.is_intact());
    let bad = account.first_bad.expect("one is too short");
    assert!((bad.key, bad.offset) == ("frame", 99) && bad.what.contains("ends after 2"), "{bad:?}");
}

#[test]
fn a_frame_of_several_datagrams_is_put_together() {
    let number = Number::big_endian;
    let pieces =
        Pieces { header: 12, frame: number(8, 4), place: Place::Offset(number(0, 4)), end: End::Length(number(4, 4)) };
    let layout = Layout { event: vec![number(8, 4)], ..Layout::new(Frame::Pieces(pieces), 1000) };
    let plan = plan(&layout);
    let datagram = |event: u32, offset: u32| {
        let head = [offset, 200, event].map(u32::to_be_bytes).concat();
        [head, vec![event as u8; 100]].concat()
    };
    let mut trial = Trial::new(&plan);
    for bytes in [datagram(1, 0), datagram(2, 100), datagram(1, 100), datagram(2, 0), datagram(3, 0)] {
        trial.datagram(Arrival::default(), &bytes);
    }
    trial.datagram(Arrival::default(), &[0; 5]);
    let account = trial.end();
    assert_eq!((account.frames(), account.unfinished_frames, account.skipped_bytes), (2, 1, 5), "{account:?}");
    assert_eq!((account.boards[0].1.most_bytes, account.boards[0].1.event.last), (212, Some(2)));
}

/// As in a run: a sender that was restarted repeats its frame numbers, and pieces of two frames do not make one.
#[test]
fn pieces_of_a_restarted_sender_belong_to_another_frame() {
    let number = Number::big_endian;
    let pieces =
        Pieces { header: 12, frame: number(8, 4), place: Place::Offset(number(0, 4)), end: End::Length(number(4, 4)) };
    let plan = plan(&Layout { event: vec![number(8, 4)], ..Layout::new(Frame::Pieces(pieces), 1000) });
    let datagram = |event: u32, offset: u32, byte: u8| {
        let head = [offset, 200, event].map(u32::to_be_bytes).concat();
        [head, vec![byte; 100]].concat()
    };
    let at = |milliseconds: i64| Arrival { time: Some(Utc(milliseconds * 1_000_000)), ..Arrival::default() };
    let ways = [
        // The second half belongs to another sender, long afterwards, or the first half is repeated with other bytes.
        vec![(1, datagram(7, 0, 1)), (2000, datagram(7, 100, 2))],
        vec![(1, datagram(7, 0, 1)), (2, datagram(7, 0, 2))],
    ];
    for way in ways {
        let mut trial = Trial::new(&plan);
        way.into_iter().for_each(|(time, bytes)| trial.datagram(at(time), &bytes));
        let account = trial.end();
        assert_eq!((account.frames(), account.unfinished_frames), (0, 2), "{account:?}");
    }
}

#[test]
fn several_frames_of_an_event_are_no_repetition_where_they_belong_together() {
    let length = Length { number: Number::little_endian(0, 4), unit: 1, counts: Counts::Frame, add: 0 };
    let plan = plan(&Layout { event: vec![Number::little_endian(4, 4)], ..Layout::new(Frame::Length(length), 100) });
    let tried = |gathers| {
        let mut trial = Trial::new(&plan).gathering(gathers);
        for event in [1_u32, 1, 2, 4, 4] {
            let frame = [12, event, 0].map(u32::to_le_bytes).concat();
            trial.stream(Arrival::default(), &frame);
        }
        trial.end().boards[0].1.event
    };
    let (apart, together) = (tried(false), tried(true));
    assert_eq!((apart.duplicates, apart.missing, together.duplicates, together.missing), (2, 1, 0, 1));
}

/// Returns frames of a named format, of source 3.
fn emulated(format: ForeignFormat, events: impl IntoIterator<Item = u32>) -> Vec<Vec<u8>> {
    let frames = |event| format.emulate(3, event, &[7; 40]).expect("it is short");
    events.into_iter().flat_map(frames).collect()
}

#[test]
fn a_format_with_a_name_is_tried_as_a_layout_is() {
    let blocks: Description = ForeignFormat::Ferol.into();
    let mut events = emulated(ForeignFormat::Ferol, [1, 2, 4]);
    let account = tried(&blocks, &events.concat(), 13);
    let event = account.boards[0].1.event;
    assert_eq!((account.frames(), account.boards[0].0.number), (3, Some(3)));
    assert!(account.is_intact() && !account.is_complete() && event.missing == 1, "{account:?}");
    assert_eq!(account.first_bad.map(|bad| bad.key), Some("format"));
    events[1][0] ^= 0xff;
    let account = tried(&blocks, &events.concat(), 13);
    let bad = account.first_bad.as_ref().map(|bad| (bad.key, bad.offset));
    assert!(!account.is_intact() && bad == Some(("format", events[0].len() as u64)), "{account:?}");
    // Two blocks of one fragment are one event, which is not repeated.
    let long = ForeignFormat::Ferol.emulate(3, 1, &[7; 6000]).expect("it is short");
    let account = tried(&blocks, &long.concat(), 1000);
    assert!(account.is_complete() && account.frames() == long.len() as u64 && long.len() > 1, "{account:?}");
}

#[test]
fn a_format_whose_events_are_times_misses_none() {
    let readout: Description = ForeignFormat::Ess.into();
    let mut trial = Trial::new(&readout);
    emulated(ForeignFormat::Ess, [1, 5, 9]).iter().for_each(|bytes| trial.datagram(Arrival::default(), bytes));
    let account = trial.end();
    let board = &account.boards[0].1;
    assert!(board.event.is_gapless() && board.event.first < board.event.last, "{account:?}");
    assert_eq!((board.sequence.missing, account.is_complete()), (6, false), "{account:?}");
}

#[test]
fn a_frame_that_contradicts_itself_says_where() {
    let midas: Description = ForeignFormat::Midas.into();
    let mut events = emulated(ForeignFormat::Midas, 1..4);
    // The stated lengths of the banks are too short.
    events[1][16] -= 8;
    let account = tried(&midas, &events.concat(), 50);
    assert_eq!(account.faults.get("the banks do not fill the event"), Some(&1), "{account:?}");
    let bad = account.first_bad.expect("one is wrong");
    assert_eq!((bad.key, bad.offset, bad.marked), ("format", events[0].len() as u64, Some(16..17)));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Every byte of a stream is in a frame, skipped or left over.
    #[test]
    fn nothing_makes_it_panic_and_every_byte_is_counted(
        noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
        cut in 1_usize..64, place in 0_usize..200,
    ) {
        let plan = plan(&layout());
        let mut bytes = frames(&plan, 0..5).concat();
        let place = place.min(bytes.len());
        bytes.splice(place..place, noise);
        let account = tried(&plan, &bytes, cut);
        let framed: u64 = account.boards.iter().map(|(_, board)| board.bytes).sum();
        proptest::prop_assert_eq!(framed + account.skipped_bytes + account.left_over_bytes, bytes.len() as u64);
        let mut trial = Trial::new(&plan);
        trial.datagram(Arrival::default(), &bytes);
        proptest::prop_assert!(trial.end().datagrams == 1);
    }
}

/// Returns a layout of the same frames whose clock has this place, width and order.
fn with_clock(ticks: Number) -> Layout {
    Layout { time: Some(Clock { ticks: vec![ticks], tick_attoseconds: 8_000_000_000, seconds: None }), ..layout() }
}

#[test]
fn a_clock_in_the_wrong_byte_order_is_a_bad_place() {
    for (own, read) in [
        (Number::big_endian(10, 4), Number::little_endian(10, 4)),
        (Number::little_endian(10, 4), Number::big_endian(10, 4)),
        (Number::little_endian(10, 8), Number::big_endian(10, 8)),
        (Number::big_endian(10, 6), Number::little_endian(10, 6)),
        (Number::big_endian(10, 2), Number::little_endian(10, 2)),
    ] {
        let bytes = ticking(&plan(&with_clock(own)), 300).concat();
        let right = tried(&plan(&with_clock(own)), &bytes, 100);
        assert!(right.first_bad.is_none() && !right.boards[0].1.intervals.is_doubtful(), "{own:?}: {right:?}");
        let wrong = tried(&plan(&with_clock(read)), &bytes, 100);
        let board = &wrong.boards[0].1;
        let bad = wrong.first_bad.clone().expect("a bad place");
        let place = read.at as usize..read.at as usize + usize::from(read.bytes);
        assert_eq!((bad.key, bad.marked.clone()), ("time", Some(place)), "{read:?}: {bad:?}");
        assert!(bad.what.contains("time goes backward in"), "{}", bad.what);
        assert!(bad.what.contains("frames: the other byte order fits"), "{}", bad.what);
        assert_eq!(wrong.bad_places, board.intervals.backward);
        assert_eq!(board.doubt_of_time(), Some(bad.what));
    }
}

/// At a regular rate, the wrong byte order may always advance: by 125 << 24 ticks.
#[test]
fn a_clock_whose_highest_byte_moves_is_a_bad_place() {
    let bytes = frames(&plan(&with_clock(Number::big_endian(10, 4))), 0..300).concat();
    let wrong = tried(&plan(&with_clock(Number::little_endian(10, 4))), &bytes, 100);
    let bad = wrong.first_bad.expect("a bad place");
    assert_eq!((bad.key, bad.marked), ("time", Some(10..14)));
    assert!(bad.what.contains("the highest byte of the time changes and the lowest does not in"), "{}", bad.what);
}

/// Returns frames of a clock at random times.
fn ticking(framing: &Description, count: u64) -> Vec<Vec<u8>> {
    let Description::Layout(plan) = framing else { panic!("only layouts compose") };
    let (mut noise, mut time) = (1_u64, 1000);
    let compose = |sequence| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        time += (noise >> 40) % 900;
        let mut bytes = Vec::new();
        plan.compose(&Contents { sequence, time, ..Contents::default() }, &[0x55; 40], &mut bytes);
        bytes
    };
    (0..count).map(compose).collect()
}

/// A board that restarts once, or that sends another field instead of its clock.
#[test]
fn a_clock_that_restarts_is_one_and_noise_is_none() {
    let described = plan(&layout());
    let restarted = [frames(&described, 0..100), frames(&described, 100..200)].concat().concat();
    let account = tried(&described, &restarted, 64);
    assert!(account.first_bad.is_none() && account.boards[0].1.intervals.backward == 1, "{account:?}");
    let elsewhere = plan(&Layout { checksum: None, ..with_clock(Number::little_endian(14, 3)) });
    let mut all = frames(&described, 0..100);
    let mut noise = 1_u32;
    for frame in &mut all {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        frame[14..18].copy_from_slice(&noise.to_be_bytes());
    }
    let bad = tried(&elsewhere, &all.concat(), 64).first_bad.expect("a bad place");
    assert!(bad.key == "time" && bad.what.contains("wrong byte order, width or place?"), "{bad:?}");
}

/// Frames with a length in units of 4 bytes after a header of 16, read with another unit.
#[test]
fn a_wrong_unit_of_the_length_is_named_before_the_checksum() {
    let counted = |unit, is_checked: bool| {
        let length =
            Length { number: Number::little_endian(4, 2), unit, counts: Counts::Payload { header: 16 }, add: 0 };
        let checksum = layout().checksum.filter(|_| is_checked);
        Layout { checksum, frame: Frame::Length(length), time: None, ..layout() }
    };
    for is_checked in [true, false] {
        let right = plan(&counted(4, is_checked));
        let bytes = frames(&right, 0..200).concat();
        for unit in [1, 2] {
            for piece in [13, 4096] {
                let account = tried(&plan(&counted(unit, is_checked)), &bytes, piece);
                let bad = account.first_bad.expect("a bad place");
                let case = format!("unit {unit}, checked {is_checked}, pieces of {piece}: {bad:?}");
                assert_eq!((bad.key, bad.offset, bad.marked.clone()), ("frame.length", 0, Some(4..6)), "{case}");
                assert!(bad.what.contains("no `match` follows"), "{case}");
                let whole = bytes.len() / 200;
                let is_named = bad.what.contains(&format!("the next one is {whole} bytes after its beginning"));
                assert!(is_named || piece == 13, "{case}");
            }
        }
    }
}

#[test]
fn the_checksum_that_fits_is_named() {
    let checked = |kind: ChecksumKind, from| {
        let bytes = (kind.bits() / 8) as u8;
        let at = -i32::from(bytes);
        let number = Number::little_endian(at, bytes);
        Layout { checksum: Some(Checksum { kind, number, from, to: at }), ..layout() }
    };
    let bytes = frames(&plan(&checked(ChecksumKind::Crc32, 0)), 0..50).concat();
    let bad = tried(&plan(&checked(ChecksumKind::Crc32c, 0)), &bytes, 100).first_bad.expect("a bad place");
    let text =
        "the checksum is wrong in 50 of 50 frames; `checksum = { kind = \"crc32\", at = -4, type = \"u32le\" }` fits";
    assert_eq!((bad.key, bad.what.as_str()), ("checksum", text));
    let bytes = frames(&plan(&checked(ChecksumKind::Crc32c, 4)), 0..50).concat();
    let bad = tried(&plan(&checked(ChecksumKind::Crc32c, 0)), &bytes, 100).first_bad.expect("a bad place");
    assert!(bad.what.contains("kind = \"crc32c\", at = -4, type = \"u32le\", from = 4"), "{}", bad.what);
    // One damaged frame is one damaged frame.
    let right = plan(&checked(ChecksumKind::Crc32, 0));
    let mut all = frames(&right, 0..50);
    all[20][30] ^= 4;
    let bad = tried(&right, &all.concat(), 100).first_bad.expect("a bad place");
    assert_eq!(bad.what, "the checksum is wrong");
}

#[test]
fn a_splitter_tells_the_numbers_of_events() {
    let described = plan(&Layout { sequence: None, checksum: None, ..layout() });
    let bytes = frames(&described, 0..20).concat();
    let divided = |step: u64| {
        let mut next = 0;
        let divide = move |_: &[u8]| {
            next += step;
            if next == 7 * step { Err("it has no end".to_owned()) } else { Ok(vec![next, next + 1]) }
        };
        let mut trial = Trial::new(&described).dividing(Some(Box::new(divide)), 32);
        trial.stream(Arrival::default(), &bytes);
        trial.end()
    };
    let account = divided(2);
    let board = &account.boards[0].1;
    assert_eq!((board.pieces, board.event.missing, board.event.last), (38, 2, Some(41)), "{account:?}");
    assert_eq!(account.faults.get("malformed"), Some(&1));
    assert!(account.first_bad.as_ref().is_some_and(|bad| bad.key == "splitter" && bad.what == "it has no end"));
    let account = divided(3);
    assert_eq!(account.boards[0].1.event.gaps, 18, "{account:?}");
}
