//! The host's settings: what is found, what would be changed, changing it, and taking it back.

mod change;
pub(crate) mod check;
mod persist;
pub(crate) mod plan;
pub(crate) mod told;
mod wish;

pub(crate) use wish::resolve;

use crate::exit::Failure;
use clap::{Args, Subcommand};
use ropewalk_host::Machine;
use ropewalk_node::configuration::Configuration;
use ropewalk_tune::{Found, Grade, Group, Place, Plan, Setting, Wish, rules};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where old values are kept, below the machine's root.
const JOURNAL: &str = "var/lib/ropewalk/tune.journal";

#[derive(Debug, Subcommand)]
pub(crate) enum TuneCommand {
    /// Look at the settings that data taking needs, and say what could be better and why; nothing is changed.
    #[command(after_help = "Examples:
  ropewalk tune check
  ropewalk tune check my-setup.toml
  ropewalk tune check --interface eth1 --all
  ropewalk tune check my-setup.toml --root copy-of-another-machine --json

Exit status: 0 where nothing harmful was found, 1 where something loses data or most of the speed.")]
    Check(check::CheckOptions),
    /// Print what would be changed, as commands that a person could type; nothing is changed.
    #[command(after_help = "Examples:
  ropewalk tune plan
  ropewalk tune plan my-setup.toml --interface eth2 --only network --only card
  ropewalk tune plan --except congestion_control --except net.core.rmem_max
  ropewalk tune plan --root copy-of-another-machine --json")]
    Plan(plan::PlanOptions),
    /// Change it: the old values are written into a journal first, each new one is read again, and all is rolled back when
    /// one fails.
    #[command(after_help = "Examples:
  sudo ropewalk tune apply my-setup.toml
  sudo ropewalk tune apply --only network --journal before-the-run.journal")]
    Apply(change::ApplyOptions),
    /// Take back what was applied, also after a crash half-way or a restart of the machine.
    #[command(after_help = "Examples:
  sudo ropewalk tune undo
  sudo ropewalk tune undo --journal before-the-run.journal --force

Exit status: 0 where everything is as it was, 1 where something is left, 4 where it cannot be done.")]
    Undo(change::UndoOptions),
    /// Write the kernel parameters of the plan, and those that were applied, into a file that is read at each start.
    #[command(after_help = "Examples:
  sudo ropewalk tune persist my-setup.toml
  ropewalk tune persist --file 90-ropewalk.conf")]
    Persist(persist::PersistOptions),
}

/// What is looked at.
#[derive(Debug, Args)]
pub(crate) struct LookOptions {
    /// The configuration whose needs are to be met; without one, those of any data taking.
    pub(crate) config: Option<PathBuf>,
    /// An interface to look at, besides those that feed the configuration; where data comes through it large packets are
    /// planned, too. As often as wanted.
    #[arg(long = "interface", value_name = "NAME")]
    pub(crate) interfaces: Vec<String>,
    /// Another machine: a directory with its proc and sys and recorded.json. What is changed is changed there.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}

/// What is planned.
#[derive(Debug, Args)]
pub(crate) struct ChangeOptions {
    #[command(flatten)]
    pub(crate) look: LookOptions,
    /// These settings alone: network, card, interrupts, processor, memory, storage or limits; as often as wanted.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub(crate) only: Vec<Group>,
    /// All but this setting, or all but what this rule asks for; as often as wanted.
    #[arg(long, value_name = "NAME")]
    pub(crate) except: Vec<String>,
}

/// Where the journal is.
#[derive(Debug, Args)]
pub(crate) struct JournalOptions {
    /// The file with the values from before [default: /var/lib/ropewalk/tune.journal].
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

impl JournalOptions {
    fn file(&self, root: &Path) -> PathBuf {
        self.journal.clone().unwrap_or_else(|| root.join(JOURNAL))
    }
}

pub(crate) fn tune(command: &TuneCommand) -> Result<u8, Failure> {
    match command {
        TuneCommand::Check(options) => check::check(options),
        TuneCommand::Plan(options) => plan::plan(options),
        TuneCommand::Apply(options) => change::apply(options),
        TuneCommand::Undo(options) => change::undo(options),
        TuneCommand::Persist(options) => persist::persist(options),
    }
}

/// The rules that find something harmful on this machine for a configuration; none where it cannot be looked at.
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

/// The machine that is meant.
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
    /// What would be changed on a machine. What somebody there takes back at once is told.
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

    /// What of it is meant.
    fn part(&self, plan: Plan) -> Plan {
        let mut plan = plan.only(&self.only);
        plan.changes.retain(|change| !self.is_excepted(&change.setting, &change.rule));
        plan
    }

    /// Whether this setting, or the rule that asks for it, is named as one that is not meant.
    fn is_excepted(&self, setting: &Setting, rule: &str) -> bool {
        self.except.iter().any(|name| name == rule || *name == setting.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::Parser;

    /// Whoever types what a rule names is not told that there is no such thing.
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
