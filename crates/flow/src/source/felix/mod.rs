//! An emulated FELIX card: the output of its e-links, as blocks.
//!
//! ```text
//! TriggerSequence -> trigger n --+--> EmulatedLink 0: chunk n, perhaps with a Fault --> wire's Encoder --+
//!                                +--> EmulatedLink 1: ...                                                +--> blocks
//!                                +--> the TTC link: a short chunk per trigger                            |
//!
//! EmulatedCard::fill   what is due by now: a card of a run writes it into its ring
//! EmulatedCard::turn   the next trigger's chunks, at any time: `felix generate`, figures, tests
//! ```
//! As with every emulated source, all links run the same sequence from the same seed. Each link has its own speed, and
//! can fail and recover. Chunks and blocks can be lost or damaged in every way that a card or a decoder reports
//! ([`Fault`]). A chunk names its source and its event ([`ChunkOrigin`]), so that its receiver detects losses and
//! mix-ups.

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

/// Configuration of an emulated card.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulatedCardConfig {
    /// The kind of its blocks.
    pub format: BlockFormat,
    /// Its e-links.
    pub links: Vec<EmulatedLinkConfig>,
    /// The rate of triggers; equal for all sources of a run.
    pub rate: TriggerRate,
    /// The seed of everything random; equal for all sources of a run.
    pub seed: u64,
    /// The most chunk bytes per second of an e-link; `None` for as many as the host can handle.
    pub link_bytes_per_second: Option<f64>,
    /// The shortest chunk, in bytes: shorter ones are extended.
    pub least_chunk_bytes: u32,
    /// The longest chunk that the reader accepts, in bytes; a chunk with [`Fault::Oversize`] is longer.
    pub most_chunk_bytes: u32,
    /// The size of the memory to which blocks are written cyclically: a stalled e-link ([`Fault::Stalled`]) is silent
    /// while the others fill it once.
    pub ring_bytes: u64,
    /// The share of each fault.
    pub faults: Faults,
}

impl EmulatedCardConfig {
    /// Returns a card with these e-links, without faults and without times. The chunks of e-link n name source n.
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

/// Configuration of one e-link.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulatedLinkConfig {
    /// The e-link.
    pub elink: ELink,
    /// The source that its chunks name.
    pub source: SourceId,
    /// The distribution of chunk sizes.
    pub size: SizeDistribution,
    /// The place of the event number in its chunks.
    pub rule: EventRule,
    /// The times in which it is silent.
    pub outages: Vec<Outage>,
}

/// A time in which a link is silent. Its triggers are lost, and the numbers continue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// The beginning, after the start.
    pub from: Duration,
    /// The duration.
    pub lasts: Duration,
}

impl Outage {
    /// Whether it is in progress at `time`.
    pub fn is_at(self, time: Duration) -> bool {
        time >= self.from && time - self.from < self.lasts
    }
}

/// Bytes of a chunk's header: its number and its source. A shorter chunk contains as much of it as fits.
pub const CHUNK_HEAD_BYTES: usize = 8;

/// The origin of an emulated chunk, which its bytes contain so that mix-ups are detected:
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
    /// Returns the bytes of the chunk from `8 * index` on.
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

    /// Whether every byte of a chunk is as it was filled, however much was cut off at the end.
    pub fn fills(self, chunk: &[u8]) -> bool {
        chunk.chunks(8).enumerate().all(|(index, place)| *place == self.word(index)[..place.len()])
    }

    /// Returns the origin of a chunk, if it has its header and every byte of it is as it was filled.
    pub fn of(chunk: &[u8]) -> Option<Self> {
        let word = u64::from_le_bytes(*chunk.first_chunk::<CHUNK_HEAD_BYTES>()?);
        let origin = Self { source: SourceId((word >> 32) as u32), number: word as u32 };
        origin.fills(chunk).then_some(origin)
    }
}

