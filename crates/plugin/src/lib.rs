//! Functions that others wrote in C, loaded from shared libraries: splitters, which say into which pieces a board's frames fall
//! apart, and filters, which decide on events.
//!
//! ```text
//!  library.so -- Library: opened, its table checked (table) --> Splitter, Filter: call it in this thread, where it is trusted
//!                                                         \-> process, filter::process: call it in a process of its own,
//!                                                             which has given up all that it does not need (confinement)
//! ```
//! What a function of such a library does is beyond all checks while it runs: it may write anywhere, or never return. What
//! it returns is checked (`pieces`, `filter`) before anybody believes it. The unsafe island of loaded functions.

pub mod confinement;
mod error;
pub mod filter;
mod journal;
mod library;
mod pieces;
pub mod process;
mod splitter;
mod table;

pub use error::PluginError;
pub use filter::Filter;
pub use journal::{End, Journal};
pub use library::Library;
pub use pieces::{Keys, Nonsense};
pub use splitter::{Splitter, SplitterConfig};
pub use table::PluginKind;
