//! The figures, measured here and now.

use crate::arguments::BenchOptions;
use ropewalk_bench::{BenchError, Options, Scale};
use ropewalk_console::exit::{self, Failure};

/// The product's program, in the same directory as this one.
const PRODUCT: &str = "ropewalk";

pub(crate) fn bench(options: &BenchOptions) -> Result<u8, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::Environment(format!("the program's own path is not known: {error}")))?;
    let asked = Options {
        scale: if options.quick { Scale::Quick } else { Scale::Full },
        json: options.json,
        case: options.case.clone(),
        report: options.report.clone(),
        peers: options.peers,
        output: options.output.clone(),
        program: own.with_file_name(PRODUCT),
    };
    match ropewalk_bench::run(&options.name, asked, &mut std::io::stdout()) {
        Ok(()) => Ok(exit::GOOD),
        Err(error @ (BenchError::Unknown { .. } | BenchError::NoCase { .. })) => Err(Failure::Usage(error.to_string())),
        Err(error) => Err(Failure::Environment(error.to_string())),
    }
}
