//! Whole runs on a simulated network and a simulated disk: the node's drives as they are, one virtual clock, one
//! seed, no thread. What happens follows from the seed, so that a run that fails can be taken again.
//!
//! ```text
//! front_end  a source that sends what its seed says, and nothing else
//! world      the nodes of a run, the clock that turns them, and what can be done to them
//! referee    what the simulated files hold, byte by byte, against what the sources sent
//! quiet      nothing goes wrong; network, storage, builders, takeover, coordination: what goes wrong
//! filtering  where a filter sees what was received; filter_units: processes and nodes that decide, and die and lie
//! controlled front ends under run control, which are slow, deaf, cut off and killed
//! limits     what limits a run, and whether it is named
//! memory     blocks that are held by little; strangers: connections that are no source's
//! stand      one readout unit with boards; splitters: its frames are divided in other processes, which die and lie
//! streams    run files of several streams; event_files: files for filter units; while disks fail and processes die
//! ```

mod builders;
mod controlled;
mod coordination;
mod event_files;
mod filter_units;
mod filtering;
mod front_end;
mod limits;
mod memory;
mod network;
mod quiet;
mod referee;
mod splitters;
mod stand;
mod storage;
mod strangers;
mod streams;
mod takeover;
mod world;

/// As many seeds as every test run looks through. `ROPEWALK_INPUTS` sets another number, for a longer look by hand.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("ROPEWALK_INPUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// An error with these words unless something holds.
pub(crate) fn unless(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}
