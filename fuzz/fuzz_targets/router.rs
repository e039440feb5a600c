//! Chunks to subscribers that come, read or do not, and go: see `ropewalk_fuzz::machines::router`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::router(bytes));
