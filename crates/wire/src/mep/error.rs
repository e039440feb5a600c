//! What can be wrong with a multi-event packet.

use ropewalk_terms::Cause;

/// What is wrong with a packet, a bank or a request.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum MepError {
    /// There are fewer bytes than the header has.
    #[error("the packet ends before its header does")]
    Short,
    /// The header states another length than arrived.
    #[error("the packet is not as long as its header says")]
    Length,
    /// The fragments do not fill the packet, or go beyond it.
    #[error("the fragments do not fill the packet")]
    Fragments,
    /// A fragment names another event than its place in the packet.
    #[error("a fragment names another event than its place in the packet")]
    Event,
    /// A bank has no magic number, or does not end with its fragment.
    #[error("there is no bank where one should begin, or it goes beyond its fragment")]
    Bank,
    /// What should be encoded is longer than a packet can be.
    #[error("a packet has at most 65,535 bytes")]
    Long,
}

impl MepError {
    /// The name under which the ledger counts it.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Short => Cause::ShortPacket,
            Self::Length => Cause::LengthMismatch,
            Self::Fragments | Self::Event | Self::Bank => Cause::Malformed,
            Self::Long => Cause::Oversize,
        }
    }
}
