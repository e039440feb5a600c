//! The headers that carry packets: Ethernet II with a VLAN tag, IPv4 (RFC 791), UDP (RFC 768) and their checksum (RFC
//! 1071).
//!
//! ```text
//!  Ethernet 14, or 18 with a tag │ IPv4 20 to 60 │ UDP 8 │ payload │ padding up to 60 bytes of frame
//! ```
//! `etherparse` reads and writes the headers. This module checks a packet before it returns its payload, and names the
//! cause under which each fault is counted. Sockets never show these headers; packet rings show all of them.

#[cfg(test)]
mod tests;

use ropewalk_terms::Cause;

pub use etherparse::{
    EtherType, Ethernet2Header, IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv4Options,
    PacketBuilder, SingleVlanHeader, UdpHeader, UdpSlice, VlanId, ether_type, ip_number,
};

use etherparse::err::ipv4::{HeaderError, HeaderSliceError};

/// Length of the shortest frame on a cable, without its checksum; shorter ones are padded with zeros.
pub const LEAST_FRAME_BYTES: usize = 60;

/// An error in a frame, a packet or a datagram.
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
    /// The stated length is shorter than the header or longer than the received bytes.
    #[error("the stated length does not fit the bytes that came")]
    Length,
    /// The IPv4 header's checksum is wrong.
    #[error("the IPv4 header's checksum is wrong")]
    HeaderChecksum,
    /// The packet carries another protocol.
    #[error("the packet carries another protocol")]
    Protocol,
}

impl InternetError {
    /// Its name in the ledger.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Short | Self::NotIpv4 | Self::HeaderLength | Self::Protocol => Cause::Malformed,
            Self::Length => Cause::LengthMismatch,
            Self::HeaderChecksum => Cause::BadChecksum,
        }
    }
}

impl From<HeaderSliceError> for InternetError {
    fn from(error: HeaderSliceError) -> Self {
        match error {
            HeaderSliceError::Len(error) if error.len < Ipv4Header::MIN_LEN => Self::Short,
            HeaderSliceError::Content(HeaderError::UnexpectedVersion { .. }) => Self::NotIpv4,
            _ => Self::HeaderLength,
        }
    }
}

/// Returns the bytes behind the header of an Ethernet frame, and behind its VLAN tag.
///
/// # Errors
/// [`InternetError::Short`] if the frame ends within its header.
#[inline]
pub fn behind_ethernet(frame: &[u8]) -> Result<&[u8], InternetError> {
    let (header, payload) = frame.split_at_checked(Ethernet2Header::LEN).ok_or(InternetError::Short)?;
    match *header {
        [.., 0x81, 0x00] => payload.get(SingleVlanHeader::LEN..).ok_or(InternetError::Short),
        _ => Ok(payload),
    }
}

/// A packet whose lengths and header checksum are right.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ipv4Packet<'a> {
    /// Its header.
    pub header: Ipv4HeaderSlice<'a>,
    /// The payload, without the padding of a short frame.
    pub payload: &'a [u8],
}

impl<'a> Ipv4Packet<'a> {
    /// Parses a packet, which may have padding behind it.
    ///
    /// # Errors
    /// All except [`InternetError::Protocol`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, InternetError> {
        let header = Ipv4HeaderSlice::from_slice(bytes)?;
        let payload = bytes.get(header.slice().len()..header.total_len().into()).ok_or(InternetError::Length)?;
        if checksum(&[header.slice()]) != [0, 0] {
            return Err(InternetError::HeaderChecksum);
        }
        Ok(Self { header, payload })
    }

    /// Parses a packet of a capture. A capture on the sending host contains packets before the network card completes
    /// them: a header checksum of 0 is left to the card, and a length of 0 belongs to a packet that the card cuts into
    /// several.
    ///
    /// # Errors
    /// All except [`InternetError::Protocol`].
    pub fn parse_captured(bytes: &'a [u8]) -> Result<Self, InternetError> {
        let header = Ipv4HeaderSlice::from_slice(bytes)?;
        let length = if header.total_len() == 0 { bytes.len() } else { header.total_len().into() };
        let payload = bytes.get(header.slice().len()..length).ok_or(InternetError::Length)?;
        if header.header_checksum() != 0 && checksum(&[header.slice()]) != [0, 0] {
            return Err(InternetError::HeaderChecksum);
        }
        Ok(Self { header, payload })
    }

    /// The datagram in a whole packet.
    ///
    /// # Errors
    /// [`InternetError::Short`] or [`InternetError::Length`].
    #[inline]
    pub fn datagram(&self) -> Result<UdpSlice<'a>, InternetError> {
        match UdpSlice::from_slice(self.payload) {
            // Length 0 means a packet above 64 KiB, which IPv4 does not have.
            Ok(datagram) if datagram.length() > 0 => Ok(datagram),
            Err(_) if self.payload.len() < UdpHeader::LEN => Err(InternetError::Short),
            _ => Err(InternetError::Length),
        }
    }

    /// Whether the checksum of the packet's datagram is wrong; reads all of its bytes. The value 0 means no checksum. A
    /// sum over the addresses alone is also accepted: the sender left the rest to a network card, and the datagram did
    /// not pass one, as between two network namespaces.
    pub fn has_wrong_checksum(&self, datagram: &UdpSlice<'_>) -> bool {
        let [high, low] = (datagram.slice().len() as u16).to_be_bytes();
        let (addresses, rest) = (&self.header.slice()[12..20], [0, ip_number::UDP.0, high, low]);
        let is_right = checksum(&[addresses, &rest, datagram.slice()]) == [0, 0];
        let stated = datagram.checksum();
        !is_right && stated != 0 && stated != !u16::from_be_bytes(checksum(&[addresses, &rest]))
    }
}

/// The checksum over pieces, in network byte order; all pieces except the last have an even length. The function of
/// `etherparse` takes 1.5 times as long for long payloads.
#[inline]
pub fn checksum(pieces: &[&[u8]]) -> [u8; 2] {
    (!folded(pieces.iter().map(|piece| sum(piece)).sum())).to_ne_bytes()
}

/// The sum of all 16-bit words in the machine's byte order; the result does not depend on the order.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    // A sum of 32-bit words folds to the same 16 bits.
    let (quads, rest) = bytes.as_chunks::<4>();
    let quads = quads.iter().map(|quad| u64::from(u32::from_ne_bytes(*quad))).sum::<u64>();
    let last = match *rest {
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c] => [a, b, c, 0],
        _ => [0; 4],
    };
    quads + u64::from(u32::from_ne_bytes(last))
}

/// Adds the carries back in until 16 bits are left.
const fn folded(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}
