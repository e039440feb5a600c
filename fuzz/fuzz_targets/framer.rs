//! A front end that sends anything, cut anywhere: see `ropewalk_fuzz::machines::framer`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::framer(bytes));
