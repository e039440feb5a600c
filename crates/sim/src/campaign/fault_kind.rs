//! Kinds of faults, for coverage: each is a row of the table.

macro_rules! kinds {
    ($($kind:ident = $name:literal,)*) => {
        /// Kinds of faults, for coverage.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "each is named as the fault")]
        pub enum FaultKind { $($kind),* }

        impl FaultKind {
            /// Every kind, in the order of the table.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }
        }
    };
}

kinds! {
    Delay = "delay",
    SlowLink = "slow_link",
    Partition = "partition",
    OneWay = "partition_one_way",
    Reset = "reset",
    HalfOpen = "half_open",
    Pause = "pause",
    Crash = "crash",
    PowerCut = "power_cut",
    Reconnect = "reconnect",
    ClockStep = "clock_step",
    ClockDrift = "clock_drift",
    DiskFull = "disk_full",
    DiskSlow = "disk_slow",
    DiskErrors = "disk_errors",
    PoolDry = "pool_dry",
    StopMidFragment = "source_stops_mid_fragment",
    Disconnect = "source_disconnects",
    SendTwice = "source_sends_twice",
    Skip = "source_skips",
    ResetCounter = "source_resets_counter",
    Jump = "source_jumps",
    WrongCrc = "source_wrong_crc",
    HugeLength = "source_claims_4gib",
    Slow = "source_slow",
    Garbage = "garbage_connection",
    ManagerCrash = "manager_crash",
    ManagerPowerCut = "manager_power_cut",
    ManagerPause = "manager_pause",
    ManagerCutOff = "manager_cut_off",
    CoordinationCut = "coordination_cut",
    CoordinationLate = "coordination_late",
    ManagerReplaced = "manager_replaced",
    ManagerOvertaken = "manager_overtaken",
    Resync = "source_resynchronises",
    LinkDies = "link_dies",
    LinkStalls = "link_stalls",
    BlockLost = "block_lost",
    BlockDamaged = "block_damaged",
    ChunkTruncated = "chunk_truncated",
    ChunkError = "chunk_error",
    ChunkCrc = "chunk_crc",
    ChunkBusy = "chunk_busy",
    ChunkTimedOut = "chunk_timed_out",
    ChunkNeverEnds = "chunk_never_ends",
    ChunkNeverBegins = "chunk_never_begins",
    ChunkOversize = "chunk_oversize",
    CardStalls = "card_stalls",
    CardBurst = "card_burst",
    SubscriberKilled = "subscriber_killed",
    SubscriberSleeps = "subscriber_sleeps",
    SubscriberCutOff = "subscriber_cut_off",
    SubscriberReset = "subscriber_reset",
    SubscriberSlow = "subscriber_slow",
    PacketsLost = "packets_lost",
    PacketsDoubled = "packets_doubled",
    PacketsDisordered = "packets_disordered",
    PacketsLate = "packets_late",
    PushesLost = "pushes_lost",
    PushesDoubled = "pushes_doubled",
    PushesDisordered = "pushes_disordered",
    PushesLate = "pushes_late",
    DecisionsLost = "decisions_lost",
    DecisionsDoubled = "decisions_doubled",
    DecisionsDisordered = "decisions_disordered",
    DecisionsLate = "decisions_late",
    StatesLost = "states_lost",
    StatesDoubled = "states_doubled",
    StatesDisordered = "states_disordered",
    StatesLate = "states_late",
    SourceSilent = "source_silent",
    PacketCutShort = "packet_cut_short",
    PacketWrongPacking = "packet_wrong_packing",
    PacketWrongPartition = "packet_wrong_partition",
    PacketMisnumbered = "packet_misnumbered",
    PacketMalformed = "packet_malformed",
    StrangerPackets = "stranger_packets",
    NodeKilled = "node_killed",
    NodeSleeps = "node_sleeps",
    NodeCutOff = "node_cut_off",
    NodeDeaf = "node_deaf",
    NodeSlow = "node_slow",
    GatewaySleeps = "gateway_sleeps",
    TriggerSleeps = "trigger_sleeps",
    QueueShort = "queue_short",
    GatewayKilled = "gateway_killed",
    NodeDisconnected = "node_disconnected",
    ReaderSleeps = "reader_sleeps",
    ReaderLeaves = "reader_leaves",
    GatewaySlow = "gateway_slow",
    ReaderSlow = "reader_slow",
}

impl FaultKind {
    /// Those that strike units, sources and links, in any system.
    pub const OF_ANY: usize = 26;
    /// From here on those of systems in which sources push. A few of the others strike them too.
    pub const FIRST_OF_PUSH: usize = Self::PacketsLost as usize;
    /// Of these, from here on, those of gateways' lives, of connections and of readers.
    pub const FIRST_OF_LIVES: usize = Self::GatewayKilled as usize;
    /// And from here on those that are drawn for themselves: of too little of the processor, and of readers who take little.
    pub const FIRST_OF_LOAD: usize = Self::GatewaySlow as usize;
}
