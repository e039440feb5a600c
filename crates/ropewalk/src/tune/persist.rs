//! A file of sysctl.d, so that kernel parameters stay as advised when the machine starts again.

use super::{ChangeOptions, JournalOptions, place};
use crate::exit::{self, Failure};
use crate::files::counted;
use clap::Args;
use ropewalk_tune::change::{self, History};
use ropewalk_tune::{Change, Place, Plan, Setting, Settings};
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

/// What a line of the file says of a kernel parameter.
struct Line {
    value: String,
    /// The rule that asked for it; empty where the file does not say.
    rule: String,
}

pub(super) fn persist(options: &PersistOptions) -> Result<u8, Failure> {
    let root = &options.change.look.root;
    let mut place = place(root)?;
    let whole = options.change.whole(&mut place)?;
    let identity = place.identity();
    let mut history = change::history(&options.journal.file(root), &identity)?.unwrap_or_default();
    history.held.retain(|held| !held.is_of_another(&identity.boot));
    let file = options.file.clone().unwrap_or_else(|| root.join(FILE));
    let mut lines = earlier(&file)?;
    let is_of_ours = !lines.is_empty();
    lines.retain(|name, line| is_kept(name, line, &whole, options, &mut place));
    let mut others = Vec::new();
    for (setting, line) in wanted(&options.change.part(whole), &history, &mut place) {
        match setting.sysctl_name() {
            _ if options.change.is_excepted(&setting, &line.rule) => {}
            Some(name) => drop(lines.insert(name, line)),
            // At the next start other threads run.
            None if matches!(setting, Setting::Thread(_)) => {}
            None => others.push((setting, line.value)),
        }
    }
    if lines.is_empty() && !is_of_ours {
        say!("nothing to write");
    } else {
        write(&file, &lines).map_err(|source| unwritten(&file, &source))?;
        let (name, count) = (file.display(), counted(lines.len(), "kernel parameter"));
        say!("{name}: {count}, read at each start of the machine; `sysctl -p {name}` reads it at once");
    }
    if !others.is_empty() {
        tell!("note: a file of sysctl.d cannot carry these; run `ropewalk tune apply` at each start, or type:");
        others.iter().for_each(|(setting, value)| tell!("  {}", setting.command(value)));
    }
    Ok(exit::GOOD)
}

/// Whether an earlier line stays: what is as advised since the machine was started with it stands in no plan. What is
/// neither so nor advised was undone since, or somebody changed it.
fn is_kept(name: &str, line: &Line, whole: &Plan, options: &PersistOptions, place: &mut Place) -> bool {
    let setting = Setting::sysctl(name);
    let is_so = |place: &mut Place| place.read(&setting).ok().flatten() == Some(setting.normal(&line.value));
    let is_advised = whole.changes.iter().any(|change| change.setting == setting);
    (is_advised || is_so(place)) && !options.change.is_excepted(&setting, &line.rule)
}

/// What the plan asks for, and what was applied and is still so.
fn wanted(plan: &Plan, history: &History, place: &mut Place) -> Vec<(Setting, Line)> {
    let mut wanted = Vec::new();
    for held in &history.held {
        let present = place.read(&held.setting).ok().flatten();
        let planned = plan.changes.iter().any(|change| change.setting == held.setting);
        if !planned && present.is_some() && present.as_ref() == held.put.last() {
            wanted.extend(present.map(|value| (held.setting.clone(), Line { value, rule: held.rule.clone() })));
        }
    }
    let line = |change: &Change| Line { value: change.to.clone(), rule: change.rule.clone() };
    wanted.extend(plan.changes.iter().map(|change| (change.setting.clone(), line(change))));
    wanted
}

/// What a file of ours said before.
fn earlier(file: &Path) -> Result<BTreeMap<String, Line>, Failure> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(unwritten(file, &error)),
    };
    if text.lines().next() != Some(HEAD) {
        let why = "this file was not written by `ropewalk tune persist`; name another one with --file";
        return Err(Failure::Environment(format!("{}: {why}", file.display())));
    }
    let (mut lines, mut rule) = (BTreeMap::new(), "");
    for line in text.lines().skip(1) {
        if let Some(comment) = line.strip_prefix('#') {
            rule = comment.trim();
        } else if let Some((name, value)) = line.split_once('=') {
            let line = Line { value: value.trim().to_owned(), rule: std::mem::take(&mut rule).to_owned() };
            lines.insert(name.trim().to_owned(), line);
        }
    }
    Ok(lines)
}

fn write(file: &Path, lines: &BTreeMap<String, Line>) -> std::io::Result<()> {
    let line = |(name, Line { value, rule }): (&String, &Line)| {
        let rule = if rule.is_empty() { String::new() } else { format!("# {rule}\n") };
        format!("{rule}{name} = {value}\n")
    };
    let lines: String = lines.iter().map(line).collect();
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
