//! What goes wrong in a push system, where, when and for how long: how that is drawn from a seed, and how packets are spoilt.

use super::scenario::{
    FAULTS_STREAM, MASKS_STREAM, MORE_FAULTS_STREAM, SLOW_READERS_STREAM, Scenario, TIMEOUTS_STREAM, source_id,
};
use crate::campaign::fault::{Fault, FaultKind, Place, Scheduled, moment, scheduled};
use ropewalk_engine::gateway::Order;
use ropewalk_flow::source::Random;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Whether a member is away meanwhile that the run waits for. Readers of decisions come and go as they like.
pub(super) const fn keeps_away(fault: &Fault) -> bool {
    use FaultKind::*;
    matches!(
        fault.kind,
        NodeSleeps | GatewaySleeps | TriggerSleeps | GatewayKilled | NodeKilled | NodeCutOff | NodeDeaf
    )
}

/// The way of packets that is bad (from sources, to nodes, from nodes, to triggers), and how: they are lost, doubled, disordered, late.
pub(super) const fn on_way(kind: FaultKind) -> Option<(usize, usize)> {
    let index = (kind as usize).wrapping_sub(FaultKind::FIRST_OF_PUSH);
    if index < 16 { Some((index / 4, index % 4)) } else { None }
}

/// How a source's packets are spoilt: which bit is wrong or how many bytes are left, and how many packets.
#[derive(Copy, Clone, Debug)]
pub(super) struct Spoiling {
    pub(super) kind: FaultKind,
    pub(super) detail: u64,
    pub(super) count: u64,
}

impl Spoiling {
    /// What a fault does to packets, if anything.
    pub(super) const fn of(fault: &Fault) -> Option<Self> {
        let (detail, count) = match fault.kind {
            FaultKind::PacketCutShort => (fault.count() >> 3, fault.count() & 7),
            FaultKind::PacketMisnumbered => (fault.count(), 1),
            FaultKind::PacketWrongPacking | FaultKind::PacketWrongPartition | FaultKind::PacketMalformed => {
                (0, fault.count())
            }
            _ => return None,
        };
        Some(Self { kind: fault.kind, detail, count })
    }

    /// Spoils the packet at the front of `bytes`, which has `length` bytes, and says how many it has afterwards.
    pub(super) fn spoil(self, bytes: &mut [u8], length: usize) -> usize {
        // The layout is `wire::mep`'s: first event, packing, length, partition, then the first fragment's event.
        let mut increase = |at: usize| bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = byte.wrapping_add(1));
        match self.kind {
            FaultKind::PacketCutShort => return length.saturating_sub(1).min(self.detail as usize),
            FaultKind::PacketWrongPacking => increase(4),
            FaultKind::PacketWrongPartition => increase(8),
            FaultKind::PacketMalformed => increase(12),
            _ => {
                let (at, bit) = (self.detail as usize / 8, self.detail % 8);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
            }
        }
        length
    }
}

/// The most faults of one run.
const MOST: u64 = 7;
/// How long faults last.
const LASTS: RangeInclusive<Duration> = Duration::from_micros(300)..=Duration::from_millis(400);
/// Gateways that are slow have a turn every so often at most.
const LEAST_PACE: Duration = Duration::from_micros(200);

