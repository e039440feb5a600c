//! How far the times in an account can be believed.

use ropewalk_io::clock::ClockQuality;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the kernel of the event manager's machine said of its civil time, which `started_ns` and the times of lumisections come from.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClockSummary {
    /// When the run began; null where this event manager was not there then, or was not told.
    pub at_start: Option<ClockReading>,
    /// When the account was closed; null where the kernel was not asked.
    pub at_end: Option<ClockReading>,
}

/// What the kernel said.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClockReading {
    /// Somebody, such as NTP or PTP, sets the clock.
    pub synchronised: bool,
    /// How far it is probably off, in microseconds.
    pub estimated_error_us: u64,
    /// How far it is off at most, in microseconds; 16,000,000 where nobody knows.
    pub maximum_error_us: u64,
}

impl ClockReading {
    /// That of now; none where a process is not allowed to ask.
    pub(super) fn now() -> Option<Self> {
        ClockQuality::of_this_machine().ok().map(Self::of)
    }

    fn of(quality: ClockQuality) -> Self {
        Self {
            synchronised: quality.is_synchronised,
            estimated_error_us: quality.estimated_error.as_micros() as u64,
            maximum_error_us: quality.maximum_error.as_micros() as u64,
        }
    }
}

impl ClockSummary {
    /// Whether the clock was synchronised whenever the kernel was asked, and how far it was off at most then, in microseconds. None where
    /// it never was asked.
    pub fn worst(&self) -> Option<(bool, u64)> {
        let readings = self.at_start.iter().chain(&self.at_end);
        readings
            .map(|reading| (reading.synchronised, reading.maximum_error_us))
            .reduce(|one, other| (one.0 && other.0, one.1.max(other.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_worst_of_both_ends_is_what_counts() {
        let reading = |is_synchronised, milliseconds| {
            let error = Duration::from_millis(milliseconds);
            Some(ClockReading::of(ClockQuality { is_synchronised, estimated_error: error / 2, maximum_error: error }))
        };
        assert_eq!(ClockSummary::default().worst(), None);
        let only = ClockSummary { at_start: None, at_end: reading(true, 3) };
        assert_eq!(only.worst(), Some((true, 3_000)));
        let lost = ClockSummary { at_start: reading(true, 5), at_end: reading(false, 4) };
        assert_eq!(lost.worst(), Some((false, 5_000)));
    }
}
