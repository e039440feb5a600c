//! Contents of captured packets: from the link's header to the IP packet, datagrams reassembled from IP fragments, and
//! the bytes of TCP connections in order. Everything else is counted by name.

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, HashMap};

use super::Packet;
use crate::internet::{EtherType, Ethernet2Header, InternetError, Ipv4Packet, SingleVlanHeader, UdpSlice, ether_type};
use etherparse::{IpNumber, Ipv6FragmentHeaderSlice, Ipv6Header, Ipv6HeaderSlice, TcpSlice, ip_number};

/// A UDP datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// The payload.
    pub payload: &'a [u8],
}

/// The contents of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Carried<'a> {
    /// A whole datagram, or the last fragment of one.
    Datagram(Datagram<'a>),
    /// A segment of TCP.
    Segment(Segment<'a>),
    /// Another protocol directly in IP, as multi-event packets use.
    Other(IpPacket<'a>),
    /// Not a source's data.
    Aside(Aside),
}

impl Carried<'_> {
    /// The destination port, if it has one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Datagram(datagram) => Some(datagram.destination.port()),
            Self::Segment(segment) => Some(segment.destination.port()),
            Self::Other(_) | Self::Aside(_) => None,
        }
    }
}

/// Packets that are not data of a source.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Aside {
    /// An error message, which quotes the packet that it refers to, or an echo.
    Icmp,
    /// A fragment of a datagram whose other fragments have not all arrived.
    Part,
    /// No IP packet, for example ARP.
    NoIp,
    /// Only its first bytes were captured.
    Cut,
    /// Its lengths or checksums are wrong.
    Malformed,
    /// Its link type is unknown.
    UnknownLink,
}

impl Aside {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Icmp, Self::Part, Self::NoIp, Self::Cut, Self::Malformed, Self::UnknownLink];

    /// Unreadable packets that may be from a source.
    pub const UNREADABLE: [Self; 2] = [Self::Cut, Self::Malformed];

    /// Its name in reports.
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

/// Processes the packets of a capture in order.
#[derive(Debug, Default)]
pub struct Traffic {
    reassembly: Reassembly,
}

impl Traffic {
    /// Makes the state before the first packet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the contents of a packet. A datagram of several IP fragments is returned with the last of them.
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

    /// Number of datagrams of which some IP fragments are missing.
    pub fn unfinished_datagrams(&self) -> u64 {
        self.reassembly.unfinished()
    }
}

fn carried(ip: IpPacket<'_>) -> Result<Carried<'_>, InternetError> {
    match IpNumber(ip.protocol) {
        ip_number::UDP => datagram(ip.source, ip.destination, ip.payload).map(Carried::Datagram),
        ip_number::TCP => Segment::parse(ip.source, ip.destination, ip.payload).map(Carried::Segment),
        ip_number::ICMP | ip_number::IPV6_ICMP => Ok(Carried::Aside(Aside::Icmp)),
        _ => Ok(Carried::Other(ip)),
    }
}

/// Network cards that cut datagrams into packets leave a length of 0 in captures at the sender: it means all bytes.
fn datagram(source: IpAddr, destination: IpAddr, bytes: &[u8]) -> Result<Datagram<'_>, InternetError> {
    let datagram = UdpSlice::from_slice(bytes).map_err(|_| InternetError::Length)?;
    let source = SocketAddr::new(source, datagram.source_port());
    let destination = SocketAddr::new(destination, datagram.destination_port());
    Ok(Datagram { source, destination, payload: datagram.payload() })
}

/// The number of a link type in a capture, which determines the first header of a packet.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkType(pub u16);

impl LinkType {
    /// A loopback of BSD: four bytes, then IP.
    pub const NULL: Self = Self(0);
    /// Ethernet, without its checksum.
    pub const ETHERNET: Self = Self(1);
    /// IP, without a link header.
    pub const RAW: Self = Self(101);
    /// A loopback of OpenBSD: as [`LinkType::NULL`].
    pub const LOOP: Self = Self(108);
    /// All packets that Linux captured at the "any" interface: 16 bytes, the last two as in Ethernet.
    pub const LINUX_COOKED: Self = Self(113);
    /// IPv4, without a link header.
    pub const IPV4: Self = Self(228);
    /// IPv6, without a link header.
    pub const IPV6: Self = Self(229);
    /// The second version of Linux's own header: 20 bytes, the first two as in Ethernet.
    pub const LINUX_COOKED_2: Self = Self(276);

