//! Cut, changed and arbitrary bytes: nothing panics, nothing whole is lost, nothing is invented.

use super::super::*;
use super::{cases, head, header, keys, records, segment};
use proptest::collection::vec;
use proptest::prelude::*;

/// Reads everything that there is to read.
fn read_all(bytes: &[u8]) -> usize {
    let mut covered = 0;
    for item in Items::new(bytes) {
        match item {
            Item::Damaged { offset, bytes, .. } => {
                assert_eq!(offset as usize, covered);
                covered += bytes as usize;
            }
            Item::Record { offset, record } => {
                assert_eq!(offset as usize, covered);
                covered += record.length();
                read_contents(&record);
            }
        }
    }
    covered
}

fn read_contents(record: &Record<'_>) {
    let _ = SegmentHeader::decode(record);
    let _ = BeginOfRun::decode(record);
    let _ = EndOfRun::decode(record);
    if let Ok(event) = EventView::parse(record) {
        let payload: usize = event.fragments().map(|fragment| fragment.payload.len()).sum();
        assert!(event.missing().len() + payload < usize::MAX);
    }
    if let Ok(footer) = FooterView::parse(record) {
        assert_eq!(footer.entries().count(), footer.entries().len());
    }
}

/// Scans through a window that grows only when the scanner asks, `step` bytes at a time.
fn scan_in_windows(file: &[u8], step: usize) -> Vec<(usize, Step)> {
    let (mut at, mut end) = (0, step.min(file.len()));
    let mut found = Vec::new();
    loop {
        let outcome = scan(&file[at..end], end == file.len());
        match outcome {
            Step::Record { length } => {
                found.push((at, outcome));
                at += length;
            }
            Step::Damaged { skip, .. } => at += skip,
            Step::NeedMore { bytes } => {
                assert!(bytes > end - at, "a record that is there was not found");
                assert!(end < file.len(), "nothing more can come");
                end = (at + bytes).max(end + step).min(file.len());
            }
            Step::End => return found,
        }
        // A stretch without a header may reach to the window's end.
        end = end.max((at + step).min(file.len()));
    }
}

/// Gives every record a right checksum again, so that the content's own checks are reached.
fn seal(bytes: &mut [u8], places: &[(usize, usize)]) {
    for &(start, length) in places {
        let record = &mut bytes[start..start + length];
        let kind = RecordKind(u16::from_le_bytes([record[4], record[5]]));
        record[..16].copy_from_slice(&RecordHeader { kind, flags: 0, length: length as u32 }.encode());
        let checksum = super::super::checksum::crc32c(0, &record[..length - 4]);
        record[length - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        prop_assert_eq!(read_all(&bytes), bytes.len());
    }

    #[test]
    fn arbitrary_contents_never_panic(kind in 0u16..7, content in vec(any::<u8>(), 0..300)) {
        let mut file = Vec::new();
        super::append_record(&mut file, RecordKind(kind), |out| out.extend_from_slice(&content))
            .expect("the record is short");
        read_contents(&records(&file)[0].1);
    }

    #[test]
    fn changed_files_never_panic(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)) {
        let mut file = segment();
        let places: Vec<(usize, usize)> =
            records(&file).iter().map(|(offset, record)| (*offset as usize, record.length())).collect();
        for (place, value) in changes {
            let place = place.index(file.len());
            file[place] = value;
        }
        prop_assert_eq!(read_all(&file), file.len());
        seal(&mut file, &places);
        prop_assert_eq!(read_all(&file), file.len());
    }

    #[test]
    fn one_changed_byte_costs_one_record(place: prop::sample::Index, change in 1u8..) {
        let mut file = segment();
        let place = place.index(file.len());
        let whole: Vec<Vec<u8>> = records(&file)
            .iter()
            .filter(|(offset, record)| !(*offset as usize..*offset as usize + record.length()).contains(&place))
            .map(|(_, record)| record.bytes().to_vec())
            .collect();
        file[place] ^= change;
        let found: Vec<Vec<u8>> = Items::new(&file)
            .filter_map(|item| match item {
                Item::Record { record, .. } => Some(record.bytes().to_vec()),
                Item::Damaged { .. } => None,
            })
            .collect();
        prop_assert_eq!(found, whole);
    }

    #[test]
    fn windows_of_any_size_find_the_same(
        step in 1usize..200, place: prop::sample::Index, garbage in vec(any::<u8>(), 0..80),
    ) {
        let mut file = segment();
        let place = place.index(file.len());
        file.splice(place..place, garbage);
        let whole: Vec<usize> = Items::new(&file)
            .filter_map(|item| match item {
                Item::Record { offset, .. } => Some(offset as usize),
                Item::Damaged { .. } => None,
            })
            .collect();
        let windows: Vec<usize> = scan_in_windows(&file, step).into_iter().map(|(at, _)| at).collect();
        prop_assert_eq!(windows, whole);
    }
}

