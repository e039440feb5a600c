//! Changing settings, and undoing the changes.

use super::{ChangeOptions, JournalOptions, ToldApplied, ToldUndone, place};
use crate::exit::{self, Failure};
use crate::output::print_json;
use crate::render::{counted, with_default};
use clap::Args;
use ropewalk_tune::change::{self, Action, Applied, Fate, Foreign, History, Trouble, Undone};
use ropewalk_tune::{Change, Place, Plan, Setting, Settings};
use signal_hook::consts::SIGKILL;
use signal_hook::low_level;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

#[derive(Debug, Args)]
pub(crate) struct ApplyOptions {
    #[command(flatten)]
    change: ChangeOptions,
    #[command(flatten)]
    journal: JournalOptions,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
    /// Be killed before the step of this number.
    #[arg(long, hide = true, value_name = "STEP")]
    kill_before: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct UndoOptions {
    #[command(flatten)]
    journal: JournalOptions,
    /// Restore settings that were changed by others since, too.
    #[arg(long)]
    force: bool,
    /// Keep settings that were changed by others or are missing, and close the journal.
    #[arg(long, conflicts_with = "force")]
    keep: bool,
    /// Directory with the proc, sys and recorded.json of another machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
    /// Be killed before the step of this number.
    #[arg(long, hide = true, value_name = "STEP")]
    kill_before: Option<usize>,
}

/// Kills this process before a step.
fn stopper(kill_before: Option<usize>) -> impl FnMut(usize, &Action) {
    move |step, _| {
        if kill_before == Some(step) {
            let _ = low_level::raise(SIGKILL);
        }
    }
}

pub(super) fn apply(options: &ApplyOptions) -> Result<u8, Failure> {
    let root = &options.change.look.root;
    let (mut place, file) = (place(root)?, options.journal.file(root));
    let plan = options.change.plan(&mut place)?;
    let identity = place.identity();
    // Without changes and a journal nothing is written, not even a directory for the journal.
    let applied = if plan.changes.is_empty() && change::history(&file, &identity)?.is_none() {
        Applied { changed: Vec::new(), already: 0, failure: None }
    } else {
        place.permits(&plan)?;
        let watch = &mut stopper(options.kill_before);
        change::apply(&plan, &mut place, &identity, &file, SystemTime::now(), watch)?
    };
    if options.json {
        print_json(&ToldApplied::new(&applied, &file))?;
    } else {
        say_applied(&applied, &options.journal.undo(root));
    }
    failed(&applied, &options.journal.undo(root)).map_or(Ok(exit::GOOD), Err)
}

fn say_applied(applied: &Applied, undo: &str) {
    for Change { setting, from, to, .. } in &applied.changed {
        say!("{setting}: {from} -> {to}");
    }
    match applied.changed.len() {
        _ if applied.failure.is_some() => {}
        0 => say!("nothing to change"),
        count => {
            say!("{} changed; to undo: `{undo}`", counted(count, "setting"));
        }
    }
}

/// Why it is not applied.
fn failed(applied: &Applied, undo: &str) -> Option<Failure> {
    let failure = applied.failure.as_ref()?;
    let setting = failure.setting.as_ref().filter(|setting| !names(&failure.why, setting));
    let setting = setting.map(|setting| format!("{setting}: ")).unwrap_or_default();
    say_troubles(&failure.not_brought_back);
    let state = if failure.not_brought_back.is_empty() {
        "nothing is changed".to_owned()
    } else {
        let count = counted(failure.not_brought_back.len(), "setting");
        format!("{count} could not be restored; `{undo}` tries again")
    };
    Some(Failure::Environment(format!("{setting}{}; {state}", failure.why)))
}

/// Whether a text begins with the file that a setting is.
fn names(text: &str, setting: &Setting) -> bool {
    matches!(setting, Setting::File { path, .. } if text.starts_with(&format!("/{path}: ")))
}

fn say_troubles(troubles: &[Trouble]) {
    for Trouble { setting, value, why } in troubles {
        tell!("warning: {setting} could not be restored to {value}: {why}");
    }
}

pub(super) fn undo(options: &UndoOptions) -> Result<u8, Failure> {
    let (mut place, file) = (place(&options.root)?, options.journal.file(&options.root));
    let foreign = match (options.force, options.keep) {
        (true, _) => Foreign::Overwrite,
        (_, true) => Foreign::Keep,
        _ => Foreign::Leave,
    };
    let identity = place.identity();
    let history = change::history(&file, &identity)?.unwrap_or_default();
    let watch = &mut stopper(options.kill_before);
    match change::undo(&mut place, &identity, &file, SystemTime::now(), foreign, watch)? {
        Some(undone) => {
            let status = if options.json {
                print_json(&ToldUndone::new(&undone, &history, &file))?;
                status(&undone)?
            } else {
                say_undone(&undone, &history, &options.journal.undo(&options.root))?
            };
            let persisted = options.root.join(SYSCTL_FILE);
            if persisted.exists() {
                tell!("note: {} is still read at boot; delete it to undo this, too", persisted.display());
            }
            Ok(status)
        }
        None if options.json => {
            let nothing = Undone { fates: Vec::new(), troubles: Vec::new(), fault: None, is_put_away: true };
            print_json(&ToldUndone::new(&nothing, &history, &file))?;
            Ok(exit::GOOD)
        }
        None => {
            say!("nothing to undo: {} does not exist", file.display());
            Ok(exit::GOOD)
        }
    }
}

fn say_undone(undone: &Undone, history: &History, command: &str) -> Result<u8, Failure> {
    let in_trouble = |setting: &Setting| undone.troubles.iter().any(|trouble| trouble.setting == *setting);
    for (setting, fate) in undone.fates.iter().filter(|(setting, _)| !in_trouble(setting)) {
        let old = history.old(setting).unwrap_or_default();
        match fate {
            Fate::BroughtBack { from } => say!("{setting}: {from} -> {old}"),
            Fate::AlreadyBack => {}
            Fate::Gone if undone.is_put_away => tell!("note: {setting} does not exist any more"),
            Fate::Gone => {
                tell!("warning: {setting} does not exist now; if it comes back, `{command}` restores it");
            }
            Fate::Ended => tell!("note: {setting}: the thread has ended, nothing to restore"),
            Fate::Unreadable { why } => tell!("warning: {setting} cannot be read: {why}"),
            Fate::Foreign { present } => {
                tell!(
                    "warning: {setting} is left at {present}: another program has changed it since; it was {old} before"
                );
            }
        }
    }
    say_troubles(&undone.troubles);
    if undone.fault.is_none() && undone.is_put_away {
        say!("all changes are undone");
        return Ok(exit::GOOD);
    }
    let has = |is_it: fn(&Fate) -> bool| undone.fault.is_none() && undone.fates.iter().any(|(_, fate)| is_it(fate));
    if has(|fate| matches!(fate, Fate::Foreign { .. })) {
        tell!("note: `{command} --force` restores the old values of these, too; `--keep` keeps the present ones");
    }
    if has(|fate| *fate == Fate::Gone) {
        tell!(
            "note: the journal keeps missing settings until the machine is booted again, or until `{command} --keep`"
        );
    }
    status(undone)
}

/// Whether something is left.
fn status(undone: &Undone) -> Result<u8, Failure> {
    match &undone.fault {
        Some(fault) => Err(Failure::Environment(fault.clone())),
        None if undone.is_put_away => Ok(exit::GOOD),
        None => Ok(exit::UNBALANCED),
    }
}

/// The path of the file below the machine's root.
pub(super) const SYSCTL_FILE: &str = "etc/sysctl.d/90-ropewalk.conf";
/// The first line, by which a file of ours is known.
const HEAD: &str = "# Written by `ropewalk tune persist`: kernel parameters for data taking.";

#[derive(Debug, Args)]
pub(crate) struct PersistOptions {
    #[command(flatten)]
    change: ChangeOptions,
    #[command(flatten)]
    journal: JournalOptions,
    #[arg(long, value_name = "FILE", help = with_default("File to write", format!("/{SYSCTL_FILE}")))]
    file: Option<PathBuf>,
}

/// What a line of the file says of a kernel parameter.
struct Line {
    value: String,
    /// The rule that asked for it; empty if the file does not say.
    rule: String,
}

pub(super) fn persist(options: &PersistOptions) -> Result<u8, Failure> {
    let root = &options.change.look.root;
    let mut place = place(root)?;
    let whole = options.change.whole(&mut place)?;
    let identity = place.identity();
    let mut history = change::history(&options.journal.file(root), &identity)?.unwrap_or_default();
    history.held.retain(|held| !held.is_of_another(&identity.boot));
    let file = options.file.clone().unwrap_or_else(|| root.join(SYSCTL_FILE));
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

/// Whether a line of the earlier file is kept: it is advised, or the host still has its value. A plan leaves out
/// settings that already have the advised value, as they do once the machine has started with the file. A setting that
/// is neither advised nor at that value was undone or changed by someone else.
fn is_kept(name: &str, line: &Line, whole: &Plan, options: &PersistOptions, place: &mut Place) -> bool {
    let setting = Setting::sysctl(name);
    let is_so = |place: &mut Place| place.read(&setting).ok().flatten() == Some(setting.normal(&line.value));
    let is_advised = whole.changes.iter().any(|change| change.setting == setting);
    (is_advised || is_so(place)) && !options.change.is_excepted(&setting, &line.rule)
}

/// What the plan asks for, and what was applied and still holds.
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
