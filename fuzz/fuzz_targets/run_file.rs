//! Run files: no bytes panic, every byte is in exactly one item, and what is accepted comes back when encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::run_file::{
    BeginOfRun, EndOfRun, EventView, FooterView, FragmentEntry, Item, Items, MissingSource, Record, SegmentHeader,
    encode_event,
};

fuzz_target!(|bytes: &[u8]| {
    let mut covered = 0;
    for item in Items::new(bytes) {
        let (offset, length) = match item {
            Item::Record { offset, record } => {
                look_inside(&record);
                (offset, record.length() as u64)
            }
            Item::Damaged { offset, bytes, .. } => (offset, bytes),
        };
        assert_eq!(offset, covered);
        covered += length;
    }
    assert_eq!(covered, bytes.len() as u64);
    // Without the checksum, which no fuzzer guesses.
    if let Ok(record) = Record::parse_unchecked(bytes) {
        look_inside(&record);
    }
});

fn look_inside(record: &Record<'_>) {
    let _ = (SegmentHeader::decode(record), BeginOfRun::decode(record), EndOfRun::decode(record));
    if let Ok(footer) = FooterView::parse(record) {
        assert_eq!(footer.entries().count(), footer.entries().len());
    }
    let Ok(event) = EventView::parse(record) else { return };
    let missing: Vec<MissingSource> = event.missing().collect();
    let fragments: Vec<(FragmentEntry, &[u8])> =
        event.fragments().map(|fragment| (fragment.entry, fragment.payload)).collect();
    // Fragments of a strange writer may overlap, so that their sum is larger than any record.
    let mut encoded = Vec::new();
    if encode_event(&mut encoded, 0, &event.head(), &missing, &fragments).is_ok() {
        let again = Record::parse(&encoded).expect("it was just encoded");
        let again = EventView::parse(&again).expect("it is an event");
        assert_eq!(again.head(), event.head());
        assert!(again.missing().eq(missing));
        assert!(again.fragments().map(|fragment| (fragment.entry, fragment.payload)).eq(fragments));
    }
}
