//! IP packets of both versions as captures need them: from whom to whom, what they carry, and which part they are.

use crate::internet::{InternetError, Ipv4Packet};
use core::net::{IpAddr, Ipv6Addr};

/// Bytes of an IPv6 header.
pub(super) const IPV6_BYTES: usize = 40;
/// The most headers between an IPv6 header and what the packet carries.
const MOST_EXTENSIONS: usize = 8;
/// Extension headers of IPv6 whose second byte is their length in units of 8 bytes behind the first (RFC 6564): for every hop,
/// routing, for the destination, mobility, host identity and Shim6. Encrypted payloads (50) are no headers to pass over.
const EXTENSIONS: [u8; 6] = [0, 43, 60, 135, 139, 140];
/// That of the parts of a datagram, which has 8 bytes.
const FRAGMENT: u8 = 44;
/// Who sent it (RFC 4302): its length counts units of 4 bytes behind the first 8.
const AUTHENTICATION: u8 = 51;

/// Which part of a datagram a packet is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// Says which parts belong together.
    pub identification: u32,
    /// Where it belongs, in bytes.
    pub offset: u16,
    /// There are parts behind it.
    pub has_more: bool,
}

/// A view of a packet whose lengths are right.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IpPacket<'a> {
    /// Who sent it.
    pub source: IpAddr,
    /// Who is to get it.
    pub destination: IpAddr,
    /// What it carries: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// Which part it is; none for a whole one.
    pub part: Option<Part>,
    /// What it carries, without padding.
    pub payload: &'a [u8],
}

impl<'a> IpPacket<'a> {
    /// Looks at a packet of either version, which may have padding behind it.
    ///
    /// # Errors
    /// Where it ends too soon, or its lengths or the checksum of its header are wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, InternetError> {
        match bytes.first().map(|first| first >> 4) {
            None => Err(InternetError::Short),
            Some(6) => Self::version_6(bytes),
            Some(_) => Self::version_4(bytes),
        }
    }

    fn version_4(bytes: &'a [u8]) -> Result<Self, InternetError> {
        let packet = Ipv4Packet::parse_captured(bytes)?;
        let (header, fragmentation) = (packet.to_header(), packet.fragmentation());
        let part = fragmentation.is_fragment().then_some(Part {
            identification: header.identification.into(),
            offset: fragmentation.offset,
            has_more: fragmentation.has_more,
        });
        let (source, destination) = (packet.source().into(), packet.destination().into());
        Ok(Self { source, destination, protocol: packet.protocol(), part, payload: packet.payload })
    }

    fn version_6(bytes: &'a [u8]) -> Result<Self, InternetError> {
        let (header, rest) = bytes.split_first_chunk::<IPV6_BYTES>().ok_or(InternetError::Short)?;
        let stated = usize::from(u16::from_be_bytes([header[4], header[5]]));
        // As in IPv4: the network card has yet to cut this packet into several.
        let length = if stated == 0 { rest.len() } else { stated };
        let payload = rest.get(..length).ok_or(InternetError::Length)?;
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            IpAddr::from(Ipv6Addr::from(octets))
        };
        let (protocol, payload, part) = behind_extensions(header[6], payload)?;
        Ok(Self { source: address(8), destination: address(24), protocol, part, payload })
    }

    /// The packet that this part's datagram makes: what was put together may begin with extension headers.
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

/// Passes over the extension headers of IPv6, up to that of a part: what the packet carries, and which part it is.
fn behind_extensions(mut protocol: u8, mut payload: &[u8]) -> Result<(u8, &[u8], Option<Part>), InternetError> {
    for _ in 0..=MOST_EXTENSIONS {
        let units = || payload.get(1).map(|&units| usize::from(units)).ok_or(InternetError::Short);
        let length = match protocol {
            FRAGMENT => 8,
            AUTHENTICATION => 8 + 4 * units()?,
            kind if EXTENSIONS.contains(&kind) => 8 + 8 * units()?,
            _ => return Ok((protocol, payload, None)),
        };
        let (extension, rest) = payload.split_at_checked(length).ok_or(InternetError::Short)?;
        let is_part = protocol == FRAGMENT;
        (protocol, payload) = (extension[0], rest);
        if is_part {
            let word = u16::from_be_bytes([extension[2], extension[3]]);
            let identification = u32::from_be_bytes([extension[4], extension[5], extension[6], extension[7]]);
            let part = Part { identification, offset: word & !7, has_more: word & 1 != 0 };
            // A header that says "the only part" is a whole packet (RFC 6946).
            if part.has_more || part.offset > 0 {
                return Ok((protocol, payload, Some(part)));
            }
        }
    }
    Err(InternetError::Length)
}
