//! What would be changed.

use super::{ChangeOptions, place};
use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use clap::Args;
use ropewalk_tune::{Change, Plan};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Debug, Args)]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    change: ChangeOptions,
    /// Print the changes as one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `plan --json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "What would be changed on a host: the output of `ropewalk tune plan --json`")]
pub(crate) struct PlanReport<'a> {
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// The changes in the order in which they would be made; each setting once.
    changes: Vec<PlannedChange<'a>>,
}

impl PlanReport<'_> {
    const SCHEMA: &'static str = "ropewalk-tune-plan-1";
}

/// A change that would be made.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PlannedChange<'a> {
    #[serde(flatten)]
    change: &'a Change,
    /// The command that a person would type.
    command: String,
}

pub(super) fn plan(options: &PlanOptions) -> Result<u8, Failure> {
    let plan = options.change.plan(&mut place(&options.change.look.root)?)?;
    if options.json {
        let planned = |change| PlannedChange { change, command: change.setting.command(&change.to) };
        let changes = plan.changes.iter().map(planned).collect();
        print_json(&PlanReport { schema: PlanReport::SCHEMA, changes })?;
    } else {
        write_results(text(&plan).as_bytes());
    }
    Ok(exit::GOOD)
}

/// Commands, with what a shell passes over: the rule that asks for each, and what was found.
fn text(plan: &Plan) -> String {
    if plan.changes.is_empty() {
        return "# nothing to change\n".to_owned();
    }
    let line = |change: &Change| {
        let Change { setting, from, to, group, rule } = change;
        let comment = in_one_line(&format!("{group}, {rule}: {setting} is {from}"));
        format!("# {comment}\n{}\n", setting.command(to))
    };
    plan.changes.iter().map(line).collect()
}

/// A comment ends with its line, so values and names must not contain a line break.
fn in_one_line(text: &str) -> String {
    let shown =
        |letter: char| if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_tune::{Group, Setting};

    #[test]
    fn no_value_ends_its_comment() {
        let setting = Setting::Mtu { interface: "e\nid".to_owned() };
        let (from, to, rule) = ("0\ntouch it".to_owned(), "9000".to_owned(), "mtu".to_owned());
        let plan = Plan { changes: vec![Change { setting, from, to, group: Group::Card, rule }] };
        let expected = "# card, mtu: MTU of e\\nid is 0\\ntouch it\nip link set dev \"e\nid\" mtu 9000\n";
        assert_eq!(text(&plan), expected);
    }
}
