//! The bodies of the control messages, as owned values.

use super::{Batch, Ended, Kind, Lumisection, LumisectionEnd, PROTOCOL_VERSION, Report, ReportEntry};
use crate::frame::{FrameError, NAME_BYTES, Reader, Writer, padded_name};
use core::time::Duration;
use ropewalk_terms::{
    AcknowledgementLevel, Attempt, Cause, Ending, EventKey, Incarnation, Outcome, Parameter, SourceId, Verdict,
};

/// First message on a connection, from the side that opens it. The header names the node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the sender.
    pub version: u16,
    /// Fingerprint of the configuration; nodes of one run have the same.
    pub configuration: u64,
    /// The node's configured name, padded with zeros.
    pub name: [u8; NAME_BYTES],
}

impl Hello {
    /// Makes a hello in this version; a name longer than 32 bytes is truncated.
    pub fn new(name: &str, configuration: u64) -> Self {
        Self { version: PROTOCOL_VERSION, configuration, name: padded_name(name) }
    }
}

/// Reason why a hello is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RefuseReason {
    /// The versions differ.
    Version,
    /// The configurations differ.
    Configuration,
    /// No such node is configured, or it does not belong on this connection.
    UnknownNode,
    /// A later incarnation of the same node is connected, or was a moment ago.
    OldIncarnation,
    /// A later event manager is obeyed.
    OldEpoch,
    /// This event manager is not the active one.
    StandBy,
    /// A seemingly later incarnation of the same node was connected before, and is gone. The clock of its successor may
    /// have been set back: a node that was never welcomed takes a higher incarnation and sends its hello again.
    LateIncarnation(Incarnation),
    /// The run of the node, as stated in its header, has ended and is accounted for.
    RunOver,
    /// Another incarnation of the same node is connected, and responds.
    Taken,
}

impl RefuseReason {
    fn encode(self, to: &mut Writer<'_>) {
        to.u8(match self {
            Self::Version => 1,
            Self::Configuration => 2,
            Self::UnknownNode => 3,
            Self::OldIncarnation => 4,
            Self::OldEpoch => 5,
            Self::StandBy => 6,
            Self::LateIncarnation(_) => 7,
            Self::RunOver => 8,
            Self::Taken => 9,
        });
        if let Self::LateIncarnation(known) = self {
            to.u64(known.0);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(match from.u8()? {
            1 => Self::Version,
            2 => Self::Configuration,
            3 => Self::UnknownNode,
            4 => Self::OldIncarnation,
            5 => Self::OldEpoch,
            6 => Self::StandBy,
            7 => Self::LateIncarnation(Incarnation(from.u64()?)),
            8 => Self::RunOver,
            9 => Self::Taken,
            _ => return Err(FrameError::Meaning),
        })
    }
}

/// EVM to RU and BU: the run in the header begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// The first key in which the receiver takes part: fragments of earlier ones are stale. A readout unit that
    /// restarts in mid-run begins later than the others.
    pub first: EventKey,
    /// The first key of the run, to which the first numbers of the sources belong.
    pub origin: EventKey,
}

impl Start {
    /// The run begins with this key for all units.
    pub const fn of_run(first: EventKey) -> Self {
        Self { first, origin: first }
    }
}

/// EVM to RU: the trigger source declared a resynchronisation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Resync {
    /// The first key of the new resync count.
    pub first: EventKey,
}

/// One event that a readout unit holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AnnounceEntry {
    /// The event.
    pub key: EventKey,
    /// Bytes of its fragments here.
    pub bytes: u32,
    /// Number of its fragments here.
    pub fragments: u16,
    /// Whether the trigger source is among them: this announcement opens the event if a trigger source is configured.
    pub triggered: bool,
}

/// RU to EVM: events held, in key order, each settled (complete, or with no further fragments expected).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announce {
    /// Everything up to and including this key is settled here: announced, or without any fragment.
    pub settled: EventKey,
    /// The events.
    pub entries: Batch<AnnounceEntry>,
}

/// BU to EVM: the total that may have been assigned since this connection began. Absolute, so that neither loss nor
/// repetition of the message leaks credit. Counted again on a new connection, because credit for an assignment that was
/// lost with the old one would otherwise never be returned.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// Total number of granted events.
    pub events: u64,
    /// Total number of granted bytes.
    pub bytes: u64,
}

