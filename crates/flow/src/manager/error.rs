//! What can be wrong with a manager's settings.

use ropewalk_wire::message::BATCH;

/// A setting of an event manager is outside its limits.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ManagerConfigError {
    /// There must be a readout unit.
    #[error("there is no readout unit; configure at least one")]
    NoReadouts,
    /// There must be a builder unit.
    #[error("there is no builder unit; configure at least one")]
    NoBuilders,
    /// The table's width must be a power of two.
    #[error("the table's capacity is {0} keys; it must be a power of two")]
    Capacity(u32),
    /// Events are assigned in batches that fit into one message.
    #[error("{0} events at once for a builder unit; it must be 1 to {BATCH}")]
    Batch(usize),
    /// The trigger source must belong to a configured readout unit.
    #[error("the trigger source belongs to ru{0}, which is not configured")]
    TriggerReadout(u16),
}
