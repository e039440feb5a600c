//! Runs that end by themselves, subsequent runs, and run control of a run of several processes.

use crate::cluster::Cluster;
use crate::process::Program;
use crate::support::{FrontEnd, Held, Setup, SmallDisk, Tampering, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// One source, emulated in this process.
fn emulated(name: &str) -> Setup {
    Setup::new(name, &[]).source("id = 1\nreadout = \"ru0\"\nemulate = { rate = \"20kHz\", fragment_size = \"1KiB\" }")
}

#[test]
fn run_follows_run_until_a_signal() {
    let setup = emulated("following");
    let file = setup.file();
    let program = Program::start(["run", &file.display().to_string(), "--events", "200", "--then", "next", "--json"]);
    wait_for("three runs", || setup.output().join("run000003/run.json").exists().then_some(()));
    program.interrupt();
    let ended = program.end();
    ended.expect_status(0);
    let told: Vec<Value> = ended.out.iter().map(|line| serde_json::from_str(line).expect("an account")).collect();
    assert!(told.len() >= 3, "{told:#?}");
    for (account, run) in told.iter().zip(1..) {
        assert_eq!((&account["run"], &account["ledger"]["balanced"]), (&json!(run), &json!(true)), "{account:#}");
        assert!(run > 3 || account["events"]["built"] == 200, "{account:#}");
    }
}

#[test]
fn a_run_ends_when_so_many_bytes_have_come() {
    let setup = emulated("bytes");
    let file = setup.file().display().to_string();
    let ended = Program::run(["run", &file, "--bytes", "1MiB", "--json"]);
    let account = ended.expect_status(0).account();
    assert_eq!((&account["state"], &account["ledger"]["balanced"]), (&json!("ended"), &json!(true)), "{account:#}");
    let received = account["bytes"]["payload_received"].as_u64().expect("a number");
    // The run ends slightly late, on a busy machine by more than a second at 20 MiB a second; without the limit it
    // would not end.
    assert!(((1 << 20)..(100 << 20)).contains(&received), "{received} bytes");
    let refused = Program::run(["run", &file, "--then", "wait"]);
    assert!(refused.expect_status(2).errors.contains("--control 127.0.0.1:8900"), "{}", refused.errors);
}

#[test]
fn what_a_configuration_says_now_holds_after_it_is_configured_again() {
    let setup = emulated("again");
    let file = setup.file();
    let path = file.display().to_string();
    let mut program = Program::start(["run", &path, "--control", "127.0.0.1:0", "--json"]);
    let url = program.expect_error_line("run control and dashboard: ");
    let ctl = |words: &[&str], status: i32| {
        let words = ["ctl"].iter().chain(words).copied().chain(["--url", &url, "--json"]);
        Program::run(words).expect_status(status).account()
    };
    wait_for("the run", || (ctl(&["state"], 0)["state"] == "running").then_some(()));
    ctl(&["stop"], 0);
    ctl(&["reset"], 0);
    let text = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, "version = 1\n[rum]\n").expect("it can be written");
    let refused = ctl(&["configure"], 3);
    assert_eq!((&refused["answer"], &refused["state"]), (&json!("refused"), &json!("initial")), "{refused:#}");
    assert!(refused["text"].as_str().is_some_and(|text| text.contains("rum")), "{refused:#}");
    std::fs::write(&file, text.replace("20kHz", "10kHz")).expect("it can be written");
    ctl(&["configure"], 0);
    let journal = ctl(&["journal"], 0).to_string();
    assert!(journal.contains("source[1].emulate.rate is"), "{journal}");
    ctl(&["start"], 0);
    ctl(&["shutdown"], 0);
    program.end().expect_status(0);
    let kept = std::fs::read_to_string(setup.output().join("run000002/configuration.toml")).expect("it was kept");
    assert!(kept.contains("10kHz"), "{kept}");
}

