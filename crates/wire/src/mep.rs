//! Multi-event packets (MEP) of LHCb: one source's fragments of consecutive events, sent as one IP packet.
//!
//! ```text
//!  packet    first event (u32) | packing factor (u16) | length with these 12 bytes (u16) | partition (u32) | fragments
//!  fragment  low half of the event's id (u16) | length of its banks (u16) | banks          one for each event
//!  bank      0xCBCB (u16) | length with these 8 bytes (u16) | type (u8) | version (u8) | source (i16) | data, padded to 4
//!  request   MEPs wanted (u8) | 0 (3) | sequence (u32) | run (u32) | seconds, nanoseconds (u64, u64) | 0 (16)
//! ```
//! Little-endian. The layouts are those of LHCb's online software (`MEPHdr.h`, `RawBank.h`). A request is 44 bytes long
//! there; the purpose of its last 16 is not known here: they are zero when sent and ignored when read.

use ropewalk_terms::Cause;

/// An error in a packet, a bank or a request.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum MepError {
    /// There are fewer bytes than the header has.
    #[error("the packet ends before its header does")]
    Short,
    /// The header states another length than that of the received bytes.
    #[error("the packet is not as long as its header says")]
    Length,
    /// The fragments do not fill the packet, or extend beyond it.
    #[error("the fragments do not fill the packet")]
    Fragments,
    /// A fragment has another event number than its place in the packet implies.
    #[error("a fragment names another event than its place in the packet")]
    Event,
    /// A bank has no magic number, or does not end with its fragment.
    #[error("there is no bank where one should begin, or it goes beyond its fragment")]
    Bank,
    /// The data to encode exceed the maximum length.
    #[error("a packet has at most 65,535 bytes")]
    Long,
}

impl MepError {
    /// Its name in the ledger.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Short => Cause::ShortPacket,
            Self::Length => Cause::LengthMismatch,
            Self::Fragments | Self::Event | Self::Bank => Cause::Malformed,
            Self::Long => Cause::Oversize,
        }
    }
}

/// Bytes of a bank's header.
pub const BANK_HEADER_BYTES: usize = 8;
/// The beginning of every bank.
pub const BANK_MAGIC: u16 = 0xCBCB;

/// A bank is padded to a multiple of this length.
const BANK_STEP: usize = 4;

/// A piece of a detector's data.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bank<'a> {
    /// The type of the data.
    pub kind: u8,
    /// The version of their layout.
    pub version: u8,
    /// The part of the detector.
    pub source: i16,
    /// The data, without header and padding.
    pub data: &'a [u8],
}

/// Iterator over the banks of a fragment; ends with the first error.
#[derive(Clone, Debug)]
pub struct Banks<'a> {
    rest: &'a [u8],
}

impl<'a> Banks<'a> {
    /// The banks in these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self) -> Option<Bank<'a>> {
        let [m0, m1, l0, l1, kind, version, s0, s1] = *self.rest.first_chunk()?;
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        let data = self.rest.get(BANK_HEADER_BYTES..length)?;
        let (_, rest) = self.rest.split_at_checked(length.next_multiple_of(BANK_STEP))?;
        self.rest = rest;
        let source = i16::from_le_bytes([s0, s1]);
        (u16::from_le_bytes([m0, m1]) == BANK_MAGIC).then_some(Bank { kind, version, source, data })
    }
}

impl<'a> Iterator for Banks<'a> {
    type Item = Result<Bank<'a>, MepError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bank = self.take().ok_or(MepError::Bank);
        if bank.is_err() {
            self.rest = &[];
        }
        Some(bank)
    }
}

/// The source in the header of each bank, and the range of the bank in `bytes`, header and padding included. Ends at the first error.
pub fn bank_ranges(bytes: &[u8]) -> impl Iterator<Item = (u16, core::ops::Range<usize>)> + '_ {
    let mut banks = Banks::new(bytes);
    core::iter::from_fn(move || {
        let start = bytes.len() - banks.rest.len();
        let bank = banks.next()?.ok()?;
        Some((bank.source.cast_unsigned(), start..bytes.len() - banks.rest.len()))
    })
}

/// Appends a bank with its padding.
///
/// # Errors
/// [`MepError::Long`] if header and data are longer than 65,535 bytes; then nothing is appended.
pub fn encode_bank(bank: &Bank<'_>, out: &mut Vec<u8>) -> Result<(), MepError> {
    let length = u16::try_from(BANK_HEADER_BYTES + bank.data.len()).map_err(|_| MepError::Long)?;
    out.extend_from_slice(&BANK_MAGIC.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[bank.kind, bank.version]);
    out.extend_from_slice(&bank.source.to_le_bytes());
    out.extend_from_slice(bank.data);
    let padding = bank.data.len().next_multiple_of(BANK_STEP) - bank.data.len();
    out.extend_from_slice(&[0; BANK_STEP][..padding]);
    Ok(())
}

