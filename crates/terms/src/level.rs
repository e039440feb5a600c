//! The acknowledgement level of an event, and its ending.

use crate::Cause;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an acknowledgement of a builder unit promises. Readout units keep the fragments of an event until then.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum AcknowledgementLevel {
    /// The event is built in memory. A crash loses it.
    Built = 1,
    /// The event is handed to the writer, after the decision of the filter if there is one. A crash of the builder unit
    /// loses it.
    Handed = 2,
    /// The event is written to a file. It survives the end of the process.
    #[default]
    Written = 3,
    /// The event is synced to the disk. It survives a power cut; every batch is synced, which is slower.
    Synced = 4,
}

impl AcknowledgementLevel {
    /// The level's name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Built => "built",
            Self::Handed => "handed",
            Self::Written => "written",
            Self::Synced => "synced",
        }
    }

    /// The level with this number on the wire, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Built),
            2 => Some(Self::Handed),
            3 => Some(Self::Written),
            4 => Some(Self::Synced),
            _ => None,
        }
    }
}

/// How an event ended in a builder unit, as the acknowledgement and the release tell it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Every required source was there; the event was kept.
    Complete,
    /// Something was missing; the event was kept and flagged.
    IncompleteEmitted,
    /// The event was dropped for this cause (something missing, or no builder unit could build it).
    Dropped(Cause),
}

impl Outcome {
    /// Why the event was dropped, if it was.
    pub const fn dropped(self) -> Option<Cause> {
        match self {
            Self::Complete | Self::IncompleteEmitted => None,
            Self::Dropped(cause) => Some(cause),
        }
    }

    /// The outcome as one byte: 0 complete, 1 incomplete and emitted, otherwise 2 + the cause's number.
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::IncompleteEmitted => 1,
            Self::Dropped(cause) => 2 + cause as u8,
        }
    }

    /// The outcome of a byte, if it is one.
    pub const fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Complete),
            1 => Some(Self::IncompleteEmitted),
            _ => match Cause::from_u8(byte - 2) {
                Some(cause) => Some(Self::Dropped(cause)),
                None => None,
            },
        }
    }
}

/// What was decided of a built event.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Verdict {
    /// It is kept, in at least one stream.
    #[default]
    Accepted = 0,
    /// It was accepted, and no stream took it: their prescales left it out.
    Unselected = 1,
    /// It is thrown away.
    Rejected = 2,
    /// No decision could be had: it is kept, set aside.
    Quarantined = 3,
}

impl Verdict {
    /// The verdict with this number on the wire, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Accepted),
            1 => Some(Self::Unselected),
            2 => Some(Self::Rejected),
            3 => Some(Self::Quarantined),
            _ => None,
        }
    }

    /// Whether the event is written.
    pub const fn is_written(self) -> bool {
        matches!(self, Self::Accepted | Self::Quarantined)
    }
}

/// How an event ended in a builder unit: what was built, and what was decided of that.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ending {
    /// What was built.
    pub outcome: Outcome,
    /// The decision on it; without a meaning if nothing was kept.
    pub verdict: Verdict,
}

impl From<Outcome> for Ending {
    /// Without a filter everything is accepted.
    fn from(outcome: Outcome) -> Self {
        Self { outcome, verdict: Verdict::Accepted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_go_there_and_back() {
        for byte in 0..=u8::MAX {
            if let Some(outcome) = Outcome::from_u8(byte) {
                assert_eq!(outcome.to_u8(), byte);
            }
        }
        assert_eq!(Outcome::from_u8(255), None);
    }
}
