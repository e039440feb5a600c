//! What a simulated system does, beside what can be worked out by hand.

use super::*;
use std::path::{Path, PathBuf};

const SMALL: &str = r#"version = 1
front_ends = 4
readouts = 2
builders = 2
duration = "60ms"
warm_up = "20ms"
"#;

/// Nothing travels but fragments: sums are easier so.
const NET: [(&str, &str); 3] =
    [("front_end.format", "bare"), ("front_network.framing", "none"), ("event_network.framing", "none")];

/// A small system with other values in the place of some of the defaults.
fn system(instead: &[(&str, &str)]) -> System {
    System::parse("test.toml", SMALL, &owned(&[&NET[..], instead].concat())).expect("a good system")
}

fn owned(instead: &[(&str, &str)]) -> Vec<(String, String)> {
    instead.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Simulates it; whatever it does, nothing may vanish.
fn outcome(instead: &[(&str, &str)]) -> Outcome {
    let outcome = simulate(&system(instead));
    let events = &outcome.events;
    assert!(events.balanced, "{events:?}");
    assert_eq!(events.triggered, events.built + events.in_flight, "{events:?}");
    assert_eq!((events.incomplete, events.dropped), (0, 0), "{events:?}");
    outcome
}

/// As [`outcome`], where everything is built and released in the end.
fn whole_outcome(instead: &[(&str, &str)]) -> Outcome {
    let outcome = outcome(instead);
    assert_eq!((outcome.events.in_flight, outcome.events.fragments_in_flight), (0, 0), "{:?}", outcome.events);
    outcome
}

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.02, "{found} is not {expected}");
}

#[test]
fn what_is_triggered_is_built() {
    let outcome = whole_outcome(&[("trigger.rate", "50kHz")]);
    close(outcome.rate.events_per_s, 50_000.0);
    close(outcome.rate.bytes_per_s, 50_000.0 * 4.0 * 2048.0);
    assert_eq!((outcome.dead_time, outcome.limit.by.as_str()), (0.0, "the trigger"));
    assert_eq!(outcome.events.fragments_received, 4 * outcome.events.triggered);
}

#[test]
fn a_saturated_link_gives_its_rate() {
    // Without a clock every source sends as fast as its link can.
    let outcome = whole_outcome(&[("front_end.link", "1Gb/s")]);
    close(outcome.rate.events_per_s, 125e6 / 2048.0);
    assert!(outcome.limit.by.starts_with("front-end link"), "{:?}", outcome.limit);
}

#[test]
fn sources_on_one_link_share_it() {
    let outcome = whole_outcome(&[("front_end.link", "1Gb/s"), ("front_end.streams", "3")]);
    close(outcome.rate.events_per_s, 125e6 / 2048.0 / 3.0);
}

#[test]
fn a_fragments_own_cost_slows_its_link() {
    let outcome = whole_outcome(&[("front_end.link", "1Gb/s"), ("front_end.per_fragment", "16.384us")]);
    close(outcome.rate.events_per_s, 125e6 / 2048.0 / 2.0);
}

#[test]
fn headers_take_their_part_of_a_link() {
    let rate = |own: &[(&str, &str)]| {
        let outcome = whole_outcome(&[&[("front_end.link", "1Gb/s"), ("front_network.packet", "1448")], own].concat());
        outcome.rate.events_per_s
    };
    // A fragment in one block of a FEROL; two blocks are needed from 4,081 bytes on.
    close(rate(&[("front_end.format", "ferol")]), 125e6 / 2064.0);
    close(rate(&[("front_end.format", "ferol"), ("front_end.fragment_size", "4088")]), 125e6 / 4120.0);
    close(rate(&[("front_end.format", "generic")]), 125e6 / 2080.0);
    let small = [("front_network.framing", "ethernet"), ("front_end.fragment_size", "1448")];
    close(rate(&small), 125e6 / 1538.0);
}

