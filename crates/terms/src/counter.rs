//! The one list of counters: every crate counts into it, every reader takes names from it. [`SourceCounts`] is the part
//! that a source's account consists of.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

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

/// How a counter changes, and what its values of several nodes or sources mean together.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum CounterKind {
    /// Counts what happened: it only grows during a node's life. Values of several nodes add up.
    Total,
    /// A present amount, which may fall. Values of several nodes add up.
    Level,
    /// Says something of one node or source now. A sum over several means nothing.
    State,
}

/// Further places of a counter, beside the list of all counters: Prometheus, `ropewalk counters` and
/// `/api/v1/counters`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// In the account of each source: `fragments` and `by_source` of `run.json`, `/api/v1/live`, `ropewalk top`.
    Account,
    /// The summary of a run, in the line of each source if it is not 0. Only with [`Place::Account`].
    Summary,
    /// Among the incidents: each increase is one.
    Incident,
}

/// The list: help, `Name = "stable_name", Unit, CounterKind, [Place, ...];`.
macro_rules! counters {
    ($($(#[doc = $help:literal])* $name:ident = $text:literal, $unit:ident, $kind:ident, [$($place:ident),*];)*) => {
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

            /// How it changes.
            pub const fn kind(self) -> CounterKind {
                match self { $(Self::$name => CounterKind::$kind),* }
            }

            /// The further places of the counter, beside the list of all counters.
            pub const fn places(self) -> &'static [Place] {
                match self { $(Self::$name => &[$(Place::$place),*]),* }
            }
        }
    };
}

