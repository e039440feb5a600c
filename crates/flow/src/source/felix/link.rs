//! One e-link of an emulated card.

use super::{CHUNK_HEAD_BYTES, ChunkOrigin, EmulatedCardConfig, EmulatedLinkConfig, FAULTS, Fault, Faults};
use crate::readout::felix::EventHead;
use crate::source::{Random, Trigger, TriggerSequence};
use core::time::Duration;
use ropewalk_terms::SourceId;
use ropewalk_wire::felix::{Encoder, LARGEST_BLOCK_BYTES, Status, SubChunkType, Trailer};

/// What a link did, for whoever checks a run from outside.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Injected {
    /// Chunks of which something was written, with whatever flags, also into blocks that were spoilt or lost.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks of which nothing was written: missing, or of a time in which the link was silent.
    pub lost: u64,
    struck: [u64; FAULTS.len()],
}

impl Injected {
    /// How often a fault struck.
    pub const fn struck(&self, fault: Fault) -> u64 {
        self.struck[fault as usize]
    }

    /// Counts what another link did, too.
    pub fn add(&mut self, other: &Self) {
        self.chunks += other.chunks;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.struck.iter_mut().zip(other.struck).for_each(|(all, one)| *all += one);
    }
}

/// What a link must know of its card.
pub(super) struct Card<'a> {
    pub(super) config: &'a EmulatedCardConfig,
    /// Bytes of all blocks that it has written.
    pub(super) written: u64,
    /// Another link may be silent for long: not all at once.
    pub(super) may_stall: bool,
}

#[derive(Clone, Debug)]
pub(super) struct EmulatedLink {
    config: EmulatedLinkConfig,
    triggers: TriggerSequence,
    next: Trigger,
    encoder: Encoder,
    random: Random,
    chunk: Vec<u8>,
    /// When the link has brought its last chunk.
    busy_until: Duration,
    /// Since when something stands in the block that is being filled.
    open_since: Duration,
    /// What the whole card had written then, in bytes.
    open_at: u64,
    /// The link stalls until the whole card has written so many bytes.
    stalled_until: u64,
    /// The last chunk was left without its end: a piece without a beginning would be taken for that.
    is_open: bool,
    injected: Injected,
}

/// Bytes of the longest chunk that a link may say.
pub(super) fn longest_chunk(config: &EmulatedCardConfig, link: &EmulatedLinkConfig) -> usize {
    let longest = link.size.largest().max(config.least_chunk_bytes) as usize;
    if config.faults.of(Fault::Oversize) > 0.0 { longest.max(oversize_bytes(config)) } else { longest }
}

/// More than any reader takes who allows the card's longest chunks: what fits into one block is never too long.
fn oversize_bytes(config: &EmulatedCardConfig) -> usize {
    LARGEST_BLOCK_BYTES.max(config.most_chunk_bytes as usize) + 1
}

impl EmulatedLink {
    pub(super) fn new(link: EmulatedLinkConfig, card: &EmulatedCardConfig) -> Self {
        let mut triggers = TriggerSequence::new(card.seed, card.rate);
        Self {
            next: triggers.next_trigger(),
            triggers,
            encoder: Encoder::new(card.format, link.elink),
            random: Random::new(card.seed, u64::from(link.source.0) + 1),
            chunk: vec![0; longest_chunk(card, &link).max(CHUNK_HEAD_BYTES)],
            busy_until: Duration::ZERO,
            open_since: Duration::ZERO,
            open_at: 0,
            stalled_until: 0,
            is_open: false,
            injected: Injected::default(),
            config: link,
        }
    }

    /// Whose chunks it brings.
    pub(super) const fn source(&self) -> SourceId {
        self.config.source
    }

    /// What it did.
    pub(super) const fn injected(&self) -> &Injected {
        &self.injected
    }

    /// The trigger that it waits for.
    pub(super) const fn next(&self) -> &Trigger {
        &self.next
    }

    /// When its next chunk can come.
    pub(super) fn due(&self) -> Duration {
        self.next.at.max(self.busy_until)
    }

    /// Since when something waits in the block that is being filled, if something does.
    pub(super) fn open_since(&self) -> Option<Duration> {
        (!self.encoder.is_empty()).then_some(self.open_since)
    }

    /// Whether something waits in the block that is being filled while the card wrote so many bytes.
    pub(super) fn is_behind(&self, written: u64, bytes: u64) -> bool {
        !self.encoder.is_empty() && written - self.open_at >= bytes
    }

    /// Up to where the card must have written before the link goes on.
    pub(super) const fn stalled_until(&self) -> u64 {
        self.stalled_until
    }

