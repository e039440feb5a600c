//! Chunks to subscribers that come, read or do not, and go: see `ropewalk_sim::inputs::router`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_sim::inputs::router(bytes));