/// The event manager that serves it knows every node: a mask takes effect at the node of the source.
#[test]
fn an_event_manager_that_is_a_process_of_its_own_serves_run_control() {
    let mut cluster = Cluster::new(Setup::new("served", &[841, 843]));
    cluster.start("manager", &["--control", "127.0.0.1:0", "--json"]);
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    cluster.start("ru0", &[]);
    cluster.start("bu0", &[]);
    let ctl = |words: &[&str]| {
        let words = ["ctl"].iter().chain(words).copied().chain(["--url", &url, "--json"]);
        Program::run(words).expect_status(0).account()
    };
    let wait_for_written = |events: u64| {
        wait_for(&format!("{events} events"), || (ctl(&["ledger"])["events"]["written"] == events).then_some(()));
    };
    let address = cluster.front_end_address("ru0");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=20));
    wait_for_written(20);
    assert_eq!(ctl(&["mask", "843"])[0]["events"], json!([{ "from": "21", "to": null }]));
    front_ends[0].send(21..=30);
    wait_for_written(30);
    let nodes: Vec<Value> = ctl(&["state"])["nodes"].as_array().cloned().unwrap_or_default();
    assert!(nodes.iter().all(|node| node["connected"] == true), "{nodes:?}");
    // There is no other run: a stop is the end.
    assert_eq!(ctl(&["stop"])["state"], "over");
    let account = cluster.take("manager").end().expect_status(0).account();
    let masked = json!({ "843": [{ "from": "21", "to": null }] });
    assert_eq!((&account["ledger"]["balanced"], &account["masked"]), (&json!(true), &masked), "{account:#}");
    for name in ["ru0", "bu0"] {
        cluster.take(name).end().expect_status(0);
    }
    Held::in_directories(&[cluster.run_directory("bu0")]).expect_keys_up_to(30);
}

/// An event manager, a readout and a builder unit that stay for further runs, started in this order.
fn staying(mut cluster: Cluster) -> (Cluster, String) {
    cluster.start("manager", &["--control", "127.0.0.1:0", "--json", "--then", "wait"]);
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    cluster.start("ru0", &["--then", "next"]);
    cluster.start("bu0", &["--then", "next"]);
    (cluster, url)
}

fn ask(url: &str, words: &[&str]) -> Value {
    let words = ["ctl"].iter().chain(words).copied().chain(["--url", url, "--json"]);
    Program::run(words).expect_status(0).account()
}

#[test]
fn runs_of_several_processes_follow_each_other_and_a_node_that_died_between_two_is_simply_started_again() {
    let (mut cluster, url) = staying(Cluster::new(Setup::new("several-runs", &[841, 843])));
    let ctl = |words: &[&str]| ask(&url, words);
    for run in 1..=3_u64 {
        if run > 1 {
            assert_eq!(ctl(&["start"])["state"], "running");
        }
        // In each run the readout unit prints its address.
        let address = cluster.front_end_address_in("ru0", run as usize);
        let ids = if run == 2 { vec![841] } else { vec![841, 843] };
        let mut front_ends: Vec<FrontEnd> = ids.iter().map(|&id| FrontEnd::ferol(&address, id)).collect();
        front_ends.iter_mut().for_each(|front_end| front_end.send(1..=20));
        wait_for("20 events", || (ctl(&["ledger"])["events"]["written"] == 20).then_some(()));
        assert_eq!(ctl(&["stop"])["state"], "configured");
        let account: Value =
            serde_json::from_str(&format!("{{{}", cluster.node("manager").expect_line_number(run as usize, "{")))
                .expect("an account");
        assert_eq!((&account["run"], &account["ledger"]["balanced"]), (&json!(run), &json!(true)), "{account:#}");
        Held::in_directories(&[cluster.directory_of_run("bu0", run)]).expect_keys_up_to(20);
        match run {
            // Operators' masks hold for the next run.
            1 => _ = ctl(&["mask", "843"]),
            2 => {
                ctl(&["unmask", "843"]);
                cluster.kill("bu0");
                cluster.start("bu0", &["--then", "next"]);
            }
            _ => {}
        }
    }
    ctl(&["shutdown"]);
    cluster.take("manager").end().expect_status(0);
    // They wait for another event manager, until a signal ends them.
    for name in ["ru0", "bu0"] {
        cluster.node(name).interrupt();
        cluster.take(name).end().expect_status(130);
    }
}

#[test]
fn nodes_that_were_cut_off_through_the_end_of_their_run_take_part_in_the_next_one() {
    let setup = Setup::new("cut-off", &[841, 843]).timeouts(["1s", "2s", "3s", "4s"]);
    let (mut cluster, url) = staying(Cluster::new(setup).with_relay("manager", Tampering::None));
    let ctl = |words: &[&str]| ask(&url, words);
    let address = cluster.front_end_address("ru0");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=20));
    wait_for("20 events", || (ctl(&["ledger"])["events"]["written"] == 20).then_some(()));
    cluster.relay("manager").cut();
    // Missing reports are awaited only for the configured time.
    assert_eq!(ctl(&["reset"])["state"], "initial");
    assert_eq!(ctl(&["configure"])["state"], "configured");
    let manager = cluster.node("manager").expect_line_number(1, "ready manager ");
    cluster.relay("manager").lead_to(&manager);
    for name in ["ru0", "bu0"] {
        cluster.node(name).expect_error_line("the run that this node was in was closed");
    }
    let address = cluster.front_end_address_in("ru0", 2);
    assert_eq!(ctl(&["start"])["state"], "running");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=20));
    wait_for("20 events of the next run", || (ctl(&["ledger"])["events"]["written"] == 20).then_some(()));
    ctl(&["shutdown"]);
    let told = cluster.take("manager").end();
    let account = told.expect_status(0).account();
    assert_eq!((&account["run"], &account["ledger"]["balanced"]), (&json!(2), &json!(true)), "{account:#}");
    for name in ["ru0", "bu0"] {
        cluster.kill(name);
    }
}

