//! The host's settings: what is found, what would be changed, changing it, and taking it back.

mod change;
pub(crate) mod plan;
mod wish;

use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use crate::render::with_default;
use clap::{Args, Subcommand};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use ropewalk_config::Configuration;
use ropewalk_host::Machine;
use ropewalk_tune::change::{Applied, Fate, History, Trouble, Undone};
use ropewalk_tune::{Change, Finding, Found, Grade, Group, Place, Plan, Setting, Sureness, Wish, rules};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
pub(crate) use wish::resolve;

/// Where old values are kept, below the machine's root.
const JOURNAL: &str = "var/lib/ropewalk/tune.journal";

#[derive(Debug, Subcommand)]
pub(crate) enum TuneCommand {
    /// Check the settings for data taking and explain what could be better.
    #[command(after_help = "Examples:
  ropewalk tune check
  ropewalk tune check my-setup.toml
  ropewalk tune check --interface eth1 --all
  ropewalk tune check my-setup.toml --root copy-of-another-machine --json

Exit status: 0 no harmful setting, 1 a setting loses data or most of the speed.")]
    Check(CheckOptions),
    /// Print the changes that `apply` would make, as shell commands.
    #[command(after_help = "Examples:
  ropewalk tune plan
  ropewalk tune plan my-setup.toml --interface eth2 --only network --only card
  ropewalk tune plan --except congestion_control --except net.core.rmem_max
  ropewalk tune plan --root copy-of-another-machine --json")]
    Plan(plan::PlanOptions),
    /// Change the settings; undo all changes if one fails.
    #[command(after_help = "Examples:
  sudo ropewalk tune apply my-setup.toml
  sudo ropewalk tune apply --only network --journal before-the-run.journal")]
    Apply(change::ApplyOptions),
    /// Restore the settings from before `apply`, also after a crash or reboot.
    #[command(after_help = "Examples:
  sudo ropewalk tune undo
  sudo ropewalk tune undo --journal before-the-run.journal --force

Exit status: 0 all restored, 1 some settings not restored, 4 system error.")]
    Undo(change::UndoOptions),
    /// Write the kernel parameters into a file that is read at boot.
    #[command(after_help = "Examples:
  sudo ropewalk tune persist my-setup.toml
  ropewalk tune persist --file 90-ropewalk.conf")]
    Persist(change::PersistOptions),
}

/// What to look at.
#[derive(Debug, Args)]
pub(crate) struct LookOptions {
    /// Configuration whose needs are checked; by default those of any data taking.
    pub(crate) config: Option<PathBuf>,
    /// Network interface to check, besides those of the configuration; repeatable.
    #[arg(long = "interface", value_name = "NAME")]
    pub(crate) interfaces: Vec<String>,
    /// Directory with the proc, sys and recorded.json of another machine; changes are made there.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}

/// What is planned.
#[derive(Debug, Args)]
pub(crate) struct ChangeOptions {
    #[command(flatten)]
    pub(crate) look: LookOptions,
    /// Group to include: network, card, interrupts, processor, memory, storage, limits; repeatable. By default all.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub(crate) only: Vec<Group>,
    /// Setting or rule to exclude; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) except: Vec<String>,
}

/// The place of the journal.
#[derive(Debug, Args)]
pub(crate) struct JournalOptions {
    #[arg(long, value_name = "FILE", help = with_default("Journal with the old values", format!("/{JOURNAL}")))]
    journal: Option<PathBuf>,
}

impl JournalOptions {
    fn file(&self, root: &Path) -> PathBuf {
        self.journal.clone().unwrap_or_else(|| root.join(JOURNAL))
    }

    /// The command that undoes what this journal records.
    fn undo(&self, root: &Path) -> String {
        let option = |name, path: &Path| format!(" {name} {}", path.display());
        let journal = self.journal.as_deref().map(|path| option("--journal", path)).unwrap_or_default();
        let root = if root == Path::new("/") { String::new() } else { option("--root", root) };
        format!("ropewalk tune undo{journal}{root}")
    }
}

pub(crate) fn tune(command: &TuneCommand) -> Result<u8, Failure> {
    match command {
        TuneCommand::Check(options) => check(options),
        TuneCommand::Plan(options) => plan::plan(options),
        TuneCommand::Apply(options) => change::apply(options),
        TuneCommand::Undo(options) => change::undo(options),
        TuneCommand::Persist(options) => change::persist(options),
    }
}

/// The rules that find something harmful on this machine for a configuration; empty if the machine cannot be read.
pub(crate) fn harmful(configuration: &Configuration) -> BTreeSet<&'static str> {
    let Ok(machine) = Machine::read(Path::new("/")) else { return BTreeSet::new() };
    let mut wish = wish::of_pull(configuration, &machine);
    wish::resolve(&mut wish.outputs);
    let Ok(found) = Found::read(&mut Place::live(), &wish) else { return BTreeSet::new() };
    let findings = rules::check(&found, &wish).into_iter();
    findings.filter(|finding| finding.grade == Grade::Harmful).map(|finding| finding.rule).collect()
}

fn group(text: &str) -> Result<Group, String> {
    let names = Group::ALL.map(Group::name).join(", ");
    Group::ALL.into_iter().find(|group| group.name() == text).ok_or_else(|| format!("the groups are {names}"))
}

/// The selected machine.
pub(crate) fn place(root: &Path) -> Result<Place, Failure> {
    if root == Path::new("/") { Ok(Place::live()) } else { Ok(Place::recorded(root)?) }
}

impl LookOptions {
    /// What the configuration needs of the host.
    pub(crate) fn wish(&self) -> Result<Wish, Failure> {
        let mut wish = match &self.config {
            Some(file) => wish::of_file(file, &self.root)?,
            None => Wish::default(),
        };
        wish.interfaces.extend(self.interfaces.iter().cloned());
        Ok(wish)
    }
}

