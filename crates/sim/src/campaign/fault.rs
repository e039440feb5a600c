//! What goes wrong, where, when and for how long: a list that can be printed, and shortened; and the kinds of faults, which
//! are the rows of the coverage table.
//!
//! Connections carry streams here, so packets are neither lost nor reordered nor duplicated. Those faults are of systems in
//! which sources push.

use super::cards::Trouble;
use ropewalk_terms::NodeId;
use std::fmt;
use std::time::Duration;

/// One thing that goes wrong.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// What travels between two members takes so long.
    Delay {
        /// One end.
        one: Place,
        /// The other end.
        other: Place,
        /// Time under way.
        latency: Duration,
    },
    /// Between two members so many bytes a second travel.
    SlowLink {
        /// One end.
        one: Place,
        /// The other end.
        other: Place,
        /// Bytes a second, in each direction.
        rate: u64,
    },
    /// Nothing passes between two members.
    Partition {
        /// One end.
        one: Place,
        /// The other end.
        other: Place,
    },
    /// Nothing passes from one member to another.
    OneWay {
        /// Who is not heard.
        from: Place,
        /// Who does not hear.
        to: Place,
    },
    /// Connections between two members are reset.
    Reset {
        /// One end.
        one: Place,
        /// The other end.
        other: Place,
    },
    /// Connections between two members carry nothing more, without a close or an error.
    HalfOpen {
        /// One end.
        one: Place,
        /// The other end.
        other: Place,
    },
    /// The process has no turn.
    Pause(Place),
    /// The process is gone; after that time a new one is started, which knows nothing.
    Crash(Place),
    /// The machine loses its power: the network says nothing, what the disk had not synced may be gone. After that time
    /// it is started again.
    PowerCut(Place),
    /// The process stands still and all its connections are gone when it goes on, with its memory.
    Reconnect(Place),
    /// The UTC clock is set forward or, with a negative number, back by so many milliseconds.
    ClockStep {
        /// Whose clock.
        place: Place,
        /// By how much.
        milliseconds: i64,
    },
    /// The monotonic clock goes wrong by so many millionths.
    ClockDrift {
        /// Whose clock.
        place: Place,
        /// Millionths, negative for a clock that is late.
        ppm: i32,
    },
    /// The builder unit's disk has no room.
    DiskFull(u16),
    /// Each command of the builder unit's disk takes so long.
    DiskSlow {
        /// The builder unit.
        builder: u16,
        /// Time of a command.
        latency: Duration,
    },
    /// Half of the writes and syncs of the builder unit's disk fail.
    DiskErrors(u16),
    /// The member's receive pools have no free block.
    PoolDry(Place),
    /// The source stops within a fragment, and goes on after that time.
    StopMidFragment(u16),
    /// The source closes its connection, and comes back after that time.
    Disconnect(u16),
    /// The source sends its next fragments twice.
    SendTwice {
        /// The source.
        source: u16,
        /// How many fragments.
        count: u64,
    },
    /// The source leaves out fragments.
    Skip {
        /// The source.
        source: u16,
        /// How many fragments.
        count: u64,
    },
    /// The source's counter starts again; after so many fragments it comes back over a new connection as it should be.
    ResetCounter {
        /// The source.
        source: u16,
        /// How many fragments.
        count: u64,
    },
    /// The source's next fragment carries a number that is a million too high.
    Jump(u16),
    /// The source's next fragment is damaged behind its checksum.
    WrongCrc(u16),
    /// The source's next fragment claims more bytes than anything may have: framing is lost.
    HugeLength(u16),
    /// The source needs a thousand times longer from fragment to fragment.
    Slow(u16),
    /// The trigger source begins its numbering again with this event, which declares a resynchronisation; all others follow.
    Resync {
        /// The trigger source.
        source: u16,
        /// The first event of the new count.
        event: u64,
    },
    /// A stranger connects to the readout unit's door for front ends and sends nonsense.
    Garbage(u16),
    /// One of two event managers is gone; after that time it is started again, and knows nothing.
    ManagerCrash(u16),
    /// The same without a word to the network.
    ManagerPowerCut(u16),
    /// One of two event managers sleeps, and knows nothing of it when it wakes up.
    ManagerPause(u16),
    /// An event manager and all units hear nothing of each other.
    ManagerCutOff(u16),
    /// The coordination service hears nothing of an event manager, or of any.
    CoordinationCut(Option<u16>),
    /// The coordination service's answers take longer.
    CoordinationLate {
        /// Whom it answers.
        manager: u16,
        /// So much longer.
        late: Duration,
    },
    /// The event manager is gone; after that time another one is started that takes the run over.
    ManagerReplaced {
        /// Its machine loses its power: the network says nothing.
        power: bool,
        /// Whether the other one is started elsewhere.
        elsewhere: bool,
    },
    /// The event manager sleeps. Another one is started at once elsewhere and takes the run over; after that time the
    /// first one wakes up.
    ManagerOvertaken {
        /// It loses its connections as it falls asleep.
        reset: bool,
    },
    /// Something is wrong with what an e-link of a card brings.
    Link {
        /// The source that the e-link is.
        source: u16,
        /// What.
        trouble: Trouble,
    },
    /// The card of a readout unit writes nothing.
    CardStalls(u16),
    /// All e-links of a readout unit's card bring the next events at once, before their time.
    CardBurst {
        /// The readout unit.
        card: u16,
        /// How many events.
        count: u64,
    },
    /// A subscriber of a card's chunks is gone; after that time it is started again.
    SubscriberKilled(u16),
    /// It reads nothing.
    SubscriberSleeps(u16),
    /// Nothing passes between it and the readout unit.
    SubscriberCutOff(u16),
    /// Its connection is reset.
    SubscriberReset(u16),
    /// It gets so many bytes a second.
    SubscriberSlow {
        /// The subscriber, counted over all cards.
        subscriber: u16,
        /// Bytes a second.
        rate: u64,
    },
}

