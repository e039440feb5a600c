//! The messages between run control and front ends: their directions and layouts.
//!
//! ```text
//!   front end -> run control   Hello (first), Ready or Failed, Started, Enabled, Held, Released, Vetoed, Stopped, Status, Report
//!   run control -> front end   Welcome or Refuse (first), Configure, Start, Enable, Hold, Release, Veto, Stop, Ping
//!
//!   frame   "RWC" | kind | body length (u32)                                      8 bytes, little-endian
//!   text    length in bytes (u16) | UTF-8              list   entries (u16) | entry, entry, ...
//! ```
//! One connection serves several runs. Each command names its run and has one kind of answer, however often it is sent:
//! Configure has Ready or Failed, Start has Started, Enable has Enabled, Hold has Held, Release has Released, Veto has
//! Vetoed, Stop has Stopped, Ping has Status. Hold and Release belong to version 2: run control never sends them to a
//! front end of version 1. Data are sent over a separate connection, as generic fragments
//! ([`generic`](crate::generic)). `docs/front-end-control.md` shows the bytes.

#[cfg(test)]
mod tests;

use crate::frame::{FrameError, NAME_BYTES, Reader, Writer, frame, kinds, padded_name, unpadded_name};
use ropewalk_terms::{RunNumber, SourceId, Utc};

/// The version of these messages.
pub const CONTROL_VERSION: u16 = 2;
/// The oldest version that is accepted: without [`Command::Hold`] and [`Command::Release`]. A hello with an older one,
/// or with one beyond [`CONTROL_VERSION`], is refused.
pub const OLDEST_CONTROL_VERSION: u16 = 1;

/// Whether messages of this version are understood.
const fn is_spoken(version: u16) -> bool {
    matches!(version, OLDEST_CONTROL_VERSION..=CONTROL_VERSION)
}

/// An event number that means "unknown": no event has it.
const UNKNOWN: u64 = u64::MAX;

/// The longest body of a message, in bytes: settings are text that people write.
pub const LARGEST_BODY_BYTES: usize = 64 * 1024;

const MAGIC: [u8; 3] = *b"RWC";

kinds! {
    /// First message of a front end: its identity, and its state in a run.
    Hello = 1,
    /// The front end is accepted.
    Welcome = 2,
    /// The front end is not accepted; the connection is closed.
    Refuse = 3,
    /// The settings of the run, and the destination of the data.
    Configure = 16,
    /// The run begins.
    Start = 17,
    /// Only to the trigger source: triggers may start.
    Enable = 18,
    /// Only to the trigger source: no further trigger.
    Veto = 19,
    /// The run ends with this event.
    Stop = 20,
    /// Asks for a Status, to see that the front end is still there.
    Ping = 21,
    /// Only to the trigger source: no trigger for now, because the run is paused.
    Hold = 22,
    /// Only to the trigger source: triggers may continue.
    Release = 23,
    /// It is configured, and its data connection is established.
    Ready = 32,
    /// The front end cannot execute the command; includes the reason.
    Failed = 33,
    /// The front end takes part in the run.
    Started = 34,
    /// Triggers come from now on.
    Enabled = 35,
    /// No further trigger follows; includes the trigger counts.
    Vetoed = 36,
    /// All its data of the run have been sent.
    Stopped = 37,
    /// Its state and counters.
    Status = 38,
    /// A slow reading.
    Report = 39,
    /// No trigger comes for now.
    Held = 40,
    /// Triggers come again.
    Released = 41,
}

/// The longest body of a message, in bytes.
const fn longest(_: Kind) -> usize {
    LARGEST_BODY_BYTES
}

frame!(MAGIC, longest);

/// Maximum bytes of the name of a reading, a counter or a cause, and of a unit.
pub const LARGEST_NAME_BYTES: usize = 64;
/// Maximum bytes of a text for people, and of an address.
pub const LARGEST_TEXT_BYTES: usize = 1024;
/// Maximum bytes of the settings.
pub const LARGEST_SETTINGS_BYTES: usize = 60 * 1024;
/// Maximum number of entries of a list of named numbers.
pub const MOST_NUMBERS: usize = 32;

/// A number with its name: a counter, or the number of vetoes by a cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// At most [`LARGEST_NAME_BYTES`].
    pub name: String,
    /// The count.
    pub count: u64,
}

