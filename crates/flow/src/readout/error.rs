//! What makes a configuration useless, and what ends a source's connection.

use ropewalk_terms::{Cause, SourceId};

/// What is wrong with a readout unit's configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadoutConfigError {
    /// More sources than an announcement can count.
    #[error("a readout unit has at most 65,535 sources, not {0}")]
    Sources(usize),
    /// An id stands twice.
    #[error("source {0} stands there twice: each source of a readout unit has an id of its own")]
    Twice(SourceId),
    /// The trigger source is somewhere else.
    #[error("the trigger source {0} is none of this readout unit's sources")]
    Trigger(SourceId),
    /// The counter is too narrow or too wide.
    #[error("the event counter of source {source_id} has {bits} bits: it must have 8 to 64")]
    CounterBits {
        /// Whose.
        source_id: SourceId,
        /// How wide it is said to be.
        bits: u8,
    },
    /// The believed jump is too long for a counter.
    #[error("the plausibility of {plausibility} events is more than a quarter of the counter of source {source_id}")]
    Plausibility {
        /// Whose counter.
        source_id: SourceId,
        /// The configured jump, in events.
        plausibility: u64,
    },
    /// The window is empty or larger than the table.
    #[error("the window of {window} events must be at least 1 and at most the capacity of {capacity}")]
    Window {
        /// The configured window, in events.
        window: u32,
        /// The configured capacity, in events.
        capacity: u32,
    },
    /// Sources would be left behind before the slowest could time out.
    #[error("the resynchronisation time-out must be longer than the source time-out")]
    ResyncTimeout,
}

/// The boundary of the next fragment cannot be found any more; the connection must be closed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{cause} in a source's stream, {bytes_discarded} B discarded: the connection is closed")]
pub struct FramingError {
    /// What is wrong: `framing_lost` or `oversize`.
    pub cause: Cause,
    /// Bytes that were received and could not be used.
    pub bytes_discarded: u64,
}
