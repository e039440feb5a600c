//! The messages between nodes: their directions, fields and bytes. The whole pull protocol.
//!
//! ```text
//!              Hello, Welcome/Refuse          (every connection, both ways, first)
//!   RU  -> EVM  Announce, Highest, Ended, Lumisection, LumisectionEnd, Mask, Follows, StopAt, Finished,
//!               Report
//!   EVM -> RU   Start, QueryHighest, Highest, StopAt, Resync, Release, Ended, Recover, Finish, Finished,
//!               Lumisection, LumisectionEnd, Mask
//!   BU  -> EVM  Credit, Lacking, Acknowledge, Unreleased, Lumisection, LumisectionEnd, Synchrony, StopRequest, Finished,
//!               Report
//!   EVM -> BU   Start, Assign, ReadoutState, Lumisection, LumisectionEnd, StopAt (when the run drains), Recover, Finish, Finished
//!   BU  -> RU   Request            (data connection, opened by the BU)
//!   RU  -> BU   SuperFragments     (data connection; head, then the payloads as they lie in the RU's pool)
//! ```
//! A message is a [`Header`] of 32 bytes, then a body of the stated length. All numbers are little-endian. Every header
//! carries run, epoch and the sender's incarnation, by which the receiver decides whether the message is still valid.
//! Lists are bounded by [`BATCH`], so that no message needs an allocation. Control connections carry only small
//! messages; payloads are sent only over data connections.

mod body;
mod report;

use crate::frame::{FrameError, Reader, kinds};
use ropewalk_terms::{Attempt, Cause, Epoch, EventKey, Incarnation, NodeId, Role, RunNumber, SourceId};

pub use body::{
    Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, Assign, AssignEntry, Credit, Finished, Hello, Lacking,
    LackingEntry, Mask, Message, ReadoutState, RefuseReason, Release, ReleaseEntry, Request, RequestEntry, Resync,
    Setting, Start, SynchronyState, Unreleased, UnreleasedEntry,
};
pub use report::{
    Ended, Gap, GapPart, Lumisection, LumisectionEnd, NumberingAnomaly, NumberingKind, Report, ReportEntry,
};

/// The version of the protocol. A hello with another version is refused.
pub const PROTOCOL_VERSION: u16 = 7;

/// Maximum number of entries in a message.
pub const BATCH: usize = 64;

/// A list in a message: at most [`BATCH`] entries, no allocation.
pub type Batch<T> = arrayvec::ArrayVec<T, BATCH>;

/// The longest body of a control message, in bytes; a longer one is malformed.
pub const MAX_CONTROL_BODY: usize = 64 * 1024;

/// The length of a header in bytes.
pub const HEADER_BYTES: usize = 32;

/// The first four bytes of every message: `RWNM`.
pub const MAGIC: [u8; 4] = *b"RWNM";

kinds! {
    /// The identity of the connecting node, and its protocol version.
    Hello = 1,
    /// The hello is accepted.
    Welcome = 2,
    /// The hello is refused, with the reason; the connection closes.
    Refuse = 3,
    /// EVM to RU and BU: the run begins at this key.
    Start = 4,
    /// EVM to RU: asks for the highest key seen.
    QueryHighest = 5,
    /// RU to EVM: the highest key seen.
    Highest = 6,
    /// EVM to RU: the last key of the run. RU to a new EVM: the last key fixed before.
    StopAt = 7,
    /// EVM to RU: the trigger source restarted its numbering.
    Resync = 8,
    /// RU to EVM: these events are held, everything up to a key is settled.
    Announce = 9,
    /// BU to EVM: its room, absolute since this connection began.
    Credit = 10,
    /// EVM to BU: assigns events to build.
    Assign = 11,
    /// BU to RU: requests super-fragments.
    Request = 12,
    /// RU to BU: the super-fragments, or the cause why they are not held.
    SuperFragments = 13,
    /// BU to EVM: these events have reached the acknowledgement level.
    Acknowledge = 14,
    /// EVM to RU: releases events.
    Release = 15,
    /// EVM to BU: a readout unit joined or left.
    ReadoutState = 16,
    /// A new EVM to RU and BU: asks for the events that they hold.
    Recover = 17,
    /// BU to a new EVM: events assigned to it and not released yet.
    Unreleased = 18,
    /// BU to EVM: the verdict about a source's synchrony changed.
    Synchrony = 19,
    /// EVM to RU and BU: no further event follows; the units close everything that is open.
    Finish = 20,
    /// RU and BU to EVM: closed, all reports are sent. EVM to RU and BU: the EVM knows everything, the units may leave.
    Finished = 21,
    /// RU and BU to EVM: cumulative counters; also the heartbeat.
    Report = 22,
    /// BU to EVM: the configured policy requests the end of the run.
    StopRequest = 23,
    /// EVM to RU, to be kept for a successor, and RU to a new EVM: the outcome of all events below a key.
    Ended = 24,
    /// EVM to RU and BU: a lumisection begins. RU and BU to a new EVM: it had begun.
    Lumisection = 25,
    /// EVM to RU and BU: every event of a lumisection has ended. RU and BU to a new EVM: this was reported before.
    LumisectionEnd = 26,
    /// EVM to RU: a source is masked, or takes part again. RU to a new EVM: this was reported before.
    Mask = 27,
    /// RU to EVM: whether it waits for none of its sources, so that the EVM should report events held by others at
    /// once.
    Follows = 28,
    /// EVM to RU and BU: a parameter has another value from now on. RU to a new EVM: this was reported before.
    Set = 29,
    /// BU to EVM: readout units whose fragments are not in the records of events, ahead of the report of these events'
    /// endings.
    Lacking = 30,
}