#[test]
fn a_stream_gives_back_the_fragment_that_was_put_into_it() {
    for format in [FormatChoice::Ferol, FormatChoice::Generic, FormatChoice::Felix, FormatChoice::Bare] {
        for bytes in (16..20_000).step_by(8) {
            assert_eq!(format.fragment(format.in_stream(bytes)), bytes, "{format:?}");
        }
    }
}

#[test]
fn groups_of_front_ends_differ_and_every_readout_unit_has_its_share() {
    let text = format!(
        "{SMALL}[front_end]\nfragment_size = \"1KiB\"\n[[front_end.group]]\nlinks = 2\nfragment_size = \"3KiB\"\n"
    );
    let system = System::parse("test.toml", &text, &owned(&NET)).expect("a good system");
    let sizes: Vec<u32> = system.fragment_sizes().iter().map(|size| size.largest()).collect();
    for unit in sizes.chunks(2) {
        assert_eq!(unit.iter().sum::<u32>(), 4096, "{sizes:?}");
    }
    let outcome = simulate(&System { trigger: self::system(&[("trigger.rate", "20kHz")]).trigger, ..system });
    close(outcome.rate.bytes_per_s, 20_000.0 * 2.0 * 4096.0);
    let many = text.replace("links = 2", "links = 5");
    assert_eq!(System::parse("test.toml", &many, &[]).expect_err("too many links").key, "front_end.group");
}

#[test]
fn many_links_fill_the_input_of_their_readout_unit() {
    let outcome = whole_outcome(&[("readout.input", "2Gb/s")]);
    close(outcome.rate.events_per_s, 250e6 / 2048.0 / 2.0);
    assert!(outcome.limit.by.starts_with("input of a readout unit"), "{:?}", outcome.limit);
}

#[test]
fn a_readout_units_computer_limits_by_its_cost_for_a_fragment() {
    let slow = [("readout.host.cores", "1"), ("readout.host.per_fragment", "10us"), ("readout.host.receive", "1TB/s")];
    // Turns are long here, and so must be what is counted.
    let own = [("readout.host.per_message", "1ns"), ("readout.host.send", "1TB/s"), ("duration", "320ms")];
    let outcome = whole_outcome(&[&slow[..], &own].concat());
    // Two links for each readout unit.
    close(outcome.rate.events_per_s, 1e5 / 2.0);
    assert!(outcome.limit.by.starts_with("computer of a readout unit"), "{:?}", outcome.limit);
}

#[test]
fn a_disk_limits_by_its_speed() {
    let outcome = whole_outcome(&[
        ("disk.speed", "100MB/s"),
        ("builder.acknowledge", "written"),
        ("builder.events", "64"),
        ("readout.capacity", "256"),
        ("readout.window", "64"),
    ]);
    close(outcome.rate.events_per_s, 2.0 * 100e6 / 8192.0);
    assert!(outcome.limit.by.starts_with("disk of a builder unit"), "{:?}", outcome.limit);
}

#[test]
fn filters_limit_by_workers_and_time() {
    let outcome = whole_outcome(&[
        ("filter.workers", "6"),
        ("filter.time", "1ms"),
        ("builder.events", "16"),
        ("readout.capacity", "64"),
        ("readout.window", "16"),
    ]);
    close(outcome.rate.events_per_s, 2.0 * 6.0 / 1e-3);
    assert!(outcome.limit.by.starts_with("filter units"), "{:?}", outcome.limit);
}

#[test]
fn rejected_events_do_not_load_the_disk() {
    let wanted = [("trigger.rate", "20kHz"), ("filter.workers", "20"), ("filter.time", "exponential(200us)")];
    let outcome = whole_outcome(&[&wanted[..], &[("filter.accept", "0.25"), ("disk.speed", "1GB/s")]].concat());
    let disk = outcome.resources.iter().find(|resource| resource.name.starts_with("disk")).expect("a disk");
    let written = disk.bytes_per_s.expect("bytes") * disk.count as f64;
    assert!((0.2..0.3).contains(&(written / outcome.rate.bytes_per_s)), "{written}");
}

