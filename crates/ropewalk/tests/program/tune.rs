//! Settings of a recorded machine: planned, applied, undone, made persistent.

use crate::forms::{expect_form, schema};
use crate::process::{Ended, Program};
use crate::support::TemporaryDirectory;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of a recorded machine.
struct Machine(TemporaryDirectory);

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("it is there") {
        let (entry, to) = (entry.expect("it can be listed"), to);
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().expect("it has one");
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path).expect("a link"), to).expect("a link can be made");
        } else if kind.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("a file can be copied");
        }
    }
}

impl Machine {
    fn new(name: &str) -> Self {
        let directory = TemporaryDirectory::new(name);
        copy(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("../tune/tests/trees/server"),
            &directory.path().join("machine"),
        );
        Self(directory)
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("machine")
    }

    fn tune(&self, arguments: &[&str]) -> Ended {
        let root = self.root().display().to_string();
        Program::run(["tune"].iter().chain(arguments).copied().chain(["--root", &root]))
    }

    fn journal(&self) -> PathBuf {
        self.root().join("var/lib/ropewalk/tune.journal")
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.root().join(path), text).expect("a file can be written");
    }

    /// All kernel files, and the reports of its cards.
    fn state(&self) -> BTreeMap<String, String> {
        let mut state = BTreeMap::new();
        for directory in ["proc", "sys"] {
            files(&self.root(), Path::new(directory), &mut state);
        }
        let record = fs::read(self.root().join("recorded.json")).expect("it is there");
        let record: Value = serde_json::from_slice(&record).expect("JSON");
        state.insert("recorded.json".to_owned(), record.to_string());
        state
    }

    fn expect(&self, before: &BTreeMap<String, String>) {
        let now = self.state();
        let differs = |(path, text): &(&String, &String)| before.get(*path) != Some(text);
        let differences: Vec<_> = now.iter().filter(differs).collect();
        assert!(differences.is_empty() && now.len() == before.len(), "{differences:#?}");
    }
}

fn files(root: &Path, directory: &Path, state: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(root.join(directory)).expect("it is there").flatten() {
        let (path, kind) = (directory.join(entry.file_name()), entry.file_type().expect("it has one"));
        if kind.is_dir() {
            files(root, &path, state);
        } else if kind.is_file() {
            let text = fs::read_to_string(entry.path()).expect("it can be read");
            state.insert(path.display().to_string(), text);
        }
    }
}

#[test]
fn a_plan_is_commands_and_json_and_changes_nothing() {
    let machine = Machine::new("tune-plan");
    let before = machine.state();
    let planned = machine.tune(&["plan"]);
    let text = planned.expect_status(0).out.join("\n");
    assert!(text.contains("\nsysctl -w net.core.rmem_max="), "{text}");
    assert!(text.contains("\nethtool -K eth1 rx-lro off"), "{text}");
    let told = machine.tune(&["plan", "--json"]);
    let account = told.expect_status(0).account();
    expect_form(&account, &schema("tune-plan.json"));
    let commands: Vec<_> = planned.out.iter().filter(|line| !line.starts_with('#')).collect();
    let changes = account["changes"].as_array().expect("a list");
    assert_eq!(changes.iter().map(|change| change["command"].as_str().expect("a text")).collect::<Vec<_>>(), commands);
    // On standard error, and only for interrupts: not with the commands of cards.
    let warning =
        "warning: irqbalance runs as process 812 and moves interrupts 120-123 again within seconds: stop it first";
    assert!(planned.errors.contains(warning) && told.errors.contains(warning), "{planned:#?}");
    let cards = machine.tune(&["plan", "--only", "card"]);
    assert!(!cards.errors.contains("irqbalance"), "{cards:#?}");
    assert!(cards.expect_status(0).out.iter().all(|line| line.starts_with("# card, ") || line.starts_with("ethtool ")));
    let without = machine.tune(&["plan", "--except", "net.core.rmem_max", "--except", "receive_ring"]);
    let text = without.expect_status(0).out.join("\n");
    assert!(!text.contains("rmem_max=") && !text.contains("ethtool -G") && text.contains("wmem_max="), "{text}");
    machine.expect(&before);
    assert!(!machine.journal().exists());
}

