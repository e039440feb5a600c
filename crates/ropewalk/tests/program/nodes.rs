//! One process per node: units that are killed with -9 in mid-run, and event managers that are replaced. Every event is
//! in the files exactly once, and the account is that of the whole run.

use crate::cluster::Cluster;
use crate::process::Program;
use crate::support::{FrontEnd, Held, Random, Setup, Tampering, expect_everything, free_port, lost, wait_for};
use ropewalk_terms::Cause;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const EVENTS: u64 = 2000;
/// The approximate time in which the front ends send them, in milliseconds.
const SENDING: u64 = 300;

/// Sends all but the last event, in steps of twelve.
fn send_most(front_end: &mut FrontEnd) {
    for first in (1..EVENTS).step_by(12) {
        front_end.send(first..(first + 12).min(EVENTS));
        std::thread::sleep(Duration::from_micros(SENDING * 1000 * 12 / EVENTS));
    }
}

// ---- units

/// The bytes of the files in a directory; 0 if it does not exist.
fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[test]
fn nodes_may_be_started_in_any_order() {
    for order in [["bu0", "ru0", "manager"], ["ru0", "manager", "bu0"], ["manager", "bu0", "ru0"]] {
        let setup = Setup::new("order", &[841, 843]);
        let mut cluster = Cluster::new(setup).with_relay("manager", Tampering::None).with_relay("ru0", Tampering::None);
        for name in order {
            cluster.start(name, if name == "manager" { &["--events", "300", "--json"] } else { &[] });
        }
        let address = cluster.front_end_address("ru0");
        let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
        for front_end in &mut front_ends {
            front_end.send(1..=300);
        }
        for name in ["manager", "ru0", "bu0"] {
            cluster.take(name).end().expect_status(0);
        }
        let held = Held::in_directories(&[cluster.run_directory("bu0")]);
        expect_everything(&front_ends.each_ref(), &held, 300);
    }
}

/// The account of the run detects it, not the readout unit itself.
#[test]
fn a_fragment_that_is_lost_and_not_counted_makes_the_exit_status_1() {
    let setup = Setup::new("planted", &[841, 843]);
    let mut cluster = Cluster::new(setup).with_relay("manager", Tampering::ForgetOneFragment);
    cluster.start("manager", &["--events", "100", "--json"]);
    cluster.start("ru0", &[]);
    cluster.start("bu0", &[]);
    let address = cluster.front_end_address("ru0");
    for id in [841, 843] {
        FrontEnd::ferol(&address, id).send(1..=100);
    }
    let ended = cluster.take("manager").end();
    let account = ended.expect_status(1).account();
    assert_eq!(account["ledger"]["balanced"], false, "{account:#}");
    let unbalanced = account["ledger"]["unbalanced"].as_array().expect("an array");
    let difference = |side: &str| unbalanced[0][side].as_u64().expect("a number");
    assert_eq!((unbalanced.len(), difference("left").abs_diff(difference("right"))), (1, 1), "{account:#}");
}

/// Its data is lost with it and is named; the run continues without it and ends.
#[test]
fn a_killed_readout_unit_is_named_and_the_run_goes_on() {
    let setup = Setup::new("readout-killed", &[841]).another_readout().source("id = 843\nreadout = \"ru1\"");
    let mut cluster = Cluster::new(setup);
    cluster.start("manager", &["--events", "300", "--json"]);
    cluster.start("ru0", &[]);
    cluster.start("ru1", &[]);
    cluster.start("bu0", &[]);
    let mut stays = FrontEnd::ferol(&cluster.front_end_address("ru0"), 841).with_size(1024);
    let mut goes = FrontEnd::ferol(&cluster.front_end_address("ru1"), 843).with_size(1024);
    stays.send(1..=100);
    goes.send(1..=200);
    let directory = cluster.run_directory("bu0");
    wait_for("the first 100 events in a file", || (bytes_in(&directory) > 100 * 2048).then_some(()));
    // After its death only its last report is known; it reports every 100 ms.
    std::thread::sleep(Duration::from_millis(500));
    cluster.kill("ru1");
    stays.send(101..=300);
    let ended = cluster.take("manager").end();
    let account = ended.expect_status(3).account();
    assert_eq!(account["fragments"]["dropped"][Cause::ReadoutLost.name()], 100, "{account:#}");
    assert_eq!((&account["events"]["built"], &account["events"]["incomplete_emitted"]), (&100.into(), &200.into()));
    for name in ["ru0", "bu0"] {
        cluster.take(name).end().expect_status(0);
    }
    let held = Held::in_directories(&[directory]);
    held.expect_keys_up_to(300);
    held.expect_missing(843, 101..=300, Cause::ReadoutLost);
    assert_eq!(lost(&[&stays, &goes], &held), (101..=200).map(|event| (843, event)).collect::<BTreeSet<_>>());
}

