//! Pages of numbers: each node writes its own into memory that others read without asking it, while it runs, hangs, or is gone.
//!
//! ```text
//!  drive --numbers--> NodePage: a file in memory, by relaxed stores of its thread --read--> PageReading: `ropewalk counters`
//!            Label: who writes it and what each cell is, once, at its head
//! ```
//! A page has the state of its thread first (when it turned last), and behind that a row of numbers for the node, and one for each
//! of its sources or streams. Every row has all numbers, so that none is ever without a place.
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
