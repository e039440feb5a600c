//! Causes: the names of everything that can be lost, refused or flagged.

macro_rules! causes {
    ($($(#[doc = $help:literal])* $name:ident = $text:literal),* $(,)?) => {
        /// Why a fragment, an event or a piece of either was lost, refused or flagged.
        ///
        /// Small and `Copy`, so that the hot path can count it. The name of each is stable: it is used in
        /// summaries, run records and metrics.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Cause { $($(#[doc = $help])* $name),* }

        /// Every cause, in the order of their numbers.
        pub const CAUSES: &[Cause] = &[$(Cause::$name),*];

        impl Cause {
            /// How many causes there are.
            pub const COUNT: usize = CAUSES.len();

            /// The stable name, in snake case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// What it means, for people.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => concat!($($help),*)),* }
            }
        }
    };
}

causes! {
    /// The fragment's own checksum does not match its bytes.
    CrcError = "crc_error",
    /// The fragment names another source than the connection it came over.
    WrongSource = "wrong_source",
    /// The length that the header or trailer states is not the length that arrived.
    LengthMismatch = "length_mismatch",
    /// Header or trailer are not what the format demands.
    Malformed = "malformed",
    /// The boundary of the next fragment cannot be found; the connection is closed.
    FramingLost = "framing_lost",
    /// The fragment claims to be longer than the configured maximum.
    Oversize = "oversize",
    /// The event number jumped further than the plausibility window allows.
    ImplausibleJump = "implausible_jump",
    /// The source's counter disagrees with the run and no resynchronisation was declared.
    OutOfSync = "out_of_sync",
    /// A fragment of this source for this event was there already.
    Duplicate = "duplicate",
    /// The event was finished before this fragment came.
    Late = "late",
    /// The fragment is from before the run's start.
    Stale = "stale",
    /// The fragment is from after the run's last event.
    AfterStop = "after_stop",
    /// The source is masked.
    Masked = "masked",
    /// The source continued with a later event: this one will not come any more.
    Skipped = "skipped",
    /// The source said nothing for the configured time.
    TimedOut = "timed_out",
    /// The source's connection ended.
    Disconnected = "disconnected",
    /// The connection ended in the middle of this fragment.
    CutShort = "cut_short",
    /// Bunch crossings of the event's fragments disagree.
    BunchCrossingMismatch = "bunch_crossing_mismatch",
    /// The source's events are displaced against the reference source.
    SynchronyOffset = "synchrony_offset",
    /// The source's events no longer have a fixed offset from the reference source.
    SynchronyLost = "synchrony_lost",
    /// The trigger source never opened this event.
    NoTrigger = "no_trigger",
    /// The readout unit was asked for an event that it does not hold.
    NotHeld = "not_held",
    /// The readout unit that held the fragments died.
    ReadoutLost = "readout_lost",
    /// The builder unit that had the event died.
    BuilderLost = "builder_lost",
    /// The configured policy drops incomplete events.
    IncompletePolicy = "incomplete_policy",
    /// The run was stopped by force before the event was done.
    ForcedStop = "forced_stop",
    /// Draining took longer than the configured time.
    DrainTimedOut = "drain_timed_out",
    /// The disk refused the record.
    WriteFailed = "write_failed",
    /// The message came from an event manager whose epoch is over.
    OldEpoch = "old_epoch",
    /// The message came from an earlier life of the node or an earlier attempt.
    OldIncarnation = "old_incarnation",
    /// The segment was deleted to stay within the configured room (`--keep`).
    KeptNewest = "kept_newest",
    /// The receiver was too slow, and its queue had no room.
    QueueFull = "queue_full",
    /// The packet came while the receiving socket's queue was full: the receiver was too slow.
    SocketQueueFull = "socket_queue_full",
    /// The packet came while the packet ring had no free place: the receiver was too slow.
    RingFull = "ring_full",
    /// The packet came while the kernel had no frame to put it into: too many are held.
    NoFrame = "no_frame",
    /// The packet was longer than the room that was given to it.
    Truncated = "truncated",
    /// Some of the packet's IP fragments did not come in time.
    NotReassembled = "not_reassembled",
    /// A checksum of IP or UDP does not fit the packet.
    BadChecksum = "bad_checksum",
    /// The network card or its driver dropped packets, of any flow.
    InterfaceDropped = "interface_dropped",
    /// The packet came from an address that is not a configured source.
    UnknownSource = "unknown_source",
    /// The packet has another number of events than configured.
    WrongPacking = "wrong_packing",
    /// The packet belongs to another partition.
    WrongPartition = "wrong_partition",
    /// The packet ends before its header does.
    ShortPacket = "short_packet",
    /// The packet's first event does not begin a set of events.
    Misaligned = "misaligned",
    /// More sets of events were begun than are kept in assembly: the oldest was closed.
    CrowdedOut = "crowded_out",
    /// Bytes that were no frame were passed over until the next one was found: at least one was lost in them.
    SyncLost = "sync_lost",
    /// The frame does not have the bytes that all frames of the source have.
    NotMatched = "not_matched",
    /// Some of the datagrams in which the frame is sent did not come in time, or do not fit together.
    PiecesMissing = "pieces_missing",
    /// The splitter that should divide the frame crashed over it, hung, said what cannot be true, or is given up.
    SplitterFailed = "splitter_failed",
    /// Filter units crashed or hung over the event, or gave impossible answers, twice, or none is started any more; the
    /// event is kept in the stream of errors.
    FilterFailed = "filter_failed",
    /// The event has more bytes than a record can have (1 GiB in a run file, 4 GiB in a file for filter units): it is
    /// dropped, and the run continues.
    TooLarge = "too_large",
    /// The event was built without what this readout unit has of it, which did not answer the builder unit in time. It
    /// came here, and is in no record.
    BuiltWithout = "built_without",
    /// The event ended so long ago that the event manager no longer knows its outcome: the fragment may be in its
    /// record.
    OutcomeUnknown = "outcome_unknown",
}

impl Cause {
    /// The cause with this number, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT { Some(CAUSES[number as usize]) } else { None }
    }

    /// The cause with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        CAUSES.iter().copied().find(|cause| cause.name() == name)
    }
}

impl core::fmt::Display for Cause {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_go_there_and_back() {
        for (index, &cause) in CAUSES.iter().enumerate() {
            assert_eq!(cause as usize, index);
            assert_eq!(Cause::from_u8(index as u8), Some(cause));
            assert_eq!(Cause::from_name(cause.name()), Some(cause));
            assert!(cause.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert!(!cause.help().is_empty());
        }
        assert_eq!(Cause::from_u8(CAUSES.len() as u8), None);
    }
}
