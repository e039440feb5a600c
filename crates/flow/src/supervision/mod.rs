//! Functions of somebody else run in a process of their own, which may crash, hang or lie: what becomes of the process and of
//! the work that it had.
//!
//! ```text
//!  pieces of work --add--> Supervisor --Ask--> process, one piece after the other --progressed-->  answered
//!                             |  ^                |
//!                             |  +----- ended ----+ crashed, hung (Kill), or not to be believed (Kill)
//!                             +-- Start, after a pause, and not too often
//! ```
//! The piece of work that a process had when it ended is tried once more with the next process; if that ends over it as well,
//! it has failed. Pieces that were answered before stay answered, and those behind it are not harmed. When processes
//! end too often nobody starts another one, and all work fails at once, so that nothing waits for ever.

mod config;
mod machine;
mod process;

#[cfg(test)]
mod tests;

pub use config::SupervisorConfig;
pub use machine::{Order, Outcome, Supervisor};
pub(crate) use process::{Process, ProcessOrder};
