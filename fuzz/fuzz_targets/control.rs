//! Run control under any order of commands and nodes: see `ropewalk_fuzz::machines::control`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::control(bytes));
