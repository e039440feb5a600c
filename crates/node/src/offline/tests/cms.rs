//! Real detector data through run files and back: FORMATS section 5 says what must come out.

use super::*;
use crate::offline::{recover, verify};

const SHA256: &str = "cf4275b12a06f72972b35441c8941c7d0460f286e608d498625993de0f1b180f";

/// The fragments of one of the files, in their order.
fn fragments(directory: &Path, file: &str) -> Vec<Vec<u8>> {
    let bytes = fs::read(directory.join(file)).expect("the file belongs to the data");
    let split = fed::split_file(&bytes);
    assert!(split.gap.is_empty(), "the whole file is fragments");
    split.fragments.into_iter().map(|range| bytes[range].to_vec()).collect()
}

#[test]
fn events_of_two_builder_units_give_the_data_back() {
    let test = "offline::tests::cms::events_of_two_builder_units_give_the_data_back";
    let Some(data) = ropewalk_tidy::real_data(test, "cms_csc") else { return };
    let first = fragments(&data, "csc_00307511_EmuRUI01_Local_000.raw");
    let second = fragments(&data, "csc_00307511_EmuRUI03_Local_000.raw");
    let events: Vec<Event> = (1..)
        .zip(first.into_iter().zip(second))
        .map(|(number, (first, second))| event_of(number, 1, vec![(OTHER_FED, second), (FED, first)]))
        .collect();
    let directory = Directory::new();
    let (even, odd): (Vec<Event>, Vec<Event>) =
        events.iter().cloned().partition(|event| event.key.number().is_multiple_of(2));
    directory.write(&name(0, 1), &Segment::new(1, 1, &even).closed());
    // The other builder unit was killed, and ten of its events had been written before by the first.
    let mut killed = Segment::new(1, 1, &odd);
    events[..20].iter().filter(|event| event.key.number() % 2 == 0).for_each(|event| killed.add(event));
    directory.write(&open_name(1, 1), &[&killed.open(), &b"RWKR and no more"[..]].concat());
    recover(directory.path()).expect("the directory is writable");

    let report = verify(&[directory.path()]).expect("there are segments");
    assert_eq!((report.events, report.fragments, report.payload_bytes), (4685, 9370, 4_327_200));
    assert_eq!((report.crc_errors, report.gaps, report.malformed, report.duplicates), (0, 0, 0, 10));
    assert_eq!(report.payload_sha256, SHA256);
    assert_eq!((report.first_key.as_deref(), report.last_key.as_deref()), (Some("1"), Some("4685")));
}
