//! What would be changed, in order: pure, and printable.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Finding, Setting};

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// The value that was found, in its normal form.
    pub from: String,
    /// The value that it shall have, in its normal form.
    pub to: String,
    /// The group that it belongs to.
    pub group: Group,
    /// The name of the rule that asks for it.
    pub rule: String,
}

/// A group of settings that may be changed without the others (`tune apply --only GROUP`). In this order they are changed.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Sockets and protocols: what is below /proc/sys/net.
    Network,
    /// Network cards: rings, queues, coalescing, offloads, pause frames, MTU.
    Card,
    /// Which CPUs take interrupts and their work.
    Interrupts,
    /// Frequencies, idle states, scheduling.
    Processor,
    /// Huge pages, NUMA, swapping.
    Memory,
    /// Where events are written to.
    Storage,
    /// Limits of processes and containers.
    Limits,
}

impl Group {
    /// All of them, in the order in which they are changed.
    pub const ALL: [Self; 7] =
        [Self::Network, Self::Card, Self::Interrupts, Self::Processor, Self::Memory, Self::Storage, Self::Limits];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Card => "card",
            Self::Interrupts => "interrupts",
            Self::Processor => "processor",
            Self::Memory => "memory",
            Self::Storage => "storage",
            Self::Limits => "limits",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What would be changed, in order; each setting once.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Plan {
    /// The changes.
    pub changes: Vec<Change>,
}

impl Plan {
    /// What these findings ask for: group after group, and within a group in the order of the findings. Where two ask
    /// for the same setting the first one is taken; what is already as it shall be is left out.
    pub fn of(findings: &[Finding]) -> Self {
        let mut changes: Vec<Change> = Vec::new();
        for group in Group::ALL {
            let asked = findings.iter().flat_map(|finding| &finding.changes).filter(|change| change.group == group);
            for change in asked.filter(|change| change.from != change.to) {
                if !changes.iter().any(|other| other.setting == change.setting) {
                    changes.push(change.clone());
                }
            }
        }
        Self { changes }
    }

    /// Only what belongs to these groups; all of it where none is named.
    pub fn only(mut self, groups: &[Group]) -> Self {
        self.changes.retain(|change| groups.is_empty() || groups.contains(&change.group));
        self
    }

    /// The commands by which a person would do the same, one a line.
    pub fn commands(&self) -> Vec<String> {
        self.changes.iter().map(|change| change.setting.command(&change.to)).collect()
    }
}
