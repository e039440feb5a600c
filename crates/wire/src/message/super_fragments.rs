//! Super-fragments on the wire: a head that describes many, then their payloads.
//!
//! ```text
//! | header 32 B | u32 super-fragments | u32 bytes of the tables |
//! | for each super-fragment: entry 32 B, then its fragments' entries of 40 B |
//! | payload of the first fragment of each super-fragment | of the second of each | ...
//! ```
//! The payloads are not copied: the sender gathers them from its pool behind the head, and the receiver cuts
//! them from what it received. They come in the order that is cheap to gather: what one source sent of several events
//! lies side by side in the sender's pool, and leaves as one piece, the headers between the fragments included. So each
//! fragment's entry says where its payload begins, never before the end of the one before; what is between them means
//! nothing.

use super::MAX_CONTROL_BODY;
use crate::frame::{FrameError, Reader};
use ropewalk_terms::{Attempt, Cause, EventKey, SourceId};

/// Bytes of a super-fragment's entry.
pub const SUPER_FRAGMENT_ENTRY_BYTES: usize = 32;
/// Bytes of a fragment's entry.
pub const FRAGMENT_ENTRY_BYTES: usize = 40;

/// What is known about a fragment beside its bytes, as bits. The same bits stand in run files.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FragmentFlags(pub u32);

impl FragmentFlags {
    /// The checksum was computed and is right.
    pub const CRC_CHECKED: Self = Self(1 << 0);
    /// The checksum was computed and is wrong.
    pub const CRC_ERROR: Self = Self(1 << 1);
    /// Header or trailer are not what the format demands.
    pub const MALFORMED: Self = Self(1 << 2);
    /// The fragment names another source than the connection it came over.
    pub const WRONG_SOURCE: Self = Self(1 << 3);
    /// The length in the trailer is not the length that arrived.
    pub const LENGTH_MISMATCH: Self = Self(1 << 4);
    /// The bunch crossing differs from the event's others.
    pub const BUNCH_CROSSING_MISMATCH: Self = Self(1 << 5);
    /// The source is displaced against the reference (synchrony).
    pub const DISPLACED: Self = Self(1 << 6);
    /// The front end said that something is wrong with its data.
    pub const STATUS_ERROR: Self = Self(1 << 7);
    /// Frames of the event are missing in the fragment, which others make up.
    pub const FRAMES_MISSING: Self = Self(1 << 8);
    /// The field `bunch_crossing` holds one.
    pub const HAS_BUNCH_CROSSING: Self = Self(1 << 16);
    /// The field `time` holds one.
    pub const HAS_TIME: Self = Self(1 << 17);

    /// The front end said that it was busy.
    pub const BUSY: Self = Self(1 << 18);

    /// No fragment: the source is missing, and the field `bunch_crossing` holds the cause's number.
    pub const MISSING: Self = Self(1 << 31);

    /// What they say of the fragment's content and its front end, for people.
    pub fn texts(self) -> impl Iterator<Item = &'static str> {
        const TEXTS: [(FragmentFlags, &str); 10] = [
            (FragmentFlags::CRC_CHECKED, "checked when it came"),
            (FragmentFlags::CRC_ERROR, "wrong CRC when it came"),
            (FragmentFlags::MALFORMED, "malformed"),
            (FragmentFlags::WRONG_SOURCE, "wrong source"),
            (FragmentFlags::LENGTH_MISMATCH, "length mismatch"),
            (FragmentFlags::BUNCH_CROSSING_MISMATCH, "bunch crossing mismatch"),
            (FragmentFlags::DISPLACED, "displaced"),
            (FragmentFlags::FRAMES_MISSING, "frames of it are missing"),
            (FragmentFlags::STATUS_ERROR, "the front end says that something is wrong"),
            (FragmentFlags::BUSY, "the front end was busy"),
        ];
        TEXTS.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, text)| text)
    }

    /// Every bit that puts the content in doubt, with its stable name: that of a `terms::Fact`.
    pub const DOUBTS: [(Self, &str); 8] = [
        (Self::CRC_ERROR, "crc_errors"),
        (Self::MALFORMED, "malformed"),
        (Self::WRONG_SOURCE, "wrong_source"),
        (Self::LENGTH_MISMATCH, "length_mismatch"),
        (Self::BUNCH_CROSSING_MISMATCH, "bunch_crossing_mismatch"),
        (Self::DISPLACED, "displaced"),
        (Self::STATUS_ERROR, "status_error"),
        (Self::FRAMES_MISSING, "fragment_incomplete"),
    ];

    /// Both sets of bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the content is in doubt: any of [`FragmentFlags::DOUBTS`].
    pub const fn has_error(self) -> bool {
        self.0 & 0x1fe != 0
    }

    /// The places in [`FragmentFlags::DOUBTS`] of those that are set.
    pub fn doubts(self) -> impl Iterator<Item = usize> {
        (0..Self::DOUBTS.len()).filter(move |&doubt| self.contains(Self::DOUBTS[doubt].0))
    }
}