#[test]
fn too_many_triggers_are_vetoed_and_the_rest_is_built() {
    let outcome = whole_outcome(&[("trigger.rate", "poisson(100kHz)"), ("front_end.link", "1Gb/s")]);
    let possible = 125e6 / 2048.0;
    close(outcome.rate.events_per_s, possible);
    assert!((outcome.dead_time - (1.0 - possible / 1e5)).abs() < 0.03, "{}", outcome.dead_time);
    assert!(outcome.limit.by.starts_with("front-end link"), "{:?}", outcome.limit);
}

/// Sixteen readout units send to few builder units.
const INCAST: [(&str, &str); 5] = [
    ("front_ends", "16"),
    ("readouts", "16"),
    ("manager.batch", "16"),
    ("builder.input", "20Gb/s"),
    ("builder.events", "64"),
];

#[test]
fn incast_without_loss_waits_and_with_loss_starves() {
    let with = |full: &str, buffer: &str| {
        let own = [("event_network.full", full), ("event_network.buffer", buffer), ("duration", "300ms")];
        // After losses every few packets 2 s are not enough to build what is left.
        outcome(&[&INCAST[..], &own].concat())
    };
    let (large, paused, lossy) = (with("drop", "64MiB"), with("pause", "32KiB"), with("drop", "32KiB"));
    assert_eq!((large.networks[1].dropped, paused.networks[1].dropped), (0, 0));
    assert!(paused.networks[1].paused > 0.05, "{:?}", paused.networks[1]);
    assert!(paused.rate.events_per_s > 0.8 * large.rate.events_per_s, "{:?} {:?}", paused.rate, large.rate);
    assert!(lossy.networks[1].timeouts > 0, "{:?}", lossy.networks[1]);
    assert!(lossy.rate.events_per_s < 0.5 * large.rate.events_per_s, "{:?} {:?}", lossy.rate, large.rate);
    assert!(lossy.limit.by.contains("event network (drop)"), "{:?}", lossy.limit);
}

#[test]
fn a_loss_that_packets_behind_it_tell_of_costs_no_time_out() {
    // Two long streams into one port, as fast as it takes them.
    let long = [("builders", "1"), ("manager.batch", "64"), ("event_network.buffer", "64KiB")];
    let fragments = [("front_end.fragment_size", "64KiB"), ("builder.input", "10Gb/s"), ("trigger.rate", "3kHz")];
    let lossy = [("event_network.full", "drop"), ("event_network.packet", "1448")];
    let outcome = whole_outcome(&[&long[..], &fragments, &lossy].concat());
    let network = &outcome.networks[1];
    assert!(network.fast_retransmits > 20 && network.fast_retransmits > 5 * network.timeouts, "{network:?}");
}

#[test]
fn what_is_lost_is_sent_again_until_all_is_there() {
    let lossy = [("event_network.full", "drop"), ("event_network.buffer", "32KiB")];
    let own = [("event_network.retransmit_after", "500us"), ("trigger.rate", "poisson(2kHz)")];
    let outcome = whole_outcome(&[&INCAST[..], &lossy, &own].concat());
    let network = &outcome.networks[1];
    assert!(network.dropped >= network.timeouts && network.timeouts > 10, "{network:?}");
}

#[test]
fn a_pool_that_is_too_small_holds_up_its_sources() {
    // Events stay for the 5 ms of the filter; 256 KiB hold 32 of them in each readout unit.
    let filter = [("filter.workers", "200"), ("filter.time", "5ms"), ("disk.speed", "10GB/s")];
    let level = [("builder.acknowledge", "written"), ("readout.pool", "128KiB")];
    let outcome = whole_outcome(&[&filter[..], &level].concat());
    assert_eq!(outcome.limit.by, "pool of a readout unit", "{:?}", outcome.limit);
    let pool = outcome.buffers.iter().find(|buffer| buffer.name == outcome.limit.by).expect("the pool");
    assert!(pool.most <= 128 << 10 && pool.most > 120 << 10, "{pool:?}");
}

