//! Peers that send anything, looked at: see `ropewalk_fuzz::machines::sniff`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::sniff(bytes));
