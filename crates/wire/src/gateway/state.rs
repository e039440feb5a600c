//! How a gateway is and how far it came; and every message but events as an owned value.

use super::{Credit, Decisions, Frame, Kind, Stream};
use crate::frame::{FrameError, Reader, Writer};
use ropewalk_terms::Incarnation;

/// Which sequence numbers a gateway gave to events of this node.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Progress {
    /// Which gateway.
    pub gateway: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The number that the next event will have.
    pub next: u64,
    /// No decision is awaited for numbers below this one.
    pub floor: u64,
}

/// May triggers come? The states of trigger throttling systems.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum ThrottleState {
    /// Yes.
    #[default]
    Ready = 0,
    /// Yes, but slower would be better.
    Warning = 1,
    /// No: there is only room for what is on its way.
    Busy = 2,
    /// No: events do not follow one another as they should; a resynchronisation is needed.
    OutOfSync = 3,
    /// No: something is broken.
    Error = 4,
}

impl ThrottleState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Ready, Self::Warning, Self::Busy, Self::OutOfSync, Self::Error];

    /// Whether triggers may come.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Ready | Self::Warning)
    }

    /// The name that is promised to users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Warning => "warning",
            Self::Busy => "busy",
            Self::OutOfSync => "out_of_sync",
            Self::Error => "error",
        }
    }
}

/// How a gateway is. Absolute and repeated: one that is lost costs nothing.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Throttle {
    /// Which gateway.
    pub gateway: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Counts these messages, from 1: an older one is ignored.
    pub sequence: u64,
    /// The state.
    pub state: ThrottleState,
}

/// A message that is not events.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each stands at its type and at its kind")]
pub enum Message {
    Credit(Credit),
    Progress(Progress),
    Decisions(Decisions),
    Stream(Stream),
    Throttle(Throttle),
}

impl Message {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Credit(_) => Kind::Credit,
            Self::Progress(_) => Kind::Progress,
            Self::Decisions(_) => Kind::Decisions,
            Self::Stream(_) => Kind::Stream,
            Self::Throttle(_) => Kind::Throttle,
        }
    }

    /// Appends the message with its frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let frame = out.len();
        out.extend_from_slice(&Frame { kind: self.kind(), body: 0 }.to_bytes());
        let start = out.len();
        let to = &mut Writer(out);
        match self {
            Self::Credit(credit) => credit.encode(to),
            Self::Progress(progress) => progress.encode(to),
            Self::Decisions(decisions) => decisions.encode(to),
            Self::Stream(stream) => stream.encode(to),
            Self::Throttle(throttle) => throttle.encode(to),
        }
        let body = (out.len() - start) as u32;
        out[frame..start].copy_from_slice(&Frame { kind: self.kind(), body }.to_bytes());
    }

    /// Reads the body of a message of this kind.
    ///
    /// # Errors
    /// Where the body is not one of this kind; a push is none.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Self, FrameError> {
        let mut from = Reader(body);
        let message = match kind {
            Kind::Credit => Self::Credit(Credit::decode(&mut from)?),
            Kind::Progress => Self::Progress(Progress::decode(&mut from)?),
            Kind::Decisions => Self::Decisions(Decisions::decode(&mut from)?),
            Kind::Stream => Self::Stream(Stream::decode(&mut from)?),
            Kind::Throttle => Self::Throttle(Throttle::decode(&mut from)?),
            Kind::Push => return Err(FrameError::Meaning),
        };
        from.end()?;
        Ok(message)
    }
}

impl Progress {
    fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.gateway);
        to.u16(0);
        to.u32(0);
        [self.incarnation.0, self.next, self.floor].into_iter().for_each(|number| to.u64(number));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (gateway, _, _) = (from.u16()?, from.u16()?, from.u32()?);
        let (incarnation, next, floor) = (Incarnation(from.u64()?), from.u64()?, from.u64()?);
        if floor > next { Err(FrameError::Meaning) } else { Ok(Self { gateway, incarnation, next, floor }) }
    }
}

impl Throttle {
    fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.gateway);
        to.u16(0);
        to.u32(self.state as u32);
        to.u64(self.incarnation.0);
        to.u64(self.sequence);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (gateway, _, state) = (from.u16()?, from.u16()?, from.u32()?);
        let state = ThrottleState::ALL.get(state as usize).copied().ok_or(FrameError::Meaning)?;
        Ok(Self { gateway, incarnation: Incarnation(from.u64()?), sequence: from.u64()?, state })
    }
}
