//! The packet: its header and the fragments behind it.

use super::MepError;

/// Bytes of a packet's header.
pub const MEP_HEADER_BYTES: usize = 12;
/// Bytes before the banks of a fragment.
pub const FRAGMENT_HEADER_BYTES: usize = 4;
/// The longest packet: its length is a number of 16 bits.
pub const LARGEST_MEP_BYTES: usize = 0xFFFF;

/// What a packet begins with.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MepHeader {
    /// The lower 32 bits of the first event's id.
    pub first_event: u32,
    /// How many events there are: the packing factor.
    pub packing: u16,
    /// Bytes of the packet, these included.
    pub length: u16,
    /// Which part of the detector takes this run.
    pub partition: u32,
}

impl MepHeader {
    /// Encodes the header.
    pub const fn to_bytes(self) -> [u8; MEP_HEADER_BYTES] {
        let [a, b, c, d] = self.first_event.to_le_bytes();
        let ([e, f], [g, h]) = (self.packing.to_le_bytes(), self.length.to_le_bytes());
        let [i, j, k, l] = self.partition.to_le_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Reads a header; any bytes are one.
    #[inline]
    pub const fn from_bytes(bytes: &[u8; MEP_HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        Self {
            first_event: u32::from_le_bytes([a, b, c, d]),
            packing: u16::from_le_bytes([e, f]),
            length: u16::from_le_bytes([g, h]),
            partition: u32::from_le_bytes([i, j, k, l]),
        }
    }
}

/// What a fragment begins with.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FragmentHeader {
    /// The lower 16 bits of the event's id.
    pub event: u16,
    /// Bytes of its banks, without these.
    pub length: u16,
}

impl FragmentHeader {
    /// Encodes the header.
    pub const fn to_bytes(self) -> [u8; FRAGMENT_HEADER_BYTES] {
        let ([a, b], [c, d]) = (self.event.to_le_bytes(), self.length.to_le_bytes());
        [a, b, c, d]
    }

    /// Reads a header; any bytes are one.
    #[inline]
    pub const fn from_bytes(bytes: [u8; FRAGMENT_HEADER_BYTES]) -> Self {
        let [a, b, c, d] = bytes;
        Self { event: u16::from_le_bytes([a, b]), length: u16::from_le_bytes([c, d]) }
    }
}

/// Checks that the fragments of a packet are of consecutive events and fill it exactly. `read` gives the four bytes that
/// begin at a place in the packet, or none beyond its end: so that a packet may lie in several pieces.
///
/// # Errors
/// [`MepError::Fragments`] or [`MepError::Event`].
#[inline]
pub fn check_fragments(
    header: &MepHeader,
    read: impl Fn(usize) -> Option<[u8; FRAGMENT_HEADER_BYTES]>,
) -> Result<(), MepError> {
    let mut at = MEP_HEADER_BYTES;
    let mut event = header.first_event as u16;
    if has_equal_fragments(header, &read) {
        return Ok(());
    }
    // The walk waits for one length after the other; what else is checked is put together beside it and looked at once.
    let mut difference = 0;
    for _ in 0..header.packing {
        let fragment = FragmentHeader::from_bytes(read(at).ok_or(MepError::Fragments)?);
        difference |= fragment.event ^ event;
        event = event.wrapping_add(1);
        at += FRAGMENT_HEADER_BYTES + usize::from(fragment.length);
    }
    if at != usize::from(header.length) {
        Err(MepError::Fragments)
    } else if difference != 0 {
        Err(MepError::Event)
    } else {
        Ok(())
    }
}

/// Whether all fragments are as long as the first one, and nothing is wrong. Where that can be, it is seen without waiting
/// for one length after the other: in a fifth of the time.
#[inline]
fn has_equal_fragments(header: &MepHeader, read: &impl Fn(usize) -> Option<[u8; FRAGMENT_HEADER_BYTES]>) -> bool {
    let first = read(MEP_HEADER_BYTES).map_or(0, |bytes| FragmentHeader::from_bytes(bytes).length);
    let stride = FRAGMENT_HEADER_BYTES + usize::from(first);
    if MEP_HEADER_BYTES + stride * usize::from(header.packing) != usize::from(header.length) {
        return false;
    }
    let mut difference = 0;
    for index in 0..header.packing {
        let Some(bytes) = read(MEP_HEADER_BYTES + stride * usize::from(index)) else { return false };
        let fragment = FragmentHeader::from_bytes(bytes);
        difference |= (fragment.event ^ (header.first_event as u16).wrapping_add(index)) | (fragment.length ^ first);
    }
    difference == 0
}

/// A checked view of a packet that lies in one piece.
#[derive(Copy, Clone, Debug)]
pub struct MepView<'a> {
    header: MepHeader,
    fragments: &'a [u8],
}

