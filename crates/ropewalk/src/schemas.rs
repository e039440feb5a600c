//! Compares `docs/schema` with the schemas of the types that are serialised.
//!
//! To update the files: `ROPEWALK_BLESS=1 cargo test -p ropewalk --bin ropewalk schemas`.

use crate::felix::{ServeReport, SubscribeReport};
use crate::topology::TopologyReport;
use crate::tune::plan::PlanReport;
use crate::tune::{CheckReport, ToldApplied, ToldUndone};
use ropewalk_doctor::Diagnosis;
use ropewalk_engine::pages::PagesReport;
use ropewalk_run::RunSummary;
use ropewalk_run::monitoring::Histograms;
use ropewalk_run::schemas::schema_of;
use ropewalk_tools::VerifyReport;
use ropewalk_tools::felix::DecodeReport;
use ropewalk_tools::file_based::FilesSummary;
use ropewalk_tools::foreign::{InspectReport, SniffReport, TrialReport};
use schemars::Schema;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn each_schema_is_that_of_the_type_that_is_written() {
    let schemas = [
        ("counters.json", schema_of::<PagesReport>()),
        ("doctor.json", schema_of::<Diagnosis>()),
        ("felix-decode.json", schema_of::<DecodeReport>()),
        ("felix-serve.json", schema_of::<ServeReport>()),
        ("felix-subscribe.json", schema_of::<SubscribeReport>()),
        ("files.json", schema_of::<FilesSummary>()),
        ("foreign.json", schema_of::<InspectReport<'_>>()),
        ("histograms.json", schema_of::<Histograms>()),
        ("run.json", schema_of::<RunSummary>()),
        ("sniff.json", schema_of::<SniffReport>()),
        ("source-test.json", schema_of::<TrialReport>()),
        ("topology.json", schema_of::<TopologyReport<'_>>()),
        ("tune-apply.json", schema_of::<ToldApplied<'_>>()),
        ("tune-check.json", schema_of::<CheckReport<'_>>()),
        ("tune-plan.json", schema_of::<PlanReport<'_>>()),
        ("tune-undo.json", schema_of::<ToldUndone<'_>>()),
        ("verify.json", schema_of::<VerifyReport>()),
    ];
    let differing = ropewalk_tidy::differing_schemas(schemas.map(|(name, schema)| (name, json(&schema))));
    assert!(
        differing.is_empty(),
        "{differing:?} of docs/schema are not those of the types: ROPEWALK_BLESS=1 writes them"
    );
}

fn json(schema: &Schema) -> String {
    serde_json::to_string_pretty(schema).expect("it is JSON")
}

/// Every file of docs/schema by its name.
fn files() -> BTreeMap<String, Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let entries = std::fs::read_dir(&directory).expect("the directory of schemas");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let text = std::fs::read_to_string(entry.path()).expect("a schema");
        (entry.file_name().to_string_lossy().into_owned(), serde_json::from_str(&text).expect("JSON"))
    };
    entries.map(read).collect()
}

/// The keys of an object, and of each of its forms.
fn properties(node: &Value) -> BTreeMap<&String, &Value> {
    let forms = ["oneOf", "anyOf"].into_iter().filter_map(|forms| node[forms].as_array()).flatten();
    let own = node["properties"].as_object().into_iter().flatten();
    forms.filter_map(|form| form["properties"].as_object()).flatten().chain(own).collect()
}

/// Pages that describe the keys of a schema for readers.
const PAGES: [(&str, &str); 11] = [
    ("run.json", "run-json.md"),
    ("foreign.json", "json-files.md"),
    ("sniff.json", "json-files.md"),
    ("source-test.json", "json-files.md"),
    ("verify.json", "json-files.md"),
    ("doctor.json", "json-machine.md"),
    ("topology.json", "json-machine.md"),
    ("tune-apply.json", "json-machine.md"),
    ("tune-check.json", "json-machine.md"),
    ("tune-plan.json", "json-machine.md"),
    ("tune-undo.json", "json-machine.md"),
];

#[test]
fn the_pages_on_json_have_an_entry_for_each_section() {
    let files = files();
    for (file, page) in PAGES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        let text = std::fs::read_to_string(&path).expect(page);
        for key in properties(&files[file]).keys() {
            assert!(text.contains(&format!("`{key}`")), "docs/{page} has no entry for `{key}` of docs/schema/{file}");
        }
    }
}
