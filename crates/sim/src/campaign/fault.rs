//! Faults: their kinds, places and times. A schedule of faults is drawn from a seed, and can be printed and shortened. The kinds
//! are the rows of the coverage table.
//!
//! Where builder units pull, connections carry streams, so packets are neither lost nor reordered nor duplicated. Those faults are of
//! systems in which sources push.

use super::content::Format;
use super::filters::REMOTE_STREAM;
use super::runner::named;
use super::scenario::{Managers, Scenario};
use ropewalk_flow::source::Random;
use ropewalk_io::disk::DiskFaults;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// One thing that goes wrong. Its kind says what its number and its time mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What kind of thing.
    pub kind: FaultKind,
    /// One member, or the two ends of a link. Empty if the place is chosen when the fault begins.
    pub places: Vec<Place>,
    /// How many, how much or which.
    pub number: i64,
    /// How long something takes.
    pub time: Duration,
}

impl Fault {
    /// A fault without a place.
    pub const fn new(kind: FaultKind) -> Self {
        Self { kind, places: Vec::new(), number: 0, time: Duration::ZERO }
    }

    /// A fault of one member.
    pub fn at(kind: FaultKind, place: Place) -> Self {
        Self { places: vec![place], ..Self::new(kind) }
    }

    /// A fault of the link between two members.
    pub fn between(kind: FaultKind, one: Place, other: Place) -> Self {
        Self { places: vec![one, other], ..Self::new(kind) }
    }

    /// The same with this number.
    pub fn with_number(self, number: i64) -> Self {
        Self { number, ..self }
    }

    /// The same with this time.
    pub fn with_time(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// The member that has the fault.
    pub(super) fn place(&self) -> Place {
        *self.places.first().expect("kinds that are asked for their place have one")
    }

    /// The number as a count.
    pub(super) const fn count(&self) -> u64 {
        self.number.cast_unsigned()
    }

    /// What it does to the disk of the member that it strikes.
    pub(super) const fn strike_disk(&self, disk: &mut DiskFaults) {
        match self.kind {
            FaultKind::DiskFull => disk.capacity = 0,
            FaultKind::DiskErrors => (disk.write_error, disk.sync_error) = (0.5, 0.5),
            FaultKind::DiskSlow => (disk.least_latency, disk.most_latency) = (self.time, self.time),
            _ => {}
        }
    }

    /// Whether a manner is among those in its number.
    pub(super) const fn is(&self, manner: i64) -> bool {
        self.number & manner != 0
    }
}

/// In the number of [`FaultKind::ManagerReplaced`]: the machine loses its power, and the network says nothing.
pub const POWER: i64 = 1;
/// In the number of [`FaultKind::ManagerReplaced`]: the other one is started elsewhere.
pub const ELSEWHERE: i64 = 2;
/// In the number of [`FaultKind::ManagerOvertaken`]: the event manager loses its connections as it falls asleep.
pub const RESET: i64 = 4;

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.kind.name())?;
        self.places.iter().try_for_each(|place| write!(out, " {place}"))?;
        if self.number != 0 {
            write!(out, " of {}", self.number)?;
        }
        if self.time.is_zero() { Ok(()) } else { write!(out, " of {:?}", self.time) }
    }
}

macro_rules! is_lasting {
    (lasts) => {
        true
    };
    (at_once) => {
        false
    };
}

