//! What carries packets: Ethernet II with a VLAN tag, IPv4 (RFC 791), UDP (RFC 768) and their checksum (RFC 1071).
//!
//! ```text
//!  Ethernet 14, or 18 with a tag │ IPv4 20 to 60 │ UDP 8 │ payload │ padding up to 60 bytes of frame
//! ```
//! Each layer has a view that checks every length before it shows what lies behind it, and a header as an owned value
//! that encodes itself. All numbers are big-endian. Sockets never show these headers; packet rings show nothing else.

#[cfg(test)]
mod tests;

use core::net::{Ipv4Addr, SocketAddrV4};

use arrayvec::ArrayVec;

use ropewalk_terms::Cause;

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET_BYTES: usize = 14;

/// Bytes that a VLAN tag adds.
pub const VLAN_BYTES: usize = 4;

/// The shortest frame that a cable carries, without its checksum; shorter ones are filled up with zeros.
pub const LEAST_FRAME_BYTES: usize = 60;

/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;

/// Bytes of a UDP header.
pub const UDP_BYTES: usize = 8;

/// The protocol number of UDP in an IPv4 header.
pub const UDP_PROTOCOL: u8 = 17;

/// A number for experiments (RFC 3692) that no protocol is assigned, for data straight in IP packets.
pub const EXPERIMENTAL_PROTOCOL: u8 = 253;

/// The two bytes at `at`, which must be there.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// What is wrong with a frame, a packet or a datagram.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum InternetError {
    /// It ends within a header.
    #[error("the frame ends within a header")]
    Short,
    /// It is not IPv4.
    #[error("the packet is not IPv4")]
    NotIpv4,
    /// The IPv4 header's own length is impossible.
    #[error("the header's length is below 20 bytes or beyond the packet")]
    HeaderLength,
    /// The stated length is shorter than the header or longer than what came.
    #[error("the stated length does not fit the bytes that came")]
    Length,
    /// The IPv4 header's checksum does not fit it.
    #[error("the IPv4 header's checksum is wrong")]
    HeaderChecksum,
    /// The packet carries another protocol.
    #[error("the packet carries another protocol")]
    Protocol,
}

impl InternetError {
    /// The name under which the ledger counts it.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Short | Self::NotIpv4 | Self::HeaderLength | Self::Protocol => Cause::Malformed,
            Self::Length => Cause::LengthMismatch,
            Self::HeaderChecksum => Cause::BadChecksum,
        }
    }
}

/// A sum under way, over pieces of any length.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// Of the machine's own 16-bit words; the order of bytes is put right at the end, since the sum does not care.
    words: u64,
    /// Whether the next byte is the second one of a word.
    is_odd: bool,
}

impl Sum {
    /// The sum with a piece more.
    #[inline]
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let (mut words, mut rest) = (self.words, bytes);
        if self.is_odd {
            let Some((&second, behind)) = bytes.split_first() else { return self };
            words += u64::from(u16::from_ne_bytes([0, second]));
            rest = behind;
        }
        // A sum of 32-bit words folds to the same 16 bits.
        let (quads, rest) = rest.as_chunks::<4>();
        words += quads.iter().map(|quad| u64::from(u32::from_ne_bytes(*quad))).sum::<u64>();
        let (pairs, rest) = rest.as_chunks::<2>();
        words += pairs.iter().map(|pair| u64::from(u16::from_ne_bytes(*pair))).sum::<u64>();
        words += rest.first().map_or(0, |&first| u64::from(u16::from_ne_bytes([first, 0])));
        Self { words: fold(words), is_odd: !rest.is_empty() }
    }

    /// The sum with a 16-bit word more. Only between whole words.
    #[must_use]
    pub fn with_u16(self, word: u16) -> Self {
        self.with(&word.to_be_bytes())
    }

    /// The sum itself, folded to 16 bits.
    pub fn folded(self) -> u16 {
        u16::from_be(fold(self.words) as u16)
    }

    /// The checksum to put into the header. Over a header that has its right checksum it is 0.
    pub fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// Adds the carries back in until 16 bits are left.
