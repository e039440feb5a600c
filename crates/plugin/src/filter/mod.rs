//! Filters: they decide which events are kept, which triggers those passed, and what is stored with them.
//!
//! ```text
//!  FilterEvent --> Shown: the event as C sees it, its bytes where they lie --> Created: the library's functions
//!                                                                                     |
//!             Decision, or Nonsense that cannot be true <-- checked <-----------------'
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

/// Why what a filter decided cannot be true.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Nonsense {
    /// It did not answer in the order in which it was asked.
    #[error("where the decision on its event {expected} belongs it wrote one on event {found}")]
    Order {
        /// Which decision was due, counted from 1 on since the process began.
        expected: u64,
        /// Which one it said it is.
        found: u64,
    },
    /// It decided though it was not asked.
    #[error("it decided on an event that it was not given")]
    Unasked,
    /// The decision is on another event than was due.
    #[error("it decided on event {said}, attempt {said_attempt}, and event {due}, attempt {attempt}, was due")]
    Event {
        /// The event that was due.
        due: EventKey,
        /// Its attempt.
        attempt: Attempt,
        /// The event that it decided on.
        said: EventKey,
        /// Its attempt.
        said_attempt: u32,
    },
    /// A result that is longer than it may be, or does not lie where results lie.
    #[error("it says that its result has {length} bytes from {at} on, and there is room for 65536 of them")]
    Result {
        /// Where it begins.
        at: u64,
        /// Its bytes.
        length: u32,
    },
    /// More fills than there may be, or where none lie.
    #[error("it says that it filled in {count} values behind the result at {at}, and there is room for 256 of them")]
    Fills {
        /// Where its result begins.
        at: u64,
        /// How many they are.
        count: u16,
    },
    /// An answer of no sort that there is.
    #[error("it answered with the flags {flags:#x}, which mean nothing")]
    Flags {
        /// What it answered.
        flags: u32,
    },
}
