//! Any request at all is answered as the OpenAPI document says, and the server is there afterwards. Bodies are made of what the document
//! asks for: some are taken, and some are nearly right.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::repeat_n;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Map, Value, json};

use super::Setup;

/// Statuses that any request may have: wrong in itself, no such thing, another method, too long, too many.
const ALWAYS: [u16; 6] = [400, 404, 405, 413, 414, 429];
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"];
/// Words of paths and queries: good, bad, and deceptive ones.
const WORDS: [&str; 16] = [
    "1",
    "0",
    "-1",
    "18446744073709551616",
    "true",
    "configure",
    "pause",
    "stop",
    "disk_full",
    "..%2f..%2fetc%2fpasswd",
    "%00",
    "%ff%fe",
    "a%20b",
    "9e99",
    "\"",
    "",
];

/// A run that is there.
const RUN: u32 = 7;

/// What is asked for, and what the document says of it.
struct Asked<'a> {
    template: &'a str,
    method: &'a str,
    path: String,
    operation: &'a Value,
    body: Body,
}

struct Document(Value);

impl Document {
    /// Paths that end by themselves.
    fn paths(&self) -> Vec<&str> {
        let paths = self.0["paths"].as_object().expect("paths");
        paths.keys().map(String::as_str).filter(|path| !path.ends_with("stream")).collect()
    }

    /// What takes a body: paths and methods.
    fn with_bodies(&self) -> Vec<(&str, &'static str)> {
        let all = self.paths().into_iter().flat_map(|path| METHODS.map(|method| (path, method)));
        all.filter(|(path, method)| self.operation(path, method)["requestBody"].is_object()).collect()
    }

    fn operation(&self, template: &str, method: &str) -> &Value {
        // HEAD is GET without what is asked for.
        let described = if method == "HEAD" { "get".to_owned() } else { method.to_lowercase() };
        &self.0["paths"][template][described]
    }

    /// A path with these words in it, over and over.
    fn written<'a>(&self, template: &str, operation: &Value, words: impl Iterator<Item = &'a str> + Clone) -> String {
        let (mut words, mut path) = (words.cycle(), String::new());
        for part in template.split_inclusive('/') {
            match part.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                Some((_, rest)) => path += &format!("{}{rest}", words.next().unwrap_or_default()),
                None => path += part,
            }
        }
        let queries = operation["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] == "query");
        for (place, query) in queries.enumerate() {
            let name = query["name"].as_str().expect("a name");
            path += &format!("{}{name}={}", if place == 0 { '?' } else { '&' }, words.next().unwrap_or_default());
        }
        path
    }

    /// A request for one of the paths, with arbitrary words and bytes.
    fn anything<'a>(&'a self, path: Index, method: &'a str, words: &[Index], bytes: Vec<u8>) -> Asked<'a> {
        let template = *path.get(&self.paths());
        let operation = self.operation(template, method);
        let path = self.written(template, operation, words.iter().map(|word| *word.get(&WORDS)));
        Asked { template, method, path, operation, body: Body { kind: None, bytes } }
    }

    /// A request with a body that fits its description, or nearly does, in the name of the operator who has control.
    fn described(&self, setup: &Setup, place: Index, numbers: &[u16]) -> Asked<'_> {
        let (template, method) = *place.get(&self.with_bodies());
        let operation = self.operation(template, method);
        let holder = setup.json("GET", "/api/v1/operator").1["operator"]["name"].clone();
        let by: String = holder.as_str().unwrap_or("ada").bytes().map(|byte| format!("%{byte:02x}")).collect();
        let run = RUN.to_string();
        let words: Vec<_> = repeat_n(run.as_str(), template.matches('{').count()).chain([by.as_str()]).collect();
        let path = self.written(template, operation, words.into_iter());
        let body = body(&self.0, operation, &mut Drawn::new(numbers)).expect("it takes one");
        Asked { template, method, path, operation, body }
    }

    /// Returns whether a value fits a schema: types, required fields, elements.
    fn fits(&self, value: &Value, schema: &Value) -> bool {
        if let Some(name) = schema["$ref"].as_str().and_then(|place| place.strip_prefix("#/components/schemas/")) {
            return self.fits(value, &self.0["components"]["schemas"][name]);
        }
        if let Some(any) = schema["oneOf"].as_array() {
            return any.iter().any(|schema| self.fits(value, schema));
        }
        let is_of = |name: &str| match name {
            "object" => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let has_all = required.into_iter().all(|field| value.get(field).is_some());
                let fields = schema["properties"].as_object().into_iter().flatten();
                value.is_object()
                    && has_all
                    && fields
                        .into_iter()
                        .all(|(name, schema)| value.get(name).is_none_or(|value| self.fits(value, schema)))
            }
            "array" => value.as_array().is_some_and(|all| all.iter().all(|one| self.fits(one, &schema["items"]))),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            _ => false,
        };
        match &schema["type"] {
            Value::String(name) => is_of(name),
            Value::Array(names) => names.iter().filter_map(Value::as_str).any(is_of),
            _ => true,
        }
    }

    /// Sends a request and checks the response; returns its status.
    fn check(&self, setup: &Setup, asked: &Asked<'_>) -> Result<u16, TestCaseError> {
        let Asked { method, path, operation, body, .. } = asked;
        let kind = body.kind.as_ref().map_or_else(String::new, |kind| format!("Content-Type: {kind}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{kind}Content-Length: {}\r\n\r\n",
            setup.address(),
            body.bytes.len()
        );
        let bytes = [request.as_bytes(), &body.bytes].concat();
        let (mut status, mut answer) = setup.say(&bytes);
        if status == 429 {
            // The rate limit of commands was exceeded: retry after a pause.
            std::thread::sleep(Duration::from_millis(60));
            (status, answer) = setup.say(&bytes);
        }
        let said = || format!("{method} {path} {}", String::from_utf8_lossy(&body.bytes[..body.bytes.len().min(500)]));
        let response = &operation["responses"][status.to_string()];
        prop_assert!(!response.is_null() || ALWAYS.contains(&status), "{status} for {}: {answer}", said());
        let schema = &response["content"]["application/json"]["schema"];
        // The HTTP library refuses an invalid address by itself, with an empty body.
        let is_unread = status == 400 && answer.is_empty();
        if !schema.is_null() && *method != "HEAD" && !is_unread {
            let value: Value = serde_json::from_str(&answer)
                .map_err(|error| TestCaseError::fail(format!("{}: {error}: {answer}", said())))?;
            prop_assert!(self.fits(&value, schema), "{}: {schema}: {value}", said());
        }
        Ok(status)
    }
}

