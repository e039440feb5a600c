//! Text: nothing left undone, nothing of one machine, every page of the documentation within reach.

use std::collections::BTreeSet;

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

/// The targets of Markdown links in `text` that are files, without their anchors, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        for part in line.split("](").skip(1).filter(|_| !in_code) {
            let target = part.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((index + 1, target));
            }
        }
    }
    found
}

/// The path that `link` in `file` means, relative to the repository.
fn resolve(file: &str, link: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn pages() -> impl Iterator<Item = &'static TextFile> {
    text_files().iter().filter(|file| file.is_markdown())
}

#[test]
fn nothing_is_left_undone_or_bound_to_one_machine() {
    let all: Vec<Finding> = text_files().iter().flat_map(findings).collect();
    expect_none(&all);
}

#[test]
fn every_link_leads_somewhere() {
    let mut findings = Vec::new();
    for page in pages() {
        for (line, link) in links(&page.text) {
            if !crate::tree::root().join(resolve(&page.path, link)).exists() {
                findings.push(Finding::new(&page.path, line, format!("`{link}` is not there: correct the link")));
            }
        }
    }
    expect_none(&findings);
}

#[test]
fn every_page_is_within_reach() {
    let mut reached = BTreeSet::new();
    let mut waiting = vec!["README.md".to_owned(), "ARCHITECTURE.md".to_owned()];
    while let Some(path) = waiting.pop() {
        let Some(page) = pages().find(|page| page.path == path) else { continue };
        if reached.insert(path) {
            waiting.extend(links(&page.text).into_iter().map(|(_, link)| resolve(&page.path, link)));
        }
    }
    let lost = pages()
        .filter(|page| page.path.starts_with("docs/") && !reached.contains(&page.path))
        .map(|page| Finding::new(&page.path, 1, "no page links here: link it from README.md or from another page"));
    expect_none(&lost.collect::<Vec<_>>());
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

#[test]
fn links_are_found_and_resolved() {
    let text = "a [b](docs/cli.md#exit) and [c](https://example.org/x.md)\n```\n[d](e.md)\n```\n![f](../g.svg)";
    assert_eq!(links(text), [(1, "docs/cli.md"), (5, "../g.svg")]);
    assert_eq!(resolve("docs/a/b.md", "../c.md"), "docs/c.md");
    assert_eq!(resolve("README.md", "./docs/cli.md"), "docs/cli.md");
}
