//! What a filter's process writes to the memory that it shares: see `ropewalk_plugin::filter::process::hear`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_plugin::filter::process::hear(bytes));