/// The header of every message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind of the body.
    pub kind: Kind,
    /// Length of the body, in bytes, payloads included.
    pub body: u32,
    /// The run that the message belongs to; 0 before the first.
    pub run: RunNumber,
    /// The epoch of the event manager that the sender obeys (or is).
    pub epoch: Epoch,
    /// The sending node.
    pub sender: NodeId,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
}

impl Header {
    /// The header's 32 bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = self.sender.role as u8;
        bytes[6..8].copy_from_slice(&self.sender.index.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.run.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`FrameError::Magic`] if the bytes are something else, [`FrameError::Meaning`] for an unknown kind or role.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let mut reader = Reader(bytes);
        if reader.bytes::<4>()? != MAGIC {
            return Err(FrameError::Magic);
        }
        let kind = Kind::from_u8(reader.u8()?).ok_or(FrameError::Meaning)?;
        let role = Role::from_u8(reader.u8()?).ok_or(FrameError::Meaning)?;
        let index = reader.u16()?;
        let body = reader.u32()?;
        let run = RunNumber(reader.u32()?);
        let epoch = Epoch(reader.u32()?);
        reader.u32()?;
        let incarnation = Incarnation(reader.u64()?);
        Ok(Self { kind, body, run, epoch, sender: NodeId { role, index }, incarnation })
    }
}

// Super-fragments on the wire: a head that describes many, then their payloads.
//
// ```text
// | header 32 B | u32 super-fragments | u32 bytes of the tables |
// | for each super-fragment: entry 32 B, then its fragments' entries of 40 B |
// | payload of the first fragment of each super-fragment | of the second of each | ...
// ```
// The payloads are not copied: the sender gathers them from its pool behind the head, and the receiver cuts them from
// the received bytes. They are sent in the order that is cheap to gather: one source's data of several events are
// adjacent in the sender's pool, and are sent as one piece, including the headers between the fragments. Each
// fragment's entry therefore states where its payload begins, never before the end of the previous one; the bytes in
// between have no meaning.

/// Bytes of a super-fragment's entry.
pub const SUPER_FRAGMENT_ENTRY_BYTES: usize = 32;
/// Bytes of a fragment's entry.
pub const FRAGMENT_ENTRY_BYTES: usize = 40;

/// Properties of a fragment, as bits. Run files contain the same bits.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FragmentFlags(pub u32);

impl FragmentFlags {
    /// The checksum was computed and is right.
    pub const CRC_CHECKED: Self = Self(1 << 0);
    /// The checksum was computed and is wrong.
    pub const CRC_ERROR: Self = Self(1 << 1);
    /// Header or trailer do not conform to the format.
    pub const MALFORMED: Self = Self(1 << 2);
    /// The fragment has another source id than its connection.
    pub const WRONG_SOURCE: Self = Self(1 << 3);
    /// The length in the trailer differs from the received length.
    pub const LENGTH_MISMATCH: Self = Self(1 << 4);
    /// The bunch crossing differs from the event's others.
    pub const BUNCH_CROSSING_MISMATCH: Self = Self(1 << 5);
    /// The source is displaced relative to the reference (synchrony).
    pub const DISPLACED: Self = Self(1 << 6);
    /// The front end reported an error in its data.
    pub const STATUS_ERROR: Self = Self(1 << 7);
    /// Frames of the event, which make up the fragment, are missing in it.
    pub const FRAMES_MISSING: Self = Self(1 << 8);
    /// The field `bunch_crossing` is valid.
    pub const HAS_BUNCH_CROSSING: Self = Self(1 << 16);
    /// The field `time` is valid.
    pub const HAS_TIME: Self = Self(1 << 17);

