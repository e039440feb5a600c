//! `unsafe` lives on islands, and every use of it says why it is sound.

use crate::source::{Source, line_of, words};
use crate::tree::{Finding, expect_none, rust_files};

/// Where `unsafe` may be, and why.
const ISLANDS: &[(&str, &str)] = &[
    ("crates/kernels/", "SIMD"),
    ("crates/memory/", "pools, loans, shared pages"),
    ("crates/io/", "system calls on the data path"),
    ("crates/plugin/", "functions of loaded libraries"),
    ("crates/limits/", "bare probes stand right on the system calls"),
    ("crates/bench/", "bare probes stand right on the system calls"),
    ("crates/engine/tests/support/counting.rs", "a counting allocator cannot be written without"),
];

/// Crates that parse or decide: no module of theirs can allow `unsafe` again.
const FORBIDDEN: &[&str] = &["terms", "wire", "flow", "monitor"];

/// What an `unsafe` begins.
enum Use {
    /// A block, an implementation, a foreign block or an attribute: needs a `SAFETY:` comment.
    Promise,
    /// A function or trait: needs a `# Safety` section in its documentation.
    Demand,
    /// A type of a function: needs nothing.
    Type,
}

fn kind(after: &str) -> Use {
    let after = after.trim_start();
    let mut next = words(after);
    let first = next.next().filter(|(place, _)| place.start == 0).map(|(_, word)| word);
    let is_type = after.find("fn").is_some_and(|at| after[at + 2..].trim_start().starts_with('('));
    // In masked code `unsafe extern "C" fn` has blanks in place of the name of the calling convention.
    let is_foreign = first == Some("extern") && after[6..].trim_start().starts_with("fn");
    match first {
        Some("trait") => Use::Demand,
        Some("fn") if is_type => Use::Type,
        Some("fn") => Use::Demand,
        _ if is_foreign && is_type => Use::Type,
        _ if is_foreign => Use::Demand,
        _ => Use::Promise,
    }
}

/// Whether the comments right above `line` (counted from one), or in it, hold `needle` with words behind it.
fn is_argued(source: &Source, line: usize, needle: &str) -> bool {
    let comments: Vec<&str> = source.comments.lines().collect();
    let code: Vec<&str> = source.code.lines().collect();
    let mut at = line - 1;
    loop {
        if comments[at].contains(needle) {
            return true;
        }
        let Some(above) = at.checked_sub(1) else { return false };
        let text = code[above].trim();
        let is_blank = text.is_empty() && comments[above].trim().is_empty();
        let is_attribute = text.starts_with("#[");
        if is_blank || (!is_attribute && text.ends_with([';', '{', '}', ','])) {
            return false;
        }
        at = above;
    }
}

fn findings(path: &str, text: &str) -> Vec<Finding> {
    let source = Source::new(text);
    let mut found = Vec::new();
    for (place, _) in words(&source.code).filter(|(_, word)| *word == "unsafe") {
        let line = line_of(&source.code, place.start);
        if !ISLANDS.iter().any(|(island, _)| path.starts_with(island)) {
            let what = "`unsafe` outside the islands (kernels, memory, io, plugin): use what they offer";
            found.push(Finding::new(path, line, what));
            continue;
        }
        let (needle, what) = match kind(&source.code[place.end..]) {
            Use::Promise => ("SAFETY:", "`unsafe` without a `// SAFETY:` comment right above: argue why it is sound"),
            Use::Demand => ("# Safety", "an unsafe function or trait without `# Safety`: say what callers must hold"),
            Use::Type => continue,
        };
        if !is_argued(&source, line, needle) {
            found.push(Finding::new(path, line, what));
        }
    }
    found
}

#[test]
fn unsafe_is_argued_and_on_its_islands() {
    let all: Vec<Finding> = rust_files().flat_map(|file| findings(&file.path, &file.text)).collect();
    expect_none(&all);
}

#[test]
fn rooms_that_parse_or_decide_forbid_unsafe() {
    let roots = FORBIDDEN.iter().map(|room| format!("crates/{room}/src/lib.rs"));
    let mut missing = Vec::new();
    for root in roots {
        let Some(file) = rust_files().find(|file| file.path == root) else { continue };
        if !Source::new(&file.text).code.contains("#![forbid(unsafe_code)]") {
            missing.push(Finding::new(&root, 1, "write `#![forbid(unsafe_code)]` at the crate's root"));
        }
    }
    expect_none(&missing);
}

#[test]
fn missing_arguments_are_seen() {
    let text = r#"
// SAFETY: the range was checked.
let a = unsafe { read(0) };
let b = unsafe { read(1) };
// SAFETY: two lines
// of reasons.
#[inline]
unsafe impl Send for A {}
/// Reads.
///
/// # Safety
/// The pointer is valid.
pub unsafe fn read(at: usize) -> u8;
unsafe fn silent() {}
struct F { call: unsafe extern "C" fn(u8), other: unsafe fn() }
let text = "unsafe { }"; // unsafe {
"#;
    let lines: Vec<usize> = findings("crates/io/src/a.rs", text).into_iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [4, 14]);
    let outside: Vec<usize> = findings("crates/wire/src/a.rs", text).into_iter().map(|finding| finding.line).collect();
    assert_eq!(outside, [3, 4, 8, 13, 14, 15, 15]);
}