impl Writer<'_> {
    /// Appends a text; a longer one than allowed is truncated at a character's end.
    fn text(&mut self, text: &str, most: usize) {
        let kept = &text[..text.floor_char_boundary(most)];
        self.u16(kept.len() as u16);
        self.bytes(kept.as_bytes());
    }

    /// Appends named numbers; those beyond [`MOST_NUMBERS`] are dropped.
    fn numbers(&mut self, numbers: &[Named]) {
        let kept = &numbers[..numbers.len().min(MOST_NUMBERS)];
        self.u16(kept.len() as u16);
        for number in kept {
            self.text(&number.name, LARGEST_NAME_BYTES);
            self.u64(number.count);
        }
    }
}

impl Reader<'_> {
    fn text(&mut self, most: usize) -> Result<String, FrameError> {
        let length = usize::from(self.u16()?);
        if length > most {
            return Err(FrameError::Long);
        }
        let (text, rest) = self.0.split_at_checked(length).ok_or(FrameError::Short)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| FrameError::Meaning)
    }

    fn numbers(&mut self) -> Result<Vec<Named>, FrameError> {
        let count = usize::from(self.u16()?);
        if count > MOST_NUMBERS {
            return Err(FrameError::Long);
        }
        (0..count).map(|_| Ok(Named { name: self.text(LARGEST_NAME_BYTES)?, count: self.u64()? })).collect()
    }
}

const HELLO_MAGIC: [u8; 8] = *b"RWSOURCE";

/// The zero point of a front end's times.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum ClockKind {
    /// It has no clock.
    #[default]
    None = 0,
    /// 1970-01-01T00:00:00Z.
    Utc = 1,
    /// An own zero point.
    Own = 2,
}

/// The stage of a front end in a run. A run passes through all of them in this order, except `Triggering`, which only
/// the trigger source reaches. The trigger source may be held in between, which is not a separate stage.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Stage {
    /// In no run.
    #[default]
    Idle = 0,
    /// Configured, with an established data connection.
    Ready = 1,
    /// It takes data on each trigger.
    Started = 2,
    /// It issues triggers.
    Triggering = 3,
    /// It issues no further triggers.
    Vetoed = 4,
    /// All its data of the run have been sent.
    Stopped = 5,
}

impl Stage {
    /// The stage with this number, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Idle,
            1 => Self::Ready,
            2 => Self::Started,
            3 => Self::Triggering,
            4 => Self::Vetoed,
            5 => Self::Stopped,
            _ => return None,
        })
    }

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Ready => "ready",
            Self::Started => "started",
            Self::Triggering => "triggering",
            Self::Vetoed => "vetoed",
            Self::Stopped => "stopped",
        }
    }
}

/// First message of a front end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// [`CONTROL_VERSION`] of the sender, or [`OLDEST_CONTROL_VERSION`].
    pub version: u16,
    /// Its source id.
    pub source: SourceId,
    /// The zero point of its times.
    pub clock: ClockKind,
    /// Its stage in `run`: after a reconnection, the commands that it received before remain valid.
    pub stage: Stage,
    /// The run of the last command that it received; 0 for none.
    pub run: RunNumber,
    /// Its name, for people; padded with zeros.
    pub name: [u8; NAME_BYTES],
    /// Versions of firmware and library, for people; at most [`LARGEST_TEXT_BYTES`].
    pub versions: String,
    /// Whether it issues no trigger, because it was held and not released since. Version 1 cannot express this.
    pub is_held: bool,
}

/// The first version that knows [`Kind::Hold`] and [`Kind::Release`].
const HOLDING_VERSION: u16 = 2;

impl Hello {
    /// Makes a hello of a front end that is in no run; a longer name is truncated.
    pub fn new(source: SourceId, name: &str) -> Self {
        Self {
            version: CONTROL_VERSION,
            source,
            clock: ClockKind::default(),
            stage: Stage::Idle,
            run: RunNumber(0),
            name: padded_name(name),
            versions: String::new(),
            is_held: false,
        }
    }

    /// Whether its version is accepted.
    pub const fn is_spoken(&self) -> bool {
        is_spoken(self.version)
    }

    /// Whether its version supports holding.
    pub const fn may_be_held(&self) -> bool {
        self.version >= HOLDING_VERSION
    }

    /// The name up to its first zero; bytes that are not UTF-8 are replaced.
    pub fn name(&self) -> String {
        unpadded_name(&self.name)
    }
}

/// Reports that it cannot execute a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The run.
    pub run: RunNumber,
    /// The reason, for people; at most [`LARGEST_TEXT_BYTES`].
    pub text: String,
}

/// No trigger is issued for now; suppressed triggers count as vetoed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The run.
    pub run: RunNumber,
    /// The last event's number so far; the number before the first one if there was none.
    pub last: u64,
}

