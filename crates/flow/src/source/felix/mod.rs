//! A link card that is not there: what the e-links of an emulated FELIX card say, as blocks.
//!
//! ```text
//! TriggerSequence -> trigger n --+--> EmulatedLink 0: chunk n, perhaps with a Fault --> wire's Encoder --+
//!                                +--> EmulatedLink 1: ...                                                +--> blocks
//!                                +--> the TTC link: a short chunk per trigger                            |
//!
//! EmulatedCard::fill   what is due by now: a card of a run writes it into its ring
//! EmulatedCard::turn   the next trigger's chunks, at any time: `felix generate`, figures, tests
//! ```
//! As with every emulated source all links run the same sequence from the same seed. A link has a speed of its own and
//! can fail and come back; chunks and blocks can be lost or spoilt in every way in which a card or a decoder reports it
//! ([`Fault`]). A chunk says whose it is and which ([`ChunkOrigin`]), so that its receiver can say what is
//! missing or mixed up.

mod link;
#[cfg(test)]
mod tests;

pub use link::{FAULTS, Fault, FaultError, FaultShare, Faults, Injected};

use crate::readout::felix::EventRule;
use crate::source::{SizeDistribution, TriggerGate, TriggerRate};
use core::time::Duration;
use link::{Card, EmulatedLink, longest_chunk};
use ropewalk_terms::SourceId;
use ropewalk_wire::felix::{BlockFormat, ELink};

/// An emulated card.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulatedCardConfig {
    /// The kind of its blocks.
    pub format: BlockFormat,
    /// Its e-links.
    pub links: Vec<EmulatedLinkConfig>,
    /// How often triggers come; equal for all sources of a run.
    pub rate: TriggerRate,
    /// Everything random follows from it; equal for all sources of a run.
    pub seed: u64,
    /// How many bytes of chunks an e-link brings in a second at most; `None` for as many as the host can take.
    pub link_bytes_per_second: Option<f64>,
    /// Chunks that would be shorter have so many bytes.
    pub least_chunk_bytes: u32,
    /// The longest chunk that the reader takes: one that is [`Fault::Oversize`] is longer.
    pub most_chunk_bytes: u32,
    /// The memory that blocks are written to again and again: an e-link that is stalled
    /// ([`Fault::Stalled`]) is silent while others fill it once.
    pub ring_bytes: u64,
    /// How often what goes wrong.
    pub faults: Faults,
}

impl EmulatedCardConfig {
    /// A card of these e-links, without faults and without times. The chunks of e-link n say that they are source n's.
    pub fn new(
        format: BlockFormat,
        elinks: impl IntoIterator<Item = ELink>,
        size: SizeDistribution,
        seed: u64,
    ) -> Self {
        let link = |elink: ELink| {
            let source = SourceId(elink.number().into());
            EmulatedLinkConfig { elink, source, size, rule: EventRule::USUAL, outages: Vec::new() }
        };
        Self {
            format,
            links: elinks.into_iter().map(link).collect(),
            rate: TriggerRate::Unlimited,
            seed,
            link_bytes_per_second: None,
            least_chunk_bytes: 0,
            most_chunk_bytes: SizeDistribution::LARGEST,
            ring_bytes: 64 << 20,
            faults: Faults::default(),
        }
    }
}

/// One e-link.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulatedLinkConfig {
    /// Which one.
    pub elink: ELink,
    /// What its chunks say that they are.
    pub source: SourceId,
    /// How large its chunks are.
    pub size: SizeDistribution,
    /// Where its chunks say to which event they belong.
    pub rule: EventRule,
    /// When it is silent.
    pub outages: Vec<Outage>,
}

/// A time in which a link brings nothing: what is triggered in it is lost, and the numbers go on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it begins, after the start.
    pub from: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

impl Outage {
    /// Whether it has begun and is not over.
    pub fn is_at(self, time: Duration) -> bool {
        time >= self.from && time - self.from < self.lasts
    }
}

/// Bytes of a chunk's head: its number and its source. A shorter chunk has as much of it as fits.
pub const CHUNK_HEAD_BYTES: usize = 8;

