//! What goes wrong in a push system, where, when and for how long; what can be wrong with a source's packet; and how all that
//! is drawn from a seed.

use super::member::Place;
use super::scenario::{
    FAULTS_STREAM, MASKS_STREAM, MORE_FAULTS_STREAM, Masking, SLOW_READERS_STREAM, Scenario, TIMEOUTS_STREAM, Timing,
};
use crate::campaign::draw::Draw;
use crate::campaign::fault::FaultKind;
use crate::campaign::schedule::moment;
use std::fmt;
use std::time::Duration;

/// What travels, and from whom to whom.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// Packets, from sources to gateways.
    Packets,
    /// Events and progress, from gateways to nodes.
    Pushes,
    /// Decisions and credit, from nodes to gateways.
    Decisions,
    /// The throttle's state, requests and decision streams, from gateways to triggers.
    States,
}

/// What happens to packets on a way.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Trouble {
    /// So large a share is lost.
    Lost(f64),
    /// So large a share comes twice.
    Doubled(f64),
    /// Half of them are held up for so long at most, and are overtaken.
    Disordered(Duration),
    /// All of them take so long.
    Late(Duration),
}

/// One thing that goes wrong.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// A way is bad.
    OnWay(Way, Trouble),
    /// A source's packets are all lost.
    SourceSilent {
        /// Its flow.
        flow: u8,
        /// Which source.
        source: u16,
    },
    /// A source's next packets are wrong.
    WrongPackets {
        /// Its flow.
        flow: u8,
        /// Which source.
        source: u16,
        /// What is wrong.
        wrong: Wrong,
        /// How many.
        count: u64,
    },
    /// A stranger sends nonsense to all members, under a name of its own and under that of a source.
    Stranger,
    /// A node's process is gone; after that time a new one is started, which knows nothing.
    NodeKilled(u16),
    /// A gateway's process is gone; after that time a new one is started, which knows nothing.
    GatewayKilled(u16),
    /// A member has no turn; of a gateway both halves have none.
    Sleeps(Place),
    /// What of a gateway receives has a turn only every so often.
    GatewaySlow(u16, Duration),
    /// The connections of a node are reset.
    NodeDisconnected(u16),
    /// A reader of decisions ends its connection, and comes back after that time.
    ReaderLeaves(u16),
    /// A reader of decisions takes so many bytes a second.
    ReaderSlow(u16, u64),
    /// Nothing passes to a node nor from it.
    NodeCutOff(u16),
    /// Nothing reaches a node, but it is heard.
    NodeDeaf(u16),
    /// A node's clock, and so everything that it does, is so many times slower.
    NodeSlow(u16, u16),
    /// The monotonic clock goes wrong by so many millionths.
    ClockDrift(Place, i32),
    /// Receivers have little room for packets that wait.
    QueueShort,
    /// A gateway's disk has no room.
    DiskFull(u16),
    /// Each command of a gateway's disk takes so long.
    DiskSlow(u16, Duration),
    /// Half of the writes of a gateway's disk fail.
    DiskErrors(u16),
}

impl Fault {
    /// Its row in the table.
    pub const fn kind(&self) -> FaultKind {
        match self {
            Self::OnWay(way, trouble) => on_way(*way, *trouble),
            Self::SourceSilent { .. } => FaultKind::SourceSilent,
            Self::WrongPackets { wrong, .. } => wrong.kind(),
            Self::Stranger => FaultKind::StrangerPackets,
            Self::NodeKilled(_) => FaultKind::NodeKilled,
            Self::GatewayKilled(_) => FaultKind::GatewayKilled,
            Self::GatewaySlow(..) => FaultKind::GatewaySlow,
            Self::NodeDisconnected(_) => FaultKind::NodeDisconnected,
            Self::ReaderLeaves(_) => FaultKind::ReaderLeaves,
            Self::ReaderSlow(..) => FaultKind::ReaderSlow,
            Self::Sleeps(Place::Gateway(_) | Place::Sending(_)) => FaultKind::GatewaySleeps,
            Self::Sleeps(Place::Reader(_)) => FaultKind::ReaderSleeps,
            Self::Sleeps(Place::Node(_)) => FaultKind::NodeSleeps,
            Self::Sleeps(Place::Trigger(_)) => FaultKind::TriggerSleeps,
            Self::NodeCutOff(_) => FaultKind::NodeCutOff,
            Self::NodeDeaf(_) => FaultKind::NodeDeaf,
            Self::NodeSlow(..) => FaultKind::NodeSlow,
            Self::ClockDrift(..) => FaultKind::ClockDrift,
            Self::QueueShort => FaultKind::QueueShort,
            Self::DiskFull(_) => FaultKind::DiskFull,
            Self::DiskSlow(..) => FaultKind::DiskSlow,
            Self::DiskErrors(_) => FaultKind::DiskErrors,
        }
    }