/// Number of moments that each test tries; `ROPEWALK_KILLS` sets another number.
fn kills() -> u64 {
    std::env::var("ROPEWALK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Takes one run with these builder units, one of which is killed at a random moment; if it is the only one, it is
/// restarted.
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

/// Checks that the directories of the builder units hold each event once, by the program and by the referee.
fn expect_union(cluster: &Cluster, victim: &str, front_ends: &[FrontEnd; 2]) {
    // A unit that was killed before the run began has no directory.
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

/// No other unit could build its events: the run ends only because the unit takes part again.
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
    // By now the readout unit has reported its connected sources.
    std::thread::sleep(Duration::from_secs(2));
    cluster.kill("ru0");
    drop(front_ends);
    cluster.start("ru0", &[]);
    let account = cluster.take("manager").end().account();
    assert_eq!((&account["state"], &account["ledger"]["balanced"]), (&"ended".into(), &true.into()), "{account:#}");
    cluster.take("ru0").end().expect_status(0);
    cluster.take("bu0").end().expect_status(0);
}

#[test]
fn the_advice_after_a_run_that_did_not_begin_is_on_nodes() {
    let mut cluster = Cluster::new(Setup::new("never-began", &[841]));
    cluster.start("manager", &[]);
    cluster.start("ru0", &[]);
    let manager = cluster.take("manager");
    manager.interrupt();
    let ended = manager.end();
    assert!(ended.out.iter().any(|line| line.contains("ledger")), "{ended:#?}");
    assert!(ended.errors.contains("advice: the run did not begin: start all nodes"), "{ended:#?}");
    assert!(!ended.errors.contains("is the board on"), "{ended:#?}");
}

// ---- event managers

/// A run of two readout and two builder units that waits for its front ends.
fn cluster(name: &str, manager: &[&str]) -> Cluster {
    let setup = Setup::new(name, &[841]).another_readout().source("id = 843\nreadout = \"ru1\"").another_builder();
    begun(setup, manager)
}

fn begun(setup: Setup, manager: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(setup);
    cluster.start("manager", manager);
    for unit in ["ru0", "ru1", "bu0", "bu1"] {
        cluster.start(unit, &[]);
    }
    let begun = cluster.run_directory("bu0");
    wait_for("the run to begin", || begun.exists().then_some(()));
    cluster
}

fn front_ends(cluster: &mut Cluster) -> [FrontEnd; 2] {
    [(841, "ru0"), (843, "ru1")].map(|(id, readout)| FrontEnd::ferol(&cluster.front_end_address(readout), id))
}

/// Checks that the run ends in order, and that its files hold every event once, by the program and by the referee.
fn expect_once(cluster: &mut Cluster, front_ends: &[FrontEnd; 2]) {
    let account = cluster.take("manager").end().expect_status(0).account();
    let counts = ["assigned", "built", "accepted", "written"].map(|field| account["events"][field].as_u64());
    assert_eq!(counts, [Some(EVENTS); 4], "{account:#}");
    assert_eq!(account["fragments"]["received"], 2 * EVENTS, "{account:#}");
    for unit in ["ru0", "ru1", "bu0", "bu1"] {
        cluster.take(unit).end().expect_status(0);
    }
    let directories = ["bu0", "bu1"].map(|builder| cluster.run_directory(builder));
    let arguments = directories.iter().map(|directory| directory.as_os_str());
    let verified = Program::run(["verify".as_ref(), "--json".as_ref()].into_iter().chain(arguments));
    let report = verified.expect_status(0).account();
    let counts = ["events", "fragments", "gaps", "incomplete", "duplicates"].map(|field| report[field].as_u64());
    assert_eq!(counts, [EVENTS, 2 * EVENTS, 0, 0, 0].map(Some), "{report:#}");
    expect_everything(&front_ends.each_ref(), &Held::in_directories(&directories), EVENTS);
    let mut left: Vec<_> = std::fs::read_dir(cluster.run_directory("manager"))
        .expect("the run has a directory")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("a name in UTF-8"))
        .collect();
    left.sort_unstable();
    let successors = left.extract_if(.., |name| name.starts_with("manager-")).count();
    assert_eq!(left, ["configuration.toml", "run.json"]);
    assert!(successors <= 1, "only the epoch of the last event manager is kept");
}

fn kill_and_replace(seed: u64, times: u64) {
    let mut random = Random::new(seed);
    let mut cluster = cluster("manager-killed", &["--events", &EVENTS.to_string(), "--json"]);
    let mut front_ends = front_ends(&mut cluster);
    std::thread::scope(|scope| {
        for front_end in &mut front_ends {
            scope.spawn(|| send_most(front_end));
        }
        for _ in 0..times {
            let moment = Duration::from_micros(random.below(SENDING * 1000 / times));
            eprintln!("seed {seed}: the event manager is killed after {moment:?}");
            std::thread::sleep(moment);
            let address = cluster.address("manager").to_owned();
            cluster.kill("manager");
            cluster.start("manager", &["--take-over", "--json"]);
            assert_eq!(cluster.address("manager"), address, "where the nodes call it");
        }
    });
    // The run must not be over before the event manager is killed.
    front_ends.iter_mut().for_each(|front_end| front_end.send([EVENTS]));
    expect_once(&mut cluster, &front_ends);
}

#[test]
fn a_killed_event_manager_is_replaced_and_nothing_is_lost() {
    (1..=4).for_each(|seed| kill_and_replace(seed, 1));
}

#[test]
fn successors_may_be_killed_too() {
    kill_and_replace(1001, 3);
}

/// For a while there is no manager: the front ends wait, and events in work are built.
#[test]
fn a_run_waits_for_its_next_event_manager() {
    let mut cluster = cluster("manager-late", &["--events", &EVENTS.to_string(), "--json"]);
    let mut front_ends = front_ends(&mut cluster);
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=EVENTS / 2));
    cluster.kill("manager");
    front_ends.iter_mut().for_each(|front_end| front_end.send(EVENTS / 2 + 1..=EVENTS));
    std::thread::sleep(Duration::from_millis(700));
    cluster.start("manager", &["--take-over", "--json"]);
    expect_once(&mut cluster, &front_ends);
}