/// A fragment's description.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FragmentMeta {
    /// Whose it is.
    pub source: SourceId,
    /// Its payload's length in bytes.
    pub length: u32,
    /// What is known about it.
    pub flags: FragmentFlags,
    /// Bunch crossing, where the flags say that there is one.
    pub bunch_crossing: u16,
    /// Trigger or event type as the source gave it; 0 where it gives none.
    pub trigger_type: u16,
    /// The source's own event counter, before unwrapping.
    pub raw_id: u64,
    /// The source's own time stamp, where the flags say that there is one, in its own ticks.
    pub time: u64,
}

impl FragmentMeta {
    /// The place of a required source that has no fragment in this event, and why.
    pub const fn missing(source: SourceId, cause: Cause) -> Self {
        Self {
            source,
            length: 0,
            flags: FragmentFlags::MISSING,
            bunch_crossing: cause as u16,
            trigger_type: 0,
            raw_id: 0,
            time: 0,
        }
    }

    /// Why the source is missing, where it is.
    pub const fn missing_cause(&self) -> Option<Cause> {
        if !self.flags.contains(FragmentFlags::MISSING) || self.bunch_crossing > u8::MAX as u16 {
            return None;
        }
        Cause::from_u8(self.bunch_crossing as u8)
    }
}

/// A fragment's entry in the tables.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FragmentEntry {
    /// The fragment's description.
    pub meta: FragmentMeta,
    /// Where its payload begins, in bytes from the end of the tables.
    pub offset: u32,
}

impl FragmentEntry {
    /// All at once, for there are many: field by field each would be a vector's own growth.
    fn to_bytes(self) -> [u8; FRAGMENT_ENTRY_BYTES] {
        let Self { meta, offset } = self;
        let mut bytes = [0; FRAGMENT_ENTRY_BYTES];
        bytes[..4].copy_from_slice(&meta.source.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&meta.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&meta.flags.0.to_le_bytes());
        bytes[12..14].copy_from_slice(&meta.bunch_crossing.to_le_bytes());
        bytes[14..16].copy_from_slice(&meta.trigger_type.to_le_bytes());
        bytes[16..24].copy_from_slice(&meta.raw_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&meta.time.to_le_bytes());
        bytes[32..36].copy_from_slice(&offset.to_le_bytes());
        bytes
    }

    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let bytes = from.bytes::<FRAGMENT_ENTRY_BYTES>()?;
        let mut from = Reader(&bytes);
        let (source, length, flags) = (SourceId(from.u32()?), from.u32()?, FragmentFlags(from.u32()?));
        let (bunch_crossing, trigger_type) = (from.u16()?, from.u16()?);
        let (raw_id, time, offset) = (from.u64()?, from.u64()?, from.u32()?);
        let meta = FragmentMeta { source, length, flags, bunch_crossing, trigger_type, raw_id, time };
        Ok(Self { meta, offset })
    }
}

/// A super-fragment's description.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SuperFragmentEntry {
    /// The event.
    pub key: EventKey,
    /// The builder's table place, from the request.
    pub slot: u32,
    /// The attempt, from the request.
    pub attempt: Attempt,
    /// How many fragments follow.
    pub fragments: u16,
    /// Bytes of their payloads.
    pub bytes: u32,
    /// Why nothing is held here, where nothing is.
    pub not_held: Option<Cause>,
}

impl SuperFragmentEntry {
    const HELD: u8 = 0xff;

    fn to_bytes(self) -> [u8; SUPER_FRAGMENT_ENTRY_BYTES] {
        let mut bytes = [0; SUPER_FRAGMENT_ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.key.to_bits().to_le_bytes());
        bytes[8..12].copy_from_slice(&self.slot.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.attempt.0.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.fragments.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[20] = self.not_held.map_or(Self::HELD, |cause| cause as u8);
        bytes
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (key, slot, attempt) = (from.key()?, from.u32()?, Attempt(from.u16()?));
        let (fragments, bytes, cause) = (from.u16()?, from.u32()?, from.u8()?);
        from.bytes::<11>()?;
        let not_held = match cause {
            Self::HELD => None,
            number => Some(Cause::from_u8(number).ok_or(FrameError::Meaning)?),
        };
        Ok(Self { key, slot, attempt, fragments, bytes, not_held })
    }
}

/// Writes the head of a message of super-fragments, prefix and tables, to the end of a vector.
#[derive(Debug)]
pub struct SuperFragmentsEncoder<'a> {
    out: &'a mut Vec<u8>,
    /// Where the prefix stands.
    prefix: usize,
    super_fragments: u32,
}

