//! The card itself: which link speaks next.

use super::config::EmulatedCardConfig;
use super::link::{EmulatedLink, Injected};
use crate::source::TriggerGate;
use core::time::Duration;
use ropewalk_terms::SourceId;

/// Triggers for which the card asks at once where they have no times.
const ADVANCE: u64 = 32;
/// How long a block that is not full waits for more: in time, and in bytes that others write. The second keeps links
/// that bring little near the others where nothing but the host's speed counts.
const BLOCK_TIMEOUT: Duration = Duration::from_millis(1);
const BLOCK_TIMEOUT_BYTES: u64 = 256 << 10;

/// Writes blocks, when they are due, into whatever memory it is given. Allocates only when it is made.
#[derive(Clone, Debug)]
pub struct EmulatedCard {
    config: EmulatedCardConfig,
    links: Vec<EmulatedLink>,
    /// The link whose turn it is.
    turn: usize,
    /// Blocks that are full and have not left, from `left` on.
    blocks: Vec<u8>,
    left: usize,
    /// Bytes of all blocks before.
    written: u64,
    is_flushed: bool,
}

impl EmulatedCard {
    /// A card that has said nothing.
    pub fn new(mut config: EmulatedCardConfig) -> Self {
        let (format, rate, seed) = (config.format, config.rate, config.seed);
        let links = core::mem::take(&mut config.links);
        let largest = links.iter().map(|link| link.size.largest() as usize).max().unwrap_or(0);
        // What one chunk and a signal fill, or what is left in every link at the end.
        let most = (largest / format.most_data_bytes() + 4).max(links.len()) * format.block_bytes();
        let links = links.into_iter().map(|link| EmulatedLink::new(link, format, rate, seed)).collect();
        Self { config, links, turn: 0, blocks: Vec::with_capacity(most), left: 0, written: 0, is_flushed: false }
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
            let index = (self.turn + step) % self.links.len();
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
                link.time_out(&mut self.blocks);
            }
            link.speak(self.written, &self.config.faults, self.config.link_bytes_per_second, &mut self.blocks);
            self.written += self.blocks.len() as u64;
            self.turn = (index + 1) % self.links.len();
            return true;
        }
        false
    }

    /// Blocks that have waited long enough, or at the end all of them, go as they are; false where none do.
    fn flush(&mut self, elapsed: Duration, gate: &TriggerGate) -> bool {
        let is_end = self.is_at_end(gate);
        for link in &mut self.links {
            if link.open_since().is_some_and(|since| is_end || elapsed >= since + BLOCK_TIMEOUT) {
                link.time_out(&mut self.blocks);
            }
        }
        self.is_flushed = is_end;
        !self.blocks.is_empty()
    }

    fn is_at_end(&self, gate: &TriggerGate) -> bool {
        gate.last().is_some_and(|last| self.links.iter().all(|link| link.next().number > last))
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

    /// What each link did.
    pub fn injected(&self) -> impl Iterator<Item = (SourceId, &Injected)> {
        self.links.iter().map(|link| (link.source(), &link.injected))
    }
}
