//! Plug-ins: C functions that users load from shared libraries. Splitters divide a board's frames into pieces, and filters
//! decide on events.
//!
//! ```text
//!  library.so -- Library: opened, its table checked         --> Splitter, Filter: call it in this thread, where it is trusted
//!                                                         \-> process, filter::process: call it in a process of its own,
//!                                                             which has given up all that it does not need (confinement)
//! ```
//! A function of a library cannot be checked while it runs: it may write anywhere, or never return. Its results are checked
//! (`splitter`, `filter`) before they are used. This crate is the unsafe island of loaded functions.

pub mod confinement;
pub mod filter;
mod journal;
mod library;
pub mod process;
mod splitter;

pub use filter::Filter;
pub use journal::{End, Journal, Nonsense, WrongDecision};
pub use library::{Library, PluginError, PluginKind};
pub use splitter::{Keys, Splitter, SplitterConfig};
