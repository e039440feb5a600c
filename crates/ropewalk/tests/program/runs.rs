//! The runs of an output directory, looked at after they were taken.

use crate::process::{Ended, Program};
use crate::support::TemporaryDirectory;
use serde_json::Value;
use std::path::Path;
use std::time::SystemTime;

fn runs(output: &Path, arguments: &[&str]) -> Ended {
    let output = output.to_str().expect("it is text");
    Program::run([&["runs"], arguments, &["--output", output]].concat())
}

fn seconds_since_1970() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later").as_secs() as i64
}

#[test]
fn runs_are_listed_shown_compared_noted_and_exported() {
    let temporary = TemporaryDirectory::new("runs");
    let output = temporary.path();
    let directory = output.to_str().expect("it is text");
    let before = seconds_since_1970();
    for events in ["300", "500"] {
        let demo = ["demo", "--events", events, "--sources", "4", "--json", "--output", directory];
        Program::run(demo).expect_status(0);
    }
    std::fs::create_dir(output.join("run000007")).expect("it can be made");

    let list = runs(output, &["list", "--json"]).expect_status(0).account();
    let told =
        |name: &str| list.as_array().expect("a list").iter().map(|run| run[name].clone()).collect::<Vec<Value>>();
    assert_eq!(told("run"), [1, 2, 7]);
    assert_eq!(told("has_account"), [true, true, false]);
    assert_eq!(told("written"), [300.into(), 500.into(), Value::Null]);
    assert_eq!(told("is_balanced"), [true.into(), true.into(), Value::Null]);
    let began = told("started_ns")[0].as_i64().expect("a time") / 1_000_000_000;
    assert!((before..=seconds_since_1970()).contains(&began), "{began}");
    let table = runs(output, &["list"]).expect_status(0).out.join("\n");
    assert!(table.contains("no account: it goes on, or was killed"), "{table}");

    runs(output, &["note", "2", "target, moved", "--by", "ada"]).expect_status(0);
    let shown = runs(output, &["show", "2", "--json"]).expect_status(0).account();
    // The program itself has noted how the run went.
    let note = shown["notes"].as_array().expect("a list").last().expect("a note");
    assert_eq!((&note["kind"], &note["by"], &note["text"]), (&"note".into(), &"ada".into(), &"target, moved".into()));
    let lines = runs(output, &["show", "2"]).expect_status(0).out.clone();
    assert!(lines.last().expect("a line").ends_with("  note      ada: target, moved"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("  command   ") && line.contains(": start, by ")), "{lines:#?}");

    let compared = runs(output, &["compare", "1", "2"]).expect_status(0).out.clone();
    let line = |name: &str| compared.iter().find(|line| line.contains(name)).expect("it is there");
    assert!(line("events built").contains("differs") && !line("sources").contains("differs"), "{compared:#?}");

    assert!(line("configuration").contains("differs") && line("run.events").contains("300"), "{compared:#?}");
    let both = runs(output, &["compare", "1", "2", "--json"]).expect_status(0).account();
    let differing = |run: usize| both[run]["differing_configuration"]["run.events"].clone();
    assert_eq!((differing(0), differing(1)), ("300".into(), "500".into()));
    let kept = std::fs::read_to_string(output.join("run000002/configuration.toml")).expect("it is kept");
    assert!(kept.contains("events = 500"), "{kept}");
    let digest = shown["configuration_sha256"].as_str().expect("a digest");
    assert_eq!(digest.len(), 64);
    let account = std::fs::read_to_string(output.join("run000002/run.json")).expect("it is kept");
    assert!(account.contains(digest) && line("configuration").contains(&digest[..16]), "{account}");
    let bare = runs(output, &["compare", "1", "7"]).expect_status(0).out.clone();
    assert!(bare.last().expect("a line").contains("was not kept"), "{bare:#?}");

    // Whether it is synchronised is the machine's; that it was asked is not.
    let clock = &shown["clock"];
    assert!(["at_start", "at_end"].iter().all(|end| clock[end]["synchronised"].is_boolean()), "{clock}");
    assert!(line("clock").contains("synchronised"), "{compared:#?}");

    let csv = runs(output, &["export"]).expect_status(0).out.clone();
    assert_eq!(csv.len(), 4, "{csv:#?}");
    assert!(csv[0].starts_with("run,began,") && csv[2].ends_with(",true,,,\"target, moved\""), "{csv:#?}");
}

