//! What a node says of its room and of events, and decisions in the order of events.

use crate::frame::{FrameError, Reader, Writer};
use ropewalk_terms::{EventKey, Incarnation};

/// The most decisions of a message.
pub const MOST_DECISIONS: usize = 64;
/// 64-bit words of the bitmap.
pub const BITMAP_WORDS: usize = 4;
/// The most sequence numbers between the oldest without decision and the latest one, both included.
pub const MOST_OUTSTANDING: u64 = 64 * BITMAP_WORDS as u64;

/// A list of decisions: no allocation.
pub(super) type List<T> = arrayvec::ArrayVec<T, MOST_DECISIONS>;

/// A node is there and has room.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Credit {
    /// Which node.
    pub node: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// How many events it may have without a decision at a time: at most [`MOST_OUTSTANDING`] count.
    pub window: u16,
}

/// What a node says of an event.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Verdict {
    /// Not wanted.
    #[default]
    Reject = 0,
    /// Wanted.
    Accept = 1,
    /// The event did not arrive, or not whole: it must be sent again.
    NotReceived = 2,
}

impl Verdict {
    const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Reject),
            1 => Some(Self::Accept),
            2 => Some(Self::NotReceived),
            _ => None,
        }
    }
}

/// One decision.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Decision {
    /// The number under which the event was pushed.
    pub sequence: u64,
    /// What is said of it.
    pub verdict: Verdict,
    /// The trigger word: why.
    pub word: u32,
}

/// What a node decided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decisions {
    /// Which node.
    pub node: u16,
    /// Which gateway's events.
    pub gateway: u16,
    /// Which life of the node.
    pub incarnation: Incarnation,
    /// Which life of the gateway.
    pub gateway_incarnation: Incarnation,
    /// Every event with a sequence number below this one was decided, or is not awaited.
    pub cumulative: u64,
    /// And bit *n* of these, of all words in their order, says it of `cumulative + n`.
    pub bitmap: [u64; BITMAP_WORDS],
    /// Decisions: new ones and, as far as there is room, the latest ones of earlier messages.
    pub entries: List<Decision>,
}

/// A decision on its way out.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StreamEntry {
    /// Which event.
    pub key: EventKey,
    /// Whether it is wanted.
    pub accept: bool,
    /// The trigger word.
    pub word: u32,
    /// No node decided in time: this is what was configured for that.
    pub by_default: bool,
}

/// Decisions in the order of events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stream {
    /// Which gateway.
    pub gateway: u16,
    /// Which flow.
    pub flow: u8,
    /// Which life of the gateway.
    pub incarnation: Incarnation,
    /// How many decisions of this flow went before these: a reader sees what it missed.
    pub before: u64,
    /// The decisions.
    pub entries: List<StreamEntry>,
}

impl Credit {
    pub(super) fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.node);
        to.u16(self.window);
        to.u32(0);
        to.u64(self.incarnation.0);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (node, window, _) = (from.u16()?, from.u16()?, from.u32()?);
        Ok(Self { node, incarnation: Incarnation(from.u64()?), window })
    }
}

impl Decisions {
    /// Whether `cumulative` and the bitmap say that this one is decided.
    pub fn covers(&self, sequence: u64) -> bool {
        let Some(bit) = sequence.checked_sub(self.cumulative) else { return true };
        bit < MOST_OUTSTANDING && self.bitmap[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    pub(super) fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.node);
        to.u16(self.gateway);
        to.u32(self.entries.len() as u32);
        to.u64(self.incarnation.0);
        to.u64(self.gateway_incarnation.0);
        to.u64(self.cumulative);
        self.bitmap.iter().for_each(|word| to.u64(*word));
        for entry in &self.entries {
            to.u64(entry.sequence);
            to.u32(entry.word);
            to.u32(entry.verdict as u32);
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (node, gateway, count) = (from.u16()?, from.u16()?, from.u32()?);
        let (incarnation, gateway_incarnation) = (Incarnation(from.u64()?), Incarnation(from.u64()?));
        let cumulative = from.u64()?;
        let mut bitmap = [0; BITMAP_WORDS];
        for word in &mut bitmap {
            *word = from.u64()?;
        }
        let entries = list(count, || {
            let (sequence, word, verdict) = (from.u64()?, from.u32()?, from.u32()?);
            let verdict = u8::try_from(verdict).ok().and_then(Verdict::from_u8).ok_or(FrameError::Meaning)?;
            Ok(Decision { sequence, verdict, word })
        })?;
        Ok(Self { node, gateway, incarnation, gateway_incarnation, cumulative, bitmap, entries })
    }
}

impl Stream {
    pub(super) fn encode(&self, to: &mut Writer<'_>) {
        to.u16(self.gateway);
        to.u8(self.flow);
        to.u8(self.entries.len() as u8);
        to.u32(0);
        to.u64(self.incarnation.0);
        to.u64(self.before);
        for entry in &self.entries {
            to.key(entry.key);
            to.u32(entry.word);
            to.u32(u32::from(entry.accept) | u32::from(entry.by_default) << 1);
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (gateway, flow, count, _) = (from.u16()?, from.u8()?, from.u8()?, from.u32()?);
        let (incarnation, before) = (Incarnation(from.u64()?), from.u64()?);
        let entries = list(u32::from(count), || {
            let (key, word, flags) = (from.key()?, from.u32()?, from.u32()?);
            let entry = StreamEntry { key, accept: flags & 1 == 1, word, by_default: flags & 2 == 2 };
            if flags > 3 { Err(FrameError::Meaning) } else { Ok(entry) }
        })?;
        Ok(Self { gateway, flow, incarnation, before, entries })
    }
}

/// Reads so many entries.
fn list<T>(count: u32, mut read: impl FnMut() -> Result<T, FrameError>) -> Result<List<T>, FrameError> {
    let mut entries = List::new();
    for _ in 0..count {
        entries.try_push(read()?).map_err(|_| FrameError::Long)?;
    }
    Ok(entries)
}
