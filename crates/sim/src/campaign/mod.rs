//! Fault campaigns: one seed is one system, one schedule of faults and one verdict.
//!
//! ```text
//!   seed --> Scenario: system, settings, faults --> World: real drives on a simulated network and disk
//!                                                     |  every step: what must hold of each machine
//!                                                     v
//!   Coverage: fault x situation <-- Campaign <-- judge: ledger, pools, credits, and the referee, who reads the files
//!                                       |        and knows what the sources made
//!                                       v
//!                              Failure: seed, words, the command that replays it, as few faults as possible
//! ```
//! Each seed is two systems: this one, and one in which sources push (`push`). Event managers come and go: `reign` knows which one leads,
//! checks that nodes obey that one alone, and has the service that gives leases. Builder units may have filter units (`filters`), or write
//! event files (`event_files`).
//! A machine joins in `machines`: how it is wired, and what must hold of it after every turn.
//! `docs/simulation.md` says how to read a failure and how to add a machine.

mod cards;
mod cluster;
mod content;
mod endpoints;
mod event_files;
mod fault;
mod filters;
mod judge;
mod machines;
mod masking;
mod node;
pub mod push;
mod recorder;
mod referee;
mod reign;
mod runner;
mod scenario;
mod subscribers;
#[cfg(test)]
mod tests;
mod world;

pub use cards::{CardSetting, SubscriberSetting};
pub use content::{Contents, Format, Sizes, mixed};
pub use event_files::EventFileLimits;
pub use fault::{ELSEWHERE, Fault, FaultKind, POWER, Place, RESET, Scheduled};
pub use filters::Filters;
pub use masking::Masking;
pub use node::NodeClock;
pub use runner::{Broken, Checker, Outcome, run, run_with_text};
pub use runner::{Campaign, Coverage, FailedSeed, Missed, Orders, Situation, Summary, SystemKind};
pub use scenario::{End, Managers, Rooms, Scenario, TimeOuts};
