//! Planted bugs: deliberate mistakes that the simulator must find, so that its silence means something.
//!
//! Each is one line in the code that asks [`is_planted`]. Without the feature `flaws`, which only the simulator's tests
//! turn on, the answer is a constant `false` and the line is gone.

macro_rules! flaws {
    ($(#[doc = $what:literal] $flaw:ident = $name:literal,)*) => {
        /// A deliberate mistake.
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        pub enum Flaw { $(#[doc = $what] $flaw),* }

        impl Flaw {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$flaw),*];

            /// The name in tables.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$flaw => $name),* }
            }

            /// What goes wrong, in a sentence.
            pub fn what(self) -> &'static str {
                match self { $(Self::$flaw => $what),* }.trim()
            }
        }
    };
}

flaws! {
    /// The first fragment of a batch is taken twice.
    FragmentTakenTwice = "fragment_taken_twice",
    /// One more event is settled than all sources have passed.
    SettledTooFar = "settled_too_far",
    /// A builder unit that frees a slot does not grant it again.
    CreditForgotten = "credit_forgotten",
    /// A builder unit grants each freed slot twice.
    CreditDoubled = "credit_doubled",
    /// An event is acknowledged when it is built, at any configured level.
    AcknowledgedTooEarly = "acknowledged_too_early",
    /// An answer is put into its slot without a look at its key and attempt.
    StaleAnswerTaken = "stale_answer_taken",
    /// After a reconnection the events that wait for a readout unit are not requested again.
    RequestNotRepeated = "request_not_repeated",
    /// An event that is assigned again keeps its attempt.
    SameAttemptAgain = "same_attempt_again",
    /// The events of a lost builder unit are not assigned again.
    LostBuilderForgotten = "lost_builder_forgotten",
    /// An event is released when it is assigned.
    ReleasedBeforeWritten = "released_before_written",
    /// Events are assigned beyond the granted credit.
    CreditIgnored = "credit_ignored",
    /// The first acknowledgement of a batch of several is dropped.
    AcknowledgementDropped = "acknowledgement_dropped",
    /// A silent readout unit is left out at once.
    SilentLeftOutAtOnce = "silent_left_out_at_once",
    /// The last readout unit gets no releases.
    ReleaseNotToAll = "release_not_to_all",
    /// The sender of a request for sets is identified by the address alone, although queues of a gateway share one.
    SpeakerByHost = "speaker_by_host",
    /// The queue of a reader of decisions takes everything that the reader leaves.
    ReaderQueueUnbounded = "reader_queue_unbounded",
    /// Super-fragments that find no room in the send queue are dropped.
    RefusedAnswerDropped = "refused_answer_dropped",
    /// Records count as synced when they are written.
    SyncedBeforeSync = "synced_before_sync",
    /// A batch that the disk refused is forgotten, and counts as written later.
    RefusedBatchForgotten = "refused_batch_forgotten",
    /// A builder unit does not open a lost connection to a readout unit again.
    ReconnectionForgotten = "reconnection_forgotten",
    /// A source that was held back is not read again when there is room.
    BlockedForEver = "blocked_for_ever",
    /// A connection that comes while no block is free is not identified.
    UnknownHeldBack = "unknown_held_back",
    /// What a source sent before it closed is dropped with its connection.
    ClosedBeforeReadOut = "closed_before_read_out",
    /// The footer's index points after each record's beginning.
    FooterOffsetsWrong = "footer_offsets_wrong",
    /// A lower epoch is not refused: units take an old event manager again, which serves them.
    StaleEpochAccepted = "stale_epoch_accepted",
    /// An event manager continues to send after its lease is over.
    LeaseOutlived = "lease_outlived",
    /// A successor forgets what builder units have in work, or did while no event manager led the run.
    AssignmentForgotten = "assignment_forgotten",
    /// A builder unit remembers for a successor twice as many events as it has slots, and no more.
    DoneForgotten = "done_forgotten",
    /// A readout unit does not say of an event that a source was masked in it.
    MaskUntold = "mask_untold",
    /// A readout unit that restarts during a run is not told which sources are masked.
    MaskForgotten = "mask_forgotten",
    /// From which event on a source takes part again is not recorded.
    UnmaskUnrecorded = "unmask_unrecorded",
    /// A lumisection is over as soon as the next one begins, with events still in work.
    LumisectionClosedEarly = "lumisection_closed_early",
    /// A successor begins the count of lumisections again.
    LumisectionsForgotten = "lumisections_forgotten",
    /// A builder unit takes an event for one of the lumisection that began last.
    LumisectionOfTheNewest = "lumisection_of_the_newest",
    /// A source that began to count anew before the trigger source declared it does not join the new count.
    FollowerForgotten = "follower_forgotten",
    /// Chunks for a subscriber that may lose them stay where the card wrote them, and hold the card's memory.
    MonitorHoldsCard = "monitor_holds_card",
    /// A subscriber whose connection ended keeps its place, and what waits for it.
    QueueKeptForTheDead = "queue_kept_for_the_dead",
    /// Subscribers get the end before they have the rest of the last batch.
    RestUnheard = "rest_unheard",
    /// A node gets events beyond its credit.
    PushBeyondCredit = "push_beyond_credit",
    /// A decision of which nothing but its number came gives no credit back.
    LostDecisionKeepsCredit = "lost_decision_keeps_credit",
    /// What a node had when it fell silent or began anew is still awaited from it, beside the node that has it now.
    StaleAttemptAccepted = "stale_attempt_accepted",
    /// The events of a silent node go to no other node.
    SilentNodeKeepsEvents = "silent_node_keeps_events",
    /// An event that goes out again keeps its attempt.
    PushAttemptKept = "push_attempt_kept",
    /// What was decided by default is decided again when its node reports.
    DecidedTwice = "decided_twice",
    /// A gateway whose request for packets was lost does not ask again.
    PacketRequestNotRepeated = "packet_request_not_repeated",
    /// A half of a gateway that gives the other one something does not wake it.
    BellForgotten = "bell_forgotten",
    /// The receiving half of a gateway is not told that its nodes are gone.
    NodesGoneUntold = "nodes_gone_untold",
    /// The half of a gateway that receives closes while sets are still with the other one.
    ClosedTooEarly = "closed_too_early",
    /// Sets that go over to the other half of a gateway are not counted as between them.
    HandoverUncounted = "handover_uncounted",
    /// What does not fit to a reader of decisions is left out, and the rest follows.
    ReaderGap = "reader_gap",
    /// A gateway masks a source from the newest set on that it has begun, which waits for that source.
    GatewayMasksTooEarly = "gateway_masks_too_early",
    /// A gateway waits for a masked source in sets that it begins.
    GatewayAwaitsMasked = "gateway_awaits_masked",
    /// A gateway takes a source in again in sets of which it has let packets of that source go.
    GatewayForgetsRefused = "gateway_forgets_refused",
    /// A trigger does not notice a gateway's new life.
    GatewayLifeUnseen = "gateway_life_unseen",
    /// A node repeats to a gateway's next life what it had decided for the one before.
    GatewayLivesMixed = "gateway_lives_mixed",
    /// A run is called running before its readout units have received the start.
    RunningUnheard = "running_unheard",
}

/// Whether this flaw is planted. Never, without the feature `flaws`.
#[cfg(not(feature = "flaws"))]
#[inline(always)]
pub const fn is_planted(_: Flaw) -> bool {
    false
}

#[cfg(feature = "flaws")]
pub use self::planting::{is_planted, plant};

#[cfg(feature = "flaws")]
mod planting {
    use super::Flaw;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Flaw>> = const { Cell::new(None) };
    }

    /// Plants this flaw, or none, for everything on this thread.
    pub fn plant(flaw: Option<Flaw>) {
        PLANTED.set(flaw);
    }

    /// Whether this flaw is planted.
    pub fn is_planted(flaw: Flaw) -> bool {
        PLANTED.get() == Some(flaw)
    }
}
