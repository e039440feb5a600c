//! Identifiers: sources, runs, nodes, their incarnations and epochs, and the key of an event.

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

/// Identifies an event manager. A successor takes a higher epoch; every node refuses lower ones.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u32);

/// The number of assignments of an event to a builder unit: 1 for the first time, 0 for never.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attempt(pub u16);

/// Identifies a life of a node: a node that restarts has a larger incarnation (its start in UTC ns).
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

/// Identifies an event in a run: resync count (16 bit) and event number (48 bit).
///
/// The number is unwrapped from a source's narrow counter; the resync count grows each time the trigger
/// source declares a resynchronisation. Keys order by resync count, then by number. The representation is
/// private so that a time window can become another kind of key (trigger-less streams).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventKey(u64);

const NUMBER_BITS: u32 = 48;

impl EventKey {
    /// The largest event number.
    pub const MAX_NUMBER: u64 = (1 << NUMBER_BITS) - 1;
    /// The smallest key.
    pub const MIN: Self = Self(0);
    /// The largest key: no event carries it.
    pub const MAX: Self = Self(u64::MAX);

    /// A key; bits of `number` above the 48th are cut off.
    pub const fn new(resync: u16, number: u64) -> Self {
        Self(((resync as u64) << NUMBER_BITS) | (number & Self::MAX_NUMBER))
    }

    /// The number of resynchronisations of the run before this event.
    pub const fn resync(self) -> u16 {
        (self.0 >> NUMBER_BITS) as u16
    }

    /// The event number within the resync count.
    pub const fn number(self) -> u64 {
        self.0 & Self::MAX_NUMBER
    }

    /// The key as one number, for tables and wires.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The key that [`EventKey::to_bits`] made this number of.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The key with the next number; the largest stays unchanged.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The key with the previous number; 0 stays unchanged.
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The key `count` numbers later in the same resync count.
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// The number of events from `earlier` to `self`; `None` if the resync counts differ or `earlier` is later.
    pub const fn since(self, earlier: Self) -> Option<u64> {
        if self.resync() == earlier.resync() { self.0.checked_sub(earlier.0) } else { None }
    }
}

impl fmt::Display for EventKey {
    /// `17`, or `2:17` after two resynchronisations.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.resync() == 0 {
            write!(out, "{}", self.number())
        } else {
            write!(out, "{}:{}", self.resync(), self.number())
        }
    }
}

impl fmt::Debug for EventKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "EventKey({self})")
    }
}

impl core::str::FromStr for EventKey {
    type Err = core::num::ParseIntError;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None => Ok(Self::new(0, text.parse()?)),
            Some((resync, number)) => Ok(Self::new(resync.parse()?, number.parse()?)),
        }
    }
}

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

    #[test]
    fn orders_by_resync_then_number() {
        assert!(EventKey::new(0, EventKey::MAX_NUMBER) < EventKey::new(1, 0));
        assert!(EventKey::new(1, 4) < EventKey::new(1, 5));
    }

    #[test]
    fn distance_exists_only_within_one_resync_count() {
        assert_eq!(EventKey::new(1, 9).since(EventKey::new(1, 4)), Some(5));
        assert_eq!(EventKey::new(1, 4).since(EventKey::new(1, 9)), None);
        assert_eq!(EventKey::new(2, 9).since(EventKey::new(1, 4)), None);
    }

    #[test]
    fn text_goes_there_and_back() {
        for key in [EventKey::new(0, 17), EventKey::new(2, 17), EventKey::new(u16::MAX, EventKey::MAX_NUMBER)] {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        assert!("x:1".parse::<EventKey>().is_err());
    }
}
