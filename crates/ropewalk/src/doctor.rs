//! What this machine can do with Ropewalk.

use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use crate::tune::LookOptions;
use clap::Args;
use ropewalk_doctor::{Diagnosis, DoctorError, Scale};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk doctor
  ropewalk doctor my-setup.toml    check the settings that a configuration needs
  ropewalk doctor --output /data   measure the disk for run files
  ropewalk doctor --look           check settings and features only
  ropewalk doctor --json > this-machine.json")]
pub(crate) struct DoctorOptions {
    /// Configuration whose needs are checked.
    pub(crate) config: Option<PathBuf>,
    /// Network interface to check, besides those of the configuration; repeatable.
    #[arg(long = "interface", value_name = "NAME")]
    pub(crate) interfaces: Vec<String>,
    /// Directory on the disk to measure; test files are removed.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
    /// Check only, without measurement.
    #[arg(long)]
    pub(crate) look: bool,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn doctor(options: &DoctorOptions) -> Result<u8, Failure> {
    if !options.output.is_dir() {
        let why = format!(
            "--output {}: there is no directory of this name; make it, or name the one that events will be written to",
            options.output.display()
        );
        return Err(Failure::Usage(why));
    }
    let failed = |error: DoctorError| Failure::Environment(error.to_string());
    let look = LookOptions {
        config: options.config.clone(),
        interfaces: options.interfaces.clone(),
        root: PathBuf::from("/"),
    };
    let mut wish = look.wish()?;
    wish.outputs.push(options.output.clone());
    crate::tune::resolve(&mut wish.outputs);
    let diagnosis = if options.look {
        Diagnosis::look(&wish)
    } else {
        tell!("measuring for about twenty seconds: nothing else should run meanwhile");
        Diagnosis::examine(&wish, &options.output, Scale::Full)
    };
    let diagnosis = diagnosis.map_err(failed)?;
    if options.json {
        print_json(&diagnosis)?;
    } else {
        write_results(diagnosis.to_string().as_bytes());
    }
    Ok(exit::GOOD)
}
