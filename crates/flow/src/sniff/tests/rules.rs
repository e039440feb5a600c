//! One test for each rule that distinguishes fields.

use super::*;
use ropewalk_wire::layout::{CHECKSUM_KINDS, Checksum, ChecksumKind};

/// Returns the findings in datagrams 1 ms apart on average, each made of its index and the nanoseconds of its trigger.
fn found(frames: u64, make: impl Fn(u64, u64, &mut Noise) -> Vec<u8>) -> Group {
    let (mut sniffer, mut noise, mut now) = (Sniffer::new(Limits::default()), Noise(17), 0);
    for index in 0..frames {
        now += 500_000 + noise.next() % 1_000_000;
        let bytes = make(index, now, &mut noise);
        sniffer.accept(peer(1, Transport::Udp), at(now + noise.next() % 20_000), &bytes);
    }
    only(&sniffer)
}

fn event(group: &Group) -> Number {
    *draft(group).expect("frames were found").event.first().expect("a number counts events")
}

/// Seconds are the same in several frames, as an event's number may be.
#[test]
fn a_counter_of_frames_is_preferred_to_a_slice_of_a_time() {
    let group = found(400, |index, now, noise| {
        let ticks = now / 10;
        let mut bytes = [&(ticks >> 24).to_be_bytes()[4..], &(ticks as u32 & 0xFF_FFFF).to_be_bytes()[1..]].concat();
        bytes.extend_from_slice(&(index as u32).to_be_bytes());
        bytes.extend_from_slice(&(noise.next() as u32).to_be_bytes());
        bytes
    });
    assert_eq!(event(&group), Number::big_endian(7, 4), "{}", told(&group));
    let is_slow = |guess: &Guess| matches!(guess.meaning, Meaning::SlowCounter { .. });
    assert!(!group.guesses.iter().any(is_slow) && group.doubts.is_empty(), "{:?}\n{}", group.doubts, told(&group));
}

/// Either the counter began with 109,382, or constant bytes are in front of it: too few frames carried into its second
/// byte.
#[test]
fn a_number_between_constants_and_zeros_may_have_either_order() {
    let group = found(100, |index, _, noise| {
        let mut bytes = [&(109_382 + index as u32).to_be_bytes()[..], &[0, 0, 0, 193]].concat();
        bytes.extend_from_slice(&(noise.next() as u32).to_be_bytes());
        bytes
    });
    let is_order = |doubt: &Doubt| matches!(doubt, Doubt::ByteOrder(_));
    assert!(group.doubts.iter().any(is_order), "{:?}\n{}", group.doubts, told(&group));
}

/// A board that sees one to three of the triggers at intervals of 500 us, and counts its frames, too.
#[test]
fn a_number_of_triggers_is_a_rival_of_a_counter_of_frames() {
    let group = found(200, |index, now, _| {
        [&b"TRIG"[..], &((now / 500_000) as u32).to_be_bytes(), &(1000 + index as u32).to_be_bytes()].concat()
    });
    assert!(group.doubts.iter().any(|doubt| matches!(doubt, Doubt::Grows(..))), "{:?}", group.doubts);
}

/// Every 100 ms the clock of 100 MHz advances by 10,000,000: some of its bits increase by one in each frame.
#[test]
fn bits_of_a_regular_clock_are_no_counter() {
    let mut sniffer = Sniffer::new(Limits::default());
    for index in 0..300_u64 {
        let bytes = [&b"TB"[..], &(index * 10_000_000 + 77).to_le_bytes()].concat();
        sniffer.accept(peer(1, Transport::Udp), at(index * 100_000_000), &bytes);
    }
    let group = only(&sniffer);
    assert_eq!((frame_counters(&group), clocks(&group).len()), (Vec::new(), 1), "{}", told(&group));
    assert!(group.doubts.contains(&Doubt::NoEvent), "{:?}", group.doubts);
}

