//! Frames are found in streams for all cuts, with damage and zeros between them.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use ropewalk_terms::Cause;

/// An element found in a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Found {
    Frame(Vec<u8>),
    /// Number of bytes that were no frame, and the cause under which they are counted.
    Skipped(usize, Cause),
    Lost(Cause),
}

/// Walks through a stream that arrives in pieces of these sizes, repeated.
fn walk(plan: &Plan, stream: &[u8], cuts: &[usize]) -> Vec<Found> {
    let (mut found, mut start, mut end, mut search) = (Vec::new(), 0, 0, Search::default());
    let mut cuts = cuts.iter().cycle();
    loop {
        let window = &stream[start..end];
        match plan.front(window, &mut search) {
            Front::Frame { bytes } => {
                assert!(bytes > 0 && bytes <= window.len() && bytes <= plan.most());
                found.push(Found::Frame(window[..bytes].to_vec()));
                start += bytes;
                search = Search::default();
            }
            Front::Skip { bytes, cause } => {
                assert!(bytes > 0 && bytes <= window.len());
                match found.last_mut() {
                    Some(Found::Skipped(before, _)) => *before += bytes,
                    _ => found.push(Found::Skipped(bytes, cause)),
                }
                start += bytes;
            }
            Front::Lost { cause } => {
                found.push(Found::Lost(cause));
                return found;
            }
            Front::Needs { bytes } => {
                assert!(bytes > window.len(), "more than there is");
                // While it waits, it holds and asks for no more than the longest frame and the bytes needed to confirm
                // it.
                assert!(window.len().max(bytes) <= plan.most() + 64, "{} of {bytes} bytes are held", window.len());
                if end == stream.len() {
                    return found;
                }
                end = (end + cuts.next().map_or(1, |&cut| cut.max(1))).min(stream.len());
            }
        }
    }
}

fn frames(found: &[Found]) -> Vec<&[u8]> {
    found.iter().filter_map(|found| if let Found::Frame(frame) = found { Some(&frame[..]) } else { None }).collect()
}

/// Removes the number of bytes that were skipped at the end: it is larger if more of them are visible at once.
fn open_ended(mut found: Vec<Found>) -> Vec<Found> {
    if let Some(Found::Skipped(bytes, _)) = found.last_mut() {
        *bytes = 0;
    }
    found
}

/// Frames of events from 1 on, with payloads of these bytes.
fn composed(plan: &Plan, payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let numbered = payloads.iter().zip(1u64..);
    let frame = |(payload, event): (&Vec<u8>, u64)| {
        let mut frame = Vec::new();
        plan.compose(&Contents { event, ..Contents::default() }, payload, &mut frame);
        frame
    };
    numbered.map(frame).collect()
}

/// Number of streams: this many in every run, a million by hand with `PROPTEST_CASES=1000000`.
fn many(usually: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usually);
    ProptestConfig::with_cases(cases)
}

/// Payloads of bytes that contain no sync word, no delimiter and no end of a frame.
fn harmless() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(proptest::collection::vec(0x10u8..0x40, 0..120), 1..8)
}

/// The number of streams of each kind.
#[test]
fn random_streams_do_no_harm_and_cuts_change_nothing() {
    // Streams of few distinct bytes look more often like frames.
    const FEW: [u8; 16] = [0, 1, 5, 8, 16, 0x50, 0xa0, 0xca, 0xfe, 0xba, 0xbe, 0x5a, 0xa5, b'\r', b'\n', 2];
    for layout in streams() {
        let plan = plan(&layout);
        let any_stream = proptest::collection::vec(any::<u8>(), 0..600);
        let drawn = (any_stream, 0u8..4, proptest::collection::vec(1usize..80, 1..5));
        let all_good = TestRunner::new(many(2000)).run(&drawn, |(mut stream, tame, cuts)| {
            if tame > 0 {
                stream.iter_mut().for_each(|byte| *byte = FEW[usize::from(*byte >> tame) % FEW.len()]);
            }
            let at_once = open_ended(walk(&plan, &stream, &[stream.len()]));
            prop_assert_eq!(&open_ended(walk(&plan, &stream, &cuts)), &at_once);
            prop_assert_eq!(open_ended(walk(&plan, &stream, &[1])), at_once);
            Ok(())
        });
        all_good.unwrap_or_else(|failed| panic!("{:?}: {failed}", layout.frame));
    }
}