/// No further trigger follows. Counted since the start, `issued = accepted + vetoed[cause]`, where one trigger was
/// accepted for each event from the first to the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vetoed {
    /// The run.
    pub run: RunNumber,
    /// The last event's number; the number before the first one if there was none.
    pub last: u64,
    /// Number of triggers.
    pub issued: u64,
    /// Number of vetoed triggers, by cause.
    pub vetoed: Vec<Named>,
}

/// All its data of the run have been sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// The run.
    pub run: RunNumber,
    /// The number of the first event that it sent; `None` if it sent nothing.
    pub first: Option<u64>,
    /// The number of the last event that it sent.
    pub last: Option<u64>,
    /// Number of fragments that it sent.
    pub sent: u64,
}

/// State of a front end. Every counter counts from the run's start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The run.
    pub run: RunNumber,
    /// Its stage.
    pub stage: Stage,
    /// Number of fragments that it sent.
    pub sent: u64,
    /// Number of their bytes, headers included.
    pub bytes: u64,
    /// Time that it waited for its data to be taken, in nanoseconds.
    pub waited_ns: u64,
    /// Its own text; at most [`LARGEST_TEXT_BYTES`].
    pub text: String,
    /// Its own counters.
    pub counters: Vec<Named>,
}

/// A slow reading.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// Time of the reading.
    pub time: Utc,
    /// The value.
    pub value: f64,
    /// Name of the quantity, such as `hv/ch3`; at most [`LARGEST_NAME_BYTES`].
    pub name: String,
    /// Its unit; may be empty.
    pub unit: String,
}

/// A message of a front end.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "see its type and its kind")]
pub enum Word {
    Hello(Hello),
    Ready(RunNumber),
    Failed(Failed),
    Started(RunNumber),
    Enabled(RunNumber),
    Vetoed(Vetoed),
    Stopped(Stopped),
    Status(Status),
    Report(Reading),
    Held(Held),
    Released(RunNumber),
}

impl Word {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Ready(_) => Kind::Ready,
            Self::Failed(_) => Kind::Failed,
            Self::Started(_) => Kind::Started,
            Self::Enabled(_) => Kind::Enabled,
            Self::Vetoed(_) => Kind::Vetoed,
            Self::Stopped(_) => Kind::Stopped,
            Self::Status(_) => Kind::Status,
            Self::Report(_) => Kind::Report,
            Self::Held(_) => Kind::Held,
            Self::Released(_) => Kind::Released,
        }
    }

    /// Appends the message with its frame. Texts and lists beyond their maximum are truncated.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Frame::around(self.kind(), out, |to| self.encode_body(to));
    }

    fn encode_body(&self, to: &mut Writer<'_>) {
        match self {
            Self::Hello(hello) => hello.encode(to),
            Self::Ready(run) | Self::Started(run) | Self::Enabled(run) | Self::Released(run) => to.u32(run.0),
            Self::Held(Held { run, last }) => {
                to.u32(run.0);
                to.u64(*last);
            }
            Self::Failed(Failed { run, text }) => {
                to.u32(run.0);
                to.text(text, LARGEST_TEXT_BYTES);
            }
            Self::Vetoed(Vetoed { run, last, issued, vetoed }) => {
                to.u32(run.0);
                to.u64(*last);
                to.u64(*issued);
                to.numbers(vetoed);
            }
            Self::Stopped(Stopped { run, first, last, sent }) => {
                to.u32(run.0);
                [first.unwrap_or(UNKNOWN), last.unwrap_or(UNKNOWN), *sent]
                    .into_iter()
                    .for_each(|number| to.u64(number));
            }
            Self::Status(status) => status.encode(to),
            Self::Report(Reading { time, value, name, unit }) => {
                to.bytes(&time.0.to_le_bytes());
                to.bytes(&value.to_le_bytes());
                to.text(name, LARGEST_NAME_BYTES);
                to.text(unit, LARGEST_NAME_BYTES);
            }
        }
    }

    /// Decodes the body of a front end's message of this kind.
    ///
    /// # Errors
    /// If the body is not one of this kind, or a front end does not send this kind.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Self, FrameError> {
        let mut from = Reader(body);
        let word = match kind {
            // In a hello of another version only the version is used.
            Kind::Hello => return Hello::decode(from).map(Self::Hello),
            Kind::Ready => Self::Ready(from.run()?),
            Kind::Started => Self::Started(from.run()?),
            Kind::Enabled => Self::Enabled(from.run()?),
            Kind::Held => Self::Held(Held { run: from.run()?, last: from.u64()? }),
            Kind::Released => Self::Released(from.run()?),
            Kind::Failed => Self::Failed(Failed { run: from.run()?, text: from.text(LARGEST_TEXT_BYTES)? }),
            Kind::Vetoed => Self::Vetoed(Vetoed {
                run: from.run()?,
                last: from.u64()?,
                issued: from.u64()?,
                vetoed: from.numbers()?,
            }),
            Kind::Stopped => Self::Stopped(Stopped {
                run: from.run()?,
                first: from.event()?,
                last: from.event()?,
                sent: from.u64()?,
            }),
            Kind::Status => Self::Status(Status::decode(&mut from)?),
            Kind::Report => Self::Report(Reading {
                time: Utc(i64::from_le_bytes(from.bytes()?)),
                value: f64::from_le_bytes(from.bytes()?),
                name: from.text(LARGEST_NAME_BYTES)?,
                unit: from.text(LARGEST_NAME_BYTES)?,
            }),
            _ => return Err(FrameError::Meaning),
        };
        from.end()?;
        Ok(word)
    }
}

