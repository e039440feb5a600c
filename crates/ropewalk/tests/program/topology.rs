//! The machine is drawn, and `config check` shows the placement.

use crate::forms::{expect_form, schema};
use crate::process::{Program, example};
use crate::support::{Setup, TemporaryDirectory};
use std::fs;
use std::path::Path;

/// A machine of two nodes with four cores each and a card on node 1, whose interrupt is on CPU 5, below `root`.
fn made_machine(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    };
    write("proc/sys/kernel/osrelease", "6.12.0\n");
    write("proc/interrupts", "           CPU0\n 84:   7   PCI-MSI 1-edge   eth2-TxRx-0\n");
    write("proc/irq/84/smp_affinity_list", "5\n");
    write("sys/devices/system/cpu/online", "0-7\n");
    write("sys/devices/system/node/online", "0-1\n");
    write("sys/devices/system/node/node0/cpulist", "0-3\n");
    write("sys/devices/system/node/node1/cpulist", "4-7\n");
    for (file, text) in [("operstate", "up"), ("type", "1"), ("device/numa_node", "1"), ("device/irq", "84")] {
        write(&format!("sys/class/net/eth2/{file}"), text);
    }
}

/// A configuration with automatic placement, with `ru0` behind the card `eth2`.
fn automatic(setup: &Setup) -> String {
    let text = setup.text().replace("[run]", "[run]\nplacement = \"auto\"");
    let text = text.replace("name = \"ru0\"", "name = \"ru0\"\ncard = \"eth2\"");
    let file = setup.directory().join("automatic.toml");
    fs::write(&file, text).expect("a file can be written");
    file.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn this_machine_is_drawn_and_told_in_the_promised_form() {
    let drawn = Program::run(["topology"]);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux has it");
    let text = drawn.expect_status(0).out.join("\n");
    assert!(text.starts_with(&format!("Linux {}, ", kernel.trim())) && text.contains("\n  core 0"), "{text}");
    let told = Program::run(["topology", "--json"]);
    expect_form(&told.expect_status(0).account(), &schema("topology.json"));
}

#[test]
fn another_machine_is_drawn_with_what_would_be_placed_on_it() {
    let setup = Setup::new("topology", &[841]);
    let root = setup.directory().join("machine");
    made_machine(&root);
    let (file, root) = (automatic(&setup), root.to_str().expect("a path in UTF-8").to_owned());
    let drawn = Program::run(["topology", &file, "--root", &root]);
    let text = drawn.expect_status(0).out.join("\n");
    for line in [
        "node 1\n",
        "  core 4      CPU 4                ru0\n",
        "  core 5      CPU 5                interrupts of eth2\n",
        "thread ru0 ",
        "auto: beside CPU 5, which takes the interrupts of eth2",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    let told = Program::run(["topology", &file, "--root", &root, "--json"]);
    let account = told.expect_status(0).account();
    expect_form(&account, &schema("topology.json"));
    let first = &account["placement"]["placements"][0];
    assert_eq!((&first["name"], &first["cpus"], &first["node"]), (&"ru0".into(), &"4".into(), &1.into()), "{first:#}");
}

#[test]
fn an_invalid_machine_and_a_missing_card_are_reported() {
    let setup = Setup::new("no-machine", &[841]);
    let nowhere = setup.directory().join("nowhere");
    let ended = Program::run(["topology".as_ref(), "--root".as_ref(), nowhere.as_os_str()]);
    assert!(ended.expect_status(4).errors.contains("cpu/online"), "{ended:#?}");
    let root = setup.directory().join("machine");
    made_machine(&root);
    let file = automatic(&setup);
    let text = fs::read_to_string(&file).expect("it was written").replace("\"eth2\"", "\"eth7\"");
    fs::write(&file, text).expect("a file can be written");
    let ended = Program::run(["topology", &file, "--root", root.to_str().expect("a path in UTF-8")]);
    let line = "readout[0].card: ru0: there is no network card `eth7`; there are: eth2\n";
    assert!(ended.expect_status(2).errors.contains(line), "{ended:#?}");
    assert!(ended.errors.contains(" | card = \"eth7\"\n"), "the line is shown: {}", ended.errors);
}

#[test]
fn config_check_says_where_each_thread_and_pool_goes_and_by_which_rule() {
    let rules = "[[thread]]\nmatch = \"^ru\"\ncpus = \"0\"\n[[pool]]\nmatch = \"^ru.*fragments\"\nlock = true\n";
    let setup = Setup::new("checked", &[841]).and(rules).and("[[pool]]\nmatch = \"^no\"\nlock = true\n");
    let file = setup.file();
    let ended = Program::run(["config".as_ref(), "check".as_ref(), file.as_os_str()]);
    let lines: Vec<String> =
        ended.expect_status(0).out.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "thread ru0 CPU 0, node 0 thread rule 1",
        "pool ru0-fragments any node, locked pool rule 1",
        "pool bu0-records any node no rule",
        "pool rule 2 matches nothing",
    ] {
        assert!(lines.iter().any(|one| one == line), "{line}: {lines:#?}");
    }
}

#[test]
fn config_check_shows_where_threads_and_pools_of_gateways_go() {
    let directory = TemporaryDirectory::new("checked-gateway");
    let rules = "[[thread]]\nmatch = \"^gw0$\"\ncpus = \"0\"\n[[pool]]\nmatch = \"-packets$\"\nlock = true\n\
                 [[pool]]\nmatch = \"^no\"\nlock = true\n[[gateway]]";
    let file = example(&directory, "lhcb-gateway.toml", &[("[[gateway]]", rules)]);
    let checked = Program::run(["config", "check", &file]);
    let topology = Program::run(["topology", &file]);
    for ended in [checked, topology] {
        let lines = ended.expect_status(0).out.iter();
        let lines: Vec<String> = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "thread gw0 CPU 0, node 0 thread rule 1",
            "pool gw0-l1-packets any node, locked pool rule 1",
            "pool gw0-staging any node no rule",
            "pool rule 2 matches nothing",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line}: {lines:#?}");
        }
    }
}

/// As with `config check setup.toml | head -1`.
#[test]
fn a_reader_that_stops_early_makes_no_error() {
    let setup = Setup::new("checked-head", &[841]);
    let place = TemporaryDirectory::new("checked-head-run");
    let file = setup.file().display().to_string();
    let output = place.path().display().to_string();
    let run = format!("{output}/run000001");
    let asked = [
        vec!["config", "check", &file],
        vec!["demo", "--duration", "1s", "--output", &output],
        vec!["verify", &run],
        vec!["verify", "--json", &run],
        vec!["inspect", &run],
        vec!["recover", &run],
    ];
    for arguments in asked {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        let ended = command.args(&arguments).stdout(writer).output().expect("it can be started");
        assert!(ended.status.success(), "{arguments:?}: {ended:?}");
    }
}
