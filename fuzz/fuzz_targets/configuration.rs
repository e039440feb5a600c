//! Texts as configurations and sizing files: what is wrong has a place: see `ropewalk_sim::inputs::configuration`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_sim::inputs::configuration(bytes));
