//! What went wrong with a front end, by name.

use core::fmt;
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::front_end::Stage;

/// Incidents of one run that are kept; more are counted.
pub const MOST_INCIDENTS: usize = 64;

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IncidentKind {
    /// Its control connection ended.
    Lost,
    /// It called again, and is in the run as before.
    Returned,
    /// It called again and knows nothing of the run: a program that was started anew. It is left out until the next run.
    StartedAnew,
    /// It could not do what it was told, and says why.
    Failed(String),
    /// It did not come so far in time.
    NoAnswer(Stage),
    /// It has said nothing for some time, although its connection stands.
    Silent,
    /// It is the trigger source, speaks version 1, and so does not know what it is to be held.
    CannotBeHeld,
    /// It did not say in time that it was held.
    NotHeld,
    /// It did not say in time that it was released.
    NotReleased,
}

impl fmt::Display for IncidentKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => out.write_str("its control connection was lost"),
            Self::Returned => out.write_str("it is back, and in the run as before"),
            Self::StartedAnew => {
                out.write_str("it is back and knows nothing of the run (started anew?): left out until the next one")
            }
            Self::Failed(text) => write!(out, "it says that it failed: {text}"),
            Self::NoAnswer(stage) => write!(out, "it was not {} in time", stage.name()),
            Self::Silent => out.write_str("it says nothing although its connection stands"),
            Self::CannotBeHeld => out.write_str(
                "it speaks version 1 of the protocol and cannot be held: in a pause it is back-pressure that holds its triggers",
            ),
            Self::NotHeld => out.write_str(
                "it was not held in time: the run is paused all the same, and back-pressure holds its triggers",
            ),
            Self::NotReleased => out.write_str("it was not released in time, and is told again"),
        }
    }
}

/// Something that went wrong with a front end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incident {
    /// Which front end.
    pub source: SourceId,
    /// When.
    pub at: Instant,
    /// What happened.
    pub kind: IncidentKind,
}