    /// The chunk of the next trigger, with all that may go wrong, into as many blocks as it takes.
    pub(super) fn speak(&mut self, card: &Card<'_>, out: &mut Vec<u8>) {
        let (config, from, due, trigger) = (card.config, out.len(), self.due(), self.next);
        let length = self.config.size.next(&mut self.random).max(config.least_chunk_bytes) as usize;
        let fault = config.faults.draw(false, &mut self.random).filter(|&fault| self.may_have(fault, card));
        if let Some(speed) = config.link_bytes_per_second {
            self.busy_until = due + Duration::from_secs_f64(length as f64 / speed);
        }
        self.next = self.triggers.next_trigger();
        let is_silent = card.written < self.stalled_until || self.config.outages.iter().any(|outage| outage.is_at(due));
        if is_silent {
            self.injected.lost += 1;
            return;
        }
        if let Some(fault) = fault {
            self.injected.struck[fault as usize] += 1;
        }
        if fault == Some(Fault::Missing) {
            self.injected.lost += 1;
            return;
        }
        if self.encoder.is_empty() {
            (self.open_since, self.open_at) = (due, card.written);
        }
        self.say(&trigger, length, fault, card, out);
        if out.len() > from {
            (self.open_since, self.open_at) = (due, card.written);
        }
        self.strike_blocks(from, &config.faults, out);
    }

    /// Whether a fault can be told from others now.
    fn may_have(&self, fault: Fault, card: &Card<'_>) -> bool {
        match fault {
            Fault::Stalled => card.may_stall,
            Fault::NoFirst | Fault::TimedOut => !self.is_open,
            _ => true,
        }
    }

    /// A chunk and what stands behind it.
    fn say(&mut self, trigger: &Trigger, length: usize, fault: Option<Fault>, card: &Card<'_>, out: &mut Vec<u8>) {
        let length = match fault {
            Some(Fault::Truncated | Fault::TimedOut) => {
                (length / 2).max(card.config.least_chunk_bytes.min(length as u32) as usize)
            }
            Some(Fault::Oversize) => oversize_bytes(card.config),
            Some(Fault::NoFirst | Fault::NoLast | Fault::Stalled) => CHUNK_HEAD_BYTES,
            _ => length,
        };
        let chunk = &mut self.chunk[..length];
        let EmulatedLinkConfig { source, rule, .. } = self.config;
        ChunkOrigin { source, number: trigger.number as u32 }.fill(chunk);
        let bunch_crossing = Some(trigger.bunch_crossing);
        rule.write(EventHead { number: trigger.number, bunch_crossing, trigger_type: 0 }, source.0, chunk);
        let mut piece = |kind| {
            let trailer = Trailer::new(kind, CHUNK_HEAD_BYTES as u16, Status::GOOD);
            self.encoder.sub_chunk(trailer, chunk, out);
        };
        match fault {
            Some(Fault::NoFirst) => piece(SubChunkType::Last),
            Some(Fault::NoLast | Fault::Stalled) => piece(SubChunkType::First),
            _ => self.encoder.chunk(chunk, fault.map_or(Status::GOOD, Fault::status), out),
        }
        self.is_open = matches!(fault, Some(Fault::NoLast | Fault::Stalled));
        self.injected.chunks += 1;
        self.injected.bytes += length as u64;
        match fault {
            Some(Fault::Silence) => self.encoder.time_out(out),
            Some(Fault::OutOfBand) => self.encoder.out_of_band(trigger.number as u32, out),
            Some(Fault::Stalled) => {
                self.encoder.time_out(out);
                self.stalled_until = card.written + card.config.ring_bytes;
            }
            _ => {}
        }
    }

    /// Nothing comes for a while: what waits in the block goes, with filler behind it.
    pub(super) fn time_out(&mut self, faults: &Faults, out: &mut Vec<u8>) {
        let from = out.len();
        self.encoder.time_out(out);
        self.strike_blocks(from, faults, out);
    }

    /// Gives the blocks from `from` on their faults. What is left of them moves together.
    fn strike_blocks(&mut self, from: usize, faults: &Faults, out: &mut Vec<u8>) {
        let format = self.encoder.format();
        let (bytes, mut kept) = (format.block_bytes(), from);
        for block in (from..out.len()).step_by(bytes) {
            out.copy_within(block..block + bytes, kept);
            let fault = faults.draw(true, &mut self.random);
            kept += fault.map_or(bytes, |fault| fault.strike(&mut out[kept..kept + bytes], format));
            if let Some(fault) = fault {
                self.injected.struck[fault as usize] += 1;
            }
            if fault == Some(Fault::SequenceGap) {
                self.encoder.set_sequence(self.encoder.header().sequence + 1);
            }
        }
        out.truncate(kept);
    }
}