const fn fold(mut words: u64) -> u64 {
    while words >> 16 != 0 {
        words = (words & 0xFFFF) + (words >> 16);
    }
    words
}

/// The checksum of bytes in one piece.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::default().with(bytes).checksum()
}

/// The address of a network card.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// All cards on the network.
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
    /// The destination's address.
    pub destination: MacAddress,
    /// The sender's address.
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

/// The most bytes of options: the header's length counts up to 15 words.
pub const MOST_OPTION_BYTES: usize = 40;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Which part of the packet that was sent this one is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Fragmentation {
    /// Routers must not cut it.
    pub is_forbidden: bool,
    /// There are parts behind this one.
    pub has_more: bool,
    /// Where its payload belongs, in bytes: a multiple of 8, below 65,536.
    pub offset: u16,
}

impl Fragmentation {
    /// Whether this is a part, and not a whole packet.
    pub const fn is_fragment(self) -> bool {
        self.has_more || self.offset > 0
    }

    const fn from_word(word: u16) -> Self {
        let (is_forbidden, has_more) = (word & DONT_FRAGMENT != 0, word & MORE_FRAGMENTS != 0);
        Self { is_forbidden, has_more, offset: (word & 0x1FFF) << 3 }
    }

    const fn to_word(self) -> u16 {
        let forbidden = if self.is_forbidden { DONT_FRAGMENT } else { 0 };
        let more = if self.has_more { MORE_FRAGMENTS } else { 0 };
        forbidden | more | self.offset >> 3
    }
}

/// An IPv4 header.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Header {
    /// How urgent it is, and whether there was a jam (the old type of service).
    pub traffic_class: u8,
    /// Says which parts belong together.
    pub identification: u16,
    /// Which part it is.
    pub fragmentation: Fragmentation,
    /// Routers that it may still pass.
    pub time_to_live: u8,
    /// What it carries.
    pub protocol: u8,
    /// The sender's address.
    pub source: Ipv4Addr,
    /// The destination's address.
    pub destination: Ipv4Addr,
    /// Options, a multiple of 4 bytes, at most [`MOST_OPTION_BYTES`].
    pub options: ArrayVec<u8, MOST_OPTION_BYTES>,
}

impl Ipv4Header {
    /// The header of a whole packet without options.
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8) -> Self {
        let fragmentation = Fragmentation { is_forbidden: true, ..Fragmentation::default() };
        let (traffic_class, identification, time_to_live, options) = (0, 0, 64, ArrayVec::new());
        Self { traffic_class, identification, fragmentation, time_to_live, protocol, source, destination, options }
    }

    /// Bytes of the header, options included and filled up to whole words.
    pub fn byte_count(&self) -> usize {
        IPV4_BYTES + self.options.len().next_multiple_of(4)
    }

    /// Writes the header of a packet with `payload_bytes` behind it to the front of `out`, and returns its length. `None`,
    /// and nothing is written, if it does not fit, or the packet would be longer than 65,535 bytes.
    pub fn write(&self, payload_bytes: usize, out: &mut [u8]) -> Option<usize> {
        let total = u16::try_from(self.byte_count() + payload_bytes).ok()?;
        let out = out.get_mut(..self.byte_count())?;
        out.fill(0);
        out[0] = 0x40 | (out.len() / 4) as u8;
        out[1] = self.traffic_class;
        out[2..4].copy_from_slice(&total.to_be_bytes());
        out[4..6].copy_from_slice(&self.identification.to_be_bytes());
        out[6..8].copy_from_slice(&self.fragmentation.to_word().to_be_bytes());
        out[8] = self.time_to_live;
        out[9] = self.protocol;
        out[12..16].copy_from_slice(&self.source.octets());
        out[16..20].copy_from_slice(&self.destination.octets());
        out[IPV4_BYTES..][..self.options.len()].copy_from_slice(&self.options);
        let sum = checksum(out);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        Some(out.len())
    }
}

