//! Packets that have the right lengths: those of all sources of a set share their bytes.

use super::system::FlowSection;
use ropewalk_flow::source::{Random, SizeDistribution};
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_wire::mep::{BANK_HEADER_BYTES, MepEncoder};

/// So many different packets a set has where sizes are random: sources have them in turn.
const KINDS: usize = 8;
/// Bytes of a block; no packet is longer.
const BLOCK: usize = 128 << 10;
/// Blocks of a pool.
const BLOCKS: usize = 64;

/// Memory for packets: another pool where all others are in use.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pools: Vec<Staging>,
}

impl Memory {
    fn keep(&mut self, bytes: &[u8]) -> Payload {
        for staging in &mut self.pools {
            staging.pool_mut().collect();
            if let Some(slice) = staging.write(bytes) {
                return slice.into();
            }
        }
        let pool =
            Pool::new_untouched(PoolConfig::heap("packets", BLOCK, BLOCKS)).expect("memory for a few more packets");
        let mut staging = Staging::new(pool);
        let slice = staging.write(bytes).expect("a new pool has room for a packet");
        self.pools.push(staging);
        slice.into()
    }
}

/// Makes a flow's packets.
#[derive(Debug)]
pub(super) struct PacketMaker {
    size: SizeDistribution,
    most_banks: u32,
    packing: u16,
    random: Random,
    bytes: Vec<u8>,
}

impl PacketMaker {
    pub(super) fn new(section: &FlowSection, seed: u64) -> Self {
        Self {
            size: section.fragment_size.0,
            most_banks: section.most_banks() as u32,
            packing: section.packing,
            random: Random::new(seed, 0x9ac),
            bytes: Vec::new(),
        }
    }

    /// The packets of the set that begins with this event: source `n` has number `n`, modulo how many there are.
    pub(super) fn make(&mut self, first_event: u64, memory: &mut Memory) -> Vec<Payload> {
        let kinds = if matches!(self.size, SizeDistribution::Fixed(_)) { 1 } else { KINDS };
        (0..kinds).map(|_| self.packet(first_event, memory)).collect()
    }

    fn packet(&mut self, first_event: u64, memory: &mut Memory) -> Payload {
        let Self { size, most_banks, packing, random, bytes } = self;
        bytes.clear();
        let mut encoder = MepEncoder::new(first_event as u32, 0, bytes);
        for _ in 0..*packing {
            let banks = size.next(random).next_multiple_of(4).clamp(BANK_HEADER_BYTES as u32, *most_banks);
            // What is in a bank nobody looks at.
            let fits = encoder.fragment(|out| out.resize(out.len() + banks as usize, 0));
            fits.expect("banks are as long as their share of a packet at most");
        }
        encoder.finish();
        memory.keep(&self.bytes)
    }
}
