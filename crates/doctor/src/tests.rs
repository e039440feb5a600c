//! The interpretation of figures, and a small whole examination.

use super::*;
use crate::run::scratch;
use ropewalk_tune::cards::CardReport;
use ropewalk_tune::{Grade, Group, Sureness};

fn measured() -> Measured {
    let built = |fragment_bytes, is_written, gigabytes_per_second| Built {
        streams: 16,
        fragment_bytes,
        is_written,
        gigabytes_per_second,
    };
    Measured {
        cpus: 4,
        two_cpus_do: 2.0,
        wake_up_us: 5.0,
        memory_copy: 20.0,
        memory_scan: 40.0,
        loopback: 9.0,
        datagrams: 400e3,
        datagrams_kept: 1.0,
        disk: 8.0,
        disk_says: Some("disk sda is 95 % busy with writes of 8.00 GB/s".to_owned()),
        disk_direct: Some(8.1),
        disk_buffered: Some(3.0),
        disk_sync_ms: 0.2,
        built: vec![built(256, false, 1.0), built(2048, false, 4.0), built(2048, true, 4.0)],
    }
}

fn finding(subject: &str, grade: Grade, sureness: Sureness) -> Finding {
    Finding {
        rule: "made_up",
        group: Group::Network,
        subject: subject.to_owned(),
        grade,
        found: "1".to_owned(),
        advised: "2".to_owned(),
        why: "It is made up.",
        source: "this test",
        worth: "nothing",
        sureness,
        changes: Vec::new(),
    }
}

fn limit_of(change: impl FnOnce(&mut Measured)) -> Limit {
    let mut measured = measured();
    change(&mut measured);
    Verdict::of(&measured, &[]).limit
}

#[test]
fn each_limit_is_found_by_its_figures() {
    assert_eq!(limit_of(|_| ()), Limit::Processor);
    assert_eq!(limit_of(|measured| measured.loopback = 5.0), Limit::Network);
    assert_eq!(limit_of(|measured| measured.memory_copy = 7.0), Limit::Memory);
    assert_eq!(limit_of(|measured| measured.two_cpus_do = 1.1), Limit::SharedCores);
    let slow_disk = |measured: &mut Measured| {
        measured.disk = 0.5;
        measured.built[2].gigabytes_per_second = 0.6;
    };
    assert_eq!(limit_of(slow_disk), Limit::Disk);
    assert_eq!(
        limit_of(|measured| measured.disk = 0.5),
        Limit::Processor,
        "what is written is as fast: a cache takes it"
    );
}

#[test]
fn its_rate_is_reported_for_several_numbers_of_streams() {
    let verdict = Verdict::of(&measured(), &[]);
    let line = "fragments of 2 KiB: 4.00 GB/s built, 2.0 MHz in total; per stream 122.1 kHz for 16, 30.5 kHz for 64, 2.8 kHz for 700 streams";
    assert_eq!(verdict.can_do[1], line);
    assert!(verdict.can_do[0].starts_with("fragments of 256 B: 1.00 GB/s built, 3.9 MHz"), "{}", verdict.can_do[0]);
    assert!(verdict.can_do[2].contains("built and written"), "{}", verdict.can_do[2]);
}

#[test]
fn what_does_harm_is_changed_first_and_of_the_rest_what_was_measured() {
    let findings = [
        finding("good", Grade::Good, Sureness::Measured),
        finding("guessed", Grade::CouldBeBetter, Sureness::Guess),
        finding("measured", Grade::CouldBeBetter, Sureness::Measured),
        finding("harmful", Grade::Harmful, Sureness::Guess),
        finding("believed", Grade::CouldBeBetter, Sureness::Documented),
    ];
    let verdict = Verdict::of(&measured(), &findings);
    let subjects: Vec<_> = verdict.change_first.iter().map(|line| line.split(':').next().unwrap_or_default()).collect();
    assert_eq!(subjects, ["harmful", "measured", "guessed"]);
    assert_eq!(verdict.change_first[0], "harmful: 1 -> 2 (It is made up)");
}

#[test]
fn each_card_is_reported_with_the_ways_of_its_driver() {
    let card =
        |xdp: &[&str]| CardReport { xdp: xdp.iter().map(|name| (*name).to_owned()).collect(), ..CardReport::default() };
    let cards = [
        ("eth0".to_owned(), card(&["basic", "redirect", "ndo-xmit", "xsk-zerocopy"])),
        ("eth1".to_owned(), card(&["basic", "redirect"])),
        ("eth2".to_owned(), card(&["basic"])),
        ("eth3".to_owned(), card(&[])),
    ];
    let modes = features::xdp_modes(cards.iter().map(|(name, card)| (name, card)));
    let expected = "eth0: zero_copy, driver, generic; eth1: driver, generic; eth2: generic; eth3: generic";
    assert_eq!((modes.is_there, modes.remark.as_str()), (true, expected));
    assert!(!features::xdp_modes(std::iter::empty()).is_there);
}

#[test]
fn a_machine_is_examined_and_nothing_is_left_behind() {
    let output = scratch(&std::env::temp_dir(), "doctor");
    std::fs::create_dir_all(&output).expect("a directory can be made");
    let processors = || rustix::thread::sched_getaffinity(None).expect("every thread has some");
    let before = processors();
    let diagnosis =
        Diagnosis::examine(&Wish::default(), &output, Scale::Tiny).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(processors(), before, "what is measured next may run where it could before");
    let left: Vec<_> = std::fs::read_dir(&output).expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
    std::fs::remove_dir_all(&output).expect("it is ours");
    let measured = diagnosis.measured.as_ref().expect("it was measured");
    let figures = [measured.memory_copy, measured.memory_scan, measured.loopback, measured.datagrams, measured.disk];
    assert!(
        figures.iter().chain([&measured.wake_up_us, &measured.disk_sync_ms]).all(|figure| *figure > 0.0),
        "{measured:?}"
    );
    assert!(measured.built.iter().all(|built| built.gigabytes_per_second > 0.0), "{measured:?}");
    let harmful = finding("net.core.rmem_max", Grade::Harmful, Sureness::Measured);
    let page = Diagnosis { findings: vec![harmful], ..diagnosis.clone() }.to_string();
    for line in [
        "io_uring operations",
        "AF_XDP modes",
        "Where everything is (ropewalk topology)\n",
        "  core 0",
        "What limits it",
        "harmful  net.core.rmem_max: 1 -> 2",
        "Settings (ropewalk tune check): 1 harmful, 0 could be better",
    ] {
        assert!(page.contains(line), "{line}:\n{page}");
    }
    let json = serde_json::to_value(&diagnosis).expect("it can be written");
    assert_eq!(json["schema"], Diagnosis::SCHEMA);
}