proptest! {
    #![proptest_config(many(10_000))]

    #[test]
    fn the_quick_look_says_the_same_as_the_longer_one(
        which in 0usize..6, payloads in harmless(), stream in proptest::collection::vec(any::<u8>(), 0..60), at in 0usize..40,
    ) {
        let plan = plan(&streams()[which]);
        let made = composed(&plan, &payloads).concat();
        for bytes in [&[&made[..], &stream].concat()[at.min(made.len())..], &made, &made[..at.min(made.len())], &stream] {
            let (quick, longer) = (plan.plain(bytes), crate::framing::plain_by_front(&plan, bytes));
            // With few bytes left, and for zeros, it returns nothing.
            let is_left_to_the_longer_one = bytes.len() < 72 || bytes.starts_with(&[0; 8]);
            prop_assert!(quick == longer || quick.is_none() && is_left_to_the_longer_one, "{:?}, not {:?}", quick, longer);
        }
    }

    #[test]
    fn frames_are_found_as_they_were_made(
        which in 0usize..6, payloads in harmless(), cuts in proptest::collection::vec(1usize..80, 1..5),
    ) {
        let plan = plan(&streams()[which]);
        let made = composed(&plan, &payloads);
        let found = walk(&plan, &made.concat(), &cuts);
        prop_assert_eq!(frames(&found), made.iter().map(Vec::as_slice).collect::<Vec<_>>());
        prop_assert_eq!(found.len(), made.len(), "and nothing else");
        for (frame, event) in made.iter().zip(1..) {
            prop_assert_eq!(plan.fields(&frame[..]).event, Some(event));
        }
    }

    #[test]
    fn garbage_between_frames_costs_none_of_them(
        which in 2usize..5, payloads in harmless(), place in 0usize..8, garbage in proptest::collection::vec(0x10u8..0x40, 1..300),
        cuts in proptest::collection::vec(1usize..80, 1..5),
    ) {
        let plan = plan(&streams()[which]);
        let mut made = composed(&plan, &payloads);
        made.extend(composed(&plan, &[payloads.clone(), payloads.clone()].concat()));
        let mut stream = made.clone();
        stream.insert(place.min(payloads.len()), garbage.clone());
        let found = walk(&plan, &stream.concat(), &cuts);
        prop_assert_eq!(frames(&found), made.iter().map(Vec::as_slice).collect::<Vec<_>>());
        prop_assert!(found.iter().any(|found| matches!(found, Found::Skipped(bytes, _) if *bytes == garbage.len())));
    }

    #[test]
    fn after_damage_the_next_good_frame_is_found(
        which in 2usize..6, before in harmless(), behind in harmless(), lost in 1usize..60,
        garbage in proptest::collection::vec(any::<u8>(), 0..60), cuts in proptest::collection::vec(1usize..80, 1..5),
    ) {
        let plan = plan(&streams()[which]);
        let (before, behind) = (composed(&plan, &before), composed(&plan, &behind));
        // Some bytes are lost, and others are inserted instead.
        let mut damaged = before.concat();
        damaged.truncate(damaged.len().saturating_sub(lost));
        damaged.extend(garbage);
        // Frames behind it may be taken for the rest of a damaged one: as long as the longest frame, and two more.
        let many: Vec<Vec<u8>> = behind.iter().cycle().take(behind.len() * (4200 / behind.concat().len() + 2)).cloned().collect();
        damaged.extend(many.concat());
        let found = walk(&plan, &damaged, &cuts);
        let last = many.last().expect("one at least");
        prop_assert!(frames(&found).iter().rev().take(2).any(|frame| frame == last), "the last ones are found");
        prop_assert!(!matches!(found.last(), Some(Found::Lost(_))));
    }
}

