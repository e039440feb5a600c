//! What must hold of a gateway: by hand, rule by rule, and in a world of sources and nodes where things go wrong.

mod by_hand;
mod farm;
mod halves;
mod histograms;
mod masking;
mod node;
mod throttle;
mod view;
mod world;

use super::*;
use core::net::Ipv4Addr;
use core::time::Duration;
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::mep::encode_mep;

/// Milliseconds after the start.
fn at(milliseconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_millis(milliseconds))
}

/// The address of a source.
fn address(source: u16) -> Address {
    Address::of(Ipv4Addr::from_bits(0x0A00_0000 + u32::from(source)))
}

/// A flow of so many sources, with so many events in a set.
fn flow(sources: u16, packing: u16) -> FlowConfig {
    let source = |index| PacketSource { id: SourceId(u32::from(index)), address: address(index) };
    FlowConfig::new((0..sources).map(source).collect(), packing)
}

/// Bytes in a pool.
struct Bench {
    staging: Staging,
}

impl Bench {
    fn new() -> Self {
        Self { staging: Staging::new(Pool::new(PoolConfig::heap("gateway", 1 << 12, 400)).expect("memory")) }
    }

    fn payload(&mut self, bytes: &[u8]) -> Payload {
        self.staging.pool_mut().collect();
        self.staging.write(bytes).expect("room").into()
    }

    /// A packet of fragments that all have `fill` in them, `length` times.
    fn packet(&mut self, first: u64, packing: u16, fill: u8, length: usize) -> Payload {
        let mut bytes = Vec::new();
        let fragment = vec![fill; length];
        encode_mep(first as u32, 0, (0..packing).map(|_| &fragment[..]), &mut bytes).expect("it is short");
        self.payload(&bytes)
    }

    /// Blocks in which packets lie that somebody has.
    fn held(&mut self) -> usize {
        // A fresh one is written to next, so that no packet lies in it.
        let largest = self.staging.largest();
        self.staging.room(largest).expect("room");
        let pool = self.staging.pool_mut();
        pool.collect();
        pool.held() - 1
    }
}
