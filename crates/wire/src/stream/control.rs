//! The messages that are not chunks, as owned values.

use super::{Frame, Kind, STREAM_VERSION};
use crate::felix::{ELINKS, ELink};
use crate::frame::{FrameError, NAME_BYTES, Reader, Writer, name};

/// The most ranges of a subscription.
pub const MOST_RANGES: usize = 64;
/// The most bytes that can be sent to an e-link at once.
pub const LARGEST_DOWN_BYTES: usize = 64 * 1024;

const MAGIC: [u8; 8] = *b"RWCHUNKS";

/// First message of a subscriber.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// [`STREAM_VERSION`] of the sender.
    pub version: u16,
    /// Its name, for people; padded with zeros.
    pub name: [u8; NAME_BYTES],
}

impl Hello {
    /// A hello in this version; a longer name is cut.
    pub fn new(name: &str) -> Self {
        Self { version: STREAM_VERSION, name: name::padded(name) }
    }

    /// The name up to its first zero; what is no text is replaced.
    pub fn name(&self) -> String {
        name::unpadded(&self.name)
    }
}

/// Why a subscriber is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RefuseReason {
    /// The versions differ; this is the server's.
    Version(u16),
    /// There are as many subscribers as the server takes.
    Full,
    /// Another member of the group shares it in another way.
    Share,
}

/// E-links from the first to the last.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first.
    pub first: ELink,
    /// The last, not before the first.
    pub last: ELink,
}

/// What becomes of chunks for which the subscriber's queue has no room.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Policy {
    /// The card waits.
    BackPressure = 0,
    /// They are dropped and counted.
    Drop = 1,
}

/// Which member of a group gets a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Balance {
    /// One after the other; whoever has no room is passed over.
    RoundRobin = 0,
    /// All chunks of an event the same one.
    ByEvent = 1,
}

/// With whom a subscriber shares its chunks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Share {
    /// With nobody: it gets every chunk of its e-links.
    Alone,
    /// With the other members of this group: each chunk goes to one of them.
    Group(u16, Balance),
}

/// Which e-links, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscribe {
    /// At most [`MOST_RANGES`].
    pub ranges: Vec<Range>,
    /// What becomes of chunks that it is too slow for.
    pub policy: Policy,
    /// With whom it shares.
    pub share: Share,
    /// It gets one chunk in so many of those meant for it: 1 is all, more is a monitor's sample. Not 0.
    pub one_in: u32,
}

/// The subscription is in force.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Subscribed {
    /// How many e-links it has.
    pub elinks: u16,
}

/// So many chunks were dropped so far.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// Chunks since the connection began.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Nothing more will come: the account of the connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Chunks that were meant for the subscriber.
    pub offered: u64,
    /// Chunks that were sent.
    pub sent: u64,
    /// Chunks that were dropped.
    pub dropped: u64,
}

/// Bytes for an e-link, which leave as one chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Down {
    /// The e-link.
    pub elink: ELink,
    /// At most [`LARGEST_DOWN_BYTES`].
    pub bytes: Vec<u8>,
}

/// Why bytes for an e-link are refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DownRefusal {
    /// Nothing takes bytes for front ends: the card has no down-link.
    NoDownLink = 1,
    /// The down-link has no room for them now.
    NoRoom = 2,
}

/// Bytes for an e-link were refused, and went nowhere.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DownRefused {
    /// The e-link.
    pub elink: ELink,
    /// Why.
    pub why: DownRefusal,
}

/// A message that is not chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each stands at its type and at its kind")]
pub enum Message {
    Hello(Hello),
    Welcome,
    Refuse(RefuseReason),
    Subscribe(Subscribe),
    Subscribed(Subscribed),
    Loss(Loss),
    End(End),
    Down(Down),
    DownRefused(DownRefused),
}

