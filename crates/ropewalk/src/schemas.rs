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

/// The names of the definitions that a key's value may have.
fn references(node: &Value, into: &mut Vec<String>) {
    match node {
        Value::Object(members) => {
            if let Some(name) = members.get("$ref").and_then(|name| name.as_str()?.rsplit('/').next()) {
                into.push(name.to_owned());
            }
            members.iter().filter(|(key, _)| *key != "properties").for_each(|(_, value)| references(value, into));
        }
        Value::Array(elements) => elements.iter().for_each(|element| references(element, into)),
        _ => {}
    }
}

/// The keys of an object, and of each of its forms.
fn properties(node: &Value) -> BTreeMap<&String, &Value> {
    let forms = ["oneOf", "anyOf"].into_iter().filter_map(|forms| node[forms].as_array()).flatten();
    let own = node["properties"].as_object().into_iter().flatten();
    forms.filter_map(|form| form["properties"].as_object()).flatten().chain(own).collect()
}

/// A table of the keys of an object; empty if it has none.
fn table(prefix: &str, root: &Value, node: &Value) -> String {
    let row = |(key, value): (&String, &Value)| {
        let mut names = Vec::new();
        references(value, &mut names);
        names.retain(|name| !properties(&root["$defs"][name]).is_empty());
        names.dedup();
        let links: Vec<_> = names.iter().map(|name| format!("[{name}](#{prefix}-{name})")).collect();
        let own = value["description"].as_str();
        let of_type = || names_of(value).first().and_then(|name| root["$defs"][name]["description"].as_str());
        let help = own.or_else(of_type).unwrap_or_default().replace('|', "\\|");
        format!("| `{key}` | {} | {} |\n", help.trim_end_matches('.').replace(". ", "; "), links.join(", "))
    };
    let rows: String = properties(node).into_iter().map(row).collect();
    if rows.is_empty() { rows } else { format!("| Key | Meaning | Members |\n|---|---|---|\n{rows}\n") }
}

fn names_of(node: &Value) -> Vec<String> {
    let mut names = Vec::new();
    references(node, &mut names);
    names
}

const HEAD: &str = "# Every key of the JSON output

This page lists every key that the program writes as JSON, by [schema](schema/run.json). A key whose value is an object, or a
list of objects, names the table of its members. Pages on single commands say more: [the account of a run](run-json.md),
[commands that read files](json-files.md), [commands that look at the machine](json-machine.md).
";

/// The page of all keys is made of the schemas; ROPEWALK_BLESS=1 writes it.
#[test]
fn the_page_of_keys_is_that_of_the_schemas() {
    let mut page = HEAD.to_owned();
    for (file, schema) in files() {
        let prefix = file.trim_end_matches(".json");
        page += &format!("\n## {prefix}\n");
        if let Some(title) = schema["title"].as_str() {
            page += &format!("{title}. ");
        }
        page += &format!("[Schema](schema/{file}).\n\n{}", table(prefix, &schema, &schema));
        for (name, node) in schema["$defs"].as_object().into_iter().flatten() {
            let table = table(prefix, &schema, node);
            if !table.is_empty() {
                page += &format!("<a id=\"{prefix}-{name}\"></a>**{name}** of `{prefix}`\n\n{table}");
            }
        }
    }
    let page = format!("{}\n", page.trim_end());
    assert!(ropewalk_tidy::is_current("docs/json-keys.md", &page), "docs/json-keys.md: ROPEWALK_BLESS=1 writes it");
}

/// Pages that describe the keys of a schema for readers, beside the page of all keys.
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
