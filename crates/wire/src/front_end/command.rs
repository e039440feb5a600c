//! What run control says to a front end.

use super::fields::{LARGEST_SETTINGS_BYTES, LARGEST_TEXT_BYTES};
use super::{Frame, Kind, UNKNOWN, is_spoken};
use crate::frame::{FrameError, Reader, Writer};
use ropewalk_terms::RunNumber;

/// Why a front end is not taken in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RefuseReason {
    /// The versions differ; this is run control's.
    Version(u16),
    /// No source with this id is under run control.
    UnknownSource,
    /// Another program is connected as this source, and lives.
    Taken,
}

/// Settings of the next run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configure {
    /// The run.
    pub run: RunNumber,
    /// Where the data go: `host:port` of the readout unit, to which the front end opens a connection for this run; at most
    /// [`LARGEST_TEXT_BYTES`].
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
    /// That of its last one, where it is known now: no trigger is to follow it.
    pub last: Option<u64>,
}

/// The run ends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Stop {
    /// The run.
    pub run: RunNumber,
    /// The number of its last event; none where nobody knows it. The event before the first one: there is none.
    pub last: Option<u64>,
}

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each stands at its type and at its kind")]
pub enum Command {
    /// With the version of what follows: the one that the front end said.
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

    /// Appends the message with its frame. Texts beyond what is allowed are cut.
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

    /// Reads the body of a command of this kind.
    ///
    /// # Errors
    /// Where the body is not one of this kind, or the kind is no command.
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
    /// Appends a message: its head, then what `fill` appends.
    pub(super) fn around(kind: Kind, out: &mut Vec<u8>, fill: impl FnOnce(&mut Writer<'_>)) {
        let frame = out.len();
        out.extend_from_slice(&Self { kind, body: 0 }.to_bytes());
        let start = out.len();
        fill(&mut Writer(out));
        let body = (out.len() - start) as u32;
        out[frame..start].copy_from_slice(&Self { kind, body }.to_bytes());
    }
}

impl Reader<'_> {
    pub(super) fn run(&mut self) -> Result<RunNumber, FrameError> {
        self.u32().map(RunNumber)
    }

    pub(super) fn event(&mut self) -> Result<Option<u64>, FrameError> {
        Ok(Some(self.u64()?).filter(|&number| number != UNKNOWN))
    }
}
