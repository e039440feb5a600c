//! Tables of keys in `docs/`, generated from the types that read a configuration: names, values, defaults, doc comments.
//!
//! A page says where a table goes and which keys it has, in their order; without names it has all of them. A key that is
//! a table itself is described below the table of its section, unless it has a table of its own.
//!
//! ```text
//! <!-- reference: source.emulate -->        <!-- reference: source: id name readout -->
//! <!-- end -->                              <!-- end -->
//! ```
//! To update the pages: `ROPEWALK_BLESS=1 cargo test -p ropewalk-config --test documentation`.

use super::{pages, root};
use ropewalk_config::schema;
use serde_json::Value;
use std::collections::BTreeSet;

const BEGIN: &str = "<!-- reference: ";
const END: &str = "<!-- end -->";
/// The longest sentence in a table, in bytes. The rest of the text stands below it.
const LONGEST: usize = 160;

/// Generates the tables of one page.
struct Reference<'s> {
    schema: &'s Value,
    /// Types that have a table of their own, on any page.
    tabled: &'s BTreeSet<String>,
    /// Keys that some page describes, as `TYPE.KEY`.
    described: &'s mut BTreeSet<String>,
}

/// The schemas that a key allows, each with the name of its type.
fn alternatives<'s>(schema: &'s Value, at: &'s Value) -> Vec<(&'s str, &'s Value)> {
    if let Some(name) = at["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        let inner = alternatives(schema, &schema["$defs"][name]).into_iter();
        return inner.map(|(inner, one)| (if inner.is_empty() { name } else { inner }, one)).collect();
    }
    match (at["anyOf"].as_array().or(at["oneOf"].as_array()), at.get("items")) {
        (Some(several), _) => several.iter().flat_map(|one| alternatives(schema, one)).collect(),
        (None, Some(items)) => alternatives(schema, items),
        (None, None) => vec![("", at)],
    }
}

/// The place of a section or of a type.
fn find<'s>(schema: &'s Value, path: &str) -> &'s Value {
    let key =
        |at: &'s Value, key: &str| alternatives(schema, at).into_iter().find_map(|(_, one)| one["properties"].get(key));
    let section = path.split('.').try_fold(schema, key);
    section.or(schema["$defs"].get(path)).unwrap_or_else(|| panic!("there is no section and no type `{path}`"))
}

/// The tables that a page wants: section and keys.
fn markers(page: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    page.split(BEGIN).skip(1).map(|rest| {
        let (marker, _) = rest.split_once(" -->").expect("a marker has an end");
        let (path, keys) = marker.split_once(": ").unwrap_or((marker, ""));
        (path, keys.split_whitespace().collect())
    })
}

/// A choice that is written as a table with one key, which the choice's text describes.
fn is_choice(one: &Value) -> bool {
    let described = |property: &Value| property.get("description").is_some();
    described(one) && one["properties"].as_object().is_some_and(|all| all.len() == 1 && !all.values().any(described))
}

/// Whether it has keys of its own, and is no choice of an enum.
fn is_table(one: &Value) -> bool {
    one["properties"].is_object() && !is_choice(one)
}

/// The names of the types that have a table at this place.
fn tabled(schema: &Value, path: &str) -> Vec<String> {
    let all = alternatives(schema, find(schema, path));
    let has_tables = all.iter().any(|(_, one)| is_table(one));
    let own = all.into_iter().filter(|(name, one)| !name.is_empty() && is_table(one) == has_tables);
    own.map(|(name, _)| name.to_owned()).collect()
}

fn may_be_null(one: &Value) -> bool {
    one["type"] == "null" || one["type"].as_array().is_some_and(|types| types.iter().any(|one| one == "null"))
}