    /// The numbers that some systems use for [`LinkType::RAW`].
    const OTHER_RAW: [Self; 2] = [Self(12), Self(14)];
}

/// The contents behind the link's header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Network<'a> {
    /// An IPv4 or IPv6 packet, perhaps with padding behind it.
    Ip(&'a [u8]),
    /// Something else, such as ARP.
    Other(EtherType),
    /// The packet ends within the link's header.
    Short,
    /// The link's type is not known.
    UnknownLink,
}

/// The tag of a VLAN; that of a provider's network, which precedes it (IEEE 802.1ad); the older one of some switches.
const TAGS: [EtherType; 3] =
    [ether_type::VLAN_TAGGED_FRAME, ether_type::PROVIDER_BRIDGING, ether_type::VLAN_DOUBLE_TAGGED_FRAME];
/// Maximum number of tags of a frame.
const MOST_TAGS: usize = 4;

/// Skips the link's header.
pub fn network(link: LinkType, packet: &[u8]) -> Network<'_> {
    match link {
        LinkType::ETHERNET => behind(packet, Ethernet2Header::LEN - 2, Ethernet2Header::LEN),
        LinkType::LINUX_COOKED => behind(packet, 14, 16),
        LinkType::LINUX_COOKED_2 => behind(packet, 0, 20),
        LinkType::NULL | LinkType::LOOP => packet.get(4..).map_or(Network::Short, Network::Ip),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Network::Ip(packet),
        other if LinkType::OTHER_RAW.contains(&other) => Network::Ip(packet),
        _ => Network::UnknownLink,
    }
}

/// The packet at `payload`, whose Ethernet type is at `kind`. Skips at most [`MOST_TAGS`] VLAN tags.
fn behind(packet: &[u8], kind: usize, mut payload: usize) -> Network<'_> {
    let number = |at: usize| packet.get(at..)?.first_chunk().map(|number| EtherType(u16::from_be_bytes(*number)));
    let Some(mut ether_type) = number(kind) else { return Network::Short };
    for _ in 0..MOST_TAGS {
        if !TAGS.contains(&ether_type) {
            break;
        }
        let Some(inner) = number(payload + SingleVlanHeader::LEN - 2) else { return Network::Short };
        (ether_type, payload) = (inner, payload + SingleVlanHeader::LEN);
    }
    match (ether_type, packet.get(payload..)) {
        (_, None) => Network::Short,
        (ether_type::IPV4 | ether_type::IPV6, Some(rest)) => Network::Ip(rest),
        (kind, Some(_)) => Network::Other(kind),
    }
}

/// Maximum number of headers between an IPv6 header and the packet's payload.
const MOST_EXTENSIONS: usize = 8;

/// A packet's place in a fragmented datagram.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// Identifies the datagram.
    pub identification: u32,
    /// Offset in the datagram, in bytes.
    pub offset: u16,
    /// Whether fragments follow.
    pub has_more: bool,
}

/// A view of a packet whose lengths were checked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IpPacket<'a> {
    /// The sender's address.
    pub source: IpAddr,
    /// The destination's address.
    pub destination: IpAddr,
    /// The protocol of the payload: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// The fragment's place; `None` for a whole packet.
    pub part: Option<Part>,
    /// The payload, without padding.
    pub payload: &'a [u8],
}