#[test]
fn every_request_is_answered_as_the_document_says() {
    let setup = Setup::with("requests", super::runs::HISTOGRAMS);
    std::fs::create_dir(setup.output.join(format!("run{RUN:06}"))).expect("it can be made");
    let document = Document(setup.json("GET", "/api/docs").1);
    let config = Config { cases: 300, failure_persistence: None, rng_seed: RngSeed::Fixed(843), ..Config::default() };
    let request = (
        any::<Index>(),
        prop_oneof![5 => Just(0), 3 => Just(1), 1 => 2..METHODS.len()],
        proptest::collection::vec(any::<Index>(), 1..8),
        proptest::collection::vec(any::<u8>(), 0..40),
        // Every fourth request has a plausible body.
        proptest::option::weighted(0.25, proptest::collection::vec(any::<u16>(), 12)),
    );
    let statuses = RefCell::new(BTreeMap::<_, BTreeSet<u16>>::new());
    let drawn = TestRunner::new(config).run(&request, |(path, method, words, bytes, numbers)| {
        let asked = match numbers {
            Some(numbers) => document.described(&setup, path, &numbers),
            None => document.anything(path, METHODS[method], &words, bytes),
        };
        let status = document.check(&setup, &asked)?;
        statuses.borrow_mut().entry((asked.template.to_owned(), asked.method)).or_default().insert(status);
        Ok(())
    });
    drawn.unwrap_or_else(|error| panic!("{error}"));
    let statuses = statuses.into_inner();
    for (template, method) in document.with_bodies() {
        let statuses = &statuses[&(template.to_owned(), method)];
        // No run goes on for long enough here, in which a source could be begun anew.
        let good = if template.ends_with("/restart") { 409 } else { 200 };
        assert!(statuses.is_superset(&[good, 400].into()), "{method} {template} was answered {statuses:?} alone");
    }
    assert_eq!(setup.ask("GET", "/api/v1/state").0, 200, "it is there");
}

