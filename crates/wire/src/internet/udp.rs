//! UDP: ports, and a checksum over the whole datagram.

use super::ipv4::pseudo_header;
use super::{InternetError, Ipv4Packet, Sum, UDP_BYTES, UDP_PROTOCOL, u16_at};
use core::net::{Ipv4Addr, SocketAddrV4};

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
