//! The laboratory: figures, simulated systems, fault campaigns. `ropewalk bench` and `ropewalk simulate` start it.

#[macro_use(say, tell)]
extern crate ropewalk_console;

mod arguments;
mod compare;
mod limits;
mod simulate;

use arguments::{Arguments, BenchCommand, BenchOptions, Command};
use clap::Parser;
use ropewalk_bench::{BenchError, Options, Scale};
use ropewalk_console::exit::{self, Failure};
use ropewalk_console::output;
use std::process::ExitCode;

fn main() -> ExitCode {
    ropewalk_memory::share_heaps();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are results and go to stdout; everything else is a usage error.
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
        Command::Bench(options) => bench(options),
        Command::Limits(options) => limits::limits(options),
        Command::Simulate(options) => {
            // A campaign shows its progress, and must not wait for its terminal.
            output::start().map_err(|error| Failure::Environment(format!("standard output: {error}")))?;
            simulate::simulate(options)
        }
    }
}

/// The exit status if a case failed.
const FAILED: u8 = 1;

/// The product's program, in the same directory as this one.
const PRODUCT: &str = "ropewalk";

fn bench(options: &BenchOptions) -> Result<u8, Failure> {
    if let Some(BenchCommand::Compare(options)) = &options.command {
        return compare::compare(options);
    }
    let name = options.name.as_deref().unwrap_or_default();
    let measured = &options.measured;
    let own = std::env::current_exe()
        .map_err(|error| Failure::Environment(format!("the program's own path is not known: {error}")))?;
    let asked = Options {
        scale: match (options.tiny, measured.quick) {
            (true, _) => Scale::Tiny,
            (_, true) => Scale::Quick,
            _ => Scale::Full,
        },
        json: measured.json,
        case: measured.case.clone(),
        report: options.report.clone(),
        peers: options.peers,
        output: measured.output.clone(),
        program: own.with_file_name(PRODUCT),
    };
    match ropewalk_bench::run(name, asked, &mut std::io::stdout()) {
        Ok(0) => Ok(exit::GOOD),
        Ok(failed) => {
            tell!("exit status {FAILED}: {failed} {} failed", if failed == 1 { "case" } else { "cases" });
            Ok(FAILED)
        }
        Err(error @ (BenchError::Unknown { .. } | BenchError::NoCase { .. })) => Err(Failure::Usage(error.to_string())),
        Err(error) => Err(Failure::Environment(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use crate::simulate::SizingReport;
    use ropewalk_run::schemas::schema_of;
    use ropewalk_sim::campaign::Summary;
    use schemars::Schema;

    /// To update the files: `ROPEWALK_BLESS=1 cargo test -p ropewalk-lab --bin ropewalk-lab schemas`.
    #[test]
    fn schemas_are_those_of_the_types_that_are_written() {
        let schemas = [("simulate.json", schema_of::<Summary<'_>>()), ("sizing.json", schema_of::<SizingReport<'_>>())];
        let json = |schema: &Schema| serde_json::to_string_pretty(schema).expect("it is JSON");
        let differing = ropewalk_tidy::differing_schemas(schemas.map(|(name, schema)| (name, json(&schema))));
        assert!(
            differing.is_empty(),
            "{differing:?} of docs/schema are not those of the types: ROPEWALK_BLESS=1 writes them"
        );
    }
}