#[test]
fn what_is_applied_is_undone() {
    let machine = Machine::new("tune-undo");
    let before = machine.state();
    let applied = machine.tune(&["apply"]);
    let said = applied.expect_status(0).out.join("\n");
    assert!(
        said.contains("net.core.rmem_max: 212992 -> ") && said.contains("to undo: `ropewalk tune undo --"),
        "{said}"
    );
    assert!(machine.state() != before);
    assert_eq!(machine.tune(&["plan"]).expect_status(0).out, ["# nothing to change"]);
    assert_eq!(machine.tune(&["apply"]).expect_status(0).out, ["nothing to change"]);
    let undone = machine.tune(&["undo"]);
    assert_eq!(undone.expect_status(0).out.last().expect("a line"), "all changes are undone");
    machine.expect(&before);
    assert!(machine.tune(&["undo"]).expect_status(0).out[0].starts_with("nothing to undo: "));
    let (journal, root) = (machine.root().join("own.journal").display().to_string(), machine.root());
    let applied = machine.tune(&["apply", "--journal", &journal]);
    let command = format!("to undo: `ropewalk tune undo --journal {journal} --root {}`", root.display());
    assert!(applied.expect_status(0).out.last().is_some_and(|line| line.ends_with(&command)), "{applied:#?}");
    machine.tune(&["undo", "--journal", &journal]).expect_status(0);
}

#[test]
fn programs_get_an_account_of_what_was_done() {
    let machine = Machine::new("tune-json");
    let json = |words: &[&str], status| {
        let form = schema(&format!("tune-{}.json", words[0]));
        let account = machine.tune(&[words, &["--json"]].concat()).expect_status(status).account();
        expect_form(&account, &form);
        account
    };
    let planned = json(&["plan"], 0);
    let applied = json(&["apply"], 0);
    let settings = |account: &Value, list: &str| {
        let settings = account[list].as_array().expect("a list").iter().map(|one| one["setting"].clone());
        settings.collect::<Vec<_>>()
    };
    assert_eq!(settings(&applied, "changed"), settings(&planned, "changes"));
    let again = json(&["apply"], 0);
    assert_eq!((&again["changed"], &again["failure"]), (&serde_json::json!([]), &Value::Null));
    machine.write("proc/sys/net/core/rmem_max", "4321\n");
    let left = json(&["undo"], 1);
    assert_eq!(left["is_put_away"], false);
    let fates = left["settings"].as_array().expect("a list").iter();
    let foreign: Vec<_> = fates.filter(|one| one["fate"] == "foreign").collect();
    assert!(foreign.len() == 1 && foreign[0]["present"] == "4321" && foreign[0]["old"] == "212992", "{foreign:?}");
    assert_eq!(json(&["undo", "--force"], 0)["is_put_away"], true);
    assert_eq!(json(&["undo"], 0)["settings"], serde_json::json!([]), "there is nothing left");
}

#[test]
fn what_was_applied_before_a_kill_half_way_is_undone() {
    let machine = Machine::new("tune-killed");
    let before = machine.state();
    let planned = machine.tune(&["plan", "--only", "network"]).out.len() / 2;
    for step in ["1", "2", "14", "15", "16", "17", "20", "30", "41"] {
        let killed = machine.tune(&["apply", "--only", "network", "--kill-before", step]);
        assert_eq!(killed.status, None, "{planned} changes, step {step}: {killed:#?}");
        machine.tune(&["undo", "--kill-before", "8"]);
        machine.tune(&["undo"]).expect_status(0);
        machine.expect(&before);
    }
}

#[test]
fn what_another_program_has_changed_since_is_left() {
    let machine = Machine::new("tune-foreign");
    let before = machine.state();
    machine.tune(&["apply"]).expect_status(0);
    machine.write("proc/sys/net/core/rmem_max", "4711\n");
    let undone = machine.tune(&["undo"]);
    let line = "net.core.rmem_max is left at 4711: another program has changed it since; it was 212992 before";
    assert!(undone.expect_status(1).errors.contains(line), "{undone:#?}");
    assert!(machine.journal().exists());
    machine.tune(&["undo", "--force"]).expect_status(0);
    machine.expect(&before);
    machine.tune(&["apply"]).expect_status(0);
    machine.write("proc/sys/net/core/rmem_max", "4711\n");
    machine.tune(&["undo", "--keep"]).expect_status(0);
    assert!(machine.state() != before);
    assert!(!machine.journal().exists());
}