#[test]
fn a_sync_word_within_a_frame_begins_no_frame() {
    let plan = plan(&synchronised());
    let word = [0xca, 0xfe, 0xba, 0xbe, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let payload = [&[0; 9][..], &word, &word].concat();
    let made = composed(&plan, &[payload.clone(), payload, vec![]]);
    assert_eq!(frames(&walk(&plan, &made.concat(), &[7])), made);
}

#[test]
fn after_a_loss_a_sync_word_within_a_frame_is_seen_through() {
    let plan = plan(&synchronised());
    let word = [0xca, 0xfe, 0xba, 0xbe, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let payload = [&[0; 30][..], &word, &[7; 11]].concat();
    let made = composed(&plan, &[payload, vec![1; 30], vec![2; 40]]);
    let stream = made.concat();
    let found = walk(&plan, &stream[6..], &[9]);
    assert_eq!(found[0], Found::Skipped(made[0].len() - 6, Cause::SyncLost));
    assert_eq!(frames(&found), made[1..]);
    let alone = &stream[6..made[0].len() + made[1].len()];
    assert_eq!(frames(&walk(&plan, alone, &[9])).len(), 0, "it waits until another begins behind it");
}

#[test]
fn an_impossible_length_ends_a_stream_without_sync_words() {
    let plan = plan(&digitiser());
    let stream = |words: u32| {
        let mut stream = composed(&plan, &[vec![1; 40]]).concat();
        stream.extend_from_slice(&words.to_le_bytes());
        stream.extend_from_slice(&[0; 100]);
        walk(&plan, &stream, &[11]).pop()
    };
    assert_eq!(
        stream(0),
        Some(Found::Skipped(89, Cause::FramingLost)),
        "zeros are passed over, and may begin a header"
    );
    assert_eq!(stream(3), Some(Found::Lost(Cause::FramingLost)), "below the header");
    assert_eq!(stream((1 << 18) + 1), Some(Found::Lost(Cause::Oversize)), "above the longest");
    assert_eq!(stream(4), Some(Found::Skipped(73, Cause::FramingLost)), "zeros are behind it");
}

#[test]
fn an_impossible_length_is_passed_over_with_sync_words() {
    let plan = plan(&synchronised());
    let made = composed(&plan, &[vec![1; 40], vec![2; 40], vec![3; 40]]);
    for (stated, cause) in [(0u16, Cause::SyncLost), (2, Cause::SyncLost), (0xffff, Cause::Oversize)] {
        let mut stream = made.concat();
        stream[4..6].copy_from_slice(&stated.to_be_bytes());
        let found = walk(&plan, &stream, &[13]);
        assert_eq!(found[0], Found::Skipped(made[0].len(), cause), "{stated}");
        assert_eq!(frames(&found), made[1..]);
    }
}

#[test]
fn a_trailer_counts_only_if_its_length_leads_back() {
    let plan = plan(&trailed());
    let trailer = |words: u64| (0xa000_0000_0000_0000 | words << 32).to_le_bytes();
    let payload = [&[0; 8][..], &trailer(7), &trailer(1), &trailer(0), &[3; 16]].concat();
    let made = composed(&plan, &[payload, vec![4; 16], vec![]]);
    assert_eq!(frames(&walk(&plan, &made.concat(), &[8])), made);
}

#[test]
fn what_has_no_begin_is_passed_over_until_a_trailer_leads_back_to_one() {
    let plan = plan(&trailed());
    let made = composed(&plan, &[vec![1; 80], vec![2; 40], vec![3; 40]]);
    let stream = [&made[0][9..], &made[1], &made[2]].concat();
    let found = walk(&plan, &stream, &[8]);
    assert_eq!(found[0], Found::Skipped(made[0].len() - 9, Cause::SyncLost));
    assert_eq!(frames(&found), made[1..]);
}

#[test]
fn a_wrong_checksum_in_a_trailer_is_believed_if_a_begin_follows() {
    let kind = ChecksumKind::Crc16Cms;
    let number = Number::little_endian(-6, 2);
    let layout = Layout { checksum: Some(Checksum { kind, number, from: 0, to: -8 }), ..trailed() };
    let plan = plan(&layout);
    let mut made = composed(&plan, &[vec![1; 80], vec![2; 40]]);
    made[0][20] ^= 1;
    let stream = made.concat();
    assert_eq!(frames(&walk(&plan, &stream, &[8])), made);
    assert_eq!(plan.checksum(&made[0][..]), Some(false));
    assert_eq!(frames(&walk(&plan, &stream[..made[0].len()], &[8])).len(), 0, "not decided yet");
    let at_end = |bytes: &[u8]| plan.front_at_end(bytes, &mut Search::default());
    assert_eq!(at_end(&made[0]), Some(Front::Frame { bytes: made[0].len() }), "the stream ends with it");
    assert_eq!(at_end(&made[0][..made[0].len() - 8]), None);
}

#[test]
fn a_line_that_does_not_end_is_passed_over_to_the_next() {
    let plan = plan(&lines());
    let stream = [&[b'a'; 500][..], b"\r\n12345678 good\r\n", b"12345679 too\r"].concat();
    let found = walk(&plan, &stream, &[37]);
    assert_eq!(found[0], Found::Skipped(502, Cause::Oversize));
    assert_eq!(frames(&found), [b"12345678 good\r\n"]);
}

#[test]
fn a_datagram_is_a_frame_of_its_own_length() {
    let plan = plan(&Layout { event: vec![Number::little_endian(4, 4)], ..Layout::new(Frame::Datagram, 100) });
    let front = |bytes: usize| plan.front(&vec![1; bytes][..], &mut Search::default());
    assert_eq!(front(7), Front::Needs { bytes: 8 });
    assert_eq!(front(8), Front::Frame { bytes: 8 });
    assert_eq!(front(101), Front::Skip { bytes: 101, cause: Cause::Oversize });
}

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

/// The frames that are found, if `step` more bytes arrive each time, and the bytes outside frames.
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
            // A frame whose header was present continues into the zeros.
            let said = |frame: &Vec<u8>| (frame.len(), plan.fields(&frame[..]).event, plan.fields(&frame[..]).sequence);
            let known = |frame: &Vec<u8>| frames.iter().any(|one| said(one) == said(frame));
            assert!(found.iter().all(known), "{layout:?}: nothing is made up, {length} at {place}");
            let kept = good.iter().filter(|frame| found.contains(frame)).count();
            assert!(kept + 1 >= good.len(), "{layout:?}: {kept} of {}, {length} at {place}", good.len());
        }
    }
}

/// A word of the frame that is always 1 looks like the number after 0, if it is read at the wrong place.
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
