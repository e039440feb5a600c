//! Ethernet II: where a frame goes, on which VLAN, and what it carries.

use super::{ETHERNET_BYTES, InternetError, VLAN_BYTES, u16_at};

/// The address of a network card.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Everybody on the network.
    pub const BROADCAST: Self = Self([0xFF; 6]);
}

impl core::fmt::Display for MacAddress {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// What a frame carries.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EtherType(pub u16);

impl EtherType {
    /// An IPv4 packet.
    pub const IPV4: Self = Self(0x0800);
    /// A VLAN tag comes first (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
}

/// The tag of a virtual network (IEEE 802.1Q).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VlanTag(pub u16);

impl VlanTag {
    /// The network's number, below 4096. 0 is none: the tag then carries a priority alone.
    pub const fn id(self) -> u16 {
        self.0 & 0xFFF
    }
}

/// An Ethernet header.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct EthernetHeader {
    /// Who is to get the frame.
    pub destination: MacAddress,
    /// Who sent it.
    pub source: MacAddress,
    /// The tag, if there is one.
    pub vlan: Option<VlanTag>,
    /// What it carries, behind the tag.
    pub ether_type: EtherType,
}

impl EthernetHeader {
    /// Bytes of the header, its tag included.
    pub const fn byte_count(&self) -> usize {
        ETHERNET_BYTES + if self.vlan.is_some() { VLAN_BYTES } else { 0 }
    }

    /// Writes the header to the front of `out` and returns its length; `None`, and nothing is written, if it does not fit.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.byte_count())?;
        out[..6].copy_from_slice(&self.destination.0);
        out[6..12].copy_from_slice(&self.source.0);
        if let Some(tag) = self.vlan {
            out[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
            out[14..16].copy_from_slice(&tag.0.to_be_bytes());
        }
        let at = out.len() - 2;
        out[at..].copy_from_slice(&self.ether_type.0.to_be_bytes());
        Some(out.len())
    }
}

/// A view over a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EthernetFrame<'a> {
    /// Its header.
    pub header: EthernetHeader,
    /// What it carries, with the padding of a short frame.
    pub payload: &'a [u8],
}

impl<'a> EthernetFrame<'a> {
    /// Looks at a frame.
    ///
    /// # Errors
    /// [`InternetError::Short`] where it ends within its header.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, InternetError> {
        if frame.len() < ETHERNET_BYTES {
            return Err(InternetError::Short);
        }
        let address = |at: usize| MacAddress(frame[at..at + 6].try_into().expect("these are six bytes"));
        let (mut ether_type, mut vlan) = (EtherType(u16_at(frame, 12)), None);
        if ether_type == EtherType::VLAN {
            if frame.len() < ETHERNET_BYTES + VLAN_BYTES {
                return Err(InternetError::Short);
            }
            (vlan, ether_type) = (Some(VlanTag(u16_at(frame, 14))), EtherType(u16_at(frame, 16)));
        }
        let header = EthernetHeader { destination: address(0), source: address(6), vlan, ether_type };
        Ok(Self { header, payload: &frame[header.byte_count()..] })
    }
}
