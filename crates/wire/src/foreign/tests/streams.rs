//! Streams: the same frames for all cuts; after damage or zeros the next good frame; no bytes cause a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::framing::Splitter;
use crate::message::FragmentFlags;
use crate::zeros;

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
fn a_datagram_is_a_frame_and_others_are_passed_over() {
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
fn events_of_a_digitizer_are_found_again_behind_damage() {
    let events = samples(ForeignFormat::Caen, 3, 0xFF_FFFC, 12);
    let damaged = |at: usize, byte: u8| {
        let mut broken = events[4].clone();
        broken[at] = byte;
        [&events[..4].concat()[..], &broken, &events[5..].concat()].concat()
    };
    // The marker, then a length that is shorter or longer than the event.
    for (at, byte) in [(3, 0x20), (0, events[4][0] - 2), (0, events[4][0] + 2)] {
        for step in [1, 7, 10_000] {
            let found = cut(ForeignFormat::Caen, &damaged(at, byte), step);
            assert_eq!((&found.frames[..4], found.lost), (&events[..4], None), "byte {at} = {byte:#x}");
            assert!(found.frames.ends_with(&events[6..]), "byte {at} = {byte:#x}: at most the next event is lost");
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

/// The reports to the inspector for a frame with these bytes changed.
fn damaged(format: ForeignFormat, event: u32, at: usize, bytes: &[u8]) -> Told {
    let mut frame = sample(format, 3, event).concat();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    told(format, &frame)
}

#[test]
fn a_part_that_goes_beyond_its_frame_is_a_fault() {
    let bank = damaged(ForeignFormat::Midas, 1, 16 + 8 + 8, &1000_u32.to_le_bytes());
    assert_eq!((bank.faults, bank.parts.len()), (vec!["a bank goes beyond its event"], 0));
    let readout = damaged(ForeignFormat::Ess, 1, 32, &1000_u16.to_le_bytes());
    assert_eq!((readout.faults, readout.parts.len()), (vec!["a readout goes beyond its packet"], 0));
    let none = damaged(ForeignFormat::Ess, 1, 32, &3_u16.to_le_bytes());
    assert_eq!(none.faults, ["a readout goes beyond its packet"], "it is shorter than its own header");
    let segment = damaged(ForeignFormat::Ejfat, 1, 4, &1000_u32.to_be_bytes());
    assert_eq!(segment.faults, ["the segment goes beyond its event"]);
    let page = damaged(ForeignFormat::Alice, 1, 10, &5000_u16.to_le_bytes());
    assert_eq!(page.faults, ["more memory is used than the page has"]);
    let header = damaged(ForeignFormat::Nscldaq, 1, 8, &5000_u32.to_le_bytes());
    assert_eq!(header.faults, ["the body header goes beyond the item"]);
}

#[test]
fn lengths_that_contradict_each_other_are_faults() {
    let banks = damaged(ForeignFormat::Midas, 1, 16, &9_u32.to_le_bytes());
    assert_eq!(banks.faults, ["the banks do not fill the event"]);
    let event = sample(ForeignFormat::Eudaq, 3, 1).concat();
    assert_eq!(told(ForeignFormat::Eudaq, &event[..event.len() - 1]).faults.len(), 1);
    assert_eq!(told(ForeignFormat::Eudaq, &[&event[..], b"x"].concat()).faults.len(), 1);
    let datagram = [&sample(ForeignFormat::Srs, 3, 1).concat()[..], b"xy"].concat();
    assert_eq!(told(ForeignFormat::Srs, &datagram).faults, ["the datagram ends within a word"]);
    assert!(ForeignFormat::Srs.fields(&datagram[..]).flags.has_error());
    let packet = damaged(ForeignFormat::LhcbMep, 1, 4, &5_u16.to_le_bytes());
    assert_eq!(packet.faults, ["the fragments do not match the header"]);
    let header = damaged(ForeignFormat::Atlas, 1, 8, &3_u32.to_le_bytes());
    assert_eq!(header.faults, ["the header's lengths contradict each other"]);
    let frd = damaged(ForeignFormat::Frd, 1, 24 + 7, &[0x60]);
    assert_eq!(frd.faults, ["the data do not fall apart into FED fragments"]);
    let event = sample(ForeignFormat::Frd, 3, 1).concat();
    assert_eq!(told(ForeignFormat::Frd, &event[..event.len() - 1]).faults.len(), 1);
    let mdf = damaged(ForeignFormat::Mdf, 1, 48, &[0]);
    assert_eq!(mdf.faults, ["there is no bank where one should begin"]);
    let packed = damaged(ForeignFormat::Mdf, 1, 16, &[4]);
    assert_eq!((packed.faults, &packed.parts[..]), (vec![], &["compressed banks".to_owned()][..]));
    let fed = damaged(ForeignFormat::Fed, 1, 7, &[0x60]);
    assert_eq!(fed.faults, ["header, trailer and length do not belong together"]);
}

#[test]
fn fragments_within_fragments_are_looked_into() {
    let event = sample(ForeignFormat::Atlas, 3, 1).concat();
    // A full event's header has 17 words here, a ROB's 8, a ROD's 9; then a word of data, one of status, three of trailer.
    let rob = 17 * 4;
    let no_child = damaged(ForeignFormat::Atlas, 1, rob, &[0; 4]);
    assert_eq!(no_child.faults, ["no fragment where one should begin"]);
    let no_rod = damaged(ForeignFormat::Atlas, 1, rob + 32, &[0; 4]);
    assert_eq!(no_rod.faults, ["no ROD fragment in a ROB fragment"]);
    let trailer = damaged(ForeignFormat::Atlas, 1, rob + 32 + 11 * 4, &9_u32.to_le_bytes());
    assert_eq!(trailer.faults, ["the ROD trailer counts other words than there are"]);
    assert_eq!(event.len(), rob + 2 * (8 + 9 + 2 + 3) * 4);
    let is_flagged = |event: &[u8]| ForeignFormat::Atlas.fields(event).flags.contains(FragmentFlags::FRAMES_MISSING);
    let mut hole = event.clone();
    hole[rob..].fill(0);
    assert_eq!((is_flagged(&event), is_flagged(&hole)), (false, true), "a run says so, too");
}

#[test]
fn what_the_sender_marked_as_bad_is_a_fault() {
    let dune = damaged(ForeignFormat::Dune, 1, 52, &4_u32.to_le_bytes());
    assert_eq!(dune.faults, ["the sender set error bits"]);
    let artdaq = damaged(ForeignFormat::Artdaq, 1, 24, &[0]);
    assert_eq!(artdaq.faults, ["not marked valid", "not marked complete"]);
}

#[test]
fn banks_are_no_duty_of_a_fragment_but_half_a_bank_is_a_fault() {
    let mut packet = Vec::new();
    encode_mep(1, 0, [&b"no banks at all"[..], b""].into_iter(), &mut packet).expect("it is short");
    let without = told(ForeignFormat::LhcbMep, &packet);
    assert_eq!((without.faults, &without.parts[..]), (vec![], &["event", "no banks", "event"].map(String::from)[..]));
    assert_eq!(ForeignFormat::LhcbMep.fields(&packet[..]).source, None);
    let (mut banks, mut packet) = (Vec::new(), Vec::new());
    encode_bank(&bank(3, b"data"), &mut banks).expect("it is short");
    banks.extend_from_slice(b"rest");
    encode_mep(1, 0, [&banks[..]].into_iter(), &mut packet).expect("it is short");
    assert_eq!(told(ForeignFormat::LhcbMep, &packet).faults, ["there is no bank where one should begin"]);
}

#[test]
fn banks_with_headers_of_every_width_are_read() {
    for (flags, header) in [(1_u32, 8), (0x11, 12), (0x31, 16)] {
        let mut event = Vec::new();
        for data in [&b"eight..8"[..], b"five."] {
            event.extend_from_slice(b"BANK");
            if header == 8 {
                event.extend_from_slice(&1_u16.to_le_bytes());
                event.extend_from_slice(&(data.len() as u16).to_le_bytes());
            } else {
                event.extend_from_slice(&1_u32.to_le_bytes());
                event.extend_from_slice(&(data.len() as u32).to_le_bytes());
                event.resize(event.len() + header - 12, 0);
            }
            event.extend_from_slice(data);
            event.resize(event.len() + data.len().next_multiple_of(8) - data.len(), 0);
        }
        let bytes = event.len() as u64;
        let head = Header::<24>::new().with(midas::SIZE, bytes + 8).with(midas::BANK_BYTES, bytes);
        let event = [&head.with(midas::BANK_FLAGS, flags.into()).0[..], &event].concat();
        let banks: Vec<_> = midas::Banks::of(&event).map(|bank| bank.expect("a bank").data.to_vec()).collect();
        assert_eq!(banks, [b"eight..8".to_vec(), b"five.".to_vec()], "flags {flags:#x}");
        assert_eq!(told(ForeignFormat::Midas, &event).faults, [""; 0]);
    }
}

#[test]
fn a_datagram_that_ends_within_the_balancers_header_is_described_as_far_as_it_goes() {
    let datagram = &sample(ForeignFormat::Ejfat, 3, 2)[0][..12];
    let told = told(ForeignFormat::Ejfat, datagram);
    assert!(told.fields.contains("balancer version=2;") && !told.fields.contains("data id"), "{told:?}");
    assert!(!ForeignFormat::Ejfat.goes_on(datagram));
}

fn streams() -> impl Iterator<Item = ForeignFormat> {
    ForeignFormat::ALL.iter().copied().filter(|format| !format.needs_datagrams())
}

/// The bytes of a stream, and its frames.
fn stream(format: ForeignFormat, first: u32, count: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
    let frames = samples(format, 3, first, count);
    (frames.concat(), frames)
}

/// Cuts until nothing more is found; a tail of zeros that is shorter than a header may be left.
fn found(format: ForeignFormat, bytes: &[u8], step: usize) -> (Vec<Vec<u8>>, usize) {
    let cut = cut(format, bytes, step);
    let rest = &bytes[bytes.len() - cut.left..];
    assert_eq!((cut.lost, zeros::leading(rest, rest.len())), (None, cut.left), "{format:?} in steps of {step}");
    (cut.frames, cut.skipped + cut.left)
}

#[test]
fn zeros_between_frames_become_none_and_hide_none() {
    for format in streams() {
        let (before, mut frames) = stream(format, 1, 4);
        let (behind, others) = stream(format, 5, 4);
        frames.extend(others);
        for zeros in [64, 512, 4096, 5000] {
            let zeros = vec![0; zeros];
            for (name, bytes) in [
                ("in front", [&zeros, &before, &behind].map(Vec::as_slice).concat()),
                ("in the middle", [&before, &zeros, &behind].map(Vec::as_slice).concat()),
                ("at the end", [&before, &behind, &zeros].map(Vec::as_slice).concat()),
            ] {
                for step in [1, 100, bytes.len()] {
                    let found = found(format, &bytes, step);
                    assert_eq!(found.1, zeros.len(), "{format:?} {name}");
                    assert!(found.0 == frames, "{format:?} {name} in steps of {step}");
                }
            }
        }
    }
}

#[test]
fn behind_a_page_of_zeros_the_next_true_header_is_found() {
    for format in streams() {
        let (whole, frames) = stream(format, 1, 60);
        for (place, length) in [(whole.len() / 3, 300), (whole.len() / 2 / 8 * 8, 512), (whole.len() / 4, 640)] {
            let mut bytes = whole.clone();
            bytes[place..place + length].fill(0);
            let Cut { frames: found, lost, .. } = cut(format, &bytes, 1000);
            // Frames that end or begin in the zeros are lost; the others are unchanged.
            let (mut start, mut good) = (0, Vec::new());
            for frame in &frames {
                let is_touched = start < place + length && place < start + frame.len();
                good.extend((!is_touched).then_some(frame));
                start += frame.len();
            }
            // If there is no length at the front, an event may be cut short by zeros.
            let header = if format == ForeignFormat::Eudaq { eudaq::HEADER_BYTES } else { 4 };
            let is_same = |one: &[u8], other: &[u8]| one.get(..header) == other.get(..header);
            let has_length = format != ForeignFormat::Eudaq;
            let is_known = |frame: &Vec<u8>| {
                // The fragments in a damaged event may be found.
                let is_part = format == ForeignFormat::Atlas && whole.windows(frame.len()).any(|part| part == frame);
                is_part || frames.iter().any(|good| is_same(good, frame) && (good.len() == frame.len() || !has_length))
            };
            let invented = found.iter().filter(|frame| !is_known(frame));
            assert_eq!((lost, invented.count()), (None, 0), "{format:?}, {length} zeros at {place}");
            let kept = good.iter().filter(|good| found.contains(good)).count();
            assert!(kept + 1 >= good.len(), "{format:?}: {kept} of {}, {length} zeros at {place}", good.len());
        }
    }
}

#[test]
fn a_datagram_of_zeros_is_no_frame() {
    for &format in ForeignFormat::ALL {
        for length in [64, 1000] {
            assert!(cut(format, &vec![0; length], length).frames.is_empty(), "{format:?}");
        }
    }
}

fn format() -> impl Strategy<Value = ForeignFormat> {
    prop::sample::select(ForeignFormat::ALL)
}

/// Calls every function on some bytes.
fn ask(format: ForeignFormat, bytes: &[u8]) {
    let _ = (format.fields(bytes), format.checksum(bytes), format.goes_on(bytes), format.events_in(bytes));
    let _ = (format.looks_like(bytes), format.split(bytes, &mut Vec::new()), format.announces(bytes));
    if let Some(whole) = format.enclosed(bytes) {
        let lengths: usize = whole.members.iter().map(|member| member.place.len()).sum();
        assert!(lengths == whole.data.len() && whole.data.end <= bytes.len(), "the fragments fill the data");
    }
    let told = told(format, bytes);
    assert!(told.parts.len() <= bytes.len() + 2, "the input bounds what is reported");
}

/// The number of cases for each format; a million by hand with `PROPTEST_CASES=1000000`.
#[test]
fn any_bytes_are_cut_and_described() {
    for &format in ForeignFormat::ALL {
        let streams = (vec(any::<u8>(), 0..300), 1..70_usize, 0u32..2000, any::<bool>());
        let all_good = TestRunner::default().run(&streams, |(mut bytes, step, event, begins)| {
            if begins {
                // Behind a good frame, or its first part, more of the bytes look like frames.
                let whole = samples(format, 3, event, 1).concat();
                bytes = [&whole[..whole.len().min(step * 8)], &bytes].concat();
            }
            ask(format, &bytes);
            let cut = cut(format, &bytes, step);
            let found: usize = cut.frames.iter().map(Vec::len).sum();
            prop_assert_eq!(found + cut.skipped + cut.left, bytes.len());
            Ok(())
        });
        all_good.unwrap_or_else(|failed| panic!("{}: {failed}", format.name()));
    }
}

proptest! {
    #[test]
    fn damaged_frames_are_cut_and_described_the_same_however_they_come(
        format in format(),
        first in 0..2000_u32,
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut_at in any::<prop::sample::Index>(),
        step in 1..200_usize,
    ) {
        let mut stream = samples(format, 3, first, 3).concat();
        for (place, byte) in damage {
            let at = place.index(stream.len());
            stream[at] = byte;
        }
        ask(format, &stream[..cut_at.index(stream.len())]);
        let whole = cut(format, &stream, stream.len());
        whole.frames.iter().for_each(|frame| ask(format, frame));
        if !format.needs_datagrams() {
            prop_assert_eq!(cut(format, &stream, step), whole);
        }
    }

    #[test]
    fn any_format_may_be_recognised(bytes in vec(any::<u8>(), 0..200)) {
        let _ = (ForeignFormat::recognise(&bytes), ForeignFormat::recognise_datagram(&bytes));
    }
}
