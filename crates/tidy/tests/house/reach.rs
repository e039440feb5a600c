//! No dead files: every Rust file is reached by `mod` from something that cargo builds, and every test runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::metadata::{Package, ours};
use crate::source::{Source, words};
use crate::tree::{Finding, expect_none, root, rust_files, text_files};

/// A `mod name;`, with the inline modules around it and the path that an attribute gives.
#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    inside: Vec<String>,
    name: String,
    path: Option<String>,
}

/// The modules that `text` declares and that live in other files.
fn declarations(text: &str) -> Vec<Declaration> {
    let code = Source::new(text).code;
    let mut found = Vec::new();
    let mut names = words(&code).peekable();
    // One entry per open brace: the module's name, or nothing for any other brace.
    let mut open: Vec<Option<String>> = Vec::new();
    let mut at = 0;
    while let Some((place, word)) = names.next() {
        follow_braces(&code[at..place.start], &mut open);
        at = place.end;
        if word != "mod" {
            continue;
        }
        let Some((name_place, name)) = names.next() else { break };
        at = name_place.end;
        let after = code[at..].trim_start();
        if after.starts_with('{') {
            at += code[at..].find('{').expect("the brace was just seen") + 1;
            open.push(Some(name.to_owned()));
        } else if after.starts_with(';') {
            let path = path_attribute(text, &code, place.start);
            found.push(Declaration { inside: open.iter().flatten().cloned().collect(), name: name.to_owned(), path });
        }
    }
    found
}

fn follow_braces(code: &str, open: &mut Vec<Option<String>>) {
    for byte in code.bytes() {
        match byte {
            b'{' => open.push(None),
            b'}' => _ = open.pop(),
            _ => {}
        }
    }
}

/// The text of `#[path = "..."]` (alone or inside `cfg_attr`) before the `mod` at `place`.
fn path_attribute(text: &str, code: &str, place: usize) -> Option<String> {
    let start = code[..place].rfind([';', '{', '}']).map_or(0, |end| end + 1);
    let (key, _) = words(&code[start..place]).find(|(_, word)| *word == "path")?;
    text[start + key.end..place].split('"').nth(1).map(str::to_owned)
}

/// The files that `include!` in `text` names.
fn included(text: &str) -> Vec<String> {
    let code = Source::new(text).code;
    let calls = words(&code).filter(|(place, word)| *word == "include" && code[place.end..].starts_with("!("));
    let literal = |place: std::ops::Range<usize>| text[place.end..].split('"').nth(1).map(str::to_owned);
    calls.filter_map(|(place, _)| literal(place)).collect()
}

/// Where the file of a declaration may be, seen from `file`.
fn places(file: &Path, is_root: bool, declaration: &Declaration) -> Vec<PathBuf> {
    let directory = file.parent().unwrap_or(Path::new(""));
    if let Some(path) = &declaration.path {
        return vec![directory.join(path)];
    }
    let stem = file.file_stem().unwrap_or_default();
    let mut below = if is_root || stem == "mod" { directory.to_owned() } else { directory.join(stem) };
    below.extend(&declaration.inside);
    vec![below.join(format!("{}.rs", declaration.name)), below.join(&declaration.name).join("mod.rs")]
}

/// Every file that is reached from the root file of a target.
fn reach(root_file: &Path, reached: &mut BTreeSet<PathBuf>) {
    let mut waiting = vec![(root_file.to_owned(), true)];
    while let Some((file, is_root)) = waiting.pop() {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        if !reached.insert(file.clone()) {
            continue;
        }
        let modules = declarations(&text);
        waiting.extend(modules.iter().flat_map(|module| places(&file, is_root, module)).map(|path| (path, false)));
        let directory = file.parent().unwrap_or(Path::new(""));
        waiting.extend(included(&text).into_iter().map(|path| (directory.join(path), true)));
    }
}

fn in_repository(path: &str) -> &str {
    let root = root().to_str().expect("cargo wants UTF-8 paths");
    path.strip_prefix(root).unwrap_or(path).trim_start_matches('/')
}

/// Targets whose tests `cargo test` leaves out although they may hold some.
fn untested(package: &Package) -> impl Iterator<Item = Finding> {
    let left_out = package.targets.iter().filter(|target| !target.tested);
    left_out.filter(|target| ["lib", "bin", "test"].contains(&target.kind.as_str())).map(|target| {
        let what = format!("target `{}` is not tested: take `test = false` out of its manifest", target.name);
        Finding::new(in_repository(&target.root), 1, what)
    })
}

#[test]
fn every_file_is_reached() {
    let mut reached = BTreeSet::new();
    for target in ours().flat_map(|package| &package.targets) {
        reach(Path::new(&target.root), &mut reached);
    }
    let dead = rust_files()
        .filter(|file| file.path.starts_with("crates/") && !reached.contains(&root().join(&file.path)))
        .map(|file| Finding::new(&file.path, 1, "no `mod` reaches this file: declare it or delete it"));
    expect_none(&dead.collect::<Vec<_>>());
}

#[test]
fn every_fuzz_target_is_built() {
    let manifest = text_files().iter().find(|file| file.path == "fuzz/Cargo.toml");
    let named = |path: &str| manifest.is_some_and(|manifest| manifest.text.contains(path.trim_start_matches("fuzz/")));
    let dead = rust_files()
        .filter(|file| file.path.starts_with("fuzz/fuzz_targets/") && !named(&file.path))
        .map(|file| Finding::new(&file.path, 1, "fuzz/Cargo.toml does not name this target: add a [[bin]]"));
    expect_none(&dead.collect::<Vec<_>>());
}

#[test]
fn every_test_runs() {
    let mut findings: Vec<Finding> = ours().flat_map(untested).collect();
    for file in rust_files() {
        for (index, line) in Source::new(&file.text).code.lines().enumerate() {
            if line.trim_start().starts_with("#[ignore") {
                let what = "an ignored test is not counted: let it run, or call `ropewalk_tidy::skipped` in it";
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    expect_none(&findings);
}

#[test]
fn modules_are_found_where_they_are_declared() {
    let text = r##"
// mod comment;
mod plain;
#[cfg(test)]
#[path = "other/place.rs"]
pub(crate) mod placed;
mod outer { pub mod inner { mod deep; } fn f() { } mod second; }
const TEXT: &str = "mod string;";
include!("table.rs");
"##;
    let expect = |inside: &[&str], name: &str, path: Option<&str>| Declaration {
        inside: inside.iter().map(ToString::to_string).collect(),
        name: name.to_owned(),
        path: path.map(str::to_owned),
    };
    let expected = [
        expect(&[], "plain", None),
        expect(&[], "placed", Some("other/place.rs")),
        expect(&["outer", "inner"], "deep", None),
        expect(&["outer"], "second", None),
    ];
    assert_eq!(declarations(text), expected);
    assert_eq!(included(text), ["table.rs"]);
    let deep = places(Path::new("src/room.rs"), false, &expected[2]);
    assert_eq!(deep[0], Path::new("src/room/outer/inner/deep.rs"));
    assert_eq!(places(Path::new("src/lib.rs"), true, &expected[0])[1], Path::new("src/plain/mod.rs"));
    assert_eq!(places(Path::new("src/room.rs"), false, &expected[1]), [Path::new("src/other/place.rs")]);
}