impl<'a> SuperFragmentsEncoder<'a> {
    /// Bytes of the prefix in front of the tables.
    pub const PREFIX: usize = 8;

    /// How long the head of so many super-fragments with so many fragments in all is.
    pub const fn head_bytes(super_fragments: usize, fragments: usize) -> usize {
        Self::PREFIX + super_fragments * SUPER_FRAGMENT_ENTRY_BYTES + fragments * FRAGMENT_ENTRY_BYTES
    }

    /// Begins a head.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let prefix = out.len();
        out.extend_from_slice(&[0; Self::PREFIX]);
        Self { out, prefix, super_fragments: 0 }
    }

    /// Adds a super-fragment and its fragments; the counts in `entry` are set from them.
    pub fn add(&mut self, mut entry: SuperFragmentEntry, fragments: impl IntoIterator<Item = FragmentEntry>) {
        let place = self.out.len();
        self.out.extend_from_slice(&[0; SUPER_FRAGMENT_ENTRY_BYTES]);
        (entry.fragments, entry.bytes) = (0, 0);
        for fragment in fragments {
            entry.fragments += 1;
            entry.bytes = entry.bytes.saturating_add(fragment.meta.length);
            self.out.extend_from_slice(&fragment.to_bytes());
        }
        self.out[place..][..SUPER_FRAGMENT_ENTRY_BYTES].copy_from_slice(&entry.to_bytes());
        self.super_fragments += 1;
    }

    /// Completes the head, which the payloads must follow.
    pub fn finish(self) {
        let (prefix, tables) = self.out[self.prefix..].split_at_mut(Self::PREFIX);
        prefix[..4].copy_from_slice(&self.super_fragments.to_le_bytes());
        prefix[4..].copy_from_slice(&(tables.len() as u32).to_le_bytes());
    }
}

/// Reads the head of a message of super-fragments, one entry after the other.
#[derive(Debug)]
pub struct SuperFragmentsView<'a> {
    rest: &'a [u8],
    super_fragments: u32,
    fragments: u16,
}

impl<'a> SuperFragmentsView<'a> {
    /// The longest tables that are believed, in bytes.
    pub const MAX_TABLES: usize = 16 * MAX_CONTROL_BODY;

    /// Bytes of the tables, from the 8 bytes that the body begins with.
    ///
    /// # Errors
    /// [`FrameError::Long`] above [`SuperFragmentsView::MAX_TABLES`].
    pub fn table_bytes(prefix: [u8; SuperFragmentsEncoder::PREFIX]) -> Result<usize, FrameError> {
        let [_, _, _, _, length @ ..] = prefix;
        let length = u32::from_le_bytes(length) as usize;
        if length > Self::MAX_TABLES { Err(FrameError::Long) } else { Ok(length) }
    }

    /// A view over prefix and tables.
    ///
    /// # Errors
    /// [`FrameError::Short`] where the tables are cut, [`FrameError::Long`] where bytes are left.
    pub fn new(head: &'a [u8]) -> Result<Self, FrameError> {
        let mut from = Reader(head);
        let super_fragments = from.u32()?;
        let length = from.u32()? as usize;
        match from.0.len() {
            found if found < length => Err(FrameError::Short),
            found if found > length => Err(FrameError::Long),
            _ => Ok(Self { rest: from.0, super_fragments, fragments: 0 }),
        }
    }

    /// How many super-fragments are left.
    pub const fn remaining(&self) -> u32 {
        self.super_fragments
    }

    /// The next super-fragment; none at the end. Its fragments must have been read before the next call.
    ///
    /// # Errors
    /// Where the tables end too early or hold numbers without meaning.
    pub fn next_super_fragment(&mut self) -> Result<Option<SuperFragmentEntry>, FrameError> {
        if self.fragments > 0 {
            return Err(FrameError::Meaning);
        }
        if self.super_fragments == 0 {
            return if self.rest.is_empty() { Ok(None) } else { Err(FrameError::Long) };
        }
        let mut from = Reader(self.rest);
        let entry = SuperFragmentEntry::decode(&mut from)?;
        self.rest = from.0;
        self.super_fragments -= 1;
        self.fragments = entry.fragments;
        Ok(Some(entry))
    }

    /// The next fragment of the super-fragment; none after its last.
    ///
    /// # Errors
    /// Where the tables end too early.
    #[inline]
    pub fn next_fragment(&mut self) -> Result<Option<FragmentEntry>, FrameError> {
        if self.fragments == 0 {
            return Ok(None);
        }
        let mut from = Reader(self.rest);
        let fragment = FragmentEntry::decode(&mut from)?;
        self.rest = from.0;
        self.fragments -= 1;
        Ok(Some(fragment))
    }
}