#[test]
fn a_clock_whose_bytes_carry_into_each_other_is_one_field() {
    // The low byte restarts within each frame, the lower four bytes once.
    for (bytes, is_big_endian) in [(6, true), (6, false), (8, true), (8, false)] {
        let group = found(1000, |index, now, _| {
            let ticks = now + (1 << 33) - 500_000_000;
            let (big, little) = (&ticks.to_be_bytes()[8 - bytes..], &ticks.to_le_bytes()[..bytes]);
            [&[0x55, 0xAA][..], if is_big_endian { big } else { little }, &(index as u16).to_be_bytes()].concat()
        });
        let clock = draft(&group).and_then(|layout| layout.time).expect("a clock was found");
        let place = Number { is_big_endian, ..Number::little_endian(2, bytes as u8) };
        let found = clock.ticks[0];
        let end = |number: &Number| if is_big_endian { number.at + i32::from(number.bytes) } else { number.at };
        assert!(found.bytes > 4 && end(&found) == end(&place), "{place:?}: {}", told(&group));
        assert_eq!(clock.tick_attoseconds, 1_000_000_000, "{}", told(&group));
    }
}

#[test]
fn ticks_are_round_numbers() {
    let cases = [
        (25.002, 0.01, 25.0),
        (7.9994, 0.0004, 8.0),
        (24.95, 0.2, 25.0),
        (11.356_86, 0.000_1, 11.356_86),
        (31.9, 0.1, 32.0),
    ];
    for (measured, error, round) in cases {
        let (found, _) = clocks::round_tick(measured, error);
        assert!((found - round).abs() < 0.001 * round, "{measured}: {found}");
    }
    let (exact, digits) = clocks::round_tick(10.000_1, 0.000_2);
    assert!((exact - 10.0).abs() < 1e-9 && digits == 1, "{exact}");
}

#[test]
fn every_checksum_at_the_end_is_found() {
    for &kind in CHECKSUM_KINDS {
        for (is_big_endian, from, behind) in [(false, 0, 0), (true, 4, 0), (true, 0, 4)] {
            let bytes = kind.bits() as usize / 8;
            let group = found(40, |index, _, noise| {
                let mut frame = [&b"HEAD"[..], &(index as u32).to_le_bytes()].concat();
                let mut payload = vec![0; 16 + 4 * (noise.next() % 8) as usize];
                noise.fill(&mut payload);
                frame.extend(payload);
                let sum = kind.of([&frame[from..]]);
                let (big, little) = (&sum.to_be_bytes()[8 - bytes..], &sum.to_le_bytes()[..bytes]);
                frame.extend_from_slice(if is_big_endian { big } else { little });
                frame.extend(vec![0xEE; behind]);
                frame
            });
            let layout = draft(&group).expect("frames were found");
            let Some(Checksum { number, from: begin, .. }) = layout.checksum else {
                panic!("{kind:?}, {is_big_endian}: {}", told(&group))
            };
            let end = number.at + i32::from(number.bytes);
            assert_eq!(end, -(behind as i32), "{kind:?}: {}", told(&group));
            // Constant bytes that a sum excludes add up to nothing in some sums.
            assert!(begin <= 4, "{kind:?}: {}", told(&group));
        }
    }
}

/// Frames without data are as long as header and checksum together.
#[test]
fn a_draft_with_a_checksum_finds_frames_without_data() {
    for (kind, reserved) in CHECKSUM_KINDS.iter().flat_map(|kind| [(kind, 0), (kind, 6)]) {
        let (bytes, header) = (kind.bits() as usize / 8, 10 + reserved);
        let (mut noise, mut stream) = (Noise(3), Vec::new());
        for index in 0..400_u32 {
            let data = (noise.next() % 60 * u64::from(index % 5 > 0)) as usize;
            let mut frame = [&b"HEAD"[..], &(data as u16).to_be_bytes(), &index.to_be_bytes()].concat();
            frame.resize(header + data, 0);
            noise.fill(&mut frame[header..]);
            let sum = kind.of([&frame[..]]);
            frame.extend_from_slice(&sum.to_be_bytes()[8 - bytes..]);
            stream.extend(frame);
        }
        let group = heard(&stream);
        let layout = draft(&group).expect("frames were found");
        let least = Plan::compile(&layout).expect("a draft compiles").least();
        assert!(least <= header + bytes, "{kind:?}, {reserved}: {layout:?}: {}", told(&group));
        let Frame::Length(Length { counts, add, .. }) = layout.frame else { panic!("{layout:?}") };
        let expected = (Counts::Payload { header: header as u32 }, bytes as i32);
        assert!(layout.checksum.is_none() || (counts, add) == expected, "{kind:?}: {layout:?}");
    }
}