/// A missing interface may return with the changed settings.
#[test]
fn what_is_away_keeps_the_journal() {
    let machine = Machine::new("tune-away");
    let before = machine.state();
    machine.tune(&["apply", "--only", "network"]).expect_status(0);
    let path = machine.root().join("proc/sys/net/core/rmem_max");
    let applied = fs::read_to_string(&path).expect("it is there");
    fs::remove_file(&path).expect("it is there");
    let undone = machine.tune(&["undo"]);
    let line = "warning: net.core.rmem_max does not exist now; if it comes back, `ropewalk tune undo --root ";
    assert!(undone.expect_status(1).errors.contains(line) && undone.errors.contains(" --keep`"), "{undone:#?}");
    machine.write("proc/sys/net/core/rmem_max", &applied);
    machine.tune(&["undo"]).expect_status(0);
    machine.expect(&before);
}

#[test]
fn kernel_parameters_are_made_to_last() {
    let machine = Machine::new("tune-persist");
    machine.tune(&["apply", "--only", "network"]).expect_status(0);
    let written = machine.tune(&["persist"]);
    let note = "note: a file of sysctl.d cannot carry these";
    assert!(
        written.expect_status(0).errors.contains(note) && written.errors.contains("  ethtool -K eth1 rx-lro off\n")
    );
    let file = machine.root().join("etc/sysctl.d/90-ropewalk.conf");
    let text = fs::read_to_string(&file).expect("it was written");
    assert!(text.starts_with("# Written by `ropewalk tune persist`"), "{text}");
    assert!(text.contains("\nnet.ipv4.tcp_rmem = 4096 131072 "), "{text}");
    let undone = machine.tune(&["undo"]);
    let note = "90-ropewalk.conf is still read at boot; delete it to undo this, too";
    assert!(undone.expect_status(0).errors.contains(note), "{undone:#?}");
    machine.tune(&["apply", "--only", "network"]).expect_status(0);
    // After a reboot with the file nothing is left to plan, and there is no journal.
    fs::remove_file(machine.journal()).expect("it is there");
    machine.tune(&["persist"]).expect_status(0);
    assert_eq!(fs::read_to_string(&file).expect("it was written"), text);
    fs::write(&file, "net.core.rmem_max = 7\n").expect("a file can be written");
    let refused = machine.tune(&["persist"]);
    assert!(
        refused.expect_status(4).errors.contains("this file was not written by `ropewalk tune persist`"),
        "{refused:#?}"
    );
}

/// By its rule, even if the value is in effect already and in no plan; and settings that were changed since.
#[test]
fn what_is_not_meant_to_last_any_more_leaves_the_file() {
    let machine = Machine::new("tune-persist-less");
    let file = machine.root().join("etc/sysctl.d/90-ropewalk.conf");
    let names = || -> Vec<String> {
        let text = fs::read_to_string(&file).expect("it was written");
        let pairs = text.lines().filter_map(|line| line.split_once(" = "));
        pairs.map(|(name, _)| name.to_owned()).collect()
    };
    machine.tune(&["persist", "--only", "network"]).expect_status(0);
    let network = names();
    machine.tune(&["persist", "--only", "memory", "--only", "processor"]).expect_status(0);
    let all = names();
    assert!(network.iter().all(|name| all.contains(name)) && all.len() > network.len(), "{all:?}");

    machine.tune(&["apply"]).expect_status(0);
    let except = ["persist", "--except", "receive_buffer", "--except", "net.ipv4.tcp_rmem"];
    machine.tune(&except).expect_status(0);
    let is_left_out = |name: &String| name == "net.core.rmem_max" || name == "net.ipv4.tcp_rmem";
    let others: Vec<_> = all.iter().filter(|name| !is_left_out(name)).cloned().collect();
    assert!(others.len() + 2 == all.len() && names() == others, "{:?}", names());
    fs::remove_file(machine.journal()).expect("it is there");
    machine.tune(&["persist", "--except", "send_buffer"]).expect_status(0);
    assert!(names().len() + 1 == others.len() && !names().contains(&"net.core.wmem_max".to_owned()), "{:?}", names());

    // It is larger than advised, so no plan contains it.
    machine.write("proc/sys/net/ipv4/tcp_wmem", "4096 131072 999999999\n");
    machine.tune(&["persist"]).expect_status(0);
    assert!(!names().contains(&"net.ipv4.tcp_wmem".to_owned()), "{:?}", names());
}

