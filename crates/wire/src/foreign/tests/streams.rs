//! Streams: the same frames however the bytes come, and after damage the next good frame.

use super::*;

#[test]
fn a_stream_is_cut_into_the_same_frames_however_it_comes() {
    for &format in ForeignFormat::ALL.iter().filter(|format| !format.needs_datagrams()) {
        let frames = samples(format, 3, 1, 12);
        let stream = frames.concat();
        for step in [1, 2, 7, 33, 1000, stream.len()] {
            let found = cut(format, &stream, step);
            assert_eq!((found.skipped, found.lost, found.left), (0, None, 0), "{format:?} in steps of {step}");
            assert!(found.frames == frames, "{format:?} in steps of {step}");
        }
    }
}

#[test]
fn a_datagram_is_a_frame_and_what_is_none_is_passed_over() {
    for &format in ForeignFormat::ALL.iter().filter(|format| format.needs_datagrams()) {
        for frame in samples(format, 3, 1, 12) {
            assert_eq!(cut(format, &frame, frame.len()).frames, [frame]);
        }
        let other = cut(format, b"something else", 1000);
        assert_eq!((other.frames.len(), other.skipped), (0, 14), "{format:?}");
    }
}

#[test]
fn behind_damage_the_next_frame_with_a_marker_is_found() {
    let marked = [ForeignFormat::Dune, ForeignFormat::Atlas, ForeignFormat::LhcbBanks, ForeignFormat::Mdf];
    for format in marked.into_iter().chain([ForeignFormat::Fed]) {
        let frames = samples(format, 3, 1, 5);
        let half = frames[1].len() / 16 * 8;
        // Garbage before the first frame; and the second one loses its first half.
        let stream = [b"no frame at all.", &frames[0][..], &frames[1][half..], &frames[2], &frames[3]].concat();
        for step in [1, 50, 10_000] {
            let found = cut(format, &stream, step);
            assert!(found.frames.ends_with(&frames[2..4]), "{format:?}");
            assert!(found.frames.contains(&frames[0]) && found.skipped >= 16, "{format:?}");
            assert_eq!((found.lost, found.left), (None, 0), "{format:?}");
        }
    }
}

#[test]
fn a_length_that_cannot_be_true_is_damage() {
    let format = ForeignFormat::Dune;
    let [first, second] = [1, 2].map(|event| sample(format, 3, event).concat());
    for size in [0, 71, u64::MAX, (MOST_FRAME_BYTES + 1) as u64] {
        let mut damaged = first.clone();
        damaged[8..16].copy_from_slice(&size.to_le_bytes());
        let found = cut(format, &[&damaged[..], &second].concat(), 100);
        assert_eq!((found.frames, found.skipped), (vec![second.clone()], first.len()), "{size}");
    }
}

#[test]
fn where_there_is_no_marker_damage_ends_the_stream() {
    let lost = |format, bytes: &[u8]| cut(format, bytes, 1000).lost;
    let huge = [0xFF; 64];
    assert_eq!(lost(ForeignFormat::Midas, &huge), Some(Cause::Oversize));
    assert_eq!(lost(ForeignFormat::Eudaq, &huge), Some(Cause::Oversize));
    assert_eq!(lost(ForeignFormat::Nscldaq, &huge), Some(Cause::Oversize));
    assert_eq!(lost(ForeignFormat::Nscldaq, &[&[7, 0, 0, 0][..], &[0; 60]].concat()), Some(Cause::FramingLost));
    assert_eq!(lost(ForeignFormat::Artdaq, &huge), Some(Cause::FramingLost));
    assert_eq!(lost(ForeignFormat::Alice, &huge), Some(Cause::FramingLost));
    assert_eq!(lost(ForeignFormat::Alice, &[&[7, 64][..], &[0; 62]].concat()), Some(Cause::FramingLost));
    assert_eq!(lost(ForeignFormat::Frd, &huge), Some(Cause::FramingLost));
    assert_eq!(lost(ForeignFormat::Frd, b"RAW_0002 and what is behind it"), Some(Cause::FramingLost));
    assert_eq!(lost(ForeignFormat::Frd, &[&[5, 0, 0, 0][..], &huge].concat()), Some(Cause::Oversize));
    assert_eq!(lost(ForeignFormat::Ferol, &huge), Some(Cause::FramingLost));
    assert_eq!(lost(ForeignFormat::LhcbMep, &[&[1][..], &[0; 63]].concat()), Some(Cause::FramingLost));
    assert_eq!(lost(ForeignFormat::Ess, &huge), Some(Cause::FramingLost));
    let mut short = sample(ForeignFormat::Ess, 3, 1).concat();
    short[6..8].copy_from_slice(&29_u16.to_le_bytes());
    assert_eq!(lost(ForeignFormat::Ess, &short), Some(Cause::FramingLost));
}

