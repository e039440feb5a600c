//! Staged faults that leave every connection open: nodes that hang, a run that is stopped while its disk is full, and
//! the time between two runs, in which nodes are absent on purpose.

use crate::cluster::Cluster;
use crate::control::Controlled;
use crate::process::Program;
use crate::quality::{Shift, expect_remark, setup};
use crate::support::{FrontEnd, Setup, SmallDisk, wait_for};
use serde_json::Value;
use std::time::{Duration, Instant};

/// An operator must learn of a hung node within this time.
const WITHIN: Duration = Duration::from_secs(10);

/// A run of one process per node, in which twenty events were built.
fn shift(name: &str) -> (Cluster, Shift) {
    let mut cluster = Cluster::new(setup(name));
    cluster.start("manager", &["--control", "127.0.0.1:0", "--json"]);
    ["ru0", "bu0"].into_iter().for_each(|name| cluster.start(name, &[]));
    let address = cluster.front_end_address("ru0");
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    let mut shift = Shift::over(Controlled { program: cluster.take("manager"), url }, &address, &[841, 843]);
    shift.send_all(1..=20);
    wait_for("twenty events", || (shift.get("/api/v1/quality")["complete"]["total"] == 20).then_some(()));
    (cluster, shift)
}

/// Checks that the alarm comes in time, that limit, journal and table of units name the node, and that it ends when the
/// node wakes up.
fn expect_named(cluster: &mut Cluster, shift: &mut Shift, node: &str, fault: &str) {
    let words = format!("{node} has not reported for ");
    assert!(shift.alarm("node_silent").starts_with(&words));
    assert!(shift.begun.elapsed() < WITHIN, "{:?}", shift.begun.elapsed());
    shift.see(fault);
    let limit = shift.controlled.good("limit");
    assert_eq!((&limit["kind"], &limit["subject"]), (&"node_silent".into(), &node.into()), "{limit:#}");
    let journal = shift.get("/api/v1/journal").to_string();
    assert!(journal.contains(&format!("alarm node_silent: {words}")), "{journal}");
    let units = shift.get("/api/v1/nodes");
    let silent = units.as_array().expect("a list").iter().filter(|one| one["silent"] == true);
    assert_eq!(silent.map(|one| &one["name"]).collect::<Vec<_>>(), [node], "{units:#}");
    // Nothing is built: the sentence of that alarm names the node too.
    let dead = shift.alarm("data_acquisition_dead");
    assert!(dead.contains(&words) && !dead.contains("not limited"), "{dead}");
    cluster.node(node).wake();
    wait_for("the end of the alarm", || {
        let problems = shift.get("/api/v1/quality")["problems"].clone();
        let mut problems = problems.as_array().expect("a list").iter();
        problems.all(|one| one["kind"] != "node_silent" || one["is_current"] == false).then_some(())
    });
    wait_for("the limit without it", || (shift.controlled.good("limit")["kind"] != "node_silent").then_some(()));
}

#[test]
fn a_readout_unit_that_hangs_is_named() {
    let (mut cluster, mut shift) = shift("hung-readout");
    cluster.node("ru0").pause();
    shift.begun = Instant::now();
    expect_named(&mut cluster, &mut shift, "ru0", "readout unit hangs");
    shift.send_all(21..=40);
    shift.end_of("readout unit hangs");
}

#[test]
fn a_builder_unit_that_hangs_is_named() {
    let (mut cluster, mut shift) = shift("hung-builder");
    cluster.node("bu0").pause();
    shift.begun = Instant::now();
    let mut front_ends = std::mem::take(&mut shift.front_ends);
    std::thread::scope(|scope| {
        for front_end in &mut front_ends {
            scope.spawn(move || front_end.send_slowly(21..=520, Duration::from_millis(40)));
        }
        expect_named(&mut cluster, &mut shift, "bu0", "builder unit hangs");
    });
    shift.end_of("builder unit hangs");
}

/// The alarm stays while the run stops, and unwritten data is named with the builder unit and its directory.
#[test]
fn a_stop_with_a_full_disk_says_what_is_dropped() {
    let setup = Setup::new("quality-full-stop", &[841, 843]).timeouts(["1s", "2s", "3s", "10s"]);
    // The account fits on the disk.
    let data = setup.directory().join("data");
    let setup = setup.builder(&format!("bytes = \"4MiB\"\nevents = 256\noutput = {data:?}\n"));
    let setup = setup.and("[storage]\nstart_free = \"0\"\n");
    let Some(_disk) = SmallDisk::mount(&data) else {
        return ropewalk_tidy::skipped("hung::a_stop_with_a_full_disk_says_what_is_dropped", "may not mount");
    };
    let mut shift = Shift::begin(&setup, &[841, 843]);
    shift.send_all(1..=20);
    std::fs::write(data.join("others"), vec![7; 9 << 20]).expect_err("8 MiB are there");
    shift.send_all(21..=50);
    shift.alarm("disk_full");
    shift.begun = Instant::now();
    shift.controlled.program.interrupt();
    let directory = data.display().to_string();
    let words = format!("stopping: bu0 cannot write to {directory}: no space left");
    wait_for("what the stop waits for", || {
        let live = shift.get("/api/v1/live");
        let begins = |one: &Value| one["sentence"].as_str().is_some_and(|one| one.starts_with(&words));
        let mut alarms = live["alarms"].as_array().expect("a list").iter();
        let is_active = alarms.any(|one| one["name"] == "disk_full" && one["state"] == "active" && begins(one));
        (is_active && begins(&live["limit"])).then_some(())
    });
    // It was stopped already.
    let ended = shift.controlled.program.end();
    ended.expect_status(3);
    expect_remark(&ended, &format!("bu0 ({directory}) did not write "));
    let is_status = |line: &str| line.starts_with("exit status 3: ") && line.contains("bu0 (");
    assert!(ended.errors.lines().any(is_status), "{ended:#?}");
}

/// Units leave at the end of a run, and join the next one some seconds later.
#[test]
fn an_ordinary_stop_raises_no_alarm_and_a_start_behind_it_says_that_it_waits() {
    let mut cluster = Cluster::new(setup("between-runs"));
    cluster.start("manager", &["--control", "127.0.0.1:0", "--json", "--then", "wait"]);
    ["ru0", "bu0"].into_iter().for_each(|name| cluster.start(name, &["--then", "next"]));
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    let ask = |words: &[&str]| Program::run(["ctl"].iter().chain(words).copied().chain(["--url", &url, "--json"]));
    for run in 1..=2 {
        let address = cluster.front_end_address_in("ru0", run);
        let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
        front_ends.iter_mut().for_each(|front_end| front_end.send(1..=20));
        wait_for("20 events", || (ask(&["ledger"]).account()["events"]["written"] == 20).then_some(()));
        ask(&["stop"]).expect_status(0);
        let started = ask(&["start"]);
        for line in started.expect_status(0).errors.lines().filter(|line| line.starts_with("not done yet: ")) {
            assert!(!line.contains("start the node"), "{line}");
        }
    }
    let journal = ask(&["journal"]).account().to_string();
    assert!(!journal.contains("alarm node_missing"), "{journal}");
    let alarms = ask(&["alarms"]).account();
    let missing = alarms.as_array().expect("a list").iter().find(|alarm| alarm["name"] == "node_missing");
    assert_eq!(missing.expect("it is built in")["state"], "normal", "{alarms:#}");
    ask(&["shutdown"]);
    cluster.take("manager").end();
    for name in ["ru0", "bu0"] {
        cluster.kill(name);
    }
}
