//! What unknown datagrams may mean: which of their fields count, tell the time, hold the length, or never change.
//!
//! ```text
//!  datagrams --> Sniffer: who sends how much where, and the first bytes of some of them
//!      finish -> numbers: which numbers count, are clocks, are the length
//!             -> draft: what a configuration would say of it
//! ```
//! Guesses follow from the bytes alone, and are no more than that: a number that was one more from datagram to datagram of a sender
//! in what was seen. Memory is bounded, whatever comes.

mod draft;
mod numbers;
#[cfg(test)]
mod tests;

pub use draft::tick_text;

use core::net::{IpAddr, SocketAddr};
use ropewalk_terms::Utc;
use std::collections::BTreeMap;

/// Bytes of a datagram's beginning that are looked at.
pub const HEAD_BYTES: usize = 64;
/// Datagrams of a sender that are looked at.
const MOST_HEADS: usize = 512;
/// Senders that are told apart.
const MOST_SENDERS: usize = 256;

/// A number in a datagram, by its place.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NumberPlace {
    /// Where it begins.
    pub at: usize,
    /// Its bytes: 1, 2, 4 or 8.
    pub bytes: usize,
    /// The highest byte comes first.
    pub is_big_endian: bool,
}

impl NumberPlace {
    /// Its type as configurations write it.
    pub fn type_text(&self) -> String {
        let order = match (self.bytes, self.is_big_endian) {
            (1, _) => "",
            (_, true) => "be",
            (_, false) => "le",
        };
        format!("u{}{order}", 8 * self.bytes)
    }

    /// The number in a head that is long enough.
    fn read(&self, head: &Head) -> u64 {
        let bytes = &head.bytes[self.at..self.at + self.bytes];
        let push = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.is_big_endian { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) }
    }

    const fn mask(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes)
    }

    const fn overlaps(&self, other: &Self) -> bool {
        self.at < other.at + other.bytes && other.at < self.at + self.bytes
    }
}

/// What a field may mean.
#[derive(Clone, PartialEq, Debug)]
pub enum Meaning {
    /// It is one more from datagram to datagram of a sender.
    Counter,
    /// It goes on with the time: so many nanoseconds a tick, about.
    Clock {
        /// The length of a tick.
        tick_nanoseconds: f64,
    },
    /// The datagram has `unit` times as many bytes, and `more`.
    Length {
        /// Bytes that each of it stands for.
        unit: u64,
        /// Bytes that it does not count.
        more: i64,
    },
    /// It is the same in all datagrams.
    Constant(Vec<u8>),
    /// It is the same in all datagrams of a sender, and differs between senders.
    Sender,
}

/// A guess about a field.
#[derive(Clone, PartialEq, Debug)]
pub struct Guess {
    /// Where it is; of [`Meaning::Constant`] and [`Meaning::Sender`] the bytes in their order.
    pub place: NumberPlace,
    /// What it may mean.
    pub meaning: Meaning,
}

/// What a sender sent.
#[derive(Clone, PartialEq, Debug)]
pub struct Sender {
    /// Whence.
    pub address: SocketAddr,
    /// Datagrams.
    pub datagrams: u64,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// The shortest one.
    pub least_bytes: usize,
    /// The longest one.
    pub most_bytes: usize,
    /// Datagrams in a second; none where that cannot be told.
    pub rate_hz: Option<f64>,
}

/// What goes to a port.
#[derive(Clone, PartialEq, Debug)]
pub struct Sniffed {
    /// The port.
    pub port: u16,
    /// Who sends to it.
    pub senders: Vec<Sender>,
    /// What their fields may mean, in the order of their places.
    pub guesses: Vec<Guess>,
    /// What a configuration would say, in TOML.
    pub draft: String,
    /// The first bytes of some datagrams.
    pub heads: Vec<Vec<u8>>,
}

/// The beginning of a datagram.
#[derive(Clone, Debug)]
struct Head {
    bytes: Vec<u8>,
    length: usize,
    time: Option<Utc>,
}

/// What is kept of a sender.
#[derive(Clone, Debug, Default)]
struct Sample {
    datagrams: u64,
    bytes: u64,
    least_bytes: usize,
    most_bytes: usize,
    times: Option<(Utc, Utc)>,
    heads: Vec<Head>,
}

/// Looks at datagrams as they pass.
#[derive(Clone, Debug, Default)]
pub struct Sniffer {
    samples: BTreeMap<(u16, SocketAddr), Sample>,
    left_out: u64,
}

impl Sniffer {
    /// Nothing has passed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A datagram passes.
    pub fn push(&mut self, source: SocketAddr, port: u16, time: Option<Utc>, payload: &[u8]) {
        let whose = (port, source);
        if self.samples.len() >= MOST_SENDERS && !self.samples.contains_key(&whose) {
            self.left_out += 1;
            return;
        }
        let sample = self.samples.entry(whose).or_default();
        let length = payload.len();
        sample.least_bytes = if sample.datagrams == 0 { length } else { sample.least_bytes.min(length) };
        sample.most_bytes = sample.most_bytes.max(length);
        sample.datagrams += 1;
        sample.bytes += length as u64;
        if let Some(time) = time {
            let (first, last) = sample.times.unwrap_or((time, time));
            sample.times = Some((first.min(time), last.max(time)));
        }
        if sample.heads.len() < MOST_HEADS {
            let bytes = payload[..length.min(HEAD_BYTES)].to_vec();
            sample.heads.push(Head { bytes, length, time });
        }
    }

    /// Datagrams of senders beyond those that are told apart.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What goes to each port, the busiest one first.
    pub fn finish(self) -> Vec<Sniffed> {
        let mut ports: BTreeMap<u16, Vec<(SocketAddr, Sample)>> = BTreeMap::new();
        for ((port, source), sample) in self.samples {
            ports.entry(port).or_default().push((source, sample));
        }
        let mut sniffed: Vec<Sniffed> = ports.into_iter().map(|(port, samples)| sniffed(port, &samples)).collect();
        let datagrams = |sniffed: &Sniffed| sniffed.senders.iter().map(|sender| sender.datagrams).sum::<u64>();
        sniffed.sort_by_key(|sniffed| core::cmp::Reverse(datagrams(sniffed)));
        sniffed
    }
}

fn sniffed(port: u16, samples: &[(SocketAddr, Sample)]) -> Sniffed {
    let senders = samples.iter().map(|(address, sample)| Sender {
        address: *address,
        datagrams: sample.datagrams,
        bytes: sample.bytes,
        least_bytes: sample.least_bytes,
        most_bytes: sample.most_bytes,
        rate_hz: sample.rate_hz(),
    });
    let senders: Vec<Sender> = senders.collect();
    let heads: Vec<&[Head]> = samples.iter().map(|(_, sample)| &sample.heads[..]).collect();
    let guesses = numbers::guesses(&heads);
    let addresses: Vec<IpAddr> = samples.iter().map(|(address, _)| address.ip()).collect();
    let longest = senders.iter().map(|sender| sender.most_bytes).max().unwrap_or_default();
    let draft = draft::draft(port, &addresses, &guesses, longest);
    let some = samples.iter().flat_map(|(_, sample)| sample.heads.iter().take(2)).take(4);
    Sniffed { port, senders, guesses, draft, heads: some.map(|head| head.bytes.clone()).collect() }
}

impl Sample {
    fn rate_hz(&self) -> Option<f64> {
        let (first, last) = self.times?;
        let nanoseconds = last.0.saturating_sub(first.0);
        (nanoseconds > 0).then(|| (self.datagrams - 1) as f64 * 1e9 / nanoseconds as f64)
    }
}
