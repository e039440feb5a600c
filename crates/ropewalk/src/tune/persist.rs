//! A file of sysctl.d, so that kernel parameters stay as advised when the machine starts again.

use super::{ChangeOptions, JournalOptions, place};
use crate::exit::{self, Failure};
use crate::files::counted;
use clap::Args;
use ropewalk_tune::change::{self, History};
use ropewalk_tune::{Place, Plan, Setting, Settings};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where the file is, below the machine's root.
pub(super) const FILE: &str = "etc/sysctl.d/90-ropewalk.conf";
/// The first line, by which a file of ours is known.
const HEAD: &str = "# Written by `ropewalk tune persist`: kernel parameters for data taking.";

#[derive(Debug, Args)]
pub(crate) struct PersistOptions {
    #[command(flatten)]
    change: ChangeOptions,
    #[command(flatten)]
    journal: JournalOptions,
    /// The file [default: /etc/sysctl.d/90-ropewalk.conf].
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn persist(options: &PersistOptions) -> Result<u8, Failure> {
    let root = &options.change.look.root;
    let mut place = place(root)?;
    let plan = options.change.plan(&mut place)?;
    let history = change::history(&options.journal.file(root), &place.identity())?.unwrap_or_default();
    let file = options.file.clone().unwrap_or_else(|| root.join(FILE));
    let mut lines = earlier(&file)?;
    let wanted = wanted(&plan, &history, &mut place);
    let (parameters, others): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|(setting, _)| setting.sysctl_name().is_some());
    lines.extend(parameters.into_iter().filter_map(|(setting, value)| Some((setting.sysctl_name()?, value))));
    if lines.is_empty() {
        say!("nothing to write");
    } else {
        write(&file, &lines).map_err(|source| unwritten(&file, &source))?;
        let (name, count) = (file.display(), counted(lines.len(), "kernel parameter"));
        say!("{name}: {count}, read at each start of the machine; `sysctl -p {name}` reads it at once");
    }
    if !others.is_empty() {
        eprintln!("note: a file of sysctl.d cannot carry these; run `ropewalk tune apply` at each start, or type:");
        others.iter().for_each(|(setting, value)| eprintln!("  {}", setting.command(value)));
    }
    Ok(exit::GOOD)
}

/// What the plan asks for, and what was applied and is still so.
fn wanted(plan: &Plan, history: &History, place: &mut Place) -> Vec<(Setting, String)> {
    let mut wanted = Vec::new();
    for held in &history.held {
        let present = place.read(&held.setting).ok().flatten();
        let planned = plan.changes.iter().any(|change| change.setting == held.setting);
        if !planned && present.is_some() && present.as_ref() == held.put.last() {
            wanted.extend(present.map(|value| (held.setting.clone(), value)));
        }
    }
    wanted.extend(plan.changes.iter().map(|change| (change.setting.clone(), change.to.clone())));
    wanted
}

/// What a file of ours said before: what is as advised since the machine was started with it stands in no plan.
fn earlier(file: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(unwritten(file, &error)),
    };
    if text.lines().next() != Some(HEAD) {
        let why = "this file was not written by `ropewalk tune persist`; name another one with --file";
        return Err(Failure::Environment(format!("{}: {why}", file.display())));
    }
    let pairs = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
}

fn write(file: &Path, lines: &BTreeMap<String, String>) -> std::io::Result<()> {
    let lines: String = lines.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    // Whole or not at all; and a name that is not read at the start while it is not whole.
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{HEAD}\n{lines}"))?;
    std::fs::rename(new, file)
}

fn unwritten(file: &Path, error: &std::io::Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => "; run it with sudo, or name another file with --file",
        _ => "",
    };
    Failure::Environment(format!("{}: {error}{hint}", file.display()))
}
