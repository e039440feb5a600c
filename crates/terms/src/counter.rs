//! The one list of counters: every room counts into it, every reader names from it.

/// What a counter counts in.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// Pieces: fragments, events, messages.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
}

impl Unit {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Nanoseconds => "nanoseconds",
        }
    }
}

macro_rules! counters {
    ($($(#[doc = $help:literal])* $name:ident = $text:literal, $unit:ident;)*) => {
        /// What is counted. Cumulative since the start of the node's run; the names are stable.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Counter { $($(#[doc = $help])* $name),* }

        /// Every counter, in the order of their numbers.
        pub const COUNTERS: &[Counter] = &[$(Counter::$name),*];

        impl Counter {
            /// How many counters there are.
            pub const COUNT: usize = COUNTERS.len();

            /// The stable name, in snake case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// What it counts, for people.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => concat!($($help),*)),* }
            }

            /// What it counts in.
            pub const fn unit(self) -> Unit {
                match self { $(Self::$name => Unit::$unit),* }
            }
        }
    };
}

counters! {
    /// Bytes taken from sockets, framing included.
    WireBytesReceived = "wire_bytes_received", Bytes;
    /// Bytes of fragments received, without transport framing.
    PayloadBytesReceived = "payload_bytes_received", Bytes;
    /// Fragments whose end was found.
    FragmentsReceived = "fragments_received", Count;
    /// Fragments that ended in complete events.
    FragmentsComplete = "fragments_in_complete_events", Count;
    /// Fragments that ended in incomplete events.
    FragmentsIncomplete = "fragments_in_incomplete_events", Count;
    /// Fragments that were there already.
    FragmentsDuplicate = "fragments_duplicate", Count;
    /// Fragments that came after their event was finished.
    FragmentsLate = "fragments_late", Count;
    /// Fragments without a usable identity.
    FragmentsCorrupt = "fragments_corrupt", Count;
    /// Fragments of before the run's start.
    FragmentsStale = "fragments_stale", Count;
    /// Of the stale fragments, those that came before the run began.
    FragmentsBeforeStart = "fragments_before_start", Count;
    /// Fragments of after the run's last event.
    FragmentsAfterStop = "fragments_after_stop", Count;
    /// Fragments held by the readout unit now.
    FragmentsInFlight = "fragments_in_flight", Count;
    /// Fragments whose checksum was wrong.
    CrcErrors = "crc_errors", Count;
    /// Bytes that user space copied on the way (evacuation, straddling headers, staging).
    BytesCopied = "bytes_copied", Bytes;
    /// Events assigned to builder units, the first attempt only.
    EventsAssigned = "events_assigned", Count;
    /// Events assigned again after a builder unit died.
    EventsReassigned = "events_reassigned", Count;
    /// Events built complete.
    EventsBuilt = "events_built", Count;
    /// Incomplete events that were kept.
    EventsIncompleteEmitted = "events_incomplete_emitted", Count;
    /// Events accepted.
    EventsAccepted = "events_accepted", Count;
    /// Events rejected.
    EventsRejected = "events_rejected", Count;
    /// Events put into quarantine.
    EventsQuarantined = "events_quarantined", Count;
    /// Event records written to files.
    EventsWritten = "events_written", Count;
    /// Events assigned and not finished now.
    EventsInFlight = "events_in_flight", Count;
    /// Bytes written to run files.
    BytesWritten = "bytes_written", Bytes;
    /// Run files closed.
    SegmentsClosed = "segments_closed", Count;
    /// Run files deleted to stay within the configured room.
    SegmentsDeleted = "segments_deleted", Count;
    /// Events in deleted run files.
    EventsDeleted = "events_deleted", Count;
    /// Bytes of deleted run files.
    BytesDeleted = "bytes_deleted", Bytes;
    /// Run files that were deleted or moved while they were written, and that were written once more.
    FilesRestored = "files_restored", Count;
    /// Events that were written, in run files that were deleted.
    EventsGone = "events_gone", Count;
    /// Writers that wait because the disk is full.
    DiskFull = "disk_full", Count;
    /// Pieces of work that a disk refused, for whatever reason; each is offered again.
    DiskRefusals = "disk_refusals", Count;
    /// Why a node's disk refuses what is written, other than for lack of room: the operating system's number of the
    /// error (errno), 0 for none. Of each node alone: a sum means nothing.
    DiskFailing = "disk_failing", Count;
    /// Connections that sources opened.
    SourceConnections = "source_connections", Count;
    /// Connections that ended.
    SourceDisconnections = "source_disconnections", Count;
    /// Connections closed because their bytes made no sense, or because they claimed the name of a node that is connected and works.
    ConnectionsRefused = "connections_refused", Count;
    /// Bytes thrown away because no fragment could be found in them.
    GarbageBytes = "garbage_bytes", Bytes;
    /// Bytes that a format puts between frames, and that are no data.
    FillerBytes = "filler_bytes", Bytes;
    /// Blocks lent by the pool.
    PoolLoans = "pool_loans", Count;
    /// Blocks that came back to the pool.
    PoolReturns = "pool_returns", Count;
    /// Blocks held now.
    PoolHeld = "pool_held", Count;
    /// Blocks in the pool.
    PoolBlocks = "pool_blocks", Count;
    /// Time a source was not read because buffers or the window were full.
    BackPressureTime = "back_pressure_time", Nanoseconds;
    /// Messages refused because of an old epoch or incarnation.
    MessagesRefused = "messages_refused", Count;
    /// Blocks that link cards wrote, good and bad.
    CardBlocks = "card_blocks", Count;
    /// Blocks of which nothing could be believed.
    CardBlocksDamaged = "card_blocks_damaged", Count;
    /// Blocks that their e-links' sequence numbers show to be missing.
    CardBlocksMissing = "card_blocks_missing", Count;
    /// Chunks that came whole.
    CardChunks = "card_chunks", Count;
    /// Chunks of which a piece came, and that were given up.
    CardChunksGivenUp = "card_chunks_given_up", Count;
    /// Flags that cards gave to chunks: an error, a wrong checksum, cut short, timed out, busy.
    CardChunksFlagged = "card_chunks_flagged", Count;
    /// Chunks of e-links that are no source.
    CardChunksNobodys = "card_chunks_nobodys", Count;
    /// Signals beside the data.
    CardSignals = "card_signals", Count;
    /// How often a card was found without room.
    CardStalls = "card_stalls", Count;
    /// Bytes at a card's end that are no whole block.
    CardBytesLeftOver = "card_bytes_left_over", Bytes;
    /// Subscribers of e-links that came.
    SubscribersJoined = "subscribers_joined", Count;
    /// Chunks that were meant for a subscriber, once for each.
    ChunksOffered = "chunks_offered", Count;
    /// Chunks that were sent to a subscriber.
    ChunksSent = "chunks_sent", Count;
    /// Chunks for which a subscriber had no room, or that nobody took over when it went.
    ChunksDropped = "chunks_dropped", Count;
    /// Chunks that others of its group took over when a subscriber went.
    ChunksMoved = "chunks_moved", Count;
    /// Chunks that wait for a subscriber now.
    ChunksQueued = "chunks_queued", Count;
    /// Bytes that were copied for subscribers that may lose chunks.
    ChunkBytesCopied = "chunk_bytes_copied", Bytes;
    /// Messages to e-links of link cards that were refused, because there is no down-link or no room in it.
    DownLinkRefused = "down_link_refused", Count;
    /// Frames that their sources' own numbering shows to be lost.
    FramesMissing = "frames_missing", Count;
    /// Frames whose own number is the last one or lies behind it: they came twice, or in another order.
    FramesOutOfOrder = "frames_out_of_order", Count;
    /// Datagrams that the kernel, or what receives them, is known to have lost.
    DatagramsLost = "datagrams_lost", Count;
    /// Datagrams of senders that are no source.
    DatagramsNobodys = "datagrams_nobodys", Count;
    /// Frames that fell apart into the fragments of several events.
    FramesDivided = "frames_divided", Count;
    /// Frames that went on with the fragment of the frame before them.
    FramesGathered = "frames_gathered", Count;
    /// Processes of splitters that were started in the place of one that crashed, hung or was not to be believed.
    SplitterRestarts = "splitter_restarts", Count;
    /// Fragments in events that were dropped as a whole.
    FragmentsInDroppedEvents = "fragments_in_dropped_events", Count;
    /// Accepted events that no stream took: their prescales left them out.
    EventsUnselected = "events_unselected", Count;
    /// Events of which no decision could be had.
    FilterFailures = "filter_failures", Count;
    /// Events that a filter unit had when it ended, and that went to another one.
    FilterReturned = "filter_returned", Count;
    /// Decisions of filter units on what they did not have: ignored.
    FilterStaleDecisions = "filter_stale_decisions", Count;
    /// Filter units that were started in the place of one that crashed, hung or was not to be believed.
    FilterRestarts = "filter_restarts", Count;
    /// Filter units that ended too often, so that none is started in their place.
    FilterUnitsGivenUp = "filter_units_given_up", Count;
    /// Bytes of events that were copied for filters.
    FilterBytesCopied = "filter_bytes_copied", Bytes;
    /// Events of ordered streams that were assigned after later ones had been written: their builder unit had died.
    EventsOutOfOrder = "events_out_of_order", Count;
    /// Events that a stream was to have.
    StreamSelected = "stream_selected", Count;
    /// Events that a stream's prescale left out.
    StreamPrescaledAway = "stream_prescaled_away", Count;
    /// Events in a stream's files.
    StreamWritten = "stream_written", Count;
    /// Events that could not be written to a stream.
    StreamFailed = "stream_failed", Count;
    /// Events on their way to a stream's files now.
    StreamInFlight = "stream_in_flight", Count;
    /// Time in which a builder unit's disk had something to write.
    DiskBusyTime = "disk_busy_time", Nanoseconds;
    /// Time in which built events waited because storage had no room for them.
    DiskWaitTime = "disk_wait_time", Nanoseconds;
    /// Time in which filter units had events to decide on, the sum over the units.
    FilterBusyTime = "filter_busy_time", Nanoseconds;
    /// Filter units that are there now.
    FilterUnits = "filter_units", Count;
    /// Time in which a builder unit had no room for further events.
    BuilderFullTime = "builder_full_time", Nanoseconds;
    /// Events that a builder unit may have in work.
    BuilderPlaces = "builder_places", Count;
    /// Time in which super-fragments waited because a builder unit's connection had not taken them yet.
    LinkWaitTime = "link_wait_time", Nanoseconds;
    /// Time in which a readout unit held settled events and nobody asked for one.
    RequestWaitTime = "request_wait_time", Nanoseconds;
    /// Time in which a node, or what shares its thread, had something to do.
    ThreadBusyTime = "thread_busy_time", Nanoseconds;
    /// Number of the latest event that a source has shown. Of each source alone: a sum means nothing.
    LastEventNumber = "last_event_number", Count;
    /// Time since something came of a source last, in its present connection or before. Of each source alone: a sum means
    /// nothing.
    SilentTime = "silent_time", Nanoseconds;
    /// Sources of which nothing more is expected now.
    SourcesEnded = "sources_ended", Count;
    /// 1 of a source that is masked, 2 of one that is to take part again and has not sent anything that goes on with the run's
    /// numbers. Of each source alone: a sum means nothing.
    SourceMasked = "source_masked", Count;
    /// Time in which an input queue of a gateway let no trigger come though some were wanted.
    ThrottleTime = "throttle_time", Nanoseconds;
    /// Of that, time in which too few sets of events were free: they wait for packets, nodes or decisions.
    ThrottleSetsTime = "throttle_sets_time", Nanoseconds;
    /// Of that, time in which too little of the memory was free that packets are received into.
    ThrottleMemoryTime = "throttle_memory_time", Nanoseconds;
    /// Of that, time in which too many packets waited to be received.
    ThrottleQueueTime = "throttle_queue_time", Nanoseconds;
    /// Of that, time in which no node of the farm was there.
    ThrottleErrorTime = "throttle_error_time", Nanoseconds;
    /// Sets of events that were finished without some of their packets.
    SetsIncomplete = "sets_incomplete", Count;
    /// Events on which nobody of the farm decided in time.
    DecidedByDefault = "decided_by_default", Count;
    /// Events that were sent to a node of the farm again.
    PushedAgain = "pushed_again", Count;
    /// Bytes that are free where a builder unit writes, on that of its disks with the least; asked once a second. Of each node alone: a sum
    /// means nothing.
    OutputRoom = "output_room", Bytes;
    /// Hellos in the name of a node that was connected and worked: refused.
    RivalHellos = "rival_hellos", Count;
    /// Times at which a multicast group was lost because its network card went away; it is joined again when a card is there.
    GroupsLost = "groups_lost", Count;
}

impl Counter {
    /// It says how much there is now, and may fall; every other counter only grows during a node's life.
    pub const fn is_level(self) -> bool {
        matches!(
            self,
            Self::FragmentsInFlight
                | Self::EventsInFlight
                | Self::PoolHeld
                | Self::PoolBlocks
                | Self::ChunksQueued
                | Self::StreamInFlight
                | Self::DiskFull
                | Self::DiskFailing
                | Self::FilterUnits
                | Self::BuilderPlaces
                | Self::LastEventNumber
                | Self::SilentTime
                | Self::SourcesEnded
                | Self::SourceMasked
                | Self::OutputRoom
        )
    }

    /// It says something of one node or source; a sum over several means nothing.
    pub const fn is_of_one(self) -> bool {
        matches!(
            self,
            Self::DiskFailing | Self::LastEventNumber | Self::SilentTime | Self::SourceMasked | Self::OutputRoom
        )
    }

    /// The counter with this number, if there is one.
    pub const fn from_u16(number: u16) -> Option<Self> {
        if (number as usize) < Self::COUNT { Some(COUNTERS[number as usize]) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_or_waits_now_is_a_level_and_what_happened_is_not() {
        let says_now = |counter: &Counter| counter.help().ends_with(" now.");
        for counter in COUNTERS.iter().filter(|counter| says_now(counter)) {
            assert!(counter.is_level(), "{}", counter.name());
        }
        assert!(Counter::PoolBlocks.is_level());
        assert!(!Counter::EventsBuilt.is_level());
        assert!(!Counter::BackPressureTime.is_level());
    }

    #[test]
    fn what_must_not_be_added_up_says_so() {
        for &counter in COUNTERS {
            assert_eq!(counter.is_of_one(), counter.help().contains("a sum means nothing"), "{}", counter.name());
        }
    }

    #[test]
    fn numbers_and_names_are_unique() {
        for (index, &counter) in COUNTERS.iter().enumerate() {
            assert_eq!(counter as usize, index);
            assert_eq!(Counter::from_u16(index as u16), Some(counter));
            assert_eq!(COUNTERS.iter().filter(|other| other.name() == counter.name()).count(), 1);
            assert!(!counter.help().is_empty());
        }
    }
}
