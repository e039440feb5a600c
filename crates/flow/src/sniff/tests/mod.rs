//! What is hidden in frames is found, and what is not there is not.

mod datagrams;
mod layouts;
mod properties;
mod streams;

use super::*;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use ropewalk_terms::Instant;
use ropewalk_wire::layout::Number;

/// The peer with this number.
fn peer(number: u8, transport: Transport) -> Peer {
    Peer { port: 9000, transport, from: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)), 5000) }
}

/// Numbers that look random and are always the same.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ (self.0 << 31)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = (self.next() >> 24) as u8);
    }
}

fn only(sniffer: &Sniffer) -> Group {
    let mut groups = sniffer.findings().groups;
    assert_eq!(groups.len(), 1, "{groups:#?}");
    groups.remove(0)
}

/// The counters of frames that were found, and whether peers share them.
fn frame_counters(group: &Group) -> Vec<(Number, bool)> {
    let counters = group.guesses.iter().filter_map(|guess| match guess.meaning {
        Meaning::FrameCounter { number, is_shared } => Some((number, is_shared)),
        _ => None,
    });
    counters.collect()
}

/// The clocks that were found: where, and the tick in nanoseconds.
fn clocks(group: &Group) -> Vec<(Number, f64)> {
    let clocks = group.guesses.iter().filter_map(|guess| match guess.meaning {
        Meaning::Clock { number, tick, .. } => Some((number, tick)),
        _ => None,
    });
    clocks.collect()
}

/// Everything that was found, as a person reads it.
fn told(group: &Group) -> String {
    group.guesses.iter().map(|guess| format!("{guess}\n")).collect()
}

fn at(nanoseconds: u64) -> Instant {
    Instant::from_nanoseconds(nanoseconds)
}