impl Hello {
    fn encode(&self, to: &mut Writer<'_>) {
        to.bytes(&HELLO_MAGIC);
        to.u16(self.version);
        to.bytes(&[self.clock as u8, self.stage as u8]);
        to.u32(self.source.0);
        to.u32(self.run.0);
        to.bytes(&self.name);
        to.text(&self.versions, LARGEST_TEXT_BYTES);
        if self.may_be_held() {
            to.u8(self.is_held.into());
        }
    }

    fn decode(mut from: Reader<'_>) -> Result<Self, FrameError> {
        if from.bytes()? != HELLO_MAGIC {
            return Err(FrameError::Magic);
        }
        let version = from.u16()?;
        if !is_spoken(version) {
            return Ok(Self { version, ..Self::new(SourceId(0), "") });
        }
        let [clock, stage] = from.bytes()?;
        let mut hello = Self {
            version,
            clock: match clock {
                0 => ClockKind::None,
                1 => ClockKind::Utc,
                2 => ClockKind::Own,
                _ => return Err(FrameError::Meaning),
            },
            stage: Stage::from_u8(stage).ok_or(FrameError::Meaning)?,
            source: SourceId(from.u32()?),
            run: from.run()?,
            name: from.bytes()?,
            versions: from.text(LARGEST_TEXT_BYTES)?,
            is_held: false,
        };
        if hello.may_be_held() {
            hello.is_held = match from.u8()? {
                0 => false,
                1 => true,
                _ => return Err(FrameError::Meaning),
            };
        }
        from.end()?;
        Ok(hello)
    }
}

impl Status {
    fn encode(&self, to: &mut Writer<'_>) {
        to.u32(self.run.0);
        to.u8(self.stage as u8);
        [self.sent, self.bytes, self.waited_ns].into_iter().for_each(|number| to.u64(number));
        to.text(&self.text, LARGEST_TEXT_BYTES);
        to.numbers(&self.counters);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            run: from.run()?,
            stage: Stage::from_u8(from.u8()?).ok_or(FrameError::Meaning)?,
            sent: from.u64()?,
            bytes: from.u64()?,
            waited_ns: from.u64()?,
            text: from.text(LARGEST_TEXT_BYTES)?,
            counters: from.numbers()?,
        })
    }
}

/// Reason why a front end is not accepted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RefuseReason {
    /// The versions differ; this is run control's.
    Version(u16),
    /// No source with this id is under run control.
    UnknownSource,
    /// Another running program is connected as this source.
    Taken,
}

/// Settings of the next run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configure {
    /// The run.
    pub run: RunNumber,
    /// Destination of the data: `host:port` of the readout unit, to which the front end opens a connection for this
    /// run; at most [`LARGEST_TEXT_BYTES`].
    pub address: String,
    /// The front end's settings as TOML; at most [`LARGEST_SETTINGS_BYTES`].
    pub settings: String,
}

/// The run begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// The run.
    pub run: RunNumber,
    /// The number of its first event.
    pub first: u64,
    /// The number of its last event, if it is already known: no trigger may follow it.
    pub last: Option<u64>,
}

/// The run ends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Stop {
    /// The run.
    pub run: RunNumber,
    /// The number of its last event; `None` if it is unknown. If it is the number before the first event's, the run had
    /// none.
    pub last: Option<u64>,
}

