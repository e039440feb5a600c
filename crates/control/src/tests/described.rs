//! Bodies of requests, made of what the OpenAPI document asks for: such as are taken, and such as are nearly.

use serde_json::{Map, Value, json};

/// What texts may say, and names of what can be changed: what handlers take, and what they refuse in words.
const TEXTS: [&str; 8] = ["2s", "100ms", "10", "beam back", "5 min", "\u{e9}", "\u{1b}[2J", ""];
const NAMES: [&str; 4] = ["monitoring.interval", "timeouts.readout", "stream.none.prescale", ""];
/// Of these there is a source, a run, or neither.
const NUMBERS: [u32; 5] = [1, 7, 0, 843, u32::MAX];

/// Choices that were drawn, one after the other; from the first one again where there are no more.
pub(super) struct Drawn<'a> {
    numbers: &'a [u16],
    next: usize,
}

impl<'a> Drawn<'a> {
    pub(super) const fn new(numbers: &'a [u16]) -> Self {
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
pub(super) struct Body {
    pub(super) kind: Option<String>,
    pub(super) bytes: Vec<u8>,
}

/// A body for an operation; none where it takes none. Three of five are as the document says.
pub(super) fn body(document: &Value, operation: &Value, drawn: &mut Drawn<'_>) -> Option<Body> {
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
