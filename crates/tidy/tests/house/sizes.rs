//! Files of at most 800 lines and functions of at most 70: what does not fit has a seam somewhere.

use crate::source::{Source, line_of, words};
use crate::tree::{Finding, expect_none, rust_files};

const MOST_LINES_OF_A_FILE: usize = 800;
const MOST_LINES_OF_A_FUNCTION: usize = 70;

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// Where `fn` stands.
    line: usize,
    /// From `fn` to the closing brace, both lines counted.
    lines: usize,
}

/// The functions with a body in masked code, inner ones too.
fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (place, _) in words(code).filter(|(_, word)| *word == "fn") {
        let raw_identifier = code[..place.start].ends_with("r#");
        let rest = code[place.end..].trim_start();
        let name: String = rest.chars().take_while(|&c| c.is_alphanumeric() || "_$#".contains(c)).collect();
        if raw_identifier || name.is_empty() {
            continue;
        }
        if let Some(end) = body_start(code, place.end).and_then(|open| closing_brace(code, open)) {
            let line = line_of(code, place.start);
            found.push(Function { name, line, lines: line_of(code, end) - line + 1 });
        }
    }
    found
}

/// The place of the brace that opens the body of the function whose signature goes on at `from`.
///
/// Braces between angle, round or square brackets are constants in types; a semicolon first means that
/// there is no body.
fn body_start(code: &str, from: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let (mut depth, mut at) = (0usize, from);
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'<' => depth += 1,
            b'>' if at > 0 && matches!(bytes[at - 1], b'-' | b'=') => {}
            b')' | b']' | b'>' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b'{' => at = closing_brace(code, at)?,
            b';' if depth == 0 => return None,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The place of the brace that closes the one at `open`.
fn closing_brace(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (index, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(index),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[test]
fn no_file_is_too_long() {
    let mut findings = Vec::new();
    for file in rust_files() {
        let lines = file.text.lines().count();
        if lines > MOST_LINES_OF_A_FILE {
            let what = format!("{lines} lines, {MOST_LINES_OF_A_FILE} at most: split it along a seam");
            findings.push(Finding::new(&file.path, MOST_LINES_OF_A_FILE + 1, what));
        }
    }
    expect_none(&findings);
}

#[test]
fn no_function_is_too_long() {
    let mut findings = Vec::new();
    for file in rust_files() {
        let long = functions(&Source::new(&file.text).code).into_iter();
        for Function { name, line, lines } in long.filter(|function| function.lines > MOST_LINES_OF_A_FUNCTION) {
            let what = format!("`{name}` has {lines} lines, {MOST_LINES_OF_A_FUNCTION} at most: name its parts");
            findings.push(Finding::new(&file.path, line, what));
        }
    }
    expect_none(&findings);
}

#[test]
fn functions_are_measured_from_signature_to_closing_brace() {
    let text = r##"
trait T { fn declared(&self) -> [u8; { 3 }]; fn given(&self) {} }
impl<F: Fn(u8) -> u8> S<{ 1 }, F> {
    pub async fn generic<const N: usize>(a: A<{ N + 1 }>, f: fn(u8) -> u8) -> Result<(), E>
    where
        A<N>: Send,
    {
        let text = "} fn fake() {"; // } fn fake() {
        match a { _ => { fn inner() {
        } } }
    }
}
macro_rules! make { ($name:ident) => { fn $name() { } } }
"##;
    let found: Vec<(String, usize, usize)> = functions(&Source::new(text).code)
        .into_iter()
        .map(|function| (function.name, function.line, function.lines))
        .collect();
    let expected = [("given", 2, 1), ("generic", 4, 8), ("inner", 9, 2), ("$name", 13, 1)];
    assert_eq!(found, expected.map(|(name, line, lines)| (name.to_owned(), line, lines)));
}
