//! Hidden fields of frames are found, and no others.

mod arrivals;
mod boards;
mod rules;

use super::*;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use proptest::prelude::*;
use ropewalk_terms::Instant;
use ropewalk_wire::layout::{Clock, Contents, Counts, Frame, Layout, Length, Number, Plan, Size};

/// The peer with this number.
fn peer(number: u8, transport: Transport) -> Peer {
    Peer { port: 9000, transport, from: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)), 5000) }
}

/// A fixed sequence of numbers that look random.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ (self.0 << 31)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = (self.next() >> 24) as u8);
    }
}

fn only(sniffer: &Sniffer) -> Group {
    let mut groups = sniffer.findings().groups;
    assert_eq!(groups.len(), 1, "{groups:#?}");
    groups.remove(0)
}

/// Returns the frame counters found, and whether peers share them.
fn frame_counters(group: &Group) -> Vec<(Number, bool)> {
    let counters = group.guesses.iter().filter_map(|guess| match guess.meaning {
        Meaning::FrameCounter { number, is_shared } => Some((number, is_shared)),
        _ => None,
    });
    counters.collect()
}

/// Returns the clocks found: place, and tick in nanoseconds.
fn clocks(group: &Group) -> Vec<(Number, f64)> {
    let clocks = group.guesses.iter().filter_map(|guess| match guess.meaning {
        Meaning::Clock { number, tick, .. } => Some((number, tick)),
        _ => None,
    });
    clocks.collect()
}

/// Returns all findings as text.
fn told(group: &Group) -> String {
    group.guesses.iter().map(|guess| format!("{guess}\n")).collect()
}

fn at(nanoseconds: u64) -> Instant {
    Instant::from_nanoseconds(nanoseconds)
}

/// A header of two boards: magic, board, length in words after 16 bytes, frame counter, clock of 40 MHz.
fn frame(board: u8, number: u32, ticks: u32, noise: &mut Noise) -> Vec<u8> {
    let words = 4 + number % 7;
    let mut bytes = vec![0; 20 + 4 * words as usize];
    noise.fill(&mut bytes);
    bytes[..4].copy_from_slice(&[0xca, 0xfe, 0x10, board]);
    bytes[4..8].copy_from_slice(&(words + 1).to_be_bytes());
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    bytes[12..16].copy_from_slice(&ticks.to_be_bytes());
    bytes
}

/// Two boards that send at random times; every `lost`-th frame is lost.
fn two_boards(lost: u32) -> Sniffer {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(1));
    let mut now = 0;
    for number in 0..300_u32 {
        now += 100_000 + noise.next() % 900_000;
        for board in [1, 2] {
            // The network delays frames by up to a microsecond.
            let bytes = frame(board, 250 + number, 0xffff_0000_u32.wrapping_add((now / 25) as u32), &mut noise);
            let arrival = now + noise.next() % 1000;
            if !(number + u32::from(board)).is_multiple_of(lost) {
                sniffer.accept(peer(board, Transport::Udp), at(arrival), &bytes);
            }
        }
    }
    sniffer
}

#[test]
fn length_counter_clock_magic_and_board_are_found() {
    let group = only(&two_boards(u32::MAX));
    let told = told(&group);
    assert_eq!(frame_counters(&group), [(Number::big_endian(8, 4), true)], "{told}");
    let clocks = clocks(&group);
    assert_eq!(clocks.len(), 1, "{told}");
    assert!(clocks[0].0 == Number::big_endian(12, 4) && (clocks[0].1 - 25.0).abs() < 0.01, "{told}");
    let length = group.guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::Length(length) => Some((length.number, length.unit, length.counts)),
        _ => None,
    });
    assert_eq!(length, Some((Number::big_endian(4, 4), 4, Counts::Payload { header: 16 })), "{told}");
    let magic = Meaning::Constant { at: 0, bytes: vec![0xca, 0xfe, 0x10] };
    assert!(group.guesses.iter().any(|guess| guess.meaning == magic), "{told}");
    let board = Meaning::Peer { number: Number::little_endian(3, 1), values: vec![1, 2] };
    assert!(group.guesses.iter().any(|guess| guess.meaning == board), "{told}");
}

#[test]
fn a_counter_is_found_although_frames_were_lost() {
    let group = only(&two_boards(20));
    assert_eq!(frame_counters(&group), [(Number::big_endian(8, 4), true)], "{}", told(&group));
}

