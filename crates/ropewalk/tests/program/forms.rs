//! Compares JSON with the form that `docs/schema` promises.

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

/// Where `value` differs from `schema` in types, choices, members, constants and minimum values. This supports the part
/// of JSON Schema that `docs/schema` needs; `.ci/check_json.py` checks every run of the CI against the rest.
pub(crate) fn differences(value: &Value, schema: &Value, root: &Value, place: &str, into: &mut Vec<String>) {
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
        into.push(format!("{place}: {value} is not one of {types:?}"));
    }
    if schema.get("const").is_some_and(|constant| constant != value) {
        into.push(format!("{place}: {value} is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
        into.push(format!("{place}: {value} is not one of {}", schema["enum"]));
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
        // Patterns are for numeric names, and such an object has no other members.
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
