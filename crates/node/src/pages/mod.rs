//! Pages of numbers: each node writes its own into memory that others read without asking it, while it runs, hangs, or is gone.
//!
//! ```text
//!  drive --numbers--> NodePage: a file in memory, by relaxed stores of its thread --read--> PageReading: `ropewalk counters`
//!            label: who writes it and what each cell is, once, at its head
//! ```
//! A page has the state of its thread first (when it turned last), and behind that a row of numbers for the node, and one for each
//! of its sources or streams. Every row has all numbers that there are: so no number that is told of anything can be without a place.
//!
//! `label` what stands at the head   `page` who writes   `directory` where pages are   `reading` who reads   `report` as JSON

mod directory;
mod label;
mod page;
mod reading;
mod report;
#[cfg(test)]
mod tests;

pub use directory::{PageDirectory, usual_directories};
pub use label::{Label, NumberLabel, OwnerKind, OwnerLabel, PageRole};
pub use page::NodePage;
pub use reading::{Findings, PageError, PageReading, PageState, Shown, find};
pub use report::{PAGES_SCHEMA, PageReport, PagesReport};