#[test]
fn noise_has_no_checksum() {
    let group = found(100, |_, _, noise| {
        let mut frame = vec![0; 40];
        noise.fill(&mut frame);
        frame
    });
    assert!(!group.guesses.iter().any(|guess| matches!(guess.meaning, Meaning::Checksum(_))), "{}", told(&group));
}

/// Two bytes of a payload of equal bytes often are the XOR and the sum of the bytes before them.
#[test]
fn a_payload_of_equal_bytes_is_no_checksum() {
    let mut bytes = Vec::new();
    for number in 0..200_u32 {
        let payload = number as usize % 5 * 4;
        bytes.extend([0xca, 0xfe, 0xf0, 0x0d]);
        bytes.extend((12 + payload as u32).to_be_bytes());
        bytes.extend(number.to_be_bytes());
        bytes.resize(bytes.len() + payload, number as u8);
    }
    let group = heard(&bytes);
    assert!(!group.guesses.iter().any(|guess| matches!(guess.meaning, Meaning::Checksum(_))), "{}", told(&group));
    let Some(Frame::Length(length)) = &group.framing else { panic!("{:?}", group.framing) };
    assert_eq!((length.number.at, length.number.bytes, length.number.is_big_endian), (4, 4, true), "{}", told(&group));
}

/// A length that excludes only itself, at the beginning and after a word; in bytes and in words.
#[test]
fn lengths_that_leave_themselves_out_are_found() {
    for (at, unit) in [(0, 1), (4, 1), (4, 4)] {
        let mut noise = Noise(23);
        let mut bytes = Vec::new();
        for number in 1..=300_u32 {
            let payload = 8 + 4 * (noise.next() % 40) as usize;
            let length = ((at + 4 + payload) / unit) as u32;
            bytes.extend_from_slice(&[0xde, 0xad, 0xbe, 0xef][..at]);
            bytes.extend(length.to_le_bytes());
            bytes.extend(number.to_le_bytes());
            let start = bytes.len();
            bytes.resize(start + payload, 0);
            noise.fill(&mut bytes[start..]);
        }
        let group = heard(&bytes);
        assert_eq!((group.frames, group.unframed_bytes), (300, 0), "{at}, {unit}: {:?}", group.framing);
        assert_eq!(event(&group), Number::little_endian(at as i32 + 4, 4), "{}", told(&group));
    }
}

#[test]
fn the_longest_frame_of_a_draft_has_room_to_grow() {
    for payload in [40, 100_000, 300_000] {
        let mut bytes = Vec::new();
        for number in 0..20_u32 {
            let length = payload + 7 * number;
            bytes.extend([0xca, 0xfe, 0xba, 0xbe]);
            bytes.extend((length + 12).to_be_bytes());
            bytes.extend(number.to_be_bytes());
            bytes.resize(bytes.len() + length as usize, 0x11);
        }
        let mut sniffer = Sniffer::new(Limits { stream_bytes: 16 << 20, ..Limits::default() });
        sniffer.accept(peer(1, Transport::File), at(0), &bytes);
        let group = only(&sniffer);
        let layout = draft(&group).expect("frames were found");
        assert!(layout.max as usize >= 2 * group.most_frame, "{payload}: {} of {}", layout.max, group.most_frame);
    }
}

/// Returns the findings in a stream of frames from `make`: a board that sends to a TCP port.
fn found_in_stream(frames: u64, make: impl Fn(u64, u64, &mut Noise) -> Vec<u8>) -> Group {
    let (mut sniffer, mut noise, mut now) = (Sniffer::new(Limits::default()), Noise(17), 0);
    for index in 0..frames {
        now += 500_000 + noise.next() % 1_000_000;
        let bytes = make(index, now, &mut noise);
        sniffer.accept(peer(1, Transport::Tcp), at(now), &bytes);
    }
    only(&sniffer)
}