macro_rules! kinds {
    ($($(#[$what:meta])* $kind:ident = $name:literal $length:ident,)*) => {
        named! {
            /// Kinds of faults, for coverage.
            #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
            FaultKind { $($(#[$what])* $kind = $name,)* }
        }

        impl FaultKind {
            /// Whether it goes on for a while.
            pub const fn is_lasting(self) -> bool {
                match self { $(Self::$kind => is_lasting!($length)),* }
            }
        }
    };
}

kinds! {
    /// What travels between two members takes this time.
    Delay = "delay" lasts,
    /// Between two members so many bytes a second travel, in each direction.
    SlowLink = "slow_link" lasts,
    /// Nothing passes between two members.
    Partition = "partition" lasts,
    /// Nothing passes from the first member to the second.
    OneWay = "partition_one_way" lasts,
    /// Connections between two members are reset.
    Reset = "reset" at_once,
    /// Connections between two members carry nothing more, without a close or an error.
    HalfOpen = "half_open" at_once,
    /// The process has no turn.
    Pause = "pause" lasts,
    /// The process is gone; after that time a new one is started, which knows nothing.
    Crash = "crash" lasts,
    /// The machine loses its power: the network says nothing, what the disk had not synced may be gone. After that time it is started
    /// again.
    PowerCut = "power_cut" lasts,
    /// The process stands still and all its connections are gone when it goes on, with its memory.
    Reconnect = "reconnect" lasts,
    /// The UTC clock is set by so many milliseconds.
    ClockStep = "clock_step" at_once,
    /// The monotonic clock goes wrong by so many millionths.
    ClockDrift = "clock_drift" lasts,
    /// A disk has no room.
    DiskFull = "disk_full" lasts,
    /// Each command of a disk takes this time.
    DiskSlow = "disk_slow" lasts,
    /// Half of the writes and syncs of a disk fail.
    DiskErrors = "disk_errors" lasts,
    /// The member's receive pools have no free block.
    PoolDry = "pool_dry" lasts,
    /// The source stops within a fragment, and goes on after that time.
    StopMidFragment = "source_stops_mid_fragment" lasts,
    /// The source closes its connection, and comes back after that time.
    Disconnect = "source_disconnects" lasts,
    /// The source sends so many fragments twice.
    SendTwice = "source_sends_twice" at_once,
    /// The source leaves out so many fragments.
    Skip = "source_skips" at_once,
    /// The source's counter starts again; after so many fragments it comes back over a new connection as it should be.
    ResetCounter = "source_resets_counter" at_once,
    /// The source's next fragment carries a number that is a million too high.
    Jump = "source_jumps" at_once,
    /// The source's next fragment is damaged behind its checksum.
    WrongCrc = "source_wrong_crc" at_once,
    /// The source's next fragment claims more bytes than anything may have: framing is lost.
    HugeLength = "source_claims_4gib" at_once,
    /// The source needs a thousand times longer from fragment to fragment.
    Slow = "source_slow" lasts,
    /// A stranger connects to the readout unit's port for front ends and sends nonsense.
    Garbage = "garbage_connection" lasts,
    /// One of two event managers is gone; after that time it is started again, and knows nothing.
    ManagerCrash = "manager_crash" lasts,
    /// The same without a word to the network.
    ManagerPowerCut = "manager_power_cut" lasts,
    /// One of two event managers sleeps, and knows nothing of it when it wakes up.
    ManagerPause = "manager_pause" lasts,
    /// An event manager and all units hear nothing of each other.
    ManagerCutOff = "manager_cut_off" lasts,
    /// The coordination service hears nothing of an event manager, or of any.
    CoordinationCut = "coordination_cut" lasts,
    /// The coordination service's answers take so much longer.
    CoordinationLate = "coordination_late" lasts,
    /// The event manager is gone; after that time another one is started that takes the run over.
    ManagerReplaced = "manager_replaced" lasts,
    /// The event manager sleeps. Another one is started at once elsewhere and takes the run over; after that time the first one wakes up.
    ManagerOvertaken = "manager_overtaken" lasts,
    /// The trigger source begins its numbering again with this event, which declares a resynchronisation; all others follow.
    Resync = "source_resynchronises" at_once,
    /// An e-link is dead: what is triggered meanwhile never comes, and the numbers go on.
    LinkDies = "link_dies" lasts,
    /// An e-link stops within a chunk, of which a piece is in a block that has left, and goes on afterwards.
    LinkStalls = "link_stalls" lasts,
    /// An e-link's next blocks, so many, do not reach the ring.
    BlockLost = "block_lost" at_once,
    /// An e-link's next block is damaged in the way of this number.
    BlockDamaged = "block_damaged" at_once,
    /// An e-link's next chunk has this flag and is cut to half of its length.
    ChunkTruncated = "chunk_truncated" at_once,
    /// An e-link's next chunk has this flag.
    ChunkError = "chunk_error" at_once,
    /// An e-link's next chunk has this flag.
    ChunkCrc = "chunk_crc" at_once,
    /// An e-link's next chunk has this flag.
    ChunkBusy = "chunk_busy" at_once,
    /// An e-link's next chunk has this flag and is cut to half of its length.
    ChunkTimedOut = "chunk_timed_out" at_once,
    /// An e-link's next chunk begins and never ends.
    ChunkNeverEnds = "chunk_never_ends" at_once,
    /// An e-link's next chunk ends without having begun.
    ChunkNeverBegins = "chunk_never_begins" at_once,
    /// An e-link's next chunk is larger than any may be.
    ChunkOversize = "chunk_oversize" at_once,
    /// The card of a readout unit writes nothing.
    CardStalls = "card_stalls" lasts,
    /// All e-links of a readout unit's card bring so many of the next events at once, before their time.
    CardBurst = "card_burst" at_once,
    /// A subscriber of a card's chunks is gone; after that time it is started again.
    SubscriberKilled = "subscriber_killed" lasts,
    /// A subscriber reads nothing.
    SubscriberSleeps = "subscriber_sleeps" lasts,
    /// Nothing passes between a subscriber and the readout unit.
    SubscriberCutOff = "subscriber_cut_off" lasts,
    /// A subscriber's connection is reset.
    SubscriberReset = "subscriber_reset" at_once,
    /// A subscriber gets so many bytes a second.
    SubscriberSlow = "subscriber_slow" lasts,
    /// The process of a filter unit crashes over the next event that it begins, and so do as many processes that get this event.
    FilterCrashes = "filter_crashes" at_once,
    /// The same, but it hangs.
    FilterHangs = "filter_hangs" at_once,
    /// The same, but it decides a little too late: it was ordered to end, and has not yet.
    FilterLate = "filter_late" at_once,
    /// The same, but it answers what cannot be true.
    FilterLies = "filter_lies" at_once,
    /// It says of the next event that it cannot decide.
    FilterUndecided = "filter_undecided" at_once,
    /// The process of a filter unit ends.
    FilterDies = "filter_dies" at_once,
    /// Of the packets from sources to gateways so many in a hundred are lost.
    PacketsLost = "packets_lost" lasts,
    /// So many in a hundred come twice.
    PacketsDoubled = "packets_doubled" lasts,
    /// Half of them are held up for this time at most, and are overtaken.
    PacketsDisordered = "packets_disordered" lasts,
    /// All of them take this time.
    PacketsLate = "packets_late" lasts,
    /// The same of events and progress, from gateways to nodes.
    PushesLost = "pushes_lost" lasts,
    /// See above.
    PushesDoubled = "pushes_doubled" lasts,
    /// See above.
    PushesDisordered = "pushes_disordered" lasts,
    /// See above.
    PushesLate = "pushes_late" lasts,
    /// The same of decisions and credit, from nodes to gateways.
    DecisionsLost = "decisions_lost" lasts,
    /// See above.
    DecisionsDoubled = "decisions_doubled" lasts,
    /// See above.
    DecisionsDisordered = "decisions_disordered" lasts,
    /// See above.
    DecisionsLate = "decisions_late" lasts,
    /// The same of the throttle's state, requests and decision streams, from gateways to triggers.
    StatesLost = "states_lost" lasts,
    /// See above.
    StatesDoubled = "states_doubled" lasts,
    /// See above.
    StatesDisordered = "states_disordered" lasts,
    /// See above.
    StatesLate = "states_late" lasts,
    /// A source's packets are all lost.
    SourceSilent = "source_silent" lasts,
    /// The end of a source's next packets is missing: eight times the bytes that are left, and how many packets.
    /// The others spoil so many packets.
    PacketCutShort = "packet_cut_short" at_once,
    /// They say that they have one event more.
    PacketWrongPacking = "packet_wrong_packing" at_once,
    /// They say that they belong to another partition.
    PacketWrongPartition = "packet_wrong_partition" at_once,
    /// In the next packet this bit of the first event's number is wrong.
    PacketMisnumbered = "packet_misnumbered" at_once,
    /// Their first fragment names another event.
    PacketMalformed = "packet_malformed" at_once,
    /// A stranger sends nonsense to all members, under a name of its own and under that of a source.
    StrangerPackets = "stranger_packets" at_once,
    /// A node's process is gone; after that time a new one is started, which knows nothing.
    NodeKilled = "node_killed" lasts,
    /// A node has no turn.
    NodeSleeps = "node_sleeps" lasts,
    /// Nothing passes to a node nor from it.
    NodeCutOff = "node_cut_off" lasts,
    /// Nothing reaches a node, but it is heard.
    NodeDeaf = "node_deaf" lasts,
    /// A node's clock, and so everything that it does, is so many times slower.
    NodeSlow = "node_slow" lasts,
    /// A gateway, or its half that sends, has no turn.
    GatewaySleeps = "gateway_sleeps" lasts,
    /// A trigger has no turn.
    TriggerSleeps = "trigger_sleeps" lasts,
    /// Receivers have little room for packets that wait.
    QueueShort = "queue_short" lasts,
    /// A gateway's process is gone; after that time a new one is started, which knows nothing.
    GatewayKilled = "gateway_killed" lasts,
    /// The connections of a node are reset.
    NodeDisconnected = "node_disconnected" at_once,
    /// A reader of decisions has no turn.
    ReaderSleeps = "reader_sleeps" lasts,
    /// A reader of decisions ends its connection, and comes back after that time.
    ReaderLeaves = "reader_leaves" lasts,
    /// What of a gateway receives has a turn only every so often.
    GatewaySlow = "gateway_slow" lasts,
    /// A reader of decisions takes so many bytes a second.
    ReaderSlow = "reader_slow" lasts,
}

impl FaultKind {
    /// The number of kinds that strike units, sources and links, in any system.
    pub const OF_ANY: usize = 26;
    /// What a front end does wrong.
    pub const OF_FRONT_ENDS: RangeInclusive<Self> = Self::StopMidFragment..=Self::Slow;
    /// What a filter unit does wrong.
    pub const OF_FILTERS: RangeInclusive<Self> = Self::FilterCrashes..=Self::FilterDies;
    /// The first kind that belongs to systems in which sources push. A few kinds before it strike those systems too.
    pub const FIRST_OF_PUSH: usize = Self::PacketsLost as usize;
    /// The first of these that strikes gateways' lives, connections or readers.
    pub const FIRST_OF_LIVES: usize = Self::GatewayKilled as usize;
    /// The first of these that is drawn separately: too little processor time, and readers that take little.
    pub const FIRST_OF_LOAD: usize = Self::GatewaySlow as usize;
}

/// A fault and its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduled {
    /// When it begins, since the run's begin.
    pub at: Duration,
    /// How long it lasts; nothing for what happens at once.
    pub lasts: Duration,
    /// What happens.
    pub fault: Fault,
}

impl Scheduled {
    /// When it is over.
    pub fn end(&self) -> Duration {
        self.at + self.lasts
    }
}

impl fmt::Display for Scheduled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at {:?}: {}", self.at, self.fault)?;
        if self.lasts.is_zero() { Ok(()) } else { write!(out, ", for {:?}", self.lasts) }
    }
}

/// A member of a run, by its index among its kind.
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
    /// A filter unit of a builder unit.
    Filter(u16, u16),
    /// A gateway, or the half of it that receives.
    Gateway(u16),
    /// The half of a gateway that sends, where it has a thread of its own.
    Sending(u16),
    /// A node of the farm.
    Node(u16),
    /// The trigger of a flow and all of its sources.
    Trigger(u8),
    /// A reader of decisions.
    Reader(u16),
    /// A source of a flow.
    FlowSource(u8, u16),
}

impl Place {
    /// Which one it is among its kind.
    pub(super) const fn index(self) -> u16 {
        match self {
            Self::Manager(index)
            | Self::Readout(index)
            | Self::Builder(index)
            | Self::Source(index)
            | Self::Card(index)
            | Self::Subscriber(index)
            | Self::Gateway(index)
            | Self::Sending(index)
            | Self::Node(index)
            | Self::Reader(index)
            | Self::Filter(_, index)
            | Self::FlowSource(_, index) => index,
            Self::Trigger(flow) => flow as u16,
        }
    }

    /// Whether it is no node of a run in which builder units pull: it brings fragments, takes chunks, or
    /// decides on events.
    pub const fn is_outside(self) -> bool {
        matches!(self, Self::Source(_) | Self::Card(_) | Self::Subscriber(_) | Self::Filter(..))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Manager(_) => "evm",
            Self::Readout(_) => "ru",
            Self::Builder(_) => "bu",
            Self::Source(_) => "source",
            Self::Card(_) => "card",
            Self::Subscriber(_) => "subscriber",
            Self::Filter(builder, index) => return write!(out, "bu{builder}-filter{index}"),
            Self::Gateway(_) => "gw",
            Self::Sending(index) => return write!(out, "gw{index}-send"),
            Self::Node(_) => "node",
            Self::Trigger(_) => "trigger",
            Self::Reader(_) => "reader",
            Self::FlowSource(flow, index) => return write!(out, "source{flow}.{index}"),
        };
        write!(out, "{name}{}", self.index())
    }
}

