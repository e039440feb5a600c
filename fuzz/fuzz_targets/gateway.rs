//! A gateway under random messages of sources and nodes: see `ropewalk_fuzz::machines::gateway`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::gateway(bytes));
