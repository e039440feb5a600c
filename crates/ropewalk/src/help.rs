//! The lists of commands that the help shows, shell completions and man pages.

use crate::arguments::Arguments;
use crate::ctl;
use crate::exit::{self, Failure};
use crate::output::write_results;
use clap::builder::styling::Style;
use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory};
use std::fmt::Write as _;
use std::path::Path;

/// A heading with its commands.
type Group<'a> = (&'a str, &'a [&'a str]);

/// The commands that `ropewalk --help` lists.
const COMMON: [Group<'_>; 6] = [
    ("Take data", &["demo", "run", "node"]),
    ("Control a run", &["ctl", "top"]),
    ("Look", &["runs", "counters"]),
    ("Files", &["verify", "inspect", "convert", "replay", "recover"]),
    ("Set up", &["init", "config", "sniff", "source", "doctor", "tune"]),
    ("Laboratory (program ropewalk-lab)", &["bench", "simulate"]),
];

/// The commands that `ropewalk commands` lists besides.
const RARE: [Group<'_>; 5] = [
    ("FELIX", &["felix"]),
    ("Filters on files and on other machines", &["filter-files", "filter-unit", "filter-node", "histograms"]),
    ("Gateways", &["farm-node", "decisions"]),
    ("Installation", &["topology", "completions", "man", "commands"]),
    ("Started by a run", &["splitter-process", "filter-process", "filter-program"]),
];

/// The command line with its help.
pub(crate) fn command() -> Command {
    let end = "`ropewalk COMMAND --help` describes a command.\n\
               `ropewalk commands` lists all commands, `ropewalk demo` is a first run.";
    let command = grouped(Arguments::command(), &COMMON).after_help(end);
    command.mut_subcommand("ctl", |ctl| grouped(ctl, &ctl::GROUPS))
}

/// The probable command for an unknown one: `start` is `ctl start`, and `config FILE` is `config check FILE`.
pub(crate) fn meant(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    if ctl::GROUPS.iter().any(|(_, names)| names.contains(&given.as_str())) {
        return Some(format!("ctl {given}"));
    }
    let is_file = std::path::Path::new(given).extension().is_some_and(|extension| extension == "toml");
    is_file.then(|| format!("config check {given}"))
}