    /// The front end reported that it was busy.
    pub const BUSY: Self = Self(1 << 18);

    /// No fragment: the source is missing, and the field `bunch_crossing` contains the cause's number.
    pub const MISSING: Self = Self(1 << 31);

    /// Texts about the fragment's content and its front end, for people.
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

    /// The indexes in [`FragmentFlags::DOUBTS`] of the set flags.
    pub fn doubts(self) -> impl Iterator<Item = usize> {
        (0..Self::DOUBTS.len()).filter(move |&doubt| self.contains(Self::DOUBTS[doubt].0))
    }
}

/// A fragment's description.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FragmentMeta {
    /// Its source.
    pub source: SourceId,
    /// Its payload's length in bytes.
    pub length: u32,
    /// Its properties.
    pub flags: FragmentFlags,
    /// Bunch crossing, if the flags say so.
    pub bunch_crossing: u16,
    /// Trigger or event type from the source; 0 if there is none.
    pub trigger_type: u16,
    /// The source's own event counter, before unwrapping.
    pub raw_id: u64,
    /// The source's own time stamp in its own ticks, if the flags say so.
    pub time: u64,
}

impl FragmentMeta {
    /// The entry of a required source without a fragment in this event, with the cause.
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

    /// The cause if the source is missing.
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
    /// Offset of its payload, in bytes from the end of the tables.
    pub offset: u32,
}

impl FragmentEntry {
    /// All at once, since there are many: field by field, the vector would grow for each.
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
    /// The index in the builder's table, from the request.
    pub slot: u32,
    /// The attempt, from the request.
    pub attempt: Attempt,
    /// Number of fragments that follow.
    pub fragments: u16,
    /// Bytes of their payloads.
    pub bytes: u32,
    /// The cause if the event is not held here.
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
    /// Offset of the prefix.
    prefix: usize,
    super_fragments: u32,
}

impl<'a> SuperFragmentsEncoder<'a> {
    /// Bytes of the prefix in front of the tables.
    pub const PREFIX: usize = 8;

    /// Length of the head for these numbers of super-fragments and of fragments in all.
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
    /// Maximum length of the tables, in bytes.
    pub const MAX_TABLES: usize = 16 * MAX_CONTROL_BODY;

    /// Returns the length of the tables, from the first 8 bytes of the body.
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
    /// [`FrameError::Short`] if the tables are incomplete, [`FrameError::Long`] if bytes are left over.
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

    /// The next super-fragment; `None` at the end. Its fragments must have been read before the next call.
    ///
    /// # Errors
    /// If the tables end too early or contain invalid numbers.
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

    /// The next fragment of the super-fragment; `None` after its last.
    ///
    /// # Errors
    /// If the tables end too early.
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

#[cfg(test)]
mod tests {
    //! Round trips of every message, and no bytes make a reader panic.

    use proptest::prelude::*;

    use super::*;
    use crate::frame::FrameError;
    use ropewalk_terms::{
        AcknowledgementLevel, Attempt, ByCause, Cause, Ending, Epoch, EventKey, Incarnation, NodeId, Outcome,
        Parameter, RunNumber, SourceId, Verdict,
    };

    fn key() -> impl Strategy<Value = EventKey> {
        any::<u64>().prop_map(EventKey::from_bits)
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        any::<u8>().prop_filter_map("a number with meaning", Outcome::from_u8)
    }

    fn ending() -> impl Strategy<Value = Ending> {
        let verdict = (0..4_u8).prop_filter_map("a number with meaning", Verdict::from_u8);
        (outcome(), verdict).prop_map(|(outcome, verdict)| Ending { outcome, verdict })
    }

    fn batch<T: std::fmt::Debug + Clone>(entry: impl Strategy<Value = T>) -> impl Strategy<Value = Batch<T>> {
        proptest::collection::vec(entry, 0..=BATCH).prop_map(|entries| entries.into_iter().collect())
    }