/// A command of run control.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "see its type and its kind")]
pub enum Command {
    /// With the version of the following messages: the one that the front end sent.
    Welcome(u16),
    Refuse(RefuseReason),
    Configure(Configure),
    Start(Start),
    Enable(RunNumber),
    Veto(RunNumber),
    Stop(Stop),
    Ping,
    Hold(RunNumber),
    Release(RunNumber),
}

impl Command {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Welcome(_) => Kind::Welcome,
            Self::Refuse(_) => Kind::Refuse,
            Self::Configure(_) => Kind::Configure,
            Self::Start(_) => Kind::Start,
            Self::Enable(_) => Kind::Enable,
            Self::Veto(_) => Kind::Veto,
            Self::Stop(_) => Kind::Stop,
            Self::Ping => Kind::Ping,
            Self::Hold(_) => Kind::Hold,
            Self::Release(_) => Kind::Release,
        }
    }

    /// Appends the message with its frame. Texts beyond their maximum are truncated.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Frame::around(self.kind(), out, |to| self.encode_body(to));
    }

    fn encode_body(&self, to: &mut Writer<'_>) {
        match self {
            Self::Welcome(version) => to.u16(*version),
            Self::Refuse(reason) => {
                let (number, version) = match *reason {
                    RefuseReason::Version(version) => (1, version),
                    RefuseReason::UnknownSource => (2, 0),
                    RefuseReason::Taken => (3, 0),
                };
                to.u8(number);
                to.u16(version);
            }
            Self::Configure(Configure { run, address, settings }) => {
                to.u32(run.0);
                to.text(address, LARGEST_TEXT_BYTES);
                to.text(settings, LARGEST_SETTINGS_BYTES);
            }
            Self::Start(Start { run, first, last }) => {
                to.u32(run.0);
                to.u64(*first);
                to.u64(last.unwrap_or(UNKNOWN));
            }
            Self::Enable(run) | Self::Veto(run) | Self::Hold(run) | Self::Release(run) => to.u32(run.0),
            Self::Stop(Stop { run, last }) => {
                to.u32(run.0);
                to.u64(last.unwrap_or(UNKNOWN));
            }
            Self::Ping => {}
        }
    }

    /// Decodes the body of a command of this kind.
    ///
    /// # Errors
    /// If the body is not one of this kind, or the kind is no command.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Self, FrameError> {
        let mut from = Reader(body);
        let command = match kind {
            Kind::Welcome => {
                let version = from.u16()?;
                if !is_spoken(version) {
                    return Err(FrameError::Meaning);
                }
                Self::Welcome(version)
            }
            Kind::Refuse => {
                let (number, version) = (from.u8()?, from.u16()?);
                Self::Refuse(match number {
                    1 => RefuseReason::Version(version),
                    2 if version == 0 => RefuseReason::UnknownSource,
                    3 if version == 0 => RefuseReason::Taken,
                    _ => return Err(FrameError::Meaning),
                })
            }
            Kind::Configure => Self::Configure(Configure {
                run: from.run()?,
                address: from.text(LARGEST_TEXT_BYTES)?,
                settings: from.text(LARGEST_SETTINGS_BYTES)?,
            }),
            Kind::Start => Self::Start(Start { run: from.run()?, first: from.u64()?, last: from.event()? }),
            Kind::Enable => Self::Enable(from.run()?),
            Kind::Veto => Self::Veto(from.run()?),
            Kind::Stop => Self::Stop(Stop { run: from.run()?, last: from.event()? }),
            Kind::Ping => Self::Ping,
            Kind::Hold => Self::Hold(from.run()?),
            Kind::Release => Self::Release(from.run()?),
            _ => return Err(FrameError::Meaning),
        };
        from.end()?;
        Ok(command)
    }
}

impl Frame {
    /// Appends a message: its head, then the output of `fill`.
    fn around(kind: Kind, out: &mut Vec<u8>, fill: impl FnOnce(&mut Writer<'_>)) {
        let frame = out.len();
        out.extend_from_slice(&Self { kind, body: 0 }.to_bytes());
        let start = out.len();
        fill(&mut Writer(out));
        let body = (out.len() - start) as u32;
        out[frame..start].copy_from_slice(&Self { kind, body }.to_bytes());
    }
}

impl Reader<'_> {
    fn run(&mut self) -> Result<RunNumber, FrameError> {
        self.u32().map(RunNumber)
    }

    fn event(&mut self) -> Result<Option<u64>, FrameError> {
        Ok(Some(self.u64()?).filter(|&number| number != UNKNOWN))
    }
}
