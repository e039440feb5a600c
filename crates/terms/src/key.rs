//! The event key: what makes fragments of one event find each other.

use core::fmt;

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

    /// How often the run was resynchronised before this event.
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

    /// The key with the next number; stays where it is at the largest.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The key with the number before; stays where it is at 0.
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The key `count` numbers later in the same resync count.
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// How many numbers `self` lies after `earlier`; none where the resync counts differ or it lies before.
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
