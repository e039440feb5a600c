//! What targets share: the drivers of machines, which are tests of `flow` as well, and the readers of texts, which are tests of `sim`.

#[path = "../../crates/flow/tests/inputs/machines/mod.rs"]
pub mod machines;

#[path = "../../crates/sim/tests/campaigns/texts.rs"]
pub mod texts;
