//! Emulated sources of multi-event packets: all sources of one flow, with all kinds of faults on the way of the
//! packets. The seed determines the faults, so that the losses are known exactly.

use super::{Random, SizeDistribution};
use core::time::Duration;
use ropewalk_wire::mep::{BANK_HEADER_BYTES, Bank, LARGEST_MEP_BYTES, MepEncoder, encode_bank};
use std::collections::VecDeque;

/// Configuration of all sources of a flow.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct MepSourceConfig {
    /// The seed of everything random.
    pub seed: u64,
    /// Number of sources.
    pub sources: u16,
    /// Number of events in a packet.
    pub packing: u16,
    /// The partition that the packets name.
    pub partition: u32,
    /// The first event.
    pub first_event: u64,
    /// Number of bytes of the banks of a fragment; at least a bank's header, rounded up to whole words of 4 bytes.
    pub size: SizeDistribution,
    /// Share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// Share of packets that are sent twice, 0 to 1.
    pub duplicates: f64,
    /// Share of packets that are sent after packets of later sets, 0 to 1.
    pub reordered: f64,
    /// By how many sets these are delayed.
    pub delay_sets: u16,
    /// Whether the sources' packets of a set are sent in a random order, instead of source by source.
    pub shuffled: bool,
    /// The longest time from a trigger to its packet.
    pub jitter: Duration,
}

impl MepSourceConfig {
    /// Returns a configuration of `sources` sources whose packets all arrive in order, with `packing` events per packet
    /// and `fragment_bytes` bytes per fragment.
    pub const fn new(sources: u16, packing: u16, fragment_bytes: u32) -> Self {
        Self {
            seed: 1,
            sources,
            packing,
            partition: 0,
            first_event: 0,
            size: SizeDistribution::Fixed(fragment_bytes),
            loss: 0.0,
            duplicates: 0.0,
            reordered: 0.0,
            delay_sets: 2,
            shuffled: false,
            jitter: Duration::ZERO,
        }
    }

    /// Returns the random numbers of a packet; always the same for the same packet.
    const fn random_of(&self, set: u64, source: u16) -> Random {
        Random::new(self.seed, set.wrapping_mul(0x1_0001).wrapping_add(source as u64 + 1))
    }

    /// Whether a packet is lost.
    pub fn is_lost(&self, set: u64, source: u16) -> bool {
        self.random_of(set, source).unit() <= self.loss
    }

