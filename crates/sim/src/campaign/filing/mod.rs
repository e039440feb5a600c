//! Files of events between a writer and filter units, with a broker and a merger: everybody may die at any step.
//!
//! ```text
//!   writer --> directory: files, what units wrote for them, documents <--> drive <--> Broker, Merger
//!                                   ^                                       |
//!                                   +---- units: they die, hang, come anew -+  messages take their time
//! ```
//! Each event's fate stands in one document, or its file was set aside after as many tries as it has; nothing is deleted
//! before that, and each lumisection adds up.

mod directory;
mod scenario;
mod units;
mod world;

pub use scenario::Scenario;
pub use world::World;
