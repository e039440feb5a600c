//! What the program prints as JSON has the form that `docs/schema` promises.

use crate::process::Program;
use crate::support::TemporaryDirectory;
use serde_json::Value;
use std::path::Path;

pub(crate) fn schema(name: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(name);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => panic!("no type of JSON is named {name}"),
    }
}

/// Where `value` differs from `schema` in types, choices, members, constants and least values. Of JSON Schema this
/// knows what `docs/schema` needs; `.ci/check_json.py` holds every run of the CI against the rest.
fn differences(value: &Value, schema: &Value, root: &Value, place: &str, into: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let definition = &root["$defs"][name.trim_start_matches("#/$defs/")];
        assert!(definition.is_object(), "{place}: the schema has no {name}");
        differences(value, definition, root, place, into);
    }
    let types = schema.get("type").map_or(Vec::new(), |types| match types {
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    });
    if !types.is_empty() && !types.iter().any(|name| is_of_type(value, name)) {
        into.push(format!("{place}: {value} is none of {types:?}"));
    }
    if schema.get("const").is_some_and(|constant| constant != value) {
        into.push(format!("{place}: {value} is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
        into.push(format!("{place}: {value} is none of {}", schema["enum"]));
    }
    for choices in ["anyOf", "oneOf"].iter().filter_map(|rule| schema[rule].as_array()) {
        let found = |choice| {
            let mut found = Vec::new();
            differences(value, choice, root, place, &mut found);
            found
        };
        into.extend(choices.iter().map(found).min_by_key(Vec::len).into_iter().flatten());
    }
    if schema["minimum"].as_f64().is_some_and(|least| value.as_f64().is_some_and(|value| value < least)) {
        into.push(format!("{place}: {value} is less than {}", schema["minimum"]));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.is_object() && value.get(name).is_none() {
            into.push(format!("{place}.{name}: is missing"));
        }
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let own = schema["properties"].get(name);
        // Patterns are for numbers as names, and there is nothing else in such an object.
        let patterns = schema["patternProperties"].as_object().and_then(|patterns| patterns.values().next());
        match own.or(patterns).or(schema.get("additionalProperties")) {
            Some(Value::Bool(false)) => into.push(format!("{place}.{name}: is not in the schema")),
            Some(schema) => differences(member, schema, root, &format!("{place}.{name}"), into),
            None => {}
        }
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        items
            .iter()
            .enumerate()
            .for_each(|(at, item)| differences(item, schema, root, &format!("{place}[{at}]"), into));
    }
}

pub(crate) fn expect_form(value: &Value, schema: &Value) {
    let mut found = Vec::new();
    differences(value, schema, schema, "$", &mut found);
    assert!(found.is_empty(), "{found:#?} in {value:#}");
}

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
fn a_campaign_ends_with_its_summary_and_a_seed_can_be_traced() {
    let campaign = Program::run(["simulate", "--campaign", "8", "--seed", "100", "--json"]);
    let summary = campaign.expect_status(0).account();
    expect_form(&summary, &schema("simulate.json"));
    assert_eq!((&summary["first_seed"], &summary["seeds"]), (&100.into(), &8.into()), "{summary:#}");
    let again = Program::run(["simulate", "--campaign", "8", "--seed", "100", "--json"]);
    assert_eq!(again.expect_status(0).account(), summary, "the same seeds are the same runs");

    let directory = TemporaryDirectory::new("simulate");
    let file = directory.path().join("seed.json");
    let traced = Program::run(["simulate".as_ref(), "--seed=3".as_ref(), "--trace".as_ref(), file.as_os_str()]);
    traced.expect_status(0);
    let text = std::fs::read_to_string(&file).expect("the trace was written");
    let trace: Value = serde_json::from_str(&text).expect("it is JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 100), "{}", text.len());
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