    /// Whether a member is away meanwhile that the run waits for. Readers of decisions come and go as they like.
    pub(super) const fn keeps_away(&self) -> bool {
        match self {
            Self::Sleeps(place) => !matches!(place, Place::Reader(_)),
            Self::GatewayKilled(_) | Self::NodeKilled(_) | Self::NodeCutOff(_) | Self::NodeDeaf(_) => true,
            _ => false,
        }
    }
}

const fn on_way(way: Way, trouble: Trouble) -> FaultKind {
    match (way, trouble) {
        (Way::Packets, Trouble::Lost(_)) => FaultKind::PacketsLost,
        (Way::Packets, Trouble::Doubled(_)) => FaultKind::PacketsDoubled,
        (Way::Packets, Trouble::Disordered(_)) => FaultKind::PacketsDisordered,
        (Way::Packets, Trouble::Late(_)) => FaultKind::PacketsLate,
        (Way::Pushes, Trouble::Lost(_)) => FaultKind::PushesLost,
        (Way::Pushes, Trouble::Doubled(_)) => FaultKind::PushesDoubled,
        (Way::Pushes, Trouble::Disordered(_)) => FaultKind::PushesDisordered,
        (Way::Pushes, Trouble::Late(_)) => FaultKind::PushesLate,
        (Way::Decisions, Trouble::Lost(_)) => FaultKind::DecisionsLost,
        (Way::Decisions, Trouble::Doubled(_)) => FaultKind::DecisionsDoubled,
        (Way::Decisions, Trouble::Disordered(_)) => FaultKind::DecisionsDisordered,
        (Way::Decisions, Trouble::Late(_)) => FaultKind::DecisionsLate,
        (Way::States, Trouble::Lost(_)) => FaultKind::StatesLost,
        (Way::States, Trouble::Doubled(_)) => FaultKind::StatesDoubled,
        (Way::States, Trouble::Disordered(_)) => FaultKind::StatesDisordered,
        (Way::States, Trouble::Late(_)) => FaultKind::StatesLate,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, {self:?}", self.kind().name())
    }
}

/// A fault and its time.
pub type Scheduled = crate::campaign::fault::Timed<Fault>;

/// How a packet is spoilt on its way out of its source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Its end is missing: so many bytes are left at most.
    CutShort(usize),
    /// It says that it has one event more.
    Packing,
    /// It says that it belongs to another partition.
    Partition,
    /// This bit of its first event's number is wrong.
    Misnumbered(u8),
    /// Its first fragment names another event.
    Malformed,
}

impl Wrong {
    /// Its row in the table of faults.
    pub const fn kind(self) -> FaultKind {
        match self {
            Self::CutShort(_) => FaultKind::PacketCutShort,
            Self::Packing => FaultKind::PacketWrongPacking,
            Self::Partition => FaultKind::PacketWrongPartition,
            Self::Misnumbered(_) => FaultKind::PacketMisnumbered,
            Self::Malformed => FaultKind::PacketMalformed,
        }
    }

    /// Spoils the packet at the front of `bytes`, which has `length` bytes, and says how many it has afterwards.
    pub(super) fn spoil(self, bytes: &mut [u8], length: usize) -> usize {
        // The layout is `wire::mep`'s: first event, packing, length, partition, then the first fragment's event.
        let mut change = |range: core::ops::Range<usize>, with: [u8; 4]| {
            let room = bytes.get_mut(range).unwrap_or_default();
            room.iter_mut().zip(with).for_each(|(byte, with)| *byte = byte.wrapping_add(with));
        };
        match self {
            Self::CutShort(left) => return left.min(length.saturating_sub(1)),
            Self::Packing => change(4..5, [1; 4]),
            Self::Partition => change(8..9, [1; 4]),
            Self::Misnumbered(bit) => {
                let place = usize::from(bit / 8);
                bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
            }
            Self::Malformed => change(12..13, [1; 4]),
        }
        length
    }
}

/// The most faults of one run.
const MOST: u64 = 7;
/// Faults last from so long ...
const SHORTEST: Duration = Duration::from_micros(300);
/// ... to so long.
const LONGEST: Duration = Duration::from_millis(400);
/// Gateways that are slow have a turn every so often at most.
const LEAST_PACE: Duration = Duration::from_micros(200);

