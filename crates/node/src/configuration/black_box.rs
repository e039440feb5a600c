//! The key `black_box` of a source.

use super::parse::Faults;
use super::source::SourceSection;
use crate::quantity::{Bytes, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// What is kept of the data of a source, to be saved when something is wrong with it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BlackBoxSection {
    /// Nothing older than this is kept.
    pub last: Time,
    /// At most this much is kept, 4 KiB to 1 GiB.
    pub max: Bytes,
}

impl Default for BlackBoxSection {
    fn default() -> Self {
        Self { last: Time(Duration::from_secs(2)), max: Bytes(16 << 20) }
    }
}

/// The first thing that is wrong with the black box of a source.
pub(super) fn check(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    let Some(black_box) = &source.black_box else { return };
    if source.felix.is_some() {
        let message =
            "what an e-link sends lies in the ring of its card; only a source with a way in of its own has a black box";
        faults.add(key("black_box"), message);
    }
    if !(4096..=1 << 30).contains(&black_box.max.0) {
        faults.add(key("black_box.max"), "between 4KiB and 1GiB are kept, and twice as much memory is taken");
    }
    if black_box.last.0.is_zero() {
        faults.add(key("black_box.last"), "how much time is kept at most, such as \"2s\"");
    }
}