    /// Accounts of how events ended, and other short messages.
    fn of_numbers(below: EventKey, numbers: [u64; 6]) -> impl Strategy<Value = Message> {
        let [built, incomplete_emitted, late, unselected, rejected, quarantined] = numbers;
        let mut dropped = ByCause::default();
        dropped.set(Cause::Late, late);
        let ended = Ended { below, built, incomplete_emitted, dropped, unselected, rejected, quarantined };
        let before = Ended { built: late, ..ended };
        prop_oneof![
            Just(Message::Set(Setting { parameter: Parameter::Prescale, of: late as u16, value: late })),
            Just(Message::Ended(ended)),
            Just(Message::LumisectionEnd(LumisectionEnd { number: late as u32, before, ended })),
            Just(Message::Follows(late % 2 == 0)),
            Just(Message::Mask(Mask { source: SourceId(late as u32), is_masked: late % 2 == 0 })),
        ]
    }

    fn message() -> impl Strategy<Value = Message> {
        let announced = (key(), any::<(u32, u16, bool)>())
            .prop_map(|(key, (bytes, fragments, triggered))| AnnounceEntry { key, bytes, fragments, triggered });
        let assigned = (key(), any::<(u32, u16)>()).prop_map(|(key, (bytes, attempt))| AssignEntry {
            key,
            bytes,
            attempt: Attempt(attempt),
        });
        let requested = (key(), any::<(u32, u16)>()).prop_map(|(key, (slot, attempt))| RequestEntry {
            key,
            slot,
            attempt: Attempt(attempt),
        });
        let acknowledged = (key(), any::<u16>(), ending()).prop_map(|(key, attempt, ending)| AcknowledgeEntry {
            key,
            attempt: Attempt(attempt),
            ending,
        });
        let lacking = (key(), any::<(u16, u16)>()).prop_map(|(key, (attempt, readout))| LackingEntry {
            key,
            attempt: Attempt(attempt),
            readout,
        });
        let released =
            (key(), any::<u32>(), outcome()).prop_map(|(first, count, outcome)| ReleaseEntry { first, count, outcome });
        let unreleased = (key(), any::<u16>(), proptest::option::of(ending()))
            .prop_map(|(key, attempt, ending)| UnreleasedEntry { key, attempt: Attempt(attempt), ending });
        let reported = any::<(Option<u32>, u16, u64)>().prop_map(|(source, what, value)| ReportEntry {
            source: source.map(SourceId),
            what,
            value,
        });
        prop_oneof![
            any::<u64>().prop_map(|configuration| Message::Hello(Hello::new("ru0", configuration))),
            Just(Message::Welcome),
            Just(Message::Refuse(RefuseReason::OldEpoch)),
            Just(Message::Refuse(RefuseReason::RunOver)),
            Just(Message::Refuse(RefuseReason::Taken)),
            any::<u64>().prop_map(|known| Message::Refuse(RefuseReason::LateIncarnation(Incarnation(known)))),
            (key(), key()).prop_map(|(first, origin)| Message::Start(Start { first, origin })),
            key().prop_map(Message::Highest),
            key().prop_map(Message::StopAt),
            key().prop_map(|first| Message::Resync(Resync { first })),
            (key(), batch(announced)).prop_map(|(settled, entries)| Message::Announce(Announce { settled, entries })),
            any::<(u64, u64)>().prop_map(|(events, bytes)| Message::Credit(Credit { events, bytes })),
            batch(assigned).prop_map(|entries| Message::Assign(Assign { entries })),
            batch(requested).prop_map(|entries| Message::Request(Request { entries })),
            batch(acknowledged).prop_map(|entries| {
                Message::Acknowledge(Acknowledge { level: AcknowledgementLevel::Synced, entries })
            }),
            batch(lacking).prop_map(|entries| Message::Lacking(Lacking { entries })),
            batch(released).prop_map(|entries| Message::Release(Release { entries })),
            any::<(u16, bool)>()
                .prop_map(|(readout, present)| Message::ReadoutState(ReadoutState { readout, present })),
            (batch(unreleased), any::<bool>())
                .prop_map(|(entries, more)| Message::Unreleased(Unreleased { entries, more })),
            (any::<u32>(), 0..4_u8, any::<i16>(), key()).prop_map(|(source, verdict, offset, since)| {
                Message::Synchrony(SynchronyState { source: SourceId(source), verdict, offset, since })
            }),
            Just(Message::StopRequest(Cause::SynchronyLost)),
            (key(), any::<[u64; 6]>()).prop_flat_map(|(below, numbers)| of_numbers(below, numbers)),
            (any::<u32>(), key()).prop_map(|(number, first)| Message::Lumisection(Lumisection { number, first })),
            any::<u64>().prop_map(|in_flight| Message::Finished(Finished { in_flight })),
            (batch(reported), any::<bool>()).prop_map(|(entries, last)| Message::Report(Report { entries, last })),
        ]
    }

