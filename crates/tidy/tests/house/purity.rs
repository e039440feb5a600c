//! `flow` decides and does nothing else: time comes in as a value, actions are polled out.
//!
//! Clippy's `disallowed_methods` (crates/flow/clippy.toml) sees calls through any name; this rule sees the
//! imports and macros, in tests too.

use std::iter::Peekable;

use crate::source::{Source, line_of, words};
use crate::tree::{Finding, expect_none, rust_files, text_files};

/// Parts of the standard library that read the world or change it.
const WORLD: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Macros that write somewhere.
const OUTPUT: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

/// Every path below `std` in masked code, groups such as `std::{fs, time::{Duration, Instant}}` spread out.
fn standard_paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (place, _) in words(code).filter(|(_, word)| *word == "std") {
        let mut paths = Vec::new();
        spread("std", &mut tokens(&code[place.end..]).peekable(), &mut paths);
        found.extend(paths.into_iter().map(|path| (line_of(code, place.start), path)));
    }
    found
}

/// Words, `::`, and every other character but blanks by itself.
fn tokens(code: &str) -> impl Iterator<Item = &str> {
    let mut rest = code;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = if rest.starts_with("::") { 2 } else { word.max(1).min(rest.len()) };
        let (token, behind) = rest.split_at(length);
        rest = behind;
        (!token.is_empty()).then_some(token)
    })
}

/// Follows the `::name` or `::{...}` behind `prefix` and adds every path that ends there.
fn spread<'a>(prefix: &str, tokens: &mut Peekable<impl Iterator<Item = &'a str>>, paths: &mut Vec<String>) {
    if tokens.next_if_eq(&"::").is_none() {
        return paths.push(prefix.to_owned());
    }
    if tokens.next_if_eq(&"{").is_none() {
        let name = tokens.next().unwrap_or_default();
        return spread(&format!("{prefix}::{name}"), tokens, paths);
    }
    while let Some(token) = tokens.next() {
        match token {
            "}" => return,
            "," => {}
            "as" => _ = tokens.next(),
            name => spread(&format!("{prefix}::{name}"), tokens, paths),
        }
    }
}

fn findings(path: &str, text: &str) -> Vec<Finding> {
    let code = Source::new(text).code;
    let mut found = Vec::new();
    for (line, used) in standard_paths(&code) {
        let reaches = |part: &&&str| used == **part || used.starts_with(&format!("{part}::"));
        if let Some(part) = WORLD.iter().find(reaches) {
            let what = format!("`{part}` in flow: let the caller do it and pass the result in");
            found.push(Finding::new(path, line, what));
        }
    }
    for (place, word) in words(&code).filter(|(_, word)| OUTPUT.contains(word)) {
        if code[place.end..].starts_with('!') {
            let what = format!("`{word}!` in flow: count it, or poll it out as an action");
            found.push(Finding::new(path, line_of(&code, place.start), what));
        }
    }
    found
}

#[test]
fn flow_does_not_touch_the_world() {
    let files = rust_files().filter(|file| file.path.starts_with("crates/flow/src/"));
    let all: Vec<Finding> = files.flat_map(|file| findings(&file.path, &file.text)).collect();
    expect_none(&all);
}

#[test]
fn imports_are_spread_out() {
    let text = "use std::{fs as f, time::{Duration, Instant}, vec::Vec}; std::net::a(); my_std::b(); std";
    let paths: Vec<String> = standard_paths(text).into_iter().map(|(_, path)| path).collect();
    let imports = ["std::fs", "std::time::Duration", "std::time::Instant", "std::vec::Vec"];
    assert_eq!(paths[..4], imports);
    assert_eq!(paths[4..], ["std::net::a", "std"]);
}

#[test]
fn a_touch_of_the_world_is_seen() {
    let text = "use std::time::{Duration, Instant};\n// std::fs::read\nlet a = std::thread::spawn(f);\nprintln!(\"x\");\n\
                use ropewalk_terms::Instant;\nuse std::{collections::BTreeMap, net};\nuse std::time::Duration;\n";
    let lines: Vec<usize> = findings("a.rs", text).into_iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [1, 3, 6, 4]);
}

#[test]
fn a_crate_with_its_own_clippy_settings_repeats_those_of_the_house() {
    let settings = |text: &'static str| text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let file = |path: &str| text_files().iter().find(|file| file.path == path);
    let house = file("clippy.toml").expect("the house has clippy settings");
    let mut findings = Vec::new();
    for own in text_files().iter().filter(|file| file.path.ends_with("/clippy.toml")) {
        for missing in settings(&house.text).filter(|line| !settings(&own.text).any(|mine| mine == *line)) {
            findings.push(Finding::new(
                &own.path,
                1,
                format!("add `{missing}`: clippy does not read the house's file"),
            ));
        }
    }
    assert!(file("crates/flow/clippy.toml").is_some(), "flow's disallowed methods are in crates/flow/clippy.toml");
    expect_none(&findings);
}
