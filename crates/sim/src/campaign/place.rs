//! Who takes part in a simulated run.

use ropewalk_terms::NodeId;
use std::fmt;

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
