//! One e-link of an emulated card.

use super::config::{EmulatedLinkConfig, Faults};
use super::pattern::{ChunkOrigin, LEAST_CHUNK, fill_chunk};
use crate::source::{Random, Trigger, TriggerRate, TriggerSequence};
use core::time::Duration;
use ropewalk_terms::SourceId;
use ropewalk_wire::felix::{BlockFormat, Encoder, HEADER_BYTES, Status};

/// What a link did, for whoever checks a run from outside.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Injected {
    /// Chunks that were written, with whatever flags, also into blocks that were damaged or left out.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks that were never written: missing, or of an outage.
    pub lost: u64,
    /// Chunks that were written with a flag.
    pub flagged: u64,
    /// Blocks that were damaged.
    pub damaged_blocks: u64,
    /// Numbers that were left out.
    pub gaps: u64,
    /// Signals.
    pub signals: u64,
}

/// What becomes of the block that is being filled once it is full.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Fate {
    Good,
    Damaged,
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
    fate: Fate,
    pub(super) injected: Injected,
}

impl EmulatedLink {
    pub(super) fn new(config: EmulatedLinkConfig, format: BlockFormat, rate: TriggerRate, seed: u64) -> Self {
        let mut triggers = TriggerSequence::new(seed, rate);
        Self {
            next: triggers.next_trigger(),
            triggers,
            encoder: Encoder::new(format, config.elink),
            random: Random::new(seed, u64::from(config.source.0) + 1),
            chunk: vec![0; (config.size.largest() as usize).max(LEAST_CHUNK)],
            busy_until: Duration::ZERO,
            open_since: Duration::ZERO,
            open_at: 0,
            fate: Fate::Good,
            injected: Injected::default(),
            config,
        }
    }

    /// Whose chunks it brings.
    pub(super) const fn source(&self) -> SourceId {
        self.config.source
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

    /// The chunk of the next trigger, with all that may go wrong, into as many blocks as it takes; the card has written
    /// so many bytes.
    pub(super) fn speak(&mut self, written: u64, faults: &Faults, bytes_per_second: Option<f64>, out: &mut Vec<u8>) {
        let number = self.next.number;
        let due = self.due();
        let length = (self.config.size.next(&mut self.random) as usize).max(LEAST_CHUNK);
        if let Some(speed) = bytes_per_second {
            self.busy_until = due + Duration::from_secs_f64(length as f64 / speed);
        }
        self.next = self.triggers.next_trigger();
        let is_dead = self.config.outages.iter().any(|outage| !outage.is_other_than(due));
        if is_dead || self.strikes(faults.missing) {
            self.injected.lost += 1;
            return;
        }
        if self.encoder.is_empty() {
            (self.open_since, self.open_at) = (due, written);
        }
        let status = self.status(faults);
        let cut = status.has(Status::TRUNCATED) || status.has(Status::TIMED_OUT);
        let length = if cut { (length / 2).max(LEAST_CHUNK) } else { length };
        let chunk = &mut self.chunk[..length];
        fill_chunk(ChunkOrigin { source: self.config.source, number: number as u32 }, chunk);
        let from = out.len();
        self.encoder.chunk(chunk, status, out);
        if out.len() > from {
            (self.open_since, self.open_at) = (due, written);
        }
        self.spoil(from, out);
        self.injected.chunks += 1;
        self.injected.bytes += length as u64;
        self.injected.flagged += u64::from(!status.is_good());
        if self.strikes(faults.out_of_band) {
            self.signal(number as u32, out);
        }
        if self.strikes(faults.damaged_block) {
            self.fate = Fate::Damaged;
        }
        if self.strikes(faults.sequence_gap) {
            self.encoder.set_sequence(self.encoder.header().sequence + 1);
            self.injected.gaps += 1;
        }
    }

    fn signal(&mut self, signal: u32, out: &mut Vec<u8>) {
        let from = out.len();
        self.encoder.out_of_band(signal, out);
        self.spoil(from, out);
        self.injected.signals += 1;
    }

    /// Nothing comes for a while: what waits in the block goes, with filler behind it.
    pub(super) fn time_out(&mut self, out: &mut Vec<u8>) {
        let from = out.len();
        self.encoder.time_out(out);
        self.spoil(from, out);
    }

    fn strikes(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.unit() <= share
    }

    fn status(&mut self, faults: &Faults) -> Status {
        [
            (faults.error, Status::ERROR),
            (faults.crc, Status::CRC),
            (faults.truncated, Status::TRUNCATED),
            (faults.busy, Status::BUSY),
            (faults.timed_out, Status::TIMED_OUT),
        ]
        .into_iter()
        .filter(|&(share, _)| self.strikes(share))
        .fold(Status::GOOD, |all, (_, flag)| all.and(flag))
    }

    /// If a block went out that is to be damaged, it is: in its header, or in its last trailer, where the walk begins.
    fn spoil(&mut self, from: usize, out: &mut [u8]) {
        let bytes = self.encoder.format().block_bytes();
        if self.fate == Fate::Good || out.len() == from {
            return;
        }
        self.fate = Fate::Good;
        self.injected.damaged_blocks += 1;
        let block = &mut out[from..from + bytes];
        if self.random.below(2) == 0 {
            block[HEADER_BYTES - 1] ^= 0xff;
        } else {
            // The type that no card writes.
            block[bytes - 1] = 0xc0;
        }
    }
}
