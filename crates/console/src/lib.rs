//! What the programs `ropewalk` and `ropewalk-lab` share: printing, exit statuses, and which error leads to which.

#![forbid(unsafe_code)]

pub mod exit;
pub mod output;

pub use ropewalk_terms::grouped;
