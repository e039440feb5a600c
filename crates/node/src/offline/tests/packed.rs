//! Packed segments are read as others are.

use super::*;
use crate::offline::{RecoverAction, RunIndex, VerifyReport, recover, verify};
use ropewalk_wire::run_file::{Compression, Packer};

/// The same segment, packed in stretches of so many bytes.
fn packed(segment: &[u8], stretch: usize) -> Vec<u8> {
    let (mut packer, mut file) = (Packer::new(Compression::Zstd(1)).expect("it packs"), Vec::new());
    for (number, bytes) in segment.chunks(stretch).enumerate() {
        packer.pack((number * stretch) as u64, bytes, &mut file).expect("it fits");
    }
    file
}

fn events() -> Vec<Event> {
    (1..=40).map(|number| event(number, 1, &vec![number as u8; 500])).collect()
}

fn verified(directory: &Directory) -> VerifyReport {
    verify(&[directory.path()]).expect("there is a segment")
}

#[test]
fn a_packed_segment_holds_what_it_would_hold_unpacked() {
    let (plain, small) = (Directory::new(), Directory::new());
    let segment = Segment::new(1, 1, &events()).closed();
    plain.write(&name(0, 1), &segment);
    for stretch in [100, 3000, 1 << 20] {
        let file = packed(&segment, stretch);
        assert!(stretch < 3000 || file.len() < segment.len() / 2, "it is packed");
        small.write(&name(0, 1), &file);
        assert_eq!(verified(&small), verified(&plain), "in stretches of {stretch} B");
        let index = RunIndex::build(&[small.path()]).expect("there is a segment");
        let mut reader = index.reader();
        for number in 1..=40 {
            let event = reader.next_event().expect("it is readable").expect("it is there");
            assert_eq!(event.event.key(), EventKey::new(0, number));
        }
    }
    let report = recover(small.path()).expect("it is readable");
    assert_eq!((report.untouched, report.segments.len()), (1, 0), "whole and closed: nothing is done to it");
}

#[test]
fn a_torn_packed_segment_is_recovered_up_to_its_last_whole_stretch() {
    let segment = Segment::new(1, 1, &events());
    let (bytes, file) = (segment.open(), packed(&segment.open(), 3000));
    for cut in (0..file.len()).step_by(97) {
        let directory = Directory::new();
        directory.write(&open_name(0, 1), &file[..cut]);
        let report = recover(directory.path()).expect("it is readable");
        // So many bytes of the segment can be unpacked, and so many of its events are whole.
        let mut unpacked = 0;
        while unpacked < bytes.len() && packed(&bytes[..(unpacked + 3000).min(bytes.len())], 3000).len() <= cut {
            unpacked = (unpacked + 3000).min(bytes.len());
        }
        let whole = segment.events.iter().filter(|event| event.end <= unpacked).count() as u64;
        if unpacked == 0 {
            continue;
        }
        let [recovered] = &report.segments[..] else { panic!("{report:?}") };
        assert_eq!((recovered.action, recovered.events), (RecoverAction::Rebuilt, whole), "cut at {cut}");
        let report = verified(&directory);
        assert!(report.is_intact() && report.events == whole, "cut at {cut}: {report:?}");
    }
}

#[test]
fn a_damaged_stretch_costs_its_events_alone() {
    let directory = Directory::new();
    let segment = Segment::new(1, 1, &events());
    let mut file = packed(&segment.closed(), 3000);
    let second = packed(&segment.closed()[..3000], 3000).len();
    file[second + 60] ^= 1;
    directory.write(&name(0, 1), &file);
    let report = verified(&directory);
    let hit = segment.events.iter().filter(|event| event.start < 6000 && event.end > 3000).count() as u64;
    assert_eq!(report.events, 40 - hit);
    assert!(report.damaged_bytes >= 2000 && !report.is_intact(), "{report:?}");
}
