//! What filter units are to do: who decides, and which streams take what is accepted.

use super::filter::{EventFilter, Undecided};
use super::library::LibraryFilter;
use super::unit::FilterUnit;
use crate::configuration::{FileBasedSection, StreamSection, TriggerChoice};
use ropewalk_flow::filter::{BuiltinFilter, FilterConfigError, StreamConfig, Streams};
use ropewalk_plugin::filter::FilterConfig;
use ropewalk_terms::RunNumber;
use std::path::Path;

/// The stream of a run that has no other one.
pub(super) const SELECTED: &str = "selected";

/// Who decides in a filter unit.
#[derive(Clone, PartialEq, Debug)]
pub enum UnitFilter {
    /// Triggers that are built in: the first sets trigger 0, and so on.
    Triggers(Vec<TriggerChoice>),
    /// A library in a process of its own.
    Library {
        /// The library, and the text that it is told.
        filter: FilterConfig,
        /// Bytes of memory that its process may take.
        memory: u64,
    },
}

/// The task of the filter units of a run: all have the same one.
#[derive(Clone, PartialEq, Debug)]
pub struct UnitTask {
    /// Who decides.
    pub filter: UnitFilter,
    /// Who takes what is accepted; without any there is one that takes everything, called `selected`.
    pub streams: Vec<StreamSection>,
}

impl UnitTask {
    /// The library decides where there is one, whose process may take so many bytes of memory, otherwise triggers; without any of
    /// these every event is accepted.
    pub fn new(triggers: &[TriggerChoice], library: Option<(FilterConfig, u64)>, streams: &[StreamSection]) -> Self {
        let filter = match library {
            Some((filter, memory)) => UnitFilter::Library { filter, memory },
            None if triggers.is_empty() => UnitFilter::Triggers(vec![TriggerChoice::All]),
            None => UnitFilter::Triggers(triggers.to_vec()),
        };
        Self { filter, streams: streams.to_vec() }
    }

    /// As a configuration says it.
    pub(crate) fn of(section: &FileBasedSection, streams: &[StreamSection]) -> Self {
        let configuration = section.configuration.clone();
        let filter = section.library.clone().map(|library| FilterConfig { library, configuration });
        Self::new(&section.triggers, filter.map(|filter| (filter, section.memory.0)), streams)
    }

    /// The arguments of this program as a unit with this task, for the files of a run's directory.
    pub fn arguments(&self, directory: &Path) -> Vec<String> {
        let mut arguments = vec!["filter-unit".to_owned(), directory.display().to_string()];
        match &self.filter {
            UnitFilter::Triggers(triggers) => {
                arguments.extend(triggers.iter().map(|trigger| format!("--trigger={trigger}")));
            }
            UnitFilter::Library { filter: FilterConfig { library, configuration }, memory } => {
                arguments.extend(["--library".to_owned(), library.display().to_string()]);
                arguments.extend([format!("--configuration={configuration}"), format!("--memory={memory}")]);
            }
        }
        arguments.extend(self.streams.iter().map(|stream| format!("--stream={stream}")));
        arguments
    }

    /// The streams.
    ///
    /// # Errors
    /// Where they make no sense together.
    pub fn streams(&self) -> Result<Streams, FilterConfigError> {
        let mut streams: Vec<StreamConfig> = self.streams.iter().filter_map(StreamSection::stream).collect();
        if streams.is_empty() {
            let name = SELECTED.parse().expect("small letters alone");
            streams.push(StreamConfig { name, ..StreamConfig::everything() });
        }
        // No stream of errors: a file with events of which no decision can be had is set aside as it is.
        Streams::new(streams, false)
    }

    /// The unit, for events of a run.
    ///
    /// # Errors
    /// Where streams make no sense, or as [`LibraryFilter::new`].
    pub fn load(&self, run: RunNumber) -> Result<FilterUnit, Undecided> {
        for stream in &self.streams {
            stream.check().map_err(|(field, why)| Undecided(format!("stream {:?}, {field}: {why}", stream.name)))?;
        }
        let filter: Box<dyn EventFilter> = match &self.filter {
            UnitFilter::Triggers(triggers) => {
                Box::new(BuiltinFilter::new(triggers.iter().map(TriggerChoice::builtin).collect()))
            }
            UnitFilter::Library { filter, memory } => Box::new(LibraryFilter::new(filter.clone(), *memory, run)?),
        };
        Ok(FilterUnit::new(filter, self.streams().map_err(|error| Undecided(error.to_string()))?))
    }
}
