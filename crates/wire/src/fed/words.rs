//! The first and the last word of a FED fragment, bit by bit. Bits without a name are kept as they came.

use super::FedError;
use ropewalk_kernels::{Crc16, crc16_of_change};
use ropewalk_terms::SourceId;

/// The bits `low .. low + width` of a word.
const fn field(word: u64, low: u32, width: u32) -> u64 {
    word >> low & ((1 << width) - 1)
}

/// The word with the bits `low .. low + width` replaced; what does not fit of `value` is cut off.
const fn with_field(word: u64, low: u32, width: u32, value: u64) -> u64 {
    let mask = ((1 << width) - 1) << low;
    word & !mask | value << low & mask
}

/// The first word of a fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header(u64);

impl Header {
    const NIBBLE: u64 = 5;
    /// The largest L1 id; the next is 0.
    pub const MAX_LEVEL1_ID: u32 = (1 << 24) - 1;
    /// The largest bunch crossing that the field can hold (the LHC uses 1 to 3564).
    pub const MAX_BUNCH_CROSSING: u16 = (1 << 12) - 1;
    /// The largest source id.
    pub const MAX_SOURCE: SourceId = SourceId((1 << 12) - 1);

    /// A header of version 0 and event type 0. Of `source` and `bunch_crossing` 12 bits are used, of `level1_id` 24.
    pub const fn new(source: SourceId, level1_id: u32, bunch_crossing: u16) -> Self {
        Self(with_field(Self::NIBBLE << 60, 8, 12, source.0 as u64))
            .with_level1_id(level1_id)
            .with_bunch_crossing(bunch_crossing)
    }

    /// The header in the first bytes of a fragment.
    ///
    /// # Errors
    /// [`FedError::Header`] where the highest four bits are not 5.
    pub const fn parse(bytes: [u8; 8]) -> Result<Self, FedError> {
        let word = u64::from_le_bytes(bytes);
        if word >> 60 == Self::NIBBLE { Ok(Self(word)) } else { Err(FedError::Header) }
    }

    /// The header as it stands in a fragment.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The header as a number.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Whose fragment it is (12 bits, the FED id).
    pub const fn source(self) -> SourceId {
        SourceId(field(self.0, 8, 12) as u32)
    }

    /// The trigger's number, modulo 2^24.
    pub const fn level1_id(self) -> u32 {
        field(self.0, 32, 24) as u32
    }

    /// The bunch crossing of the trigger within its orbit (12 bits).
    pub const fn bunch_crossing(self) -> u16 {
        field(self.0, 20, 12) as u16
    }

    /// The kind of event, for example physics or calibration (4 bits).
    pub const fn event_type(self) -> u8 {
        field(self.0, 56, 4) as u8
    }

    /// The version of the payload's format (4 bits).
    pub const fn version(self) -> u8 {
        field(self.0, 4, 4) as u8
    }

    /// Whether more header words may follow.
    pub const fn more_headers(self) -> bool {
        field(self.0, 3, 1) == 1
    }

    /// The same header with another trigger number, modulo 2^24.
    pub const fn with_level1_id(self, level1_id: u32) -> Self {
        Self(with_field(self.0, 32, 24, level1_id as u64))
    }

    /// The same header with another bunch crossing, modulo 2^12.
    pub const fn with_bunch_crossing(self, bunch_crossing: u16) -> Self {
        Self(with_field(self.0, 20, 12, bunch_crossing as u64))
    }

    /// The same header with another event type, modulo 2^4.
    pub const fn with_event_type(self, event_type: u8) -> Self {
        Self(with_field(self.0, 56, 4, event_type as u64))
    }

    /// The same header with another version, modulo 2^4.
    pub const fn with_version(self, version: u8) -> Self {
        Self(with_field(self.0, 4, 4, version as u64))
    }

    /// The same header, saying whether more header words may follow.
    pub const fn with_more_headers(self, more: bool) -> Self {
        Self(with_field(self.0, 3, 1, more as u64))
    }
}

/// The last word of a fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trailer(u64);

impl Default for Trailer {
    fn default() -> Self {
        Self::new()
    }
}

impl Trailer {
    const NIBBLE: u64 = 0xA;
    /// Where the two bytes of the CRC begin.
    pub(super) const CRC_BYTE: usize = 2;
    /// What the CRC does not cover: itself, and the bits 2, 14 and 15 that the link sets on its own.
    const OUTSIDE_CRC: u64 = 0xFFFF_C004;

    /// A trailer of length 0, status 0 and TTS state 0, without CRC: [`encode`](super::encode) fills in the rest.
    pub const fn new() -> Self {
        Self(Self::NIBBLE << 60)
    }

    /// The trailer in the last bytes of a fragment.
    ///
    /// # Errors
    /// [`FedError::Trailer`] where the highest four bits are not 0xA.
    pub const fn parse(bytes: [u8; 8]) -> Result<Self, FedError> {
        let word = u64::from_le_bytes(bytes);
        if word >> 60 == Self::NIBBLE { Ok(Self(word)) } else { Err(FedError::Trailer) }
    }

    /// The trailer as it stands in a fragment.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The trailer as a number.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The length of the fragment in 64-bit words, header and trailer included (24 bits).
    pub const fn length_in_words(self) -> u32 {
        field(self.0, 32, 24) as u32
    }

    /// The CRC of the fragment.
    pub const fn crc(self) -> u16 {
        field(self.0, 16, 16) as u16
    }

    /// The event fragment's status (4 bits).
    pub const fn status(self) -> u8 {
        field(self.0, 8, 4) as u8
    }

    /// The state of the trigger throttling system (TTS) in the front end (4 bits).
    pub const fn tts(self) -> u8 {
        field(self.0, 4, 4) as u8
    }

    /// Whether another trailer word follows.
    pub const fn more_trailers(self) -> bool {
        field(self.0, 3, 1) == 1
    }

    /// The same trailer with another length in words, modulo 2^24.
    pub const fn with_length_in_words(self, words: u32) -> Self {
        Self(with_field(self.0, 32, 24, words as u64))
    }

    /// The same trailer with another CRC.
    pub const fn with_crc(self, crc: u16) -> Self {
        Self(with_field(self.0, 16, 16, crc as u64))
    }

    /// The same trailer with another status, modulo 2^4.
    pub const fn with_status(self, status: u8) -> Self {
        Self(with_field(self.0, 8, 4, status as u64))
    }

    /// The same trailer with another TTS state, modulo 2^4.
    pub const fn with_tts(self, tts: u8) -> Self {
        Self(with_field(self.0, 4, 4, tts as u64))
    }

    /// The same trailer, saying whether another trailer word follows.
    pub const fn with_more_trailers(self, more: bool) -> Self {
        Self(with_field(self.0, 3, 1, more as u64))
    }

    /// Whether the CRC is right for a fragment that gave `crc` over all of its bytes, this trailer as it is included.
    pub(super) fn matches(self, crc: Crc16) -> bool {
        self.covered(crc) == self.crc()
    }

    /// The CRC that a fragment should have that gave `crc` over all of its bytes: what the CRC does not cover is
    /// taken out afterwards, so that the whole fragment is read in one go.
    pub fn covered(self, crc: Crc16) -> u16 {
        crc.value() ^ crc16_of_change(self.0 & Self::OUTSIDE_CRC)
    }
}
