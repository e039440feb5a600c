//! Who is who: sources, runs, nodes, and which life or which event manager speaks.

use core::fmt;

/// A front end, by the id that its fragments carry (a CMS FED id, the generic fragment's source id).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SourceId(pub u32);

impl SourceId {
    /// Not a front end: the filter, whose result is stored as one more fragment of an event.
    pub const FILTER: Self = Self(u32::MAX - 1);
    /// From this one on ids are of what is stored with events besides their fragments, and no front end has one.
    pub const FIRST_RESERVED: Self = Self(u32::MAX - 2);

    /// Whether it is no front end's.
    pub const fn is_reserved(self) -> bool {
        self.0 >= Self::FIRST_RESERVED.0
    }
}

/// A run of data taking. Never used twice in one output directory.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RunNumber(pub u32);

/// Which event manager speaks. A successor takes a higher epoch; lower ones are refused by everyone.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u32);

/// How often an event was assigned to a builder unit: 1 for the first time, 0 for never.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attempt(pub u16);

/// Which life of a node speaks: a node that starts again has a larger incarnation (its start in UTC ns).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Incarnation(pub u64);

/// What a node is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Role {
    /// Receives fragments and holds super-fragments until they are released.
    Readout = 1,
    /// Builds, checks and writes whole events.
    Builder = 2,
    /// Assigns events to builder units and releases them: the event manager (EVM).
    Manager = 3,
    /// An emulated or played-back front end.
    Source = 4,
}

impl Role {
    /// The role with this number on the wire, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Readout),
            2 => Some(Self::Builder),
            3 => Some(Self::Manager),
            4 => Some(Self::Source),
            _ => None,
        }
    }

    /// The prefix of node names: `ru`, `bu`, `evm`, `source`.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Readout => "ru",
            Self::Builder => "bu",
            Self::Manager => "evm",
            Self::Source => "source",
        }
    }
}

/// A node of the run: its role and its index among the configured nodes of that role, counted from 0.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId {
    /// What the node is.
    pub role: Role,
    /// Its index among the nodes of that role.
    pub index: u16,
}

impl NodeId {
    /// The readout unit with this index.
    pub const fn readout(index: u16) -> Self {
        Self { role: Role::Readout, index }
    }

    /// The builder unit with this index.
    pub const fn builder(index: u16) -> Self {
        Self { role: Role::Builder, index }
    }

    /// The event manager.
    pub const MANAGER: Self = Self { role: Role::Manager, index: 0 };
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.role.prefix(), self.index)
    }
}

macro_rules! shown_as_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }
    )*};
}
shown_as_number!(SourceId, RunNumber, Epoch, Attempt, Incarnation);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_by_role_and_index() {
        assert_eq!(NodeId::readout(0).to_string(), "ru0");
        assert_eq!(NodeId::builder(12).to_string(), "bu12");
        assert_eq!(NodeId::MANAGER.to_string(), "evm0");
    }

    #[test]
    fn role_numbers_go_there_and_back() {
        for role in [Role::Readout, Role::Builder, Role::Manager, Role::Source] {
            assert_eq!(Role::from_u8(role as u8), Some(role));
        }
        assert_eq!(Role::from_u8(0), None);
    }
}
