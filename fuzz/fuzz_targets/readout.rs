//! A readout unit among strangers: see `ropewalk_fuzz::machines::readout`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::machines::readout(bytes));