impl<'a> IpPacket<'a> {
    /// Parses a packet of either version, which may have padding behind it.
    ///
    /// # Errors
    /// If it ends too soon, or its lengths or the checksum of its header are wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, InternetError> {
        match bytes.first().map(|first| first >> 4) {
            None => Err(InternetError::Short),
            Some(6) => Self::version_6(bytes),
            Some(_) => Self::version_4(bytes),
        }
    }

    fn version_4(bytes: &'a [u8]) -> Result<Self, InternetError> {
        let packet = Ipv4Packet::parse_captured(bytes)?;
        let header = packet.header;
        let part = header.is_fragmenting_payload().then(|| Part {
            identification: header.identification().into(),
            offset: header.fragments_offset().byte_offset(),
            has_more: header.more_fragments(),
        });
        let (source, destination) = (header.source_addr().into(), header.destination_addr().into());
        Ok(Self { source, destination, protocol: header.protocol().0, part, payload: packet.payload })
    }

    fn version_6(bytes: &'a [u8]) -> Result<Self, InternetError> {
        let header = Ipv6HeaderSlice::from_slice(bytes).map_err(|_| InternetError::Short)?;
        let rest = &bytes[Ipv6Header::LEN..];
        // As in IPv4: the network card has yet to cut this packet into several.
        let length = if header.payload_length() == 0 { rest.len() } else { header.payload_length().into() };
        let payload = rest.get(..length).ok_or(InternetError::Length)?;
        let (protocol, payload, part) = behind_extensions(header.next_header().0, payload)?;
        let (source, destination) = (header.source_addr().into(), header.destination_addr().into());
        Ok(Self { source, destination, protocol, part, payload })
    }

    /// The packet of the reassembled datagram, whose payload may begin with extension headers.
    pub(super) fn whole(self, payload: &[u8]) -> Result<IpPacket<'_>, InternetError> {
        let (protocol, payload, part) = match self.source {
            IpAddr::V4(_) => (self.protocol, payload, None),
            IpAddr::V6(_) => behind_extensions(self.protocol, payload)?,
        };
        if part.is_some() {
            return Err(InternetError::Protocol);
        }
        Ok(IpPacket { source: self.source, destination: self.destination, protocol, part: None, payload })
    }
}

/// Skips the extension headers of IPv6, up to that of a fragment. Returns the protocol, the payload and the fragment's
/// place.
fn behind_extensions(protocol: u8, mut payload: &[u8]) -> Result<(u8, &[u8], Option<Part>), InternetError> {
    let mut protocol = IpNumber(protocol);
    for _ in 0..=MOST_EXTENSIONS {
        if !Ipv6Header::is_skippable_header_extension(protocol) {
            return Ok((protocol.0, payload, None));
        }
        let behind = Ipv6Header::skip_header_extension_in_slice(payload, protocol);
        let (next, rest) = behind.map_err(|_| InternetError::Short)?;
        // A fragment header that describes the only fragment means a whole packet (RFC 6946).
        if protocol == ip_number::IPV6_FRAG
            && let Ok(header) = Ipv6FragmentHeaderSlice::from_slice(payload)
            && header.is_fragmenting_payload()
        {
            let (identification, has_more) = (header.identification(), header.more_fragments());
            let part = Part { identification, offset: header.fragment_offset().byte_offset(), has_more };
            return Ok((next.0, rest, Some(part)));
        }
        (protocol, payload) = (next, rest);
    }
    Err(InternetError::Length)
}

/// Maximum number of datagrams in reassembly; the oldest one is dropped.
const MOST_OPEN: usize = 64;
/// The longest datagram.
const MOST_BYTES: usize = 0xFFFF;

/// The identity of a datagram: addresses, protocol and identification.
type Whose = (IpAddr, IpAddr, u8, u32);

/// Datagrams of which some fragments have arrived.
#[derive(Debug, Default)]
struct Reassembly {
    /// In the order of their first fragments.
    open: Vec<Open>,
    /// The last completed datagram.
    whole: Vec<u8>,
    given_up: u64,
}

#[derive(Debug)]
struct Open {
    whose: Whose,
    bytes: Vec<u8>,
    /// The ranges that have arrived, in order, none adjacent to another: at most one for each 8 bytes.
    come: Vec<(usize, usize)>,
    /// Its length, once its last fragment has arrived.
    length: Option<usize>,
}

impl Reassembly {
    /// Takes a fragment. Returns the datagram if this was its last missing fragment.
    pub(super) fn accept(&mut self, packet: &IpPacket<'_>, part: Part) -> Option<&[u8]> {
        let whose = (packet.source, packet.destination, packet.protocol, part.identification);
        let start = usize::from(part.offset);
        let end = start + packet.payload.len();
        let ends_within = part.has_more && !packet.payload.len().is_multiple_of(8);
        if end > MOST_BYTES || ends_within || packet.payload.is_empty() {
            return None;
        }
        let index = match self.open.iter().position(|open| open.whose == whose) {
            Some(index) => index,
            None => self.begin(whose),
        };
        let open = &mut self.open[index];
        open.put(start, packet.payload);
        if !part.has_more {
            open.length = Some(end);
        }
        if open.length.is_none_or(|length| open.come != [(0, length)]) {
            return None;
        }
        self.whole = self.open.remove(index).bytes;
        Some(&self.whole)
    }

