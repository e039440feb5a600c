//! Captured network traffic: the files of packet analysers, and the contents of their packets.
//!
//! ```text
//!  file ──reader──> packets ──link──> IP packets ──traffic──> UDP datagrams            whole, also of several IP fragments
//!  (pcap, pcapng)   time, interface   Ethernet, VLAN,         TCP segments ──streams──> bytes in order
//!                                     Linux cooked, raw IP    everything else, counted by name
//! ```
//! Layouts: pcap as in the IETF draft `draft-ietf-opsawg-pcap`, pcapng as in `draft-ietf-opsawg-pcapng`, link types as
//! tcpdump.org lists them, IPv6 RFC 8200. Reads files of both byte orders, with micro- or nanoseconds or any other unit
//! of time, of several sections and interfaces; unknown blocks are skipped. This is a parser of our own, because a
//! capture is input like any other: nothing in it may panic or take memory without a bound, and packets are read in
//! place.

#[cfg(test)]
mod tests;
mod traffic;

use ropewalk_terms::Utc;

pub use traffic::{
    Aside, Carried, Datagram, IpPacket, LinkType, Network, Part, Segment, StreamPiece, Streams, Stretches, Traffic,
    network,
};

/// Maximum length of a block or record. Larger ones are treated as damage.
pub const MOST_BLOCK_BYTES: usize = 16 << 20;

/// Maximum number of interfaces of a section.
pub const MOST_INTERFACES: usize = 1024;

/// The byte order of numbers, chosen by the machine that captured.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The 16-bit number at `at`, if present.
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let number = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Little { u16::from_le_bytes(number) } else { u16::from_be_bytes(number) })
    }

    /// The 32-bit number at `at`, if present.
    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let number = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Little { u32::from_le_bytes(number) } else { u32::from_be_bytes(number) })
    }

    /// The 64-bit number at `at`, if present.
    fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let number = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Little { u64::from_le_bytes(number) } else { u64::from_be_bytes(number) })
    }
}

/// An error in a capture, or in one of its packets.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file begins with another magic number.
    #[error("neither pcap nor pcapng: the file begins with another number")]
    Magic,
    /// The version is unknown.
    #[error("version {0}.{1} of this kind of capture is not known")]
    Version(u16, u16),
    /// A block or record has an impossible length, so that the start of the next one is unknown.
    #[error("a block states an impossible length")]
    Length,
    /// A block or record is longer than [`MOST_BLOCK_BYTES`].
    #[error("a block states more than 16 MiB")]
    Oversize,
    /// A packet states a length larger than its block.
    #[error("a packet is longer than its block")]
    Packet,
    /// A packet belongs to an interface that was not described before.
    #[error("a packet names an interface that the capture does not describe")]
    Interface,
    /// There are more interfaces than any machine has.
    #[error("more than 1,024 interfaces")]
    Interfaces,
}

impl CaptureError {
    /// Its name in reports.
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

/// A captured packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Time of capture; `None` if the capture does not state it.
    pub time: Option<Utc>,
    /// Index of the section's interface, from 0.
    pub interface: u32,
    /// The link type, which determines the first header.
    pub link: LinkType,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Original number of bytes on the line.
    pub original_bytes: u32,
}

impl Packet<'_> {
    /// Whether only its first bytes were captured.
    pub const fn is_cut(&self) -> bool {
        self.bytes.len() < self.original_bytes as usize
    }
}

/// The next element of a capture.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Found<'a> {
    /// At least this many bytes are needed to continue.
    Needs(usize),
    /// A packet.
    Packet {
        /// Number of bytes that the caller may drop.
        bytes: usize,
        /// The packet in them.
        packet: Packet<'a>,
    },
    /// A header, a description, statistics, or a block of an unknown type.
    Other {
        /// Number of bytes that the caller may drop.
        bytes: usize,
    },
    /// A block that contradicts itself, but whose end is known.
    Damaged {
        /// Number of bytes that the caller may drop.
        bytes: usize,
        /// The error.
        error: CaptureError,
    },
}

/// Reads a capture. The caller passes its bytes from the front, and drops those that have been read.
#[derive(Clone, Debug, Default)]
pub struct CaptureReader {
    kind: Kind,
}

#[derive(Clone, Debug, Default)]
enum Kind {
    /// Nothing was read yet.
    #[default]
    Unknown,
    Pcap(File),
    Pcapng(Section),
}

impl CaptureReader {
    /// Number of bytes needed to recognise a capture.
    pub const MAGIC_BYTES: usize = 4;

