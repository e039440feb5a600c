//! The laboratory: figures of this machine, simulated systems, fault campaigns. `ropewalk bench` and `ropewalk simulate` start it.

#[macro_use(say, tell)]
extern crate ropewalk_console;

mod arguments;
mod bench;
mod limits;
#[cfg(test)]
mod schemas;
mod simulate;
mod sizing;

use arguments::{Arguments, Command};
use clap::Parser;
use ropewalk_console::exit::{self, Failure};
use ropewalk_console::output;
use std::process::ExitCode;

fn main() -> ExitCode {
    ropewalk_memory::share_heaps();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are results and go to stdout; everything else is an error of usage.
            let usage = error.use_stderr();
            let _ = error.print();
            return ExitCode::from(if usage { exit::USAGE } else { exit::GOOD });
        }
    };
    let status = run(&arguments.command).unwrap_or_else(|failure| {
        tell!("error: {failure}");
        failure.status()
    });
    ExitCode::from(output::finish(status))
}

fn run(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Bench(options) => bench::bench(options),
        Command::Limits(options) => limits::limits(options),
        Command::Simulate(options) => {
            // A campaign shows how far it is, and must not wait for its terminal.
            output::start().map_err(|error| Failure::Environment(format!("standard output: {error}")))?;
            simulate::simulate(options)
        }
    }
}
