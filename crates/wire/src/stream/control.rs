//! The messages that are not chunks, as owned values.

use super::{Frame, Kind, STREAM_VERSION, StreamError};
use crate::felix::{ELINKS, ELink};

/// The most ranges of a subscription.
pub const MOST_RANGES: usize = 64;
/// The most bytes that can be sent to an e-link at once.
pub const LARGEST_DOWN_BYTES: usize = 64 * 1024;

const MAGIC: [u8; 8] = *b"RWCHUNKS";
const NAME_BYTES: usize = 32;

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
        let mut padded = [0; NAME_BYTES];
        padded.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        Self { version: STREAM_VERSION, name: padded }
    }

    /// The name up to its first zero; what is no text is replaced.
    pub fn name(&self) -> String {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        String::from_utf8_lossy(&self.name[..end]).into_owned()
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
        }
    }

    /// Appends the message with its frame. Ranges and bytes beyond what is allowed are left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let frame = out.len();
        out.extend_from_slice(&Frame { kind: self.kind(), body: 0 }.to_bytes());
        let start = out.len();
        match self {
            Self::Hello(hello) => {
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&hello.version.to_le_bytes());
                out.extend_from_slice(&hello.name);
            }
            Self::Welcome => {}
            Self::Refuse(reason) => {
                let (number, version) = match *reason {
                    RefuseReason::Version(version) => (1, version),
                    RefuseReason::Full => (2, 0),
                    RefuseReason::Share => (3, 0),
                };
                out.push(number);
                out.extend_from_slice(&version.to_le_bytes());
            }
            Self::Subscribe(subscribe) => subscribe.encode(out),
            Self::Subscribed(subscribed) => out.extend_from_slice(&subscribed.elinks.to_le_bytes()),
            Self::Loss(Loss { chunks, bytes }) => {
                [chunks, bytes].iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            }
            Self::End(End { offered, sent, dropped }) => {
                [offered, sent, dropped].iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            }
            Self::Down(down) => {
                out.extend_from_slice(&down.elink.number().to_le_bytes());
                out.extend_from_slice(&down.bytes[..down.bytes.len().min(LARGEST_DOWN_BYTES)]);
            }
        }
        let body = (out.len() - start) as u32;
        out[frame..start].copy_from_slice(&Frame { kind: self.kind(), body }.to_bytes());
    }

    /// Reads the body of a message of this kind.
    ///
    /// # Errors
    /// Where the body is not one of this kind; chunks are none.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Self, StreamError> {
        let mut from = Reader(body);
        let message = match kind {
            Kind::Hello => {
                if from.array()? != MAGIC {
                    return Err(StreamError::Magic);
                }
                Self::Hello(Hello { version: from.u16()?, name: from.array()? })
            }
            Kind::Welcome => Self::Welcome,
            Kind::Refuse => {
                let ([number], version) = (from.array()?, from.u16()?);
                Self::Refuse(match number {
                    1 => RefuseReason::Version(version),
                    2 if version == 0 => RefuseReason::Full,
                    3 if version == 0 => RefuseReason::Share,
                    _ => return Err(StreamError::Meaning),
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
                    return Err(StreamError::Long);
                }
                Self::Down(Down { elink, bytes })
            }
            Kind::Chunks => return Err(StreamError::Meaning),
        };
        if from.0.is_empty() { Ok(message) } else { Err(StreamError::Long) }
    }
}

impl Subscribe {
    fn encode(&self, out: &mut Vec<u8>) {
        let (share, group) = match self.share {
            Share::Alone => (0, 0),
            Share::Group(group, balance) => (1 + balance as u8, group),
        };
        let ranges = &self.ranges[..self.ranges.len().min(MOST_RANGES)];
        out.extend_from_slice(&[self.policy as u8, share]);
        out.extend_from_slice(&group.to_le_bytes());
        out.extend_from_slice(&self.one_in.to_le_bytes());
        for number in ranges.iter().flat_map(|range| [range.first, range.last]).map(ELink::number) {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, StreamError> {
        let [policy, share] = from.array()?;
        let (group, one_in) = (from.u16()?, u32::from_le_bytes(from.array()?));
        let policy = match policy {
            0 => Policy::BackPressure,
            1 => Policy::Drop,
            _ => return Err(StreamError::Meaning),
        };
        let share = match share {
            0 if group == 0 => Share::Alone,
            1 => Share::Group(group, Balance::RoundRobin),
            2 => Share::Group(group, Balance::ByEvent),
            _ => return Err(StreamError::Meaning),
        };
        let mut ranges = Vec::new();
        while !from.0.is_empty() {
            let range = Range { first: from.elink()?, last: from.elink()? };
            if range.last < range.first {
                return Err(StreamError::Meaning);
            }
            if ranges.len() == MOST_RANGES {
                return Err(StreamError::Long);
            }
            ranges.push(range);
        }
        if one_in == 0 { Err(StreamError::Meaning) } else { Ok(Self { ranges, policy, share, one_in }) }
    }
}

/// Takes fields from the front of a body.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], StreamError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(StreamError::Short)?;
        self.0 = tail;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, StreamError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, StreamError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn elink(&mut self) -> Result<ELink, StreamError> {
        let number = self.u16()?;
        if (number as usize) < ELINKS { Ok(ELink::new(number)) } else { Err(StreamError::Meaning) }
    }
}
