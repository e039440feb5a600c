//! docs/tuning.md has every rule, in the words of the rule itself.

use std::fmt::Write;
use std::path::Path;

use ropewalk_tune::rules::{self, Rule};
use ropewalk_tune::{Group, Sureness};

/// What stands above the first rule.
const HEAD: &str = "\n## The rules\n";

fn heading(group: Group) -> &'static str {
    match group {
        Group::Network => "Sockets and protocols (`network`)",
        Group::Card => "Network cards (`card`)",
        Group::Interrupts => "Interrupts (`interrupts`)",
        Group::Processor => "Processors (`processor`)",
        Group::Memory => "Memory (`memory`)",
        Group::Storage => "Disks (`storage`)",
        Group::Limits => "Limits (`limits`)",
    }
}

fn how_sure(sureness: Sureness) -> &'static str {
    match sureness {
        Sureness::Guess => "a rule of thumb: measure before and after",
        Sureness::Documented => "published measurements or the kernel's documentation say so",
        Sureness::Measured => "measured with Ropewalk's benches",
    }
}

fn section(page: &mut String, rule: &Rule) -> std::fmt::Result {
    let Rule { name, what, why, source, worth, .. } = rule;
    write!(page, "\n#### `{name}`\n\n{what}\n\n- Why: {why}\n- Source: {source}.\n- Worth: {worth}.\n")?;
    writeln!(page, "- How sure: {}.", how_sure(rule.sureness))
}

fn sections() -> String {
    let (mut page, mut group) = (HEAD.to_owned(), None);
    for rule in rules::rules() {
        if group.replace(rule.group) != Some(rule.group) {
            writeln!(page, "\n### {}", heading(rule.group)).expect("text can be written");
        }
        section(&mut page, rule).expect("text can be written");
    }
    page
}

#[test]
fn the_page_has_every_rule_with_its_reason_and_source() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tuning.md");
    let page = std::fs::read_to_string(&file).expect("the page is there");
    let (head, _) = page.split_once(HEAD).expect("the rules have a heading");
    let expected = format!("{head}{}", sections());
    if std::env::var_os("ROPEWALK_BLESS").is_some() {
        std::fs::write(&file, &expected).expect("the page can be written");
        return;
    }
    let differs = page.lines().zip(expected.lines()).find(|(told, expected)| told != expected);
    assert!(page == expected, "docs/tuning.md differs at {differs:#?}; ROPEWALK_BLESS=1 writes the rules anew");
}
