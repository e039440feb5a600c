//! Synchrony on two front ends of a real detector (CMS cathode-strip chambers, local run 307511).
#![allow(clippy::disallowed_methods, reason = "the test reads recorded files; the machine does not")]

use ropewalk_flow::builder::synchrony::{Config, Observation, SourceConfig, Synchrony};
use ropewalk_terms::{EventKey, SourceId};
use std::path::Path;

/// The bunch crossing of each S-LINK64 fragment of a file, cut backwards from the trailers, and the source id.
fn read(directory: &Path, name: &str) -> (SourceId, Vec<u16>) {
    let bytes = std::fs::read(directory.join(name)).expect("the data are complete");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (mut end, mut crossings, mut source) = (bytes.len(), Vec::new(), SourceId(0));
    while end > 0 {
        assert_eq!(word(end - 4) >> 28, 0xa, "a trailer ends at {end}");
        let start = end - (word(end - 4) & 0xff_ffff) as usize * 8;
        assert_eq!(word(start + 4) >> 28, 0x5, "a header begins at {start}");
        source = SourceId(word(start) >> 8 & 0xfff);
        crossings.push((word(start) >> 20) as u16);
        end = start;
    }
    crossings.reverse();
    (source, crossings)
}

fn files(test: &str) -> Option<[(SourceId, Vec<u16>); 2]> {
    let directory = ropewalk_tidy::real_data(&format!("synchrony_cms::{test}"), "cms_csc")?;
    let names = ["csc_00307511_EmuRUI01_Local_000.raw", "csc_00307511_EmuRUI03_Local_000.raw"];
    Some(names.map(|name| read(&directory, name)))
}

/// Events 1, 2, 3 ... of both; the lines that were told, with the event at which they were.
fn watch([one, two]: &[(SourceId, Vec<u16>); 2]) -> Vec<(String, u64)> {
    let config = Config::new([one.0, two.0].map(SourceConfig::new));
    let mut machine = Synchrony::new(config).expect("a configuration that makes sense");
    let mut told = Vec::new();
    for (number, (&one, &two)) in (1..).zip(one.1.iter().zip(&two.1)) {
        let row = [one, two].map(|crossing| Observation::MISSING.with_bunch_crossing(crossing));
        machine.observe(EventKey::new(0, number), &row);
        told.extend(machine.poll().map(|change| (change.to_string(), change.at.number())));
    }
    machine.conclude();
    told.extend(machine.poll().map(|change| (change.to_string(), change.at.number())));
    told
}

fn lines(told: &[(String, u64)]) -> Vec<&str> {
    told.iter().map(|(line, _)| line.as_str()).collect()
}

#[test]
fn untouched_there_is_no_false_verdict() {
    let Some(files) = files("untouched_there_is_no_false_verdict") else { return };
    assert_eq!(files[0].1.len(), 4685);
    assert_eq!(lines(&watch(&files)), ["source 843: in sync since event 1"]);
}

#[test]
fn fragment_2000_removed_is_one_event_early() {
    let Some(mut files) = files("fragment_2000_removed_is_one_event_early") else { return };
    files[1].1.remove(1999);
    let told = watch(&files);
    assert_eq!(lines(&told), ["source 843: in sync since event 1", "source 843: one event early since event 2000"]);
    assert!(told[1].1 <= 2200, "found at {}", told[1].1);
}

#[test]
fn fragment_2000_doubled_is_one_event_late() {
    let Some(mut files) = files("fragment_2000_doubled_is_one_event_late") else { return };
    let doubled = files[1].1[1999];
    files[1].1.insert(1999, doubled);
    let told = watch(&files);
    assert_eq!(lines(&told), ["source 843: in sync since event 1", "source 843: one event late since event 2001"]);
    assert!(told[1].1 <= 2200, "found at {}", told[1].1);
}

#[test]
fn a_fragment_removed_anywhere_is_found() {
    let Some(files) = files("a_fragment_removed_anywhere_is_found") else { return };
    for at in (20..4480).step_by(37) {
        let mut files = files.clone();
        files[1].1.remove(at - 1);
        let told = watch(&files);
        let (line, found) = told.last().expect("there is a verdict");
        assert!(line.starts_with("source 843: one event early since event"), "removed {at}: {line}");
        assert!(*found <= at as u64 + 200, "removed {at}, found at {found}");
    }
}

#[test]
fn numbering_from_0_against_1_is_one_event_early_from_the_first() {
    let Some(mut files) = files("numbering_from_0_against_1_is_one_event_early_from_the_first") else { return };
    files[1].1.remove(0);
    assert_eq!(lines(&watch(&files)), ["source 843: one event early since event 1"]);
}
