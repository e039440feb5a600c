//! Gateways in whole runs: sources that push right and wrong packets, and rings of network cards.

mod local;
mod rings;
#[path = "../support/mod.rs"]
mod support;
mod whole;
mod wrong;