counters! {
    /// Bytes taken from sockets, framing included.
    WireBytesReceived = "wire_bytes_received", Bytes, Total, [];
    /// Bytes of fragments received, without transport framing.
    PayloadBytesReceived = "payload_bytes_received", Bytes, Total, [];
    /// Fragments that arrived complete.
    FragmentsReceived = "fragments_received", Count, Total, [];
    /// Fragments in complete events.
    FragmentsComplete = "fragments_in_complete_events", Count, Total, [];
    /// Fragments in incomplete events that were kept.
    FragmentsIncomplete = "fragments_in_incomplete_events", Count, Total, [];
    /// Fragments of an event that already had one of this source.
    FragmentsDuplicate = "fragments_duplicate", Count, Total, [];
    /// Fragments that arrived after their event was finished.
    FragmentsLate = "fragments_late", Count, Total, [];
    /// Fragments without a usable source or event number.
    FragmentsCorrupt = "fragments_corrupt", Count, Total, [];
    /// Fragments from before the start of the run, or left over from an earlier run.
    FragmentsStale = "fragments_stale", Count, Total, [];
    /// Stale fragments that arrived before the run began.
    FragmentsBeforeStart = "fragments_before_start", Count, Total, [Account];
    /// Fragments of events after the last event of the run.
    FragmentsAfterStop = "fragments_after_stop", Count, Total, [];
    /// Fragments that the readout unit holds now.
    FragmentsInFlight = "fragments_in_flight", Count, Level, [];
    /// Fragments with a wrong checksum; they are flagged and stay in their events.
    CrcErrors = "crc_errors", Count, Total, [Account, Incident];
    /// Bytes that user space copied on the data path (evacuation, straddling headers, staging).
    BytesCopied = "bytes_copied", Bytes, Total, [];
    /// Events assigned to builder units, counting the first attempt only.
    EventsAssigned = "events_assigned", Count, Total, [];
    /// Events assigned again because a builder unit died.
    EventsReassigned = "events_reassigned", Count, Total, [];
    /// Events built complete.
    EventsBuilt = "events_built", Count, Total, [];
    /// Incomplete events that were kept.
    EventsIncompleteEmitted = "events_incomplete_emitted", Count, Total, [];
    /// Events accepted.
    EventsAccepted = "events_accepted", Count, Total, [];
    /// Events rejected.
    EventsRejected = "events_rejected", Count, Total, [];
    /// Events that no filter could decide on; they are kept in the error stream.
    EventsQuarantined = "events_quarantined", Count, Total, [];
    /// Event records written to files.
    EventsWritten = "events_written", Count, Total, [];
    /// Events that are assigned and not finished now.
    EventsInFlight = "events_in_flight", Count, Level, [];
    /// Bytes written to run files.
    BytesWritten = "bytes_written", Bytes, Total, [];
    /// Run files closed.
    SegmentsClosed = "segments_closed", Count, Total, [];
    /// Run files deleted to stay within the configured space.
    SegmentsDeleted = "segments_deleted", Count, Total, [];
    /// Events in deleted run files.
    EventsDeleted = "events_deleted", Count, Total, [];
    /// Bytes of deleted run files.
    BytesDeleted = "bytes_deleted", Bytes, Total, [];
    /// Open run files that were deleted or moved during the run and were written again.
    FilesRestored = "files_restored", Count, Total, [Incident];
    /// Written events in run files that were deleted or moved during the run.
    EventsGone = "events_gone", Count, Total, [Incident];
    /// Writers that wait now because the disk is full.
    DiskFull = "disk_full", Count, Level, [];
    /// Write operations that failed; each is retried.
    DiskRefusals = "disk_refusals", Count, Total, [Incident];
    /// Error number (errno) of a node whose disk refuses writes for another reason than lack of space; 0 if none. Per
    /// node: a sum means nothing.
    DiskFailing = "disk_failing", Count, State, [];
    /// Connections opened by sources.
    SourceConnections = "source_connections", Count, Total, [];
    /// Connections that ended.
    SourceDisconnections = "source_disconnections", Count, Total, [];
    /// Connections closed because their data made no sense, or because they claimed the name of a connected node.
    ConnectionsRefused = "connections_refused", Count, Total, [Incident];
    /// Bytes discarded because they belong to no frame.
    GarbageBytes = "garbage_bytes", Bytes, Total, [Account, Summary];
    /// Bytes that the format puts between frames; they carry no data.
    FillerBytes = "filler_bytes", Bytes, Total, [Account, Summary];
    /// Blocks lent by the pool.
    PoolLoans = "pool_loans", Count, Total, [];
    /// Blocks returned to the pool.
    PoolReturns = "pool_returns", Count, Total, [];
    /// Blocks held now.
    PoolHeld = "pool_held", Count, Level, [];
    /// Blocks in the pool.
    PoolBlocks = "pool_blocks", Count, Level, [];
    /// Time in which a source was not read because buffers or the window were full.
    BackPressureTime = "back_pressure_time", Nanoseconds, Total, [];
    /// Messages refused because of an old epoch or incarnation.
    MessagesRefused = "messages_refused", Count, Total, [];
    /// Blocks written by link cards, good and damaged.
    CardBlocks = "card_blocks", Count, Total, [];
    /// Damaged blocks of link cards; they were discarded.
    CardBlocksDamaged = "card_blocks_damaged", Count, Total, [Incident];
    /// Blocks of link cards that are missing by their e-links' sequence numbers.
    CardBlocksMissing = "card_blocks_missing", Count, Total, [Incident];
    /// Chunks of link cards that arrived whole.
    CardChunks = "card_chunks", Count, Total, [];
    /// Chunks of link cards of which only some pieces arrived.
    CardChunksGivenUp = "card_chunks_given_up", Count, Total, [Incident];
    /// Error flags that link cards set on chunks: error, wrong checksum, truncated, time-out, busy.
    CardChunksFlagged = "card_chunks_flagged", Count, Total, [];
    /// Chunks of e-links that no source is configured for.
    CardChunksNobodys = "card_chunks_nobodys", Count, Total, [];
    /// Signals of link cards outside the data.
    CardSignals = "card_signals", Count, Total, [];
    /// Times a link card had no free block to write to.
    CardStalls = "card_stalls", Count, Total, [];
    /// Bytes left at the end of a link card that are no whole block.
    CardBytesLeftOver = "card_bytes_left_over", Bytes, Total, [];
    /// Subscribers that connected.
    SubscribersJoined = "subscribers_joined", Count, Total, [];
    /// Chunks for subscribers, counted once for each subscriber.
    ChunksOffered = "chunks_offered", Count, Total, [];
    /// Chunks that were sent to a subscriber.
    ChunksSent = "chunks_sent", Count, Total, [];
    /// Chunks dropped because a subscriber had no room, or left and no other of its group took them.
    ChunksDropped = "chunks_dropped", Count, Total, [];
    /// Chunks that another subscriber of the group took when one left.
    ChunksMoved = "chunks_moved", Count, Total, [];
    /// Chunks that wait for a subscriber now.
    ChunksQueued = "chunks_queued", Count, Level, [];
    /// Bytes copied for subscribers that may lose chunks.
    ChunkBytesCopied = "chunk_bytes_copied", Bytes, Total, [];
    /// Messages to e-links that were refused because there is no down-link or it is full.
    DownLinkRefused = "down_link_refused", Count, Total, [];
    /// Missing frames: numbers that the source skipped in its own count of frames.
    FramesMissing = "frames_missing", Count, Total, [Account, Summary, Incident];
    /// Frames that arrived twice or out of order.
    FramesOutOfOrder = "frames_out_of_order", Count, Total, [Account, Summary, Incident];
    /// Datagrams lost in the kernel or the receiver.
    DatagramsLost = "datagrams_lost", Count, Total, [];
    /// Datagrams of senders that no source is configured for.
    DatagramsNobodys = "datagrams_nobodys", Count, Total, [];
    /// Frames of several events that were divided into fragments.
    FramesDivided = "frames_divided", Count, Total, [Account];
    /// Frames that continue the fragment of the frame before them.
    FramesGathered = "frames_gathered", Count, Total, [Account];
    /// Splitter processes restarted because they crashed, hung or gave invalid results.
    SplitterRestarts = "splitter_restarts", Count, Total, [Account, Summary, Incident];
    /// Fragments in events that were dropped.
    FragmentsInDroppedEvents = "fragments_in_dropped_events", Count, Total, [];
    /// Accepted events that no stream took because of prescales.
    EventsUnselected = "events_unselected", Count, Total, [];
    /// Events for which filtering failed.
    FilterFailures = "filter_failures", Count, Total, [Incident];
    /// Events that were given to another filter unit because theirs ended.
    FilterReturned = "filter_returned", Count, Total, [];
    /// Decisions of filter units on events that they did not hold; ignored.
    FilterStaleDecisions = "filter_stale_decisions", Count, Total, [];
    /// Filter units restarted because they crashed, hung or gave invalid results.
    FilterRestarts = "filter_restarts", Count, Total, [Incident];
    /// Filter units that are no longer restarted because they ended too often.
    FilterUnitsGivenUp = "filter_units_given_up", Count, Total, [Incident];
    /// Bytes of events copied for filters.
    FilterBytesCopied = "filter_bytes_copied", Bytes, Total, [];
    /// Events of ordered streams written after later ones because their builder unit died.
    EventsOutOfOrder = "events_out_of_order", Count, Total, [];
    /// Events selected for a stream.
    StreamSelected = "stream_selected", Count, Total, [];
    /// Events removed from a stream by its prescale.
    StreamPrescaledAway = "stream_prescaled_away", Count, Total, [];
    /// Events in a stream's files.
    StreamWritten = "stream_written", Count, Total, [];
    /// Events that could not be written to a stream.
    StreamFailed = "stream_failed", Count, Total, [];
    /// Events on their way to a stream's files now.
    StreamInFlight = "stream_in_flight", Count, Level, [];
    /// Time in which the disk of a builder unit had something to write.
    DiskBusyTime = "disk_busy_time", Nanoseconds, Total, [];
    /// Time in which built events waited because storage had no room.
    DiskWaitTime = "disk_wait_time", Nanoseconds, Total, [];
    /// Time in which filter units had events to decide on, summed over the units.
    FilterBusyTime = "filter_busy_time", Nanoseconds, Total, [];
    /// Filter units that run now.
    FilterUnits = "filter_units", Count, Level, [];
    /// Time in which a builder unit had no room for further events.
    BuilderFullTime = "builder_full_time", Nanoseconds, Total, [];
    /// Events that a builder unit can hold.
    BuilderPlaces = "builder_places", Count, Level, [];
    /// Time in which super-fragments waited for a builder unit's connection.
    LinkWaitTime = "link_wait_time", Nanoseconds, Total, [];
    /// Time in which a readout unit held complete events and no builder unit asked for one.
    RequestWaitTime = "request_wait_time", Nanoseconds, Total, [];
    /// Time in which the thread of a node, or what shares it, had work.
    ThreadBusyTime = "thread_busy_time", Nanoseconds, Total, [];
    /// Number of the latest event of a source. Per source: a sum means nothing.
    LastEventNumber = "last_event_number", Count, State, [];
    /// Time since the last data of a source, over all its connections. Per source: a sum means nothing.
    SilentTime = "silent_time", Nanoseconds, State, [];
    /// Sources from which no more data is expected now.
    SourcesEnded = "sources_ended", Count, Level, [];
    /// 1 if the source is masked; 2 if it is to take part again but has not sent a fragment that continues the run.
    /// Per source: a sum means nothing.
    SourceMasked = "source_masked", Count, State, [];
    /// Time in which an input queue of a gateway accepted no triggers although some were wanted.
    ThrottleTime = "throttle_time", Nanoseconds, Total, [];
    /// Part of the throttle time in which too few event sets were free: they wait for packets, nodes or decisions.
    ThrottleSetsTime = "throttle_sets_time", Nanoseconds, Total, [];
    /// Part of the throttle time in which too little receive memory was free.
    ThrottleMemoryTime = "throttle_memory_time", Nanoseconds, Total, [];
    /// Part of the throttle time in which too many packets waited to be received.
    ThrottleQueueTime = "throttle_queue_time", Nanoseconds, Total, [];
    /// Part of the throttle time in which no node of the farm was connected.
    ThrottleErrorTime = "throttle_error_time", Nanoseconds, Total, [];
    /// Event sets that were finished without some of their packets.
    SetsIncomplete = "sets_incomplete", Count, Total, [];
    /// Events that no node of the farm decided on in time.
    DecidedByDefault = "decided_by_default", Count, Total, [];
    /// Events sent to a node of the farm again.
    PushedAgain = "pushed_again", Count, Total, [];
    /// Free bytes on the fullest disk that a builder unit writes to, checked once a second. Per node: a sum means
    /// nothing.
    OutputRoom = "output_room", Bytes, State, [];
    /// Hellos refused because a node of that name was connected.
    RivalHellos = "rival_hellos", Count, Total, [Incident];
    /// Times a multicast group was lost because its network card went away; it is joined again when the card is back.
    GroupsLost = "groups_lost", Count, Total, [Incident];
    /// Fragments without a payload byte.
    FragmentsEmpty = "fragments_empty", Count, Total, [Account, Summary];
    /// Built events with a fragment whose content, or whose event, is in doubt.
    EventsDoubtful = "events_doubtful", Count, Total, [];
    /// Fragments with the event number of the fragment before them, as received.
    NumbersRepeated = "numbers_repeated", Count, Total, [Account];
    /// Fragments with a lower event number than the fragment before them, as received; once each time the numbers wrap.
    NumbersFell = "numbers_fell", Count, Total, [Account];
    /// Fragments with a greater event number than the next one after the fragment before them, as received.
    NumbersJumped = "numbers_jumped", Count, Total, [Account];
    /// Nodes of the farm that were connected to an input queue of a gateway and fell silent.
    FarmNodesAway = "farm_nodes_away", Count, Level, [];
    /// Open connections to the address of a readout unit that have sent nothing yet, so that their source is not known.
    ConnectionsIdle = "connections_idle", Count, Level, [];
    /// Signal that ended the filter process that ended last; 0 if it hung, gave invalid results, or ended by itself.
    /// Per node: a sum means nothing.
    FilterLastSignal = "filter_last_signal", Count, State, [];
}

