//! The table of findings.

use super::{LookOptions, place};
use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use clap::Args;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use ropewalk_tune::{Finding, Found, Grade, Sureness, Wish, rules};
use schemars::JsonSchema;
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

/// What `check --json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "What was found of the settings of a host: the output of `ropewalk tune check --json`")]
pub(crate) struct CheckReport<'a> {
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// The demands of the configuration on the host; none without a configuration.
    wish: &'a Wish,
    /// The number of findings of each grade.
    counts: Counts,
    /// The findings, by group and rule.
    findings: &'a [Finding],
}

impl CheckReport<'_> {
    const SCHEMA: &'static str = "ropewalk-tune-check-1";
}

/// The number of findings of each grade.
#[derive(Copy, Clone, Serialize, JsonSchema)]
pub(crate) struct Counts {
    /// Settings that lose data, or most of the speed.
    harmful: usize,
    /// Settings that work but could be better.
    could_be_better: usize,
    /// Information.
    told: usize,
    /// Settings that are good.
    good: usize,
}

pub(crate) fn check(options: &CheckOptions) -> Result<u8, Failure> {
    let wish = options.look.wish()?;
    let found = Found::read(&mut place(&options.look.root)?, &wish)?;
    let mut findings = rules::check(&found, &wish);
    let counts = Counts::of(&findings);
    if options.json {
        print_json(&CheckReport { schema: CheckReport::SCHEMA, wish: &wish, counts, findings: &findings })?;
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