#[test]
fn events_may_not_lie_in_each_other_for_ever() {
    let nested = |depth: usize| {
        let inner = (0..depth).fold(eudaq::Event::default(), |event, _| eudaq::Event {
            sub_events: vec![event],
            ..eudaq::Event::default()
        });
        let mut out = Vec::new();
        eudaq::encode(&inner, &mut out);
        out
    };
    let deepest = nested(eudaq::MOST_DEPTH);
    assert_eq!(cut(ForeignFormat::Eudaq, &deepest, 100).frames, [deepest]);
    assert_eq!(cut(ForeignFormat::Eudaq, &nested(eudaq::MOST_DEPTH + 1), 100).lost, Some(Cause::FramingLost));
}

#[test]
fn records_that_a_data_file_puts_around_events_are_passed_over() {
    let events = samples(ForeignFormat::Atlas, 3, 1, 3);
    let separator: Vec<u8> = [0x1234_CCCC_u32, 4, 1, 500].iter().flat_map(|word| word.to_le_bytes()).collect();
    let start: Vec<u8> = [0x1234_AAAA_u32, 8, 5, 1, 0, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let file: Vec<u8> = events.iter().flat_map(|event| [&separator[..], event].concat()).collect();
    let file = [start, file].concat();
    assert_eq!(ForeignFormat::recognise(&file), Some(ForeignFormat::Atlas));
    let found = cut(ForeignFormat::Atlas, &file, 10);
    assert_eq!((found.frames, found.skipped, found.left), (events, 32 + 3 * 16, 0));
}

#[test]
fn a_fragment_with_a_wrong_crc_ends_where_the_next_one_begins() {
    let frames = samples(ForeignFormat::Fed, 3, 1, 3);
    let mut stream = frames.concat();
    stream[8] ^= 1;
    for step in [1, 8, 9, 4000] {
        let found = cut(ForeignFormat::Fed, &stream, step);
        assert_eq!(found.frames.iter().map(Vec::len).collect::<Vec<_>>(), [24, 32, 40]);
        let checks = found.frames.iter().map(|frame| ForeignFormat::Fed.checksum(&frame[..]));
        assert_eq!(checks.collect::<Vec<_>>(), [Some(false), Some(true), Some(true)]);
    }
}

#[test]
fn a_fragment_that_lost_its_trailer_costs_itself_alone() {
    let frames = samples(ForeignFormat::Fed, 3, 1, 4);
    let cut_short = &frames[1][..frames[1].len() - 8];
    let stream = [&frames[0][..], cut_short, &frames[2], &frames[3]].concat();
    for step in [1, 8, 9, 4000] {
        let found = cut(ForeignFormat::Fed, &stream, step);
        assert_eq!(found.frames, [frames[0].clone(), frames[2].clone(), frames[3].clone()]);
        assert_eq!((found.skipped, found.lost, found.left), (cut_short.len(), None, 0));
    }
}

#[test]
fn a_wrong_checksum_in_the_last_fragment_of_a_file_costs_no_fragment() {
    let mut fragments = samples(ForeignFormat::Fed, 3, 1, 5);
    for place in [12, 20] {
        fragments[4][place] ^= 0x10;
        let found = cut(ForeignFormat::Fed, &fragments.concat(), 64);
        assert_eq!((&found.frames, found.left), (&fragments, 0), "{place}");
        assert_eq!(ForeignFormat::Fed.checksum(&found.frames[4][..]), Some(false));
    }
}
