//! Commands of the laboratory, a separate program that most installations do not need: `ropewalk-lab` beside this one.

use crate::arguments::LaboratoryOptions;
use crate::exit::{self, Failure};
use crate::help;
use crate::output::write_results;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The name of its file.
const LABORATORY: &str = "ropewalk-lab";

/// Executes the laboratory with this process's arguments; returns if it cannot be started, or if help is requested and
/// it is missing.
pub(crate) fn start(name: &str, options: &LaboratoryOptions) -> Result<u8, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::Environment(format!("the program's own path is not known: {error}")))?;
    let laboratory = own.with_file_name(LABORATORY);
    // As they were given: the parser takes `--` out.
    let error = Command::new(&laboratory).args(std::env::args_os().skip(1)).exec();
    if error.kind() != ErrorKind::NotFound {
        return Err(Failure::Environment(format!("{}: {error}", laboratory.display())));
    }
    if options.arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        let mut command = help::command();
        // So that the usage names the whole command.
        command.build();
        if let Some(command) = command.find_subcommand_mut(name) {
            write_results(command.render_long_help().to_string().as_bytes());
        }
        return Ok(exit::GOOD);
    }
    Err(Failure::Environment(format!(
        "`ropewalk {name}` runs {}, which does not exist: build it with `cargo build --release -p ropewalk-lab`, or copy it there",
        laboratory.display()
    )))
}
