//! Settings of the kernel changed for real, within a network namespace that has a virtual network card, and taken back:
//! the state is as before, byte for byte. And killed before every single step of it.
//!
//! What is done there is done by this program once more, started in the namespace with a /sys of its own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use ropewalk_io::packet::cable::{CARD, Cable};
use ropewalk_tune::cards::CardReport;
use ropewalk_tune::change::{self, Action, Foreign, JournalFile};
use ropewalk_tune::{Change, Form, Found, Group, Place, Plan, Property, RunningThread, Setting, Settings, Wish, rules};
use rustix::process::{Signal, getpid, kill_process};

/// Says which part of a test this program is, in the namespace.
const PART: &str = "ROPEWALK_TUNE_PART";
/// The directory of the journal and of the reports.
const DIRECTORY: &str = "ROPEWALK_TUNE_DIRECTORY";
/// Before which step it kills itself.
const KILLED_BEFORE: &str = "ROPEWALK_TUNE_KILLED_BEFORE";

/// The signal that ends a killed process, but no panicking one: 9.
const KILLED: i32 = Signal::KILL.as_raw();

/// Two cards and a cable, and a directory; both go with the value.
struct Laid {
    cable: Cable,
    directory: PathBuf,
}

impl Laid {
    fn new(test: &str) -> Option<Self> {
        let has_mounts =
            Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
        let Some(cable) = Cable::lay(1500, 4).ok().filter(|_| has_mounts) else {
            ropewalk_tidy::skipped(test, "may not make network namespaces");
            return None;
        };
        let directory = std::env::temp_dir().join(format!("ropewalk-tune-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a temporary directory can be made");
        Some(Self { cable, directory })
    }

    /// Does a part in the namespace, killed before a step where one is given.
    fn part(&self, name: &str, killed_before: Option<usize>) -> Output {
        // The user 65534, and none of the rights that a container may have left to the administrator.
        let starter =
            if name == "without rights" { "setpriv --reuid=65534 --clear-groups --bounding-set=-all" } else { "" };
        let script = format!("mount -t sysfs sysfs /sys && exec {starter} \"$0\" \"$@\"");
        let mut program = std::env::current_exe().expect("this program has a file");
        if !starter.is_empty() {
            // To a place that every user may enter.
            let copy = self.directory.join("program");
            fs::copy(&program, &copy).expect("a file can be copied");
            program = copy;
        }
        self.cable.source.inside(|| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script]);
            command.arg(program).args(["--exact", "real::what_is_done_in_the_namespace", "--nocapture"]);
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
        let read = |name: &str| fs::read(self.directory.join(name)).expect("the part wrote it");
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

/// Every file below /proc/sys/net, the card's in /sys that can be changed, and its driver's report.
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

/// What the rules ask for of protocols and of the card. What is below `net.core` belongs to the machine and is only
/// read in a namespace; nor may a namespace choose a congestion control that the machine does not allow to all users.
fn asked_for(place: &mut Place) -> Plan {
    let wish = Wish { interfaces: vec![CARD.to_owned()], ..Wish::default() };
    let found = Found::read(place, &wish).expect("it can be read");
    let mut plan = Plan::of(&rules::check(&found, &wish)).only(&[Group::Network, Group::Card]);
    let is_of_machine = |name: &str| name.starts_with("net.core.") || name == "net.ipv4.tcp_congestion_control";
    plan.changes.retain(|change| !is_of_machine(&change.setting.to_string()));
    plan
}

/// What the kernel refuses, in its own words and ours.
fn refused(place: &mut Place) {
    let sysctl = Setting::sysctl;
    let present = place.read(&sysctl("net.core.rmem_max")).expect("it can be read, or is not there");
    let file = |name: &str| Setting::File { path: format!("sys/class/net/{CARD}/{name}"), form: Form::Plain };
    let mut said = |setting: &Setting, value: &str| place.write(setting, value).expect_err(value).to_string();
    let line = |path: &str, value: &str| {
        format!("/{path}: the kernel takes no value `{value}` there: it is out of range, or no value of this file")
    };
    assert_eq!(said(&sysctl("net.ipv4.tcp_syn_retries"), "999"), line("proc/sys/net/ipv4/tcp_syn_retries", "999"));
    assert_eq!(said(&sysctl("net.ipv4.tcp_rmem"), "many"), line("proc/sys/net/ipv4/tcp_rmem", "many"));
    // What is the machine's is read alone in a namespace; kernels before 6.8 do not show it there.
    let of_machine = sysctl("net.core.rmem_max");
    if let Some(value) = present {
        let line = said(&of_machine, &value);
        assert!(
            line.starts_with("/proc/sys/net/core/rmem_max: permission denied, even to root: in a container"),
            "{line}"
        );
    }
    let mtu = Setting::Mtu { interface: CARD.to_owned() };
    assert_eq!(
        said(&mtu, "4000000000"),
        format!("{CARD}: `4000000000` is no MTU that it can have: write a number of bytes")
    );
    let unknown = Setting::Mtu { interface: "none-such0".to_owned() };
    assert_eq!(said(&unknown, "9000"), "there is no network interface `none-such0`");
    // As in most containers.
    let mounted = Command::new("mount").args(["-o", "remount,ro,bind", "/sys"]).status().expect("util-linux is there");
    assert!(mounted.success());
    assert_eq!(
        said(&file("gro_flush_timeout"), "1"),
        format!(
            "/sys/class/net/{CARD}/gro_flush_timeout: /sys is mounted read-only, as in most containers; change it on the host"
        )
    );
}

/// The machine's first process, which is root's.
fn first_thread() -> Setting {
    let stat = fs::read_to_string("/proc/1/stat").expect("it does not end");
    let fields = stat.rsplit_once(')').expect("a name in brackets").1;
    let begun = fields.split_ascii_whitespace().nth(19).expect("field 22").parse().expect("a number");
    Setting::Thread(RunningThread { process: 1, thread: 1, begun, name: "init".to_owned() })
}

/// Neither rights nor a way to get them.
fn without_rights(place: &mut Place) {
    let swappiness = place.read(&Setting::sysctl("vm.swappiness")).expect("it can be read").expect("it is there");
    let mut said = |setting: Setting, value: &str| place.write(&setting, value).expect_err(value).to_string();
    assert_eq!(
        said(Setting::sysctl("net.ipv4.tcp_mtu_probing"), "1"),
        "/proc/sys/net/ipv4/tcp_mtu_probing: permission denied; this needs root or CAP_NET_ADMIN: run it with sudo"
    );
    assert_eq!(
        said(Setting::sysctl("vm.swappiness"), &swappiness),
        "/proc/sys/vm/swappiness: permission denied; this needs root: run it with sudo"
    );
    let right = "needs CAP_NET_ADMIN: run it as root";
    let mtu = said(Setting::Mtu { interface: CARD.to_owned() }, "9000");
    assert!(mtu.starts_with(&format!("{CARD}: ")) && mtu.contains(right), "{mtu}");
    let property = Property::Feature("rx-gro".to_owned());
    let feature = said(Setting::Card { interface: CARD.to_owned(), property }, "on");
    assert!(feature.starts_with(&format!("{CARD}: ")) && feature.contains(right), "{feature}");
    let thread = first_thread();
    let cpus = place.read(&thread).expect("reading needs no rights").expect("it does not end");
    let mut said = |setting: &Setting, value: &str| place.write(setting, value).expect_err(value).to_string();
    assert_eq!(
        said(&thread, &cpus),
        "/proc/1/task/1: permission denied; this needs root or CAP_SYS_NICE: run it with sudo"
    );
    // All of it is reported before anything is changed, and asking writes nothing.
    let mut plan = plan(place);
    let (setting, rule) = (Setting::sysctl("vm.swappiness"), "test".to_owned());
    let group = Group::Interrupts;
    plan.changes.push(Change { setting: thread, from: cpus, to: "0".to_owned(), group, rule: rule.clone() });
    plan.changes.push(Change { setting, from: swappiness, to: "1".to_owned(), group: Group::Memory, rule });
    let forbidden = place.permits(&plan).expect_err("no right to change any of it");
    let missing: Vec<_> = forbidden.missing.iter().map(|(why, settings)| (why.as_str(), settings.len())).collect();
    let needs_both = "needs root, or CAP_DAC_OVERRIDE and CAP_NET_ADMIN";
    let needs_nice = "needs root or CAP_SYS_NICE";
    assert_eq!(missing, [("needs root or CAP_NET_ADMIN", 11), (needs_both, 2), (needs_nice, 1), ("needs root", 1)]);
    let identity = place.identity();
    let journal = JournalFile::open(Path::new("/var/lib/none-such/tune.journal"), &identity, "t");
    let error = journal.expect_err("no right to write there").to_string();
    assert!(error.contains("; run it with sudo, or name another file with --journal"), "{error}");
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
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
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
            assert_eq!(place.permits(&plan), Ok(()));
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
            // A process killed right before it put the journal away leaves one that is taken back completely; the next
            // open puts it away.
            let is_gone = undone.is_none() || !journal.exists();
            assert!(is_gone && undone.is_none_or(|undone| undone.is_put_away), "something is left");
        }
        "rules" => {
            let changes = asked_for(&mut place);
            assert!(!changes.changes.is_empty(), "the rules ask for nothing");
            let applied = change::apply(&changes, &mut place, &identity, &journal, now, &mut watch).expect("a journal");
            assert_eq!((applied.failure, applied.changed.len()), (None, changes.changes.len()));
            assert_eq!(asked_for(&mut place), Plan::default());
        }
        "refused" => refused(&mut place),
        "without rights" => without_rights(&mut place),
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
    // From here its values would be written to other cards.
    let identity = Place::live().identity();
    let error = change::history(&laid.directory.join("tune.journal"), &identity).expect_err("it is of the namespace");
    assert!(error.to_string().contains("this journal is of another network namespace, `net:["), "{error}");
    laid.good("undo");
    assert_eq!(laid.state(), before);
    laid.good("fail");
    assert_eq!(laid.state(), before, "it rolls back by itself");
}

#[test]
fn what_the_rules_ask_for_is_applied_and_then_asked_for_no_more() {
    let Some(laid) = Laid::new("what_the_rules_ask_for_is_applied_and_then_asked_for_no_more") else { return };
    let before = laid.state();
    laid.good("rules");
    assert_ne!(laid.state(), before);
    laid.good("undo");
    assert_eq!(laid.state(), before);
}

#[test]
fn what_the_kernel_refuses_is_reported_with_what_would_help() {
    let Some(laid) = Laid::new("what_the_kernel_refuses_is_reported_with_what_would_help") else { return };
    let before = laid.state();
    laid.good("refused");
    laid.good("without rights");
    assert_eq!(laid.state(), before);
}

#[test]
fn a_kill_before_any_step_leaves_what_can_be_undone_byte_for_byte() {
    let Some(laid) = Laid::new("a_kill_before_any_step_leaves_what_can_be_undone_byte_for_byte") else {
        return;
    };
    let before = laid.state();
    laid.good("apply");
    let steps: usize =
        fs::read_to_string(laid.directory.join("plan")).expect("the part wrote it").parse().expect("a number");
    laid.good("undo");
    assert!(steps > 60, "{steps}: several for each of the settings");
    for step in 1..=steps {
        assert_eq!(laid.part("apply", Some(step)).status.signal(), Some(KILLED), "{step}");
        laid.good("undo");
        assert_eq!(laid.state(), before, "killed before step {step}");
    }
}

#[test]
fn a_kill_during_an_undoing_leaves_what_can_be_undone_byte_for_byte() {
    let Some(laid) = Laid::new("a_kill_during_an_undoing_leaves_what_can_be_undone_byte_for_byte") else {
        return;
    };
    let before = laid.state();
    for step in 1.. {
        laid.good("apply");
        let status = laid.part("undo", Some(step)).status;
        let is_over = status.success();
        assert!(is_over || status.signal() == Some(KILLED), "{step}: {status}");
        laid.good("undo");
        assert_eq!(laid.state(), before, "killed before step {step}");
        if is_over {
            assert!(step > 40, "{step}");
            break;
        }
    }
}
