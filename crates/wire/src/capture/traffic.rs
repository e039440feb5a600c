//! What the packets of a capture carry: datagrams whole, segments of TCP, and everything else by name.

use super::reassembly::Reassembly;
use super::{IpPacket, Network, Packet, Segment, network};
use crate::internet::{InternetError, UDP_BYTES, UDP_PROTOCOL};
use core::net::{IpAddr, SocketAddr};

const TCP_PROTOCOL: u8 = 6;
const ICMP_PROTOCOL: u8 = 1;
const ICMPV6_PROTOCOL: u8 = 58;

/// A UDP datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Whence it comes.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// What it carries.
    pub payload: &'a [u8],
}

/// What a packet carries.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Carried<'a> {
    /// A whole datagram; the last part of one, where it came in several.
    Datagram(Datagram<'a>),
    /// A segment of TCP.
    Segment(Segment<'a>),
    /// Straight in IP: another protocol than those that are known here, as multi-event packets do.
    Other(IpPacket<'a>),
    /// Nothing that a source sent.
    Aside(Aside),
}

impl Carried<'_> {
    /// The port that it went to, where it has one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Datagram(datagram) => Some(datagram.destination.port()),
            Self::Segment(segment) => Some(segment.destination.port()),
            Self::Other(_) | Self::Aside(_) => None,
        }
    }
}

/// Packets that are none of a source.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Aside {
    /// A complaint, which quotes the packet that it is about, or an echo.
    Icmp,
    /// A part of a datagram whose other parts are still to come.
    Part,
    /// No IP packet: ARP and its like.
    NoIp,
    /// The capture kept its first bytes only.
    Cut,
    /// Its lengths or checksums are wrong.
    Malformed,
    /// It came over a link that is not known here.
    UnknownLink,
}

impl Aside {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Icmp, Self::Part, Self::NoIp, Self::Cut, Self::Malformed, Self::UnknownLink];

    /// Those that may have been a source's, if they could be read.
    pub const UNREADABLE: [Self; 2] = [Self::Cut, Self::Malformed];

    /// The name under which reports count it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::Part => "ip_fragment",
            Self::NoIp => "no_ip",
            Self::Cut => "cut",
            Self::Malformed => "malformed",
            Self::UnknownLink => "unknown_link",
        }
    }
}

/// Takes the packets of a capture in their order.
#[derive(Debug, Default)]
pub struct Traffic {
    reassembly: Reassembly,
}

impl Traffic {
    /// Nothing has passed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a packet carries. A datagram of several IP fragments comes with the last of them.
    pub fn accept<'a>(&'a mut self, packet: &Packet<'a>) -> Carried<'a> {
        let ip = match network(packet.link, packet.bytes) {
            Network::Ip(ip) => ip,
            Network::Other(_) => return Carried::Aside(Aside::NoIp),
            Network::Short if packet.is_cut() => return Carried::Aside(Aside::Cut),
            Network::Short => return Carried::Aside(Aside::Malformed),
            Network::UnknownLink => return Carried::Aside(Aside::UnknownLink),
        };
        let wrong = if packet.is_cut() { Aside::Cut } else { Aside::Malformed };
        let Ok(ip) = IpPacket::parse(ip) else { return Carried::Aside(wrong) };
        let whole = match ip.part {
            None => Ok(ip),
            Some(part) => match self.reassembly.accept(&ip, part) {
                Some(whole) => ip.whole(whole),
                None => return Carried::Aside(Aside::Part),
            },
        };
        whole.and_then(carried).unwrap_or(Carried::Aside(wrong))
    }

    /// Datagrams of which some IP fragments came and others did not.
    pub fn unfinished_datagrams(&self) -> u64 {
        self.reassembly.unfinished()
    }
}

fn carried(ip: IpPacket<'_>) -> Result<Carried<'_>, InternetError> {
    match ip.protocol {
        UDP_PROTOCOL => datagram(ip.source, ip.destination, ip.payload).map(Carried::Datagram),
        TCP_PROTOCOL => Segment::parse(ip.source, ip.destination, ip.payload).map(Carried::Segment),
        ICMP_PROTOCOL | ICMPV6_PROTOCOL => Ok(Carried::Aside(Aside::Icmp)),
        _ => Ok(Carried::Other(ip)),
    }
}

fn datagram(source: IpAddr, destination: IpAddr, bytes: &[u8]) -> Result<Datagram<'_>, InternetError> {
    let &[s0, s1, d0, d1, l0, l1, ..] = bytes else { return Err(InternetError::Short) };
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    // Network cards that cut datagrams into packets leave a length of 0 to captures at the sender.
    let length = if length == 0 { bytes.len() } else { length };
    let payload = bytes.get(UDP_BYTES..length).ok_or(InternetError::Length)?;
    let source = SocketAddr::new(source, u16::from_be_bytes([s0, s1]));
    let destination = SocketAddr::new(destination, u16::from_be_bytes([d0, d1]));
    Ok(Datagram { source, destination, payload })
}
