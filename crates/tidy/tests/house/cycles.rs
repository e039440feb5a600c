//! The arrows between the modules of a crate: a module and what it uses can be read without what uses it.
//!
//! Only modules that the crate's root declares count, and only code outside tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::declarations;
use crate::source::{Source, words};
use crate::tree::{TextFile, rust_files};

/// The modules of a crate, each with the modules that it uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The code of a file up to its inline tests.
fn code(text: &str) -> String {
    let code = Source::new(text).code;
    let end = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
    code[..end].to_owned()
}

/// The first names behind each `prefix` in code: of a path one, of a group (`{a, b::c}`) each.
fn first_names<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || ":_".contains(before)) {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            None => found.extend(words(rest).next().filter(|(place, _)| place.start == 0).map(|(_, word)| word)),
            Some(group) => found.extend(group_names(group)),
        }
    }
    found
}

/// The first names of a group's members, up to the brace that closes it.
fn group_names(group: &str) -> Vec<&str> {
    let (mut depth, mut begins, mut names) = (0, 0, Vec::new());
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b',' | b'}' if depth == 0 => {
                names.extend(words(&group[begins..at]).next().map(|(_, word)| word));
                begins = at + 1;
                if byte == b'}' {
                    break;
                }
            }
            b'}' => depth -= 1,
            _ => {}
        }
    }
    names
}

/// The module from which the root re-exports each name.
fn reexports(root: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for part in root.split(';').filter_map(|part| part.rsplit_once("use ").map(|(_, path)| path)) {
        let path = part.strip_prefix("self::").unwrap_or(part);
        let Some((module, names)) = path.split_once("::").filter(|(module, _)| modules.contains(*module)) else {
            continue;
        };
        found.extend(words(names).map(|(_, name)| (name.to_owned(), module.to_owned())));
    }
    found
}

/// The arrows of the crate in this directory, such as `crates/run/src`; none if it has no root there.
fn arrows(files: &[&TextFile], source: &str) -> Arrows {
    let inside = |file: &&&TextFile| file.path.starts_with(source);
    let is_root = |file: &&TextFile| [format!("{source}/lib.rs"), format!("{source}/main.rs")].contains(&file.path);
    let Some(root) = files.iter().copied().find(is_root) else { return Arrows::new() };
    let root_code = code(&root.text);
    let modules: BTreeSet<String> = declarations(&root_code).into_iter().map(|module| module.name).collect();
    let reexports = reexports(&root_code, &modules);
    let mut arrows = Arrows::new();
    for file in files.iter().filter(inside).filter(|file| !is_root(file)) {
        let path = file.path[source.len() + 1..].trim_end_matches(".rs").trim_end_matches("/mod");
        let parts: Vec<&str> = path.split('/').collect();
        let own = parts[0];
        if parts.contains(&"tests") || !modules.contains(own) {
            continue;
        }
        let code = code(&file.text);
        let names = first_names(&code, "crate::").into_iter().chain(first_names(&code, &"super::".repeat(parts.len())));
        let used = names.filter_map(|name| modules.get(name).or_else(|| reexports.get(name)));
        arrows.entry(own.to_owned()).or_default().extend(used.filter(|used| *used != own).cloned());
    }
    arrows
}

/// Everything that a module reaches.
fn reached<'a>(arrows: &'a Arrows, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(module) = waiting.pop() {
        let next = arrows.get(module).into_iter().flatten().map(String::as_str);
        waiting.extend(next.filter(|next| seen.insert(*next)));
    }
    seen
}

/// The modules that reach themselves.
fn in_cycles(arrows: &Arrows) -> Vec<&str> {
    arrows.keys().map(String::as_str).filter(|module| reached(arrows, module).contains(module)).collect()
}

#[test]
fn modules_use_each_other_in_no_circle() {
    let files: Vec<&TextFile> = rust_files().collect();
    let crates: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| file.path.strip_prefix("crates/")?.split_once("/src/"))
        .map(|(name, _)| name)
        .collect();
    let mut wrong = Vec::new();
    for name in crates {
        let arrows = arrows(&files, &format!("crates/{name}/src"));
        for module in in_cycles(&arrows) {
            let partners: Vec<&str> = arrows[module]
                .iter()
                .map(String::as_str)
                .filter(|used| reached(&arrows, used).contains(module))
                .collect();
            wrong.push(format!("`{name}::{module}` uses {partners:?}, which use it: move what both need below them"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_circle_of_modules_is_seen() {
    let file = |path: &str, text: &str| TextFile { path: format!("crates/x/src/{path}"), text: text.to_owned() };
    let all = [
        file("lib.rs", "mod one;\nmod two;\nmod three;\npub use self::three::{Third, thirds};\n"),
        file("one.rs", "use crate::two::Second;\n// crate::three\n"),
        file(
            "two/mod.rs",
            "use super::{three as other, Second};\n#[cfg(test)]\nmod tests {\n    use crate::one::First;\n}\n",
        ),
        file("two/deep.rs", "use super::super::thirds;\nuse super::one;\n"),
        file("three.rs", "fn f() -> std::fmt::Result { super::one::f() }\n"),
    ];
    let files: Vec<&TextFile> = all.iter().collect();
    assert_eq!(in_cycles(&arrows(&files, "crates/x/src")), ["one", "three", "two"]);
    let files: Vec<&TextFile> = all.iter().take(4).collect();
    assert!(in_cycles(&arrows(&files, "crates/x/src")).is_empty());
    assert_eq!(first_names("crate::{a, b::{c, d}, e}; x::crate::f; crate::g::h", "crate::"), ["a", "b", "e", "g"]);
}