impl<'a> MepView<'a> {
    /// Checks the header and every fragment's; not the banks.
    ///
    /// # Errors
    /// What is wrong first.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MepError> {
        let (head, fragments) = bytes.split_first_chunk().ok_or(MepError::Short)?;
        let header = MepHeader::from_bytes(head);
        if usize::from(header.length) != bytes.len() {
            return Err(MepError::Length);
        }
        check_fragments(&header, |at| bytes.get(at..)?.first_chunk().copied())?;
        Ok(Self { header, fragments })
    }

    /// The header.
    pub const fn header(&self) -> MepHeader {
        self.header
    }

    /// The fragments, event by event.
    pub const fn fragments(&self) -> Fragments<'a> {
        Fragments { rest: self.fragments }
    }
}

/// Goes through the fragments of a packet: each one's event (its lower 16 bits) and banks.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fragments<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.rest.split_first_chunk()?;
        let header = FragmentHeader::from_bytes(*head);
        let (banks, rest) = rest.split_at_checked(usize::from(header.length))?;
        self.rest = rest;
        Some((header.event, banks))
    }
}

/// Appends a packet, fragment by fragment.
#[derive(Debug)]
pub struct MepEncoder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    header: MepHeader,
}

impl<'a> MepEncoder<'a> {
    /// Begins a packet behind what is there.
    pub fn new(first_event: u32, partition: u32, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        let header = MepHeader { first_event, packing: 0, length: 0, partition };
        out.extend_from_slice(&header.to_bytes());
        Self { out, start, header }
    }

    /// The fragment of the next event: what `banks` appends.
    ///
    /// # Errors
    /// [`MepError::Long`] if the packet were longer than [`LARGEST_MEP_BYTES`] or had more events than can be counted; then
    /// nothing of the packet is left.
    pub fn fragment(&mut self, banks: impl FnOnce(&mut Vec<u8>)) -> Result<(), MepError> {
        let event = (self.header.first_event as u16).wrapping_add(self.header.packing);
        let head = self.out.len();
        self.out.extend_from_slice(&FragmentHeader { event, length: 0 }.to_bytes());
        let start = self.out.len();
        banks(self.out);
        if self.out.len() - self.start > LARGEST_MEP_BYTES || self.header.packing == u16::MAX {
            self.out.truncate(self.start);
            return Err(MepError::Long);
        }
        let length = (self.out.len() - start) as u16;
        self.out[head..start].copy_from_slice(&FragmentHeader { event, length }.to_bytes());
        self.header.packing += 1;
        Ok(())
    }

    /// The packet is whole.
    pub fn finish(mut self) {
        self.header.length = (self.out.len() - self.start) as u16;
        self.out[self.start..][..MEP_HEADER_BYTES].copy_from_slice(&self.header.to_bytes());
    }
}

/// Appends a packet with these fragments, one for each event from the first on.
///
/// # Errors
/// [`MepError::Long`] if it were longer than [`LARGEST_MEP_BYTES`]; then nothing is appended.
pub fn encode_mep<'a>(
    first_event: u32,
    partition: u32,
    mut fragments: impl Iterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> Result<(), MepError> {
    let mut encoder = MepEncoder::new(first_event, partition, out);
    fragments.try_for_each(|banks| encoder.fragment(|out| out.extend_from_slice(banks)))?;
    encoder.finish();
    Ok(())
}