/// An event manager that took over can be stopped like any other.
#[test]
fn a_run_that_was_taken_over_stops_at_a_signal() {
    let mut cluster = cluster("manager-stopped", &["--json"]);
    let mut front_ends = front_ends(&mut cluster);
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=EVENTS / 2));
    cluster.kill("manager");
    cluster.start("manager", &["--take-over", "--json"]);
    cluster.node("manager").expect_error_line_with("took over run 1 (epoch ");
    front_ends.iter_mut().for_each(|front_end| front_end.send(EVENTS / 2 + 1..=EVENTS));
    cluster.node("manager").expect_error_line_with("  2,000 events");
    cluster.node("manager").interrupt();
    expect_once(&mut cluster, &front_ends);
}

/// It was thought dead. When it wakes up it learns of its successor, leaves the run alone and reports so.
#[test]
fn an_event_manager_that_was_only_asleep_does_no_harm() {
    asleep("asleep", &[]);
    asleep("asleep-controlled", &["--control", "127.0.0.1:0"]);
}

/// The event manager has these additional options.
fn asleep(test: &str, options: &[&str]) {
    // Another event manager's address must be known to all.
    let port = free_port();
    let setup = Setup::new(test, &[841]).another_readout().source("id = 843\nreadout = \"ru1\"").another_builder();
    let setup = setup.and(&format!("[manager]\nstandby = [\"127.0.0.1:{port}\"]\n"));
    let mut cluster = begun(setup, &[&["--events", &EVENTS.to_string(), "--json"][..], options].concat());
    let mut front_ends = front_ends(&mut cluster);
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=EVENTS / 2));
    let asleep = cluster.take("manager");
    asleep.pause();
    cluster.start("manager", &["--name", "manager2", "--take-over", "--json"]);
    front_ends.iter_mut().for_each(|front_end| front_end.send(EVENTS / 2 + 1..EVENTS));
    cluster.node("manager").expect_error_line_with("  1,999 events");
    asleep.wake();
    let ended = asleep.end();
    assert!(ended.expect_status(2).errors.contains("it obeys a younger event manager"), "{ended:#?}");
    front_ends.iter_mut().for_each(|front_end| front_end.send([EVENTS]));
    expect_once(&mut cluster, &front_ends);
}

/// Its nodes take no part in another run, and wait.
#[test]
fn a_run_that_lost_its_event_manager_outlives_one_that_was_begun_by_mistake() {
    let mut cluster = cluster("manager-mistaken", &["--events", &EVENTS.to_string(), "--json"]);
    let mut front_ends = front_ends(&mut cluster);
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=EVENTS / 2));
    cluster.kill("manager");
    cluster.start("manager", &["--json"]);
    cluster.node("manager").expect_error_line_with("has lost its event manager; if its nodes still wait, end this one");
    // They connect five times a second.
    std::thread::sleep(Duration::from_millis(700));
    cluster.node("manager").interrupt();
    cluster.take("manager").end();
    cluster.start("manager", &["--take-over", "--json"]);
    front_ends.iter_mut().for_each(|front_end| front_end.send(EVENTS / 2 + 1..=EVENTS));
    expect_once(&mut cluster, &front_ends);
}

#[test]
fn where_no_run_has_lost_its_event_manager_there_is_nothing_to_take_over() {
    let setup = Setup::new("nothing", &[841]);
    let file = setup.file();
    let output = setup.directory().join("empty");
    let node = |role: &str, more: &[&str]| {
        let arguments = ["node".as_ref(), role.as_ref(), file.as_os_str(), "--output".as_ref(), output.as_os_str()];
        Program::run(arguments.into_iter().chain(more.iter().map(AsRef::as_ref)))
    };
    let ended = node("manager", &["--take-over"]);
    assert!(ended.expect_status(2).errors.contains("no run in it has lost its event manager"), "{ended:#?}");
    let ended = node("manager", &["--take-over", "--events", "5"]);
    assert!(ended.expect_status(2).errors.contains("leave out --events"), "{ended:#?}");
    let ended = node("builder", &["--name", "bu0", "--take-over"]);
    assert!(ended.expect_status(2).errors.contains("for the event manager"), "{ended:#?}");
}