    /// Appends the banks of a source's fragment of an event; always the same bytes for the same fragment.
    pub fn append_banks(&self, source: u16, event: u64, out: &mut Vec<u8>) {
        let mut random =
            Random::new(self.seed ^ 0x6d65_7021, event.wrapping_mul(0x1_0001).wrapping_add(u64::from(source)));
        // No fragment can be longer than its share of the longest packet.
        let most = LARGEST_MEP_BYTES / (usize::from(self.packing) + 1);
        let bytes = (self.size.next(&mut random) as usize).min(most).next_multiple_of(4);
        let words = bytes.saturating_sub(BANK_HEADER_BYTES) / 4;
        let start = out.len();
        let head = Bank { kind: 1, version: 1, source: source as i16, data: &[] };
        let is_short = encode_bank(&head, out).is_ok();
        debug_assert!(is_short, "a bank without data is short");
        let first = random.next_u64() as u32;
        (0..words as u32).for_each(|word| out.extend_from_slice(&first.wrapping_add(word).to_le_bytes()));
        // The data were written directly behind the header, whose length is set now.
        let length = (out.len() - start) as u16;
        out[start + 2..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// A packet that is sent, or lost.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EmulatedPacket {
    /// The set of events, from 0.
    pub set: u64,
    /// The source, from 0.
    pub source: u16,
    /// The gateway that the trigger named.
    pub gateway: u16,
    /// Whether the packet is lost and must not be sent.
    pub is_lost: bool,
    /// Whether the packet was sent before.
    pub is_duplicate: bool,
    /// The time from the trigger until it is sent.
    pub delay: Duration,
}

/// The sources of a flow.
#[derive(Debug)]
pub struct MepSources {
    config: MepSourceConfig,
    /// Number of triggered sets.
    sets: u64,
    gateway: u16,
    order: Box<[u16]>,
    next: usize,
    twice: Option<EmulatedPacket>,
    /// Delayed packets, each with the number of sets that must have been triggered.
    later: VecDeque<(u64, EmulatedPacket)>,
}

impl MepSources {
    /// Creates the sources before the first trigger.
    pub fn new(config: MepSourceConfig) -> Self {
        let room = usize::from(config.sources) * (usize::from(config.delay_sets) + 1);
        let order = (0..config.sources).collect::<Box<[_]>>();
        let next = order.len();
        Self { config, sets: 0, gateway: 0, order, next, twice: None, later: VecDeque::with_capacity(room) }
    }

    /// Returns their configuration.
    pub const fn config(&self) -> &MepSourceConfig {
        &self.config
    }

    /// Returns the number of triggered sets.
    pub const fn sets(&self) -> u64 {
        self.sets
    }

    /// Returns the first event of a set.
    pub const fn first_event(&self, set: u64) -> u64 {
        self.config.first_event + set * self.config.packing as u64
    }

    /// Triggers the next set for this gateway. Packets of the previous set that [`MepSources::next_packet`] has not
    /// returned are not sent any more.
    pub fn trigger(&mut self, gateway: u16) {
        (self.gateway, self.next, self.twice) = (gateway, 0, None);
        if self.config.shuffled {
            let mut random = Random::new(self.config.seed ^ 0x5b, self.sets);
            for last in (1..self.order.len()).rev() {
                self.order.swap(last, random.below(last as u64 + 1) as usize);
            }
        }
        self.sets += 1;
    }

    /// Returns the next packet of the triggered sets, including lost ones.
    pub fn next_packet(&mut self) -> Option<EmulatedPacket> {
        if let Some(packet) = self.twice.take() {
            return Some(packet);
        }
        if self.later.front().is_some_and(|(due, _)| *due <= self.sets) {
            return self.later.pop_front().map(|(_, packet)| packet);
        }
        loop {
            let source = *self.order.get(self.next)?;
            self.next += 1;
            let packet = self.packet(source);
            if !packet.is_lost && self.is_put_off(source) {
                self.later.push_back((self.sets + u64::from(self.config.delay_sets), packet));
                continue;
            }
            return Some(packet);
        }
    }

    /// Returns the next packet that still waits after the last trigger.
    pub fn next_late_packet(&mut self) -> Option<EmulatedPacket> {
        self.later.pop_front().map(|(_, packet)| packet)
    }

    fn packet(&mut self, source: u16) -> EmulatedPacket {
        let set = self.sets - 1;
        let mut random = self.config.random_of(set, source);
        let is_lost = random.unit() <= self.config.loss;
        let delay = self.config.jitter.mul_f64(1.0 - random.unit());
        let packet = EmulatedPacket { set, source, gateway: self.gateway, is_lost, is_duplicate: false, delay };
        if !is_lost && random.unit() <= self.config.duplicates {
            self.twice = Some(EmulatedPacket { is_duplicate: true, ..packet });
        }
        packet
    }

    fn is_put_off(&self, source: u16) -> bool {
        let has_room = self.later.len() < self.later.capacity() && self.twice.is_none();
        let mut random = Random::new(self.config.seed ^ 0x0dd, (self.sets << 16).wrapping_add(u64::from(source)));
        has_room && random.unit() <= self.config.reordered
    }

    /// Appends a packet's bytes.
    pub fn encode(&self, packet: &EmulatedPacket, out: &mut Vec<u8>) {
        let first = self.first_event(packet.set);
        let mut encoder = MepEncoder::new(first as u32, self.config.partition, out);
        let events = first..first + u64::from(self.config.packing);
        let mut fragments =
            events.map(|event| encoder.fragment(|out| self.config.append_banks(packet.source, event, out)));
        let is_short = fragments.all(|fragment| fragment.is_ok());
        debug_assert!(is_short, "fragments are cut so that a packet holds all of them");
        encoder.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_wire::mep::{Banks, MepView};
    use std::collections::BTreeSet;

    fn unruly() -> MepSourceConfig {
        let size = SizeDistribution::Uniform { least: 0, most: 90 };
        let (loss, duplicates, reordered) = (0.1, 0.1, 0.2);
        MepSourceConfig { size, loss, duplicates, reordered, shuffled: true, ..MepSourceConfig::new(40, 10, 0) }
    }

    #[test]
    fn every_packet_comes_once_but_what_is_lost_or_comes_twice_as_the_seed_says() {
        let mut sources = MepSources::new(unruly());
        let (mut sent, mut lost, mut twice) = (Vec::new(), BTreeSet::new(), 0);
        for set in 0..100 {
            sources.trigger((set % 2) as u16);
            sent.extend(core::iter::from_fn(|| sources.next_packet()));
        }
        sent.extend(core::iter::from_fn(|| sources.next_late_packet()));
        let mut seen = BTreeSet::new();
        let mut out_of_order = 0;
        for pair in sent.windows(2) {
            out_of_order += usize::from(pair[1].set < pair[0].set);
        }
        for packet in &sent {
            assert_eq!(u64::from(packet.gateway), packet.set % 2);
            assert_eq!(packet.is_lost, sources.config().is_lost(packet.set, packet.source));
            let place = (packet.set, packet.source);
            match (packet.is_lost, packet.is_duplicate) {
                (true, _) => assert!(lost.insert(place)),
                (false, true) => twice += 1,
                (false, false) => assert!(seen.insert(place)),
            }
        }
        assert_eq!(seen.len() + lost.len(), 4000);
        assert!(lost.len() > 200 && twice > 200 && out_of_order > 50, "{} {twice} {out_of_order}", lost.len());
    }

    #[test]
    fn packets_are_whole_and_say_what_they_are_of() {
        for config in [unruly(), MepSourceConfig { first_event: 0xFFFF_FFF0, ..MepSourceConfig::new(3, 32, 9000) }] {
            let mut sources = MepSources::new(config);
            (0..3).for_each(|_| sources.trigger(0));
            let packet = sources.next_packet().expect("the first");
            let mut bytes = Vec::new();
            sources.encode(&packet, &mut bytes);
            let view = MepView::parse(&bytes).expect("a packet");
            let first = config.first_event + 2 * u64::from(config.packing);
            assert_eq!((view.header().first_event, view.header().packing), (first as u32, config.packing));
            for ((_, banks), event) in view.fragments().zip(first..) {
                let read: Vec<_> = Banks::new(banks).map(|bank| bank.expect("a bank").source).collect();
                assert_eq!(read, [packet.source as i16]);
                let mut again = Vec::new();
                config.append_banks(packet.source, event, &mut again);
                assert_eq!(banks, again);
            }
        }
    }
}
