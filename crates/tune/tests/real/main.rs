//! Settings of the kernel changed for real, within a network namespace that has a virtual network card, and taken back:
//! the state is as before, byte for byte. And killed before every single step of it.
//!
//! What is done there is done by this program once more, started in the namespace with a /sys of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use ropewalk_io::packet::cable::{CARD, Cable};
use ropewalk_tune::cards::CardReport;
use ropewalk_tune::change::{self, Action, Foreign};
use ropewalk_tune::{Change, Form, Group, Place, Plan, Property, Setting, Settings};
use rustix::process::{Signal, getpid, kill_process};

/// Says which part of a test this program is, in the namespace.
const PART: &str = "ROPEWALK_TUNE_PART";
/// The directory of the journal and of what is told.
const DIRECTORY: &str = "ROPEWALK_TUNE_DIRECTORY";
/// Before which step it kills itself.
const KILLED_BEFORE: &str = "ROPEWALK_TUNE_KILLED_BEFORE";

/// Two cards and a cable, and a directory; both go with the value.
struct Laid {
    cable: Cable,
    directory: PathBuf,
}

impl Laid {
    fn new(test: &str) -> Option<Self> {
        let Ok(cable) = Cable::lay(1500, 4) else {
            ropewalk_tidy::skipped(test, "may not make network namespaces");
            return None;
        };
        let directory = std::env::temp_dir().join(format!("ropewalk-tune-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a temporary directory can be made");
        Some(Self { cable, directory })
    }

    /// Does a part in the namespace, killed before a step where one is given.
    fn part(&self, name: &str, killed_before: Option<usize>) -> Output {
        let program = std::env::current_exe().expect("this program has a file");
        self.cable.source.inside(|| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", "mount -t sysfs sysfs /sys && exec \"$0\" \"$@\""]);
            command.arg(program).args(["--exact", "what_is_done_in_the_namespace", "--nocapture"]);
            command.env(PART, name).env(DIRECTORY, &self.directory);
            killed_before.map(|step| command.env(KILLED_BEFORE, step.to_string()));
            command.output().expect("util-linux is there")
        })
    }

    fn good(&self, name: &str) {
        let Output { status, stderr, .. } = self.part(name, None);
        assert!(status.success(), "{name}: {}", String::from_utf8_lossy(&stderr));
    }

    /// Everything that could have changed.
    fn state(&self) -> State {
        self.good("tell");
        let read = |name: &str| fs::read(self.directory.join(name)).expect("it was told");
        State {
            files: serde_json::from_slice(&read("files")).expect("JSON"),
            card: serde_json::from_slice(&read("card")).expect("JSON"),
        }
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Every file below /proc/sys/net, the card's in /sys that can be changed, and what its driver tells.
#[derive(PartialEq, Debug)]
struct State {
    files: BTreeMap<String, String>,
    card: CardReport,
}

fn files(directory: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("the kernel knows"));
        if kind.is_dir() {
            self::files(&path, files);
        } else if kind.is_file() {
            let text = fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            files.insert(path.display().to_string(), text.unwrap_or_else(|error| error.to_string()));
        }
    }
}

/// A plan with every kind of setting that such a card has.
fn plan(place: &mut Place) -> Plan {
    let feature = |name: &str| Property::Feature(name.to_owned());
    let card = |property| Setting::Card { interface: CARD.to_owned(), property };
    let queue = format!("sys/class/net/{CARD}/queues/rx-0/rps_cpus");
    let sysctl = Setting::sysctl;
    // Two values each: machines begin with different ones, and each setting shall be changed.
    let wanted = [
        (sysctl("net.ipv4.tcp_rmem"), ["4096 131072 33554432", "4096 87380 16777216"]),
        (sysctl("net.ipv4.tcp_timestamps"), ["0", "1"]),
        (sysctl("net.ipv4.tcp_no_metrics_save"), ["1", "0"]),
        (sysctl("net.ipv4.tcp_slow_start_after_idle"), ["0", "1"]),
        (sysctl("net.ipv4.tcp_mtu_probing"), ["1", "0"]),
        (sysctl(&format!("net.ipv4.neigh.{CARD}.gc_stale_time")), ["120", "60"]),
        (Setting::Mtu { interface: CARD.to_owned() }, ["9000", "1500"]),
        (card(feature("tx-tcp-segmentation")), ["off", "on"]),
        (card(feature("rx-gro")), ["on", "off"]),
        (card(Property::ReceiveChannels), ["2", "4"]),
        (card(Property::TransmitChannels), ["3", "4"]),
        (Setting::File { path: queue, form: Form::CpuMask }, ["1", "0"]),
        (Setting::File { path: format!("sys/class/net/{CARD}/gro_flush_timeout"), form: Form::Plain }, ["20000", "0"]),
    ];
    let change = |(setting, values): (Setting, [&str; 2])| {
        let from = place.read(&setting).expect("it can be read").expect("it is there");
        let to = values.into_iter().find(|value| *value != from).expect("they differ").to_owned();
        Change { setting, from, to, group: Group::Network, rule: "test".to_owned() }
    };
    Plan { changes: wanted.into_iter().map(change).collect() }
}

