//! The configuration of a run, kept beside its account.

use crate::configuration::{Configuration, Written, digest};
use crate::whole_file;
use ropewalk_terms::SourceId;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The file with the configuration of a run, in its directory: `Written::text`.
pub const CONFIGURATION: &str = "configuration.toml";

/// What an account says of the run's configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct ConfigurationSummary {
    /// The SHA-256 of `configuration.toml`, in hexadecimal digits.
    pub sha256: String,
    /// The file that it was read from; null where there was none.
    pub file: Option<String>,
    /// The version of the program, which has the values of keys that are not there.
    pub program: &'static str,
}

/// The configuration of a run that may begin.
#[derive(Debug)]
pub(super) struct Configured {
    written: Written,
    pub(super) summary: ConfigurationSummary,
    /// The SHA-256 of the settings of each front end under run control that has some.
    pub(super) settings: BTreeMap<SourceId, String>,
}

fn summary(written: &Written, file: Option<&Path>) -> ConfigurationSummary {
    let file = file.map(|file| file.display().to_string());
    ConfigurationSummary { sha256: written.digest(), file, program: env!("CARGO_PKG_VERSION") }
}

impl Configured {
    pub(super) fn new(configuration: &Configuration) -> Self {
        let summary = summary(&configuration.written, configuration.file.as_deref());
        let settings = configuration.source.iter().filter(|source| source.is_under_run_control());
        let settings = settings.filter_map(|source| Some((SourceId(source.id), digest(&source.settings.as_ref()?.0))));
        Self { written: configuration.written.clone(), summary, settings: settings.collect() }
    }

    /// Keeps it in the directory of the run that begins. What is to be said where an event manager that takes over has another one than the
    /// run was begun with.
    ///
    /// # Errors
    /// Where the directory cannot be written.
    pub(super) fn keep(&self, directory: &Path) -> io::Result<Option<String>> {
        // A node that is a process of its own has no directory.
        if directory.as_os_str().is_empty() {
            return Ok(None);
        }
        let file = directory.join(CONFIGURATION);
        match Written::read(&file) {
            Ok(first) if first == self.written => Ok(None),
            Ok(_) => Ok(Some(format!("{}: the run was begun with another configuration", file.display()))),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                whole_file::write(&file, self.written.text().as_bytes()).map(|()| None)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::parse;

    #[test]
    fn the_first_configuration_stays_and_another_one_is_told() {
        let directory = std::env::temp_dir().join(format!("ropewalk-configured-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        let text = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nreadout = \"ru0\"\n";
        let mut configuration = parse("test.toml", text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let first = Configured::new(&configuration);
        let keep = |configured: &Configured| configured.keep(&directory).expect("it can be written");
        assert_eq!((keep(&first), first.summary.sha256.len()), (None, 64));
        let kept = || std::fs::read_to_string(directory.join(CONFIGURATION)).expect("it is there");
        let text = kept();
        assert_eq!(keep(&first), None);
        configuration.written.set("run", "events", 7);
        let other = Configured::new(&configuration);
        let warning = keep(&other);
        assert!(other.summary.sha256 != first.summary.sha256 && kept() == text);
        assert!(warning.is_some_and(|warning| warning.ends_with("begun with another configuration")));
        std::fs::remove_dir_all(&directory).expect("the test's own");
        assert_eq!(first.keep(&directory).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert_eq!(first.keep(Path::new("")).expect("nothing is to be done"), None);
    }
}