fn description(one: &Value) -> String {
    let text = one["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first sentence of a text, and the others.
fn first_sentence(text: &str) -> (&str, &str) {
    let is_outside_of_code = |at: &usize| text[..*at].matches('`').count().is_multiple_of(2);
    let end = text.match_indices(". ").map(|(at, _)| at).find(is_outside_of_code);
    let (first, others) = end.map_or((text, ""), |at| (&text[..at], &text[at + 2..]));
    (first.trim_end_matches('.'), others)
}

/// A sentence of the text of a key that says what applies without the key, and the text without this sentence.
fn without_it(text: &str) -> (Option<&str>, String) {
    let (mut found, mut others, mut rest) = (None, Vec::new(), text);
    while !rest.is_empty() {
        let (sentence, behind) = first_sentence(rest);
        match sentence.strip_prefix("Without it: ") {
            Some(default) if found.is_none() => found = Some(default),
            _ => others.push(format!("{sentence}.")),
        }
        rest = behind;
    }
    (found, others.join(" "))
}

fn toml(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(keys) if keys.is_empty() => "{}".to_owned(),
        Value::Object(keys) => {
            let keys = keys.iter().filter(|(_, value)| !value.is_null());
            format!(
                "{{ {} }}",
                keys.map(|(key, value)| format!("{key} = {}", toml(value))).collect::<Vec<_>>().join(", ")
            )
        }
        other => other.to_string(),
    }
}

/// The values of this type in a configuration, in a word each.
fn kinds(schema: &Value, at: &Value) -> Vec<String> {
    if let Some(name) = at["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return match name {
            "Bytes" | "Size" | "ChunkBytes" => vec!["size".to_owned()],
            "Time" | "Times" => vec!["time".to_owned()],
            "Rate" => vec!["rate".to_owned()],
            "Bandwidth" => vec!["bandwidth".to_owned()],
            _ => kinds(schema, &schema["$defs"][name]),
        };
    }
    if is_text_of_names(at) {
        return vec!["text".to_owned()];
    }
    if let Some(several) = at["anyOf"].as_array().or(at["oneOf"].as_array()) {
        let all = several.iter().flat_map(|one| kinds(schema, one));
        return all.fold(Vec::new(), |mut kinds, kind| {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
            kinds
        });
    }
    if let Some(choices) = at.get("const").map(std::slice::from_ref).or(at["enum"].as_array().map(Vec::as_slice)) {
        return choices.iter().map(|choice| format!("`{}`", toml(choice))).collect();
    }
    let types = at["type"].as_array().map_or_else(|| vec![&at["type"]], |types| types.iter().collect());
    let words = types.into_iter().flat_map(|kind| match kind.as_str() {
        Some("string") => vec!["text".to_owned()],
        Some("boolean") => vec!["`true`".to_owned(), "`false`".to_owned()],
        Some("integer" | "number") => vec!["number".to_owned()],
        Some("object") => vec!["table".to_owned()],
        Some("array") => vec![list_of(&kinds(schema, &at["items"]))],
        Some("null") => Vec::new(),
        other => panic!("{other:?} is no type of a value: {at}"),
    });
    words.collect()
}

fn list_of(kinds: &[String]) -> String {
    let plural = |kind: &String| if kind.starts_with(['`', 'l']) { kind.clone() } else { format!("{kind}s") };
    format!("list of {}", one_of(&kinds.iter().map(plural).collect::<Vec<_>>()))
}

/// `a`, `b` or `c`.
fn one_of(kinds: &[String]) -> String {
    match kinds {
        [most @ .., last] if !most.is_empty() => format!("{} or {last}", most.join(", ")),
        _ => kinds.concat(),
    }
}

/// A text that is one of many names, such as that of a checksum; the text of the type says what they are.
fn is_text_of_names(at: &Value) -> bool {
    at["type"] == "string" && at["anyOf"].is_array()
}

/// Keys and choices without documentation.
fn undocumented(at: &Value, path: &str) -> Vec<String> {
    if is_text_of_names(at) && !description(at).is_empty() {
        return Vec::new();
    }
    let is_silent = |one: &Value| description(one).is_empty();
    let mut silent = Vec::new();
    for (key, property) in at["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        silent.extend(is_silent(property).then(|| path.clone()));
        silent.extend(undocumented(property, &path));
    }
    for one in ["anyOf", "oneOf"].iter().flat_map(|several| at[several].as_array()).flatten() {
        silent.extend(one["const"].as_str().filter(|_| is_silent(one)).map(|choice| format!("{path} = {choice:?}")));
        // The text of a choice that is written as a table with one key is that of the choice.
        let of_choice = one["properties"].as_object().filter(|_| is_choice(one)).into_iter().flatten();
        let rest = of_choice.flat_map(|(key, property)| undocumented(property, &format!("{path}.{key}")));
        silent.extend(if is_choice(one) { rest.collect() } else { undocumented(one, path) });
    }
    if let Some(choices) = at["enum"].as_array() {
        silent.extend(choices.iter().map(|choice| format!("{path} = {choice}")));
    }
    let types = at["$defs"].as_object().into_iter().flatten();
    silent.extend(types.flat_map(|(name, one)| undocumented(one, name)));
    silent
}

