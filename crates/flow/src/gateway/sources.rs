//! Who sent a packet: from its address to the index of the source.

use super::config::FlowConfig;
use core::fmt;
use core::net::Ipv4Addr;
use ropewalk_terms::Cause;
use ropewalk_terms::flaws::{Flaw, is_planted};

/// From where packets come.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The sender's address.
    pub ip: Ipv4Addr,
    /// Its UDP port; 0 where there is none (raw IP), or it does not matter.
    pub port: u16,
}

impl Address {
    /// Any port of this address.
    pub const fn of(ip: Ipv4Addr) -> Self {
        Self { ip, port: 0 }
    }

    /// Whether sources are told apart by their ports as well: where at least one has a port.
    pub(super) fn tells_ports(mut sources: impl Iterator<Item = Self>) -> bool {
        sources.any(|address| address.port != 0)
    }

    /// Address and port as one number.
    #[inline]
    pub(super) const fn number(self, by_port: bool) -> u64 {
        let port = if by_port { self.port } else { 0 };
        (self.ip.to_bits() as u64) << 16 | port as u64
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.port == 0 { self.ip.fmt(out) } else { write!(out, "{}:{}", self.ip, self.port) }
    }
}

/// Marks a vacant place; no address has this number.
const VACANT: u64 = u64::MAX;
/// In the place of the index of a source that is masked; there are fewer sources than that.
const MASKED: u16 = u16::MAX;

/// The index of every source, by its address: at most half full, so that a search ends soon.
#[derive(Debug)]
pub(super) struct SourceTable {
    places: Box<[(u64, u16)]>,
    shift: u32,
    by_port: bool,
}

impl SourceTable {
    pub(super) fn new(config: &FlowConfig) -> Self {
        let by_port = Address::tells_ports(config.addresses());
        let length = (2 * config.addresses().count()).next_power_of_two().max(2);
        let places = vec![(VACANT, 0); length].into_boxed_slice();
        let mut table = Self { places, shift: 64 - length.trailing_zeros(), by_port };
        for (index, address) in config.addresses().enumerate() {
            let number = address.number(by_port);
            let place = table.place(number);
            table.places[place] = (number, if index < config.sources.len() { index as u16 } else { MASKED });
        }
        table
    }

    /// The source at this address.
    ///
    /// # Errors
    /// [`Cause::UnknownSource`] and [`Cause::Masked`].
    #[inline]
    pub(super) fn find(&self, address: Address) -> Result<u16, Cause> {
        let number = address.number(self.by_port);
        match self.places[self.place(number)] {
            (found, _) if found != number => Err(Cause::UnknownSource),
            (_, MASKED) if is_planted(Flaw::MaskedForStranger) => Err(Cause::UnknownSource),
            (_, MASKED) => Err(Cause::Masked),
            (_, index) => Ok(index),
        }
    }

    /// Where the number is, or would be.
    #[inline]
    fn place(&self, number: u64) -> usize {
        // Fibonacci hashing: neighbouring addresses come to lie apart.
        let mut place = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
        while self.places[place].0 != number && self.places[place].0 != VACANT {
            place = (place + 1) & (self.places.len() - 1);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::PacketSource;
    use ropewalk_terms::SourceId;

    fn table(addresses: &[Address]) -> SourceTable {
        let source = |(index, &address)| PacketSource { id: SourceId(index as u32), address };
        SourceTable::new(&FlowConfig::new(addresses.iter().enumerate().map(source).collect(), 1))
    }

    #[test]
    fn every_source_is_found_and_nobody_else() {
        let addresses: Vec<_> = (0..323).map(|index| Address::of(Ipv4Addr::from_bits(0x0A00_0001 + index))).collect();
        let table = table(&addresses);
        for (index, address) in addresses.iter().enumerate() {
            assert_eq!(table.find(*address), Ok(index as u16));
            assert_eq!(table.find(Address { port: 77, ..*address }), Ok(index as u16), "the port does not matter");
        }
        assert_eq!(table.find(Address::of(Ipv4Addr::new(10, 0, 2, 0))), Err(Cause::UnknownSource));
        assert_eq!(table.find(Address::of(Ipv4Addr::BROADCAST)), Err(Cause::UnknownSource));
    }

    #[test]
    fn ports_tell_sources_of_one_host_apart() {
        let addresses: Vec<_> = (1..=9).map(|port| Address { ip: Ipv4Addr::LOCALHOST, port }).collect();
        let table = table(&addresses);
        assert!((1..=9).all(|port| table.find(Address { ip: Ipv4Addr::LOCALHOST, port }) == Ok(port - 1)));
        assert_eq!(table.find(Address::of(Ipv4Addr::LOCALHOST)), Err(Cause::UnknownSource));
    }
}