    /// Makes a reader for the beginning of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a file that begins with these bytes is a capture.
    pub fn recognises(first: &[u8]) -> bool {
        first.first_chunk().is_some_and(|magic| is_magic(*magic) || order_and_unit(*magic).is_some())
    }

    /// Reads the next element at the front of `bytes`: the rest of the file, as far as the caller has it.
    ///
    /// # Errors
    /// If the start of the next packet can no longer be found.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Found<'a>, CaptureError> {
        match &mut self.kind {
            Kind::Pcap(file) => file.next(bytes),
            Kind::Pcapng(section) => section.next(bytes),
            Kind::Unknown => {
                let Some(&magic) = bytes.first_chunk() else { return Ok(Found::Needs(Self::MAGIC_BYTES)) };
                if is_magic(magic) {
                    self.kind = Kind::Pcapng(Section::default());
                    return self.next(bytes);
                }
                order_and_unit(magic).ok_or(CaptureError::Magic)?;
                let Some(header) = bytes.first_chunk() else { return Ok(Found::Needs(HEADER_BYTES)) };
                self.kind = Kind::Pcap(File::parse(header)?);
                Ok(Found::Other { bytes: HEADER_BYTES })
            }
        }
    }
}

// Pcap: one header, then records.
//
// ```text
//  header  magic (u32) | version (u16, u16) | zone, accuracy (u32, u32) | longest packet (u32) | link type (u32)
//  record  seconds (u32) | micro- or nanoseconds (u32) | bytes kept (u32) | bytes there were (u32) | the packet
// ```

/// Bytes of a file's header.
const HEADER_BYTES: usize = 24;
/// Bytes before a packet.
const RECORD_BYTES: usize = 16;
/// The magic number of files with microseconds.
const MICROSECONDS: u32 = 0xA1B2_C3D4;
/// The magic number of files with nanoseconds.
const NANOSECONDS: u32 = 0xA1B2_3C4D;

/// The contents of a file header.
#[derive(Clone, Debug)]
struct File {
    order: ByteOrder,
    /// Nanoseconds per unit of the second number of a time.
    unit: i64,
    link: LinkType,
}

/// Returns the byte order and the unit of time of a magic number.
fn order_and_unit(magic: [u8; 4]) -> Option<(ByteOrder, i64)> {
    let (little, big) = (u32::from_le_bytes(magic), u32::from_be_bytes(magic));
    let unit = |magic| match magic {
        MICROSECONDS => Some(1000),
        NANOSECONDS => Some(1),
        _ => None,
    };
    unit(little).map(|unit| (ByteOrder::Little, unit)).or_else(|| Some((ByteOrder::Big, unit(big)?)))
}

impl File {
    fn parse(header: &[u8; HEADER_BYTES]) -> Result<Self, CaptureError> {
        let [a, b, c, d, ..] = *header;
        let (order, unit) = order_and_unit([a, b, c, d]).ok_or(CaptureError::Magic)?;
        let half = |at| order.u16(header, at).unwrap_or_default();
        // 2.4 has been the version since 1998.
        if half(4) != 2 {
            return Err(CaptureError::Version(half(4), half(6)));
        }
        // The upper bits state the length of a frame's checksum, if frames were captured with one.
        let link = LinkType(order.u32(header, 20).unwrap_or_default() as u16);
        Ok(Self { order, unit, link })
    }

    fn next<'a>(&self, bytes: &'a [u8]) -> Result<Found<'a>, CaptureError> {
        let number = |at| self.order.u32(bytes, at);
        let Some(((seconds, fraction), (kept, original_bytes))) =
            number(0).zip(number(4)).zip(number(8).zip(number(12)))
        else {
            return Ok(Found::Needs(RECORD_BYTES));
        };
        let kept = kept as usize;
        if kept > MOST_BLOCK_BYTES {
            return Err(CaptureError::Oversize);
        }
        let Some(packet) = bytes.get(RECORD_BYTES..RECORD_BYTES + kept) else {
            return Ok(Found::Needs(RECORD_BYTES + kept));
        };
        let time = Utc(i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * self.unit);
        let packet = Packet { time: Some(time), interface: 0, link: self.link, bytes: packet, original_bytes };
        Ok(Found::Packet { bytes: RECORD_BYTES + kept, packet })
    }
}

