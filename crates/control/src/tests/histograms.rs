//! Histograms of sources, from the configuration to the account.

use super::Setup;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(super) const HISTOGRAMS: &str = "\
[[histogram]]\nname = \"sizes\"\nof = \"size\"\nbins = 4\nfrom = 0\nto = \"256B\"\n\
[[histogram]]\nname = \"pauses\"\nsources = [\"1-3\"]\nof = \"interval\"\nbins = 9\nfrom = \"1ns\"\nto = \"1s\"\nscale = \"logarithmic\"\n\
[[histogram]]\nname = \"far\"\nsources = [1]\nof = { offset = 4096, bytes = 2 }\nbins = 2\nfrom = 0\nto = 65536\n";

fn total(counts: &Value) -> u64 {
    counts["counts"].as_array().into_iter().flatten().filter_map(Value::as_u64).sum()
}

#[test]
fn histograms_are_served_while_they_are_filled_and_stand_in_the_account() {
    let setup = Setup::with("histograms", HISTOGRAMS);
    assert_eq!(setup.json("GET", "/api/v1/histograms"), (200, json!([])), "no run is set up");
    for command in ["configure", "start"] {
        assert_eq!(setup.ask("POST", &format!("/api/v1/commands/{command}")).0, 200);
    }
    let begun = Instant::now();
    let sizes = loop {
        let (_, sizes) = setup.json("GET", "/api/v1/histograms?name=sizes");
        if total(&sizes[0]["sources"]["1"]) > 0 {
            break sizes;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{sizes}");
    };
    assert_eq!((&sizes[0]["unit"], &sizes[0]["edges"]), (&"bytes".into(), &json!([0, 64, 128, 192, 256])));
    assert_eq!(sizes[0]["sources"]["1"]["counts"][2], total(&sizes[0]["sources"]["1"]), "all have 128 bytes: {sizes}");
    let names = |query: &str| {
        let (_, found) = setup.json("GET", &format!("/api/v1/histograms{query}"));
        found.as_array().into_iter().flatten().map(|one| one["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("?source=1"), ["sizes", "pauses", "far"]);
    assert_eq!((names("?source=2").len(), names("?name=no").len()), (0, 0));
    for wrong in ["histograms?source=many", "runs/%ff"] {
        let (status, problem) = setup.json("GET", &format!("/api/v1/{wrong}"));
        assert!(status == 400 && problem["error"].is_string(), "{problem}");
    }
    assert_eq!(setup.ask("POST", "/api/v1/commands/stop").0, 200);
    let (_, account) = setup.json("GET", "/api/v1/runs/1");
    let received = account["fragments"]["received"].as_u64().expect("a number");
    let [sizes, pauses, far] = [0, 1, 2].map(|index| &account["histograms"][index]["sources"]["1"]);
    assert_eq!((total(sizes), &sizes["short"]), (received, &0.into()), "{account}");
    let beside = pauses["underflow"].as_u64().unwrap_or(0) + pauses["overflow"].as_u64().unwrap_or(0);
    assert_eq!(total(pauses) + beside, received - 1, "the first one has none before it: {pauses}");
    assert_eq!((total(far), far["short"].as_u64()), (0, Some(received)), "{far}");
}