#[test]
fn a_counter_of_few_bits_has_a_mask() {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(2));
    for number in 0..400_u16 {
        let mut bytes = vec![0; 40];
        noise.fill(&mut bytes);
        // Four bits of another field above a counter of 12 bits.
        bytes[6..8].copy_from_slice(&((noise.next() as u16) << 12 | (number + 3900) & 0xfff).to_le_bytes());
        sniffer.accept(peer(1, Transport::Udp), at(u64::from(number) * 1000), &bytes);
    }
    let group = only(&sniffer);
    assert_eq!(frame_counters(&group), [(Number::little_endian(6, 2).masked(0xfff), false)], "{}", told(&group));
}

#[test]
fn a_counter_at_an_odd_place_is_as_wide_as_others() {
    let mut sniffer = Sniffer::new(Limits::default());
    for number in 0..50_u32 {
        let bytes = [&b"BOARD"[..], &number.to_be_bytes()].concat();
        sniffer.accept(peer(1, Transport::Udp), at(u64::from(number)), &bytes);
    }
    assert_eq!(frame_counters(&only(&sniffer)), [(Number::big_endian(5, 4), false)]);
}

#[test]
fn a_number_of_which_several_frames_are_sent_counts_events() {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(3));
    for number in 0..300_u32 {
        let mut bytes = vec![0; 30];
        noise.fill(&mut bytes);
        bytes[4..8].copy_from_slice(&(number / 3).to_le_bytes());
        sniffer.accept(peer(1, Transport::Udp), at(u64::from(number) * 1000), &bytes);
    }
    let group = only(&sniffer);
    let slow = group.guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::SlowCounter { number, frames_each, .. } => Some((number, frames_each.round())),
        _ => None,
    });
    assert_eq!(slow, Some((Number::little_endian(4, 4), 3.0)), "{}", told(&group));
}

#[test]
fn noise_has_no_meaning() {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(4));
    for number in 0..500_u64 {
        let mut bytes = vec![0; 60 + (noise.next() % 50) as usize];
        noise.fill(&mut bytes);
        sniffer.accept(peer((number % 3) as u8, Transport::Udp), at(number * 777_777), &bytes);
    }
    let group = only(&sniffer);
    assert_eq!(group.guesses, [], "{}", told(&group));
}

/// A board with one frame per event: the frame counter is not a clock, however regular the frames are.
#[test]
fn neither_a_counter_nor_a_sum_is_a_clock() {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(5));
    let mut sum = 0_u32;
    for number in 0..300_u32 {
        let mut bytes = vec![0; 24];
        noise.fill(&mut bytes);
        sum += (noise.next() % 2000) as u32;
        bytes[8..12].copy_from_slice(&number.to_be_bytes());
        bytes[12..16].copy_from_slice(&sum.to_be_bytes());
        sniffer.accept(peer(1, Transport::Udp), at(u64::from(number) * 10_000), &bytes);
    }
    let group = only(&sniffer);
    assert_eq!((clocks(&group), frame_counters(&group).len()), (Vec::new(), 1), "{}", told(&group));
}

#[test]
fn peers_beyond_the_limit_are_counted_and_memory_has_an_end() {
    let limits = Limits { peers: 2, frames: 10, head_bytes: 16, stream_bytes: 100 };
    let mut sniffer = Sniffer::new(limits);
    for number in 0..50_u8 {
        let transport = if number % 5 == 1 { Transport::Tcp } else { Transport::Udp };
        sniffer.accept(peer(number % 5, transport), at(u64::from(number)), &[number; 60]);
    }
    let findings = sniffer.findings();
    assert_eq!((findings.unheard, sniffer.packets()), (30, 50));
    let packets: u64 = findings.groups.iter().flat_map(|group| &group.peers).map(|account| account.packets).sum();
    assert_eq!(packets, 20);
    assert!(findings.groups.iter().all(|group| group.frames <= 10), "{findings:?}");
}

/// Returns this many frames of a layout, back to back, with bodies of noise or zeros.
fn stream(layout: &Layout, frames: u64, is_noise: bool) -> Vec<u8> {
    let plan = Plan::compile(layout).expect("a good layout");
    let (mut bytes, mut noise) = (Vec::new(), Noise(7));
    for number in 0..frames {
        let mut payload = vec![0; 40 + (noise.next() % 200) as usize];
        if is_noise {
            noise.fill(&mut payload);
        }
        let contents = Contents { event: 1000 + number, time: 77 + number * 12_500, ..Contents::default() };
        plan.compose(&contents, &payload, &mut bytes);
    }
    bytes
}

/// Returns the findings in a stream that arrives 100 bytes at a time, a megabyte per second.
fn heard(bytes: &[u8]) -> Group {
    let mut sniffer = Sniffer::new(Limits::default());
    for (index, piece) in bytes.chunks(100).enumerate() {
        sniffer.accept(peer(1, Transport::Tcp), at(index as u64 * 100_000), piece);
    }
    only(&sniffer)
}

