//! Text: nothing left undone, nothing of one machine, no word that hides who acts.

use crate::tree::{Finding, TextFile, expect_none, text_files};

/// Words that say that something was left undone. Put together here so that this file passes its own test.
const UNDONE: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// The beginnings of absolute paths that exist on one machine only.
const WORKPLACES: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/tm", "p/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];

/// Words that hide who acts: name the client, the thread, the operator. Records of measurements keep what was printed.
const NAMELESS: &[&str] = &[concat!("who", "ever"), concat!("some", "body"), concat!("no", "body")];
/// Files in which these words may stand: records, what describes the rule, and inputs of fuzzers.
const NAMELESS_ALLOWED: &[&str] = &["bench/runs/", "STYLE.md", "fuzz/", "docs/schema/"];

/// How a test must not skip: by a line of its own, or by asking for the real data itself. Such skips are not counted.
const UNCOUNTED_SKIPS: &[&str] =
    &[concat!("\"skip", "ped:"), concat!("var(\"ROPE", "WALK_DATA"), concat!("var_os(\"ROPE", "WALK_DATA")];

/// Whether `needle` is in `line` without neighbours that belong to a longer word or path.
fn stands_alone(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + needle.len()..].chars().next();
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let starts = !before.is_some_and(|c| is_part(c) || (needle.starts_with('/') && "./}-*~>".contains(c)));
        starts && (needle.ends_with('/') || !after.is_some_and(is_part))
    })
}

/// A word that hides who acts, as a word of a sentence: names of variants, of JSON values and of the Unix user are none.
fn nameless(line: &str) -> Option<&'static str> {
    let is_in_sentence = |word: &str, at: usize| {
        let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
        let is_part = |c: char| c.is_alphanumeric() || "_\"`:".contains(c);
        // A variant has a capital, too, and no further word behind it.
        let begins_one = word.starts_with(char::is_lowercase) || after == Some(' ');
        begins_one && !before.is_some_and(is_part) && !after.is_some_and(is_part)
    };
    let stands = |word: &str| line.match_indices(word).any(|(at, _)| is_in_sentence(word, at));
    let capital = |word: &str| format!("{}{}", word[..1].to_uppercase(), &word[1..]);
    let is_there = |word: &&str| stands(word) || stands(&capital(word));
    NAMELESS.iter().copied().find(is_there)
}

fn findings(file: &TextFile) -> Vec<Finding> {
    let mut found = Vec::new();
    let may_be_nameless = NAMELESS_ALLOWED.iter().any(|path| file.path.starts_with(path));
    for (index, line) in file.text.lines().enumerate() {
        let mut tell = |what: String| found.push(Finding::new(&file.path, index + 1, what));
        for word in UNDONE.iter().filter(|word| stands_alone(line, word)) {
            tell(format!("`{word}`: do it now, or write it down where it is planned"));
        }
        if let Some(word) = nameless(line).filter(|_| !may_be_nameless) {
            tell(format!("`{word}`: name who acts (STYLE.md, Language)"));
        }
        for path in WORKPLACES.iter().filter(|path| stands_alone(line, path)) {
            tell(format!("`{path}...` is a path of one machine: use a relative or temporary path"));
        }
        if file.is_rust() && UNCOUNTED_SKIPS.iter().any(|skip| line.contains(skip)) {
            tell("a skip that is not counted: call `ropewalk_tidy::skipped` or `real_data`".to_owned());
        }
    }
    found
}

#[test]
fn nothing_is_left_undone_or_bound_to_one_machine() {
    let all: Vec<Finding> = text_files().iter().flat_map(findings).collect();
    expect_none(&all);
}

#[test]
fn the_rules_see_what_they_should() {
    let line = |text: &str| {
        let file = TextFile { path: "a.rs".to_owned(), text: text.to_owned() };
        findings(&file).len()
    };
    assert_eq!(line(&format!("// {}: later", UNDONE[0])), 1);
    assert_eq!(line(&format!("mktemp {0}{0}", UNDONE[2])), 0);
    assert_eq!(line(&format!("// {} reads it", NAMELESS[2])), 1);
    assert_eq!(line(&format!("Placed::{0} => \"{0}\",", NAMELESS[2])), 0);
    assert_eq!(line(&format!("cd {}main", WORKPLACES[0])), 1);
    assert_eq!(line(&format!("see ..{}main", WORKPLACES[0])), 0);
    assert_eq!(line(&format!("println!({} a\")", UNCOUNTED_SKIPS[0])), 1);
}