/// Bytes of a packet's header.
pub const MEP_HEADER_BYTES: usize = 12;
/// Bytes before the banks of a fragment.
pub const FRAGMENT_HEADER_BYTES: usize = 4;
/// Length of the longest packet: its length is a 16-bit number.
pub const LARGEST_MEP_BYTES: usize = 0xFFFF;

/// The header of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MepHeader {
    /// The lower 32 bits of the first event's id.
    pub first_event: u32,
    /// Number of events: the packing factor.
    pub packing: u16,
    /// Bytes of the packet, these included.
    pub length: u16,
    /// The part of the detector that takes this run.
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

    /// Decodes a header; any bytes are valid.
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

/// The header of a fragment.
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

    /// Decodes a header; any bytes are valid.
    #[inline]
    pub const fn from_bytes(bytes: [u8; FRAGMENT_HEADER_BYTES]) -> Self {
        let [a, b, c, d] = bytes;
        Self { event: u16::from_le_bytes([a, b]), length: u16::from_le_bytes([c, d]) }
    }
}

/// Checks that the fragments of a packet belong to consecutive events and fill it exactly. `read` returns the four
/// bytes at an offset in the packet, or `None` beyond its end, so that a packet may lie in several pieces.
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
    // The walk depends on one length after the other; all other checks are combined and evaluated once at the end.
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

/// Whether all fragments are as long as the first one, without an error. This check does not depend on one length after
/// the other and takes a fifth of the time.
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
    /// Checks the header and every fragment's header; not the banks.
    ///
    /// # Errors
    /// The first error.
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

/// Iterator over the fragments of a packet: each one's event (its lower 16 bits) and banks.
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
    /// Begins a packet behind the existing bytes.
    pub fn new(first_event: u32, partition: u32, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        let header = MepHeader { first_event, packing: 0, length: 0, partition };
        out.extend_from_slice(&header.to_bytes());
        Self { out, start, header }
    }

    /// Appends the fragment of the next event: the bytes that `banks` appends.
    ///
    /// # Errors
    /// [`MepError::Long`] if the packet would exceed [`LARGEST_MEP_BYTES`] or the maximum number of events; the packet
    /// is then removed.
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

    /// Completes the packet.
    pub fn finish(mut self) {
        self.header.length = (self.out.len() - self.start) as u16;
        self.out[self.start..][..MEP_HEADER_BYTES].copy_from_slice(&self.header.to_bytes());
    }
}

/// Appends a packet with these fragments, one for each event from the first on.
///
/// # Errors
/// [`MepError::Long`] if it would exceed [`LARGEST_MEP_BYTES`]; then nothing is appended.
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

/// Bytes of a request.
pub const MEP_REQUEST_BYTES: usize = 44;

/// Reports that a gateway has room for more packets of every source.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MepRequest {
    /// Number of multi-event packets of every source.
    pub count: u8,
    /// Counts the requests of this gateway, from 1, so that a duplicate counts only once.
    pub sequence: u32,
    /// The run.
    pub run: u32,
    /// Time of sending: whole seconds of UTC.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanoseconds: u64,
}

impl MepRequest {
    /// Encodes the request.
    pub fn to_bytes(self) -> [u8; MEP_REQUEST_BYTES] {
        let mut bytes = [0; MEP_REQUEST_BYTES];
        bytes[0] = self.count;
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.run.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.seconds.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.nanoseconds.to_le_bytes());
        bytes
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`MepError::Short`] and [`MepError::Length`] for another number of bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, MepError> {
        let (bytes, rest) = bytes.split_first_chunk::<MEP_REQUEST_BYTES>().ok_or(MepError::Short)?;
        let number = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let wide = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let (sequence, run, seconds, nanoseconds) = (number(4), number(8), wide(12), wide(20));
        let request = Self { count: bytes[0], sequence, run, seconds, nanoseconds };
        if rest.is_empty() { Ok(request) } else { Err(MepError::Length) }
    }
}

#[cfg(test)]
mod tests {
    //! Round trips of every packet, and robustness against any bytes.

    use proptest::prelude::*;

    use super::*;

