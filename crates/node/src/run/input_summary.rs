//! What was read of the files in the place of sources.

use crate::offline::foreign::{CutOff, HoleReport, Passed};
use crate::offline::{ByteOrigin, Packing};
use ropewalk_terms::{Fact, Facts};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// A file that was read in the place of a source.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InputSummary {
    /// The source, or the first of the sources that share it.
    pub source: String,
    /// Where it is.
    pub path: String,
    /// The bytes read.
    pub state: InputState,
    /// What is wrong, where it breaks off or is unreadable.
    pub why: Option<String>,
    /// How it is packed.
    pub packing: Packing,
    /// Whether it is a capture.
    pub is_capture: bool,
    /// Bytes that were read, unpacked.
    pub bytes: u64,
    /// Packets of a capture that were the source's.
    pub packets: u64,
    /// Packets of a capture that were none of the source, by the reason's name.
    pub aside: BTreeMap<&'static str, u64>,
    /// Unreadable packets of a capture: truncated, damaged, or with wrong lengths or checksums.
    pub unreadable_packets: u64,
    /// Places at which a capture misses bytes of the source's connection.
    pub holes: u64,
    /// How many bytes it misses there.
    pub missed_bytes: u64,
    /// Bytes around these places that belong to no whole frame.
    pub dropped_bytes: u64,
    /// The first of these places.
    pub first_holes: Vec<HoleReport>,
    /// Datagrams of a capture of which some IP fragments are missing.
    pub unfinished_datagrams: u64,
    #[serde(skip)]
    has_some: bool,
}

/// How far a file was read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputState {
    /// To its end.
    Read,
    /// Until the run was stopped.
    Stopped,
    /// Until it broke off.
    CutOff,
    /// Not at all.
    Unreadable,
}

impl InputSummary {
    /// What was read; `is_over`: the run was stopped before.
    pub(super) fn new(source: &str, origin: &ByteOrigin, read: &Result<Passed, String>, is_over: bool) -> Self {
        let (passed, failed) = match read {
            Ok(passed) => (passed.clone(), None),
            Err(error) => (Passed::default(), Some(error.clone())),
        };
        let state = match (&failed, &passed.cut_off) {
            (Some(_), _) => InputState::Unreadable,
            (None, Some(_)) => InputState::CutOff,
            (None, None) if is_over => InputState::Stopped,
            (None, None) => InputState::Read,
        };
        Self {
            source: source.to_owned(),
            path: origin.path().display().to_string(),
            state,
            has_some: passed.has_some(),
            unreadable_packets: passed.unreadable_packets(),
            why: failed.or(passed.cut_off.map(|CutOff { why, .. }| why)),
            packing: passed.packing,
            is_capture: passed.is_capture,
            bytes: passed.bytes,
            packets: passed.taken,
            aside: passed.aside,
            holes: passed.mended.holes,
            missed_bytes: passed.mended.missing_bytes,
            dropped_bytes: passed.mended.dropped_bytes,
            first_holes: HoleReport::all(&passed.mended),
            unfinished_datagrams: passed.unfinished_datagrams,
        }
    }

    /// What the exit status depends on. A file that several sources read counts once.
    pub(super) fn facts(inputs: &[Self]) -> Facts {
        let mut packets = BTreeMap::new();
        for input in inputs {
            let most = packets.entry(&input.path).or_insert((0, 0));
            *most = (most.0.max(input.unreadable_packets), most.1.max(input.unfinished_datagrams));
        }
        let count = |is: fn(&Self) -> bool| inputs.iter().filter(|input| is(input)).count() as u64;
        let sum = |of: fn(&Self) -> u64| inputs.iter().map(of).sum();
        Facts::default().with([
            (Fact::MissedBytes, sum(|input| input.missed_bytes + input.dropped_bytes)),
            (Fact::InputsCutOff, count(|input| input.state == InputState::CutOff)),
            (Fact::InputsUnread, count(|input| input.state == InputState::Unreadable)),
            (Fact::Nothing, count(|input| input.state == InputState::Read && !input.has_some)),
            (Fact::PacketsUnreadable, packets.values().map(|most| most.0).sum()),
            (Fact::DatagramsUnfinished, packets.values().map(|most| most.1).sum()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::{Asked, Status};
    use std::path::PathBuf;

    fn input(read: Result<Passed, String>, is_over: bool) -> InputSummary {
        InputSummary::new("board", &ByteOrigin::File(PathBuf::from("x.pcap")), &read, is_over)
    }

    fn read(taken: u64) -> Passed {
        Passed { is_capture: true, bytes: 100, taken, ..Passed::default() }
    }

    #[test]
    fn only_what_was_read_to_its_end_and_had_something_of_the_source_leaves_the_status_0() {
        let cut_off = Some(CutOff { bytes: 7, why: "it ends".to_owned() });
        for (input, fact) in [
            (input(Ok(read(3)), false), None),
            (input(Ok(read(3)), true), None),
            (input(Ok(read(0)), true), None),
            (input(Ok(read(0)), false), Some(Fact::Nothing)),
            (input(Ok(Passed { cut_off, ..read(3) }), false), Some(Fact::InputsCutOff)),
            (input(Err("no such file".to_owned()), false), Some(Fact::InputsUnread)),
            (input(Ok(Passed { damaged: 1, ..read(3) }), false), Some(Fact::PacketsUnreadable)),
            (input(Ok(Passed { unfinished_datagrams: 1, ..read(3) }), false), Some(Fact::DatagramsUnfinished)),
        ] {
            let facts = InputSummary::facts(std::slice::from_ref(&input));
            assert_eq!(facts.reasons(Asked::Taken).collect::<Vec<_>>(), Vec::from_iter(fact.map(|fact| (fact, 1))));
            let status = if fact.is_some() { Status::Lost } else { Status::Good };
            assert_eq!(facts.status(Asked::Taken), status, "{input:?}");
        }
    }

    #[test]
    fn what_several_sources_read_of_one_file_counts_once() {
        let both = [(); 2].map(|()| input(Ok(Passed { damaged: 2, ..read(1) }), false));
        assert_eq!(InputSummary::facts(&both).get(Fact::PacketsUnreadable), 2);
    }
}
