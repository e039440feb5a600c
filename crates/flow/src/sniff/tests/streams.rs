//! Frames in streams.

use super::*;
use ropewalk_wire::layout::{Clock, Contents, Counts, Frame, Layout, Length, Plan, Size};

/// So many frames of a layout, back to back, their bodies noise or nothing but zeros.
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

/// Everything of a stream, 100 bytes at a time, a megabyte per second.
fn heard(bytes: &[u8]) -> Group {
    let mut sniffer = Sniffer::new(Limits::default());
    for (index, piece) in bytes.chunks(100).enumerate() {
        sniffer.accept(peer(1, Transport::Tcp), at(index as u64 * 100_000), piece);
    }
    only(&sniffer)
}

/// The length as common digitisers have it.
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

/// Two bytes at 16 hold it. With three bytes of the time in front, which are always 0, they might be four in the other order.
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

/// Behind a length of two bytes the upper bytes of a counter are 0: three bytes in the other order hold the same.
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

/// Every way through zeros leads somewhere: none of them is gone to its end.
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
        // Each frame comes when it was made: 12,500 ticks of 8 ns after the one before.
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

/// What they send is 100 bytes at a time, in turns.
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

/// Three connections to one port: two of one kind of board, and the longest one of another; and noise.
#[test]
fn connections_whose_frames_are_different_are_told_apart() {
    let (digitiser, other) = (stream(&digitiser(), 200, true), stream(&with_a_length_behind(), 300, true));
    let mut noise = vec![0; 5000];
    Noise(3).fill(&mut noise);
    let groups = heard_from(&[(1, &digitiser), (2, &other), (3, &digitiser), (4, &noise)]);
    let told: Vec<_> = groups.iter().map(|group| (group.peers.len(), group.frames, group.framing.is_some())).collect();
    assert_eq!(told, [(1, 300, true), (2, 400, true), (1, 0, false)], "{groups:#?}");
    assert_eq!(frame_counters(&groups[0])[0].0, Number::big_endian(8, 4), "{}", super::told(&groups[0]));
    assert_eq!(frame_counters(&groups[1])[0], (Number::little_endian(8, 4), true), "{}", super::told(&groups[1]));
}

/// The board is cut off in the middle of a frame and connects again; then bytes are missing, up to the middle of a frame.
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
        // Of the frame in the middle the one half is in the first part, and what is left of it in the third.
        let group = only(&sniffer);
        assert!((398..=399).contains(&group.frames), "{group:#?}");
        assert!(!frame_counters(&group).is_empty(), "{}", told(&group));
    }
}