impl Message {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Welcome => Kind::Welcome,
            Self::Refuse(_) => Kind::Refuse,
            Self::Subscribe(_) => Kind::Subscribe,
            Self::Subscribed(_) => Kind::Subscribed,
            Self::Loss(_) => Kind::Loss,
            Self::End(_) => Kind::End,
            Self::Down(_) => Kind::Down,
            Self::DownRefused(_) => Kind::DownRefused,
        }
    }

    /// Appends the message with its frame. Ranges and bytes beyond what is allowed are left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let frame = out.len();
        out.extend_from_slice(&Frame { kind: self.kind(), body: 0 }.to_bytes());
        let start = out.len();
        self.encode_body(&mut Writer(out));
        let body = (out.len() - start) as u32;
        out[frame..start].copy_from_slice(&Frame { kind: self.kind(), body }.to_bytes());
    }

    fn encode_body(&self, to: &mut Writer<'_>) {
        match self {
            Self::Hello(hello) => {
                to.bytes(&MAGIC);
                to.u16(hello.version);
                to.bytes(&hello.name);
            }
            Self::Welcome => {}
            Self::Refuse(reason) => {
                let (number, version) = match *reason {
                    RefuseReason::Version(version) => (1, version),
                    RefuseReason::Full => (2, 0),
                    RefuseReason::Share => (3, 0),
                };
                to.u8(number);
                to.u16(version);
            }
            Self::Subscribe(subscribe) => subscribe.encode(to),
            Self::Subscribed(subscribed) => to.u16(subscribed.elinks),
            Self::Loss(Loss { chunks, bytes }) => [*chunks, *bytes].into_iter().for_each(|number| to.u64(number)),
            Self::End(End { offered, sent, dropped }) => {
                [*offered, *sent, *dropped].into_iter().for_each(|number| to.u64(number));
            }
            Self::Down(down) => {
                to.u16(down.elink.number());
                to.bytes(&down.bytes[..down.bytes.len().min(LARGEST_DOWN_BYTES)]);
            }
            Self::DownRefused(DownRefused { elink, why }) => {
                to.u16(elink.number());
                to.u8(*why as u8);
            }
        }
    }

    /// Reads the body of a message of this kind.
    ///
    /// # Errors
    /// Where the body is not one of this kind; chunks are none.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Self, FrameError> {
        let mut from = Reader(body);
        let message = match kind {
            Kind::Hello => {
                if from.bytes()? != MAGIC {
                    return Err(FrameError::Magic);
                }
                Self::Hello(Hello { version: from.u16()?, name: from.bytes()? })
            }
            Kind::Welcome => Self::Welcome,
            Kind::Refuse => {
                let (number, version) = (from.u8()?, from.u16()?);
                Self::Refuse(match number {
                    1 => RefuseReason::Version(version),
                    2 if version == 0 => RefuseReason::Full,
                    3 if version == 0 => RefuseReason::Share,
                    _ => return Err(FrameError::Meaning),
                })
            }
            Kind::Subscribe => Self::Subscribe(Subscribe::decode(&mut from)?),
            Kind::Subscribed => Self::Subscribed(Subscribed { elinks: from.u16()? }),
            Kind::Loss => Self::Loss(Loss { chunks: from.u64()?, bytes: from.u64()? }),
            Kind::End => Self::End(End { offered: from.u64()?, sent: from.u64()?, dropped: from.u64()? }),
            Kind::Down => {
                let (elink, bytes) = (from.elink()?, from.0.to_vec());
                from.0 = &[];
                if bytes.len() > LARGEST_DOWN_BYTES {
                    return Err(FrameError::Long);
                }
                Self::Down(Down { elink, bytes })
            }
            Kind::DownRefused => {
                let (elink, why) = (from.elink()?, from.u8()?);
                let why = match why {
                    1 => DownRefusal::NoDownLink,
                    2 => DownRefusal::NoRoom,
                    _ => return Err(FrameError::Meaning),
                };
                Self::DownRefused(DownRefused { elink, why })
            }
            Kind::Chunks => return Err(FrameError::Meaning),
        };
        from.end()?;
        Ok(message)
    }
}

impl Subscribe {
    fn encode(&self, to: &mut Writer<'_>) {
        let (share, group) = match self.share {
            Share::Alone => (0, 0),
            Share::Group(group, balance) => (1 + balance as u8, group),
        };
        let ranges = &self.ranges[..self.ranges.len().min(MOST_RANGES)];
        to.bytes(&[self.policy as u8, share]);
        to.u16(group);
        to.u32(self.one_in);
        for number in ranges.iter().flat_map(|range| [range.first, range.last]).map(ELink::number) {
            to.u16(number);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let [policy, share] = from.bytes()?;
        let (group, one_in) = (from.u16()?, from.u32()?);
        let policy = match policy {
            0 => Policy::BackPressure,
            1 => Policy::Drop,
            _ => return Err(FrameError::Meaning),
        };
        let share = match share {
            0 if group == 0 => Share::Alone,
            1 => Share::Group(group, Balance::RoundRobin),
            2 => Share::Group(group, Balance::ByEvent),
            _ => return Err(FrameError::Meaning),
        };
        let mut ranges = Vec::new();
        while !from.0.is_empty() {
            let range = Range { first: from.elink()?, last: from.elink()? };
            if range.last < range.first {
                return Err(FrameError::Meaning);
            }
            if ranges.len() == MOST_RANGES {
                return Err(FrameError::Long);
            }
            ranges.push(range);
        }
        if one_in == 0 { Err(FrameError::Meaning) } else { Ok(Self { ranges, policy, share, one_in }) }
    }
}

impl Reader<'_> {
    fn elink(&mut self) -> Result<ELink, FrameError> {
        let number = self.u16()?;
        if (number as usize) < ELINKS { Ok(ELink::new(number)) } else { Err(FrameError::Meaning) }
    }
}