impl Fault {
    /// Its kind.
    pub const fn kind(&self) -> FaultKind {
        match self {
            Self::Delay { .. } => FaultKind::Delay,
            Self::SlowLink { .. } => FaultKind::SlowLink,
            Self::Partition { .. } => FaultKind::Partition,
            Self::OneWay { .. } => FaultKind::OneWay,
            Self::Reset { .. } => FaultKind::Reset,
            Self::HalfOpen { .. } => FaultKind::HalfOpen,
            Self::Pause(_) => FaultKind::Pause,
            Self::Crash(_) => FaultKind::Crash,
            Self::PowerCut(_) => FaultKind::PowerCut,
            Self::Reconnect(_) => FaultKind::Reconnect,
            Self::ClockStep { .. } => FaultKind::ClockStep,
            Self::ClockDrift { .. } => FaultKind::ClockDrift,
            Self::DiskFull(_) => FaultKind::DiskFull,
            Self::DiskSlow { .. } => FaultKind::DiskSlow,
            Self::DiskErrors(_) => FaultKind::DiskErrors,
            Self::PoolDry(_) => FaultKind::PoolDry,
            Self::StopMidFragment(_) => FaultKind::StopMidFragment,
            Self::Disconnect(_) => FaultKind::Disconnect,
            Self::SendTwice { .. } => FaultKind::SendTwice,
            Self::Skip { .. } => FaultKind::Skip,
            Self::ResetCounter { .. } => FaultKind::ResetCounter,
            Self::Jump(_) => FaultKind::Jump,
            Self::WrongCrc(_) => FaultKind::WrongCrc,
            Self::HugeLength(_) => FaultKind::HugeLength,
            Self::Slow(_) => FaultKind::Slow,
            Self::Garbage(_) => FaultKind::Garbage,
            Self::ManagerCrash(_) => FaultKind::ManagerCrash,
            Self::ManagerPowerCut(_) => FaultKind::ManagerPowerCut,
            Self::ManagerPause(_) => FaultKind::ManagerPause,
            Self::ManagerCutOff(_) => FaultKind::ManagerCutOff,
            Self::CoordinationCut(_) => FaultKind::CoordinationCut,
            Self::CoordinationLate { .. } => FaultKind::CoordinationLate,
            Self::ManagerReplaced { .. } => FaultKind::ManagerReplaced,
            Self::ManagerOvertaken { .. } => FaultKind::ManagerOvertaken,
            Self::Resync { .. } => FaultKind::Resync,
            Self::Link { trouble, .. } => trouble.kind(),
            Self::CardStalls(_) => FaultKind::CardStalls,
            Self::CardBurst { .. } => FaultKind::CardBurst,
            Self::SubscriberKilled(_) => FaultKind::SubscriberKilled,
            Self::SubscriberSleeps(_) => FaultKind::SubscriberSleeps,
            Self::SubscriberCutOff(_) => FaultKind::SubscriberCutOff,
            Self::SubscriberReset(_) => FaultKind::SubscriberReset,
            Self::SubscriberSlow { .. } => FaultKind::SubscriberSlow,
        }
    }

