//! Any request at all is answered as the OpenAPI document says, and the server is there afterwards.

use super::Setup;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::Value;
use std::time::Duration;

/// Statuses that any request may have, whatever it asks for: wrong in itself, no such thing, another method, too long, too many.
const ALWAYS: [u16; 6] = [400, 404, 405, 413, 414, 429];
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"];
/// What stands in paths and queries: good, bad, and meant to be.
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

struct Document(Value);

impl Document {
    /// Paths that end by themselves.
    fn paths(&self) -> Vec<&String> {
        let paths = self.0["paths"].as_object().expect("paths");
        paths.keys().filter(|path| !path.ends_with("stream")).collect()
    }

    /// Whether a value is what a schema asks for: types, required fields, elements.
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

    /// Asks for one of the paths with these words in it.
    fn check(
        &self,
        setup: &Setup,
        path: prop::sample::Index,
        method: &str,
        words: &[prop::sample::Index],
        body: &[u8],
    ) -> Result<(), TestCaseError> {
        let template = path.get(&self.paths()).as_str();
        // HEAD is GET without what is asked for.
        let described = if method == "HEAD" { "get".to_owned() } else { method.to_lowercase() };
        let operation = &self.0["paths"][template][described];
        let mut words = words.iter().map(|word| *word.get(&WORDS)).cycle();
        let mut path = String::new();
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
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            setup.address(),
            body.len()
        );
        let bytes = [request.as_bytes(), body].concat();
        let (mut status, mut answer) = setup.say(&bytes);
        if status == 429 {
            // So many commands a second are too many: the next one is not.
            std::thread::sleep(Duration::from_millis(60));
            (status, answer) = setup.say(&bytes);
        }
        let response = &operation["responses"][status.to_string()];
        prop_assert!(!response.is_null() || ALWAYS.contains(&status), "{status} for {method} {path}: {answer}");
        let schema = &response["content"]["application/json"]["schema"];
        // What is no address is refused before anybody reads it, without a word.
        let is_unread = status == 400 && answer.is_empty();
        if !schema.is_null() && method != "HEAD" && !is_unread {
            let value: Value = serde_json::from_str(&answer)
                .map_err(|error| TestCaseError::fail(format!("{method} {path}: {error}: {answer}")))?;
            prop_assert!(self.fits(&value, schema), "{method} {path}: {schema}: {value}");
        }
        Ok(())
    }
}

#[test]
fn every_request_is_answered_as_the_document_says() {
    let setup = Setup::with("requests", super::histograms::HISTOGRAMS);
    let document = Document(setup.json("GET", "/api/docs").1);
    let config = Config { cases: 300, failure_persistence: None, rng_seed: RngSeed::Fixed(843), ..Config::default() };
    let request = (
        any::<prop::sample::Index>(),
        prop_oneof![4 => Just(0), 3 => Just(1), 1 => 2..METHODS.len()],
        proptest::collection::vec(any::<prop::sample::Index>(), 1..8),
        proptest::collection::vec(any::<u8>(), 0..40),
    );
    let drawn = TestRunner::new(config)
        .run(&request, |(path, method, words, body)| document.check(&setup, path, METHODS[method], &words, &body));
    drawn.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(setup.ask("GET", "/api/v1/state").0, 200, "it is there");
}
