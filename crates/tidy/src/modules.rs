//! The modules that a file declares, and the files where they may be.

use std::path::{Path, PathBuf};

use crate::source::{Source, words};

/// A `mod name;`, with the inline modules around it and the path that an attribute gives.
#[derive(Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The inline modules around it, outermost first.
    pub inside: Vec<String>,
    /// The module.
    pub name: String,
    /// What a `path` attribute says, relative to the directory of the file.
    pub path: Option<String>,
}

/// The modules that `text` declares and that live in other files.
pub fn declarations(text: &str) -> Vec<Declaration> {
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
pub fn included(text: &str) -> Vec<String> {
    let code = Source::new(text).code;
    let calls = words(&code).filter(|(place, word)| *word == "include" && code[place.end..].starts_with("!("));
    let literal = |place: std::ops::Range<usize>| text[place.end..].split('"').nth(1).map(str::to_owned);
    calls.filter_map(|(place, _)| literal(place)).collect()
}

/// Where the file of a declaration may be, seen from `file`.
pub fn places(file: &Path, is_root: bool, declaration: &Declaration) -> Vec<PathBuf> {
    let directory = file.parent().unwrap_or(Path::new(""));
    if let Some(path) = &declaration.path {
        return vec![directory.join(path)];
    }
    let stem = file.file_stem().unwrap_or_default();
    let mut below = if is_root || stem == "mod" { directory.to_owned() } else { directory.join(stem) };
    below.extend(&declaration.inside);
    vec![below.join(format!("{}.rs", declaration.name)), below.join(&declaration.name).join("mod.rs")]
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