#[test]
fn what_cannot_be_done_is_reported() {
    let machine = Machine::new("tune-refused");
    let before = machine.state();
    let unknown = machine.tune(&["plan", "--interface", "eth77"]);
    assert!(unknown.expect_status(2).errors.contains("there is no network interface `eth77`"), "{unknown:#?}");
    let group = machine.tune(&["plan", "--only", "cards"]);
    assert!(group.expect_status(2).errors.contains("the groups are network, card, interrupts"), "{group:#?}");

    machine.tune(&["apply"]).expect_status(0);
    let journal = fs::read_to_string(machine.journal()).expect("it is there");
    fs::write(machine.journal(), journal.replacen("212992", "212993", 1)).expect("a file can be written");
    for command in ["apply", "undo", "persist"] {
        let refused = machine.tune(&[command]);
        let line = "line 3 is damaged, so that nothing is taken back by it";
        assert!(refused.expect_status(4).errors.contains(line), "{command}: {refused:#?}");
    }
    fs::write(machine.journal(), journal).expect("a file can be written");
    let host = fs::read_to_string(machine.root().join("etc/machine-id")).expect("it has one");
    machine.write("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    let refused = machine.tune(&["undo"]);
    assert!(refused.expect_status(4).errors.contains("this journal is of another machine, `"), "{refused:#?}");
    machine.write("etc/machine-id", &host);
    machine.tune(&["undo"]).expect_status(0);
    machine.expect(&before);

    machine.write("recorded.json", "{");
    let damaged = machine.tune(&["plan"]);
    assert!(damaged.expect_status(4).errors.contains("this is no record of a machine: "), "{damaged:#?}");
}

/// A user without root's rights, and without the capabilities that a container may keep.
#[test]
fn all_missing_rights_are_reported_before_the_journal_is_opened() {
    let machine = Machine::new("tune-rights");
    let program = machine.0.path().join("ropewalk");
    fs::copy(env!("CARGO_BIN_EXE_ropewalk"), &program).expect("a file can be copied");
    let unprivileged = ["--reuid=65534", "--clear-groups", "--bounding-set=-all"];
    let refused = Command::new("setpriv")
        .args(unprivileged)
        .arg(program)
        .args(["tune", "apply", "--root"])
        .arg(machine.root())
        .output()
        .expect("util-linux is there");
    let errors = String::from_utf8_lossy(&refused.stderr);
    if errors.contains("setpriv:") {
        let test = "tune::all_missing_rights_are_reported_before_the_journal_is_opened";
        return ropewalk_tidy::skipped(test, "may not become another user");
    }
    assert_eq!(refused.status.code(), Some(4), "{errors}");
    for line in [
        "net.core.rmem_max, ",
        ": needs root or CAP_NET_ADMIN\n",
        "kernel.numa_balancing: needs root with CAP_SYS_ADMIN\n",
        "vm.swappiness: needs root\n",
        ": needs root or CAP_DAC_OVERRIDE\n",
    ] {
        assert!(errors.contains(line), "{line}: {errors}");
    }
    assert!(!errors.contains("journal") && !machine.root().join("var").exists(), "{errors}");
}

#[test]
fn what_is_found_is_a_table_with_reasons_and_json_in_the_promised_form() {
    let machine = Machine::new("tune-check");
    let before = machine.state();
    let checked = machine.tune(&["check"]);
    let text = checked.expect_status(1).out.join("\n");
    assert!(text.contains("│ harmful         ┆ tcp_timestamps "), "{text}");
    assert!(text.contains("\n  why    Paper 3 turned it off to save CPU time."), "{text}");
    assert!(!text.contains("┆ tcp_sack "), "what is good is not shown: {text}");
    let all = machine.tune(&["check", "--all"]);
    assert!(all.expect_status(1).out.join("\n").contains("│ good            ┆ tcp_sack "), "{all:#?}");
    let told = machine.tune(&["check", "--json", "--interface", "eth1"]);
    let account = told.expect_status(1).account();
    expect_form(&account, &schema("tune-check.json"));
    let findings = account["findings"].as_array().expect("a list");
    assert!(findings.iter().any(|finding| finding["rule"] == "pcie" && finding["grade"] == "harmful"), "{account:#}");
    machine.expect(&before);
    let unknown = machine.tune(&["check", "--interface", "eth7"]);
    let message = "there is no network interface `eth7`; there are eth0, eth1, lo";
    assert!(unknown.expect_status(2).errors.contains(message), "{unknown:#?}");
    fs::remove_file(machine.root().join("sys/devices/system/cpu/online")).expect("it is there");
    let damaged = machine.tune(&["check"]);
    assert!(damaged.expect_status(4).errors.contains("cpu/online"), "{damaged:#?}");
}

/// The advice depends on what a configuration needs.
#[test]
fn a_configuration_says_what_feeds_it() {
    let machine = Machine::new("tune-wish");
    let file = machine.0.path().join("setup.toml");
    let output = machine.0.path().display().to_string();
    let local = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.10.0.7\n        /32 host LOCAL\n     |-- 10.10.0.255\n        /32 link BROADCAST\n";
    machine.write("proc/net/fib_trie", local);
    let text = format!(
        "version = 1\n[run]\noutput = \"{output}\"\n[manager]\naddress = \"10.10.0.7:7000\"\nstandby = [\"10.10.0.9:7000\"]\n\
         [[readout]]\nname = \"ru0\"\nlisten = \"0.0.0.0:0\"\ncard = \"eth1\"\npool = \"1GiB\"\n\
         [[readout]]\nname = \"ru1\"\nlisten = \"10.10.0.7:7001\"\n[[builder]]\nname = \"bu0\"\npool = \"2GiB\"\n\
         [[source]]\nid = 1\nreadout = \"ru0\"\n[[source]]\nid = 2\nreadout = \"ru1\"\n\
         [[thread]]\nmatch = \"^ru\"\nscheduling = \"fifo\"\npriority = 40\n"
    );
    fs::write(&file, &text).expect("a file can be written");
    let file = file.display().to_string();
    let account = machine.tune(&["check", &file, "--json"]).account();
    expect_form(&account, &schema("tune-check.json"));
    let wish = &account["wish"];
    for (index, thread) in ["ru0", "ru1"].into_iter().enumerate() {
        let feeding = &wish["feeding"][index];
        let told = (&feeding["interface"], &feeding["thread"], &feeding["transport"], &feeding["streams"]);
        assert_eq!(told, (&"eth1".into(), &thread.into(), &"tcp".into(), &1.into()), "{wish:#}");
    }
    assert_eq!((&wish["realtime_priority"], &wish["outputs"][0]), (&40.into(), &output.into()), "{wish:#}");
    // The wish contains how they run, but not where.
    assert_eq!((&wish["feeding"][0]["placed"], &wish["feeding"][1]["placed"]), (&"nobody".into(), &"nobody".into()));
    // 1 GiB, the usual overhead, and the receive memory of the builder unit, for any amount in work.
    assert_eq!(wish["memory_bytes"], (1 << 30) + (128 << 20) + (2_u64 << 30), "{wish:#}");
    assert_eq!(wish["memory_by_node"], serde_json::json!({ "1": (1_u64 << 30) + (128 << 20) }), "{wish:#}");
    assert_eq!(wish["peers"], serde_json::json!(["10.10.0.9"]), "the other one is this machine's own");
    // Large packets are for networks that the user names.
    for (more, has_large) in [(&[][..], false), (&["--interface", "eth1"], true)] {
        let planned = machine.tune(&[&["plan", &file], more].concat());
        let text_of_plan = planned.expect_status(0).out.join("\n");
        assert_eq!(text_of_plan.contains("\nip link set dev eth1 mtu 9000"), has_large, "{text_of_plan}");
    }
    fs::write(&file, text.replace("\"eth1\"", "\"eth9\"")).expect("a file can be written");
    let refused = machine.tune(&["check", &file]);
    let message = "ru0: there is no network card `eth9`; there are: eth0, eth1, lo";
    assert!(refused.expect_status(2).errors.contains(message), "{refused:#?}");
}

/// Rules and `placement = "auto"` determine where threads read and where pools are, and interrupts are planned around
/// that.
#[test]
fn interrupts_are_planned_around_the_threads_that_read() {
    let machine = Machine::new("tune-wish-placed");
    let (file, output) = (machine.0.path().join("setup.toml"), machine.0.path().display().to_string());
    let name = file.display().to_string();
    let text = |placement: &str, rules: &str| {
        format!(
            "version = 1\n[run]\noutput = \"{output}\"\n{placement}\n\
             [[readout]]\nname = \"ru0\"\nlisten = \"0.0.0.0:0\"\ncard = \"eth1\"\n\
             [[readout]]\nname = \"ru1\"\nlisten = \"0.0.0.0:0\"\ncard = \"eth1\"\n[[builder]]\nname = \"bu0\"\n\
             [[source]]\nid = 1\nreadout = \"ru0\"\n[[source]]\nid = 2\nreadout = \"ru1\"\n{rules}"
        )
    };
    let pinned = "[[thread]]\nmatch = \"^ru\"\ncpus = \"5,6\"\nin_turn = true\n";
    let pool = "[[pool]]\nmatch = \"^ru0-fragments\"\nnode = 0\n";
    let rules = format!("{pinned}{pool}");
    for (placement, rules, placed, nodes, planned) in [
        ("", "", ["\"nobody\"", "\"nobody\""], "1", [5, 6]),
        ("", rules.as_str(), ["{\"rule\":\"5\"}", "{\"rule\":\"6\"}"], "0 1", [4, 7]),
        ("placement = \"auto\"", "", ["\"automatic\"", "\"automatic\""], "1", [5, 6]),
    ] {
        fs::write(&file, text(placement, rules)).expect("a file can be written");
        let account = machine.tune(&["check", &name, "--json"]).account();
        expect_form(&account, &schema("tune-check.json"));
        let wish = &account["wish"];
        let told = [0, 1].map(|index| wish["feeding"][index]["placed"].to_string());
        assert_eq!(told, placed, "{wish:#}");
        let by_node = wish["memory_by_node"].as_object().expect("an object");
        assert_eq!(by_node.keys().map(String::as_str).collect::<Vec<_>>().join(" "), nodes, "{wish:#}");
        let plan = machine.tune(&["plan", &name, "--only", "interrupts"]).out.join("\n");
        for (number, cpu) in (120..).zip(planned) {
            assert!(plan.contains(&format!("\necho {cpu} > /proc/irq/{number}/smp_affinity_list")), "{plan}");
        }
    }
}

/// The recorded machine has a run with units of these names; a thread that has ended, or whose id belongs to another
/// one by now, is left alone.
#[test]
fn threads_of_a_run_that_goes_on_are_put_where_they_belong_and_back() {
    let machine = Machine::new("tune-threads");
    let (file, output) = (machine.0.path().join("setup.toml"), machine.0.path().display().to_string());
    let readout = |name: &str| format!("[[readout]]\nname = \"{name}\"\nlisten = \"0.0.0.0:0\"\ncard = \"eth1\"\n");
    let rest = "[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nreadout = \"ru0\"\n[[source]]\nid = 2\nreadout = \"ru1\"\n\
                [[thread]]\nmatch = \"^bu0\"\ncpus = \"2\"\n";
    let text = format!("version = 1\n[run]\noutput = \"{output}\"\n{}{}{rest}", readout("ru0"), readout("ru1"));
    fs::write(&file, text).expect("a file can be written");
    let file = file.display().to_string();
    let status = |thread: u32| format!("proc/4711/task/{thread}/status");
    let cpus = |thread: u32| {
        let text = fs::read_to_string(machine.root().join(status(thread))).expect("it is there");
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).expect("it has one");
        line.to_owned()
    };
    let before = machine.state();
    let planned = machine.tune(&["plan", &file, "--only", "interrupts", "--json"]).expect_status(0).account();
    expect_form(&planned, &schema("tune-plan.json"));
    let commands: Vec<_> = planned["changes"].as_array().expect("a list").iter().map(|one| &one["command"]).collect();
    for (thread, list) in [(4713, "4"), (4714, "7"), (4716, "2")] {
        assert!(commands.contains(&&format!("taskset --cpu-list --pid {list} {thread}").into()), "{commands:?}");
    }
    let apply = ["apply", &file, "--only", "interrupts"];
    let applied = machine.tune(&apply);
    let line = "CPUs of thread 4713 (ru0) of process 4711: 0-15 -> 4";
    assert!(applied.expect_status(0).out.contains(&line.to_owned()), "{applied:#?}");
    assert_eq!([4711, 4713, 4714, 4715, 4716].map(cpus), ["0-15", "4", "7", "0-3", "2"]);
    assert_eq!(machine.tune(&["plan", &file, "--only", "interrupts"]).out, ["# nothing to change"]);
    machine.tune(&["undo"]).expect_status(0);
    machine.expect(&before);

    machine.tune(&apply).expect_status(0);
    let stat = machine.root().join("proc/4711/task/4713/stat");
    let ended = fs::read_to_string(&stat).expect("it is there").replace("84212", "99999");
    fs::write(stat, ended).expect("a file can be written");
    fs::remove_dir_all(machine.root().join("proc/4711/task/4714")).expect("it is there");
    let undone = machine.tune(&["undo"]);
    for name in ["4713 (ru0)", "4714 (ru1)"] {
        let note = format!("note: CPUs of thread {name} of process 4711: the thread has ended, nothing to restore");
        assert!(undone.expect_status(0).errors.contains(&note), "{undone:#?}");
    }
    assert_eq!([4713, 4716].map(cpus), ["4", "0-15"], "it is another one now");
    assert!(!machine.journal().exists());
}