impl ChangeOptions {
    /// What would be changed on a machine. Warns of changes that irqbalance would take back at once.
    pub(crate) fn plan(&self, place: &mut Place) -> Result<Plan, Failure> {
        let (found, plan) = self.looked(place)?;
        let plan = self.part(plan);
        if let Some(told) = rules::moved_back(&found, &plan) {
            tell!("warning: {told}");
        }
        Ok(plan)
    }

    /// What would be changed if everything might be.
    fn whole(&self, place: &mut Place) -> Result<Plan, Failure> {
        self.looked(place).map(|(_, plan)| plan)
    }

    fn looked(&self, place: &mut Place) -> Result<(Found, Plan), Failure> {
        let wish = self.look.wish()?;
        let found = Found::read(place, &wish)?;
        let plan = Plan::of(&rules::check(&found, &wish));
        Ok((found, plan))
    }

    /// The selected part of the plan.
    fn part(&self, plan: Plan) -> Plan {
        let is_of = |name: &str, change: &Change| name == change.rule || name == change.setting.to_string();
        let is_known = |name: &&String| {
            rules::rules().any(|rule| rule.name == name.as_str())
                || plan.changes.iter().any(|change| is_of(name, change))
        };
        let unknown: Vec<_> = self.except.iter().filter(|name| !is_known(name)).collect();
        unknown.iter().for_each(|name| tell!("note: --except {name}: no rule and no planned setting has this name"));
        let mut plan = plan.only(&self.only);
        plan.changes.retain(|change| !self.is_excepted(&change.setting, &change.rule));
        plan
    }

    /// Whether this setting, or the rule that asks for it, is named as one that is not meant.
    fn is_excepted(&self, setting: &Setting, rule: &str) -> bool {
        self.except.iter().any(|name| name == rule || *name == setting.to_string())
    }
}

/// As wide as a table is at most, in letters.
const WIDTH: u16 = 120;

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    pub(crate) look: LookOptions,
    /// Show good settings, too.
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
    /// The demands of the configuration on the host; null without a configuration.
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
    text.push_str(&format!(
        "\n{harmful} harmful, {could_be_better} could be better, {told} information, {good} good\n"
    ));
    text
}

/// Text after a name, on as many lines as needed.
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
        Grade::Told => "information",
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

/// What `apply --json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "What was changed on a host: the output of `ropewalk tune apply --json`")]
pub(crate) struct ToldApplied<'a> {
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// The journal of old values.
    journal: &'a Path,
    /// The changes in order, with the value just before as `from`; empty after a failure.
    changed: &'a [Change],
    /// Settings of the plan that already had the wanted value.
    already: usize,
    /// Why nothing was changed; null on success.
    failure: Option<ToldFailure<'a>>,
    /// Settings that could not be brought back after a failure. The journal stays, and `undo` tries again.
    not_brought_back: &'a [Trouble],
}

/// Why nothing was changed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ToldFailure<'a> {
    /// The setting that failed; null if it was none.
    setting: Option<&'a Setting>,
    /// What happened.
    why: &'a str,
}

impl<'a> ToldApplied<'a> {
    const SCHEMA: &'static str = "ropewalk-tune-apply-1";

    fn new(applied: &'a Applied, journal: &'a Path) -> Self {
        let Applied { changed, already, failure } = applied;
        Self {
            schema: Self::SCHEMA,
            journal,
            changed,
            already: *already,
            failure: failure.as_ref().map(|one| ToldFailure { setting: one.setting.as_ref(), why: &one.why }),
            not_brought_back: failure.as_ref().map(|one| one.not_brought_back.as_slice()).unwrap_or_default(),
        }
    }
}

/// What `undo --json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "What was taken back on a host: the output of `ropewalk tune undo --json`")]
pub(crate) struct ToldUndone<'a> {
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// The journal of old values.
    journal: &'a Path,
    /// The outcome for each setting, in the order of the journal.
    settings: Vec<ToldSetting<'a>>,
    /// Settings that could not be brought back. The journal stays, and `undo` tries again.
    not_brought_back: &'a [Trouble],
    /// The error of the journal; null if none.
    fault: Option<&'a str>,
    /// Whether everything was restored.
    is_put_away: bool,
}

/// The outcome for a setting.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ToldSetting<'a> {
    /// The setting.
    setting: &'a Setting,
    /// The value before the change; null if the journal does not contain it.
    old: Option<&'a str>,
    #[serde(flatten)]
    fate: &'a Fate,
}

impl<'a> ToldUndone<'a> {
    const SCHEMA: &'static str = "ropewalk-tune-undo-1";

    fn new(undone: &'a Undone, history: &'a History, journal: &'a Path) -> Self {
        let one = |(setting, fate): &'a (Setting, Fate)| ToldSetting { setting, old: history.old(setting), fate };
        Self {
            schema: Self::SCHEMA,
            journal,
            settings: undone.fates.iter().map(one).collect(),
            not_brought_back: &undone.troubles,
            fault: undone.fault.as_deref(),
            is_put_away: undone.is_put_away,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::Parser;

    /// Every command that a rule names can be typed unchanged.
    #[test]
    fn every_command_that_a_rule_names_is_one() {
        let mut count = 0;
        for rule in rules::rules() {
            let commands = rule.worth.split('`').filter(|words| words.starts_with("ropewalk "));
            for command in commands {
                let words: Vec<&str> = command.split(' ').collect();
                assert!(Arguments::try_parse_from(&words).is_ok(), "{}: {command}", rule.name);
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
    }
}
