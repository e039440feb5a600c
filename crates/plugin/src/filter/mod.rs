//! Filters: they decide which events are kept, which triggers those passed, and what is stored with them.
//!
//! ```text
//!  FilterEvent --> Shown: the event as C sees it, its bytes where they lie --> Created: the library's functions
//!                                                                                     |
//!             Decision, or WrongDecision: it cannot be true <-- checked <-------------'
//! ```
//! [`Filter`] calls a trusted filter in this thread; [`process`] has one in a process of its own.

mod interface;
pub mod process;

pub use interface::Filter;

use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::Fills;
use ropewalk_flow::messages::Fragment;
use ropewalk_terms::{Attempt, EventKey, TriggerBits};
use std::path::PathBuf;

/// The most bytes that a filter can store with an event: `ROPEWALK_RESULT_CAPACITY`.
pub const MOST_RESULT: usize = 65_536;

/// Which filter, and its configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterConfig {
    /// The library.
    pub library: PathBuf,
    /// Handed to its `create`.
    pub configuration: String,
}

/// An event that a filter can decide on.
pub trait FilterEvent {
    /// What it is known by.
    fn key(&self) -> EventKey;

    /// How often it was assigned.
    fn attempt(&self) -> Attempt;

    /// Every required source is there.
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

/// What a filter decided.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Decision<'a> {
    /// The event is kept.
    pub accept: bool,
    /// The triggers that it passed.
    pub bits: TriggerBits,
    /// What is stored with it, at most [`MOST_RESULT`] bytes; nothing if it is empty.
    pub result: &'a [u8],
    /// What it fills into its histograms.
    pub fills: &'a Fills,
}