#[test]
fn what_is_said_at_a_runs_start_is_kept_and_what_has_to_be_said_is_asked_for() {
    let temporary = TemporaryDirectory::new("runs-fields");
    let output = temporary.path();
    let file = output.join("fields.toml");
    let text = format!(
        "version = 1\n[run]\noutput = {output:?}\nevents = 100\nrequired_fields = [\"beam\", \"shifter\"]\n[[readout]]\n\
         name = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nreadout = \"ru0\"\n\
         emulate = {{ rate = \"100Hz\", fragment_size = \"64B\" }}\n"
    );
    std::fs::write(&file, text).expect("it can be written");
    let run = |more: &[&str]| {
        let arguments = ["run", file.to_str().expect("it is text"), "--json"];
        Program::run([&arguments, more].concat())
    };
    let refused = run(&["--field", "beam=120 GeV"]);
    assert!(refused.expect_status(2).errors.contains("a run's start needs shifter"), "{refused:#?}");
    assert!(!output.join("run000001").exists());
    assert!(run(&["--field", "Beam"]).expect_status(2).errors.contains("`Beam` is no field"));
    let account = run(&["--field", "beam=120 GeV", "--field", "shifter=ada"]).expect_status(0).account();
    assert_eq!(account["fields"], serde_json::json!({ "beam": "120 GeV", "shifter": "ada" }));

    let file = file.to_str().expect("it is text");
    let served = ["run", file, "--control", "127.0.0.1:0", "--idle", "--json", "--field", "shifter=bob"];
    let mut program = Program::start(served);
    let url = program.expect_error_line("run control and dashboard: ");
    let ctl = |more: &[&str]| Program::run([&["ctl"], more, &["--url", &url, "--json"]].concat());
    crate::support::wait_for("a run that is set up", || {
        let state = ctl(&["state"]).expect_status(0).account();
        (state["state"] == "configured").then_some(())
    });
    assert_eq!(ctl(&["state"]).account()["required_fields"], serde_json::json!(["beam", "shifter"]));
    let refused = ctl(&["start"]);
    assert_eq!(refused.expect_status(3).account()["answer"], "refused");
    assert!(refused.account()["text"].as_str().expect("why").contains("needs beam"), "{refused:#?}");
    let wrong = ctl(&["start", "--field", "beam"]).expect_status(3).account();
    assert!(wrong["error"].as_str().expect("why").contains("`beam` is no field"), "{wrong}");
    ctl(&["start", "--field", "beam=60 GeV"]).expect_status(0);
    crate::support::wait_for("its account", || output.join("run000002/run.json").exists().then_some(()));
    ctl(&["note", "beam back", "--run", "2", "--by", "bob"]).expect_status(0);
    ctl(&["note", "beam back", "--run", "9"]).expect_status(2);
    assert!(ctl(&["note"]).expect_status(2).errors.contains("note: what?"));
    ctl(&["shutdown"]).expect_status(0);
    program.end().expect_status(0);
    assert!(
        runs(output, &["show", "2"]).expect_status(0).out.iter().any(|line| line.contains("beam=60 GeV, shifter=bob"))
    );
    let shown = runs(output, &["show", "2"]).out.clone();
    assert!(shown.iter().any(|line| line.ends_with("bob: beam back")), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("ropewalk: ") && line.ends_with("running")), "{shown:#?}");
    let csv = runs(output, &["export"]).expect_status(0).out.clone();
    assert!(csv[1].contains(",\"beam=120 GeV, shifter=ada\",") && csv[2].ends_with(",beam back"), "{csv:#?}");
}

#[test]
fn a_run_that_there_is_not_is_named_with_those_that_there_are() {
    let temporary = TemporaryDirectory::new("runs-none");
    let output = temporary.path();
    std::fs::create_dir(output.join("run000003")).expect("it can be made");
    for arguments in [&["show", "4"][..], &["compare", "3", "4"], &["note", "4", "what"]] {
        let ended = runs(output, arguments);
        assert!(ended.expect_status(2).errors.contains("there is no run 4; there are 3 to 3"), "{ended:#?}");
    }
    assert!(!output.join("logbook.jsonl").exists());
    let ended = runs(output, &["note", "3", " "]);
    assert!(ended.expect_status(2).errors.contains("a note has 1 to 16384 bytes"), "{ended:#?}");
    let ended = runs(&output.join("nowhere"), &["list"]);
    assert!(ended.expect_status(2).errors.contains("there is no such directory"), "{ended:#?}");
    std::fs::write(output.join("run000003/run.json"), "{").expect("it can be written");
    assert!(runs(output, &["list"]).expect_status(0).errors.contains("warning: "));
    assert!(runs(output, &["show", "3"]).expect_status(4).errors.contains("run000003"));
}