/// A length as in common digitisers.
fn digitiser() -> Layout {
    let number = Number::little_endian(0, 4);
    let length = Length { number, unit: 4, counts: Counts::Frame, add: 0 };
    let time = Clock { ticks: vec![Number::little_endian(12, 4)], tick_attoseconds: 8_000_000_000, seconds: None };
    let event = vec![Number::little_endian(8, 4)];
    Layout { event, time: Some(time), ..Layout::new(Frame::Length(length), 1 << 16) }
}

fn synchronised(size: Size) -> Layout {
    let frame = Frame::Sync { word: vec![0xca, 0xfe, 0xba, 0xbe], size };
    Layout { event: vec![Number::big_endian(8, 4)], ..Layout::new(frame, 1 << 12) }
}

#[test]
fn a_length_leads_from_frame_to_frame() {
    for is_noise in [true, false] {
        let bytes = stream(&digitiser(), 200, is_noise);
        let group = heard(&bytes);
        let Some(Frame::Length(length)) = &group.framing else { panic!("{:?}", group.framing) };
        assert_eq!((length.number, length.unit, length.add), (Number::little_endian(0, 4), 4, 0));
        assert_eq!(group.frames, 200);
        assert_eq!(frame_counters(&group)[0].0, Number::little_endian(8, 4), "{}", told(&group));
    }
}

#[test]
fn a_length_behind_its_header_is_found() {
    let number = Number::big_endian(6, 2);
    let length = Length { number, unit: 1, counts: Counts::AfterField, add: 0 };
    let layout = Layout { event: vec![Number::big_endian(8, 4)], ..Layout::new(Frame::Length(length), 1 << 12) };
    let group = heard(&stream(&layout, 300, true));
    assert_eq!(group.framing, Some(Frame::Length(length)));
    assert_eq!(frame_counters(&group)[0].0, Number::big_endian(8, 4), "{}", told(&group));
}

/// Two bytes at 16 hold the counter. With three bytes of the time in front, which are always 0, they might be four in
/// the other order.
#[test]
fn of_lengths_that_find_the_same_frames_the_likeliest_is_taken() {
    let mut noise = Noise(11);
    let (mut bytes, mut time) = (Vec::new(), 0_u64);
    for number in 1..=1000_u32 {
        time += 10_000 + noise.next() % 20_000;
        let mut payload = vec![0; 8 + 2 * (noise.next() % 37) as usize];
        noise.fill(&mut payload);
        bytes.extend([0xde, 0xad, 0xbe, 0xef]);
        bytes.extend(number.to_le_bytes());
        bytes.extend(time.to_le_bytes());
        bytes.extend((payload.len() as u16).to_le_bytes());
        bytes.extend(&payload);
        bytes.extend((noise.next() as u32).to_le_bytes());
    }
    let group = heard(&bytes);
    let counts = Counts::Payload { header: 22 };
    let length = Length { number: Number::little_endian(16, 2), unit: 1, counts, add: 0 };
    assert_eq!((group.frames, group.framing), (1000, Some(Frame::Length(length))));
}

/// After a length of two bytes the upper bytes of a counter are 0: three bytes in the other order hold the same value.
#[test]
fn a_length_of_three_bytes_is_less_likely_than_one_of_two() {
    let mut noise = Noise(5);
    let mut bytes = Vec::new();
    for number in 1..=600_u32 {
        let mut payload = vec![0; 20 + (noise.next() % 200) as usize];
        noise.fill(&mut payload);
        bytes.extend([0xca, 0xfe]);
        bytes.extend((payload.len() as u16 + 8).to_be_bytes());
        bytes.extend(number.to_be_bytes());
        bytes.extend(&payload);
    }
    let group = heard(&bytes);
    let number = match &group.framing {
        Some(Frame::Length(length) | Frame::Sync { size: Size::Length(length), .. }) => length.number,
        other => panic!("{other:?}"),
    };
    assert_eq!((number, group.frames), (Number::big_endian(2, 2), 600));
}

#[test]
fn a_sync_word_is_found_where_the_stream_begins_in_the_middle_of_a_frame() {
    let length = Length { number: Number::big_endian(4, 2), unit: 1, counts: Counts::Frame, add: 0 };
    let layout = synchronised(Size::Length(length));
    let bytes = stream(&layout, 200, true);
    let group = heard(&bytes[13..]);
    assert_eq!(group.framing, Some(layout.frame));
    assert_eq!(group.frames, 199, "all but the one of which only the end was heard");
}

