//! The layout of a front end's frames, described and not programmed (`docs/layouts.md`).
//!
//! ```text
//! Layout (plain values) --> Plan::compile --> LayoutError: the key, and what would be right
//!                                       \--> Plan: Framing::front    where a frame ends
//!                                                  Framing::fields   what it says of itself
//!                                                  Plan::compose     a frame that says this, for emulators and tests
//! ```
//! Everything is looked up once, when the plan is made: a field is then one load, a shift and a mask. Frames are looked at
//! where they lie, in one piece or in several. Nothing here allocates after that, and no bytes make it panic.

mod checksum;
mod compile;
mod compose;
mod drawing;
mod error;
mod extent;
mod front;
mod number;
mod pieces;
mod plan;
mod quick;
mod specification;
#[cfg(test)]
mod tests;
mod zeros;

pub use checksum::{CHECKSUM_KINDS, ChecksumKind};
pub use compose::Contents;
pub use error::{LayoutError, LayoutFault};
pub use plan::Plan;
pub use specification::{
    Checksum, Clock, Counts, End, Frame, Layout, Length, Number, Pattern, Pieces, Place, Size, Source, Status,
};

/// The longest frame that can be allowed, in bytes.
pub const MOST_FRAME_BYTES: u32 = 1 << 30;
/// The most bytes of a sync word, a delimiter or a pattern.
pub const MOST_PATTERN_BYTES: usize = 8;
/// The most fields that are put together to one number.
pub const MOST_PARTS: usize = 4;
