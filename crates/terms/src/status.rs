//! The exit status: one function from what was found to a number, with its reasons.
//!
//! A command counts [`Fact`]s while it works and asks [`Facts::status`] at its end. The table in `docs/cli.md` is this
//! list, line by line.

use schemars::JsonSchema_repr;

/// Which question a command answers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Did everything arrive where it belongs? `run`, `convert`, `replay`: damage in the input is a loss.
    Taken,
    /// Are these bytes right? `verify`, `source test`: damage in the input is the answer "no".
    Checked,
}

/// The exit status of a command that came to its end.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema_repr)]
#[repr(u8)]
pub enum Status {
    /// Nothing was lost, misplaced or doubtful.
    Good = 0,
    /// The ledger does not balance, or files do not hold what they should.
    Wrong = 1,
    /// Something was lost, misplaced or is doubtful; the account names it.
    Lost = 3,
    /// The stop was forced.
    Forced = 130,
}

impl Status {
    /// Which one a command ends with where two apply.
    const fn rank(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Lost => 1,
            Self::Wrong => 2,
            Self::Forced => 3,
        }
    }
}

macro_rules! facts {
    ($($(#[doc = $help:literal])* $name:ident = $text:literal, $taken:ident, $checked:ident;)*) => {
        /// Something that a command found, and that its exit status depends on, or deliberately does not.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Fact { $($(#[doc = $help])* $name),* }

        /// Every fact, in the order in which reasons are printed.
        pub const FACTS: &[Fact] = &[$(Fact::$name),*];

        impl Fact {
            /// How many facts there are.
            pub const COUNT: usize = FACTS.len();

            /// The stable name, in snake case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The help text.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => concat!($($help),*)),* }
            }

            /// The status that it leads to if nothing worse was found.
            pub const fn status(self, asked: Asked) -> Status {
                let (taken, checked) = match self { $(Self::$name => (Status::$taken, Status::$checked)),* };
                match asked {
                    Asked::Taken => taken,
                    Asked::Checked => checked,
                }
            }
        }
    };
}

facts! {
    /// The stop was forced.
    Forced = "forced", Forced, Forced;
    /// Equations of the ledger that do not hold, or threads that stopped with an error (panic): an error in Ropewalk.
    Unbalanced = "unbalanced", Wrong, Wrong;
    /// Nodes whose last numbers are unknown: the account is partial.
    Partial = "partial", Lost, Lost;
    /// Inputs without any data, and required sources that sent nothing in a whole run; connected ones only where others
    /// sent.
    Nothing = "nothing", Lost, Wrong;
    /// Fragments that came after their event was finished.
    Late = "late", Lost, Lost;
    /// Fragments or frames of an event that had one of this source already: one of the two is misplaced, or sent twice.
    Duplicate = "duplicate", Lost, Lost;
    /// Fragments without a usable number.
    Corrupt = "corrupt", Lost, Lost;
    /// Fragments with a number before the first event, which came when the run had begun: left-overs, or `first` is
    /// wrong.
    Stale = "stale", Lost, Lost;
    /// Fragments that were dropped, for any cause but `masked`.
    Dropped = "dropped", Lost, Lost;
    /// Fragments that never came though their event needs them.
    Missing = "missing", Lost, Lost;
    /// Fragments that were neither stored nor dropped when the run ended.
    InFlight = "in_flight", Lost, Lost;
    /// Fragments whose own checksum is wrong; of verified files also records.
    CrcErrors = "crc_errors", Lost, Wrong;
    /// Fragments whose header or trailer is not what the format demands; of verified files also records.
    Malformed = "malformed", Lost, Wrong;
    /// Fragments that name another source than the connection they came over: look for exchanged cables.
    WrongSource = "wrong_source", Lost, Lost;
    /// Fragments whose stated length is not the length that arrived.
    LengthMismatch = "length_mismatch", Lost, Lost;
    /// Fragments whose bunch crossing differs from that of most fragments of their event.
    BunchCrossingMismatch = "bunch_crossing_mismatch", Lost, Lost;
    /// Fragments of a source while it was displaced against the reference source.
    Displaced = "displaced", Lost, Lost;
    /// Fragments with an error reported by the front end itself.
    StatusError = "status_error", Lost, Lost;
    /// Fragments of which some frames did not come.
    FragmentIncomplete = "fragment_incomplete", Lost, Lost;
    /// Sources that were displaced against the reference source, or lost it, when the run ended.
    Synchrony = "synchrony", Lost, Lost;
    /// Frames that the sources' own numbers show to be lost.
    FramesMissing = "frames_missing", Lost, Lost;
    /// Frames of which only some pieces came.
    FramesUnfinished = "frames_unfinished", Lost, Lost;
    /// Times at which a source started counting anew: a run finds its place again, or counts what it drops.
    Restarts = "restarts", Good, Lost;
    /// Times of a clock that often goes backward, so that its byte order, width or place is wrong.
    ClockBackward = "clock_backward", Lost, Lost;
    /// Frames that came twice or overtook each other: a run sorts them, or counts what it could not place as late.
    OutOfOrder = "out_of_order", Good, Lost;
    /// Bytes that belong to no frame.
    GarbageBytes = "garbage_bytes", Lost, Wrong;
    /// Bytes at the end of a file that are no whole frame.
    LeftOverBytes = "left_over_bytes", Lost, Wrong;
    /// Inputs that break off: a capture that ends within a packet, a packed file that is cut off or damaged.
    InputsCutOff = "inputs_cut_off", Lost, Lost;
    /// Packets of a capture that cannot be read: kept only in part, damaged, or with wrong lengths or checksums.
    PacketsUnreadable = "packets_unreadable", Lost, Lost;
    /// Inputs of which nothing could be read.
    InputsUnread = "inputs_unread", Lost, Lost;
    /// Frames that contradict themselves or each other.
    Faults = "faults", Lost, Wrong;
    /// Frames that could not be converted.
    LeftOut = "left_out", Lost, Lost;
    /// Events whose data cannot be divided into fragments: each is stored in one piece.
    Undivided = "undivided", Lost, Lost;
    /// Datagrams that were lost before they could be taken.
    DatagramsLost = "datagrams_lost", Lost, Lost;
    /// Datagrams of which some IP fragments are missing.
    DatagramsUnfinished = "datagrams_unfinished", Lost, Lost;
    /// Bytes of connections that a capture misses, and those around them that belong to no whole frame.
    MissedBytes = "missed_bytes", Lost, Lost;
    /// Blocks of link cards that are damaged from the beginning, so that none of their data were used.
    CardBlocksDamaged = "card_blocks_damaged", Lost, Lost;
    /// Blocks that the numbers of a card's e-links show to be missing.
    CardBlocksMissing = "card_blocks_missing", Lost, Lost;
    /// Chunks of link cards of which only some pieces came.
    CardChunksGivenUp = "card_chunks_given_up", Lost, Lost;
    /// Bytes at a card's end that are no whole block.
    CardBytesLeftOver = "card_bytes_left_over", Lost, Lost;
    /// Events that lack a required source, and were kept.
    Incomplete = "incomplete", Lost, Lost;
    /// Stored events with a fragment whose content is in doubt; the flags say why.
    Doubtful = "doubtful", Lost, Lost;
    /// Events that were dropped as a whole, for any cause.
    EventsDropped = "events_dropped", Lost, Lost;
    /// Events that were assigned and neither built nor dropped when the run ended.
    EventsInFlight = "events_in_flight", Lost, Lost;
    /// Events that were to be written and are in no file.
    Unwritten = "unwritten", Lost, Lost;
    /// Events that could not be written to one of their streams.
    StreamFailed = "stream_failed", Lost, Lost;
    /// Events on which no node of a farm decided in time.
    DecidedByDefault = "decided_by_default", Lost, Lost;
    /// Events of ordered streams that were written after later ones.
    EventsOutOfOrder = "events_out_of_order", Lost, Lost;
    /// Events in files that were deleted or moved during the run.
    EventsGone = "events_gone", Lost, Lost;
    /// Files of events that no filter unit could work on.
    FilesSetAside = "files_set_aside", Lost, Lost;
    /// Filter units that failed too often and were not restarted.
    FiltersGivenUp = "filters_given_up", Lost, Lost;
    /// Accepted triggers that became no event.
    TriggersWithoutEvent = "triggers_without_event", Lost, Lost;
    /// Event numbers missing between the first and the last, if no stream takes a selection.
    MissingKeys = "missing_keys", Lost, Lost;
    /// Bytes of run files that belong to no readable record.
    DamagedBytes = "damaged_bytes", Lost, Wrong;
    /// Closed run files whose index is missing or wrong.
    WrongFooters = "wrong_footers", Lost, Wrong;
    /// Run files that were never closed.
    UnfinishedSegments = "unfinished_segments", Lost, Wrong;
    /// Events on which no filter decided: all of them are kept, in the stream of errors.
    Quarantined = "quarantined", Good, Good;
    /// Fragments that came before the run began.
    BeforeStart = "before_start", Good, Good;
    /// Fragments of events after the last event of the run.
    AfterStop = "after_stop", Good, Good;
    /// Fragments of sources that were masked.
    Masked = "masked", Good, Good;
    /// Datagrams from senders that are no source.
    DatagramsNobodys = "datagrams_nobodys", Good, Good;
    /// Bytes that a format puts between frames.
    FillerBytes = "filler_bytes", Good, Good;
    /// Events that a filter rejected, or that a prescale left out.
    Rejected = "rejected", Good, Good;
    /// Events in run files that were deleted to stay within `keep`.
    KeptNewest = "kept_newest", Good, Good;
    /// Details of events that were not converted because the new format has no place for them; the output names them.
    NotCarried = "not_carried", Good, Good;
    /// Further copies of events in the same stream, written because a builder unit died.
    SecondCopies = "second_copies", Good, Good;
}

impl Fact {
    /// The unit of the count, in the plural, if that is fragments or events; otherwise empty.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Late
            | Self::Duplicate
            | Self::Corrupt
            | Self::Stale
            | Self::Dropped
            | Self::Missing
            | Self::InFlight => "fragments",
            Self::CrcErrors | Self::Malformed | Self::WrongSource | Self::LengthMismatch | Self::StatusError => {
                "fragments"
            }
            Self::BunchCrossingMismatch | Self::Displaced | Self::FragmentIncomplete => "fragments",
            Self::Incomplete | Self::Doubtful | Self::EventsInFlight | Self::Unwritten => "events",
            Self::Nothing => "sources",
            _ => "",
        }
    }

    /// The fact with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        FACTS.iter().copied().find(|fact| fact.name() == name)
    }
}

