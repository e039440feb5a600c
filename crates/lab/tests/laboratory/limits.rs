//! The bare probes.

use crate::run;
use serde_json::Value;

#[test]
fn each_probe_gives_a_figure_or_says_why_it_cannot() {
    let ended = run(["limits", "--quick", "--json"]);
    let rows = ended.expect_status(0).out.iter();
    let rows: Vec<Value> = rows.map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert!(rows.len() >= 11, "{rows:#?}");
    assert!(rows.iter().all(|row| row["figure"].as_f64() > Some(0.0) || row["skipped"].is_string()), "{rows:#?}");
}