#[test]
fn frames_of_one_size_are_found_with_a_word_and_without() {
    let layout = synchronised(Size::Fixed { bytes: 64 });
    assert_eq!(heard(&stream(&layout, 100, true)[5..]).framing, Some(layout.frame));
    let unmarked = Layout { event: vec![Number::big_endian(8, 4)], ..Layout::new(Frame::Fixed { bytes: 48 }, 48) };
    let bytes = stream(&unmarked, 300, true);
    let group = heard(&bytes);
    assert_eq!(group.framing, Some(Frame::Fixed { bytes: 48 }));
    assert_eq!(frame_counters(&group)[0].0, Number::big_endian(8, 4), "{}", told(&group));
}

#[test]
fn lines_of_text_end() {
    let text: String = (0..100).map(|number| format!("event {number} adc {}\r\n", number * 37 % 4096)).collect();
    let group = heard(text.as_bytes());
    assert_eq!(group.framing, Some(Frame::Delimiter { bytes: b"\r\n".to_vec() }));
    assert_eq!(group.frames, 100);
}

/// Every chain through zeros leads somewhere: none of them is followed to its end.
#[test]
fn a_desert_of_one_byte_has_no_frames() {
    for byte in [0, 1] {
        let mut sniffer = Sniffer::new(Limits { stream_bytes: 4 << 20, ..Limits::default() });
        sniffer.accept(peer(1, Transport::File), at(0), &vec![byte; 4 << 20]);
        let group = only(&sniffer);
        assert_eq!((group.framing, group.doubts), (None, Vec::new()), "{byte}");
    }
}

#[test]
fn noise_and_silence_have_no_frames() {
    let mut bytes = vec![0; 40_000];
    assert_eq!(heard(&bytes).framing, None, "zeros");
    Noise(9).fill(&mut bytes);
    assert_eq!(heard(&bytes).framing, None, "noise");
    assert!(draft(&heard(&bytes)).is_none());
}

#[test]
fn a_draft_cuts_the_stream_again() {
    let bytes = stream(&digitiser(), 200, true);
    let mut sniffer = Sniffer::new(Limits::default());
    let mut rest = &bytes[..];
    for number in 0..200 {
        let length = 4 * u32::from_le_bytes(*rest.first_chunk().expect("a length")) as usize;
        // Each frame is sent when it is made: 12,500 ticks of 8 ns after the previous one.
        sniffer.accept(peer(1, Transport::Tcp), at(number * 100_000), &rest[..length]);
        rest = &rest[length..];
    }
    let group = only(&sniffer);
    let layout = draft(&group).expect("frames were found");
    let plan = Plan::compile(&layout).expect("a draft compiles");
    let fields = ropewalk_wire::framing::Framing::fields(&plan, &bytes[..]);
    assert_eq!(fields.sequence, Some(1000), "{}", told(&group));
    assert!(layout.time.is_some() && layout.max < 1 << 16, "{layout:?}");
}

/// Returns the findings in streams that arrive 100 bytes at a time, in turn.
fn heard_from(streams: &[(u8, &[u8])]) -> Vec<Group> {
    let mut sniffer = Sniffer::new(Limits::default());
    let longest = streams.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
    for (index, start) in (0..longest).step_by(100).enumerate() {
        for (number, bytes) in streams {
            let piece = bytes.get(start..bytes.len().min(start + 100)).unwrap_or_default();
            if !piece.is_empty() {
                sniffer.accept(peer(*number, Transport::Tcp), at(index as u64 * 100_000), piece);
            }
        }
    }
    sniffer.findings().groups
}

fn with_a_length_behind() -> Layout {
    let length = Length { number: Number::big_endian(4, 2), unit: 1, counts: Counts::Frame, add: 0 };
    synchronised(Size::Length(length))
}

/// Three connections to one port: two of one kind of board, the longest one of another kind; and noise.
#[test]
fn connections_whose_frames_are_different_are_distinguished() {
    let (digitiser, other) = (stream(&digitiser(), 200, true), stream(&with_a_length_behind(), 300, true));
    let mut noise = vec![0; 5000];
    Noise(3).fill(&mut noise);
    let groups = heard_from(&[(1, &digitiser), (2, &other), (3, &digitiser), (4, &noise)]);
    let told: Vec<_> = groups.iter().map(|group| (group.peers.len(), group.frames, group.framing.is_some())).collect();
    assert_eq!(told, [(1, 300, true), (2, 400, true), (1, 0, false)], "{groups:#?}");
    assert_eq!(frame_counters(&groups[0])[0].0, Number::big_endian(8, 4), "{}", self::told(&groups[0]));
    assert_eq!(frame_counters(&groups[1])[0], (Number::little_endian(8, 4), true), "{}", self::told(&groups[1]));
}