#[test]
fn builder_units_without_room_hold_up_everybody() {
    let few = [("builder.events", "4"), ("filter.workers", "100"), ("filter.time", "1ms")];
    let outcome = whole_outcome(&few);
    // A millisecond in the filter, and 50 us until the next event is there.
    close(outcome.rate.events_per_s, 2.0 * 4.0 / 1.05e-3);
    assert_eq!(outcome.limit.by, "events of a builder unit", "{:?}", outcome.limit);
}

#[test]
fn on_one_computer_nothing_travels_between_units() {
    let outcome = whole_outcome(&[("placement", "shared"), ("trigger.rate", "20kHz")]);
    close(outcome.rate.events_per_s, 20_000.0);
    assert!(outcome.resources.iter().all(|resource| !resource.name.contains("output")), "{:?}", outcome.resources);
}

#[test]
fn on_one_computer_bytes_cost_once_where_they_are_received() {
    // No front end or network limits here: 4 fragments of 2048 bytes at 1 GB/s and 1 us each, 2 super-fragments of two
    // ways at 100 ns.
    let one = [("placement", "shared"), ("readout.host.cores", "1"), ("readout.host.receive", "1GB/s")];
    let own = [("readout.host.per_fragment", "1us"), ("readout.host.per_message", "100ns"), ("duration", "200ms")];
    let outcome = whole_outcome(&[&one[..], &own].concat());
    let event = 4.0 * 2048e-9 + 4e-6 + 4e-7;
    let busy = outcome.resources[2].utilisation;
    assert!((1.0..1.1).contains(&(1.0 / event / (outcome.rate.events_per_s / busy))), "{:?} {busy}", outcome.rate);
    assert_eq!(outcome.limit.by, "the computer");
}

#[test]
fn what_one_turn_does_not_read_is_read_in_the_next() {
    // Two hundred fragments of each source come during a turn, and 128 are read. What is left is not read only when
    // something else comes: that is the first release, 6 ms later, and then 6 ms more until all is over.
    let tiny = [("front_end.fragment_size", "16"), ("trigger.rate", "2MHz"), ("readout.host.turn", "100us")];
    let own = [("event_network.latency", "1ms"), ("duration", "1ms"), ("warm_up", "100us"), ("drain", "9ms")];
    let outcome = whole_outcome(&[&tiny[..], &own, &[("builder.events", "2048")]].concat());
    assert!(outcome.events.triggered > 1900, "{:?}", outcome.events);
}

#[test]
fn latency_is_the_sum_of_what_happens_on_the_way() {
    let outcome = whole_outcome(&[("trigger.rate", "1kHz"), ("event_network.latency", "1ms")]);
    // Announced, assigned, requested, sent: four ways over the event network.
    assert!((4e-3..4.4e-3).contains(&outcome.latency.built.p50_s), "{:?}", outcome.latency.built);
    // Acknowledged: one more.
    let released = outcome.latency.released.p50_s - outcome.latency.built.p50_s;
    assert!((0.9e-3..1.3e-3).contains(&released), "{released}");
}

#[test]
fn equal_seeds_give_equal_outcomes_byte_for_byte() {
    let json = |seed: &str| {
        let random = [("trigger.rate", "poisson(60kHz)"), ("front_end.fragment_size", "lognormal(2KiB,0.7)")];
        let own = [("front_network.window", "2MiB"), ("front_end.buffer", "4MiB"), ("seed", seed)];
        let filter = [("filter.workers", "9"), ("filter.time", "lognormal(100us,1)")];
        serde_json::to_string(&outcome(&[&random[..], &own, &filter].concat())).expect("JSON")
    };
    assert_eq!(json("7"), json("7"));
    assert_ne!(json("7"), json("8"));
}

