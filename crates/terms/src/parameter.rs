//! Parameters: what can be changed during a run, and whether events need a source.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! parameters {
    ($($(#[doc = $help:literal])* $name:ident = $number:literal, $text:literal;)*) => {
        /// What can be changed during a run; the names are stable.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Parameter { $($(#[doc = $help])* $name = $number),* }

        impl Parameter {
            /// Every parameter, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The stable name. That of a prescale has the stream's name in front of it, that of a set's time-out the
            /// flow's.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The help text.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => concat!($($help),*)),* }
            }
        }
    };
}

parameters! {
    /// How long the oldest incomplete event waits for a source that is read. In nanoseconds.
    SourceTimeout = 1, "timeouts.readout";
    /// How long a source that restarts its numbering waits until the trigger source does so as well. In nanoseconds.
    ResyncTimeout = 2, "timeouts.resync";
    /// How long a builder unit waits for the answer of a readout unit. In nanoseconds.
    BuilderTimeout = 3, "timeouts.builder";
    /// How long the event manager waits for a readout unit to announce an event that others hold. In nanoseconds.
    ManagerTimeout = 4, "timeouts.manager";
    /// How long the rest of a run may take after the stop. In nanoseconds.
    DrainTimeout = 5, "timeouts.drain";
    /// Time between two reports of a node. In nanoseconds.
    ReportInterval = 6, "monitoring.interval";
    /// A stream keeps one of this many selected events.
    Prescale = 7, "prescale";
    /// How long a set of events of a flow waits for its packets. In nanoseconds.
    SetTimeout = 8, "timeout";
    /// How long the run waits for a readout unit that is unreachable and not known to be dead. In nanoseconds.
    UnreachableTimeout = 9, "timeouts.unreachable";
}

impl Parameter {
    /// The parameter with this number, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        if number == 0 || number as usize > Self::ALL.len() { None } else { Some(Self::ALL[number as usize - 1]) }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_parameters_go_together() {
        for (number, &parameter) in (1..).zip(Parameter::ALL) {
            assert_eq!((parameter as u8, Parameter::from_u8(number)), (number, Some(parameter)));
        }
        assert_eq!((Parameter::from_u8(0), Parameter::from_u8(10), Parameter::from_u8(255)), (None, None, None));
    }
}
