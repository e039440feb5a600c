//! The table of findings.

use super::{LookOptions, place};
use crate::exit::{self, Failure};
use crate::files::print_json;
use crate::output::write_results;
use clap::Args;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use ropewalk_tune::{Finding, Found, Grade, Sureness, Wish, rules};
use serde::Serialize;
use std::collections::BTreeSet;

/// As wide as a table is at most, in letters.
const WIDTH: u16 = 120;

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    pub(crate) look: LookOptions,
    /// Show what is good, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print all findings as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the program prints with `--json`; `docs/schema/tune-check.json` describes it.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    wish: &'a Wish,
    counts: Counts,
    findings: &'a [Finding],
}

/// How many findings have which grade.
#[derive(Copy, Clone, Serialize)]
struct Counts {
    harmful: usize,
    could_be_better: usize,
    told: usize,
    good: usize,
}

pub(crate) fn check(options: &CheckOptions) -> Result<u8, Failure> {
    let wish = options.look.wish()?;
    let found = Found::read(&mut place(&options.look.root)?, &wish)?;
    let mut findings = rules::check(&found, &wish);
    let counts = Counts::of(&findings);
    if options.json {
        print_json(&Report { schema: "ropewalk-tune-check-1", wish: &wish, counts, findings: &findings })?;
    } else {
        findings.retain(|finding| options.all || finding.grade != Grade::Good);
        write_results(text(&findings, counts).as_bytes());
    }
    Ok(if counts.harmful > 0 { exit::UNBALANCED } else { exit::GOOD })
}

impl Counts {
    fn of(findings: &[Finding]) -> Self {
        let count = |grade| findings.iter().filter(|finding| finding.grade == grade).count();
        Self {
            harmful: count(Grade::Harmful),
            could_be_better: count(Grade::CouldBeBetter),
            told: count(Grade::Told),
            good: count(Grade::Good),
        }
    }
}

/// The table, the worst first, and below it why.
fn text(findings: &[Finding], counts: Counts) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    let mut text = String::new();
    if !sorted.is_empty() {
        text = format!("{}\n", table(&sorted));
    }
    let mut told = BTreeSet::new();
    for finding in sorted.iter().filter(|finding| finding.grade > Grade::Told && told.insert(finding.rule)) {
        text.push_str(&format!("\n{}: {}", finding.rule, how_sure(finding.sureness)));
        for (name, words) in [("why", finding.why), ("source", finding.source), ("worth", finding.worth)] {
            text.push_str(&folded(name, words));
        }
        text.push('\n');
    }
    let Counts { harmful, could_be_better, told, good } = counts;
    text.push_str(&format!("\n{harmful} harmful, {could_be_better} could be better, {told} told, {good} good\n"));
    text
}

/// Words behind a name, on as many lines as they need.
fn folded(name: &str, words: &str) -> String {
    let (mut text, mut width) = (format!("\n  {name:<6}"), usize::MAX);
    for word in words.split(' ') {
        if width == usize::MAX || width + word.len() > usize::from(WIDTH) {
            if width != usize::MAX {
                text.push_str("\n        ");
            }
            width = 8;
        }
        text.push_str(&format!(" {word}"));
        width += word.len() + 1;
    }
    text
}

fn table(findings: &[&Finding]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(WIDTH);
    table.set_header(["", "rule", "what", "found", "advised"]);
    for finding in findings {
        let cells = [finding.rule, &finding.subject, &finding.found, &finding.advised];
        table.add_row([grade(finding.grade)].into_iter().chain(cells));
    }
    table
}

const fn grade(grade: Grade) -> &'static str {
    match grade {
        Grade::Good => "good",
        Grade::Told => "told",
        Grade::CouldBeBetter => "could be better",
        Grade::Harmful => "harmful",
    }
}

const fn how_sure(sureness: Sureness) -> &'static str {
    match sureness {
        Sureness::Guess => "a rule of thumb: measure before and after",
        Sureness::Documented => "published measurements or the kernel's documentation say so",
        Sureness::Measured => "measured with Ropewalk's benches",
    }
}
