//! Units that are killed.

use crate::cluster::Cluster;
use crate::process::Program;
use crate::support::{FrontEnd, Held, Random, Setup, Tampering, expect_everything, wait_for};
use std::time::Duration;

const EVENTS: u64 = 2000;
/// About how long the front ends take to send them, in milliseconds.
const SENDING: u64 = 300;

/// How many moments each test tries; `ROPEWALK_KILLS` says how many where somebody wants more.
fn kills() -> u64 {
    std::env::var("ROPEWALK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Sends all but the last event, in steps of twelve.
fn send_most(front_end: &mut FrontEnd) {
    for first in (1..EVENTS).step_by(12) {
        front_end.send(first..(first + 12).min(EVENTS));
        std::thread::sleep(Duration::from_micros(SENDING * 1000 * 12 / EVENTS));
    }
}

/// One run with these builder units, one of which is killed at a moment that the seed chooses; where it is the only
/// one, it is started again.
fn kill_one(seed: u64, builders: &[&str]) {
    let mut random = Random::new(seed);
    let victim = builders[random.below(builders.len() as u64) as usize];
    let moment = Duration::from_micros(random.below(SENDING * 1000));
    eprintln!("seed {seed}: {victim} is killed after {moment:?}");
    let setup = Setup::new("killed", &[841, 843]);
    let mut cluster = Cluster::new(if builders.len() == 2 { setup.another_builder() } else { setup });
    cluster.start("manager", &["--events", &EVENTS.to_string(), "--json"]);
    cluster.start("ru0", &[]);
    builders.iter().for_each(|builder| cluster.start(builder, &[]));
    let address = cluster.front_end_address("ru0");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    std::thread::scope(|scope| {
        for front_end in &mut front_ends {
            scope.spawn(|| send_most(front_end));
        }
        std::thread::sleep(moment);
        cluster.kill(victim);
        if builders.len() == 1 {
            cluster.start(victim, &[]);
        }
    });
    // The run must not be over before the builder unit is killed.
    front_ends.iter_mut().for_each(|front_end| front_end.send([EVENTS]));
    let account = cluster.take("manager").end().expect_status(0).account();
    assert_eq!((&account["events"]["built"], &account["events"]["assigned"]), (&EVENTS.into(), &EVENTS.into()));
    cluster.take("ru0").end().expect_status(0);
    for builder in builders.iter().filter(|builder| builders.len() == 1 || **builder != victim) {
        cluster.take(builder).end().expect_status(0);
    }
    expect_union(&cluster, victim, &front_ends);
}

/// The directories of the builder units hold each event once, by the program's word and by the referee's.
fn expect_union(cluster: &Cluster, victim: &str, front_ends: &[FrontEnd; 2]) {
    // One that was killed before the run began has no directory.
    let directories = ["bu0", "bu1"].map(|builder| cluster.run_directory(builder)).into_iter();
    let directories: Vec<_> = directories.filter(|directory| directory.exists()).collect();
    let killed = cluster.run_directory(victim);
    if killed.exists() {
        Program::run(["recover".as_ref(), killed.as_os_str()]).expect_status(0);
    }
    let arguments = directories.iter().map(|directory| directory.as_os_str());
    let verified = Program::run(["verify".as_ref(), "--json".as_ref()].into_iter().chain(arguments));
    let report = verified.expect_status(0).account();
    let counts = ["events", "fragments", "gaps", "incomplete", "crc_errors"].map(|field| report[field].as_u64());
    assert_eq!(counts, [EVENTS, 2 * EVENTS, 0, 0, 0].map(Some), "{report:#}");
    expect_everything(&front_ends.each_ref(), &Held::in_directories(&directories), EVENTS);
}

#[test]
fn a_killed_builder_unit_costs_nothing_while_another_lives() {
    (1..=kills()).for_each(|seed| kill_one(seed, &["bu0", "bu1"]));
}

/// More moments, on another thread.
#[test]
fn a_killed_builder_unit_costs_nothing_at_other_moments() {
    (1001..=1000 + kills()).for_each(|seed| kill_one(seed, &["bu0", "bu1"]));
}

/// Nobody else could build what it had, so that the run ends only because it takes part again.
#[test]
fn the_only_builder_unit_may_be_killed_and_come_back() {
    (2001..=2000 + kills()).for_each(|seed| kill_one(seed, &["bu0"]));
}

#[test]
fn a_run_ends_where_a_readout_unit_dies_while_its_sources_leave() {
    let setup = Setup::new("readout-killed", &[841, 843]);
    let run = format!("[run]\noutput = {:?}\nsync = \"never\"\nuntil_sources_end = true\n", setup.output());
    let mut cluster = Cluster::new(setup.and(&run)).with_relay("ru0", Tampering::None);
    cluster.start("manager", &["--json"]);
    cluster.start("ru0", &[]);
    cluster.start("bu0", &[]);
    let address = cluster.front_end_address("ru0");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=500));
    let directory = cluster.run_directory("bu0");
    wait_for("events in a file", || {
        let files = std::fs::read_dir(&directory).ok()?;
        let bytes: u64 = files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len()).sum();
        (bytes > 100_000).then_some(())
    });
    // The readout unit has told that its sources came.
    std::thread::sleep(Duration::from_secs(2));
    cluster.kill("ru0");
    drop(front_ends);
    cluster.start("ru0", &[]);
    let account = cluster.take("manager").end().account();
    assert_eq!((&account["state"], &account["ledger"]["balanced"]), (&"ended".into(), &true.into()), "{account:#}");
    cluster.take("ru0").end().expect_status(0);
    cluster.take("bu0").end().expect_status(0);
}