/// The most faults of one run.
const MOST: u64 = 6;
/// How long faults last.
pub(super) const LASTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(4);

/// A fault that begins then, and for how long it goes on where it does.
pub(super) fn scheduled(draw: &mut Random, at: Duration, fault: Fault, lasts: RangeInclusive<Duration>) -> Scheduled {
    let lasts = if fault.kind.is_lasting() { draw.time(*lasts.start(), *lasts.end()) } else { Duration::ZERO };
    Scheduled { at, lasts, fault }
}

/// The faults of a scenario whose sources send for `span`.
pub(super) fn draw(scenario: &Scenario, span: Duration) -> Vec<Scheduled> {
    let mut draw = Random::new(scenario.seed, 2);
    let count = if draw.one_in(12) { 0 } else { draw.between(1, MOST) };
    // Some in a burst: at one time, or while the one before goes on.
    let mut before = Duration::ZERO;
    let mut faults: Vec<Scheduled> = Vec::new();
    for _ in 0..count {
        before = moment(&mut draw, span, before);
        let kind = draw.of(&FaultKind::ALL[..FaultKind::OF_ANY]);
        let fault = fault(&mut draw, scenario, kind);
        faults.push(scheduled(&mut draw, before, fault, LASTS));
    }
    faults.sort_by_key(|scheduled| scheduled.at);
    faults
}

