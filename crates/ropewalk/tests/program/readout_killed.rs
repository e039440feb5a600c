//! A readout unit is killed with -9 while its sources leave: their end is never reported, and the run still ends.

use crate::cluster::Cluster;
use crate::support::{FrontEnd, Setup, Tampering, wait_for};
use std::time::Duration;

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
