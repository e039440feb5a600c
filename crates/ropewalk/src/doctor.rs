//! What this machine can do with Ropewalk.

use crate::exit::{self, Failure};
use crate::files::{print_json, write_out};
use clap::Args;
use ropewalk_bench::Scale;
use ropewalk_bench::doctor::Diagnosis;
use ropewalk_tune::Wish;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk doctor
  ropewalk doctor --output /data          the disk that events will be written to
  ropewalk doctor --look                  settings and features alone, at once
  ropewalk doctor --json > this-machine.json")]
pub(crate) struct DoctorOptions {
    /// Where files may be written while the disk is measured; they are removed again.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
    /// Measure nothing.
    #[arg(long)]
    pub(crate) look: bool,
    /// Print everything as one JSON object.
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
    let failed = |error: ropewalk_bench::BenchError| Failure::Environment(error.to_string());
    let wish = Wish { outputs: vec![options.output.clone()], ..Wish::default() };
    let diagnosis = if options.look {
        Diagnosis::look(&wish)
    } else {
        eprintln!("measuring for about twenty seconds: nothing else should run meanwhile");
        Diagnosis::examine(&wish, &options.output, Scale::Full)
    };
    let diagnosis = diagnosis.map_err(failed)?;
    if options.json {
        print_json(&diagnosis)?;
    } else {
        write_out(diagnosis.to_string().as_bytes())?;
    }
    Ok(exit::GOOD)
}
