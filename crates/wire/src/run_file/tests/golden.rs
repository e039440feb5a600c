//! One file per released version, readable for ever.

use super::super::*;
use super::{fed_fragment, header, records, segment};
use ropewalk_terms::{Attempt, Cause, EventKey};

const VERSION_1_0: &[u8] = include_bytes!("../../../golden/run-file-1.0/run000001-bu0-000001.rwk");
const VERSION_1_1: &[u8] = include_bytes!("../../../golden/run-file-1.1/run000001-bu0-physics-000001.rwk");

#[test]
fn version_1_1_is_written_as_released() {
    assert!(segment() == VERSION_1_1, "the layout changed: that needs a new version and a golden file of its own");
}

#[test]
fn version_1_0_is_readable() {
    // There were no streams.
    expect_readable(VERSION_1_0, &SegmentHeader { minor: 0, stream: StreamName::UNNAMED, ..header() });
}

#[test]
fn version_1_1_is_readable() {
    expect_readable(VERSION_1_1, &header());
}

fn expect_readable(file: &[u8], header: &SegmentHeader) {
    let found = records(file);
    assert_eq!(SegmentHeader::decode(&found[0].1).as_ref(), Ok(header));
    let first = EventView::parse(&found[2].1).expect("an event");
    assert_eq!((first.key(), first.head().attempt), (EventKey::new(0, 1), Attempt(1)));
    let payloads: Vec<&[u8]> = first.fragments().map(|fragment| fragment.payload).collect();
    assert_eq!(payloads, [&fed_fragment()[..], b"hello"]);
    let second = EventView::parse(&found[4].1).expect("an event");
    assert!(second.head().flags.contains(EventFlags::INCOMPLETE));
    let missing: Vec<_> = second.missing().map(|missing| (missing.source, missing.cause())).collect();
    assert_eq!(missing, [(super::CHAMBERS, Some(Cause::TimedOut))]);
    let footer = FooterView::parse(&found[6].1).expect("a footer");
    assert_eq!(footer.entries().map(|entry| entry.offset).collect::<Vec<_>>(), [found[2].0, found[4].0]);
}
