//! Sources that push packets whose numbers are wrong: flipped bits, packets left out, sent twice or out of order, and counters that start
//! again.
//!
//! ```text
//!   sources --packets with numbers--> Assembly --what was placed--> which set is each packet truly of?
//! ```
//! What must hold: a source with k bad packets loses k packets at most, one without any loses none, and no packet is in another set than
//! its own.

use super::draw::Draw;
use super::outcome::{Broken, Checker};
use super::stand::pool;
use ropewalk_flow::gateway::{Address, Assembly, FlowConfig, PacketSource, SourceAccount};
use ropewalk_memory::Staging;
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::mep::encode_mep;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Sets that a source leaves out at once.
const MOST_GAP: u64 = 8;
/// A counter that starts again before is not further behind than one whose source is left out for a while.
const LEAST_COUNTED: u64 = 3 * MOST_GAP;
/// From one mishap to the next one: what is wrong at once cannot be told apart.
const LEAST_APART: u64 = 10;
/// Packets in a row behind the newest one that show a restart.
const UNTIL_SHOWN: u64 = 8;

/// What is wrong with a source's packet of one set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// This bit of the packet's number is flipped; its fragments have the right ones.
    Flip(u8),
    /// Packets of so many sets, from this one on, are left out.
    Gap(u64),
    /// It is sent twice.
    Twice,
    /// It is sent behind the next one.
    Swap,
    /// The counter starts again with it, and is right again so many sets later.
    Restart(u64),
}

/// A flow of one gateway and what goes wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The seed of all chances.
    pub seed: u64,
    /// Of each source by set, from 0 on.
    pub mishaps: Vec<BTreeMap<u64, Mishap>>,
    /// How many sets this gateway gets.
    pub sets: u64,
    /// Events in a packet.
    pub packing: u16,
    /// Every so manieth set is this gateway's.
    pub gateways: u64,
    /// The number of the first event; numbers of packets have 32 bits of it.
    pub first_event: u64,
    /// By how many sets each source lags behind the first one.
    pub lags: Vec<u64>,
}

impl Scenario {
    /// The scenario of a seed. In every eighth nothing is wrong.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 91);
        let sets = draw.between(40, 300);
        let sources = draw.between(2, 5);
        let first_event = match draw.below(3) {
            0 => 0,
            // The numbers wrap in the run.
            1 => (1 << 32) - draw.between(1, 4000),
            _ => draw.below(1 << 33),
        };
        let mut mishaps: Vec<_> = (0..sources).map(|_| Self::draw_mishaps(&mut draw, sets)).collect();
        if seed.is_multiple_of(8) {
            mishaps.iter_mut().for_each(BTreeMap::clear);
        }
        // Another source shows how far the run has come.
        mishaps[0].retain(|_, mishap| !matches!(mishap, Mishap::Restart(_)));
        let lags = (0..sources).map(|source| if source == 0 { 0 } else { draw.below(4) }).collect();
        let (packing, gateways) = (draw.between(1, 40) as u16, draw.between(1, 4));
        Self { seed, mishaps, sets, packing, gateways, first_event, lags }
    }

    fn draw_mishaps(draw: &mut Draw, sets: u64) -> BTreeMap<u64, Mishap> {
        let mut mishaps = BTreeMap::new();
        // The first packets after a restart have their sets where these lack one still.
        let mut set = draw.between(UNTIL_SHOWN + 1, 20);
        while set < sets {
            let mishap = match draw.below(6) {
                0 | 1 => Mishap::Flip(draw.below(32) as u8),
                2 => Mishap::Gap(draw.between(1, MOST_GAP)),
                3 => Mishap::Twice,
                4 => Mishap::Swap,
                _ if set >= LEAST_COUNTED => Mishap::Restart(draw.between(1, 200)),
                _ => Mishap::Twice,
            };
            mishaps.insert(set, mishap);
            set += draw.between(LEAST_APART, 80);
            set += if let Mishap::Restart(wrong) = mishap { wrong } else { 0 };
        }
        mishaps
    }

    /// The first event of a set.
    const fn first_of(&self, set: u64) -> u64 {
        self.first_event + set * self.gateways * self.packing as u64
    }

    /// What a source sends: each packet's true set, the set that its counter shows, and a bit of that which is flipped.
    fn packets(&self, source: usize) -> Vec<(u64, u64, Option<u8>)> {
        let mut packets = Vec::new();
        let (mut set, mut swapped, mut wrong) = (0, None, 0..0);
        while set < self.sets {
            let mishap = self.mishaps[source].get(&set).copied();
            if let Some(Mishap::Gap(count)) = mishap {
                set += count;
                continue;
            }
            if let Some(Mishap::Restart(count)) = mishap {
                wrong = set..set + count;
            }
            let shown = if wrong.contains(&set) { set - wrong.start } else { set };
            let flipped = if let Some(Mishap::Flip(bit)) = mishap { Some(bit) } else { None };
            match mishap {
                Some(Mishap::Swap) => swapped = Some((set, shown, flipped)),
                _ => packets.push((set, shown, flipped)),
            }
            packets.extend((mishap == Some(Mishap::Twice)).then_some((set, shown, flipped)));
            if mishap != Some(Mishap::Swap) {
                packets.extend(swapped.take());
            }
            set += 1;
        }
        packets.extend(swapped);
        packets
    }
}