/// A view over a packet whose lengths and header checksum are right.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ipv4Packet<'a> {
    header: &'a [u8],
    /// What it carries, without the padding of a short frame.
    pub payload: &'a [u8],
}

impl<'a> Ipv4Packet<'a> {
    /// Looks at a packet, which may have padding behind it.
    ///
    /// # Errors
    /// All but [`InternetError::Protocol`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, InternetError> {
        let packet = Self::split_by(bytes, |stated| stated)?;
        if checksum(packet.header) != 0 {
            return Err(InternetError::HeaderChecksum);
        }
        Ok(packet)
    }

    /// Looks at a packet of a capture. A capture on the sending host sees packets before the network card completes them: a
    /// header checksum of 0 is one that the card computes, and a length of 0 is that of a packet which the card cuts into
    /// several.
    ///
    /// # Errors
    /// All but [`InternetError::Protocol`].
    pub fn parse_captured(bytes: &'a [u8]) -> Result<Self, InternetError> {
        let packet = Self::split_by(bytes, |stated| if stated == 0 { bytes.len() } else { stated })?;
        let is_offloaded = u16_at(packet.header, 10) == 0;
        if !is_offloaded && checksum(packet.header) != 0 {
            return Err(InternetError::HeaderChecksum);
        }
        Ok(packet)
    }

    /// Divides a packet into header and payload; `length` makes of the stated length the one that counts.
    #[inline]
    fn split_by(bytes: &'a [u8], length: impl Fn(usize) -> usize) -> Result<Self, InternetError> {
        if bytes.len() < IPV4_BYTES {
            return Err(InternetError::Short);
        }
        if bytes[0] >> 4 != 4 {
            return Err(InternetError::NotIpv4);
        }
        let (header_bytes, total) = (usize::from(bytes[0] & 0xF) * 4, length(usize::from(u16_at(bytes, 2))));
        if header_bytes < IPV4_BYTES || header_bytes > bytes.len() {
            return Err(InternetError::HeaderLength);
        }
        if total < header_bytes || total > bytes.len() {
            return Err(InternetError::Length);
        }
        let (header, payload) = bytes[..total].split_at(header_bytes);
        Ok(Self { header, payload })
    }

    /// The sender's address.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        self.address(12)
    }

    /// The destination's address.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        self.address(16)
    }

    #[inline]
    fn address(&self, at: usize) -> Ipv4Addr {
        Ipv4Addr::new(self.header[at], self.header[at + 1], self.header[at + 2], self.header[at + 3])
    }

    /// What it carries.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.header[9]
    }

    /// Which part it is.
    #[inline]
    pub fn fragmentation(&self) -> Fragmentation {
        Fragmentation::from_word(u16_at(self.header, 6))
    }

    /// Bytes of the header, options included.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        self.header.len()
    }

    /// The options.
    pub fn options(&self) -> &'a [u8] {
        &self.header[IPV4_BYTES..]
    }

    /// What UDP's checksum covers beside the datagram (RFC 768).
    pub fn pseudo_header(&self) -> Sum {
        pseudo_header(self.source(), self.destination(), self.protocol(), self.payload.len() as u16)
    }

    /// The header as an owned value.
    pub fn to_header(&self) -> Ipv4Header {
        Ipv4Header {
            traffic_class: self.header[1],
            identification: u16_at(self.header, 4),
            fragmentation: self.fragmentation(),
            time_to_live: self.header[8],
            protocol: self.protocol(),
            source: self.source(),
            destination: self.destination(),
            options: self.options().iter().copied().collect(),
        }
    }
}

/// The sum over what UDP takes from the IPv4 header.
fn pseudo_header(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: u16) -> Sum {
    let addresses = Sum::default().with(&source.octets()).with(&destination.octets());
    addresses.with_u16(protocol.into()).with_u16(length)
}

/// A UDP header.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct UdpHeader {
    /// Whence it comes.
    pub source: SocketAddrV4,
    /// Where it goes.
    pub destination: SocketAddrV4,
}

