//! The deterministic simulator: the real machines of flow and the real drives of node, in virtual time.
//!
//! ```text
//! campaign  whole systems with every byte, a schedule of faults from one seed, checkers that never sleep
//! sizing    systems far larger than this machine, without bytes: what rate do they reach, what limits them
//! ```
//! Nothing here reads a clock, opens a socket or starts a thread: a run follows from its seed or its description alone.

#![forbid(unsafe_code)]

pub mod campaign;
pub mod sizing;