/// The board is cut off in the middle of a frame and reconnects. After that bytes are missing, up to the middle of a
/// frame.
#[test]
fn frames_are_found_again_behind_a_break() {
    for layout in [digitiser(), with_a_length_behind()] {
        let bytes = stream(&layout, 200, true);
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        let mut sniffer = Sniffer::new(Limits::default());
        for part in [first, &bytes[..], &rest[13..]] {
            for (index, piece) in part.chunks(100).enumerate() {
                sniffer.accept(peer(1, Transport::Tcp), at(index as u64 * 100_000), piece);
            }
            sniffer.break_off(peer(1, Transport::Tcp));
        }
        // One half of the middle frame is in the first part, and the rest of it in the third.
        let group = only(&sniffer);
        assert!((398..=399).contains(&group.frames), "{group:#?}");
        assert!(!frame_counters(&group).is_empty(), "{}", told(&group));
    }
}

fn anything() -> impl Strategy<Value = Vec<(u8, bool, u64, Vec<u8>)>> {
    let byte = prop_oneof![Just(0), Just(0xff), any::<u8>()];
    proptest::collection::vec((0_u8..4, any::<bool>(), 0_u64..1_000_000, proptest::collection::vec(byte, 0..80)), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_makes_it_panic(packets in anything(), head_bytes in 0_usize..100) {
        let mut sniffer = Sniffer::new(Limits { head_bytes, stream_bytes: 2000, ..Limits::default() });
        let mut now = 0;
        for (number, is_stream, step, bytes) in &packets {
            now += step;
            let transport = if *is_stream { Transport::Tcp } else { Transport::Udp };
            sniffer.accept(peer(*number, transport), at(now), bytes);
        }
        for group in sniffer.findings().groups {
            prop_assert!(group.guesses.iter().all(|guess| guess.holds <= guess.of && guess.score() <= 1.0));
            told(&group);
            if let Some(layout) = draft(&group) {
                prop_assert!(Plan::compile(&layout).is_ok());
            }
        }
    }

    /// A counter and a clock of any place, width and order, not overlapping, in frames of noise.
    #[test]
    fn what_was_planted_is_found(
        places in (0_i32..8, 0_i32..8),
        orders in any::<[bool; 2]>(),
        width in prop_oneof![Just(2_u8), Just(4)],
        tick in 4_u64..60,
        seed in any::<u64>(),
        start in any::<u32>(),
    ) {
        let field = |at: i32, bytes: u8, big: bool| Number { is_big_endian: big, ..Number::little_endian(at, bytes) };
        // Even places: if a counter of four bytes begins at an odd one, two of them are an equally good guess.
        let counter = field(2 * places.0, width, orders[0]);
        let ticks = field(20 + 2 * places.1, 4, orders[1]);
        let time = Clock { ticks: vec![ticks], tick_attoseconds: tick * 1_000_000_000, seconds: None };
        let layout = Layout { event: vec![counter], time: Some(time), ..Layout::new(Frame::Datagram, 1000) };
        let plan = Plan::compile(&layout).expect("nothing overlaps");
        let (mut sniffer, mut noise, mut now) = (Sniffer::new(Limits::default()), Noise(seed), 0_u64);
        for number in 0..400_u64 {
            now += 50_000 + noise.next() % 100_000;
            let mut payload = vec![0; 50 + (noise.next() % 30) as usize];
            noise.fill(&mut payload);
            let time = u64::from(start) + now / tick;
            let mut bytes = Vec::new();
            plan.compose(&Contents { event: u64::from(start) + number, time, ..Contents::default() }, &payload, &mut bytes);
            sniffer.accept(peer(1, Transport::Udp), at(now + noise.next() % 2000), &bytes);
        }
        let group = only(&sniffer);
        let counters = frame_counters(&group);
        prop_assert_eq!(counters.len(), 1, "{}", told(&group));
        let found = counters[0].0;
        // Upper bits that never changed may or may not belong to it.
        let lowest = |number: &Number| if number.is_big_endian { number.at + i32::from(number.bytes) } else { number.at };
        prop_assert_eq!((lowest(&found), found.is_big_endian), (lowest(&counter), counter.is_big_endian), "{}", told(&group));
        let clocks = clocks(&group);
        prop_assert!(clocks.iter().any(|(number, found)| *number == ticks && (found - tick as f64).abs() < 0.1), "{}", told(&group));
    }
}