/// When something goes wrong; the fault before it began at `before`.
pub(super) fn moment(draw: &mut Random, span: Duration, before: Duration) -> Duration {
    match draw.below(8) {
        0 => Duration::from_micros(draw.between(0, 3000)),
        1 | 2 => before + draw.time(Duration::from_micros(10), Duration::from_millis(500)),
        3 => span + draw.time(Duration::from_micros(100), Duration::from_secs(1)),
        _ => span.mul_f64(draw.between(0, 1000) as f64 / 1000.0),
    }
}

fn source(draw: &mut Random, scenario: &Scenario) -> u16 {
    draw.below(scenario.sources.len() as u64) as u16
}

fn node(draw: &mut Random, scenario: &Scenario) -> Place {
    match draw.below(u64::from(1 + scenario.readouts + scenario.builders)) as u16 {
        0 => Place::Manager(0),
        index if index <= scenario.readouts => Place::Readout(index - 1),
        index => Place::Builder(index - 1 - scenario.readouts),
    }
}

/// A unit that may die: how event managers die follows below.
fn mortal(draw: &mut Random, scenario: &Scenario) -> Place {
    loop {
        let node = node(draw, scenario);
        if node != Place::Manager(0) {
            return node;
        }
    }
}

/// Two members with a connection between them.
fn link(draw: &mut Random, scenario: &Scenario) -> (Place, Place) {
    let readout = Place::Readout(draw.below(scenario.readouts.into()) as u16);
    let builder = Place::Builder(draw.below(scenario.builders.into()) as u16);
    let source = source(draw, scenario);
    let of_source = Place::Readout(scenario.readout_of(source.into()));
    let (one, other) = draw.of(&[
        (readout, builder),
        (readout, Place::Manager(0)),
        (builder, Place::Manager(0)),
        (Place::Source(source), of_source),
    ]);
    if draw.one_in(2) { (one, other) } else { (other, one) }
}

