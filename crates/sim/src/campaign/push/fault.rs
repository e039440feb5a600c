//! What goes wrong in a push system, where, when and for how long.

use super::member::Place;
use super::wrong::Wrong;
use crate::campaign::fault::FaultKind;
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
    /// Somebody sends nonsense to everybody, under a name of his own and under that of a source.
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

    /// Whether somebody is away while it lasts whom the run waits for: readers of decisions come and go as they like.
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