impl Counter {
    /// Its name in the account of a source, whose other members are fragments: without `fragments_`.
    pub fn account_name(self) -> &'static str {
        self.name().trim_start_matches("fragments_")
    }

    /// The counter with this number, if there is one.
    pub const fn from_u16(number: u16) -> Option<Self> {
        if (number as usize) < Self::COUNT { Some(COUNTERS[number as usize]) } else { None }
    }
}

/// The number of counters in the account of a source.
const COUNT: usize = {
    let (mut count, mut index) = (0, 0);
    while index < COUNTERS.len() {
        count += is_in_account(COUNTERS[index]) as usize;
        index += 1;
    }
    count
};

/// These counters, in the order of their numbers.
const IN_ACCOUNT: [Counter; COUNT] = {
    let (mut list, mut count, mut index) = ([Counter::CrcErrors; COUNT], 0, 0);
    while index < COUNTERS.len() {
        if is_in_account(COUNTERS[index]) {
            list[count] = COUNTERS[index];
            count += 1;
        }
        index += 1;
    }
    list
};

const fn is_in_account(counter: Counter) -> bool {
    matches!(counter.places(), [Place::Account, ..])
}

/// The counters of a source in its account, beside those of [`crate::FragmentAccount`]: those with [`Place::Account`].
/// Serialised as a map from [`Counter::account_name`] to the count.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceCounts([u64; COUNT]);

