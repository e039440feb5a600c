//! Rules for the mechanisms of this crate: one suite for each interface, over everything that implements it, and rules
//! for single mechanisms. One binary, because linking costs more than most of these tests; `allocation` is separate,
//! because its allocator counts for a whole process.

mod conformance;
mod disk;
mod io_uring;
mod layer;
mod limits;
mod packets;
mod stack;