impl Reference<'_> {
    /// The page with its tables.
    fn rewrite(&mut self, page: &str) -> String {
        let mut parts = page.split(BEGIN);
        let mut made = parts.next().unwrap_or_default().to_owned();
        for (part, (path, keys)) in parts.zip(markers(page)) {
            let (marker, rest) = part.split_once(" -->").expect("a marker has an end");
            let (_, behind) = rest.split_once(END).expect("a table has an end");
            made += &format!("{BEGIN}{marker} -->\n{}{END}{behind}", self.section(path, &keys));
        }
        made
    }

    fn section(&mut self, path: &str, keys: &[&str]) -> String {
        let schema = self.schema;
        let all = alternatives(schema, find(schema, path));
        match all.iter().find(|(_, one)| is_table(one)) {
            Some((name, table)) => self.table(name, table, keys),
            None => all.into_iter().map(|(name, one)| self.items(name, one, "")).collect(),
        }
    }

    fn table(&mut self, name: &str, table: &Value, keys: &[&str]) -> String {
        let all = table["properties"].as_object().expect("a table has keys");
        let keys = if keys.is_empty() { all.keys().map(String::as_str).collect() } else { keys.to_vec() };
        let (mut rows, mut list) =
            ("| Key | Value | Default | Meaning |\n|---|---|---|---|\n".to_owned(), String::new());
        for key in keys {
            let property = all.get(key).unwrap_or_else(|| panic!("`{name}` has no key `{key}`"));
            self.described.insert(format!("{name}.{key}"));
            let text = description(property);
            let (first, others) = first_sentence(&text);
            assert!(
                first.len() <= LONGEST,
                "the first sentence about `{key}` of {name} is too long for a table: {first}"
            );
            let (without, others) = without_it(others);
            let default = self.default(key, table, without);
            let value = one_of(&kinds(self.schema, property));
            rows += &format!("| `{key}` | {value} | {default} | {first} |\n");
            let items = self.nested(property, "  ");
            if !others.is_empty() || !items.is_empty() {
                list += format!("- `{key}`: {others}").trim_end();
                list += &format!("\n{items}");
            }
        }
        if list.is_empty() { rows } else { format!("{rows}\n{list}") }
    }

    /// The default value in TOML syntax, or the text behind `Without it:` if there is no value.
    fn default(&self, key: &str, table: &Value, without: Option<&str>) -> String {
        let property = &table["properties"][key];
        let all = alternatives(self.schema, property);
        let is_needed = table["required"].as_array().is_some_and(|needed| needed.iter().any(|needed| needed == key));
        let is_none = property
            .get("default")
            .map_or_else(|| may_be_null(property) || all.iter().any(|(_, one)| may_be_null(one)), Value::is_null);
        if is_none && !is_needed {
            return without.unwrap_or("none").to_owned();
        }
        assert_eq!(without, None, "the program has another default of `{key}`");
        let has_defaults = |(_, one): &(&str, &Value)| is_table(one) && one.get("required").is_none();
        match property.get("default") {
            _ if is_needed => "needed".to_owned(),
            Some(value) => format!("`{}`", toml(value)),
            None if all.iter().any(has_defaults) => "`{}`".to_owned(),
            None => panic!("the schema has no default of `{key}`: derive Serialize for its type"),
        }
    }

    /// The keys and choices of a key that is a table or an enum, unless these have a table of their own.
    fn nested(&mut self, property: &Value, indent: &str) -> String {
        let (schema, tabled) = (self.schema, self.tabled);
        let all = alternatives(schema, property).into_iter().filter(|(name, _)| !tabled.contains(*name));
        all.map(|(name, one)| self.items(name, one, indent)).collect()
    }

    fn items(&mut self, name: &str, one: &Value, indent: &str) -> String {
        if let Some(choice) = one["const"].as_str() {
            return format!("{indent}- `\"{choice}\"`: {}\n", description(one));
        }
        let mut items = String::new();
        for (key, property) in one["properties"].as_object().into_iter().flatten() {
            self.described.insert(format!("{name}.{key}"));
            if self.is_of_numbers(key, property) {
                continue;
            }
            let is_choice = is_choice(one);
            let text = description(if is_choice { one } else { property });
            let (without, text) = without_it(&text);
            let value = one_of(&kinds(self.schema, property));
            let default = match self.default(key, one, without).as_str() {
                _ if is_choice => String::new(),
                "none" => String::new(),
                "needed" => ", needed".to_owned(),
                default => format!(", default: {default}"),
            };
            items += &format!("{indent}- `{key}` ({value}{default}): {text}\n");
            items += &self.nested(property, &format!("{indent}  "));
        }
        items
    }

    /// Whether tables of all numbers have this key: it is described there.
    fn is_of_numbers(&self, key: &str, property: &Value) -> bool {
        let number = &self.schema["$defs"]["NumberTable"]["properties"][key]["description"];
        number.is_string() && *number == property["description"]
    }
}

