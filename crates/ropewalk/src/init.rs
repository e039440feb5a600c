//! A configuration to begin with, in a directory of its own.

use crate::arguments::{InitKind, InitOptions};
use crate::exit::{self, Failure};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};

impl InitKind {
    /// The file's name, and what stands in it.
    const fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Testbeam => ("testbeam.toml", include_str!("../beginnings/testbeam.toml")),
            Self::Pull => ("pull.toml", include_str!("../beginnings/pull.toml")),
            Self::Gateway => ("gateway.toml", include_str!("../beginnings/gateway.toml")),
            Self::Felix => ("felix.toml", include_str!("../beginnings/felix.toml")),
        }
    }
}

/// Writes the configuration into the directory, which is made where there is none. A file that is there stays as it is.
pub(crate) fn init(options: &InitOptions) -> Result<u8, Failure> {
    let (name, text) = options.kind.file();
    let (directory, file) = (&options.directory, options.directory.join(name));
    let failed = |error: std::io::Error| Failure::Environment(format!("{}: {error}", file.display()));
    std::fs::create_dir_all(directory).map_err(failed)?;
    match OpenOptions::new().write(true).create_new(true).open(&file) {
        Ok(mut new) => new.write_all(text.as_bytes()).map_err(failed)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let message = format!("{} is there already; move it away, or name another directory", file.display());
            return Err(Failure::Usage(message));
        }
        Err(error) => return Err(failed(error)),
    }
    // As it was called, so that the line can be copied.
    let program = std::env::args().next().unwrap_or_else(|| "ropewalk".to_owned());
    say!("wrote    {}", file.display());
    say!("try      cd {} && {program} run {name} --duration 10s", directory.display());
    say!("         what to do next stands at its head");
    Ok(exit::GOOD)
}
