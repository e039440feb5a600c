//! Zeros are no frames of any layout, and those behind them are found.

use super::*;

/// Frames without a mark, so that zeros look like some of them.
fn layouts() -> Vec<Layout> {
    let counted = |counts: Counts, at: i32, event: Number| {
        let length = Length { number: Number::big_endian(at, 2), unit: 1, counts, add: 0 };
        Layout { event: vec![event], ..Layout::new(Frame::Length(length), 2000) }
    };
    let little = Layout { event: vec![Number::little_endian(2, 4)], ..Layout::new(Frame::Fixed { bytes: 20 }, 20) };
    vec![
        digitiser(),
        fixed(),
        little,
        counted(Counts::Frame, 0, Number::big_endian(4, 4)),
        counted(Counts::Payload { header: 12 }, 0, Number::little_endian(4, 8)),
        counted(Counts::AfterField, 6, Number::big_endian(0, 4)),
        Layout { sequence: Some(Number::little_endian(8, 2)), event: Vec::new(), ..digitiser() },
        synchronised(),
        synchronised_fixed(),
        Layout { max: 400, ..trailed() },
    ]
}

fn some_frames(plan: &Plan, first: u64, count: u64) -> Vec<Vec<u8>> {
    (first..first + count)
        .map(|event| {
            let payload: Vec<u8> = (0..event % 40 + 40).map(|index| (index * 7 + event * 3 + 1) as u8).collect();
            let contents = Contents { event, sequence: event, ..Contents::default() };
            let mut frame = Vec::new();
            plan.compose(&contents, &payload, &mut frame);
            frame
        })
        .collect()
}

/// The frames that are found, where `step` bytes more come each time, and the bytes that are none.
fn cut(plan: &Plan, stream: &[u8], step: usize) -> (Vec<Vec<u8>>, usize) {
    let (mut frames, mut skipped, mut at, mut there, mut search) = (Vec::new(), 0, 0, 0, Search::default());
    loop {
        let front = match plan.front(&stream[at..there], &mut search) {
            front @ Front::Needs { .. } if there == stream.len() => {
                plan.front_at_end(&stream[at..there], &mut search).unwrap_or(front)
            }
            front => front,
        };
        match front {
            Front::Frame { bytes } => {
                frames.push(stream[at..at + bytes].to_vec());
                (at, search) = (at + bytes, Search::default());
            }
            Front::Skip { bytes, .. } => (at, skipped) = (at + bytes, skipped + bytes),
            Front::Needs { .. } if there == stream.len() => return (frames, skipped + there - at),
            Front::Needs { .. } => there = stream.len().min(there + step),
            Front::Lost { cause } => panic!("{cause:?} at {at}"),
        }
    }
}

#[test]
fn zeros_between_frames_become_none_and_hide_none() {
    for layout in layouts() {
        let plan = plan(&layout);
        let (before, behind) = (some_frames(&plan, 1, 5), some_frames(&plan, 6, 5));
        let frames = [before.clone(), behind.clone()].concat();
        let (before, behind) = (before.concat(), behind.concat());
        for count in [64, 480, 4096] {
            let zeros = vec![0; count];
            for (name, stream) in [
                ("in front", [&zeros, &before, &behind].map(Vec::as_slice).concat()),
                ("in the middle", [&before, &zeros, &behind].map(Vec::as_slice).concat()),
                ("at the end", [&before, &behind, &zeros].map(Vec::as_slice).concat()),
            ] {
                for step in [1, 50, stream.len()] {
                    let found = cut(&plan, &stream, step);
                    assert_eq!(found.1, count, "{layout:?} {name}");
                    assert!(found.0 == frames, "{layout:?} {name} in steps of {step}");
                }
            }
        }
    }
}

#[test]
fn behind_a_page_of_zeros_the_next_true_frame_is_found() {
    for layout in layouts() {
        let plan = plan(&layout);
        let frames = some_frames(&plan, 1, 80);
        let whole = frames.concat();
        for (place, length) in [(0, 512), (whole.len() / 2, 512), (whole.len() / 3, 301)] {
            let mut stream = whole.clone();
            stream[place..place + length].fill(0);
            let (found, _) = cut(&plan, &stream, 64);
            let (mut start, mut good) = (0, Vec::new());
            for frame in &frames {
                good.extend((start + frame.len() <= place || place + length <= start).then_some(frame.clone()));
                start += frame.len();
            }
            // A frame whose header was there goes on into the zeros.
            let said = |frame: &Vec<u8>| (frame.len(), plan.fields(&frame[..]).event, plan.fields(&frame[..]).sequence);
            let known = |frame: &Vec<u8>| frames.iter().any(|one| said(one) == said(frame));
            assert!(found.iter().all(known), "{layout:?}: nothing is made up, {length} at {place}");
            let kept = good.iter().filter(|frame| found.contains(frame)).count();
            assert!(kept + 1 >= good.len(), "{layout:?}: {kept} of {}, {length} at {place}", good.len());
        }
    }
}

/// A word of the frame that is always 1 looks like the number behind 0, where it is read in the wrong place.
#[test]
fn frames_of_a_fixed_length_stay_where_they_were_behind_a_page_of_zeros() {
    let event = vec![Number::little_endian(0, 4)];
    let plan = plan(&Layout { event, ..Layout::new(Frame::Fixed { bytes: 16 }, 16) });
    for tag in [1_u32, 2, 0x55] {
        let frame = |event: u32| {
            let words = [event, tag, event, 0];
            words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
        };
        let frames: Vec<_> = (1..=1000).map(frame).collect();
        for (place, length) in [(8192, 4096), (8000, 512), (8196, 4096), (8200, 512), (0, 4096)] {
            let mut stream = frames.concat();
            stream[place..place + length].fill(0);
            for step in [7, 512, stream.len()] {
                let (found, _) = cut(&plan, &stream, step);
                let touched = place / 16..(place + length).div_ceil(16);
                let good = frames.iter().enumerate().filter(|(index, _)| !touched.contains(index));
                let kept = good.clone().filter(|(_, frame)| found.contains(frame)).count();
                assert_eq!(kept, good.count(), "{tag}, {length} at {place} in steps of {step}");
                assert!(found.len() <= kept + 2, "{tag}, {length} at {place}: {} found, {kept} good", found.len());
            }
        }
    }
}

#[test]
fn event_0_is_one_where_something_is_in_it() {
    for layout in layouts() {
        let plan = plan(&layout);
        let frames = some_frames(&plan, 0, 4);
        assert_eq!(cut(&plan, &frames.concat(), 10), (frames, 0), "{layout:?}");
    }
}

#[test]
fn a_datagram_and_a_line_of_zeros_are_none() {
    let datagrams = plan(&Layout { event: vec![Number::big_endian(0, 4)], ..Layout::new(Frame::Datagram, 1500) });
    assert_eq!(cut(&datagrams, &[0; 300], 300), (Vec::new(), 300));
    let lines = plan(&lines());
    let stream = [&[0; 150][..], b"00000001\r\n00000002\r\n"].concat();
    assert_eq!(cut(&lines, &stream, 7), (vec![b"00000002\r\n".to_vec()], 160));
}
