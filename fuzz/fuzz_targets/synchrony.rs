//! The watch over synchrony, told anything: see `ropewalk_fuzz::machines::synchrony`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::synchrony(bytes));
