//! Gateways in whole runs: sources that push, whatever is wrong with their packets, and rings of network cards.

mod local;
mod rings;
#[path = "../support/mod.rs"]
mod support;
mod whole;
mod wrong;
