//! Front ends that say anything to run control: see `ropewalk_fuzz::machines::front_ends`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::front_ends(bytes));
