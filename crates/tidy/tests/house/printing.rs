//! The program prints in one place. `println!` and its like panic where a terminal is closed and wait where it is stopped, and a run
//! must do neither.

use crate::source::{Source, line_of, words};
use crate::tree::{Finding, expect_none, rust_files};

/// Macros that print, and panic where that fails.
const PRINTING: &[&str] = &["print", "println", "eprint", "eprintln"];
/// Where programs print; and what is for tests alone.
const MAY: &[&str] = &["crates/console/src/output/", "crates/tidy/"];

/// Code that users run: no tests and no examples.
fn is_product(path: &str) -> bool {
    path.starts_with("crates/")
        && path.contains("/src/")
        && !path.ends_with("/tests.rs")
        && !path.contains("/tests/")
        && !MAY.iter().any(|place| path.starts_with(place))
}

fn findings(path: &str, text: &str) -> Vec<Finding> {
    let code = Source::new(text).code;
    // Tests stand at the end of a file.
    let product = code.find("#[cfg(test)]\nmod ").unwrap_or(code.len());
    let printing =
        words(&code[..product]).filter(|(place, word)| PRINTING.contains(word) && code[place.end..].starts_with('!'));
    let what = |word| format!("`{word}!` panics or waits without a reader: `say!` and `tell!` of the program do not");
    printing.map(|(place, word)| Finding::new(path, line_of(&code, place.start), what(word))).collect()
}

#[test]
fn the_program_prints_in_one_place() {
    let product = rust_files().filter(|file| is_product(&file.path));
    let all: Vec<Finding> = product.flat_map(|file| findings(&file.path, &file.text)).collect();
    expect_none(&all);
}

#[test]
fn printing_is_seen_and_tests_may_print() {
    let text = "fn a() {\n    println!(\"x\");\n    // print!\n    let println = 1;\n    eprint!(\"y\");\n}\n#[cfg(test)]\nmod tests {\n    fn b() { println!(\"z\"); }\n}\n";
    let lines: Vec<usize> = findings("a.rs", text).into_iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [2, 5]);
    assert!(is_product("crates/run/src/handle.rs") && !is_product("crates/run/src/session/tests.rs"));
}
