//! Code shared by the programs `ropewalk` and `ropewalk-lab`: printing, exit statuses, and the status of each error.

#![forbid(unsafe_code)]

pub mod exit;
pub mod output;

pub use ropewalk_terms::grouped;
