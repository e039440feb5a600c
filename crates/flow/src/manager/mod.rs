//! The event manager (EVM): opens events, gives them to builder units by credit, and alone releases them.
//!
//! ```text
//!  RU --Announce--> [ table of keys: empty > open > assigned > done > released ] --Release--> every RU
//!                          ^ floor: every present RU has settled below it
//!                          | cursor: everything before it was assigned, dropped or is a gap
//!  BU --Credit, Acknowledge-->  account of each BU  --Assign (policy, batches of consecutive keys)--> BU
//! ```
//! A run is divided into lumisections, ranges of keys that are closed one by one, each with its account.
//! A machine: messages, connections and `now` go in, [`ManagerAction`]s are polled out. A run goes
//! [`start`](Manager::start), [`stop`](Manager::stop) (ask for the highest key, fix the last, drain), finish.
//! A lost BU's events are assigned again with the next attempt; a lost RU is not waited for; a successor with a
//! higher epoch rebuilds the table from what RUs and BUs tell it ([`recover`](Manager::recover)). Which of several
//! event managers may speak is [`Standby`]'s decision.

mod announce;
mod assign;
mod builder_link;
mod config;
mod ended;
mod error;
mod lacking;
mod lumisections;
mod machine;
mod masks;
mod policy;
mod readout_link;
mod recovery;
mod release;
mod run;
mod settings;
mod standby;
mod table;
#[cfg(test)]
mod tests;

pub use config::ManagerConfig;
pub use error::ManagerConfigError;
pub use lumisections::LumisectionLength;
pub use machine::{Manager, ManagerAction, ManagerCounts};
pub use policy::{AssignPolicy, BuilderLoad};
pub use run::ManagerState;
pub use standby::{LeaseAnswer, LeaseConfig, LeaseConfigError, Standby, StandbyAction};