#[test]
fn a_cut_anywhere_leaves_the_whole_records_before_it() {
    let file = segment();
    let ends: Vec<usize> = records(&file).iter().map(|(offset, record)| *offset as usize + record.length()).collect();
    // Miri tries cuts in all records and all places modulo 8, but not all.
    for cut in (0..file.len()).step_by(if cfg!(miri) { 61 } else { 1 }) {
        let items: Vec<Item<'_>> = Items::new(&file[..cut]).collect();
        let whole = ends.iter().filter(|&&end| end <= cut).count();
        let rest = cut - whole.checked_sub(1).map_or(0, |last| ends[last]);
        assert_eq!(items.len(), whole + usize::from(rest > 0), "cut at {cut}");
        if rest > 0 {
            let Some(Item::Damaged { bytes, damage, .. }) = items.last() else { panic!("cut at {cut}: {items:?}") };
            assert_eq!((*bytes as usize, *damage), (rest, Damage::Cut));
        }
    }
}

#[test]
fn a_payload_that_looks_like_a_run_file_is_no_run_file() {
    let inner = segment();
    let mut file = Vec::new();
    header().encode(&mut file).expect("the header is short");
    let start = file.len();
    let entry = super::fragment(super::COUNTER, 9);
    encode_event(&mut file, start as u64, &head(9, 1, EventFlags::default()), &[], &[(entry, &inner)])
        .expect("the event is short");
    let end = file.len();
    encode_event(&mut file, end as u64, &head(10, 1, EventFlags::default()), &[], &[(entry, b"next")])
        .expect("the event is short");
    let key = |number| ropewalk_terms::EventKey::new(0, number);
    assert_eq!(keys(&file), [key(9), key(10)]);
    assert_eq!(keys(&file[..end - 8]), [], "cut inside the event");
    file[end - 1] ^= 1;
    assert_eq!(keys(&file), [key(10)], "the event's checksum is wrong");
}

#[test]
fn bytes_between_records_are_searched_for_the_next_header() {
    let file = segment();
    let mut damaged = file.clone();
    damaged.splice(0..0, *b"RWKR, but no header");
    let items: Vec<Item<'_>> = Items::new(&damaged).collect();
    assert_eq!(items[0], Item::Damaged { offset: 0, bytes: 19, damage: Damage::NoHeader });
    assert_eq!(items.len(), 1 + records(&file).len());
}

#[test]
fn a_length_beyond_the_limit_is_not_believed() {
    let header = RecordHeader { kind: RecordKind::EVENT, flags: 0, length: (MAX_RECORD_BYTES + 8) as u32 };
    assert_eq!(RecordHeader::decode(&header.encode()), Err(RecordError::Length));
    let header = RecordHeader { length: 28, ..header };
    assert_eq!(RecordHeader::decode(&header.encode()), Err(RecordError::Length));
    let header = RecordHeader { length: 16, ..header };
    assert_eq!(scan(&header.encode(), false), Step::Damaged { skip: 13, damage: Damage::NoHeader });
}

#[test]
fn zeros_that_fill_the_last_piece_of_a_file_are_what_its_writer_left() {
    for (zeros, expected) in [(8, Damage::Cut), (4095, Damage::Cut), (4096, Damage::NoHeader)] {
        let mut file = segment();
        let length = file.len();
        file.resize(length + zeros, 0);
        let found: Vec<_> = Items::new(&file).skip(records(&file[..length]).len()).collect();
        let damage = Item::Damaged { offset: length as u64, bytes: zeros as u64, damage: expected };
        assert_eq!(found, [damage], "{zeros} zeros");
        let step = scan(&file[length..length + zeros.min(2000)], false);
        assert!(zeros < 100 || matches!(step, Step::NeedMore { .. }), "whether they end is not seen yet: {step:?}");
    }
}
