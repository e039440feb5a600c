//! One process per node.

use crate::cluster::Cluster;
use crate::support::{FrontEnd, Held, Setup, Tampering, expect_everything, lost, wait_for};
use ropewalk_terms::Cause;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The bytes of the files in a directory; 0 while it is not there.
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

/// The account of the run, not the readout unit itself, finds out.
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

/// What it held is lost with it and is named; the run goes on without it and ends.
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
    // What it last reported is what is known of it after its death; it reports every 100 ms.
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
