//! What targets share: the drivers of machines, which are tests of `flow` as well.

#[path = "../../crates/flow/tests/inputs/machines/mod.rs"]
pub mod machines;