/// The count of each fact.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Facts([u64; Fact::COUNT]);

impl Default for Facts {
    fn default() -> Self {
        Self([0; Fact::COUNT])
    }
}

impl Facts {
    /// Counts `count` more of a fact.
    pub const fn add(&mut self, fact: Fact, count: u64) {
        self.0[fact as usize] = self.0[fact as usize].saturating_add(count);
    }

    /// The same facts and these.
    #[must_use]
    pub fn with(mut self, more: impl IntoIterator<Item = (Fact, u64)>) -> Self {
        more.into_iter().for_each(|(fact, count)| self.add(fact, count));
        self
    }

    /// The same facts and those of another account.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        self.with(other.found())
    }

    /// The count of a fact.
    pub const fn get(&self, fact: Fact) -> u64 {
        self.0[fact as usize]
    }

    /// The exit status.
    pub fn status(&self, asked: Asked) -> Status {
        let statuses = self.found().map(|(fact, _)| fact.status(asked));
        statuses.max_by_key(|status| status.rank()).unwrap_or(Status::Good)
    }

    /// Why the status is not 0: each fact that leads to another one, with its count.
    pub fn reasons(&self, asked: Asked) -> impl Iterator<Item = (Fact, u64)> + '_ {
        self.found().filter(move |(fact, _)| fact.status(asked) != Status::Good)
    }

    fn found(&self) -> impl Iterator<Item = (Fact, u64)> + '_ {
        FACTS.iter().map(|&fact| (fact, self.get(fact))).filter(|&(_, count)| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_0_only_where_nothing_was_lost_misplaced_or_doubtful() {
        assert_eq!(Facts::default().status(Asked::Taken), Status::Good);
        let harmless = Facts::default().with([(Fact::AfterStop, 9), (Fact::Masked, 9), (Fact::SecondCopies, 1)]);
        assert_eq!((harmless.status(Asked::Taken), harmless.reasons(Asked::Taken).count()), (Status::Good, 0));
        for &fact in FACTS {
            let found = Facts::default().with([(fact, 1)]);
            assert_eq!(found.status(Asked::Taken), fact.status(Asked::Taken), "{}", fact.name());
            assert_eq!(found.status(Asked::Checked), fact.status(Asked::Checked), "{}", fact.name());
            // The two questions differ only if a run repairs what it finds, or counts as lost what it cannot repair.
            let is_good = |asked| fact.status(asked) == Status::Good;
            let is_repaired = matches!(fact, Fact::OutOfOrder | Fact::Restarts);
            assert!(is_good(Asked::Taken) == is_good(Asked::Checked) || is_repaired, "{}", fact.name());
        }
    }

    #[test]
    fn the_worst_fact_decides_and_all_are_reasons() {
        let mut facts = Facts::default().with([(Fact::Late, 2), (Fact::AfterStop, 5)]);
        assert_eq!(facts.status(Asked::Taken), Status::Lost);
        facts.add(Fact::Unbalanced, 1);
        assert_eq!(facts.status(Asked::Taken), Status::Wrong);
        assert_eq!(facts.reasons(Asked::Taken).collect::<Vec<_>>(), [(Fact::Unbalanced, 1), (Fact::Late, 2)]);
        facts.add(Fact::Forced, 1);
        assert_eq!(facts.status(Asked::Taken) as u8, 130);
    }

    #[test]
    fn a_wrong_checksum_is_a_doubt_in_a_run_and_damage_in_a_verified_file() {
        let facts = Facts::default().with([(Fact::CrcErrors, 1)]);
        assert_eq!((facts.status(Asked::Taken), facts.status(Asked::Checked)), (Status::Lost, Status::Wrong));
    }

    #[test]
    fn names_are_unique_and_go_there_and_back() {
        for (index, &fact) in FACTS.iter().enumerate() {
            assert_eq!(fact as usize, index);
            assert_eq!(Fact::from_name(fact.name()), Some(fact));
            assert!(!fact.help().is_empty());
        }
    }
}
