//! IPv4: from whom to whom, which protocol, and which part of what was sent.

use super::{IPV4_BYTES, InternetError, Sum, checksum, u16_at};
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;

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
    /// Who sent it.
    pub source: Ipv4Addr,
    /// Who is to get it.
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

    /// Who sent it.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        self.address(12)
    }

    /// Who is to get it.
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
pub(super) fn pseudo_header(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: u16) -> Sum {
    let addresses = Sum::default().with(&source.octets()).with(&destination.octets());
    addresses.with_u16(protocol.into()).with_u16(length)
}
