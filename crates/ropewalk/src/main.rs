//! The program: arguments in, text out. What it does is done by `ropewalk-run` and the crates below it.

#[macro_use(say, tell)]
extern crate ropewalk_console;

mod arguments;
mod counters;
mod ctl;
mod demo;
mod doctor;
mod felix;
mod files;
mod filters;
mod flow_account;
mod foreign;
mod help;
mod histograms;
mod interrupts;
mod laboratory;
mod masks;
mod nodes;
mod push;
mod render;
mod running;
mod runs;
mod samples;
#[cfg(test)]
mod schemas;
mod source_test;
mod top;
mod topology;
mod tune;

use arguments::{Arguments, Command, ConfigCommand, NodeRole, SourceCommand};
use clap::FromArgMatches;
use exit::Failure;
use ropewalk_console::{exit, output};
use std::process::ExitCode;

fn main() -> ExitCode {
    ropewalk_memory::share_heaps();
    let parsed = help::command().try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are results and go to stdout; everything else is an error of usage.
            let usage = error.use_stderr();
            let _ = error.print();
            if let Some(meant) = help::meant(&error) {
                tell!("did you mean `ropewalk {meant}`?");
            }
            return ExitCode::from(if usage { exit::USAGE } else { exit::GOOD });
        }
    };
    let started = if prints_apart(&arguments.command) { output::start() } else { Ok(()) };
    let started = started.map_err(|error| Failure::Environment(format!("standard output: {error}")));
    let status = started.and_then(|()| dispatch(arguments.command)).unwrap_or_else(|failure| {
        tell!("error: {failure}");
        failure.status()
    });
    ExitCode::from(output::finish(status))
}

/// Whether a terminal must not block this command. A plug-in's process is excluded: it may not start threads.
const fn prints_apart(command: &Command) -> bool {
    use felix::FelixCommand;
    matches!(
        command,
        Command::Demo(_)
            | Command::Run(_)
            | Command::Node(_)
            | Command::Source { command: SourceCommand::Mep(_) }
            | Command::FarmNode(_)
            | Command::FilterFiles(_)
            | Command::FilterUnit(_)
            | Command::FilterNode(_)
            | Command::Felix { command: FelixCommand::Serve(_) | FelixCommand::Subscribe(_) | FelixCommand::Card(_) }
    )
}

fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Demo(options) => demo::demo(&options),
        Command::Init(options) => demo::init(&options),
        Command::Run(options) => running::run(&options),
        Command::Ctl(options) => ctl::ctl(&options),
        Command::Runs(options) => runs::runs(&options),
        Command::Top(options) => top::top(&options),
        Command::Counters(options) => counters::counters(&options),
        Command::Node(options) if options.role == NodeRole::Gateway => push::gateway(&options),
        Command::Node(options) => nodes::node(&options),
        Command::Source { command: SourceCommand::Mep(options) } => push::sources(&options),
        Command::Source { command: SourceCommand::Test(options) } => source_test::test(&options),
        Command::FarmNode(options) => push::farm_node(&options),
        Command::FilterFiles(options) => filters::filter_files(&options),
        Command::FilterUnit(options) => filters::filter_unit(&options),
        Command::FilterNode(options) => filters::filter_node(&options),
        Command::Histograms(options) => histograms::histograms(&options),
        Command::Decisions(options) => filters::decisions(&options),
        Command::SplitterProcess => {
            let served = ropewalk_plugin::process::serve();
            served.map(|()| exit::GOOD).map_err(|error| Failure::Usage(format!("splitter-process: {error}")))
        }
        Command::FilterProcess => {
            let served = ropewalk_plugin::filter::process::serve();
            served.map(|()| exit::GOOD).map_err(|error| Failure::Usage(format!("filter-process: {error}")))
        }
        Command::FilterProgram(options) => {
            let arguments::FilterProgramOptions { memory, starter, program } = &options;
            let (name, rest) = program.split_first().unwrap_or((const { &std::ffi::OsString::new() }, &[]));
            let error = ropewalk_plugin::filter::process::become_program(*memory, *starter, name, rest);
            Err(Failure::Usage(format!("filter-program: {error}")))
        }
        Command::Verify(options) => files::verify(&options),
        Command::Inspect(options) => files::inspect(&options),
        Command::Replay(options) => files::replay(&options),
        Command::Convert(options) => files::convert(&options),
        Command::Sniff(options) => foreign::sniff(&options),
        Command::Recover(options) => files::recover(&options),
        Command::Felix { command } => felix::felix(&command),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Bench(options) => laboratory::start("bench", &options),
        Command::Simulate(options) => laboratory::start("simulate", &options),
        Command::Topology(options) => topology::topology(&options),
        Command::Tune { command } => tune::tune(&command),
        Command::Config { command: ConfigCommand::Check { file } } => topology::config_check(&file),
        Command::Config { command: ConfigCommand::Schema } => {
            say!("{}", ropewalk_config::schema());
            Ok(exit::GOOD)
        }
        Command::Completions { shell } => Ok(help::completions(shell)),
        Command::Man { directory } => help::man(&directory),
        Command::Commands => help::commands(),
    }
}
