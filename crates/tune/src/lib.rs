//! The host settings that data taking needs: their state, advice and reasons; changing, checking and undoing them.
//!
//! Checking changes nothing. What rules find wrong becomes a [`Plan`] that a person can read and type by hand. Applying
//! it writes every old value into a journal before the new one is set, so that everything can be undone, even after a
//! crash half-way.
//!
//! ```text
//! /proc, /sys, netlink --> Found --+
//!                                  +--> rules --> Findings --> Plan --> Application --> the machine, journal
//! configuration --------> Wish ----+                                   Undoing    <--  journal
//! ```
//!
//! The root of /proc and /sys may be any directory, and what is not in files (rings, offloads, free space) then comes
//! from a file `recorded.json` in it: thus whole machines are test data (`Place`).
#![forbid(unsafe_code)]

pub mod cards;
pub mod change;
mod error;
pub mod found;
mod place;
mod plan;
pub mod rules;
mod setting;
mod threads;

pub use self::error::{CardError, SettingError};
pub use self::found::{Found, FoundError};
pub use self::place::{Forbidden, Identity, Place, Settings};
pub use self::plan::{Change, Feeding, Finding, Grade, Group, Placed, Plan, Sureness, Transport, Wish};
pub use self::setting::{Form, Property, Right, Setting};
pub use self::threads::{Process, RunningThread, Thread};