/// What texts may say, and names of what can be changed: what handlers take, and what they refuse in words.
const TEXTS: [&str; 8] = ["2s", "100ms", "10", "beam back", "5 min", "\u{e9}", "\u{1b}[2J", ""];
const NAMES: [&str; 4] = ["monitoring.interval", "timeouts.readout", "stream.none.prescale", ""];
/// Of these there is a source, a run, or neither.
const NUMBERS: [u32; 5] = [1, 7, 0, 843, u32::MAX];

/// Choices that were drawn, one after the other; from the first one again where there are no more.
struct Drawn<'a> {
    numbers: &'a [u16],
    next: usize,
}

impl<'a> Drawn<'a> {
    const fn new(numbers: &'a [u16]) -> Self {
        Self { numbers, next: 0 }
    }

    fn below(&mut self, count: usize) -> usize {
        let number = self.numbers[self.next % self.numbers.len()];
        self.next += 1;
        usize::from(number) % count
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A body with what its header says that it is.
struct Body {
    kind: Option<String>,
    bytes: Vec<u8>,
}

/// A body for an operation; `None` if it takes none. Three of five are as the document says.
fn body(document: &Value, operation: &Value, drawn: &mut Drawn<'_>) -> Option<Body> {
    let (kind, content) = operation["requestBody"]["content"].as_object()?.iter().next()?;
    let value = valid(document, &content["schema"], drawn);
    let is_valid = drawn.below(5) < 3;
    let bytes = |value: &Value| match value {
        Value::String(text) if kind == "text/plain" => text.as_bytes().to_vec(),
        value => value.to_string().into_bytes(),
    };
    if is_valid {
        return Some(Body { kind: Some(kind.clone()), bytes: bytes(&value) });
    }
    let mut body = Body { kind: Some(kind.clone()), bytes: bytes(&spoilt(value.clone(), drawn)) };
    match drawn.below(6) {
        0 => body.kind = None,
        1 => body.kind = Some("application/octet-stream".to_owned()),
        // Cut in the middle of something.
        2 => body.bytes.truncate(body.bytes.len() / 2),
        // No UTF-8.
        3 => body.bytes.push(0xff),
        _ => {}
    }
    Some(body)
}

/// A value that a schema asks for.
fn valid(document: &Value, schema: &Value, drawn: &mut Drawn<'_>) -> Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|place| place.strip_prefix("#/components/schemas/")) {
        return valid(document, &document["components"]["schemas"][name], drawn);
    }
    if let Some(any) = schema["oneOf"].as_array() {
        return valid(document, &any[drawn.below(any.len())], drawn);
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[drawn.below(kinds.len())].as_str(),
        kind => kind.as_str(),
    };
    match kind {
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let mut object: Map<_, _> =
                fields.map(|(name, schema)| (name.clone(), valid(document, schema, drawn))).collect();
            if schema["additionalProperties"].is_object() {
                for _ in 0..drawn.below(3) {
                    let name = drawn.one(&NAMES).to_owned();
                    object.insert(name, valid(document, &schema["additionalProperties"], drawn));
                }
            }
            Value::Object(object)
        }
        Some("array") => (0..drawn.below(3)).map(|_| valid(document, &schema["items"], drawn)).collect(),
        Some("string") => drawn.one(&TEXTS).into(),
        Some("integer" | "number") => drawn.one(&NUMBERS).into(),
        Some("boolean") => (drawn.below(2) == 0).into(),
        Some("null") => Value::Null,
        kind => panic!("bodies of {kind:?} are not made here yet: {schema}"),
    }
}

/// The value with something wrong in it.
fn spoilt(value: Value, drawn: &mut Drawn<'_>) -> Value {
    let others = [json!(null), json!(-1), json!(0.5), json!(4_294_967_296_u64), json!("1"), json!(["1"]), json!({})];
    let other = others[drawn.below(others.len())].clone();
    match value {
        Value::Object(mut object) => {
            let name = object.keys().nth(drawn.below(object.len().max(1))).cloned();
            match (drawn.below(3), name) {
                (0, Some(name)) => _ = object.remove(&name),
                (1, Some(name)) => _ = object.insert(name, other),
                _ => _ = object.insert("more".to_owned(), other),
            }
            Value::Object(object)
        }
        Value::String(text) if drawn.below(2) == 0 => text.repeat(1 + (20 << 10) / text.len().max(1)).into(),
        _ => other,
    }
}