#[test]
fn tables_of_keys_are_those_of_the_types() {
    let schema: Value = serde_json::from_str(&schema()).expect("it is JSON");
    let silent = undocumented(&schema, "file");
    assert!(silent.is_empty(), "{silent:?} have no doc comment that says what they mean");
    let pages = pages(&["configuration", "layout", "gateway"]);
    let wanted = pages.iter().flat_map(|(_, page)| markers(page).map(|(path, _)| path));
    let tabled = wanted.flat_map(|path| tabled(&schema, path)).collect();
    let mut described = BTreeSet::new();
    let all: String = pages.iter().map(|(_, page)| page.as_str()).collect();
    for (name, page) in pages {
        let made = Reference { schema: &schema, tabled: &tabled, described: &mut described }.rewrite(&page);
        if std::env::var_os("ROPEWALK_BLESS").is_some() {
            std::fs::write(root().join(&name), &made).expect("the page can be written");
            continue;
        }
        let differs = page.lines().zip(made.lines()).find(|(told, made)| told != made);
        assert!(page == made, "{name} differs at {differs:#?}; ROPEWALK_BLESS=1 writes its tables");
    }
    let types = schema["$defs"].as_object().expect("there are types");
    let keys = types.iter().flat_map(|(name, one)| {
        one["properties"].as_object().into_iter().flatten().map(move |(key, _)| format!("{name}.{key}"))
    });
    let missing: Vec<_> = keys.filter(|key| !described.contains(key)).collect();
    assert!(missing.is_empty(), "no page has {missing:?}: add them to a marker");
    let sections = schema["properties"].as_object().expect("there are sections").keys();
    let is_told = |key: &str| [format!("`[{key}]`"), format!("`[[{key}]]`")].iter().any(|form| all.contains(form));
    let missing: Vec<_> = sections.filter(|key| *key != "version" && !is_told(key)).collect();
    assert!(missing.is_empty(), "no page has the sections {missing:?}");
}

#[test]
fn a_key_or_a_choice_about_which_nothing_is_said_is_found() {
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    #[schemars(deny_unknown_fields)]
    struct Section {
        /// Said.
        said: u32,
        silent: Option<Choice>,
    }
    /// A choice.
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Choice {
        /// Said.
        Said,
        Silent,
        /// Said.
        Table(u32),
        AlsoSilent(u32),
    }
    let schema = schemars::schema_for!(Section).to_value();
    let found = ["file.silent", "Choice = \"Silent\"", "Choice.AlsoSilent"];
    assert_eq!(BTreeSet::from_iter(undocumented(&schema, "file")), BTreeSet::from(found.map(str::to_owned)));
}