/// What happens to the connections between two members.
fn of_line(draw: &mut Random, kind: FaultKind, one: Place, other: Place) -> Fault {
    let fault = Fault::between(kind, one, other);
    match kind {
        FaultKind::Delay => fault.with_time(draw.time(Duration::from_millis(1), Duration::from_millis(300))),
        FaultKind::SlowLink => fault.with_number(1 << draw.between(12, 20)),
        _ => fault,
    }
}

fn fault(draw: &mut Random, scenario: &Scenario, kind: FaultKind) -> Fault {
    use FaultKind::*;
    let milliseconds = Duration::from_millis;
    let builder = |draw: &mut Random| Place::Builder(draw.below(scenario.builders.into()) as u16);
    match kind {
        Delay | SlowLink | Partition | OneWay | Reset | HalfOpen => {
            let (one, other) = link(draw, scenario);
            of_line(draw, kind, one, other)
        }
        Pause => {
            let (source, node) = (Place::Source(source(draw, scenario)), node(draw, scenario));
            Fault::at(kind, if draw.one_in(4) { source } else { node })
        }
        Crash | PowerCut => Fault::at(kind, mortal(draw, scenario)),
        Reconnect | PoolDry => Fault::at(kind, node(draw, scenario)),
        ClockStep => {
            let far = draw.of(&[10, 1000, 3_600_000]);
            let far = if draw.one_in(2) { far } else { -far };
            Fault::at(kind, mortal(draw, scenario)).with_number(far)
        }
        ClockDrift => Fault::at(kind, node(draw, scenario)).with_number(draw.of(&[-50_000, -500, 500, 50_000])),
        DiskFull | DiskErrors => Fault::at(kind, builder(draw)),
        DiskSlow => {
            let latency = draw.time(milliseconds(5), milliseconds(500));
            Fault::at(kind, builder(draw)).with_time(latency)
        }
        Garbage => Fault::at(kind, Place::Readout(draw.below(scenario.readouts.into()) as u16)),
        _ => {
            let (source, count) = (source(draw, scenario), draw.between(1, 12).cast_signed());
            // Generic fragments have no checksum of their own.
            let has_crc = scenario.sources[usize::from(source)] == Format::Ferol;
            let kind = if kind == WrongCrc && !has_crc { Slow } else { kind };
            let counts = matches!(kind, SendTwice | Skip | ResetCounter);
            Fault::at(kind, Place::Source(source)).with_number(if counts { count } else { 0 })
        }
    }
}