// Pcapng: blocks in sections; each section has its own byte order and interfaces.
//
// ```text
//  block      type (u32) | length of the block (u32) | body, padded to 4 | the length again (u32)
//  section    0x0A0D0D0A, body: 0x1A2B3C4D (u32), version (u16, u16), length (u64), options
//  interface  1, body: link type (u16), 0 (u16), longest packet (u32), options (9: unit of time, 14: seconds to add)
//  packet     6, body: interface (u32), time (high u32, low u32), bytes kept (u32), bytes there were (u32), the packet, options
//  packet     2 (obsolete), as 6, but interface (u16), packets lost (u16)
//  packet     3, body: bytes there were (u32), the packet as far as the interface keeps it
// ```

const SECTION: u32 = 0x0A0D_0D0A;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;

/// Bytes before a block's body.
const HEAD_BYTES: usize = 8;
/// Bytes before and behind a block's body.
const AROUND_BYTES: usize = HEAD_BYTES + 4;
/// Bytes of a packet's body before the packet.
const PACKET_HEAD_BYTES: usize = 20;

/// The options for the unit of an interface's times, and for their offset from UTC.
const OPTION_UNIT: u16 = 9;
const OPTION_OFFSET: u16 = 14;

/// The state of the section so far.
#[derive(Clone, Debug)]
struct Section {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

impl Default for Section {
    fn default() -> Self {
        Self { order: ByteOrder::Little, interfaces: Vec::new() }
    }
}

#[derive(Copy, Clone, Debug)]
struct Interface {
    link: LinkType,
    longest: u32,
    /// Ticks per second: a power of ten, or of two if the highest bit is set.
    unit: u8,
    /// Seconds to add to times.
    offset: i64,
}

/// Whether a block of this type begins a section: its bytes are the same in both orders.
const fn is_magic(magic: [u8; 4]) -> bool {
    u32::from_le_bytes(magic) == SECTION
}

impl Section {
    fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Found<'a>, CaptureError> {
        let Some(&kind) = bytes.first_chunk::<4>() else { return Ok(Found::Needs(AROUND_BYTES)) };
        if is_magic(kind) {
            let Some(&order) = bytes.get(HEAD_BYTES..).and_then(|body| body.first_chunk()) else {
                return Ok(Found::Needs(AROUND_BYTES));
            };
            self.order = match (u32::from_le_bytes(order), u32::from_be_bytes(order)) {
                (BYTE_ORDER, _) => ByteOrder::Little,
                (_, BYTE_ORDER) => ByteOrder::Big,
                _ => return Err(CaptureError::Magic),
            };
        }
        let Some(length) = self.order.u32(bytes, 4) else { return Ok(Found::Needs(AROUND_BYTES)) };
        let length = length as usize;
        if length > MOST_BLOCK_BYTES {
            return Err(CaptureError::Oversize);
        }
        if length < AROUND_BYTES || !length.is_multiple_of(4) {
            return Err(CaptureError::Length);
        }
        let Some(block) = bytes.get(..length) else { return Ok(Found::Needs(length)) };
        if self.order.u32(block, length - 4) != Some(length as u32) {
            return Err(CaptureError::Length);
        }
        let kind = self.order.u32(block, 0).unwrap_or_default();
        let body = &block[HEAD_BYTES..length - 4];
        match self.body(kind, body) {
            Ok(Some(packet)) => Ok(Found::Packet { bytes: length, packet }),
            Ok(None) => Ok(Found::Other { bytes: length }),
            Err(error @ CaptureError::Version(..)) => Err(error),
            Err(error) => Ok(Found::Damaged { bytes: length, error }),
        }
    }