    fn begin(&mut self, whose: Whose) -> usize {
        if self.open.len() == MOST_OPEN {
            self.open.remove(0);
            self.given_up += 1;
        }
        self.open.push(Open { whose, bytes: Vec::new(), come: Vec::new(), length: None });
        self.open.len() - 1
    }

    /// Number of datagrams with missing fragments, including those still in reassembly.
    pub(super) fn unfinished(&self) -> u64 {
        self.given_up + self.open.len() as u64
    }
}

impl Open {
    fn put(&mut self, start: usize, payload: &[u8]) {
        let end = start + payload.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(payload);
        self.come.push((start, end));
        self.come.sort_unstable();
        self.come.dedup_by(|next, before| {
            let touches = next.0 <= before.1;
            if touches {
                before.1 = before.1.max(next.1);
            }
            touches
        });
    }
}

/// Maximum number of followed directions of connections.
const MOST_STREAMS: usize = 1024;
/// Maximum bytes of one direction that wait for missing bytes before them. Beyond it those are counted as lost.
const MOST_WAITING_BYTES: usize = 16 << 20;
/// Maximum number of waiting segments of one direction.
const MOST_WAITING: usize = 16_384;

/// A TCP segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// The sequence number of its first byte.
    pub sequence: u32,
    /// Whether the connection begins with it.
    pub begins: bool,
    /// Whether the connection ends with it.
    pub ends: bool,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses the payload of an IP packet.
    ///
    /// # Errors
    /// If it ends within its header.
    pub(super) fn parse(source: IpAddr, destination: IpAddr, bytes: &'a [u8]) -> Result<Self, InternetError> {
        let segment = TcpSlice::from_slice(bytes).map_err(|_| InternetError::HeaderLength)?;
        Ok(Self {
            source: SocketAddr::new(source, segment.source_port()),
            destination: SocketAddr::new(destination, segment.destination_port()),
            sequence: segment.sequence_number(),
            begins: segment.syn(),
            ends: segment.fin() || segment.rst(),
            payload: segment.payload(),
        })
    }
}

/// A stretch of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamPiece {
    /// Number of missing bytes before these.
    pub lost_bytes: u64,
    /// Whether a new connection begins with these bytes.
    pub begins: bool,
    /// Number of bytes.
    pub bytes: usize,
}

/// The next bytes of a stream, in stretches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stretches {
    bytes: Vec<u8>,
    pieces: Vec<StreamPiece>,
}

impl Stretches {
    /// Clears all stretches.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
    }

    /// Each stretch with its bytes. A stretch without bytes is the beginning of a connection.
    pub fn iter(&self) -> impl Iterator<Item = (StreamPiece, &[u8])> {
        let mut at = 0;
        self.pieces.iter().map(move |piece| {
            let from = at;
            at += piece.bytes;
            (*piece, &self.bytes[from..at])
        })
    }

    fn push(&mut self, lost_bytes: u64, begins: bool, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        match self.pieces.last_mut() {
            Some(last) if lost_bytes == 0 && !begins => last.bytes += bytes.len(),
            _ => self.pieces.push(StreamPiece { lost_bytes, begins, bytes: bytes.len() }),
        }
    }
}

/// All directions of all connections.
#[derive(Debug, Default)]
pub struct Streams {
    streams: HashMap<(SocketAddr, SocketAddr), Stream>,
    /// Number of earlier streams.
    number: u64,
}

#[derive(Debug, Default)]
struct Stream {
    /// Its number, in the order of their beginnings.
    number: u64,
    /// The number of the next byte, extended beyond 32 bits.
    next: u64,
    /// Segments that arrived too early, by the number of their first byte.
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_bytes: usize,
}