    proptest! {
        #[test]
        fn messages_go_there_and_back(message in message()) {
            let mut body = Vec::new();
            message.encode(&mut body);
            prop_assert!(body.len() <= MAX_CONTROL_BODY);
            prop_assert_eq!(Message::decode(message.kind(), &body), Ok(message));
        }

        #[test]
        fn cut_messages_are_refused(message in message(), cut in 1..64_usize) {
            let mut body = Vec::new();
            message.encode(&mut body);
            prop_assume!(cut <= body.len());
            body.truncate(body.len() - cut);
            prop_assert!(Message::decode(message.kind(), &body).is_err());
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512), kind in 0..Kind::ALL.len()) {
            let _ = Message::decode(Kind::ALL[kind], &bytes);
            if let Some(header) = bytes.first_chunk() {
                let _ = Header::decode(header);
            }
            if let Ok(mut view) = SuperFragmentsView::new(&bytes) {
                while let Ok(Some(_)) = view.next_super_fragment() {
                    while let Ok(Some(_)) = view.next_fragment() {}
                }
            }
        }
    }

    #[test]
    fn headers_go_there_and_back() {
        for &kind in Kind::ALL {
            let header = Header {
                kind,
                body: 77,
                run: RunNumber(3),
                epoch: Epoch(2),
                sender: NodeId::builder(7),
                incarnation: Incarnation(1 << 60),
            };
            let bytes = header.to_bytes();
            assert_eq!(Header::decode(&bytes), Ok(header));
            let mut wrong = bytes;
            wrong[0] = b'X';
            assert_eq!(Header::decode(&wrong), Err(FrameError::Magic));
        }
    }

    #[test]
    fn super_fragments_go_there_and_back() {
        let fragment = |source, length, offset| {
            let flags = FragmentFlags::HAS_BUNCH_CROSSING;
            let (source, bunch_crossing, trigger_type) = (SourceId(source), 3000, 1);
            let meta = FragmentMeta { source, length, flags, bunch_crossing, trigger_type, raw_id: 17, time: 1 << 60 };
            FragmentEntry { meta, offset }
        };
        let held = SuperFragmentEntry {
            key: EventKey::new(1, 17),
            slot: 5,
            attempt: Attempt(2),
            fragments: 2,
            bytes: 300,
            not_held: None,
        };
        let absent = SuperFragmentEntry {
            key: EventKey::new(1, 18),
            fragments: 0,
            bytes: 0,
            not_held: Some(Cause::NotHeld),
            ..held
        };
        let mut head = Vec::new();
        let mut encoder = SuperFragmentsEncoder::new(&mut head);
        encoder.add(held, [fragment(1, 100, 0), fragment(2, 200, 116)]);
        encoder.add(absent, []);
        encoder.finish();
        assert_eq!(head.len(), SuperFragmentsEncoder::head_bytes(2, 2));
        assert_eq!(head.len(), 8 + 2 * SUPER_FRAGMENT_ENTRY_BYTES + 2 * FRAGMENT_ENTRY_BYTES);
        let prefix = *head.first_chunk().expect("the head is longer than its prefix");
        assert_eq!(SuperFragmentsView::table_bytes(prefix), Ok(head.len() - 8));
        let mut view = SuperFragmentsView::new(&head).expect("a well-formed head");
        assert_eq!(view.next_super_fragment(), Ok(Some(held)));
        assert_eq!(view.next_fragment(), Ok(Some(fragment(1, 100, 0))));
        assert_eq!(view.next_fragment(), Ok(Some(fragment(2, 200, 116))));
        assert_eq!(view.next_fragment(), Ok(None));
        assert_eq!(view.next_super_fragment(), Ok(Some(absent)));
        assert_eq!(view.next_super_fragment(), Ok(None));
    }
}