/// No test of its own: what the others do in the namespace.
#[test]
fn what_is_done_in_the_namespace() {
    let Ok(part) = std::env::var(PART) else { return };
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("it was given"));
    let (journal, planned) = (directory.join("tune.journal"), directory.join("plan"));
    let killed_before: Option<usize> = std::env::var(KILLED_BEFORE).ok().and_then(|step| step.parse().ok());
    let mut steps = 0;
    let mut watch = |step: usize, _: &Action| {
        steps = step;
        if killed_before == Some(step) {
            kill_process(getpid(), Signal::KILL).expect("nobody forbids that");
        }
    };
    let (mut place, now) = (Place::live(), SystemTime::now());
    let identity = place.identity();
    match part.as_str() {
        "tell" => {
            let mut told = BTreeMap::new();
            files(Path::new("/proc/sys/net"), &mut told);
            for name in ["mtu", "tx_queue_len", "gro_flush_timeout", "queues"] {
                let path = Path::new("/sys/class/net").join(CARD).join(name);
                files(&path, &mut told);
                told.extend(fs::read_to_string(&path).ok().map(|text| (path.display().to_string(), text)));
            }
            let card = place.card(CARD).expect("it is there");
            fs::write(directory.join("files"), serde_json::to_vec(&told).expect("JSON")).expect("it can be written");
            fs::write(directory.join("card"), serde_json::to_vec(&card).expect("JSON")).expect("it can be written");
        }
        "apply" => {
            let plan = plan(&mut place);
            let applied = change::apply(&plan, &mut place, &identity, &journal, now, &mut watch).expect("a journal");
            assert_eq!((applied.failure, applied.changed.len()), (None, plan.changes.len()));
            for change in &plan.changes {
                let present = place.read(&change.setting).expect("it can be read");
                assert_eq!(present.as_ref(), Some(&change.to), "{}", change.setting);
            }
            fs::write(planned, steps.to_string()).expect("it can be written");
        }
        // The last step is one that the card refuses.
        "fail" => {
            let mut plan = plan(&mut place);
            let channels = Setting::Card { interface: CARD.to_owned(), property: Property::ReceiveChannels };
            let change = plan.changes.iter_mut().find(|change| change.setting == channels).expect("it is planned");
            change.to = "99".to_owned();
            let applied = change::apply(&plan, &mut place, &identity, &journal, now, &mut watch).expect("a journal");
            let failure = applied.failure.expect("the card has four");
            assert_eq!((failure.setting, failure.not_brought_back), (Some(channels), Vec::new()));
            assert_eq!(failure.why, format!("{CARD}: `99` is no value of the receive channels"));
        }
        "undo" => {
            let undone = change::undo(&mut place, &identity, &journal, now, Foreign::Leave, &mut watch);
            let undone = undone.expect("a journal");
            assert!(undone.is_none_or(|undone| undone.is_put_away), "something is left");
            assert!(!journal.exists());
        }
        other => panic!("there is no part {other}"),
    }
}

#[test]
fn what_is_applied_for_real_is_undone_byte_for_byte() {
    let Some(laid) = Laid::new("what_is_applied_for_real_is_undone_byte_for_byte") else { return };
    let before = laid.state();
    assert!(before.files.len() > 300 && before.card.value(&Property::ReceiveChannels) == Some("4"), "{before:#?}");
    laid.good("apply");
    assert_ne!(laid.state(), before);
    laid.good("undo");
    assert_eq!(laid.state(), before);
    laid.good("fail");
    assert_eq!(laid.state(), before, "it rolls back by itself");
}

#[test]
fn whoever_is_killed_before_any_step_leaves_what_can_be_undone_byte_for_byte() {
    let Some(laid) = Laid::new("whoever_is_killed_before_any_step") else { return };
    let before = laid.state();
    laid.good("apply");
    let steps: usize = fs::read_to_string(laid.directory.join("plan")).expect("it was told").parse().expect("a number");
    laid.good("undo");
    assert!(steps > 60, "{steps}: several for each of the settings");
    for step in 1..=steps {
        assert!(!laid.part("apply", Some(step)).status.success(), "{step}");
        laid.good("undo");
        assert_eq!(laid.state(), before, "killed before step {step}");
    }
}

#[test]
fn whoever_is_killed_while_it_is_undone_leaves_what_can_be_undone_byte_for_byte() {
    let Some(laid) = Laid::new("whoever_is_killed_while_it_is_undone") else { return };
    let before = laid.state();
    for step in (1..).step_by(4) {
        laid.good("apply");
        let is_over = laid.part("undo", Some(step)).status.success();
        laid.good("undo");
        assert_eq!(laid.state(), before, "killed before step {step}");
        if is_over {
            assert!(step > 40, "{step}");
            break;
        }
    }
}