/// A source loses its connection for a moment, and its readout unit has no free block when it comes back, nor for longer
/// than events wait for an absent source.
pub(super) fn draw_latecomer(scenario: &Scenario, span: Duration, draw: &mut Random) -> [Scheduled; 2] {
    let source = source(draw, scenario);
    let readout = Place::Readout(scenario.readout_of(source.into()));
    let at = if draw.one_in(4) { Duration::ZERO } else { span.mul_f64(draw.between(0, 1000) as f64 / 1000.0) };
    let away = draw.time(*LASTS.start(), Duration::from_millis(50));
    let dry_at = at + away.mul_f64(draw.between(0, 10) as f64 / 10.0);
    let dry = scenario.time_outs.source.mul_f64(draw.between(12, 25) as f64 / 10.0);
    [
        Scheduled { at, lasts: away, fault: Fault::at(FaultKind::Disconnect, Place::Source(source)) },
        Scheduled { at: dry_at, lasts: away + dry, fault: Fault::at(FaultKind::PoolDry, readout) },
    ]
}

/// The most faults of filter units in one run.
const MOST_OF_FILTERS: u64 = 8;

/// What goes wrong with filter units, beside everything else, in a run whose sources send for `span`. In every fourth run nothing does.
pub(super) fn draw_of_filters(scenario: &Scenario, units: u16, span: Duration, draw: &mut Random) -> Vec<Scheduled> {
    let count = if draw.one_in(4) { 0 } else { draw.between(1, MOST_OF_FILTERS) };
    let mut before = Duration::ZERO;
    let faults = (0..count).map(|_| {
        before = moment(draw, span, before);
        let kinds = *FaultKind::OF_FILTERS.start() as usize..=*FaultKind::OF_FILTERS.end() as usize;
        let kind = draw.of(&FaultKind::ALL[kinds]);
        let place = Place::Filter(draw.below(scenario.builders.into()) as u16, draw.below(units.into()) as u16);
        let times = draw.between(1, 3).cast_signed();
        let has_times = !matches!(kind, FaultKind::FilterUndecided | FaultKind::FilterDies);
        let fault = Fault::at(kind, place).with_number(if has_times { times } else { 1 });
        scheduled(draw, before, fault, LASTS)
    });
    faults.collect()
}