#[test]
fn a_length_of_one_byte_is_found_in_a_stream() {
    // After a marker, at the beginning, and after the counter; of the frame, of the bytes after it, and in words.
    for (place, unit, left_out) in [(1, 1, 0), (0, 1, 1), (5, 1, 6), (1, 4, 0)] {
        let group = found_in_stream(400, |index, now, noise| {
            let head = [&(5_000 + index as u32).to_le_bytes()[..], &((now / 8) as u32).to_le_bytes()].concat();
            let words = 1 + noise.next() as usize % 20;
            let mut bytes = [&[0x5A][..], &head, &vec![0; 4 * words + 2]].concat();
            noise.fill(&mut bytes[9..]);
            bytes.insert(place, 0);
            bytes[place] = ((bytes.len() - left_out) / unit) as u8;
            bytes
        });
        let layout = draft(&group).expect("frames are found");
        let Frame::Length(length) = &layout.frame else { panic!("{:?}", layout.frame) };
        // The zero byte in front of it may be its upper one.
        let end = length.number.at + i32::from(length.number.bytes);
        assert_eq!((end, length.unit), (place as i32 + 1, unit as u32), "{place} {unit}");
        assert_eq!(group.unframed_bytes, 0);
    }
}

#[test]
fn upper_bytes_of_a_counter_are_in_no_match() {
    let group = found(400, |index, _, noise| {
        let counter = 5_000_000 + index as u32;
        let mut bytes = [&[0xCA, 0xFE, 0xA7][..], &counter.to_be_bytes()[1..], &[0; 8]].concat();
        noise.fill(&mut bytes[6..]);
        bytes
    });
    let matches = draft(&group).and_then(|layout| layout.matches).expect("two bytes are steady");
    assert_eq!((matches.at, &matches.bytes[..]), (0, &[0xCA, 0xFE][..]), "{}", told(&group));
    let said: Vec<String> = group.doubts.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["the upper bits of u16be at 4 always were 0x9: they may be something else"]);
}

#[test]
fn bytes_above_a_counter_that_began_at_a_carry_may_belong_to_it() {
    let group = found(400, |index, _, noise| {
        let mut bytes = [&[0xCA, 0xFE][..], &(0x4C_0000 + index as u32).to_be_bytes()[1..], &[0; 8]].concat();
        noise.fill(&mut bytes[5..]);
        bytes
    });
    let said: Vec<String> = group.doubts.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|doubt| doubt.starts_with("the bytes above u16be at 3 always were 0x")), "{said:?}");
}

/// Two counting bytes and a zero may be a number of three bytes; two bytes that overflowed are not.
#[test]
fn a_single_zero_above_two_bytes_may_belong_to_them() {
    let made = |first: u32, is_big: bool| {
        found(600, |index, _, noise| {
            let number = first + index as u32;
            let mut bytes = vec![0xA5, 0xC3];
            let all = (number & 0xFFFF).to_be_bytes();
            if is_big {
                bytes.extend(&all[1..])
            } else {
                bytes.extend(all[1..].iter().rev())
            }
            bytes.extend_from_slice(&((noise.next() as u32) | 1).to_be_bytes());
            bytes
        })
    };
    for is_big in [false, true] {
        let group = made(1000, is_big);
        let is_above = |doubt: &Doubt| matches!(doubt, Doubt::BytesAbove(_, 0));
        let is_any_above = |doubt: &Doubt| matches!(doubt, Doubt::BytesAbove(..));
        let is_marked = event(&group).bytes > 2 || group.doubts.iter().any(is_any_above);
        assert!(is_marked, "big {is_big}: {:?}\n{}", group.doubts, told(&group));
        let group = made(65_300, is_big);
        assert!(!group.doubts.iter().any(is_above), "big {is_big}: {:?}\n{}", group.doubts, told(&group));
    }
}

/// Right checksums prove the frames: another length that nearly fits is not a rival.
#[test]
fn right_checksums_leave_no_rival_of_the_length() {
    let group = found_in_stream(1000, |index, _, noise| {
        let words = 3 + noise.next() % 20;
        let mut bytes = vec![0xA5, 0xC3];
        bytes.extend_from_slice(&(index as u32).to_le_bytes()[..3]);
        bytes.extend_from_slice(&(words as u16 + 1).to_le_bytes());
        bytes.push(1);
        bytes.extend_from_slice(&[0; 8]);
        let begin = bytes.len();
        bytes.resize(begin + 4 * words as usize, 0);
        noise.fill(&mut bytes[8..]);
        let sum = ChecksumKind::Crc32.of([&bytes[..]]) as u32;
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    });
    assert!(!group.doubts.iter().any(|doubt| matches!(doubt, Doubt::Frames(_))), "{:?}", group.doubts);
}
