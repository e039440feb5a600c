//! What can be wrong with a capture.

/// Why a capture, or a packet of it, cannot be read.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file begins with something else.
    #[error("neither pcap nor pcapng: the file begins with another number")]
    Magic,
    /// The version is none that is known.
    #[error("version {0}.{1} of this kind of capture is not known")]
    Version(u16, u16),
    /// A block or record has an impossible length, so that nobody knows where the next one begins.
    #[error("a block states an impossible length")]
    Length,
    /// A block or record is longer than [`MOST_BLOCK_BYTES`](super::MOST_BLOCK_BYTES).
    #[error("a block states more than 16 MiB")]
    Oversize,
    /// A packet says that it is longer than its block.
    #[error("a packet is longer than its block")]
    Packet,
    /// A packet is of an interface that was not described before.
    #[error("a packet names an interface that the capture does not describe")]
    Interface,
    /// There are more interfaces than anybody has.
    #[error("more than 1,024 interfaces")]
    Interfaces,
}

impl CaptureError {
    /// The name under which reports count it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Magic => "capture_magic",
            Self::Version(..) => "capture_version",
            Self::Length => "capture_length",
            Self::Oversize => "capture_oversize",
            Self::Packet => "capture_packet",
            Self::Interface => "capture_interface",
            Self::Interfaces => "capture_interfaces",
        }
    }
}