/// The command with a help that lists its subcommands in groups.
fn grouped(command: Command, groups: &[Group<'_>]) -> Command {
    let heading: Style = *command.get_styles().get_header();
    let name: Style = *command.get_styles().get_literal();
    let names = || groups.iter().flat_map(|(_, names)| *names);
    let width = names().map(|name| name.len()).max().unwrap_or(0);
    let mut list = String::new();
    for (title, names) in groups {
        let _ = write!(list, "\n{heading}{title}:{heading:#}\n");
        for one in *names {
            let about = command.find_subcommand(one).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(list, "  {name}{one:width$}{name:#}  {about}");
        }
    }
    let options = format!("\n{heading}Options:{heading:#}\n{{options}}");
    command.help_template(format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{list}{options}{{after-help}}"))
}

/// Prints the list of all commands.
pub(crate) fn commands() -> Result<u8, Failure> {
    let groups: Vec<Group<'_>> = COMMON.into_iter().chain(RARE).collect();
    let printed = grouped(Arguments::command(), &groups).print_help();
    printed.map(|()| exit::GOOD).map_err(|error| Failure::Environment(format!("standard output: {error}")))
}

/// Prints a script with which a shell completes commands and options.
pub(crate) fn completions(shell: clap_complete::Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "ropewalk", &mut script);
    write_results(&script);
    exit::GOOD
}

/// Writes a man page for each command.
pub(crate) fn man(directory: &Path) -> Result<u8, Failure> {
    let written = std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command(), directory));
    written.map_err(|error| Failure::Environment(format!("{}: {error}", directory.display())))?;
    say!("man pages are in {}; try `man {}`", directory.display(), directory.join("ropewalk.1").display());
    Ok(exit::GOOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_is_answered_with_the_likely_one() {
        let likely = |line: &[&str]| meant(&command().try_get_matches_from(line).expect_err("no such command"));
        assert_eq!(likely(&["ropewalk", "start"]).as_deref(), Some("ctl start"));
        assert_eq!(likely(&["ropewalk", "config", "base.toml"]).as_deref(), Some("config check base.toml"));
        assert_eq!(likely(&["ropewalk", "begin"]), None);
    }

    /// Calls `look` with each command and its full name.
    fn visit(command: &Command, name: &str, look: &mut impl FnMut(&str, &Command)) {
        look(name, command);
        for one in command.get_subcommands() {
            visit(one, &format!("{name} {}", one.get_name()), look);
        }
    }

    #[test]
    fn each_command_is_in_one_list() {
        let lists = |command: &Command, groups: &[Group<'_>]| {
            let mut names: Vec<&str> = groups.iter().flat_map(|(_, names)| *names).copied().collect();
            let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            names.sort_unstable();
            all.sort_unstable();
            assert_eq!(names, all);
        };
        let command = Arguments::command();
        let groups: Vec<Group<'_>> = COMMON.into_iter().chain(RARE).collect();
        lists(&command, &groups);
        lists(command.find_subcommand("ctl").expect("it is a command"), &ctl::GROUPS);
        assert!(COMMON.iter().map(|(_, names)| names.len()).sum::<usize>() <= 20);
    }

    #[test]
    fn the_help_has_a_line_of_at_most_80_columns_for_each_command() {
        let help = command().render_help().to_string();
        let too_long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(too_long.is_empty(), "{too_long:#?}");
        assert!(help.contains("\nTake data:\n  demo      Build events from emulated front ends"), "{help}");
    }

    /// What a text of the help must not contain: words that readers have to guess at.
    const UNCLEAR: [&str; 8] =
        ["whoever", "nobody", "somebody", "are told", "is told", "as often as", "so many", "is there, "];

    #[test]
    fn each_command_and_option_has_a_short_and_plain_help() {
        let mut faults = Vec::new();
        let mut command = command();
        command.build();
        visit(&command, "ropewalk", &mut |name, command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            if about.is_empty() || about.chars().count() > 90 || about.ends_with('.') {
                faults.push(format!("{name}: `{about}`"));
            }
            let end = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            faults.extend(end.lines().filter(|line| line.chars().count() > 80).map(|line| format!("{name}: `{line}`")));
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let is_plain = !UNCLEAR.iter().any(|words| help.to_lowercase().contains(words));
                if help.is_empty() || !is_plain || help.chars().count() > 160 {
                    faults.push(format!("{name} {}: `{help}`", argument.get_id()));
                }
            }
        });
        assert!(faults.is_empty(), "{faults:#?}");
    }

    /// The pages of the manual: name, title, and the commands, whose subcommands follow them.
    const PAGES: [(&str, &str, &[&str]); 6] = [
        ("run", "Commands that take data", &["demo", "run", "node", "source", "farm-node", "filter-node"]),
        ("control", "Commands that control runs", &["ctl"]),
        (
            "look",
            "Commands that watch runs and look at past ones",
            &["top", "runs", "counters", "histograms", "decisions"],
        ),
        (
            "files",
            "Commands for files",
            &["verify", "inspect", "convert", "replay", "recover", "filter-files", "filter-unit"],
        ),
        ("felix", "Commands for FELIX blocks", &["felix"]),
        (
            "set-up",
            "Commands that prepare a run",
            &[
                "init",
                "config",
                "sniff",
                "doctor",
                "tune",
                "topology",
                "bench",
                "simulate",
                "completions",
                "man",
                "commands",
            ],
        ),
    ];

    /// Appends the section of a command; `above` are the arguments that its parent describes.
    fn describe(page: &mut String, command: &Command, above: &[&str]) {
        let name = command.get_bin_name().unwrap_or_default();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let usage = command.clone().render_usage().to_string();
        let usage: Vec<&str> = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect();
        let _ = write!(page, "\n## `{name}`\n\n{about}.\n\nUsage: `{}`\n\n", usage.join("` or `"));
        let is_shown = |id: &str| !above.contains(&id) && !["help", "version"].contains(&id);
        let own = command.get_arguments().filter(|one| !one.is_hide_set() && is_shown(one.get_id().as_str()));
        let own: Vec<&clap::Arg> = own.collect();
        for argument in &own {
            let _ = writeln!(page, "- `{}`: {}.", argument, sentence(argument));
        }
        if let Some(end) = command.get_after_help() {
            let _ = write!(page, "\n```text\n{}\n```\n", end.to_string().trim());
        }
        let above: Vec<&str> = own.iter().map(|one| one.get_id().as_str()).chain(above.iter().copied()).collect();
        for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
            describe(page, one, &above);
        }
    }

    /// The help of an argument, with its choices and its default.
    fn sentence(argument: &clap::Arg) -> String {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let quoted = |words: Vec<String>| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let choices = argument.get_possible_values();
        let choices = choices.iter().filter(|one| !one.is_hide_set()).map(|one| one.get_name().to_owned()).collect();
        let default = argument.get_default_values().iter().map(|one| one.to_string_lossy().into_owned()).collect();
        let (choices, default) = (quoted(choices), quoted(default));
        let is_needless = |text: &str| text.is_empty() || text == "`true`, `false`" || text == "`false`";
        let part = |word: &str, text: &str| if is_needless(text) { String::new() } else { format!("; {word} {text}") };
        let variable = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        let (choices, variable) = (part("one of", &choices), part("environment variable", &variable));
        format!("{help}{choices}{variable}{}", part("default", &default))
    }

    /// To update the pages: `ROPEWALK_BLESS=1 cargo test -p ropewalk --bin ropewalk pages`.
    #[test]
    fn the_pages_list_every_command_with_its_options() {
        let mut all = command();
        all.build();
        let mut names: Vec<&str> = PAGES.iter().flat_map(|(_, _, names)| *names).copied().collect();
        names.extend(RARE[4].1);
        let missing = |one: &&Command| !names.contains(&one.get_name()) && one.get_name() != "help";
        assert_eq!(all.get_subcommands().filter(missing).map(Command::get_name).collect::<Vec<_>>(), [""; 0]);
        for (name, title, commands) in PAGES {
            let mut page = format!("# {title}\n\nThis page is generated from the program.\n");
            for one in commands {
                describe(&mut page, all.find_subcommand(one).expect("it is a command"), &[]);
            }
            while page.contains("\n\n\n") {
                page = page.replace("\n\n\n", "\n\n");
            }
            let path = format!("docs/commands-{name}.md");
            assert!(ropewalk_tidy::is_current(&path, &page), "{path} differs: ROPEWALK_BLESS=1 writes it");
        }
    }
}
