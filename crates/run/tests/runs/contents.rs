//! Fragments with wrong bytes or lengths.

use crate::support::{FrontEnd, Held, Setup, expect_everything, fed_fragment, ferol_block, generic_header, lost};
use ropewalk_monitor::incidents::{IncidentObserver, Incidents};
use ropewalk_terms::{Cause, Counter};
use ropewalk_wire::run_file::FragmentFlags;
use std::collections::BTreeSet;

#[test]
fn wrong_checksums_are_flagged_and_their_events_still_built() {
    let setup = Setup::new("checksums", &[841, 843]);
    let mut run = setup.start(Some(100));
    let (mut bad, mut good) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    good.send(1..=100);
    let wrong = [1, 17, 18, 100];
    let mut first_wrong = None;
    for event in 1..=100 {
        let mut content = bad.content(event);
        if wrong.contains(&event) {
            let middle = content.len() / 2;
            content[middle] ^= 0x10;
            first_wrong.get_or_insert_with(|| content.clone());
        }
        bad.send_content(event, &content);
    }
    run.wait_for_count(Counter::CrcErrors, wrong.len() as u64);
    let (mut observer, mut incidents) = (IncidentObserver::default(), Incidents::new(10));
    observer.observe(run.sample(), &mut incidents);
    let [incident] = incidents.search("crc_errors")[..] else { panic!("one incident: {incidents:?}") };
    assert_eq!((incident.subject.as_str(), incident.count), ("source 841", wrong.len() as u64));
    let first_wrong = first_wrong.expect("there are some");
    let shown: String = first_wrong.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
    assert!(incident.hex.starts_with(&shown), "{} {shown}", incident.hex);
    let summary = run.end();
    assert_eq!((summary.events.built, summary.fragments.counts.get(Counter::CrcErrors)), (100, 4), "{summary:#?}");
    let held = Held::in_directories(&[&summary.directory]);
    expect_everything(&[&bad, &good], &held, 100);
    for (key, event) in &held.events {
        let is_flagged = |source: u32| event.fragments[&source].1.contains(FragmentFlags::CRC_ERROR);
        assert_eq!((is_flagged(841), is_flagged(843)), (wrong.contains(&key.number()), false), "event {key}");
    }
}

/// The end of such a fragment never arrives: nothing after the claim can be trusted, and no memory is reserved for it.
#[test]
fn a_claim_of_four_gibibytes_closes_the_connection() {
    let setup = Setup::new("record", &[843]).source("id = 77\nreadout = \"ru0\"\nformat = \"generic\"");
    let mut run = setup.start(Some(60));
    let (mut bad, mut good) = (FrontEnd::generic(&run.address(), 77), FrontEnd::ferol(&run.address(), 843));
    good.send(1..=60);
    bad.send(1..=20);
    bad.send_bytes(&generic_header(77, 21, u32::MAX));
    bad.expect_closed();
    run.wait_for_count(Counter::ConnectionsRefused, 1);
    bad.connect();
    bad.send(21..=60);
    let summary = run.end();
    assert!(summary.fragments.dropped.total() > 0, "the fragment that was claimed is named: {summary:#?}");
    expect_everything(&[&bad, &good], &Held::in_directories(&[&summary.directory]), 60);
}

/// FEROL blocks keep their boundaries, so that an endless fragment only affects itself: no more than the maximum
/// fragment size is ever held, and the stream continues with the next one.
#[test]
fn an_endless_chain_of_blocks_is_given_up_and_named() {
    let setup = Setup::new("endless", &[841, 843]);
    let run = setup.start(Some(60));
    let (mut bad, mut good) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    good.send(1..=60);
    bad.send(1..=20);
    // Four times the whole pool of the readout unit.
    let part = fed_fragment(841, 21, 4080);
    for packet in 0..8 * 1024 {
        bad.send_bytes(&ferol_block(841, 21, packet, packet == 0, false, &part));
    }
    bad.send(22..=60);
    let summary = run.end();
    assert_eq!(summary.fragments.dropped.get(Cause::Oversize), 1, "{summary:#?}");
    assert_eq!((summary.events.built, summary.events.incomplete_emitted), (59, 1));
    let held = Held::in_directories(&[&summary.directory]);
    held.expect_keys_up_to(60);
    held.expect_missing(841, [21], Cause::Skipped);
    assert_eq!(lost(&[&bad, &good], &held), BTreeSet::new());
}

/// A block in the middle is lost: the fragment is given up, and the next one is found.
#[test]
fn a_chain_with_a_missing_block_is_given_up_and_named() {
    let setup = Setup::new("missing-block", &[841, 843]);
    let run = setup.start(Some(30));
    let (mut bad, mut good) = (FrontEnd::ferol(&run.address(), 841), FrontEnd::ferol(&run.address(), 843));
    good.send(1..=30);
    bad.send(1..=10);
    let content = fed_fragment(841, 11, 4080 * 3);
    bad.send_bytes(&ferol_block(841, 11, 0, true, false, &content[..4080]));
    bad.send_bytes(&ferol_block(841, 11, 2, false, true, &content[8160..]));
    bad.send(12..=30);
    let summary = run.end();
    assert_eq!(summary.fragments.dropped.get(Cause::Malformed), 1, "{summary:#?}");
    let held = Held::in_directories(&[&summary.directory]);
    held.expect_keys_up_to(30);
    held.expect_missing(841, [11], Cause::Skipped);
    assert_eq!(lost(&[&bad, &good], &held), BTreeSet::new());
}
