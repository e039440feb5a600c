//! Histograms of sources in a run of several processes: they are filled in readout units, and told by the event manager.

use crate::cluster::Cluster;
use crate::process::Program;
use crate::support::{FrontEnd, Setup, wait_for};
use serde_json::{Value, json};

/// Bytes of the fragments of either source; the third histogram's last bin ends between the two.
const SIZES: [usize; 2] = [1024, 3072];

const HISTOGRAMS: &str = r#"
[[histogram]]
name = "sizes"
of = "size"
from = 0
to = "4KiB"
bins = 4

[[histogram]]
name = "event-number"
sources = [843]
of = { offset = 4, bytes = 3, order = "little" }
from = 1
to = 41
bins = 4

[[histogram]]
name = "small"
of = "size"
from = 0
to = "2KiB"
bins = 2
"#;

/// What a histogram counted of one source: by bin, and above.
fn counts(histograms: &Value, name: &str, source: &str) -> (Value, Value) {
    let all = histograms.as_array().expect("a list");
    let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {histograms:#}"));
    let counted = &one["sources"][source];
    (counted["counts"].clone(), counted["overflow"].clone())
}

/// After so many events of both sources.
fn expect_counts(histograms: &Value, events: u64) {
    let (none, all) = (json!(0), json!(events));
    for (name, source, bins, above) in [
        ("sizes", "841", json!([0, events, 0, 0]), &none),
        ("sizes", "843", json!([0, 0, 0, events]), &none),
        ("event-number", "843", json!([10, 10, 10, 10]), &json!(events - 40)),
        ("small", "841", json!([0, events]), &none),
        ("small", "843", json!([0, 0]), &all),
    ] {
        assert_eq!(counts(histograms, name, source), (bins, above.clone()), "{name} of {source}: {histograms:#}");
    }
    let of_one = histograms.as_array().into_iter().flatten().find(|one| one["name"] == "event-number");
    assert_eq!(of_one.map(|one| one["sources"]["841"].clone()), Some(Value::Null), "it was not asked for");
}

#[test]
fn what_readout_units_count_of_fragments_reaches_the_event_manager_and_the_account() {
    const EVENTS: u64 = 60;
    let setup = Setup::new("source-histograms", &[841]).another_readout().source("id = 843\nreadout = \"ru1\"");
    let mut cluster = Cluster::new(setup.and(HISTOGRAMS));
    cluster.start("manager", &["--control", "127.0.0.1:0", "--json"]);
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    ["ru0", "ru1", "bu0"].iter().for_each(|name| cluster.start(name, &[]));
    let ctl = |words: &[&str]| {
        let words = ["ctl"].iter().chain(words).copied().chain(["--url", &url, "--json"]);
        Program::run(words).expect_status(0).account()
    };
    let addresses = ["ru0", "ru1"].map(|name| cluster.front_end_address(name));
    let front_end = |place: usize, id| FrontEnd::ferol(&addresses[place], id).with_size(SIZES[place]);
    let mut front_ends = [front_end(0, 841), front_end(1, 843)];
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=EVENTS));
    let served = wait_for("all fragments in the bins", || {
        let histograms = ctl(&["histograms"]);
        let (sizes, _) = counts(&histograms, "sizes", "843");
        let (others, _) = counts(&histograms, "sizes", "841");
        (sizes[3] == EVENTS && others[1] == EVENTS).then_some(histograms)
    });
    expect_counts(&served, EVENTS);
    ctl(&["stop"]);
    let account = cluster.take("manager").end().expect_status(0).account();
    expect_counts(&account["histograms"], EVENTS);
    for name in ["ru0", "ru1", "bu0"] {
        cluster.take(name).end().expect_status(0);
    }
}
