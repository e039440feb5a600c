//! Quantities as people write them in a configuration.
//!
//! ```text
//! events_per_second    bytes_in_per_second    bytes_to_disk_per_second    live_share    nodes_missing    dead
//! total:COUNTER    per_second:COUNTER    limited_by:LIMIT    phase:PHASE    reference:SERIES
//! ```

use super::rule::Quantity;
use crate::bottleneck::Limit;
use crate::history::SERIES;
use crate::sample::PHASES;
use core::fmt;
use core::str::FromStr;
use ropewalk_terms::{COUNTERS, Counter};
use serde::de::IntoDeserializer;
use serde::de::value::Error as NoLimit;
use serde::{Deserialize, Serialize};

/// Quantities that are one word.
const WORDS: [(&str, Quantity); 6] = [
    ("events_per_second", Quantity::EventRate),
    ("bytes_in_per_second", Quantity::BytesIn),
    ("bytes_to_disk_per_second", Quantity::BytesToDisk),
    ("live_share", Quantity::LiveShare),
    ("nodes_missing", Quantity::NodesMissing),
    ("dead", Quantity::Dead),
];

/// Why a text is no quantity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoQuantity {
    /// The words before a colon, or instead of it.
    #[error(
        "`{0}` is no quantity: there are events_per_second, bytes_in_per_second, bytes_to_disk_per_second, live_share, \
         nodes_missing, dead, total:COUNTER, per_second:COUNTER, limited_by:LIMIT, phase:PHASE and reference:SERIES"
    )]
    Unknown(String),
    /// There is no such counter.
    #[error("there is no counter `{0}`; docs/metrics.md lists them, without `ropewalk_` and `_total`{near}", near = near(.0))]
    Counter(String),
    /// There is no such limit.
    #[error("nothing is limited by this: {0}")]
    Limit(String),
    /// There is no such series.
    #[error("nothing is known of `{0}` in a reference run: there are {series}", series = names())]
    Series(String),
    /// There is no such phase.
    #[error("a run has no phase `{0}`: there are {phases}", phases = PHASES.join(", "))]
    Phase(String),
}

/// Counters whose names have the wrong one's first word.
fn near(wrong: &str) -> String {
    let word = wrong.split('_').next().unwrap_or_default();
    let near = COUNTERS.iter().map(|counter| counter.name()).filter(|name| !word.is_empty() && name.starts_with(word));
    let near: Vec<_> = near.take(4).collect();
    if near.is_empty() { String::new() } else { format!("; is it {}?", near.join(" or ")) }
}

fn names() -> String {
    SERIES.iter().map(|series| series.name).collect::<Vec<_>>().join(", ")
}

fn counter(name: &str) -> Result<Counter, NoQuantity> {
    let found = COUNTERS.iter().find(|counter| counter.name() == name);
    found.copied().ok_or_else(|| NoQuantity::Counter(name.to_owned()))
}

impl FromStr for Quantity {
    type Err = NoQuantity;

    fn from_str(text: &str) -> Result<Self, NoQuantity> {
        if let Some((_, quantity)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(*quantity);
        }
        match text.split_once(':') {
            Some(("total", name)) => counter(name).map(Self::Value),
            Some(("per_second", name)) => counter(name).map(Self::Growth),
            Some(("limited_by", name)) => Limit::deserialize(name.into_deserializer())
                .map(Self::LimitedBy)
                .map_err(|error: NoLimit| NoQuantity::Limit(error.to_string())),
            Some(("reference", name)) => {
                let place = SERIES.iter().position(|series| series.name == name);
                place.map(Self::FromReference).ok_or_else(|| NoQuantity::Series(name.to_owned()))
            }
            Some(("phase", name)) => {
                let phase = PHASES.into_iter().find(|phase| *phase == name);
                phase.map(Self::Phase).ok_or_else(|| NoQuantity::Phase(name.to_owned()))
            }
            _ => Err(NoQuantity::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Quantity {
    /// As it can be written in a configuration.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(counter) => write!(out, "total:{}", counter.name()),
            Self::Growth(counter) => write!(out, "per_second:{}", counter.name()),
            Self::LimitedBy(limit) => {
                out.write_str("limited_by:")?;
                limit.serialize(out)
            }
            Self::FromReference(place) => {
                write!(out, "reference:{}", SERIES.get(*place).map_or("", |series| series.name))
            }
            Self::Phase(phase) => write!(out, "phase:{phase}"),
            word => out.write_str(WORDS.iter().find(|(_, quantity)| quantity == word).map_or("", |(word, _)| word)),
        }
    }
}
