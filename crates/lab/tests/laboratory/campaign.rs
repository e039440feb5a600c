//! `simulate --campaign`: its summary, and the trace of a seed.

use crate::forms::{expect_form, schema};
use crate::{Directory, run};
use serde_json::Value;

#[test]
fn a_campaign_ends_with_its_summary_and_a_seed_can_be_traced() {
    let campaign = run(["simulate", "--campaign", "8", "--seed", "100", "--json"]);
    let summary = campaign.expect_status(0).account();
    expect_form(&summary, &schema("simulate.json"));
    assert_eq!((&summary["first_seed"], &summary["seeds"]), (&100.into(), &8.into()), "{summary:#}");
    let again = run(["simulate", "--campaign", "8", "--seed", "100", "--json"]);
    assert_eq!(again.expect_status(0).account(), summary, "the same seeds are the same runs");

    let directory = Directory::new("simulate");
    let file = directory.path().join("seed.json");
    let traced = run(["simulate".as_ref(), "--seed=3".as_ref(), "--trace".as_ref(), file.as_os_str()]);
    traced.expect_status(0);
    let text = std::fs::read_to_string(&file).expect("the trace was written");
    let trace: Value = serde_json::from_str(&text).expect("it is JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 100), "{}", text.len());
}
