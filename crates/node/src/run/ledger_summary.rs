//! The consistency check of an account: its member `ledger`.

use crate::drive::RunSnapshot;
use ropewalk_flow::control::RunPhase;
use ropewalk_terms::Imbalance;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// The equations of an account that do not hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct LedgerSummary {
    /// Whether every equation holds.
    pub balanced: bool,
    /// The equations that do not hold.
    pub unbalanced: Vec<UnbalancedSummary>,
}

/// An equation that does not hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct UnbalancedSummary {
    /// The equation: its name, such as `fragments`, `events`, `decisions` or `pools`, or its terms.
    pub equation: String,
    /// The flow, in a push system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// The gateway, in a push system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Its left side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// Its right side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right: Option<u64>,
    /// The source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<u32>,
    /// The thread that panicked, instead of `left` and `right`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Packets sent that neither arrived nor have a cause; negative if more arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexplained: Option<i64>,
    /// An explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl LedgerSummary {
    /// Creates it from the equations that do not hold.
    pub(super) fn new(unbalanced: impl IntoIterator<Item = UnbalancedSummary>) -> Self {
        let unbalanced: Vec<_> = unbalanced.into_iter().collect();
        Self { balanced: unbalanced.is_empty(), unbalanced }
    }

    /// Adds equations that do not hold.
    pub(super) fn add(&mut self, more: impl IntoIterator<Item = UnbalancedSummary>) {
        self.unbalanced.extend(more);
        self.balanced = self.unbalanced.is_empty();
    }
}

impl UnbalancedSummary {
    /// The equations of a pull run that do not hold.
    pub(super) fn of_run(snapshot: &RunSnapshot) -> impl Iterator<Item = Self> {
        let built = snapshot.ledger.events.built;
        let beyond = snapshot.beyond_events().filter(|_| snapshot.phase == RunPhase::Ended);
        let beyond = beyond.map(move |(source, more)| Self {
            source: Some(source.0),
            ..Self::sides("fragments of a source in complete events <= complete events", built + more, built)
        });
        snapshot.ledger.imbalances().into_iter().map(Self::from).chain(beyond)
    }

    /// An equation without details.
    pub(super) fn new(equation: impl Into<String>) -> Self {
        Self { equation: equation.into(), ..Self::default() }
    }

    /// An equation whose sides differ.
    pub(super) fn sides(equation: impl Into<String>, left: u64, right: u64) -> Self {
        Self { left: Some(left), right: Some(right), ..Self::new(equation) }
    }

    /// An equation with an explanation.
    pub(super) fn because(equation: &str, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..Self::new(equation) }
    }

    /// An equation of sent packets.
    pub(super) fn unexplained(equation: &str, packets: i64) -> Self {
        Self { unexplained: Some(packets), ..Self::new(equation) }
    }

    /// Threads that panicked.
    pub(super) fn panicked(threads: &[String]) -> impl Iterator<Item = Self> {
        threads.iter().map(|thread| Self { thread: Some(thread.clone()), ..Self::new("every thread ended by itself") })
    }
}

impl From<Imbalance> for UnbalancedSummary {
    fn from(Imbalance { equation, left, right }: Imbalance) -> Self {
        Self::sides(equation, left, right)
    }
}

impl fmt::Display for UnbalancedSummary {
    /// Writes it as JSON.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