/// The origin of an emulated chunk, which its bytes name so that a mix-up is seen:
///
/// ```text
///  0 u32 number of the event    4 u32 source    8 u64 words: source, event and place    (little-endian)
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ChunkOrigin {
    /// The source.
    pub source: SourceId,
    /// The event's number, modulo 2^32.
    pub number: u32,
}

impl ChunkOrigin {
    /// The bytes of the chunk from `8 * index` on.
    const fn word(self, index: usize) -> [u8; 8] {
        let word = match index {
            0 => (self.source.0 as u64) << 32 | self.number as u64,
            _ => ((self.source.0 as u64) << 48) ^ ((self.number as u64) << 16) ^ (index as u64 - 1),
        };
        word.to_le_bytes()
    }

    /// Fills a chunk of any length.
    pub fn fill(self, chunk: &mut [u8]) {
        for (index, place) in chunk.chunks_mut(8).enumerate() {
            place.copy_from_slice(&self.word(index)[..place.len()]);
        }
    }

    /// Whether every byte of a chunk is as it was filled, however much was cut off behind.
    pub fn fills(self, chunk: &[u8]) -> bool {
        chunk.chunks(8).enumerate().all(|(index, place)| *place == self.word(index)[..place.len()])
    }

    /// Whose chunk it is, if it has its head and every byte of it is as it was filled.
    pub fn of(chunk: &[u8]) -> Option<Self> {
        let word = u64::from_le_bytes(*chunk.first_chunk::<CHUNK_HEAD_BYTES>()?);
        let origin = Self { source: SourceId((word >> 32) as u32), number: word as u32 };
        origin.fills(chunk).then_some(origin)
    }
}

/// Triggers for which the card asks at once where they have no times.
const ADVANCE: u64 = 32;
/// How long a block of an emulated card that is not full waits for more.
pub const BLOCK_TIMEOUT: Duration = Duration::from_millis(1);
/// The same in bytes that others write: links that bring little stay near the others where nothing but the host's speed
/// counts.
const BLOCK_TIMEOUT_BYTES: u64 = 256 << 10;

/// Writes blocks of all its e-links: when they are due, into memory that it is given ([`Self::fill`]), or trigger by
/// trigger ([`Self::turn`]): a card is driven in one of the two ways. Allocates only when it is made, and when the
/// vector grows that [`Self::turn`] appends to.
#[derive(Clone, Debug)]
pub struct EmulatedCard {
    config: EmulatedCardConfig,
    links: Vec<EmulatedLink>,
    /// The link whose turn it is.
    next_link: usize,
    /// Blocks that are full and have not left, from `left` on.
    blocks: Vec<u8>,
    left: usize,
    /// Bytes of all blocks before.
    written: u64,
    /// No link begins to stall before so much is written: another one does until then.
    stalled_until: u64,
    is_flushed: bool,
    turns: u64,
}

impl EmulatedCard {
    /// A card that has said nothing.
    pub fn new(mut config: EmulatedCardConfig) -> Self {
        let links = core::mem::take(&mut config.links);
        let largest = links.iter().map(|link| longest_chunk(&config, link)).max().unwrap_or(0);
        // What one chunk and a signal fill, or what is left in every link at the end.
        let most = (largest / config.format.most_data_bytes() + 4).max(links.len()) * config.format.block_bytes();
        let links = links.into_iter().map(|link| EmulatedLink::new(link, &config)).collect();
        Self {
            config,
            links,
            next_link: 0,
            blocks: Vec::with_capacity(most),
            left: 0,
            written: 0,
            stalled_until: 0,
            is_flushed: false,
            turns: 0,
        }
    }

    /// Writes the blocks that are due at `elapsed` after the start and that `gate` lets through to the beginning of
    /// `space`, as many as fit, and says how many bytes those are.
    pub fn fill(&mut self, elapsed: Duration, gate: &TriggerGate, space: &mut [u8]) -> usize {
        let mut filled = 0;
        loop {
            let whole = (space.len() - filled) / self.config.format.block_bytes() * self.config.format.block_bytes();
            let now = whole.min(self.blocks.len() - self.left);
            space[filled..filled + now].copy_from_slice(&self.blocks[self.left..self.left + now]);
            (filled, self.left) = (filled + now, self.left + now);
            if self.left < self.blocks.len() {
                return filled;
            }
            self.blocks.clear();
            self.left = 0;
            if !self.speak(elapsed, gate) && !self.flush(elapsed, gate) {
                return filled;
            }
        }
    }