/// The id of a running process's thread with this name, and its allowed CPUs.
fn thread_of(process: u32, name: &str) -> Option<(String, String)> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let statuses = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let field =
        |status: &str, key: &str| Some(status.lines().find_map(|line| line.strip_prefix(key))?.trim().to_owned());
    let told = |status: String| {
        field(&status, "Name:").filter(|told| told == name)?;
        Some((field(&status, "Pid:")?, field(&status, "Cpus_allowed_list:")?))
    };
    statuses.into_iter().find_map(told)
}

/// For real: a run continues while one of its threads is moved to another configuration's place, and back.
#[test]
fn a_run_goes_on_while_its_threads_are_put_elsewhere_and_back() {
    let machine = ropewalk_host::Machine::read(Path::new("/")).expect("Linux has it");
    let (first, last) = (machine.permitted.first().expect("a CPU"), machine.permitted.iter().last().expect("a CPU"));
    if first == last {
        return ropewalk_tidy::skipped(
            "tune::a_run_goes_on_while_its_threads_are_put_elsewhere_and_back",
            "there is one CPU",
        );
    }
    let directory = TemporaryDirectory::new("tune-live");
    let within = |name: &str| directory.path().join(name).display().to_string();
    // The name is unique to this test: names that threads of several processes have are skipped.
    let configuration = |cpu: u32| {
        let text = format!(
            "version = 1\n[run]\noutput = \"{}\"\n[[readout]]\nname = \"rutuned\"\n[[builder]]\nname = \"butuned\"\n\
             [[source]]\nid = 1\nreadout = \"rutuned\"\nemulate = {{ fragment_size = \"1KiB\", rate = \"100Hz\" }}\n\
             [[thread]]\nmatch = \"^butuned$\"\ncpus = \"{cpu}\"\n",
            within("runs")
        );
        let file = within(&format!("{cpu}.toml"));
        fs::write(&file, text).expect("a file can be written");
        file
    };
    let (present, other, journal) = (configuration(first), configuration(last), within("tune.journal"));
    let mut run = Program::start(["run", &present, "--json"]);
    let number = loop {
        assert!(!run.has_ended(), "{:#?}", run.end());
        match thread_of(run.id(), "butuned") {
            Some((number, cpus)) if cpus == first.to_string() => break number,
            _ => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    };
    let is_on = |cpu: u32| thread_of(run.id(), "butuned") == Some((number.clone(), cpu.to_string()));
    let planned = Program::run(["tune", "plan", &other, "--only", "interrupts"]);
    let command = format!("taskset --cpu-list --pid {last} {number}");
    assert_eq!(planned.expect_status(0).out[1..], [command], "{planned:#?}");
    Program::run(["tune", "apply", &other, "--only", "interrupts", "--journal", &journal]).expect_status(0);
    assert!(is_on(last));
    let again = Program::run(["tune", "plan", &other, "--only", "interrupts"]);
    assert_eq!(again.expect_status(0).out, ["# nothing to change"]);
    Program::run(["tune", "undo", "--journal", &journal]).expect_status(0);
    assert!(is_on(first));
    run.interrupt();
    run.end().expect_status(0);
}

/// A configuration of gateways: each of their queues has its own reading thread, and they share the gateway's memory.
#[test]
fn each_queue_of_a_gateway_is_a_thread_that_reads() {
    let machine = Machine::new("tune-wish-gateway");
    let file = machine.0.path().join("gateway.toml");
    let flow = |name: &str, ip: u32| {
        format!("[[flow]]\nname = \"{name}\"\npacking = 10\nsources = {{ count = 4, address = \"10.10.1.{ip}\" }}\n")
    };
    let gateway = "[[gateway]]\nname = \"gw0\"\nqueues = 3\nmemory = \"96MiB\"\n\
                   listen = { l1 = \"10.10.0.7:9701\", hlt = \"10.10.0.7:9801\" }\ncontrol = \"10.10.0.7:9901\"\n";
    fs::write(&file, format!("version = 1\n{}{}{gateway}", flow("l1", 1), flow("hlt", 9))).expect("it can be written");
    let account = machine.tune(&["check", &file.display().to_string(), "--json"]).account();
    let wish = &account["wish"];
    let feeding = wish["feeding"].as_array().expect("a list");
    let told: Vec<_> = feeding.iter().map(|one| (one["thread"].as_str(), one["streams"].as_u64())).collect();
    assert_eq!(told, ["gw0-0", "gw0-1", "gw0-2"].map(|name| (Some(name), Some(2))), "{wish:#}");
    assert_eq!(wish["memory_bytes"], 96 << 20, "{wish:#}");
    let sources = [1, 2, 3, 4, 9, 10, 11, 12].map(|last| format!("10.10.1.{last}"));
    assert_eq!(wish["peers"], serde_json::json!(sources), "{wish:#}");
    // Both flows have four sources, and three queues share their packets.
    assert_eq!(feeding[0]["bytes_per_second"], Value::Null, "it is unknown what front ends send");
    let emulate = "emulate = { fragment_size = \"1KiB\", rate = \"100kHz\" }\n";
    let flows = [flow("l1", 1), flow("hlt", 9)].map(|flow| format!("{flow}{emulate}")).concat();
    fs::write(&file, format!("version = 1\n{flows}{gateway}")).expect("as above");
    let account = machine.tune(&["check", &file.display().to_string(), "--json"]).account();
    expect_form(&account, &schema("tune-check.json"));
    assert_eq!(account["wish"]["feeding"][2]["bytes_per_second"], 2 * 4 * 1024 * 100_000 / 3);
    let threads = gateway.replace("queues = 3", "architecture = \"threads\"");
    let rule = "[[thread]]\nmatch = \"^gw0-receive$\"\ncpus = \"5\"\n";
    fs::write(&file, format!("version = 1\n{}{}{threads}{rule}", flow("l1", 1), flow("hlt", 9))).expect("as above");
    let account = machine.tune(&["check", &file.display().to_string(), "--json"]).account();
    let reads = &account["wish"]["feeding"][0];
    assert_eq!((&reads["thread"], &reads["placed"]), (&"gw0-receive".into(), &serde_json::json!({ "rule": "5" })));
}

/// bbr is harmful over loopback, and is the only such setting that a test can read itself.
#[test]
fn a_demo_names_settings_that_slow_this_machine_down() {
    let directory = TemporaryDirectory::new("tune-demo");
    let output = directory.path().to_str().expect("a path in UTF-8");
    let demo = Program::run(["demo", "--events", "500", "--sources", "2", "--json", "--output", output]);
    let sysctl = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let has_bbr = sysctl("tcp_congestion_control").starts_with("bbr")
        && sysctl("tcp_available_congestion_control").split_whitespace().any(|name| name == "cubic");
    let note = demo.expect_status(0).errors.lines().find(|line| line.starts_with("note: the demo is complete"));
    assert_eq!(note.is_some_and(|note| note.contains("congestion_control")), has_bbr, "{}", demo.errors);
    assert!(note.is_none_or(|note| note.contains("`ropewalk tune check`")), "{note:?}");
}
