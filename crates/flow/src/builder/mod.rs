//! The builder unit (BU): whole events out of super-fragments, and the watch over sources that slip against each
//! other.
//!
//! ```text
//!  EVM --Assign--> [ slots: collecting > ready > emitted > acknowledged ] --Credit, Acknowledge--> EVM
//!                     |  Request, each BU starting at another RU            ^ reached(written, synced ...)
//!                     v                                                     |
//!  RU --SuperFragments--> fragments by place --complete? policy, BX--> Emit{slot} --> storage
//! ```
//! A machine: messages, super-fragments and `now` go in, [`BuilderAction`]s are polled out. An answer names its
//! slot, so that nothing is searched; slots and their fragment tables are made once and used again.

mod bunch_crossing;
mod collect;
mod config;
mod error;
mod finish;
mod machine;
mod message;
mod observer;
mod readout_peer;
mod recent;
mod slots;
pub mod synchrony;
#[cfg(test)]
mod tests;
mod view;

pub use config::{BuilderConfig, BuilderSource, IncompletePolicy};
pub use error::BuilderConfigError;
pub use machine::{Builder, BuilderAction, BuilderCounts};
pub use view::EventView;
