//! Pages of numbers: each node writes its counters into memory that others read without a request, while it runs,
//! hangs, or after it ended.
//!
//! ```text
//!  drive --numbers--> NodePage: a file in memory, by relaxed stores of its thread --read--> PageReading: `ropewalk counters`
//!            Label: who writes it and what each cell is, once, at its head
//! ```
//! A page contains the state of its thread (time of the last turn), then a row of numbers for the node, and one for
//! each of its sources or streams. Every row has all numbers, so that each always has a place.
//!
//! `page` is the writer's side and the directory of pages; `reading` is the reader's side, and pages as JSON.

mod page;
mod reading;
#[cfg(test)]
mod tests;

pub use page::{
    Label, NodePage, NumberLabel, OwnerKind, OwnerLabel, PageDirectory, PageRole, PagesChoice, usual_directories,
};
pub use reading::{Findings, PAGES_SCHEMA, PageError, PageReading, PageReport, PageState, PagesReport, Shown, find};
