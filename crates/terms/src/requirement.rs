//! Whether events need a source.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether an event needs a source.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Requirement {
    /// Events wait for it, at most for `timeouts.readout`. An event without it is incomplete.
    #[default]
    Required,
    /// Events wait for it as long as for a required source. An event without it is complete. A run with
    /// `until_sources_end` does not wait for an optional source that never connected.
    Optional,
    /// It is read, and its fragments are dropped and counted.
    Masked,
}
