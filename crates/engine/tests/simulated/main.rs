//! A few drives of the engine on a simulated network and a simulated disk: one virtual clock, one seed, no thread.
//! Everything follows from the seed, so that a failed run can be repeated. `ropewalk-sim` simulates whole systems.
//!
//! ```text
//! filter_units  processes and nodes that decide, and crash, hang and lie
//! controlled    front ends under run control, which are slow, deaf, cut off and killed
//! stand         one readout unit with boards; splitters: other processes divide its frames, and die and lie
//! streams       run files of several streams; event_files: files for filter units; while disks fail and processes die
//! ```

mod controlled;
mod event_files;
mod filter_units;
mod splitters;
mod stand;
mod streams;

/// The number of seeds in each test. `ROPEWALK_INPUTS` sets another number, for longer runs by hand.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("ROPEWALK_INPUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// An error with this text unless `holds`.
pub(crate) fn unless(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}

/// A hash of three numbers.
pub(crate) fn mixed(seed: u64, one: u64, other: u64) -> u64 {
    let mut number = seed ^ one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other.wrapping_mul(0xd6e8_feb8_6659_fd93);
    for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        number = (number ^ (number >> 30)).wrapping_mul(factor);
    }
    number ^ (number >> 31)
}
