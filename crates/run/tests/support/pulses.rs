//! The pulses of the real boards of a neutron source, as the events of a run hold them.

use ropewalk_tools::RunIndex;
use std::path::Path;

/// The pulse of each event, in the run's order: two words that every board puts at the same place of its packets. Each event
/// must hold one packet of two boards.
pub(crate) fn ess_pulses(run: &Path) -> Vec<[u32; 2]> {
    let index = RunIndex::build(&[run]).expect("the files are whole");
    let (mut reader, mut pulses) = (index.reader(), Vec::new());
    while let Some(event) = reader.next_event().expect("it can be read") {
        let pulse =
            |bytes: &[u8]| [10, 14].map(|at| u32::from_le_bytes(*bytes[at..].first_chunk().expect("a whole head")));
        let both: Vec<_> = event.event.fragments().map(|fragment| pulse(fragment.payload)).collect();
        assert!(both.len() == 2 && both[0] == both[1], "{both:?}");
        pulses.push(both[0]);
    }
    pulses
}
