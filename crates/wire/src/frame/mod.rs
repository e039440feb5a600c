//! What the protocols here have in common: messages between nodes ([`message`](crate::message)), chunks for subscribers
//! ([`stream`](crate::stream)), and what gateways and their farm say ([`gateway`](crate::gateway)).
//!
//! ```text
//!  magic number | kind | length of the body | ...     kinds!: the kinds and their numbers; frame!: the shorter heads
//!  body: little-endian fields                         Reader, Writer: one after the other
//!  hello: version, name padded with zeros             name
//! ```
//! Whatever is wrong with one is a [`FrameError`].

mod error;
mod fields;
mod head;
mod kinds;
pub(crate) mod name;

pub use error::FrameError;
pub(crate) use fields::{Reader, Writer};
pub(crate) use head::frame;
pub(crate) use kinds::kinds;
pub use name::NAME_BYTES;
