//! The event manager's process is killed with -9 in mid-run, and another one takes the run over: every event is in the
//! files exactly once, and the account is the account of the whole run.

use crate::cluster::Cluster;
use crate::process::Program;
use crate::support::{FrontEnd, Held, Random, Setup, expect_everything, free_port, wait_for};
use std::time::Duration;

const EVENTS: u64 = 2000;
/// About how long the front ends take to send them, in milliseconds.
const SENDING: u64 = 300;

/// Sends all but the last event, in steps of twelve.
fn send_most(front_end: &mut FrontEnd) {
    for first in (1..EVENTS).step_by(12) {
        front_end.send(first..(first + 12).min(EVENTS));
        std::thread::sleep(Duration::from_micros(SENDING * 1000 * 12 / EVENTS));
    }
}

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

/// The run ends in order, and its files hold every event once, by the program's word and by the referee's.
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
    assert_eq!(left, ["configuration.toml", "run.json"], "what managers left for each other is gone");
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

/// Nobody is there for a while: the front ends wait, and what is in work is built.
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

/// The one that takes over may be told to stop, as any other.
#[test]
fn a_run_that_was_taken_over_stops_when_it_is_told_to() {
    let mut cluster = cluster("manager-stopped", &["--json"]);
    let mut front_ends = front_ends(&mut cluster);
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=EVENTS / 2));
    cluster.kill("manager");
    cluster.start("manager", &["--take-over", "--json"]);
    front_ends.iter_mut().for_each(|front_end| front_end.send(EVENTS / 2 + 1..=EVENTS));
    cluster.node("manager").expect_error_line_with("  2,000 events");
    cluster.node("manager").interrupt();
    expect_once(&mut cluster, &front_ends);
}

/// It was thought dead. When it wakes up it hears of the other one, leaves the run alone and says so.
#[test]
fn an_event_manager_that_was_only_asleep_does_no_harm() {
    // Another event manager's address must be known to all.
    let port = free_port();
    let setup = Setup::new("asleep", &[841]).another_readout().source("id = 843\nreadout = \"ru1\"").another_builder();
    let setup = setup.and(&format!("[manager]\nstandby = [\"127.0.0.1:{port}\"]\n"));
    let mut cluster = begun(setup, &["--events", &EVENTS.to_string(), "--json"]);
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
    // They call five times a second.
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