    /// The next link that may speak does; false where none may.
    fn speak(&mut self, elapsed: Duration, gate: &TriggerGate) -> bool {
        for step in 0..self.links.len() {
            let index = (self.next_link + step) % self.links.len();
            let link = &mut self.links[index];
            let (due, trigger) = (link.due(), *link.next());
            if due > elapsed || gate.advance_to(trigger.number) < trigger.number {
                continue;
            }
            if trigger.at == Duration::ZERO && trigger.number.is_multiple_of(ADVANCE) {
                gate.advance_to(trigger.number + ADVANCE);
            }
            let since = link.open_since();
            if since.is_some_and(|since| due >= since + BLOCK_TIMEOUT)
                || link.is_behind(self.written, BLOCK_TIMEOUT_BYTES)
            {
                link.time_out(&self.config.faults, &mut self.blocks);
            }
            self.say(index);
            self.next_link = (index + 1) % self.links.len();
            return true;
        }
        false
    }

    /// Has a link say its next chunk; blocks that are full, here or before, are counted as written.
    fn say(&mut self, index: usize) {
        let may_stall = self.links.len() > 1 && self.written >= self.stalled_until;
        let card = Card { config: &self.config, written: self.written, may_stall };
        self.links[index].speak(&card, &mut self.blocks);
        self.written += self.blocks.len() as u64;
        self.stalled_until = self.stalled_until.max(self.links[index].stalled_until());
    }

    /// Blocks that have waited long enough, or at the end all of them, go as they are; false where none do.
    fn flush(&mut self, elapsed: Duration, gate: &TriggerGate) -> bool {
        let is_end = self.is_at_end(gate);
        for link in &mut self.links {
            if link.open_since().is_some_and(|since| is_end || elapsed >= since + BLOCK_TIMEOUT) {
                link.time_out(&self.config.faults, &mut self.blocks);
            }
        }
        self.written += self.blocks.len() as u64;
        self.is_flushed = is_end;
        !self.blocks.is_empty()
    }

    fn is_at_end(&self, gate: &TriggerGate) -> bool {
        gate.last().is_some_and(|last| self.links.iter().all(|link| link.next().number > last))
    }

    /// The chunks of the next trigger, one of every e-link, independent of time. Full blocks are appended to
    /// `out`.
    pub fn turn(&mut self, out: &mut Vec<u8>) {
        for index in 0..self.links.len() {
            self.say(index);
            out.append(&mut self.blocks);
        }
        self.turns += 1;
    }

    /// How often it was [`Self::turn`]: so many chunks every e-link has said or lost.
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// After the last [`Self::turn`]: the blocks that are not full go as they are.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.links.iter_mut().for_each(|link| link.time_out(&self.config.faults, out));
    }

    /// Whether the last trigger's chunks have left.
    pub fn is_exhausted(&self) -> bool {
        self.is_flushed && self.blocks.is_empty()
    }

    /// When something is due next, after the start; `None` if that depends on the gate or on room.
    pub fn next_due(&self, elapsed: Duration) -> Option<Duration> {
        let flushed = self.links.iter().filter_map(EmulatedLink::open_since).map(|since| since + BLOCK_TIMEOUT);
        self.links.iter().map(EmulatedLink::due).chain(flushed).filter(|&due| due > elapsed).min()
    }

    /// What all links did.
    pub fn injected_by_all(&self) -> Injected {
        self.injected().fold(Injected::default(), |mut all, (_, one)| {
            all.add(one);
            all
        })
    }

    /// What each link did.
    pub fn injected(&self) -> impl Iterator<Item = (SourceId, &Injected)> {
        self.links.iter().map(|link| (link.source(), link.injected()))
    }
}
