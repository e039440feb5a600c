//! What the program prints as JSON has the form that `docs/schema` promises.

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