impl SourceCounts {
    /// Each counter with what `count` says of it.
    pub fn of(count: impl FnMut(Counter) -> u64) -> Self {
        Self(IN_ACCOUNT.map(count))
    }

    /// The count; 0 if the counter is not in accounts.
    pub fn get(&self, counter: Counter) -> u64 {
        self.iter().find(|(one, _)| *one == counter).map_or(0, |(_, count)| count)
    }

    /// Adds to the counter, if it is in accounts.
    pub fn add(&mut self, counter: Counter, count: u64) {
        if let Some(index) = IN_ACCOUNT.iter().position(|one| *one == counter) {
            self.0[index] += count;
        }
    }

    /// All counters, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        IN_ACCOUNT.into_iter().zip(self.0)
    }
}

impl Serialize for SourceCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(counter, count)| (counter.account_name(), count)))
    }
}

impl JsonSchema for SourceCounts {
    fn schema_name() -> Cow<'static, str> {
        "SourceCounts".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut count = |counter: Counter| {
            let mut schema = u64::json_schema(generator);
            schema.insert("description".to_owned(), counter.help().trim().into());
            (counter.account_name(), schema)
        };
        let properties: BTreeMap<_, _> = IN_ACCOUNT.map(&mut count).into();
        let required = IN_ACCOUNT.map(Counter::account_name);
        json_schema!({ "type": "object", "properties": properties, "required": required })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_or_waits_now_is_a_level_and_what_happened_is_not() {
        let says_now = |counter: &Counter| counter.help().ends_with(" now.");
        for counter in COUNTERS.iter().filter(|counter| says_now(counter)) {
            assert_ne!(counter.kind(), CounterKind::Total, "{}", counter.name());
        }
    }

    #[test]
    fn what_must_not_be_added_up_says_so() {
        for &counter in COUNTERS {
            let is_state = counter.kind() == CounterKind::State;
            assert_eq!(is_state, counter.help().contains("a sum means nothing"), "{}", counter.name());
        }
    }

    #[test]
    fn what_a_summary_shows_stands_in_the_account() {
        for counter in COUNTERS.iter().filter(|counter| counter.places().contains(&Place::Summary)) {
            assert!(counter.places().contains(&Place::Account), "{}", counter.name());
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

    #[test]
    fn every_counter_of_the_account_is_counted_and_no_other() {
        let mut counts = SourceCounts::default();
        for &counter in COUNTERS {
            counts.add(counter, 1);
            let is_in_account = counter.places().contains(&Place::Account);
            assert_eq!(counts.get(counter), u64::from(is_in_account), "{}", counter.name());
        }
        assert_eq!(counts, SourceCounts::of(|_| 1));
    }
}