impl Streams {
    /// Makes the state before the first connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a segment, and appends to `out` the next bytes of its stream: none if bytes before it are missing. False
    /// if there are more connections than are followed.
    pub fn accept(&mut self, segment: &Segment<'_>, out: &mut Stretches) -> bool {
        let whose = (segment.source, segment.destination);
        let known = self.streams.get_mut(&whose);
        let is_new = match known {
            // The same segment is sent again if the other side did not receive it.
            Some(stream) => segment.begins && !stream.begins_with(segment),
            None => true,
        };
        if is_new {
            if let Some(mut before) = self.streams.remove(&whose) {
                before.give_up(out);
            }
            if self.streams.len() >= MOST_STREAMS {
                return false;
            }
            self.streams.insert(whose, Stream::new(segment, self.number));
            self.number += 1;
            out.push(0, true, &[]);
        }
        let Some(stream) = self.streams.get_mut(&whose) else { return false };
        stream.accept(segment, out);
        if segment.ends && stream.waiting.is_empty() {
            self.streams.remove(&whose);
        }
        true
    }

    /// Ends all streams: passes on the waiting bytes of each stream, behind the missing ones.
    pub fn end(&mut self, give: &mut dyn FnMut((SocketAddr, SocketAddr), &Stretches)) {
        let mut left: Vec<_> = self.streams.drain().filter(|(_, stream)| !stream.waiting.is_empty()).collect();
        left.sort_by_key(|(_, stream)| stream.number);
        for (whose, mut stream) in left {
            let mut out = Stretches::default();
            stream.give_up(&mut out);
            give(whose, &out);
        }
    }
}

impl Stream {
    fn new(segment: &Segment<'_>, number: u64) -> Self {
        // The first byte of a connection has the number after that of its first segment; room is left for earlier
        // bytes.
        let next = (1 << 32) + u64::from(segment.sequence) + u64::from(segment.begins);
        Self { number, next, ..Self::default() }
    }

    /// The number of a byte, extended beyond 32 bits: the one nearest to the next byte.
    const fn place(&self, sequence: u32) -> u64 {
        self.next.wrapping_add_signed(sequence.wrapping_sub(self.next as u32) as i32 as i64)
    }

    /// Whether this is the first segment of this stream again.
    const fn begins_with(&self, segment: &Segment<'_>) -> bool {
        self.place(segment.sequence.wrapping_add(1)) == self.next
    }

    /// Appends the next bytes; early segments wait. If too much waits, the bytes before it are counted as lost.
    fn accept(&mut self, segment: &Segment<'_>, out: &mut Stretches) {
        let place = self.place(segment.sequence.wrapping_add(segment.begins.into()));
        if place <= self.next {
            self.append(place, segment.payload, 0, out);
        } else if !segment.payload.is_empty() {
            let before = self.waiting.get(&place).map_or(0, Vec::len);
            if before < segment.payload.len() {
                self.waiting.insert(place, segment.payload.to_vec());
                self.waiting_bytes += segment.payload.len() - before;
            }
        }
        self.append_waiting(out);
        while self.waiting_bytes > MOST_WAITING_BYTES || self.waiting.len() > MOST_WAITING {
            self.pass_over(out);
        }
    }

    /// Counts the missing bytes as lost, and appends the bytes behind them.
    fn pass_over(&mut self, out: &mut Stretches) {
        let Some((place, payload)) = self.waiting.pop_first() else { return };
        let lost = place - self.next;
        self.next = place;
        self.waiting_bytes -= payload.len();
        self.append(place, &payload, lost, out);
        self.append_waiting(out);
    }

    fn give_up(&mut self, out: &mut Stretches) {
        while !self.waiting.is_empty() {
            self.pass_over(out);
        }
    }

    /// Appends the new bytes of a segment, none of which lie behind the next expected one.
    fn append(&mut self, place: u64, payload: &[u8], lost: u64, out: &mut Stretches) {
        let new = payload.get((self.next - place) as usize..).unwrap_or_default();
        if !new.is_empty() {
            out.push(lost, false, new);
            self.next += new.len() as u64;
        }
    }

    fn append_waiting(&mut self, out: &mut Stretches) {
        while let Some(entry) = self.waiting.first_entry()
            && *entry.key() <= self.next
        {
            let (place, payload) = entry.remove_entry();
            self.waiting_bytes -= payload.len();
            self.append(place, &payload, 0, out);
        }
    }
}
