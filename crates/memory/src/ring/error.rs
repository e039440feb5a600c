//! Why there is no ring, or no more of it.

use std::io;

/// What is wrong with a ring.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum RingError {
    /// The file is something else, or of another version.
    #[error("the file has no ring in it: it must be the memfd of a running reader of the same version")]
    NotARing,
    /// The writer's pointer is where it cannot be.
    #[error("the writer says that it has written up to {written}, which lies outside of the room from {from} to {end}")]
    Overrun {
        /// Where it says that it is.
        written: u64,
        /// Where it was.
        from: u64,
        /// Where its room ends.
        end: u64,
    },
    /// The system refused a call.
    #[error("{call}: {source}")]
    System {
        /// Which one.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}