/// Number of triggers that the card requests at once if they have no times.
const ADVANCE: u64 = 32;
/// How long a partly filled block of an emulated card waits for more chunks.
pub const BLOCK_TIMEOUT: Duration = Duration::from_millis(1);
/// The same in bytes that other links write: slow links stay near the others if only the host's speed limits the rate.
const BLOCK_TIMEOUT_BYTES: u64 = 256 << 10;

/// Writes the blocks of all its e-links: when they are due, into memory given by the caller ([`Self::fill`]), or
/// trigger by trigger ([`Self::turn`]). A card is driven in one of the two ways. It allocates only when it is created,
/// and when the vector grows to which [`Self::turn`] appends.
#[derive(Clone, Debug)]
pub struct EmulatedCard {
    config: EmulatedCardConfig,
    links: Vec<EmulatedLink>,
    /// The link whose turn it is.
    next_link: usize,
    /// Full blocks that have not left, from `left` on.
    blocks: Vec<u8>,
    left: usize,
    /// Bytes of all earlier blocks.
    written: u64,
    /// No link begins to stall before this much is written, since another one stalls until then.
    stalled_until: u64,
    is_flushed: bool,
    turns: u64,
}

impl EmulatedCard {
    /// Creates a card before its first trigger.
    pub fn new(mut config: EmulatedCardConfig) -> Self {
        let links = core::mem::take(&mut config.links);
        let largest = links.iter().map(|link| longest_chunk(&config, link)).max().unwrap_or(0);
        // The room for one chunk and a signal, or for the rest in every link at the end.
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

    /// Writes to the beginning of `space` the blocks that are due at `elapsed` after the start and that `gate` allows,
    /// as many as fit. Returns their bytes.
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

    /// Lets the next ready link write. Returns false if none is ready.
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

    /// Lets a link write its next chunk. Full blocks, here or before, are counted as written.
    fn say(&mut self, index: usize) {
        let may_stall = self.links.len() > 1 && self.written >= self.stalled_until;
        let card = Card { config: &self.config, written: self.written, may_stall };
        self.links[index].speak(&card, &mut self.blocks);
        self.written += self.blocks.len() as u64;
        self.stalled_until = self.stalled_until.max(self.links[index].stalled_until());
    }

    /// Releases partly filled blocks that have waited long enough, or all of them at the end. Returns false if there
    /// are none.
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

    /// Appends the full blocks with the chunks of the next trigger, one of every e-link, to `out`, independent of time.
    pub fn turn(&mut self, out: &mut Vec<u8>) {
        for index in 0..self.links.len() {
            self.say(index);
            out.append(&mut self.blocks);
        }
        self.turns += 1;
    }

    /// Returns the number of calls of [`Self::turn`]: every e-link has written or lost this many chunks.
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// Appends the partly filled blocks after the last [`Self::turn`].
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.links.iter_mut().for_each(|link| link.time_out(&self.config.faults, out));
    }

    /// Whether the last trigger's chunks have left.
    pub fn is_exhausted(&self) -> bool {
        self.is_flushed && self.blocks.is_empty()
    }

    /// Returns when something is due next, after the start; `None` if that depends on the gate or on room.
    pub fn next_due(&self, elapsed: Duration) -> Option<Duration> {
        let flushed = self.links.iter().filter_map(EmulatedLink::open_since).map(|since| since + BLOCK_TIMEOUT);
        self.links.iter().map(EmulatedLink::due).chain(flushed).filter(|&due| due > elapsed).min()
    }

    /// Returns the sum of all links' counts.
    pub fn injected_by_all(&self) -> Injected {
        self.injected().fold(Injected::default(), |mut all, (_, one)| {
            all.add(one);
            all
        })
    }

    /// Returns the counts of each link.
    pub fn injected(&self) -> impl Iterator<Item = (SourceId, &Injected)> {
        self.links.iter().map(|link| (link.source(), link.injected()))
    }
}