/// The faults of a run whose triggers come for `span` once there are nodes.
pub(super) fn draw(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Scheduled> {
    let mut draw = Random::new(scenario.seed, FAULTS_STREAM);
    let count = if draw.one_in(12) { 0 } else { draw.between(1, MOST) };
    let mut before = Duration::ZERO;
    let mut faults = Vec::new();
    for _ in 0..count {
        let at = time(&mut draw, 6, begin, span, before);
        before = at.saturating_sub(begin);
        let fault = fault(&mut draw, scenario);
        faults.push(scheduled(&mut draw, at, fault, LASTS));
    }
    faults.sort_by_key(|scheduled| scheduled.at);
    // Three packets that agree on a far event would be believed.
    let mut strays = 0;
    faults.retain(|scheduled| {
        strays += usize::from(scheduled.fault.kind == FaultKind::PacketMisnumbered);
        scheduled.fault.kind != FaultKind::PacketMisnumbered || strays <= 2
    });
    faults
}

/// When something goes wrong: one in so many times before the begin, when nodes are still missing.
fn time(draw: &mut Random, rare: u64, begin: Duration, span: Duration, before: Duration) -> Duration {
    if draw.one_in(rare) {
        begin.mul_f64(draw.between(0, 10) as f64 / 10.0)
    } else {
        begin + moment(draw, span, before)
    }
}

/// More faults, of gateways' lives, halves, connections and readers: from a stream of their own.
pub(super) fn draw_more(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Scheduled> {
    let mut draw = Random::new(scenario.seed, MORE_FAULTS_STREAM);
    let more = (0..draw.below(4)).map(|_| {
        let at = time(&mut draw, 5, begin, span, Duration::ZERO);
        let fault = more_fault(&mut draw, scenario);
        scheduled(&mut draw, at, fault, LASTS)
    });
    more.collect()
}

/// Gateways that have too little of the processor for what comes, from the first trigger on and at some other time: more than a
/// set comes between two turns.
pub(super) fn draw_load(draw: &mut Random, scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Scheduled> {
    let shortest = scenario.flows.iter().map(|flow| flow.pace).min().unwrap_or_default();
    let mut load = Vec::new();
    for gateway in 0..scenario.gateways {
        let later = begin + moment(draw, span, Duration::ZERO);
        for (at, lasts) in [(begin, span.min(*LASTS.end())), (later, draw.time(*LASTS.start(), *LASTS.end()))] {
            let pace = draw.time(shortest, 2 * shortest).max(LEAST_PACE);
            let fault = Fault::at(FaultKind::GatewaySlow, Place::Gateway(gateway)).with_time(pace);
            load.push(Scheduled { at, lasts, fault });
        }
    }
    load
}

/// Readers of decisions who take little for a while: from a stream of their own.
pub(super) fn draw_slow_readers(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<Scheduled> {
    let mut draw = Random::new(scenario.seed, SLOW_READERS_STREAM);
    let readers = scenario.reader_places().len() as u64;
    if readers == 0 || draw.one_in(2) {
        return Vec::new();
    }
    let slow = (0..draw.between(1, 3)).map(|_| {
        let at = match draw.below(6) {
            0 => begin.mul_f64(draw.between(0, 10) as f64 / 10.0),
            1 => begin + draw.time(Duration::from_micros(10), Duration::from_millis(2)),
            _ => begin + moment(&mut draw, span, Duration::ZERO),
        };
        let fault = Fault::at(FaultKind::ReaderSlow, Place::Reader(draw.below(readers) as u16));
        let fault = fault.with_number(1 << draw.between(10, 16));
        scheduled(&mut draw, at, fault, LASTS)
    });
    slow.collect()
}

/// In some runs, sources that are taken out and in again, before the first trigger or while triggers come: never the first one of a flow,
/// so that one stays. From a stream of their own.
pub(super) fn draw_masks(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<(Duration, Order)> {
    let mut draw = Random::new(scenario.seed, MASKS_STREAM);
    let mut masks = Vec::new();
    let times = if draw.one_in(3) { draw.between(1, 4) } else { 0 };
    for _ in 0..times {
        let flow = draw.below(scenario.flows.len() as u64) as u8;
        let source = draw.between(1, u64::from(scenario.flows[usize::from(flow)].wanted()) - 1) as u16;
        let at = if draw.one_in(4) { Duration::ZERO } else { begin + moment(&mut draw, span, Duration::ZERO) };
        masks.push((at, Order::Mask(source_id(flow, source), true)));
        // Some are out for a moment, and some to the end.
        if !draw.one_in(4) {
            let at = at + draw.time(*LASTS.start(), span.max(2 * *LASTS.start()));
            masks.push((at, Order::Mask(source_id(flow, source), false)));
        }
    }
    masks
}

/// In some runs, time-outs that are changed while triggers come. From a stream of their own.
pub(super) fn draw_timeouts(scenario: &Scenario, begin: Duration, span: Duration) -> Vec<(Duration, Order)> {
    let mut draw = Random::new(scenario.seed, TIMEOUTS_STREAM);
    let times = if draw.one_in(4) { draw.between(1, 4) } else { 0 };
    let mut timing = |_| {
        let flow = draw.below(scenario.flows.len() as u64) as u16;
        let at = begin + moment(&mut draw, span, Duration::ZERO);
        (at, Order::SetTimeout(flow, draw.of(&[3, 10, 40, 100].map(Duration::from_millis))))
    };
    (0..times).map(&mut timing).collect()
}

fn more_fault(draw: &mut Random, scenario: &Scenario) -> Fault {
    let readers = scenario.reader_places().len() as u64;
    let (gateway, node) = (draw.below(scenario.gateways.into()) as u16, draw.below(scenario.nodes.len() as u64) as u16);
    let reader = Place::Reader(draw.below(readers.max(1)) as u16);
    let kind = draw.of(&FaultKind::ALL[FaultKind::FIRST_OF_LIVES..FaultKind::FIRST_OF_LOAD]);
    match kind {
        FaultKind::NodeDisconnected if scenario.connections => Fault::at(kind, Place::Node(node)),
        FaultKind::ReaderSleeps | FaultKind::ReaderLeaves if readers > 0 => Fault::at(kind, reader),
        FaultKind::GatewayKilled => Fault::at(kind, Place::Gateway(gateway)),
        // There are no connections, or no readers.
        _ if scenario.threads => Fault::at(FaultKind::GatewaySleeps, Place::Sending(gateway)),
        _ => Fault::at(FaultKind::NodeKilled, Place::Node(node)),
    }
}

fn fault(draw: &mut Random, scenario: &Scenario) -> Fault {
    use FaultKind::*;
    let kind = draw.of(&FaultKind::ALL[FaultKind::FIRST_OF_PUSH..FaultKind::FIRST_OF_LIVES]);
    let flow = draw.below(scenario.flows.len() as u64) as u8;
    let sources = scenario.flows[usize::from(flow)].sources.sources;
    let source = Place::FlowSource(flow, draw.below(sources.into()) as u16);
    let gateway = Place::Gateway(draw.below(scenario.gateways.into()) as u16);
    let node = Place::Node(draw.below(scenario.nodes.len() as u64) as u16);
    let count = draw.between(1, 6).cast_signed();
    match kind {
        SourceSilent => Fault::at(kind, source),
        PacketCutShort => Fault::at(kind, source).with_number(count + 8 * draw.of(&[0, 5, 14, 60])),
        PacketMisnumbered => Fault::at(kind, source).with_number(draw.below(32).cast_signed()),
        PacketWrongPacking | PacketWrongPartition | PacketMalformed => Fault::at(kind, source).with_number(count),
        StrangerPackets => Fault::new(kind),
        NodeKilled | NodeSleeps | NodeCutOff | NodeDeaf => Fault::at(kind, node),
        NodeSlow => Fault::at(kind, node).with_number(draw.between(2, 50).cast_signed()),
        GatewaySleeps => Fault::at(kind, gateway),
        TriggerSleeps => Fault::at(kind, Place::Trigger(flow)),
        QueueShort => match draw.below(8) {
            0 => Fault::at(ClockDrift, gateway).with_number(draw.of(&[-50_000, 50_000])),
            1 => Fault::at(DiskErrors, gateway),
            2 => {
                let latency = draw.time(Duration::from_millis(1), Duration::from_millis(60));
                Fault::at(DiskSlow, gateway).with_time(latency)
            }
            _ => Fault::new(kind),
        },
        _ => {
            let percent = draw.of(&[5, 30, 100]);
            let time = draw.time(Duration::from_micros(200), Duration::from_millis(60));
            let is_share = matches!(on_way(kind), Some((_, 0 | 1)));
            if is_share { Fault::new(kind).with_number(percent) } else { Fault::new(kind).with_time(time) }
        }
    }
}
