//! What ends a source's connection.

use ropewalk_terms::Cause;

/// The boundary of the next fragment cannot be found any more; the connection must be closed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{cause} in a source's stream, {bytes_discarded} B discarded: the connection is closed")]
pub struct FramingError {
    /// What is wrong: `framing_lost` or `oversize`.
    pub cause: Cause,
    /// Bytes that were received and could not be used.
    pub bytes_discarded: u64,
}
