//! A capture from its beginning to its end, packet after packet.

use super::{CaptureError, LinkType, pcap, pcapng};
use ropewalk_terms::Utc;

/// A packet as it was captured.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// When it passed; none where the capture does not say.
    pub time: Option<Utc>,
    /// At which of the section's interfaces, from 0.
    pub interface: u32,
    /// What its bytes begin with.
    pub link: LinkType,
    /// The bytes that were kept.
    pub bytes: &'a [u8],
    /// How many there were on the line.
    pub original_bytes: u32,
}

impl Packet<'_> {
    /// Whether only its first bytes were kept.
    pub const fn is_cut(&self) -> bool {
        self.bytes.len() < self.original_bytes as usize
    }
}

/// What stands at the front of the bytes that are left.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Found<'a> {
    /// So many bytes must be there before more can be said.
    Needs(usize),
    /// A packet.
    Packet {
        /// Bytes that are done with.
        bytes: usize,
        /// What they hold.
        packet: Packet<'a>,
    },
    /// A header, a description, statistics, or a block that nobody here knows.
    Other {
        /// Bytes that are done with.
        bytes: usize,
    },
    /// A block that contradicts itself, but ends where it says.
    Damaged {
        /// Bytes that are done with.
        bytes: usize,
        /// What is wrong.
        error: CaptureError,
    },
}

/// Reads a capture. Whoever has its bytes shows them from the front, and takes away what is done with.
#[derive(Clone, Debug, Default)]
pub struct CaptureReader {
    kind: Kind,
}

#[derive(Clone, Debug, Default)]
enum Kind {
    /// Nothing was read yet.
    #[default]
    Unknown,
    Pcap(pcap::File),
    Pcapng(pcapng::Section),
}

impl CaptureReader {
    /// Bytes that tell whether a file is a capture.
    pub const MAGIC_BYTES: usize = 4;

    /// A reader at a file's beginning.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a file that begins with these bytes is a capture.
    pub fn recognises(first: &[u8]) -> bool {
        first.first_chunk().is_some_and(|magic| pcapng::is_magic(*magic) || pcap::order_and_unit(*magic).is_some())
    }

    /// What `bytes` begin with. They are the rest of the file as far as it is there.
    ///
    /// # Errors
    /// Where nobody can tell any more where the next packet begins.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Found<'a>, CaptureError> {
        match &mut self.kind {
            Kind::Pcap(file) => file.next(bytes),
            Kind::Pcapng(section) => section.next(bytes),
            Kind::Unknown => {
                let Some(&magic) = bytes.first_chunk() else { return Ok(Found::Needs(Self::MAGIC_BYTES)) };
                if pcapng::is_magic(magic) {
                    self.kind = Kind::Pcapng(pcapng::Section::default());
                    return self.next(bytes);
                }
                pcap::order_and_unit(magic).ok_or(CaptureError::Magic)?;
                let Some(header) = bytes.first_chunk() else { return Ok(Found::Needs(pcap::HEADER_BYTES)) };
                self.kind = Kind::Pcap(pcap::File::parse(header)?);
                Ok(Found::Other { bytes: pcap::HEADER_BYTES })
            }
        }
    }
}
