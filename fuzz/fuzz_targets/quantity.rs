//! Lines as sizes, times, rates, distributions and names: refused, or usable: see `ropewalk_fuzz::texts::quantity`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ropewalk_fuzz::texts::quantity(bytes));
