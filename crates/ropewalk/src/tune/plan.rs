//! What would be changed.

use super::{ChangeOptions, place};
use crate::exit::{self, Failure};
use crate::files::{print_json, write_out};
use clap::Args;
use ropewalk_tune::{Change, Plan};
use serde::Serialize;

#[derive(Debug, Args)]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    change: ChangeOptions,
    /// Print the changes as one JSON object.
    #[arg(long)]
    json: bool,
}

/// What the program prints with `--json`; `docs/schema/tune-plan.json` describes it.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    changes: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    change: &'a Change,
    command: String,
}

pub(super) fn plan(options: &PlanOptions) -> Result<u8, Failure> {
    let plan = options.change.plan(&mut place(&options.change.look.root)?)?;
    if options.json {
        let line = |change| Line { change, command: change.setting.command(&change.to) };
        print_json(&Report { schema: "ropewalk-tune-plan-1", changes: plan.changes.iter().map(line).collect() })?;
    } else {
        write_out(text(&plan).as_bytes())?;
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
        format!("# {group}, {rule}: {setting} is {from}\n{}\n", setting.command(to))
    };
    plan.changes.iter().map(line).collect()
}