/// An assembly, and what comes to it.
pub struct World {
    scenario: Scenario,
    assembly: Assembly,
    staging: Staging,
    /// By source: sets of which a packet is in the right place.
    placed: Vec<BTreeSet<u64>>,
}

fn address(source: usize) -> Address {
    Address { ip: (0x0a00_0001 + source as u32).into(), port: 0 }
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let sources = scenario.mishaps.len();
        let source = |source| PacketSource { id: SourceId(source as u32), address: address(source) };
        let flow = FlowConfig::new((0..sources).map(source).collect(), scenario.packing);
        let timeout = Duration::from_millis(20);
        let assembly = Assembly::new(0, &FlowConfig { first_event: scenario.first_event, timeout, ..flow });
        let staging = Staging::new(pool("packets", 1 << 12, 600));
        Self { assembly, staging, placed: vec![BTreeSet::new(); sources], scenario }
    }

    /// Mixed from everything that came out: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let account = self.assembly.account();
        account.complete << 32 ^ account.incomplete << 16 ^ account.packets.accounted()
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        let packets: Vec<_> = (0..self.placed.len()).map(|source| self.scenario.packets(source)).collect();
        let lags = self.scenario.lags.clone();
        let mut next = vec![0; packets.len()];
        // A millisecond a set.
        for step in 0..self.scenario.sets + MOST_GAP {
            let now = Instant::ZERO.after(Duration::from_millis(step));
            for (source, next) in next.iter_mut().enumerate() {
                while let Some(&packet) = packets[source].get(*next).filter(|(set, ..)| set + lags[source] <= step) {
                    *next += 1;
                    self.send(source, packet, now)?;
                }
            }
            self.assembly.on_drained(now);
            self.assembly.on_time(now);
            self.give_back();
        }
        self.assembly.close_all(Cause::DrainTimedOut);
        self.give_back();
        let account = self.assembly.account();
        Broken::unless(account.is_balanced() && account.packets.in_flight == 0, Checker::Ledger, || {
            format!("{account:?}")
        })?;
        (0..packets.len()).try_for_each(|source| self.judge(source, &packets[source]))
    }

    fn send(&mut self, source: usize, packet: (u64, u64, Option<u8>), now: Instant) -> Result<(), Broken> {
        let (set, shown, flipped) = packet;
        let (mut bytes, fragment) = (Vec::new(), [7_u8; 2]);
        let fragments = (0..self.scenario.packing).map(|_| &fragment[..]);
        encode_mep(self.scenario.first_of(shown) as u32, 0, fragments, &mut bytes).expect("a short packet");
        if let Some(bit) = flipped {
            bytes[usize::from(bit / 8)] ^= 1 << (bit % 8);
        }
        self.staging.pool_mut().collect();
        let payload = self.staging.write(&bytes).expect("there is room for a few packets").into();
        let before = self.account(source).packets;
        let refused = self.assembly.on_packet(address(source), payload, now).is_some();
        Broken::unless(!refused, Checker::Bounds, || format!("no set is free for set {set}"))?;
        if self.account(source).packets > before {
            let is_right = shown == set && flipped.is_none();
            Broken::unless(is_right, Checker::Content, || {
                format!("source {source}: set {shown} got a packet of {set}")
            })?;
            self.placed[source].insert(set);
        }
        Ok(())
    }

    fn account(&self, source: usize) -> SourceAccount {
        self.assembly.by_source()[source]
    }

    fn give_back(&mut self) {
        while let Some(set) = self.assembly.take_finished() {
            self.assembly.give_back(set);
        }
    }

    /// What must hold of a source in the end.
    fn judge(&self, source: usize, packets: &[(u64, u64, Option<u8>)]) -> Result<(), Broken> {
        let is_good = |(set, shown, flipped): &&(u64, u64, Option<u8>)| set == shown && flipped.is_none();
        let good = packets.iter().filter(is_good).map(|&(set, ..)| set);
        let lost: BTreeSet<u64> = good.filter(|set| !self.placed[source].contains(set)).collect();
        Broken::unless(lost.is_empty(), Checker::Loss, || {
            format!("source {source} lost good packets of sets {lost:?}: {:?}", self.account(source))
        })?;
        let restarts = self.scenario.mishaps[source].iter();
        let is_shown = |&(&set, mishap): &(&u64, &Mishap)| matches!(*mishap, Mishap::Restart(count) if count.min(self.scenario.sets - set) >= UNTIL_SHOWN);
        let restarts = restarts.filter(is_shown);
        let (shown, told) = (restarts.count() as u64, self.account(source).restarts);
        Broken::unless(shown == told, Checker::Keys, || {
            format!("source {source} restarted {shown} times, and {told} are told")
        })
    }
}