/// What happens to the connections between builder units and their filter nodes. A stream of its own.
pub(super) fn draw_of_filter_lines(scenario: &Scenario, units: u16, span: Duration) -> Vec<Scheduled> {
    use FaultKind::{Delay, HalfOpen, OneWay, Partition, Reset, SlowLink};
    let mut draw = Random::new(scenario.seed ^ 1, REMOTE_STREAM);
    let count = draw.below(MOST_OF_FILTERS);
    let mut before = Duration::ZERO;
    let faults = (0..count).map(|_| {
        before = moment(&mut draw, span, before);
        let kind = draw.of(&[Delay, SlowLink, Partition, OneWay, HalfOpen, Reset, Reset]);
        let builder = draw.below(scenario.builders.into()) as u16;
        let (one, other) = (Place::Builder(builder), Place::Filter(builder, draw.below(units.into()) as u16));
        let (one, other) = if draw.one_in(2) { (one, other) } else { (other, one) };
        let fault = of_line(&mut draw, kind, one, other);
        scheduled(&mut draw, before, fault, LASTS)
    });
    faults.collect()
}

/// The most faults of event managers in one run.
const MOST_OF_MANAGERS: u64 = 6;

/// What happens to event managers where there are two, beside everything else, in a run that goes on for `span` after
/// its `begin`.
pub(super) fn draw_of_managers(
    scenario: &Scenario,
    begin: Duration,
    span: Duration,
    draw: &mut Random,
) -> Vec<Scheduled> {
    let mut before = begin;
    let count = draw.between(2, MOST_OF_MANAGERS);
    let faults = (0..count).map(|_| {
        before = match draw.below(10) {
            0 => Duration::from_micros(draw.between(0, 3000)),
            // While the one before is still being dealt with.
            1..4 => before + draw.time(Duration::from_micros(10), Duration::from_millis(1500)),
            4 | 5 => begin + draw.time(Duration::from_micros(10), Duration::from_millis(3)),
            6 | 7 => begin + span + draw.time(Duration::from_micros(10), Duration::from_millis(30)),
            _ => begin + span.mul_f64(draw.between(0, 1000) as f64 / 1000.0),
        };
        let fault = match scenario.managers {
            Managers::Succession => of_succession(draw),
            Managers::Alone | Managers::Standby(_) if draw.one_in(4) => of_manager_lines(draw, scenario),
            Managers::Alone | Managers::Standby(_) => of_contenders(draw),
        };
        scheduled(draw, before, fault, LASTS)
    });
    faults.collect()
}

fn of_succession(draw: &mut Random) -> Fault {
    let mut manner = |times, manner| if draw.one_in(times) { manner } else { 0 };
    if manner(2, 1) != 0 {
        Fault::new(FaultKind::ManagerReplaced).with_number(manner(3, POWER) | manner(2, ELSEWHERE))
    } else {
        Fault::new(FaultKind::ManagerOvertaken).with_number(manner(2, RESET))
    }
}

fn of_contenders(draw: &mut Random) -> Fault {
    use FaultKind::*;
    let place = Place::Manager(draw.below(2) as u16);
    let kind =
        draw.of(&[ManagerCrash, ManagerPowerCut, ManagerPause, ManagerCutOff, CoordinationCut, CoordinationLate]);
    match kind {
        CoordinationCut if draw.one_in(3) => Fault::new(kind),
        CoordinationLate => {
            Fault::at(kind, place).with_time(draw.time(Duration::from_millis(10), Duration::from_secs(2)))
        }
        _ => Fault::at(kind, place),
    }
}

/// What happens to any node, here to an event manager, and to its lines.
fn of_manager_lines(draw: &mut Random, scenario: &Scenario) -> Fault {
    let place = Place::Manager(draw.below(2) as u16);
    let other = match draw.below(2) {
        0 => Place::Readout(draw.below(scenario.readouts.into()) as u16),
        _ => Place::Builder(draw.below(scenario.builders.into()) as u16),
    };
    match draw.below(9) {
        0 => Fault::between(FaultKind::Partition, place, other),
        1 => Fault::between(FaultKind::OneWay, place, other),
        2 => Fault::between(FaultKind::OneWay, other, place),
        3 => Fault::between(FaultKind::Reset, place, other),
        4 => Fault::between(FaultKind::HalfOpen, place, other),
        5 => Fault::at(FaultKind::Reconnect, place),
        6 => Fault::at(FaultKind::ClockStep, place).with_number(draw.of(&[-3_600_000, -1000, 1000, 3_600_000])),
        7 => Fault::at(FaultKind::ClockDrift, place).with_number(draw.of(&[-50_000, 50_000])),
        _ => Fault::at(FaultKind::PoolDry, place),
    }
}
