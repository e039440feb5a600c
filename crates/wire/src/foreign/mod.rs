//! Other people's formats, ready by name: where a frame ends, what it says of itself, and what stands in it.
//!
//! ```text
//!  place       a number in a header: one definition for reading, writing, showing and the documentation
//!  inspector   who is told what a frame consists of
//!  format      all formats by name; which one some bytes are of
//!  headed      zeros where a frame should begin, and how the next frame is known behind them
//!  emulation   frames as front ends would send them
//!  enclosed    the fragments in a frame that holds a whole event
//!  cms frd lhcb mdf atlas alice                  experiments at the LHC
//!  midas nscldaq eudaq dune artdaq               data acquisition systems that wrote them
//!  srs ess ejfat                                 datagrams
//! ```
//! Each format is a unit that implements [`Framing`](crate::framing::Framing) (for streams and datagrams) and [`Describe`]
//! (for people), and has an encoder for tests and emulators. `docs/formats.md` has every table, and says what each was checked
//! against. Layouts were read from the public headers that each module names; no line of theirs is here.

pub mod alice;
pub mod artdaq;
pub mod atlas;
pub mod cms;
pub mod dune;
pub mod ejfat;
mod emulation;
mod enclosed;
pub mod ess;
pub mod eudaq;
mod format;
pub mod frd;
mod headed;
mod inspector;
pub mod lhcb;
pub mod mdf;
pub mod midas;
pub mod nscldaq;
mod place;
mod search;
pub mod srs;
#[cfg(test)]
mod tests;

pub use emulation::EMULATED_PACKING;
pub use enclosed::{ENVELOPE, Enclosed, Member, UNDIVIDED};
pub use format::{Counting, ForeignFormat};
pub use inspector::{Announced, Describe, Inspector, Value};
pub use place::{Header, Place};

/// The longest frame that any of them may have: a length beyond it is taken for damage.
pub const MOST_FRAME_BYTES: usize = 256 << 20;