    fn packet(first: u32, partition: u32, fragments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0xEE];
        encode_mep(first, partition, fragments.iter().map(Vec::as_slice), &mut bytes).expect("it is short");
        bytes.split_off(1)
    }

    /// Of any lengths, or all of the same one.
    fn fragments() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let any_length = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..34);
        let equal = (0_usize..40)
            .prop_flat_map(|length| prop::collection::vec(prop::collection::vec(any::<u8>(), length), 0..34));
        prop_oneof![any_length, equal]
    }

    proptest! {
        #[test]
        fn every_packet_comes_back(first in any::<u32>(), partition in any::<u32>(), fragments in fragments()) {
            let bytes = packet(first, partition, &fragments);
            let view = MepView::parse(&bytes).expect("it was encoded");
            let header = MepHeader { first_event: first, packing: fragments.len() as u16, length: bytes.len() as u16, partition };
            prop_assert_eq!(view.header(), header);
            let ids = (0..).map(|index| (first as u16).wrapping_add(index));
            prop_assert!(view.fragments().eq(ids.zip(fragments.iter().map(Vec::as_slice))));
            for cut in 0..bytes.len() {
                let error = if cut < MEP_HEADER_BYTES { MepError::Short } else { MepError::Length };
                prop_assert_eq!(MepView::parse(&bytes[..cut]).err(), Some(error));
            }
        }

        #[test]
        fn a_damaged_fragment_header_is_seen(fragments in fragments(), place in any::<prop::sample::Index>(), bit in 0_u8..32) {
            prop_assume!(!fragments.is_empty());
            let mut bytes = packet(7, 1, &fragments);
            let which = place.index(fragments.len());
            let before: usize = fragments[..which].iter().map(|banks| FRAGMENT_HEADER_BYTES + banks.len()).sum();
            bytes[MEP_HEADER_BYTES + before + usize::from(bit / 8)] ^= 1 << (bit % 8);
            prop_assert!(MepView::parse(&bytes).is_err());
        }

        #[test]
        fn every_bank_comes_back(banks in prop::collection::vec(
            (any::<(u8, u8, i16)>(), prop::collection::vec(any::<u8>(), 0..50)), 0..9)
        ) {
            let mut bytes = Vec::new();
            let bank = |((kind, version, source), data)| Bank { kind, version, source, data };
            let banks: Vec<_> = banks.iter().map(|(head, data)| bank((*head, data.as_slice()))).collect();
            banks.iter().for_each(|bank| encode_bank(bank, &mut bytes).expect("it is short"));
            prop_assert_eq!(bytes.len() % 4, 0);
            let read: Result<Vec<_>, _> = Banks::new(&bytes).collect();
            prop_assert_eq!(read, Ok(banks));
        }

        #[test]
        fn every_request_comes_back((count, sequence, run, seconds, nanoseconds) in any::<(u8, u32, u32, u64, u64)>()) {
            let request = MepRequest { count, sequence, run, seconds, nanoseconds };
            prop_assert_eq!(MepRequest::parse(&request.to_bytes()), Ok(request));
        }

        #[test]
        fn anything_is_refused_or_is_whole(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(view) = MepView::parse(&bytes) {
                let total: usize = view.fragments().map(|(_, banks)| FRAGMENT_HEADER_BYTES + banks.len()).sum();
                prop_assert_eq!(MEP_HEADER_BYTES + total, bytes.len());
            }
            let _ = Banks::new(&bytes).count();
            prop_assert_eq!(MepRequest::parse(&bytes).is_ok(), bytes.len() == MEP_REQUEST_BYTES);
        }
    }

    #[test]
    fn each_error_has_its_cause() {
        use ropewalk_terms::Cause;
        let bytes = packet(0xFFFF, 3, &[vec![1; 8], vec![2; 8]]);
        let wrong = |place: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[place] = value;
            MepView::parse(&bytes).err().map(MepError::cause)
        };
        assert_eq!(MepView::parse(&bytes).err(), None, "the event's low half goes round");
        assert_eq!(wrong(6, 35), Some(Cause::LengthMismatch));
        assert_eq!(wrong(4, 1), Some(Cause::Malformed), "a fragment that no event has");
        assert_eq!(wrong(4, 3), Some(Cause::Malformed), "an event without a fragment");
        assert_eq!(wrong(14, 7), Some(Cause::Malformed));
        assert_eq!(wrong(12, 9), Some(Cause::Malformed));
        assert_eq!(MepView::parse(&bytes[..11]).err().map(MepError::cause), Some(Cause::ShortPacket));
        let long = [0; 0xFFFF];
        let mut out = vec![7];
        assert_eq!(encode_mep(0, 0, [&long[..]].into_iter(), &mut out), Err(MepError::Long));
        let bank = Bank { kind: 0, version: 0, source: 0, data: &long };
        assert_eq!((encode_bank(&bank, &mut out), MepError::Long.cause()), (Err(MepError::Long), Cause::Oversize));
        assert_eq!(out, [7], "nothing was appended");
    }

    #[test]
    fn a_bank_without_magic_or_end_ends_the_fragment() {
        let mut bytes = Vec::new();
        for data in [&[1, 2, 3][..], &[4; 4]] {
            encode_bank(&Bank { kind: 1, version: 2, source: -3, data }, &mut bytes).expect("it is short");
        }
        let read = |bytes: &[u8]| Banks::new(bytes).map(|bank| bank.is_ok()).collect::<Vec<_>>();
        assert_eq!(read(&bytes), [true, true]);
        assert_eq!(read(&bytes[..bytes.len() - 1]), [true, false]);
        for (place, value) in [(12, 0), (14, 7), (14, 13)] {
            let mut wrong = bytes.clone();
            wrong[place] = value;
            assert_eq!(read(&wrong), [true, false], "{place}");
        }
    }
}
