//! Pages: each is in the table of contents and short, each link leads somewhere, and a table cell is one sentence.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{Finding, TextFile, expect_none, root, text_files};

/// The table of contents of the manual, which mdBook reads.
const CONTENTS: &str = "docs/SUMMARY.md";
/// The maximum length of a page.
const MOST_LINES: usize = 300;
/// The maximum length of a table cell, without the targets of its links.
const MOST_IN_A_CELL: usize = 160;
/// Records, which keep what was printed or grow with every version.
const RECORDS: &[&str] = &["bench/runs/", "CHANGELOG.md"];

fn pages() -> impl Iterator<Item = &'static TextFile> {
    text_files().iter().filter(|file| file.is_markdown())
}

/// The lines of a page outside of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((index + 1, line))
    })
}

/// The targets of Markdown links in `text` that are files or anchors, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let targets = |line| str::split(line, "](").skip(1).map(|part| part.split([')', ' ']).next().unwrap_or_default());
    let all = prose(text).flat_map(|(number, line)| targets(line).map(move |target| (number, target)));
    all.filter(|(_, target)| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:")).collect()
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

/// A text without the targets of its links.
fn visible(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest)).replace('[', "")
}

/// The anchors of a page: its headings, as mdBook and GitHub name them, and what has an id.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        found.extend(line.split("<a id=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        let Some(heading) = line.strip_prefix('#') else { continue };
        let heading = visible(heading.trim_start_matches('#').trim()).to_lowercase();
        let is_kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
        let name: String = heading.chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect();
        let repeated = (1..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(repeated);
        found.extend(names.find(|name| !found.contains(name)));
    }
    found
}

/// A text without code, so that a full stop in it is the end of a sentence.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("x")
}

/// Whether a sentence ends within the text: a full stop that is no ellipsis, and a capital.
fn has_sentences(text: &str) -> bool {
    let begins = |rest: &str| rest.starts_with(|c: char| c.is_uppercase());
    text.match_indices(". ").any(|(at, _)| !text[..at].ends_with('.') && begins(&text[at + 2..]))
}

/// The cells of a table's row that are longer than a sentence.
fn long_cells(row: &str) -> Vec<String> {
    let cells = row.replace("\\|", "/");
    let cells = cells.trim_matches('|').split('|').map(|cell| visible(cell.trim()));
    let is_long = |cell: &String| cell.chars().count() > MOST_IN_A_CELL || has_sentences(&without_code(cell));
    cells.filter(is_long).collect()
}

#[test]
fn every_link_leads_to_a_page_and_to_a_heading() {
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages().map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    let mut findings = Vec::new();
    for page in pages() {
        for (line, link) in links(&page.text) {
            let mut tell = |what: &str| findings.push(Finding::new(&page.path, line, format!("`{link}`: {what}")));
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if path.is_empty() { page.path.clone() } else { resolve(&page.path, path) };
            if !root().join(&path).exists() {
                tell("there is no such file");
            } else if !anchor.is_empty() && anchors.get(path.as_str()).is_some_and(|all| !all.contains(anchor)) {
                tell("the page has no such heading");
            } else if page.path.starts_with("docs/") && !path.starts_with("docs/") {
                tell("the manual has only pages of docs/: write the path as code");
            }
        }
    }
    expect_none(&findings);
}

#[test]
fn every_page_of_the_manual_is_in_its_contents() {
    let contents = pages().find(|page| page.path == CONTENTS).expect("the manual has contents");
    let listed: Vec<String> = links(&contents.text).into_iter().map(|(_, link)| resolve(CONTENTS, link)).collect();
    let findings = pages().filter(|page| page.path.starts_with("docs/") && page.path != CONTENTS).filter_map(|page| {
        let times = listed.iter().filter(|path| **path == page.path).count();
        (times != 1).then(|| Finding::new(&page.path, 1, format!("{CONTENTS} lists it {times} times instead of once")))
    });
    expect_none(&findings.collect::<Vec<_>>());
}

#[test]
fn every_page_is_short_and_every_cell_is_one_sentence() {
    let mut findings = Vec::new();
    for page in pages().filter(|page| !RECORDS.iter().any(|path| page.path.starts_with(path))) {
        let lines = page.text.lines().count();
        if lines > MOST_LINES {
            findings.push(Finding::new(
                &page.path,
                lines,
                format!("{lines} lines: split it, {MOST_LINES} are allowed"),
            ));
        }
        for (number, row) in prose(&page.text).filter(|(_, line)| line.starts_with('|')) {
            let tell = |cell| Finding::new(&page.path, number, format!("more than a sentence in a cell: {cell}"));
            findings.extend(long_cells(row).into_iter().map(tell));
        }
    }
    expect_none(&findings);
}

#[test]
fn links_anchors_and_cells_are_found() {
    let text = "a [b](docs/cli.md#exit) and [c](https://example.org/x.md)\n```\n[d](e.md)\n```\n![f](../g.svg)";
    assert_eq!(links(text), [(1, "docs/cli.md#exit"), (5, "../g.svg")]);
    assert_eq!(resolve("docs/a/b.md", "../c.md"), "docs/c.md");
    assert_eq!(resolve("README.md", "./docs/cli.md"), "docs/cli.md");
    let found = anchors("# A `[b]`: c\n## A `[b]`: c\n```\n# d\n```\n<a id=\"e\"></a>f");
    assert_eq!(found, ["a-b-c", "a-b-c-1", "e"].map(str::to_owned).into());
    assert!(long_cells("| `a. b` | one [sentence](a.md). |").is_empty());
    assert_eq!(long_cells("| One. Two | three |"), ["One. Two"]);
    assert_eq!(long_cells(&format!("| {} |", "a".repeat(MOST_IN_A_CELL + 1))).len(), 1);
}
