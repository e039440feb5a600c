//! What can be wrong with a builder unit's settings.

use ropewalk_terms::SourceId;

/// Settings of a builder unit that make no sense.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuilderConfigError {
    /// Nothing could be in work.
    #[error("no event may be in work; set slots to at least 1")]
    NoSlots,
    /// Nothing could be built.
    #[error("there is no source that is not masked")]
    NoSources,
    /// Fragments could not be told apart.
    #[error("source {0} is configured twice")]
    SourceTwice(SourceId),
    /// Nobody receives the source.
    #[error("source {id} belongs to ru{readout}, which is not configured")]
    UnknownReadout {
        /// The source.
        id: SourceId,
        /// The readout unit that it names.
        readout: u16,
    },
    /// The synchrony machine is fed by place.
    #[error("the sources that are watched for synchrony are not the builder unit's, in the same order")]
    SynchronySources,
    /// The synchrony machine refuses its settings.
    #[error("synchrony: {0}")]
    Synchrony(#[from] super::synchrony::ConfigError),
}