/// One assigned event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AssignEntry {
    /// The event.
    pub key: EventKey,
    /// Bytes that the readout units announced for it.
    pub bytes: u32,
    /// Number of assignments, including this one.
    pub attempt: Attempt,
}

/// EVM to BU: builds these events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assign {
    /// The events.
    pub entries: Batch<AssignEntry>,
}

/// One requested super-fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RequestEntry {
    /// The event.
    pub key: EventKey,
    /// The index in the builder's table, returned with the answer.
    pub slot: u32,
    /// The attempt, returned with the answer.
    pub attempt: Attempt,
}

/// BU to RU: sends these super-fragments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The requested super-fragments.
    pub entries: Batch<RequestEntry>,
}

/// One event that reached the acknowledgement level.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AcknowledgeEntry {
    /// The event.
    pub key: EventKey,
    /// The acknowledged assignment.
    pub attempt: Attempt,
    /// The way it ended.
    pub ending: Ending,
}

/// BU to EVM: these events may be released.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acknowledge {
    /// The builder's guarantee.
    pub level: AcknowledgementLevel,
    /// The events.
    pub entries: Batch<AcknowledgeEntry>,
}

/// An event that a builder unit built without a readout unit's data.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LackingEntry {
    /// The event.
    pub key: EventKey,
    /// The assignment that will be acknowledged.
    pub attempt: Attempt,
    /// The readout unit's index.
    pub readout: u16,
}

/// BU to EVM, ahead of the acknowledgement of these events or of their report to a successor of the EVM: the readout
/// units did not answer in time, or did not hold anything. Data that such a unit may still hold are in no record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lacking {
    /// One for each event and readout unit.
    pub entries: Batch<LackingEntry>,
}

/// Consecutive keys with the same outcome.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReleaseEntry {
    /// The first key.
    pub first: EventKey,
    /// Number of keys.
    pub count: u32,
    /// The outcome.
    pub outcome: Outcome,
}

/// EVM to RU: the fragments of these events are no longer needed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Release {
    /// Ranges of keys.
    pub entries: Batch<ReleaseEntry>,
}

/// EVM to BU: whether a readout unit takes part. Requests to one that left are not answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReadoutState {
    /// The readout unit's index.
    pub readout: u16,
    /// Whether it is present.
    pub present: bool,
}

/// An event of a builder that a new event manager has to learn about.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnreleasedEntry {
    /// The event.
    pub key: EventKey,
    /// The attempt in which it was assigned here.
    pub attempt: Attempt,
    /// The way it ended; `None` while it is in work.
    pub ending: Option<Ending>,
}

/// BU to a new EVM: the events assigned here, and those completed recently that may not have been released.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unreleased {
    /// The events.
    pub entries: Batch<UnreleasedEntry>,
    /// Whether more of these messages follow.
    pub more: bool,
}

/// BU to EVM: the synchrony of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SynchronyState {
    /// The source.
    pub source: SourceId,
    /// 0 unknown, 1 in sync, 2 offset, 3 lost.
    pub verdict: u8,
    /// Number of events by which the source is displaced, if the verdict is offset; positive: early. 1 if the verdict
    /// is unknown because the source never matched the reference. Otherwise 0.
    pub offset: i16,
    /// The first displaced event.
    pub since: EventKey,
}

/// EVM to RU: whether a source takes part. RU to a new EVM: a source that does not.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mask {
    /// The source. Readout units without it ignore the message.
    pub source: SourceId,
    /// Whether the source is masked: from an event on that its readout unit chooses. Otherwise it takes part again,
    /// from the first fragment on that continues the run's numbers.
    pub is_masked: bool,
}

/// EVM to RU and BU: a parameter has another value from now on. RU to a new EVM: the value known to the RU.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The parameter.
    pub parameter: Parameter,
    /// The stream or flow of the parameter, if it belongs to one; otherwise 0.
    pub of: u16,
    /// The value, in the parameter's unit.
    pub value: u64,
}

impl Setting {
    /// The value of a time parameter, at least a millisecond.
    pub const fn time(&self) -> Duration {
        const LEAST: u64 = 1_000_000;
        Duration::from_nanos(if self.value < LEAST { LEAST } else { self.value })
    }
}

/// RU and BU to EVM: closed; everything was reported.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    /// RU: fragments still held, BU: events still in work. 0 after an orderly end.
    pub in_flight: u64,
}