/// Units know the epoch of an event manager that took over also after its run.
#[test]
fn an_event_manager_that_took_over_and_died_between_two_runs_is_simply_started_again() {
    const MANAGER: [&str; 5] = ["--control", "127.0.0.1:0", "--json", "--then", "wait"];
    let setup = Setup::new("idle-successor", &[841, 843]);
    let (mut cluster, url) = staying(Cluster::new(setup).with_relay("manager", Tampering::None));
    let send = |cluster: &mut Cluster, life, url: &str| {
        let address = cluster.front_end_address_in("ru0", life);
        let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
        front_ends.iter_mut().for_each(|front_end| front_end.send(1..=20));
        wait_for("20 events", || (ask(url, &["ledger"])["events"]["written"] == 20).then_some(()));
        front_ends
    };
    let front_ends = send(&mut cluster, 1, &url);
    cluster.kill("manager");
    cluster.start("manager", &[&MANAGER[..], &["--take-over"]].concat());
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    wait_for("the run to go on", || (ask(&url, &["state"])["state"] == "running").then_some(()));
    assert_eq!(ask(&url, &["stop"])["state"], "configured");
    drop(front_ends);
    // The units join the next run, which this event manager has set up: they connect five times a second.
    cluster.front_end_address_in("ru0", 2);
    std::thread::sleep(Duration::from_secs(1));
    cluster.kill("manager");
    cluster.start("manager", &MANAGER);
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    wait_for("the next run", || (ask(&url, &["state"])["state"] == "running").then_some(()));
    send(&mut cluster, 2, &url);
    ask(&url, &["shutdown"]);
    let account = cluster.take("manager").end().expect_status(0).account();
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    ["ru0", "bu0"].into_iter().for_each(|name| cluster.kill(name));
}

/// The free space that a builder unit has reported, as exported to Prometheus.
fn told_room(url: &str, unit: &str) -> Option<f64> {
    let address = url.strip_prefix("http://")?.trim_end_matches('/');
    let mut stream = TcpStream::connect(address).expect("run control listens");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("run control reads");
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).expect("metrics are text");
    let of_unit = |line: &&str| line.starts_with("ropewalk_output_room_bytes{") && line.contains(&format!("{unit:?}"));
    metrics.lines().find(of_unit)?.rsplit(' ').next()?.parse().ok()
}

/// The process that serves run control does not have the disk itself: the builder unit reports its free space.
#[test]
fn a_run_is_refused_while_a_builder_unit_elsewhere_has_no_room() {
    let setup = Setup::new("room-elsewhere", &[841]).and("[storage]\nstart_free = \"4MiB\"\n");
    let output = setup.directory().join("bu0");
    let Some(_disk) = SmallDisk::mount(&output) else {
        return ropewalk_tidy::skipped(
            "following::a_run_is_refused_while_a_builder_unit_elsewhere_has_no_room",
            "may not mount",
        );
    };
    let (mut cluster, url) = staying(Cluster::new(setup));
    let send = |cluster: &mut Cluster, life: usize| {
        let mut front_end = FrontEnd::ferol(&cluster.front_end_address_in("ru0", life), 841);
        front_end.send(1..=20);
        wait_for("20 events", || (ask(&url, &["ledger"])["events"]["written"] == 20).then_some(()));
        assert_eq!(ask(&url, &["stop"])["state"], "configured");
    };
    send(&mut cluster, 1);
    let filler = output.join("filler");
    std::fs::write(&filler, vec![1; 5 << 20]).expect("the file fits");
    let is_short = |room: f64| room < f64::from(4 << 20);
    wait_for("the news that there is too little", || told_room(&url, "bu0").filter(|&room| is_short(room)));
    let refused = Program::run(["ctl", "start", "--url", &url]);
    let why = refused.expect_status(3).out.join("\n");
    assert!(why.contains("builder unit bu0: ") && why.contains("with less than 4.0 MiB no run starts"), "{why}");
    std::fs::remove_file(&filler).expect("it is ours");
    wait_for("the news that there is room", || told_room(&url, "bu0").filter(|&room| !is_short(room)));
    assert_eq!(ask(&url, &["start"])["state"], "running");
    send(&mut cluster, 2);
    ask(&url, &["shutdown"]);
    cluster.take("manager").end().expect_status(0);
    for name in ["ru0", "bu0"] {
        cluster.node(name).interrupt();
        cluster.take(name).end().expect_status(130);
    }
}
