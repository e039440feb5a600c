//! The program's JSON output has the form that `docs/schema` promises.

use crate::forms::{differences, expect_form, schema};
use crate::process::Program;
use crate::support::TemporaryDirectory;
use serde_json::Value;

#[test]
fn the_accounts_of_a_demo_have_the_promised_form() {
    let directory = TemporaryDirectory::new("accounts");
    let output = directory.path().to_str().expect("a path in UTF-8");
    let demo = Program::run(["demo", "--events", "2000", "--sources", "4", "--json", "--output", output]);
    let account = demo.expect_status(0).account();
    expect_form(&account, &schema("run.json"));
    assert_eq!(account["events"]["built"], 2000, "{account:#}");
    let run = directory.path().join("run000001");
    let text = std::fs::read_to_string(run.join("run.json")).expect("the run wrote it");
    assert_eq!(serde_json::from_str::<Value>(&text).expect("it is JSON"), account, "run.json is the last line");
    let verified = Program::run(["verify".as_ref(), run.as_os_str(), "--json".as_ref()]);
    let report = verified.expect_status(0).account();
    expect_form(&report, &schema("verify.json"));
    assert_eq!((&report["events"], &report["fragments"]), (&2000.into(), &8000.into()), "{report:#}");
}

#[test]
fn the_checker_finds_what_is_missing_or_of_another_type() {
    let schema = schema("verify.json");
    let mut found = Vec::new();
    differences(&serde_json::json!({ "events": -1, "payload_bytes": "2" }), &schema, &schema, "$", &mut found);
    for place in ["$.events: -1", "$.payload_bytes: \"2\"", "$.fragments: is missing"] {
        assert!(found.iter().any(|one| one.starts_with(place)), "{place}: {found:#?}");
    }
}

// ---- what this machine can do

#[test]
fn doctor_look_prints_at_once_in_the_form_of_its_schema() {
    let told = Program::run(["doctor", "--look", "--json"]).expect_status(0).account();
    expect_form(&told, &schema("doctor.json"));
    assert!(told["measured"].is_null() && told["verdict"].is_null(), "{told:#}");
    let features = told["features"].as_array().expect("there are some");
    let feature = |name: &str| {
        let feature = features.iter().find(|feature| feature["name"] == name);
        feature.unwrap_or_else(|| panic!("{name}: {features:#?}"))
    };
    // io_uring is there only if all operations are, and otherwise a remark gives the reason; not every machine has a
    // card.
    let operations = feature("io_uring operations");
    assert_eq!(feature("io_uring")["is_there"], operations["is_there"], "{features:#?}");
    assert!(
        operations["is_there"] == false
            || operations["remark"].as_str().is_some_and(|told| told.contains("SENDMSG_ZC"))
    );
    assert!(feature("AF_XDP modes")["remark"].as_str().is_some_and(|told| !told.is_empty()));
    let topology: Vec<&str> =
        told["topology"].as_array().expect("lines").iter().filter_map(|line| line.as_str()).collect();
    for part in ["node ", "  core 0", "  card lo"] {
        assert!(topology.iter().any(|line| line.contains(part)), "{part}: {topology:#?}");
    }
}

/// For any name of the directory: a relative path, or a link.
#[test]
fn the_disk_is_looked_at_where_the_directory_really_is() {
    let storage = |output: &str| {
        let told = Program::run(["doctor", "--look", "--json", "--output", output]).expect_status(0).account();
        let mut findings = told["findings"].as_array().expect("a list").clone();
        findings.retain(|finding| finding["group"] == "storage");
        findings
    };
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).expect("tests are somewhere");
    assert_eq!(storage("."), storage(&here.display().to_string()));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("every Linux has it");
    if !mounts.lines().any(|line| line.contains(" /dev/shm ") && line.contains(" - tmpfs ")) {
        return ropewalk_tidy::skipped(
            "accounts::the_disk_is_looked_at_where_the_directory_really_is",
            "no tmpfs there",
        );
    }
    let directory = TemporaryDirectory::new("doctor-link");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("/dev/shm", &link).expect("a link can be made");
    let found = storage(&link.display().to_string());
    let has = |subject: &str, told: &str| found.iter().any(|one| one["subject"] == subject && one["found"] == told);
    assert!(has("/dev/shm: file system", "tmpfs at /dev/shm"), "{found:#?}");
}

#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let directory = TemporaryDirectory::new("doctor");
    let nowhere = directory.path().join("nowhere");
    let refused = Program::run(["doctor", "--output", &nowhere.display().to_string()]);
    refused.expect_status(2);
    assert!(refused.errors.contains("there is no directory") && refused.errors.contains("nowhere"), "{refused:?}");
    assert!(!nowhere.exists());
}
