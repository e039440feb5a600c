//! A sizing file: a system that pulls, or one in which sources push.

use super::push::PushSystem;
use super::{Outcome, System, push, simulate};
use ropewalk_node::configuration::{ConfigurationError, read_text};
use ropewalk_node::quantity::Time;
use std::path::Path;
use toml::de::DeTable;

/// What stands in a sizing file: one with a `[[flow]]` describes a system in which sources push.
#[derive(Clone, Debug)]
pub enum SizingFile {
    /// Builder units pull.
    Pull(Box<System>),
    /// Sources push.
    Push(Box<PushSystem>),
}

impl SizingFile {
    /// Reads and checks a sizing file; the values in `instead` (a key such as `builder.events`, and a value as it would
    /// stand in the file) take the place of the file's.
    ///
    /// # Errors
    /// Where the file cannot be read, or what is in it or in `instead` is no system.
    pub fn read(path: &Path, instead: &[(String, String)]) -> Result<Self, ConfigurationError> {
        let (file, text) = read_text(path)?;
        Self::parse(&file, &text, instead)
    }

    /// As [`SizingFile::read`], from a text; errors give `file` as its name.
    ///
    /// # Errors
    /// As [`SizingFile::read`].
    pub fn parse(file: &str, text: &str, instead: &[(String, String)]) -> Result<Self, ConfigurationError> {
        // What cannot be read is for either reader to complain of.
        let pushes = DeTable::parse(text).is_ok_and(|table| table.get_ref().get("flow").is_some());
        if pushes {
            PushSystem::parse(file, text, instead).map(|system| Self::Push(Box::new(system)))
        } else {
            System::parse(file, text, instead).map(|system| Self::Pull(Box::new(system)))
        }
    }

    /// How long triggers come, and which first part of that is not counted.
    pub fn times(&self) -> (Time, Time) {
        match self {
            Self::Pull(system) => (system.duration, system.warm_up),
            Self::Push(system) => (system.duration, system.warm_up),
        }
    }

    /// Simulates it. Equal systems give equal outcomes.
    pub fn simulate(&self) -> Outcome {
        match self {
            Self::Pull(system) => simulate(system),
            Self::Push(system) => push::simulate(system),
        }
    }
}
