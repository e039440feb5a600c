//! Filters decide which events are kept, which triggers they passed, and which result is stored with them.
//!
//! ```text
//!  FilterEvent --> Shown: the event as C sees it, its bytes where they lie --> Created: the library's functions
//!                                                                                     |
//!            Decision, or WrongDecision: it is impossible <-- checked <---------------'
//! ```
//! [`Filter`] calls a trusted filter in this thread; [`process`] runs one in a separate process.

mod interface;
pub mod process;

pub use interface::Filter;

use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::Fills;
use ropewalk_flow::messages::Fragment;
use ropewalk_terms::{Attempt, EventKey, TriggerBits};
use std::path::PathBuf;

/// Maximum size of the result that a filter stores with an event, in bytes: `ROPEWALK_RESULT_CAPACITY`.
pub const MOST_RESULT: usize = 65_536;

/// A filter and its configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterConfig {
    /// The library.
    pub library: PathBuf,
    /// Passed to its `create`.
    pub configuration: String,
}

/// An event that a filter can decide on.
pub trait FilterEvent {
    /// Its key.
    fn key(&self) -> EventKey;

    /// Number of its assignment.
    fn attempt(&self) -> Attempt;

    /// Whether every required source is present.
    fn is_complete(&self) -> bool;

    /// The event's trigger type; 0 if it has none.
    fn trigger_type(&self) -> u16;

    /// Its fragments, in the order of the sources.
    fn fragments(&self) -> impl Iterator<Item = &Fragment>;
}

impl FilterEvent for EventView<'_> {
    fn key(&self) -> EventKey {
        self.key
    }

    fn attempt(&self) -> Attempt {
        self.attempt
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn trigger_type(&self) -> u16 {
        EventView::trigger_type(self)
    }

    fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        EventView::fragments(self)
    }
}

/// A filter's decision.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Decision<'a> {
    /// Whether the event is kept.
    pub accept: bool,
    /// The triggers that it passed.
    pub bits: TriggerBits,
    /// Result that is stored with the event, at most [`MOST_RESULT`] bytes; not stored if it is empty.
    pub result: &'a [u8],
    /// Values for its histograms.
    pub fills: &'a Fills,
}
