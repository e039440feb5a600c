//! The card itself: which link speaks next.

use super::link::{Card, EmulatedLink, longest_chunk};
use super::{EmulatedCardConfig, Injected};
use crate::source::TriggerGate;
use core::time::Duration;
use ropewalk_terms::SourceId;

/// Triggers for which the card asks at once where they have no times.
const ADVANCE: u64 = 32;
/// How long a block of an emulated card that is not full waits for more.
pub const BLOCK_TIMEOUT: Duration = Duration::from_millis(1);
/// The same in bytes that others write: links that bring little stay near the others where nothing but the host's speed
/// counts.
const BLOCK_TIMEOUT_BYTES: u64 = 256 << 10;

/// Writes blocks of all its e-links: when they are due into whatever memory it is given ([`Self::fill`]), or trigger by
/// trigger ([`Self::turn`]): a card is driven in one of the two ways. Allocates only when it is made, and where the
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

    /// The chunks of the next trigger, one of every e-link, whatever the time is. Blocks that are full are appended to
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

    /// When something is due next, after the start; none where that hangs on the gate or on room.
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
