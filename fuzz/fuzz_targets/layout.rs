//! A front end that sends anything, in any layout: see `ropewalk_fuzz::machines::layout`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::layout(bytes));
