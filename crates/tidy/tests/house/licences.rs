//! The crates of others: their licences are in a list, and they are few.

use crate::metadata::external;

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    // Four clauses of the BSD kind: keep the notice, and do not claim to be the original.
    "bzip2-1.0.6",
];

/// Crates of others that building and testing the workspace may need on one platform; the terminal view alone names 51, a third
/// of which are optional parts that are not built. TLS is nine of them, and unpacking gzip, bzip2 and xz another nine. Completions, man
/// pages and help at the width of the terminal are four, the manual's Markdown three.
const MOST_CRATES: usize = 224;

/// Whether the licence expression lets us choose allowed licences alone. `AND` binds stronger than `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest).is_some_and(|allowed| allowed && rest.is_empty())
}

fn any_of(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = all_of(words)?;
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        allowed |= all_of(words)?;
    }
    Some(allowed)
}

fn all_of(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(words)?;
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        allowed &= one(words)?;
    }
    Some(allowed)
}

/// A licence, perhaps with an exception, or an expression in brackets; `None` if the text is not an expression.
fn one(words: &mut &[&str]) -> Option<bool> {
    let (&first, rest) = words.split_first()?;
    *words = rest;
    match first {
        "(" => {
            let allowed = any_of(words)?;
            let (&closing, rest) = words.split_first()?;
            *words = rest;
            (closing == ")").then_some(allowed)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        licence => match *words {
            ["WITH", exception, rest @ ..] => {
                *words = rest;
                Some(ALLOWED.contains(&format!("{licence} WITH {exception}").as_str()))
            }
            _ => Some(ALLOWED.contains(&licence)),
        },
    }
}

#[test]
fn every_licence_is_allowed() {
    let refused: Vec<String> = external()
        .filter(|package| !package.licence.as_deref().is_some_and(is_allowed))
        .map(|package| format!("Cargo.lock:1: {} {}: {:?}", package.name, package.version, package.licence))
        .collect();
    assert!(refused.is_empty(), "licences outside the list; choose another crate\n{}\n", refused.join("\n"));
}

#[test]
fn the_crates_of_others_are_few() {
    let count = external().count();
    assert!(count <= MOST_CRATES, "Cargo.lock:1: {count} external crates, {MOST_CRATES} at most: do without one");
}

#[test]
fn expressions_are_understood() {
    for expression in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        "MPL-2.0 AND GPL-2.0 OR Zlib",
    ] {
        assert!(is_allowed(expression), "{expression}");
    }
    for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR LGPL-3.0)", "MIT OR", "(MIT", "MIT MIT"] {
        assert!(!is_allowed(expression), "{expression}");
    }
}