/// A control message. Super-fragments are not included: their payloads are not copied.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "batches live in the message so that none needs an allocation")]
#[expect(missing_docs, reason = "each variant is documented at the type it holds and at `Kind`")]
pub enum Message {
    Hello(Hello),
    Welcome,
    Refuse(RefuseReason),
    Start(Start),
    QueryHighest,
    Highest(EventKey),
    StopAt(EventKey),
    Resync(Resync),
    Announce(Announce),
    Credit(Credit),
    Assign(Assign),
    Request(Request),
    Acknowledge(Acknowledge),
    Release(Release),
    ReadoutState(ReadoutState),
    Recover,
    Unreleased(Unreleased),
    Synchrony(SynchronyState),
    Finish,
    Finished(Finished),
    Report(Report),
    StopRequest(Cause),
    Ended(Ended),
    Lumisection(Lumisection),
    LumisectionEnd(LumisectionEnd),
    Mask(Mask),
    Follows(bool),
    Set(Setting),
    Lacking(Lacking),
}

impl Message {
    /// The kind in the header.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Welcome => Kind::Welcome,
            Self::Refuse(_) => Kind::Refuse,
            Self::Start(_) => Kind::Start,
            Self::QueryHighest => Kind::QueryHighest,
            Self::Highest(_) => Kind::Highest,
            Self::StopAt(_) => Kind::StopAt,
            Self::Resync(_) => Kind::Resync,
            Self::Announce(_) => Kind::Announce,
            Self::Credit(_) => Kind::Credit,
            Self::Assign(_) => Kind::Assign,
            Self::Request(_) => Kind::Request,
            Self::Acknowledge(_) => Kind::Acknowledge,
            Self::Release(_) => Kind::Release,
            Self::ReadoutState(_) => Kind::ReadoutState,
            Self::Recover => Kind::Recover,
            Self::Unreleased(_) => Kind::Unreleased,
            Self::Synchrony(_) => Kind::Synchrony,
            Self::Finish => Kind::Finish,
            Self::Finished(_) => Kind::Finished,
            Self::Report(_) => Kind::Report,
            Self::StopRequest(_) => Kind::StopRequest,
            Self::Ended(_) => Kind::Ended,
            Self::Lumisection(_) => Kind::Lumisection,
            Self::LumisectionEnd(_) => Kind::LumisectionEnd,
            Self::Mask(_) => Kind::Mask,
            Self::Follows(_) => Kind::Follows,
            Self::Set(_) => Kind::Set,
            Self::Lacking(_) => Kind::Lacking,
        }
    }

    /// Appends the body's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut to = Writer(out);
        match self {
            Self::Welcome | Self::QueryHighest | Self::Recover | Self::Finish => {}
            Self::Hello(hello) => {
                to.u16(hello.version);
                to.u64(hello.configuration);
                to.bytes(&hello.name);
            }
            Self::Refuse(reason) => reason.encode(&mut to),
            Self::Start(start) => {
                to.key(start.first);
                to.key(start.origin);
            }
            Self::Resync(Resync { first: key }) => to.key(*key),
            Self::Highest(key) | Self::StopAt(key) => to.key(*key),
            Self::Announce(body) => body.encode(&mut to),
            Self::Credit(credit) => {
                to.u64(credit.events);
                to.u64(credit.bytes);
            }
            Self::Assign(body) => list(&mut to, &body.entries, AssignEntry::encode),
            Self::Request(body) => list(&mut to, &body.entries, RequestEntry::encode),
            Self::Acknowledge(body) => {
                to.u8(body.level as u8);
                list(&mut to, &body.entries, AcknowledgeEntry::encode);
            }
            Self::Lacking(body) => list(&mut to, &body.entries, LackingEntry::encode),
            Self::Release(body) => list(&mut to, &body.entries, ReleaseEntry::encode),
            Self::ReadoutState(body) => {
                to.u16(body.readout);
                to.u8(body.present.into());
            }
            Self::Unreleased(body) => {
                to.u8(body.more.into());
                list(&mut to, &body.entries, UnreleasedEntry::encode);
            }
            Self::Synchrony(body) => body.encode(&mut to),
            Self::Finished(body) => to.u64(body.in_flight),
            Self::Report(body) => {
                to.u8(body.last.into());
                list(&mut to, &body.entries, ReportEntry::encode);
            }
            Self::StopRequest(cause) => to.u8(*cause as u8),
            Self::Ended(body) => body.encode(&mut to),
            Self::Lumisection(body) => body.encode(&mut to),
            Self::LumisectionEnd(body) => body.encode(&mut to),
            Self::Mask(body) => {
                to.u32(body.source.0);
                to.u8(body.is_masked.into());
            }
            Self::Follows(follows) => to.u8((*follows).into()),
            Self::Set(body) => {
                to.u8(body.parameter as u8);
                to.u16(body.of);
                to.u64(body.value);
            }
        }
    }

    /// Decodes the body of a message of this kind.
    ///
    /// # Errors
    /// If the body is too short, too long, or contains invalid numbers. Super-fragments are read by
    /// [`SuperFragmentsView`](super::SuperFragmentsView) and are an error here.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Self, FrameError> {
        let mut from = Reader(body);
        let message = match kind {
            Kind::Hello => {
                let (version, configuration) = (from.u16()?, from.u64()?);
                Self::Hello(Hello { version, configuration, name: from.bytes()? })
            }
            Kind::Welcome => Self::Welcome,
            Kind::Refuse => Self::Refuse(RefuseReason::decode(&mut from)?),
            Kind::Start => Self::Start(Start { first: from.key()?, origin: from.key()? }),
            Kind::QueryHighest => Self::QueryHighest,
            Kind::Highest => Self::Highest(from.key()?),
            Kind::StopAt => Self::StopAt(from.key()?),
            Kind::Resync => Self::Resync(Resync { first: from.key()? }),
            Kind::Announce => Self::Announce(Announce::decode(&mut from)?),
            Kind::Credit => Self::Credit(Credit { events: from.u64()?, bytes: from.u64()? }),
            Kind::Assign => Self::Assign(Assign { entries: read(&mut from, AssignEntry::decode)? }),
            Kind::Request => Self::Request(Request { entries: read(&mut from, RequestEntry::decode)? }),
            Kind::Acknowledge => {
                let level = AcknowledgementLevel::from_u8(from.u8()?).ok_or(FrameError::Meaning)?;
                Self::Acknowledge(Acknowledge { level, entries: read(&mut from, AcknowledgeEntry::decode)? })
            }
            Kind::Release => Self::Release(Release { entries: read(&mut from, ReleaseEntry::decode)? }),
            Kind::ReadoutState => Self::ReadoutState(ReadoutState { readout: from.u16()?, present: flag(&mut from)? }),
            Kind::Recover => Self::Recover,
            Kind::Unreleased => {
                let more = flag(&mut from)?;
                Self::Unreleased(Unreleased { entries: read(&mut from, UnreleasedEntry::decode)?, more })
            }
            Kind::Synchrony => Self::Synchrony(SynchronyState::decode(&mut from)?),
            Kind::Finish => Self::Finish,
            Kind::Finished => Self::Finished(Finished { in_flight: from.u64()? }),
            Kind::Report => {
                let last = flag(&mut from)?;
                Self::Report(Report { entries: read(&mut from, ReportEntry::decode)?, last })
            }
            Kind::StopRequest => Self::StopRequest(Cause::from_u8(from.u8()?).ok_or(FrameError::Meaning)?),
            Kind::Ended => Self::Ended(Ended::decode(&mut from)?),
            Kind::Lumisection => Self::Lumisection(Lumisection::decode(&mut from)?),
            Kind::LumisectionEnd => Self::LumisectionEnd(LumisectionEnd::decode(&mut from)?),
            Kind::Mask => Self::Mask(Mask { source: SourceId(from.u32()?), is_masked: flag(&mut from)? }),
            Kind::Follows => Self::Follows(flag(&mut from)?),
            Kind::Set => {
                let parameter = Parameter::from_u8(from.u8()?).ok_or(FrameError::Meaning)?;
                Self::Set(Setting { parameter, of: from.u16()?, value: from.u64()? })
            }
            Kind::Lacking => Self::Lacking(Lacking { entries: read(&mut from, LackingEntry::decode)? }),
            Kind::SuperFragments => return Err(FrameError::Meaning),
        };
        from.end()?;
        Ok(message)
    }
}

