//! What a captured packet begins with: from the link's header to the IP packet behind it.

use crate::internet::{ETHERNET_BYTES, EtherType, VLAN_BYTES};

/// What a packet's bytes begin with, by the number in the capture.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkType(pub u16);

impl LinkType {
    /// A loopback of BSD: four bytes, then IP.
    pub const NULL: Self = Self(0);
    /// Ethernet, without its checksum.
    pub const ETHERNET: Self = Self(1);
    /// IP, without anything before it.
    pub const RAW: Self = Self(101);
    /// A loopback of OpenBSD: as [`LinkType::NULL`].
    pub const LOOP: Self = Self(108);
    /// Whatever Linux captured at "any" interface: 16 bytes, the last two as in Ethernet.
    pub const LINUX_COOKED: Self = Self(113);
    /// IPv4, without anything before it.
    pub const IPV4: Self = Self(228);
    /// IPv6, without anything before it.
    pub const IPV6: Self = Self(229);
    /// The second version of Linux' own: 20 bytes, the first two as in Ethernet.
    pub const LINUX_COOKED_2: Self = Self(276);

    /// The number under which some systems write [`LinkType::RAW`].
    const OTHER_RAW: [Self; 2] = [Self(12), Self(14)];
}

/// What stands behind the link's header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Network<'a> {
    /// An IPv4 or IPv6 packet, perhaps with padding behind it.
    Ip(&'a [u8]),
    /// Something else, such as ARP.
    Other(EtherType),
    /// The packet ends within the link's header.
    Short,
    /// Nobody here knows this link.
    UnknownLink,
}

/// The tag of a provider's network, which stands before a VLAN's (IEEE 802.1ad); the older one of some switches.
const OUTER_TAGS: [u16; 2] = [0x88A8, 0x9100];
/// An IPv6 packet.
const IPV6: u16 = 0x86DD;
/// The most tags that a frame may have.
const MOST_TAGS: usize = 4;

/// Goes behind the link's header.
pub fn network(link: LinkType, packet: &[u8]) -> Network<'_> {
    match link {
        LinkType::ETHERNET => ethernet(packet),
        LinkType::LINUX_COOKED => behind(packet, 14, 16),
        LinkType::LINUX_COOKED_2 => behind(packet, 0, 20),
        LinkType::NULL | LinkType::LOOP => packet.get(4..).map_or(Network::Short, Network::Ip),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Network::Ip(packet),
        other if LinkType::OTHER_RAW.contains(&other) => Network::Ip(packet),
        _ => Network::UnknownLink,
    }
}

/// What stands at `payload`, where `kind` holds its Ethernet type, in front of any number of VLAN tags.
fn behind(packet: &[u8], kind: usize, mut payload: usize) -> Network<'_> {
    let number = |at: usize| packet.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    let Some(mut ether_type) = number(kind) else { return Network::Short };
    for _ in 0..MOST_TAGS {
        if ether_type != EtherType::VLAN.0 && !OUTER_TAGS.contains(&ether_type) {
            break;
        }
        let Some(inner) = number(payload + VLAN_BYTES - 2) else { return Network::Short };
        (ether_type, payload) = (inner, payload + VLAN_BYTES);
    }
    match (ether_type, packet.get(payload..)) {
        (_, None) => Network::Short,
        (kind, Some(rest)) if kind == EtherType::IPV4.0 || kind == IPV6 => Network::Ip(rest),
        (kind, Some(_)) => Network::Other(EtherType(kind)),
    }
}

fn ethernet(packet: &[u8]) -> Network<'_> {
    behind(packet, ETHERNET_BYTES - 2, ETHERNET_BYTES)
}
