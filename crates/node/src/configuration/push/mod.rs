//! The configuration of a push system: sources send when they like, a gateway builds and forwards to a farm.
//!
//! A file with a `[[gateway]]` is one; the configuration of a pull system has readout and builder units instead.

mod address;
mod check;
mod model;
#[cfg(test)]
mod tests;

pub use address::{Addresses, ListenAddress};
pub(crate) use check::FARM_PROTOCOL;
pub use model::{
    Architecture, DefaultChoice, EmulateFarm, EmulateFlow, FarmSection, FlowSection, GatewaySection, Gathering,
    NodeOutage, PushConfiguration, PushRunSection, ReceiveChoice, SendChoice, SourcesSection, TellSection,
    ThrottleSection, TransportChoice, TriggerNaming, TriggerSection,
};

use super::filter::streams_of;
use super::parse::{Document, read_text};
use super::{ConfigurationError, histogram};
use ropewalk_flow::filter::Streams;
use ropewalk_flow::histogram::HistogramConfig;
use ropewalk_terms::SourceId;
use std::path::Path;
use toml::de::DeTable;

impl PushConfiguration {
    /// The histograms of its sources, in the words of gateways.
    pub fn histogram_configs(&self) -> Vec<HistogramConfig> {
        histogram::configs(&self.histogram, &self.source_ids())
    }

    /// The configured streams; without any, one stream for all events. Expects a checked configuration.
    pub fn streams(&self) -> Streams {
        streams_of(&self.stream, false)
    }

    /// The sources that are wanted, of all flows.
    fn source_ids(&self) -> Vec<SourceId> {
        self.flow.iter().flat_map(|flow| flow.sources.entries(false)).map(|(id, _)| SourceId(id)).collect()
    }
}

/// Whether this text describes a push system. What cannot be read is for [`parse`] or its twin to complain of.
pub fn is_push(text: &str) -> bool {
    DeTable::parse(text).is_ok_and(|table| table.get_ref().get("gateway").is_some())
}

/// Reads and checks the configuration of a push system.
///
/// # Errors
/// Where the file cannot be read or does not hold a usable configuration.
pub fn read(path: &Path) -> Result<PushConfiguration, ConfigurationError> {
    let (file, text) = read_text(path)?;
    let configuration = parse(&file, &text, &|name| std::env::var(name).ok())?;
    Ok(PushConfiguration { file: Some(path.to_owned()), ..configuration })
}

/// Reads and checks the configuration of a push system; `variable` looks up what `${NAME}` in a value stands for.
///
/// # Errors
/// Where the text does not hold a usable configuration.
pub fn parse(
    file: &str,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<PushConfiguration, ConfigurationError> {
    let document = Document { file, text, variable, schema: Some(|| schemars::schema_for!(PushConfiguration)) };
    let configuration: PushConfiguration = document.checked(&[], check::check)?;
    Ok(PushConfiguration { written: document.written()?, ..configuration })
}

/// The JSON schema of the configuration of a push system, as text.
pub fn schema() -> String {
    let schema = schemars::schema_for!(PushConfiguration);
    serde_json::to_string_pretty(&schema).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}
