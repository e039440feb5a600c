//! Why bytes are no packet.

use ropewalk_terms::Cause;

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