/// The faults of a run whose triggers come for `span` once there are nodes.
pub(super) fn draw(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Scheduled> {
    let mut draw = Draw::new(scenario.seed, FAULTS_STREAM);
    let count = if draw.one_in(12) { 0 } else { draw.between(1, MOST) };
    let mut before = Duration::ZERO;
    let mut faults = Vec::new();
    for _ in 0..count {
        // Before the begin, nodes are still missing.
        let at = if draw.one_in(6) {
            begin.mul_f64(draw.between(0, 10) as f64 / 10.0)
        } else {
            begin + moment(&mut draw, span, before)
        };
        before = at.saturating_sub(begin);
        let fault = fault(&mut draw, scenario);
        let is_lasting = !matches!(fault, Fault::Stranger | Fault::WrongPackets { .. } | Fault::NodeDisconnected(_));
        let lasts = if is_lasting { draw.time(SHORTEST, LONGEST) } else { Duration::ZERO };
        faults.push(Scheduled { at, lasts, fault });
    }
    faults.sort_by_key(|scheduled| scheduled.at);
    // Three packets that agree on a far event would be believed.
    let mut strays = 0;
    faults.retain(|scheduled| {
        strays += usize::from(scheduled.fault.kind() == FaultKind::PacketMisnumbered);
        scheduled.fault.kind() != FaultKind::PacketMisnumbered || strays <= 2
    });
    faults
}

/// More faults, of gateways' lives, halves, connections and readers: from a stream of their own.
pub(super) fn draw_more(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Scheduled> {
    let mut draw = Draw::new(scenario.seed, MORE_FAULTS_STREAM);
    let mut more = Vec::new();
    for _ in 0..draw.below(4) {
        let at = if draw.one_in(5) {
            begin.mul_f64(draw.between(0, 10) as f64 / 10.0)
        } else {
            begin + moment(&mut draw, span, Duration::ZERO)
        };
        let fault = more_fault(&mut draw, scenario);
        let is_lasting = !matches!(fault, Fault::NodeDisconnected(_));
        let lasts = if is_lasting { draw.time(SHORTEST, LONGEST) } else { Duration::ZERO };
        more.push(Scheduled { at, lasts, fault });
    }
    more
}

/// Gateways that have too little of the processor for what comes, from the first trigger on and at some other time: more than a
/// set comes between two turns.
pub(super) fn draw_load(draw: &mut Draw, scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Scheduled> {
    let shortest = scenario.flows.iter().map(|flow| flow.pace).min().unwrap_or_default();
    let mut load = Vec::new();
    for gateway in 0..scenario.gateways {
        let later = begin + moment(draw, span, Duration::ZERO);
        for (at, lasts) in [(begin, span.min(LONGEST)), (later, draw.time(SHORTEST, LONGEST))] {
            let pace = draw.time(shortest, 2 * shortest).max(LEAST_PACE);
            load.push(Scheduled { at, lasts, fault: Fault::GatewaySlow(gateway, pace) });
        }
    }
    load
}

/// Readers of decisions who take little for a while: from a stream of their own.
pub(super) fn draw_slow_readers(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Scheduled> {
    let mut draw = Draw::new(scenario.seed, SLOW_READERS_STREAM);
    let readers = scenario.reader_places().len() as u64;
    if readers == 0 || draw.one_in(2) {
        return Vec::new();
    }
    let slow = (0..draw.between(1, 3)).map(|_| {
        let at = match draw.below(6) {
            0 => begin.mul_f64(draw.between(0, 10) as f64 / 10.0),
            1 => begin + draw.time(Duration::from_micros(10), Duration::from_millis(2)),
            _ => begin + moment(&mut draw, span, Duration::ZERO),
        };
        let fault = Fault::ReaderSlow(draw.below(readers) as u16, 1 << draw.between(10, 16));
        Scheduled { at, lasts: draw.time(SHORTEST, LONGEST), fault }
    });
    slow.collect()
}

/// In some runs, sources that are taken out and in again, before the first trigger or while triggers come: never the first one of a flow,
/// so that one stays. From a stream of their own.
pub(super) fn draw_masks(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Masking> {
    let mut draw = Draw::new(scenario.seed, MASKS_STREAM);
    let mut masks = Vec::new();
    let times = if draw.one_in(3) { draw.between(1, 4) } else { 0 };
    for _ in 0..times {
        let flow = draw.below(scenario.flows.len() as u64) as u8;
        let source = draw.between(1, u64::from(scenario.flows[usize::from(flow)].wanted()) - 1) as u16;
        let at = if draw.one_in(4) { Duration::ZERO } else { begin + moment(&mut draw, span, Duration::ZERO) };
        masks.push(Masking { at, flow, source, is_masked: true });
        // Some are out for a moment, and some to the end.
        if !draw.one_in(4) {
            let at = at + draw.time(SHORTEST, span.max(2 * SHORTEST));
            masks.push(Masking { at, flow, source, is_masked: false });
        }
    }
    masks.sort_by_key(|masking| masking.at);
    masks
}

/// In some runs, time-outs that are changed while triggers come. From a stream of their own.
pub(super) fn draw_timeouts(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Timing> {
    let mut draw = Draw::new(scenario.seed, TIMEOUTS_STREAM);
    let times = if draw.one_in(4) { draw.between(1, 4) } else { 0 };
    let mut timing = |_| {
        let flow = draw.below(scenario.flows.len() as u64) as u8;
        let at = begin + moment(&mut draw, span, Duration::ZERO);
        Timing { at, flow, timeout: draw.of(&[3, 10, 40, 100].map(Duration::from_millis)) }
    };
    let mut timeouts: Vec<Timing> = (0..times).map(&mut timing).collect();
    timeouts.sort_by_key(|timing| timing.at);
    timeouts
}

fn more_fault(draw: &mut Draw, scenario: &Scenario) -> Fault {
    let readers = scenario.reader_places().len() as u64;
    let (gateway, node) = (draw.below(scenario.gateways.into()) as u16, draw.below(scenario.nodes.len() as u64) as u16);
    let reader = draw.below(readers.max(1)) as u16;
    match draw.of(&FaultKind::ALL[FaultKind::FIRST_OF_LIVES..FaultKind::FIRST_OF_LOAD]) {
        FaultKind::NodeDisconnected if scenario.connections => Fault::NodeDisconnected(node),
        FaultKind::ReaderSleeps if readers > 0 => Fault::Sleeps(Place::Reader(reader)),
        FaultKind::ReaderLeaves if readers > 0 => Fault::ReaderLeaves(reader),
        FaultKind::GatewayKilled => Fault::GatewayKilled(gateway),
        // There are no connections, or no readers.
        _ if scenario.threads => Fault::Sleeps(Place::Sending(gateway)),
        _ => Fault::NodeKilled(node),
    }
}

fn fault(draw: &mut Draw, scenario: &Scenario) -> Fault {
    let kind = draw.of(&FaultKind::ALL[FaultKind::FIRST_OF_PUSH..FaultKind::FIRST_OF_LIVES]);
    let flow = draw.below(scenario.flows.len() as u64) as u8;
    let source = draw.below(u64::from(scenario.flows[usize::from(flow)].sources.sources)) as u16;
    let (gateway, node) = (draw.below(scenario.gateways.into()) as u16, draw.below(scenario.nodes.len() as u64) as u16);
    let wrong = |wrong, count| Fault::WrongPackets { flow, source, wrong, count };
    let count = draw.between(1, 6);
    match kind {
        FaultKind::SourceSilent => Fault::SourceSilent { flow, source },
        FaultKind::PacketCutShort => wrong(Wrong::CutShort(draw.of(&[0, 5, 14, 60])), count),
        FaultKind::PacketWrongPacking => wrong(Wrong::Packing, count),
        FaultKind::PacketWrongPartition => wrong(Wrong::Partition, count),
        FaultKind::PacketMisnumbered => wrong(Wrong::Misnumbered(draw.below(32) as u8), 1),
        FaultKind::PacketMalformed => wrong(Wrong::Malformed, count),
        FaultKind::StrangerPackets => Fault::Stranger,
        FaultKind::NodeKilled => Fault::NodeKilled(node),
        FaultKind::NodeSleeps => Fault::Sleeps(Place::Node(node)),
        FaultKind::NodeCutOff => Fault::NodeCutOff(node),
        FaultKind::NodeDeaf => Fault::NodeDeaf(node),
        FaultKind::NodeSlow => Fault::NodeSlow(node, draw.between(2, 50) as u16),
        FaultKind::GatewaySleeps => Fault::Sleeps(Place::Gateway(gateway)),
        FaultKind::TriggerSleeps => Fault::Sleeps(Place::Trigger(flow)),
        FaultKind::QueueShort => match draw.below(8) {
            0 => Fault::ClockDrift(Place::Gateway(gateway), draw.of(&[-50_000, 50_000])),
            1 => Fault::DiskErrors(gateway),
            2 => Fault::DiskSlow(gateway, draw.time(Duration::from_millis(1), Duration::from_millis(60))),
            _ => Fault::QueueShort,
        },
        _ => draw_on_way(draw, kind),
    }
}

fn draw_on_way(draw: &mut Draw, kind: FaultKind) -> Fault {
    let share = draw.of(&[0.05, 0.3, 1.0]);
    let time = draw.time(Duration::from_micros(200), Duration::from_millis(60));
    let ways = [Way::Packets, Way::Pushes, Way::Decisions, Way::States];
    let troubles = [Trouble::Lost(share), Trouble::Doubled(share), Trouble::Disordered(time), Trouble::Late(time)];
    let all = ways.into_iter().flat_map(|way| troubles.map(|trouble| Fault::OnWay(way, trouble)));
    let mut of_kind = all.filter(|fault| fault.kind() == kind);
    of_kind.next().expect("every other kind is one of a way")
}
