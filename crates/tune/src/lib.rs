//! The settings of a host that data taking needs: what is found, what is advised and why; changed, checked, taken back.
//!
//! Nothing is changed by looking. What rules find wrong becomes a [`Plan`], which a person can read and type by hand;
//! applying it writes every old value into a journal before the new one is written, so that all of it can be taken
//! back, also after a crash half-way.
//!
//! ```text
//! /proc, /sys, netlink --> Found --+
//!                                  +--> rules --> Findings --> Plan --> Application --> the machine, journal
//! configuration --------> Wish ----+                                   Undoing    <--  journal
//! ```
//!
//! The root of /proc and /sys may be any directory, and what is not in files there (rings, offloads, free space) comes
//! from a file `recorded.json` in it: so whole machines are test data (`Place`).
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