    /// Parses the body of a block: a packet, or `None`.
    fn body<'a>(&mut self, kind: u32, body: &'a [u8]) -> Result<Option<Packet<'a>>, CaptureError> {
        match kind {
            SECTION => self.begin(body).map(|()| None),
            INTERFACE => self.interface(body).map(|()| None),
            PACKET => {
                let interface = self.order.u32(body, 0).ok_or(CaptureError::Packet)?;
                self.packet(interface, body).map(Some)
            }
            OLD_PACKET => {
                let interface = self.order.u16(body, 0).ok_or(CaptureError::Packet)?;
                self.packet(interface.into(), body).map(Some)
            }
            SIMPLE_PACKET => self.simple_packet(body).map(Some),
            _ => Ok(None),
        }
    }

    fn begin(&mut self, body: &[u8]) -> Result<(), CaptureError> {
        self.interfaces.clear();
        match (self.order.u16(body, 4), self.order.u16(body, 6)) {
            // 1.2 was written by some programs, and means the same.
            (Some(1), Some(_)) => Ok(()),
            (Some(major), Some(minor)) => Err(CaptureError::Version(major, minor)),
            _ => Err(CaptureError::Length),
        }
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), CaptureError> {
        if self.interfaces.len() == MOST_INTERFACES {
            return Err(CaptureError::Interfaces);
        }
        let link = self.order.u16(body, 0).map(LinkType).ok_or(CaptureError::Length)?;
        let longest = self.order.u32(body, 4).ok_or(CaptureError::Length)?;
        let mut interface = Interface { link, longest, unit: 6, offset: 0 };
        let mut options = &body[8..];
        while let (Some(code @ 1..), Some(length)) = (self.order.u16(options, 0), self.order.u16(options, 2)) {
            let padded = 4 + usize::from(length).next_multiple_of(4);
            match code {
                OPTION_UNIT => interface.unit = options.get(4).copied().unwrap_or(6),
                OPTION_OFFSET => interface.offset = self.order.u64(options, 4).unwrap_or_default() as i64,
                _ => {}
            }
            options = options.get(padded..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn packet<'a>(&self, number: u32, body: &'a [u8]) -> Result<Packet<'a>, CaptureError> {
        let field = |at| self.order.u32(body, at).ok_or(CaptureError::Packet);
        let interface = self.interfaces.get(number as usize).ok_or(CaptureError::Interface)?;
        let ticks = u64::from(field(4)?) << 32 | u64::from(field(8)?);
        let (kept, original_bytes) = (field(12)? as usize, field(16)?);
        let end = PACKET_HEAD_BYTES.saturating_add(kept);
        let bytes = body.get(PACKET_HEAD_BYTES..end).ok_or(CaptureError::Packet)?;
        let time = Some(interface.time(ticks));
        Ok(Packet { time, interface: number, link: interface.link, bytes, original_bytes })
    }

    fn simple_packet<'a>(&self, body: &'a [u8]) -> Result<Packet<'a>, CaptureError> {
        let interface = self.interfaces.first().ok_or(CaptureError::Interface)?;
        let original_bytes = self.order.u32(body, 0).ok_or(CaptureError::Packet)?;
        // 0 means that packets are kept whole.
        let longest = if interface.longest == 0 { u32::MAX } else { interface.longest };
        let kept = original_bytes.min(longest) as usize;
        let bytes = body.get(4..).and_then(|packet| packet.get(..kept)).ok_or(CaptureError::Packet)?;
        Ok(Packet { time: None, interface: 0, link: interface.link, bytes, original_bytes })
    }
}

impl Interface {
    /// Converts ticks since the beginning of 1970 to a time. Times beyond 64 bits become the last possible one.
    fn time(&self, ticks: u64) -> Utc {
        const NANOSECONDS: u128 = 1_000_000_000;
        let exponent = u32::from(self.unit & 0x7F);
        let ticks = u128::from(ticks) * NANOSECONDS;
        let nanoseconds = if self.unit & 0x80 != 0 {
            ticks.checked_shr(exponent).unwrap_or(0)
        } else {
            10_u128.checked_pow(exponent).map_or(0, |unit| ticks / unit)
        };
        let offset = i128::from(self.offset) * NANOSECONDS as i128;
        let time = (nanoseconds.min(i128::MAX as u128 >> 1) as i128).saturating_add(offset);
        Utc(time.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}

/// Appends a 32-bit number.
fn put(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a block of this type with a body.
fn block(kind: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put(out, kind);
    put(out, 0);
    body(out);
    out.resize(start + (out.len() - start).next_multiple_of(4), 0);
    let length = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    put(out, length);
}

/// Appends the beginning of a capture: a section with one interface, which keeps packets whole.
pub fn encode_interface(link: LinkType, out: &mut Vec<u8>) {
    block(0x0A0D_0D0A, out, |out| {
        put(out, 0x1A2B_3C4D);
        put(out, 1);
        // The section's length: not stated, so that packets can be added.
        out.extend_from_slice(&u64::MAX.to_le_bytes());
    });
    block(1, out, |out| {
        put(out, link.0.into());
        put(out, 0);
        // Option 9: times count units of 10^-9 s.
        out.extend_from_slice(&[9, 0, 1, 0, 9, 0, 0, 0]);
        put(out, 0);
    });
}

/// Appends a packet of the section's interface. Times before 1970 become 1970.
pub fn encode_packet(time: Utc, packet: &[u8], out: &mut Vec<u8>) {
    block(6, out, |out| {
        let ticks = time.0.max(0) as u64;
        put(out, 0);
        put(out, (ticks >> 32) as u32);
        put(out, ticks as u32);
        put(out, packet.len() as u32);
        put(out, packet.len() as u32);
        out.extend_from_slice(packet);
    });
}
