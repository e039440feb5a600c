//! The account of a run against its files, number by number, by a referee that shares no code with the product
//! (`tests/referee.py` of the repository), of the data that `tests/sender.py` sent. Meanwhile processes are stopped and
//! killed, files are deleted, and connections are cut.
//! deleted, and connections are cut.

use crate::cluster::Cluster;
use crate::process::Program;
use crate::support::{Setup, Tampering, wait_for};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name)
}

/// A front end; killed when it is dropped.
struct Sender(Child);

impl Sender {
    fn start(address: &str, source: u32, last: u64, more: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command.arg(script("sender.py")).arg(address).args([&source.to_string(), "1", &last.to_string()]);
        Self(command.args(more).spawn().expect("python3 is there"))
    }

    /// Starts front ends that begin to send at the same time.
    fn start_together(orders: impl IntoIterator<Item = (String, u32)>, last: u64, more: &[&str]) -> Vec<Self> {
        let start = |(address, source): (String, u32)| {
            let mut command = Command::new("python3");
            command.arg(script("sender.py")).arg(address).args([&source.to_string(), "1", &last.to_string(), "--wait"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            Self(command.args(more).spawn().expect("python3 is there"))
        };
        let mut senders: Vec<_> = orders.into_iter().map(start).collect();
        for Self(sender) in &mut senders {
            let said = sender.stdout.as_mut().expect("it is piped");
            let count = BufReader::new(said).read_line(&mut String::new()).expect("it is text");
            assert!(count > 0, "a front end could not connect");
        }
        // A sender starts when its input ends.
        senders.iter_mut().for_each(|Self(sender)| drop(sender.stdin.take()));
        senders
    }

    fn end(mut self) {
        assert!(self.0.wait().expect("it is our child").success(), "a front end failed");
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The referee's result, which must agree with the account.
#[track_caller]
fn judge(account: &Path, directories: &[PathBuf]) -> Value {
    let mut command = Command::new("python3");
    let judged = command.arg(script("referee.py")).arg("--sent").arg(account).args(directories).output();
    let judged = judged.expect("python3 is there");
    let said = String::from_utf8_lossy(&judged.stdout).into_owned() + &String::from_utf8_lossy(&judged.stderr);
    assert!(judged.status.success(), "{said}\n{}", std::fs::read_to_string(account).unwrap_or_default());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn generic(setup: Setup, source: u32, readout: &str) -> Setup {
    setup.source(&format!("id = {source}\nreadout = \"{readout}\"\nformat = \"generic\""))
}

/// Two readout units with two sources each.
fn two_readouts(name: &str) -> Setup {
    let setup = Setup::new(name, &[]).another_readout();
    [(1, "ru0"), (2, "ru0"), (3, "ru1"), (4, "ru1")].iter().fold(setup, |setup, (id, unit)| generic(setup, *id, unit))
}

/// Starts all nodes; a restarted one has the same address.
fn cluster(setup: Setup, events: u64) -> Cluster {
    let mut cluster = Cluster::new(setup).with_relay("ru0", Tampering::None);
    cluster.start("manager", &["--events", &events.to_string(), "--json"]);
    ["ru0", "ru1", "bu0"].iter().for_each(|name| cluster.start(name, &[]));
    cluster
}

fn senders(cluster: &mut Cluster, events: u64, rate: &str) -> Vec<Sender> {
    let units = ["ru0", "ru0", "ru1", "ru1"].map(|unit| cluster.front_end_address(unit));
    Sender::start_together(units.into_iter().zip(1..), events, &["--rate", rate, "--again"])
}

/// Checks that the run ends with one of these statuses, and that the referee agrees with its account.
#[track_caller]
fn end(cluster: &mut Cluster, statuses: &[i32]) -> Value {
    let ended = cluster.take("manager").end();
    assert!(ended.status.is_some_and(|status| statuses.contains(&status)), "{ended:#?}");
    let account = ended.account();
    for name in ["ru0", "ru1", "bu0"] {
        cluster.take(name).end();
    }
    judge(&cluster.run_directory("manager").join("run.json"), &[cluster.run_directory("bu0")]);
    account
}

/// How many fragments are late depends on timing: each is in the record, or has a cause.
#[test]
fn a_readout_unit_that_stands_still_for_too_long_accounts_for_what_is_in_no_record() {
    const EVENTS: u64 = 3000;
    let times = ["300ms", "600ms", "1200ms", "20s\"\nunreachable = \"1s"];
    let mut cluster = cluster(two_readouts("stands-still").timeouts(times), EVENTS);
    let senders = senders(&mut cluster, EVENTS, "800");
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..2 {
        cluster.node("ru0").pause();
        std::thread::sleep(Duration::from_millis(1800));
        cluster.node("ru0").wake();
        std::thread::sleep(Duration::from_millis(300));
    }
    senders.into_iter().for_each(Sender::end);
    end(&mut cluster, &[0, 3]);
}

/// It is alive and holds the data.
#[test]
fn a_readout_unit_that_stands_still_is_waited_for_and_nothing_is_given_up() {
    const EVENTS: u64 = 900;
    let mut cluster = cluster(two_readouts("waited-for").timeouts(["1500ms", "1800ms", "2s", "20s"]), EVENTS);
    let senders = senders(&mut cluster, EVENTS, "300");
    std::thread::sleep(Duration::from_millis(500));
    cluster.node("ru0").pause();
    std::thread::sleep(Duration::from_millis(3500));
    cluster.node("ru0").wake();
    senders.into_iter().for_each(Sender::end);
    let account = end(&mut cluster, &[0]);
    assert_eq!(account["events"]["built"], EVENTS, "{account:#}");
}

#[test]
fn a_killed_builder_unit_changes_nothing_about_what_the_account_says() {
    const EVENTS: u64 = 900;
    let mut cluster = cluster(two_readouts("builder-died"), EVENTS);
    let senders = senders(&mut cluster, EVENTS, "400");
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(500));
        cluster.kill("bu0");
        cluster.start("bu0", &[]);
    }
    senders.into_iter().for_each(Sender::end);
    assert_eq!(end(&mut cluster, &[0])["events"]["built"], EVENTS);
}

/// No remaining node knows its data.
#[test]
fn after_the_deaths_of_manager_and_readout_unit_the_account_is_partial() {
    const EVENTS: u64 = 900;
    let setup = two_readouts("both-died").timeouts(["4s", "5s", "6s", "20s"]);
    let mut cluster = cluster(setup, EVENTS);
    let mut senders = senders(&mut cluster, EVENTS, "300");
    let directory = cluster.run_directory("bu0");
    let written = || {
        let files = std::fs::read_dir(&directory).into_iter().flatten().filter_map(|entry| entry.ok()?.metadata().ok());
        files.map(|metadata| metadata.len()).sum::<u64>()
    };
    // The builder unit has reported some events to the manager, and remembers them.
    wait_for("events in files", || (written() > 1 << 20).then_some(()));
    cluster.kill("ru0");
    cluster.kill("manager");
    cluster.start("manager", &["--take-over", "--json"]);
    cluster.start("ru0", &[]);
    // Its front ends restart too, and repeat events that the run is past.
    let address = cluster.front_end_address("ru0");
    let rest = senders.split_off(2);
    drop(senders);
    let again = [1, 2].map(|id| Sender::start(&address, id, EVENTS, &[]));
    rest.into_iter().chain(again).for_each(Sender::end);
    let ended = cluster.take("manager").end();
    let account = ended.expect_status(3).account();
    let partial = account["partial"].as_array().expect("an array");
    assert!(partial.len() == 1 && partial[0]["node"] == "ru0", "{account:#}");
    assert!(account["status"]["reasons"]["partial"].as_u64() == Some(1), "{account:#}");
}

/// Both closed files and the open one are deleted; the open one is written again.
#[test]
fn a_run_directory_that_is_deleted_repeatedly_costs_events_that_are_counted() {
    let setup = Setup::new("deleted", &[]);
    let output = setup.output();
    let run = format!("[run]\noutput = '{}'\nsync = \"never\"\nsegment_bytes = \"200KiB\"\n", output.display());
    let setup = generic(generic(setup.and(&run), 1, "ru0"), 2, "ru0");
    let file = setup.file();
    let mut program =
        Program::start(["run".as_ref(), file.as_os_str(), "--json".as_ref(), "--events".as_ref(), "1500".as_ref()]);
    let address = program.expect_error_line("ru0 listens on ");
    let senders = [1, 2].map(|id| Sender::start(&address, id, 1500, &["--rate", "600"]));
    let directory = output.join("run000001");
    let closed = || {
        let names = std::fs::read_dir(&directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        names.filter(|path| path.extension().is_some_and(|end| end == "rwk")).count()
    };
    for _ in 0..3 {
        wait_for("a closed file", || (closed() > 0).then_some(()));
        // Files may be created in it meanwhile.
        let _ = std::fs::remove_dir_all(&directory);
    }
    senders.into_iter().for_each(Sender::end);
    let account = program.end().expect_status(3).account();
    assert!(account["disk"]["events_gone"].as_u64() > Some(0), "{account:#}");
    let found = judge(&directory.join("run.json"), std::slice::from_ref(&directory));
    assert_eq!(
        found["events"].as_u64().zip(account["disk"]["events_gone"].as_u64()).map(|(one, other)| one + other),
        Some(1500)
    );
}

#[test]
fn connections_that_end_in_the_middle_of_fragments_are_accounted_for() {
    let setup = (1..=3).fold(Setup::new("cut-fragments", &[]), |setup, id| generic(setup, id, "ru0"));
    let (file, directory) = (setup.file(), setup.output().join("run000001"));
    let mut program =
        Program::start(["run".as_ref(), file.as_os_str(), "--json".as_ref(), "--events".as_ref(), "2000".as_ref()]);
    let address = program.expect_error_line("ru0 listens on ");
    let senders = [1, 2, 3].map(|id| Sender::start(&address, id, 2000, &["--cut"]));
    senders.into_iter().for_each(Sender::end);
    let account = program.end().expect_status(3).account();
    assert!(account["fragments"]["dropped"]["cut_short"].as_u64() > Some(0), "{account:#}");
    let found = judge(&directory.join("run.json"), std::slice::from_ref(&directory));
    assert_eq!(found["events"], 2000, "{account:#}");
}

/// The process is stopped while its sources reconnect for each event: their connections all exist when it continues,
/// and the bytes of each count, in the order of the connections.
#[test]
fn connections_that_were_made_while_the_process_stood_still_are_read_one_after_the_other() {
    const EVENTS: u64 = 20;
    let setup = (1..=3).fold(Setup::new("hopping", &[]), |setup, id| generic(setup, id, "ru0"));
    let (file, directory) = (setup.file(), setup.output().join("run000001"));
    let mut program =
        Program::start(["run".as_ref(), file.as_os_str(), "--json".as_ref(), "--events".as_ref(), "20".as_ref()]);
    let address = program.expect_error_line("ru0 listens on ");
    program.pause();
    let senders = [1, 2, 3].map(|id| Sender::start(&address, id, EVENTS, &["--hop"]));
    std::thread::sleep(Duration::from_millis(1500));
    program.wake();
    senders.into_iter().for_each(Sender::end);
    program.end().expect_status(0);
    assert_eq!(judge(&directory.join("run.json"), std::slice::from_ref(&directory))["events"], EVENTS);
}
