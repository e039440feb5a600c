//! Texts as configurations and sizing files: what is wrong has a place: see `ropewalk_fuzz::texts::configuration`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::texts::configuration(bytes));
