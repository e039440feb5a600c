//! A builder unit among strangers: see `ropewalk_fuzz::machines::builder`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::builder(bytes));
