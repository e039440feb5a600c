//! What the mechanisms of this crate must do: one suite for each interface, over everything that implements it, and what
//! only one mechanism has. One binary, because linking costs more than most of these tests; `allocation` is apart, because
//! its allocator counts for a whole process.

mod conformance;
mod disk;
mod io_uring;
mod layer;
mod limits;
mod packets;
mod stack;