pub(super) fn flag(from: &mut Reader<'_>) -> Result<bool, FrameError> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FrameError::Meaning),
    }
}

fn outcome(from: &mut Reader<'_>) -> Result<Outcome, FrameError> {
    Outcome::from_u8(from.u8()?).ok_or(FrameError::Meaning)
}

fn ending(ending: Ending, to: &mut Writer<'_>) {
    to.u8(ending.outcome.to_u8());
    to.u8(ending.verdict as u8);
}

fn read_ending(from: &mut Reader<'_>) -> Result<Ending, FrameError> {
    let outcome = outcome(from)?;
    Ok(Ending { outcome, verdict: Verdict::from_u8(from.u8()?).ok_or(FrameError::Meaning)? })
}

fn list<T: Copy>(to: &mut Writer<'_>, entries: &Batch<T>, encode: impl Fn(T, &mut Writer<'_>)) {
    to.u16(entries.len() as u16);
    for &entry in entries {
        encode(entry, to);
    }
}

fn read<T>(
    from: &mut Reader<'_>,
    decode: impl Fn(&mut Reader<'_>) -> Result<T, FrameError>,
) -> Result<Batch<T>, FrameError> {
    let mut entries = Batch::new();
    for _ in 0..from.u16()? {
        entries.try_push(decode(from)?).map_err(|_| FrameError::Long)?;
    }
    Ok(entries)
}

impl Announce {
    fn encode(&self, to: &mut Writer<'_>) {
        to.key(self.settled);
        list(to, &self.entries, |entry, to| {
            to.key(entry.key);
            to.u32(entry.bytes);
            to.u16(entry.fragments);
            to.u8(entry.triggered.into());
        });
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let settled = from.key()?;
        let entries = read(from, |from| {
            let (key, bytes, fragments) = (from.key()?, from.u32()?, from.u16()?);
            Ok(AnnounceEntry { key, bytes, fragments, triggered: flag(from)? })
        })?;
        Ok(Self { settled, entries })
    }
}

impl AssignEntry {
    fn encode(self, to: &mut Writer<'_>) {
        to.key(self.key);
        to.u32(self.bytes);
        to.u16(self.attempt.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { key: from.key()?, bytes: from.u32()?, attempt: Attempt(from.u16()?) })
    }
}

impl RequestEntry {
    fn encode(self, to: &mut Writer<'_>) {
        to.key(self.key);
        to.u32(self.slot);
        to.u16(self.attempt.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { key: from.key()?, slot: from.u32()?, attempt: Attempt(from.u16()?) })
    }
}

impl AcknowledgeEntry {
    fn encode(self, to: &mut Writer<'_>) {
        to.key(self.key);
        to.u16(self.attempt.0);
        ending(self.ending, to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { key: from.key()?, attempt: Attempt(from.u16()?), ending: read_ending(from)? })
    }
}

impl LackingEntry {
    fn encode(self, to: &mut Writer<'_>) {
        to.key(self.key);
        to.u16(self.attempt.0);
        to.u16(self.readout);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { key: from.key()?, attempt: Attempt(from.u16()?), readout: from.u16()? })
    }
}

