//! Every process of a run is killed with -9 at a random moment: event manager, readout unit, builder units and the
//! filters' processes. Every event that was acknowledged as written is in the files.
//!
//! A builder unit's promise is an acknowledgement that leaves it for the event manager. So the test sits between the
//! two and records every acknowledgement from a builder unit's socket, even if no event manager lived to read it: a
//! readout unit that released memory on such a promise knew no more. No node's account is used, since all nodes are
//! dead.

use crate::cluster::Cluster;
use crate::filters::{children, compile};
use crate::process::Program;
use crate::support::{FrontEnd, Random, Setup, Tampering};
use ropewalk_terms::{AcknowledgementLevel, Verdict};
use ropewalk_tools::RunIndex;
use ropewalk_wire::message::AcknowledgeEntry;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// More than can be built before the last moment.
const EVENTS: u64 = 1 << 20;
/// The latest time after the start of the front ends at which all processes are dead, in milliseconds.
const LONGEST: u64 = 500;
const BUILDERS: [&str; 2] = ["bu0", "bu1"];
/// Two streams that share the accepted events, and two filter processes at each builder unit.
const STREAMS: &str = "[[stream]]\nname = \"odd\"\ntriggers = [0]\n[[stream]]\nname = \"even\"\ntriggers = [1]\n";

/// The number of tried moments.
fn kills() -> u64 {
    std::env::var("ROPEWALK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// A run whose event manager is reached over a relay that records acknowledgements.
fn cluster(seed: u64, has_filters: bool) -> Cluster {
    let write = ["buffered", "direct", "auto"][seed as usize % 3];
    let mut setup = Setup::new("all-killed", &[841, 843]).another_builder();
    setup = setup.and(&format!("[storage]\nwrite = \"{write}\"\n"));
    if has_filters {
        let library = compile(setup.directory(), &[]);
        let filter = format!("[filter]\nlibrary = {library:?}\nunits = 2\nrestart_delay = \"5ms\"\nrestarts = 1000\n");
        setup = setup.and(&filter).and(STREAMS);
    }
    let mut cluster = Cluster::new(setup).with_relay("manager", Tampering::Remember);
    cluster.start("manager", &[]);
    cluster.start("ru0", &[]);
    BUILDERS.iter().for_each(|builder| cluster.start(builder, &[]));
    cluster
}

/// Kills every process, one right after the other, in a random order.
fn kill_all(cluster: &mut Cluster, random: &mut Random) {
    let filters: Vec<_> = BUILDERS.iter().flat_map(|builder| children(cluster.node(builder).id())).collect();
    let mut nodes = vec!["manager", "ru0", "bu0", "bu1"];
    let order: Vec<_> = (1..=nodes.len() as u64).rev().map(|left| nodes.remove(random.below(left) as usize)).collect();
    let filters_first = random.below(2) == 0;
    let kill_filters = || {
        for filter in filters.iter().filter_map(|&filter| Pid::from_raw(filter)) {
            // Fails if the process has ended meanwhile.
            let _ = kill_process(filter, Signal::KILL);
        }
    };
    if filters_first {
        kill_filters();
    }
    order.iter().for_each(|node| cluster.kill(node));
}

/// The keys that builder units acknowledged as written and kept, and the number of all acknowledgements.
fn acknowledged(cluster: &Cluster) -> (BTreeSet<u64>, usize) {
    let messages = cluster.relay("manager").acknowledged();
    assert!(messages.iter().all(|message| message.level == AcknowledgementLevel::Written), "as it is configured");
    let entries: Vec<AcknowledgeEntry> = messages.iter().flat_map(|message| message.entries.iter().copied()).collect();
    let kept = entries.iter().filter(|entry| entry.ending.verdict != Verdict::Rejected);
    (kept.map(|entry| entry.key.number()).collect(), entries.len())
}

/// The number of fragments of each event in the files, from the index with one copy per key and stream.
fn found(directories: &[PathBuf]) -> BTreeMap<u64, usize> {
    let index = RunIndex::build(directories).expect("what was recovered can be read");
    let mut reader = index.reader();
    let mut found = BTreeMap::new();
    while let Some(event) = reader.next_event().expect("what was recovered can be read") {
        let sources = event.event.fragments().filter(|one| [841, 843].contains(&one.entry.source.0)).count();
        let before = found.insert(event.event.key().number(), sources);
        assert!(before.is_none(), "event {} came twice from an index of one copy", event.event.key());
    }
    found
}

/// Takes one run, whose end the seed determines; returns the number of acknowledgements from its builder units.
fn kill_a_run(seed: u64, has_filters: bool) -> usize {
    let mut random = Random::new(seed);
    let mut cluster = cluster(seed, has_filters);
    let address = cluster.front_end_address("ru0");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id).with_size(1000));
    let moment = Duration::from_micros(random.below(LONGEST * 1000));
    std::thread::scope(|scope| {
        for front_end in &mut front_ends {
            scope.spawn(|| front_end.send_until_closed(1..=EVENTS, Duration::ZERO));
        }
        std::thread::sleep(moment);
        kill_all(&mut cluster, &mut random);
    });
    let directories = BUILDERS.map(|builder| cluster.run_directory(builder)).into_iter();
    let directories: Vec<_> = directories.filter(|directory| directory.exists()).collect();
    for directory in &directories {
        Program::run(["recover".as_ref(), directory.as_os_str()]).expect_status(0);
    }
    // Everything in flight when its builder unit died has arrived by now: recovering took longer.
    let (kept, all) = acknowledged(&cluster);
    let has_files = |directory: &PathBuf| std::fs::read_dir(directory).is_ok_and(|mut files| files.next().is_some());
    let directories: Vec<_> = directories.into_iter().filter(has_files).collect();
    let found = if directories.is_empty() { BTreeMap::new() } else { found(&directories) };
    let lost: Vec<_> = kept.iter().filter(|number| found.get(number) != Some(&2)).collect();
    assert!(lost.is_empty(), "seed {seed}, after {moment:?}: acknowledged and not there, or not whole: {lost:?}");
    all
}

#[test]
fn what_was_acknowledged_outlives_the_death_of_every_process() {
    let acknowledged: usize = (0..kills()).map(|seed| kill_a_run(seed, false)).sum();
    assert!(acknowledged > 0, "nothing was written before the kill");
    eprintln!("{acknowledged} events were acknowledged");
}

/// Rejected events are acknowledged without a file; accepted ones are in the file of their stream.
#[test]
fn with_filters_and_streams_as_well() {
    let acknowledged: usize = (1000..1000 + kills()).map(|seed| kill_a_run(seed, true)).sum();
    assert!(acknowledged > 0, "nothing was decided before the kill");
    eprintln!("{acknowledged} events were acknowledged");
}
