//! Planted bugs: deliberate mistakes that the simulator must find, so that its silence means something.
//!
//! Each stands in the code as one line that asks [`is_planted`]. Without the feature `flaws`, which only the simulator's tests turn
//! on, the answer is a constant `false` and the line is gone.

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
    /// A send queue takes more than its bound.
    SendQueueUnbounded = "send_queue_unbounded",
    /// A source is read one event further than the window allows.
    WindowOffByOne = "window_off_by_one",
    /// A second fragment of an event is dropped without being counted.
    DuplicateUncounted = "duplicate_uncounted",
    /// A fragment that comes too late is dropped without being counted.
    LateUncounted = "late_uncounted",
    /// A fragment that comes after the run's end is dropped without being counted.
    AfterStopUncounted = "after_stop_uncounted",
    /// A fragment that its connection's end cut is counted as received and nowhere else.
    CutShortUncounted = "cut_short_uncounted",
    /// The clock of a source's absence runs while nobody reads the source.
    ClockRunsUnread = "clock_runs_unread",
    /// The events of an announcement are named from the last to the first.
    AnnouncedBackwards = "announced_backwards",
    /// One event more is settled than all sources have left behind.
    SettledTooFar = "settled_too_far",
    /// Fragments of incomplete events are released without being counted.
    ReleaseUncounted = "release_uncounted",
    /// A released fragment of the first source stays where it is.
    ReleaseLeaks = "release_leaks",
    /// A block is given back before its fragments were copied elsewhere.
    EvacuatedTooEarly = "evacuated_too_early",
    /// A builder unit that frees a slot does not grant it again.
    CreditForgotten = "credit_forgotten",
    /// A builder unit grants one slot less than are free when a connection begins.
    CreditLostAtConnection = "credit_lost_at_connection",
    /// A builder unit grants each freed slot twice.
    CreditDoubled = "credit_doubled",
    /// An event is acknowledged when it is built, whatever level is configured.
    AcknowledgedTooEarly = "acknowledged_too_early",
    /// An answer is put into its slot without a look at its key and attempt.
    StaleAnswerTaken = "stale_answer_taken",
    /// An answer strikes the neighbouring readout unit off the list of those that are waited for.
    WrongMaskBit = "wrong_mask_bit",
    /// After a reconnection the events that wait for a readout unit are not requested again.
    RequestNotRepeated = "request_not_repeated",
    /// An event that lacks a source is called complete.
    IncompleteCalledComplete = "incomplete_called_complete",
    /// An event that is assigned again keeps its attempt.
    SameAttemptAgain = "same_attempt_again",
    /// The events of a lost builder unit are assigned to nobody else.
    LostBuilderForgotten = "lost_builder_forgotten",
    /// An event is released when it is assigned.
    ReleasedBeforeWritten = "released_before_written",
    /// Events are assigned beyond the granted credit.
    CreditIgnored = "credit_ignored",
    /// The first acknowledgement of a batch of several is dropped.
    AcknowledgementDropped = "acknowledgement_dropped",
    /// A key counts as settled one early.
    FloorOffByOne = "floor_off_by_one",
    /// A silent readout unit is left out at once.
    SilentLeftOutAtOnce = "silent_left_out_at_once",
    /// The last readout unit is not told of releases.
    ReleaseNotToAll = "release_not_to_all",
    /// Whose a request for sets is is told by the address alone, although queues of a gateway share one.
    SpeakerByHost = "speaker_by_host",
    /// The queue of a reader of decisions takes whatever he leaves.
    ReaderQueueUnbounded = "reader_queue_unbounded",
    /// Of a slice that was sent in part the rest is forgotten.
    PartialSendForgotten = "partial_send_forgotten",
    /// Super-fragments that find no room in the send queue are dropped.
    RefusedAnswerDropped = "refused_answer_dropped",
    /// Records count as synced when they are written.
    SyncedBeforeSync = "synced_before_sync",
    /// A batch that the disk refused is forgotten, and counts as written later.
    RefusedBatchForgotten = "refused_batch_forgotten",
    /// Of several batches that are with the disk the latest counts as written when the oldest is.
    LaterBatchAcknowledged = "later_batch_acknowledged",
    /// A builder unit does not open a lost connection to a readout unit again.
    ReconnectionForgotten = "reconnection_forgotten",
    /// A source that was held back is not read again when there is room.
    BlockedForEver = "blocked_for_ever",
    /// Nobody looks whose connection it is that comes while no block is free.
    UnknownHeldBack = "unknown_held_back",
    /// What a source sent before it closed is dropped with its connection.
    ClosedBeforeReadOut = "closed_before_read_out",
    /// The footer's index points behind each record's beginning.
    FooterOffsetsWrong = "footer_offsets_wrong",
    /// Nobody looks whether an epoch is lower: units take an old event manager again, which serves them.
    StaleEpochAccepted = "stale_epoch_accepted",
    /// An event manager goes on speaking when its lease is over.
    LeaseOutlived = "lease_outlived",
    /// A successor forgets what builder units have in work, or did while nobody led the run.
    AssignmentForgotten = "assignment_forgotten",
    /// A builder unit remembers for a successor twice as many events as it has slots, and no more.
    DoneForgotten = "done_forgotten",
    /// A readout unit does not say of an event that a source was masked in it.
    MaskUntold = "mask_untold",
    /// A readout unit that begins again in mid-run does not hear which sources are masked.
    MaskForgotten = "mask_forgotten",
    /// From which event on a source takes part again is not recorded.
    UnmaskUnrecorded = "unmask_unrecorded",
    /// A lumisection is over as soon as the next one begins, whatever is still in work.
    LumisectionClosedEarly = "lumisection_closed_early",
    /// A successor begins the count of lumisections again.
    LumisectionsForgotten = "lumisections_forgotten",
    /// A builder unit takes an event for one of the lumisection that began last.
    LumisectionOfTheNewest = "lumisection_of_the_newest",
    /// A source that began to count anew before the trigger source declared it does not join the new count.
    FollowerForgotten = "follower_forgotten",
    /// Nobody notices that blocks of an e-link are missing: an open chunk goes on behind them.
    SequenceGapIgnored = "sequence_gap_ignored",
    /// A chunk stays open over a damaged block.
    OpenOverDamage = "open_over_damage",
    /// A chunk that was given up is not counted.
    GivenUpUncounted = "given_up_uncounted",
    /// What the card says of a chunk is lost.
    ChunkFlagsLost = "chunk_flags_lost",
    /// No page of a card's ring is ever given back.
    PageNeverReleased = "page_never_released",
    /// A chunk that finds a subscriber's queue full is dropped without being counted.
    QueueDropUncounted = "queue_drop_uncounted",
    /// A chunk goes to every member of a group.
    GroupMemberTwice = "group_member_twice",
    /// What waits for who may lose chunks stays where the card left it, and holds the card's memory.
    MonitorHoldsCard = "monitor_holds_card",
    /// A subscriber whose connection ended keeps its place, and what waits for it.
    QueueKeptForTheDead = "queue_kept_for_the_dead",
    /// What waits for a member of a group that goes is handed over to nobody.
    HeirsForgotten = "heirs_forgotten",
    /// Subscribers are told the end before they have the rest of the last batch.
    RestUnheard = "rest_unheard",
    /// Pages are given back in which a chunk lies that has not ended.
    PageReleasedTooEarly = "page_released_too_early",
    /// A packet that comes twice is counted twice.
    PacketCountedTwice = "packet_counted_twice",
    /// A packet that comes too late begins its set anew.
    LatePacketReopens = "late_packet_reopens",
    /// The clock of a set runs on while packets wait that nobody has looked at.
    SetTimesOutUnheard = "set_times_out_unheard",
    /// The last set in assembly waits for ever.
    LastSetNeverClosed = "last_set_never_closed",
    /// The neighbour of a missing source is named.
    MissingNeighbour = "missing_neighbour",
    /// An event that lacks a source goes to nodes without a word about it.
    IncompleteUnflagged = "incomplete_unflagged",
    /// A node gets events beyond its credit.
    PushBeyondCredit = "push_beyond_credit",
    /// A decision of which nothing but its number came gives no credit back.
    LostDecisionKeepsCredit = "lost_decision_keeps_credit",
    /// What a node had when it fell silent or began anew is still awaited from it, beside the node that has it now.
    StaleAttemptAccepted = "stale_attempt_accepted",
    /// The events of a silent node go to nobody else.
    SilentNodeKeepsEvents = "silent_node_keeps_events",
    /// An event that goes out again keeps its attempt.
    PushAttemptKept = "push_attempt_kept",
    /// What was decided by default is decided once more when its node speaks.
    DecidedTwice = "decided_twice",
    /// Decisions leave in the order in which their sets were finished.
    StreamUnordered = "stream_unordered",
    /// Rejected events are stored.
    RejectStored = "reject_stored",
    /// A node's bitmap of decisions begins one too late.
    BitmapShifted = "bitmap_shifted",
    /// The trigger is stopped when nothing is left, and not while there is room for what is on its way.
    HeadroomForgotten = "headroom_forgotten",
    /// The throttle does not see what waits in front of a gateway.
    QueueUnwatched = "queue_unwatched",
    /// A gateway whose request for packets was lost does not ask again.
    PacketRequestNotRepeated = "packet_request_not_repeated",
    /// A half of a gateway that gives the other one something does not wake it.
    BellForgotten = "bell_forgotten",
    /// The half of a gateway that receives does not learn that its nodes are gone.
    NodesGoneUntold = "nodes_gone_untold",
    /// The half of a gateway that receives closes while sets are still with the other one.
    ClosedTooEarly = "closed_too_early",
    /// Sets that go over to the other half of a gateway are not counted as between them.
    HandoverUncounted = "handover_uncounted",
    /// What does not fit to a reader of decisions is left out, and the rest follows.
    ReaderGap = "reader_gap",
    /// A packet that is moved out of where it came in changes places with its neighbour.
    MovedToNeighbour = "moved_to_neighbour",
    /// Whoever watches a gateway is shown the fragments of the event before.
    SampleOfNeighbour = "sample_of_neighbour",
    /// What a masked source sends is counted as a stranger's.
    MaskedForStranger = "masked_for_stranger",
    /// A gateway masks a source from the newest set on that it has begun, which waits for that source.
    GatewayMasksTooEarly = "gateway_masks_too_early",
    /// A gateway waits for a masked source in sets that it begins.
    GatewayAwaitsMasked = "gateway_awaits_masked",
    /// A gateway takes a source in again in sets of which it has let packets of that source go.
    GatewayForgetsRefused = "gateway_forgets_refused",
    /// A flow's new time-out counts from when sets in assembly were begun.
    TimeoutOfOpenSets = "timeout_of_open_sets",
    /// Histograms of a gateway's sources lack the first fragment of each packet.
    HistogramsLackFirst = "histograms_lack_first",
    /// A trigger does not hear a gateway that has begun another life.
    GatewayLifeUnseen = "gateway_life_unseen",
    /// A node repeats to a gateway's next life what it had decided for the one before.
    GatewayLivesMixed = "gateway_lives_mixed",
    /// The trigger source is enabled before the last front end has started.
    TriggerEnabledEarly = "trigger_enabled_early",
    /// A run is called running before its readout units have heard of the start.
    RunningUnheard = "running_unheard",
    /// Front ends are stopped while triggers come.
    VetoForgotten = "veto_forgotten",
    /// The trigger source is not held while the run is paused.
    HoldForgotten = "hold_forgotten",
    /// A run counts as paused before the trigger source is held.
    HoldUnawaited = "hold_unawaited",
    /// The trigger source is not released when the run goes on.
    ReleaseForgotten = "release_forgotten",
    /// A front end that does not answer is waited for for ever when a run ends.
    DeafWaitedFor = "deaf_waited_for",
    /// Nodes are stopped while data of front ends still leave.
    DataCutOff = "data_cut_off",
    /// A frame over which splitters end is tried again and again.
    PoisonTriedForEver = "poison_tried_for_ever",
    /// A source whose frames wait for a splitter's process is taken for one that is silent.
    SplitterMissed = "splitter_missed",
    /// A frame of which a splitter said what cannot be true is lost without another try.
    LieIsFinal = "lie_is_final",
    /// What a filter unit had and did not work on is lost with it.
    FilterLosesEvents = "filter_loses_events",
    /// An event over which filter units end is tried again and again.
    FilterPoisonTriedForEver = "filter_poison_tried_for_ever",
    /// A filter unit that was ordered to end counts as one that has ended.
    FilterKillIsEnd = "filter_kill_is_end",
    /// What a filter unit says that is to end counts.
    FilterCondemnedBelieved = "filter_condemned_believed",
    /// An event of which filters could not decide goes to no stream, as if it had been rejected.
    FilterFailureRejected = "filter_failure_rejected",
    /// The credit of a filter node is what it takes at once, and not what it takes beyond what it has decided.
    FilterNodeCreditForgotten = "filter_node_credit_forgotten",
    /// What was said in an earlier connection to a filter node is taken for the next one's.
    FilterNodeLivesMixed = "filter_node_lives_mixed",
    /// What an attempt fills into histograms counts although its decision does not.
    StaleFillsCounted = "stale_fills_counted",
    /// Events of ordered streams do not wait for those before them.
    OrderingImpatient = "ordering_impatient",
    /// Events that a stream's prescale leaves out are counted nowhere.
    PrescaledUncounted = "prescaled_uncounted",
    /// The frames of an event are not waited for while nobody reads their source.
    GatheredUnheard = "gathered_unheard",
    /// A frame that is missing in an event of several is not noticed.
    GatheredWithHoles = "gathered_with_holes",
    /// Of sources whose numbers grow, what is behind the last event goes into it.
    BehindIsNow = "behind_is_now",
    /// Sources whose growing numbers have all begun anew stay out of step.
    NeverAnew = "never_anew",
    /// Any growing number ahead is believed at once.
    OutlierBelieved = "outlier_believed",
    /// Growing numbers that wrap are taken as they stand.
    TimesNotUnwrapped = "times_not_unwrapped",
    /// Growing numbers that were overtaken are not put in order.
    OvertakenLate = "overtaken_late",
    /// What a source shows first is believed, although it is of an earlier run.
    LeftOverBelieved = "left_over_believed",
    /// A source that is silent is waited for for ever before events are numbered.
    SilentAwaited = "silent_awaited",
    /// Fragments that have no number when the run ends are not counted.
    UnnumberedUncounted = "unnumbered_uncounted",
    /// Nobody sees that a source has nothing of the oldest events before what it shows has a number.
    SkippedUnseen = "skipped_unseen",
    /// A black box does not notice wrong checksums.
    IncidentUnnoticed = "incident_unnoticed",
    /// A recording begins with what was received, and not with a frame.
    RecordingUnframed = "recording_unframed",
    /// An event of several streams is acknowledged when the first of them has it.
    FirstCopyAcknowledged = "first_copy_acknowledged",
    /// The last stream of an event of several is not given it.
    LastStreamForgotten = "last_stream_forgotten",
    /// The file of a filter unit that is gone goes to nobody else.
    LostFileForgotten = "lost_file_forgotten",
    /// What a filter unit wrote for a file counts although the file has gone to another one.
    StaleResultCommitted = "stale_result_committed",
    /// A file is deleted before its document has its name.
    DeletedBeforeCommitted = "deleted_before_committed",
    /// A file of events gets its name although its document has none.
    FileBeforeItsDocument = "file_before_its_document",
    /// Events in a file that has no name yet count as written.
    UnnamedFileAcknowledged = "unnamed_file_acknowledged",
    /// The document of a lumisection's end is there before its files are.
    EndBeforeItsFiles = "end_before_its_files",
    /// What a filter unit made of a file is added up each time it is told.
    FileAddedTwice = "file_added_twice",
    /// A command that a later one overtakes is never answered.
    OvertakenUnanswered = "overtaken_unanswered",
    /// A run that does not drain in its time is told to drain once more.
    DrainWithoutEnd = "drain_without_end",
    /// The end of a task that was given up is taken for the end of the one that is under way.
    LateTaskHeard = "late_task_heard",
    /// A command is taken although another operator holds the controls.
    ForeignCommandTaken = "foreign_command_taken",
    /// An operator who gives no sign keeps the controls.
    SilentHolderKept = "silent_holder_kept",
    /// An alarm is raised at once, however long its condition has to hold.
    AlarmHoldIgnored = "alarm_hold_ignored",
    /// An alarm that was to stay until somebody knows is gone when it is over.
    LatchForgotten = "latch_forgotten",
    /// An alarm that is shelved is shown all the same.
    ShelvedAlarmShown = "shelved_alarm_shown",
    /// An alarm that somebody has acknowledged is raised again while it goes on.
    AcknowledgedAgain = "acknowledged_again",
    /// A source that is not read is called silent.
    HeldBackCalledSilent = "held_back_called_silent",
    /// Not the busiest node is blamed, but the first one that is busy.
    NeighbourBlamed = "neighbour_blamed",
    /// What limits a run for a moment is shown at once.
    FindingNotHeld = "finding_not_held",
    /// What limited the last run is said of the next one.
    LastRunsFinding = "last_runs_finding",
    /// Of what a stream took of a lumisection's files the first one alone is added up.
    StreamOfFirstFileAlone = "stream_of_first_file_alone",
    /// Settings of the host are changed before their old values are in the journal.
    SettingChangedFirst = "setting_changed_first",
    /// What the plan before put there is taken for a setting's old value.
    OldValueOfSecondPlan = "old_value_of_second_plan",
    /// Nobody looks whether a setting has moved another one.
    MovedSettingUnseen = "moved_setting_unseen",
    /// A setting that did not take its value is not brought back with the others.
    ClampedSettingLeft = "clamped_setting_left",
    /// A second plan makes everybody forget that the first one was killed half-way.
    HalfWayForgotten = "half_way_forgotten",
    /// When settings are taken back a second time, whose values are somebody else's is forgotten.
    LeftSettingForgotten = "left_setting_forgotten",
    /// A value that nobody put there counts as ours although the machine was started since.
    RestartUnseen = "restart_unseen",
    /// The journal is put away although a setting could not be brought back.
    JournalPutAwayTooEarly = "journal_put_away_too_early",
    /// A plan that fails takes back what was applied before it, too.
    RolledBackTooFar = "rolled_back_too_far",
    /// After a restart a setting's old value is still that of the start before.
    OldValueOfEarlierStart = "old_value_of_earlier_start",
    /// Where one setting could not be brought back, all others count as half-way, too.
    AllStuckWithOne = "all_stuck_with_one",
    /// Any believable number is taken at its word.
    NumbersTrusted = "numbers_trusted",
    /// A fragment whose checksum is wrong says where its source is.
    DamagedBelieved = "damaged_believed",
    /// A number that does not continue its sequence is believed at once.
    JumpUnproved = "jump_unproved",
    /// What is left of an earlier run is taken for the beginning of this one.
    StaleJoined = "stale_joined",
    /// Time stamps of other sources are not compared when a counter starts again.
    RestartUnrecovered = "restart_unrecovered",
    /// A source whose numbers are in doubt is waited for until it speaks again.
    DoubtEndless = "doubt_endless",
    /// A fragment with a wrong number is dropped without being counted.
    WrongNumberUncounted = "wrong_number_uncounted",
    /// A counter that wraps is taken for one that started again.
    WrapUnseen = "wrap_unseen",
    /// One packet of a set that is far away moves a gateway's window.
    FarPacketBelieved = "far_packet_believed",
    /// A packet whose fragments contradict its header begins a set.
    WrongPacketBegins = "wrong_packet_begins",
    /// A gateway does not see that a source starts its numbering again.
    PacketRestartUnseen = "packet_restart_unseen",
}

/// Whether this mistake is to be made. Never, without the feature `flaws`.
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

    /// From now on everything on this thread makes this mistake, or none.
    pub fn plant(flaw: Option<Flaw>) {
        PLANTED.set(flaw);
    }

    /// Whether this mistake is to be made.
    pub fn is_planted(flaw: Flaw) -> bool {
        PLANTED.get() == Some(flaw)
    }
}