#[test]
fn every_example_runs() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sizing");
    let files = std::fs::read_dir(directory).expect("examples").map(|entry| entry.expect("a file").path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let short = owned(&[("duration", "6ms"), ("warm_up", "3ms"), ("drain", "400ms")]);
        let system = SizingFile::read(&file, &short).unwrap_or_else(|error| panic!("{error}"));
        let outcome = system.simulate();
        assert!(outcome.events.balanced && outcome.events.built > 0, "{}: {:?}", file.display(), outcome.events);
        assert_eq!(outcome.events.in_flight, 0, "{}", file.display());
    }
}

/// A host of 24 links, and one of 48 with twice the network; a third of the cores does not suffice.
#[test]
fn the_felix_hosts_keep_up_with_their_triggers_and_need_their_cores() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sizing/felix-run4.toml");
    let large = [("front_ends", "48"), ("readout.input", "208Gb/s"), ("readout.output", "200Gb/s"), ("builders", "4")];
    for (cores, more, keeps_up) in [("6", &[][..], true), ("2", &[], false), ("10", &large, true), ("3", &large, false)]
    {
        let short = [("duration", "6ms"), ("warm_up", "3ms"), ("readout.host.cores", cores)];
        let instead = owned(&[&short, more].concat());
        let Ok(SizingFile::Pull(system)) = SizingFile::read(&file, &instead) else {
            panic!("it is a system that pulls")
        };
        let outcome = simulate(&system);
        let offered = outcome.rate.offered_per_s.expect("a trigger");
        let (rate, limit) = (outcome.rate.events_per_s / offered, &outcome.limit);
        assert!(outcome.events.balanced, "{:?}", outcome.events);
        assert_eq!(rate > 0.97, keeps_up, "{cores} cores: {rate} of {offered}, limited by {limit:?}");
    }
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_place() {
    let error = |text: &str| System::parse("test.toml", text, &[]).expect_err("a wrong system").to_string();
    let wrong = error(&format!("{SMALL}[builder]\nevents = 0\n"));
    assert!(wrong.starts_with("test.toml:8:10: builder.events: between 1 and"), "{wrong}");
    let wrong = error(&format!("{SMALL}[disk]\nspeed = \"fast\"\n"));
    assert!(wrong.starts_with("test.toml:8:9: ") && wrong.contains("such as 10Gb/s"), "{wrong}");
    let wrong = error(&format!("{SMALL}[reading]\n"));
    assert!(wrong.starts_with("test.toml:7:") && wrong.contains("reading"), "{wrong}");
}

#[test]
fn what_does_not_fit_together_is_told() {
    let cases = [
        ("warm_up", "60ms", "duration"),
        ("readouts", "5", "readouts"),
        ("builders", "0", "builders"),
        ("front_end.streams", "0", "front_end.streams"),
        ("manager.batch", "65", "manager.batch"),
        ("readout.capacity", "1000", "readout.capacity"),
        ("readout.window", "4000", "readout.window"),
        ("readout.pool", "4KiB", "readout.pool"),
        ("front_end.buffer", "2KiB", "front_end.buffer"),
        ("front_network.window", "1KiB", "front_network.window"),
        ("event_network.packet", "8", "event_network.packet"),
        ("event_network.window", "8KiB", "event_network.window"),
        ("event_network.retransmit_after", "1us", "event_network.retransmit_after"),
        ("builder.host.cores", "0", "builder.host.cores"),
        ("manager.host.turn", "0ns", "manager.host.turn"),
        ("trigger.gather", "1s", "trigger.gather"),
        ("builder.acknowledge", "written", "builder.acknowledge"),
        ("version", "2", "version"),
    ];
    for (key, value, at) in cases {
        let error = System::parse("test.toml", SMALL, &owned(&[(key, value)])).expect_err(key);
        assert_eq!(error.key, at, "{error}");
    }
    let many = owned(&[("trigger.rate", "10MHz")]);
    assert_eq!(System::parse("test.toml", SMALL, &many).expect_err("too many").key, "trigger.gather");
}