impl UdpHeader {
    /// Writes the header of a datagram with these `payload` pieces behind it to the front of `out`, and returns its length.
    /// `None`, and nothing is written, if it does not fit, or the datagram would be longer than 65,535 bytes.
    pub fn write<'a>(&self, payload: impl Iterator<Item = &'a [u8]> + Clone, out: &mut [u8]) -> Option<usize> {
        let payload_bytes = payload.clone().map(<[u8]>::len).sum();
        self.write_unchecked(payload_bytes, out)?;
        let out = &mut out[..UDP_BYTES];
        let length = (UDP_BYTES + payload_bytes) as u16;
        let pseudo = pseudo_header(*self.source.ip(), *self.destination.ip(), UDP_PROTOCOL, length);
        // 0 in its place would say that there is none.
        let checksum = match payload.fold(pseudo.with(out), Sum::with).checksum() {
            0 => u16::MAX,
            checksum => checksum,
        };
        out[6..8].copy_from_slice(&checksum.to_be_bytes());
        Some(UDP_BYTES)
    }

    /// The same without a checksum, which IPv4 allows where something else protects the bytes, as Ethernet does.
    pub fn write_unchecked(&self, payload_bytes: usize, out: &mut [u8]) -> Option<usize> {
        let length = u16::try_from(UDP_BYTES + payload_bytes).ok()?;
        let out = out.get_mut(..UDP_BYTES)?;
        out[..2].copy_from_slice(&self.source.port().to_be_bytes());
        out[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        out[4..6].copy_from_slice(&length.to_be_bytes());
        out[6..8].fill(0);
        Some(UDP_BYTES)
    }
}

/// What a datagram's checksum says.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum ChecksumState {
    /// It fits.
    Right,
    /// The sender made none.
    Absent,
    /// It covers the addresses alone: the sender left the rest to a network card, and there was none on the way, as
    /// between two network namespaces. No cable has touched such a datagram.
    Unfinished,
    /// It does not fit.
    Wrong,
}

/// A view over a datagram whose lengths are right.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UdpDatagram<'a> {
    bytes: &'a [u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
}

impl<'a> UdpDatagram<'a> {
    /// Looks at the datagram that a whole packet carries. Parts have to be put together first.
    ///
    /// # Errors
    /// [`InternetError::Protocol`] where it carries something else or a part, [`InternetError::Short`] or
    /// [`InternetError::Length`].
    #[inline]
    pub fn parse(packet: &Ipv4Packet<'a>) -> Result<Self, InternetError> {
        if packet.protocol() != UDP_PROTOCOL || packet.fragmentation().is_fragment() {
            return Err(InternetError::Protocol);
        }
        if packet.payload.len() < UDP_BYTES {
            return Err(InternetError::Short);
        }
        let length = usize::from(u16_at(packet.payload, 4));
        if length < UDP_BYTES || length > packet.payload.len() {
            return Err(InternetError::Length);
        }
        let (source, destination) = (packet.source(), packet.destination());
        Ok(Self { bytes: &packet.payload[..length], source, destination })
    }

    /// Whence it comes and where it goes.
    #[inline]
    pub fn header(&self) -> UdpHeader {
        UdpHeader {
            source: SocketAddrV4::new(self.source, u16_at(self.bytes, 0)),
            destination: SocketAddrV4::new(self.destination, u16_at(self.bytes, 2)),
        }
    }

    /// What it carries.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[UDP_BYTES..]
    }

    /// Goes over all bytes and says whether the checksum fits.
    pub fn checksum_state(&self) -> ChecksumState {
        let stated = u16_at(self.bytes, 6);
        let pseudo_header = pseudo_header(self.source, self.destination, UDP_PROTOCOL, self.bytes.len() as u16);
        if stated == 0 {
            ChecksumState::Absent
        } else if pseudo_header.with(self.bytes).checksum() == 0 {
            ChecksumState::Right
        } else if stated == pseudo_header.folded() {
            ChecksumState::Unfinished
        } else {
            ChecksumState::Wrong
        }
    }
}