    /// The same between other members, where it strikes what is between two.
    pub(super) fn redirected(self, to: impl Fn(Place) -> Place) -> Self {
        match self {
            Self::Delay { one, other, latency } => Self::Delay { one: to(one), other: to(other), latency },
            Self::SlowLink { one, other, rate } => Self::SlowLink { one: to(one), other: to(other), rate },
            Self::Partition { one, other } => Self::Partition { one: to(one), other: to(other) },
            Self::OneWay { from, to: other } => Self::OneWay { from: to(from), to: to(other) },
            Self::Reset { one, other } => Self::Reset { one: to(one), other: to(other) },
            Self::HalfOpen { one, other } => Self::HalfOpen { one: to(one), other: to(other) },
            _ => self,
        }
    }

    /// Whom it strikes: one member, or the two ends of a link.
    pub fn places(&self) -> Vec<Place> {
        match *self {
            Self::Delay { one, other, .. }
            | Self::SlowLink { one, other, .. }
            | Self::Partition { one, other }
            | Self::OneWay { from: one, to: other }
            | Self::Reset { one, other }
            | Self::HalfOpen { one, other } => vec![one, other],
            Self::Pause(place)
            | Self::Crash(place)
            | Self::PowerCut(place)
            | Self::Reconnect(place)
            | Self::ClockStep { place, .. }
            | Self::ClockDrift { place, .. }
            | Self::PoolDry(place) => vec![place],
            Self::DiskFull(builder) | Self::DiskSlow { builder, .. } | Self::DiskErrors(builder) => {
                vec![Place::Builder(builder)]
            }
            Self::StopMidFragment(source)
            | Self::Disconnect(source)
            | Self::SendTwice { source, .. }
            | Self::Skip { source, .. }
            | Self::ResetCounter { source, .. }
            | Self::Resync { source, .. }
            | Self::Jump(source)
            | Self::WrongCrc(source)
            | Self::HugeLength(source)
            | Self::Slow(source)
            | Self::Link { source, .. } => vec![Place::Source(source)],
            Self::CardStalls(card) | Self::CardBurst { card, .. } => vec![Place::Card(card)],
            Self::SubscriberKilled(subscriber)
            | Self::SubscriberSleeps(subscriber)
            | Self::SubscriberCutOff(subscriber)
            | Self::SubscriberReset(subscriber)
            | Self::SubscriberSlow { subscriber, .. } => vec![Place::Subscriber(subscriber)],
            Self::Garbage(readout) => vec![Place::Readout(readout)],
            Self::ManagerCrash(manager)
            | Self::ManagerPowerCut(manager)
            | Self::ManagerPause(manager)
            | Self::ManagerCutOff(manager)
            | Self::CoordinationCut(Some(manager))
            | Self::CoordinationLate { manager, .. } => vec![Place::Manager(manager)],
            // Whichever event manager is there.
            Self::CoordinationCut(None) | Self::ManagerReplaced { .. } | Self::ManagerOvertaken { .. } => Vec::new(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.kind().name())?;
        for place in self.places() {
            write!(out, " {place}")?;
        }
        match self {
            Self::Delay { latency, .. } | Self::DiskSlow { latency, .. } => write!(out, " takes {latency:?}"),
            Self::CoordinationLate { late, .. } => write!(out, " by {late:?}"),
            Self::ManagerReplaced { power: true, .. } => out.write_str(" after a power cut"),
            Self::ManagerOvertaken { reset: true } => out.write_str(" and its connections are reset"),
            Self::SlowLink { rate, .. } | Self::SubscriberSlow { rate, .. } => write!(out, " {rate} B/s"),
            Self::Resync { event, .. } => write!(out, " with event {event}"),
            Self::ClockStep { milliseconds, .. } => write!(out, " by {milliseconds} ms"),
            Self::ClockDrift { ppm, .. } => write!(out, " by {ppm} ppm"),
            Self::SendTwice { count, .. } | Self::Skip { count, .. } | Self::ResetCounter { count, .. } => {
                write!(out, " {count} fragments")
            }
            Self::Link { trouble, .. } => write!(out, " {trouble}"),
            Self::CardBurst { count, .. } => write!(out, " {count} events"),
            _ => Ok(()),
        }
    }
}

/// A fault and its time.
pub type Scheduled = Timed<Fault>;

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
    /// The number of kinds that strike units, sources and links, in any system.
    pub const OF_ANY: usize = 26;
    /// The first kind that belongs to systems in which sources push. A few kinds before it strike those systems too.
    pub const FIRST_OF_PUSH: usize = Self::PacketsLost as usize;
    /// The first of these that strikes gateways' lives, connections or readers.
    pub const FIRST_OF_LIVES: usize = Self::GatewayKilled as usize;
    /// The first of these that is drawn separately: too little processor time, and readers that take little.
    pub const FIRST_OF_LOAD: usize = Self::GatewaySlow as usize;
}