impl ReleaseEntry {
    fn encode(self, to: &mut Writer<'_>) {
        to.key(self.first);
        to.u32(self.count);
        to.u8(self.outcome.to_u8());
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { first: from.key()?, count: from.u32()?, outcome: outcome(from)? })
    }
}

impl UnreleasedEntry {
    fn encode(self, to: &mut Writer<'_>) {
        to.key(self.key);
        to.u16(self.attempt.0);
        to.u8(self.ending.is_some().into());
        ending(self.ending.unwrap_or(Outcome::Complete.into()), to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (key, attempt, done) = (from.key()?, Attempt(from.u16()?), flag(from)?);
        let ending = read_ending(from)?;
        Ok(Self { key, attempt, ending: done.then_some(ending) })
    }
}

impl SynchronyState {
    /// Whether enough events were compared, and the source matches the reference at no offset.
    pub const fn has_no_relation(&self) -> bool {
        self.verdict == 0 && self.offset == 1
    }

    fn encode(&self, to: &mut Writer<'_>) {
        to.u32(self.source.0);
        to.u8(self.verdict);
        to.u16(self.offset as u16);
        to.key(self.since);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (source, verdict) = (SourceId(from.u32()?), from.u8()?);
        if verdict > 3 {
            return Err(FrameError::Meaning);
        }
        Ok(Self { source, verdict, offset: from.u16()? as i16, since: from.key()? })
    }
}