/// A fault and its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Timed<F> {
    /// When it begins, since the run's begin.
    pub at: Duration,
    /// How long it lasts; nothing for what happens at once.
    pub lasts: Duration,
    /// What happens.
    pub fault: F,
}

impl<F> Timed<F> {
    /// When it is over.
    pub fn end(&self) -> Duration {
        self.at + self.lasts
    }
}

impl<F: fmt::Display> fmt::Display for Timed<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at {:?}: {}", self.at, self.fault)?;
        if self.lasts.is_zero() { Ok(()) } else { write!(out, ", for {:?}", self.lasts) }
    }
}

/// A member of the run: a node or a front end, by its index among its kind.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// An event manager: the only one, or one of two.
    Manager(u16),
    /// A readout unit.
    Readout(u16),
    /// A builder unit.
    Builder(u16),
    /// A front end, counted over all readout units.
    Source(u16),
    /// The link card of a readout unit.
    Card(u16),
    /// A subscriber of a card's chunks, counted over all cards.
    Subscriber(u16),
}

impl Place {
    /// The node, where it is one.
    pub const fn node(self) -> Option<NodeId> {
        match self {
            Self::Manager(_) => Some(NodeId::MANAGER),
            Self::Readout(index) => Some(NodeId::readout(index)),
            Self::Builder(index) => Some(NodeId::builder(index)),
            Self::Source(_) | Self::Card(_) | Self::Subscriber(_) => None,
        }
    }

    /// Whether it is no node of the run: it brings fragments, or takes chunks.
    pub const fn is_outside(self) -> bool {
        matches!(self, Self::Source(_) | Self::Card(_) | Self::Subscriber(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.node()) {
            (Self::Source(index), _) => write!(out, "source{index}"),
            (Self::Subscriber(index), _) => write!(out, "subscriber{index}"),
            (Self::Card(index), _) => write!(out, "card{index}"),
            (Self::Manager(index), _) => write!(out, "evm{index}"),
            (_, Some(node)) => node.fmt(out),
            (_, None) => Ok(()),
        }
    }
}
