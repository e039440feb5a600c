//! The reports of gateways in the terms of every run: an input queue of a gateway is a builder unit, `bu0` and so on as
//! in the names of its run files; a packet is a fragment, a set of events a buffer.

use ropewalk_config::FlowSection;
use ropewalk_engine::gateway::{CellsBySource, FarmNodeReport, GatewayReport, PacketSourceReport, Shown};
use ropewalk_engine::{MaskRecord, MaskedInterval, Part, RunSnapshot, numbering_of};
use ropewalk_flow::gateway::{FlowAccount, Recount, SourceAccount};
use ropewalk_flow::messages::{NumberingAnomaly, NumberingKind};
use ropewalk_monitor::{NodeSample, Numbers, Sample, SourceSample};
use ropewalk_terms::{ByCause, Cause, Counter, EventKey, FragmentAccount, NodeId, SourceId, StreamIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The reports of the gateways, farm nodes and emulated sources of this process.
#[derive(Clone, Debug, Default)]
pub struct GatewaySnapshot {
    /// The number of this process's first input queue among all of the system. The others follow it.
    pub first_unit: u16,
    /// The input queues of gateways, by name.
    pub gateways: Vec<(String, GatewayReport)>,
    /// The throttle state sent to the trigger hardware of each queue, if it has any.
    pub hardware: Vec<Option<Shown>>,
    /// Emulated sources: the index of their flow, and their report.
    pub sources: Vec<(usize, PacketSourceReport)>,
    /// Farm nodes.
    pub nodes: Vec<FarmNodeReport>,
}

/// Returns the account of each source's packets, over all gateways, and their bytes.
fn sources(snapshot: &GatewaySnapshot, flows: &[FlowSection]) -> BTreeMap<SourceId, (FragmentAccount, u64)> {
    let mut sources: BTreeMap<SourceId, (FragmentAccount, u64)> = BTreeMap::new();
    for (_, gateway) in &snapshot.gateways {
        for (report, section) in gateway.flows.iter().zip(flows) {
            let ids = section.sources.entries(false).map(|(id, _)| SourceId(id));
            for (id, account) in ids.zip(&report.by_source) {
                let (fragments, bytes) = sources.entry(id).or_default();
                fragments.merge(&fragments_of(account, &report.packets));
                *bytes += account.bytes;
            }
        }
    }
    sources
}

/// Returns the account of a source's packets. Each complete set in which it took part has one of them. The other
/// finished sets have one unless it is missing. Packets of dropped sets count as those of incomplete ones. Late, early
/// and duplicate packets are only in the account of the flow.
fn fragments_of(account: &SourceAccount, flow: &FlowAccount) -> FragmentAccount {
    let in_complete_events = flow.complete.saturating_sub(account.left_out_of_complete);
    let other = (flow.incomplete + flow.dropped.total()).saturating_sub(account.left_out_of_incomplete);
    let in_incomplete_events = other.saturating_sub(account.missing);
    let (mut missing, mut dropped) = (ByCause::default(), ByCause::default());
    missing.add(Cause::TimedOut, account.missing);
    dropped.add(Cause::Masked, account.masked);
    dropped.add(Cause::OutOfSync, account.out_of_sync);
    FragmentAccount {
        received: account.packets + account.masked + account.out_of_sync + account.corrupt,
        corrupt: account.corrupt,
        in_complete_events,
        in_incomplete_events,
        in_flight: account.packets.saturating_sub(in_complete_events + in_incomplete_events),
        missing,
        dropped,
        ..FragmentAccount::default()
    }
}

/// Returns the restarts of each source's numbering. Every queue sees them; those of the queue that saw most count. A
/// queue knows the numbers of the last one.
fn numbering(snapshot: &GatewaySnapshot, flows: &[FlowSection]) -> BTreeMap<SourceId, Vec<NumberingAnomaly>> {
    let mut sources: BTreeMap<SourceId, SourceAccount> = BTreeMap::new();
    for (_, gateway) in &snapshot.gateways {
        for (report, section) in gateway.flows.iter().zip(flows) {
            let ids = section.sources.entries(false).map(|(id, _)| SourceId(id));
            for (id, account) in ids.zip(&report.by_source).filter(|(_, account)| account.restarts > 0) {
                sources.entry(id).or_default().merge(account);
            }
        }
    }
    let anomalies = |account: SourceAccount| {
        let Recount { from, to } = account.last_restart;
        let (from, to) = (u64::from(from), u64::from(to));
        let anomaly =
            NumberingAnomaly { kind: NumberingKind::OutOfSync, key: EventKey::new(0, from), from, to, size: 0 };
        vec![anomaly; account.restarts as usize]
    };
    sources.into_iter().map(|(source, account)| (source, anomalies(account))).collect()
}

/// Returns the effects of masks on each source that was masked during the run. Each queue chose its own events. An
/// interval extends from the first to the last one of them, so that outside of it the source took part in every queue.
fn masks(snapshot: &GatewaySnapshot, flows: &[FlowSection]) -> BTreeMap<SourceId, MaskRecord> {
    let mut turns: BTreeMap<SourceId, Vec<&[EventKey]>> = BTreeMap::new();
    for (index, section) in flows.iter().enumerate() {
        let queues = || snapshot.gateways.iter().filter_map(|(_, gateway)| gateway.flows.get(index));
        let ids: Vec<u32> = section.sources.entries(false).map(|(id, _)| id).collect();
        let mentioned: BTreeSet<u16> = queues().flat_map(|known| &known.masked).map(|one| one.source).collect();
        for place in mentioned {
            let Some(&id) = ids.get(usize::from(place)) else { continue };
            let of_queue = queues().map(|known| {
                let one = known.masked.iter().find(|one| one.source == place);
                one.map(|one| one.turns.as_slice()).unwrap_or_default()
            });
            turns.entry(SourceId(id)).or_default().extend(of_queue);
        }
    }
    turns.into_iter().map(|(source, turns)| (source, record_of(&turns))).collect()
}

/// Combines the mask changes of a source in each queue. All queues get the same changes, some of them a moment later.
fn record_of(turns: &[&[EventKey]]) -> MaskRecord {
    let lengths = || turns.iter().map(|turns| turns.len());
    let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
    let part = match (most % 2 == 1, least == most) {
        (true, true) => Part::Masked,
        (false, false) => Part::AskedBack,
        _ => Part::Takes,
    };
    let interval = |from: usize| {
        let known = |turn: usize| turns.iter().filter_map(move |turns| turns.get(turn).copied());
        let to = known(from + 1).max().filter(|_| least > from + 1);
        Some(MaskedInterval { from: known(from).min()?, to })
    };
    MaskRecord { part, intervals: (0..most).step_by(2).filter_map(interval).collect() }
}

/// Returns the queues, each with its number as a builder unit.
fn queues(snapshot: &GatewaySnapshot) -> impl Iterator<Item = (NodeId, &GatewayReport)> {
    (snapshot.first_unit..).zip(&snapshot.gateways).map(|(number, (_, report))| (NodeId::builder(number), report))
}

/// Returns the losses before all queues.
fn lost(snapshot: &GatewaySnapshot) -> ByCause {
    let mut lost = ByCause::default();
    snapshot.gateways.iter().flat_map(|(_, gateway)| &gateway.received).for_each(|input| lost.merge(&input.lost));
    lost
}

/// Returns the maximum time in which all gateways stopped the trigger simultaneously.
fn dead(snapshot: &GatewaySnapshot) -> Duration {
    snapshot.gateways.iter().map(|(_, gateway)| gateway.dead).min().unwrap_or_default()
}

impl GatewaySnapshot {
    /// Returns the snapshot of a run. `empty` has its number and phase.
    pub(crate) fn run_snapshot(&self, flows: &[FlowSection], empty: RunSnapshot) -> RunSnapshot {
        let mut run = empty;
        for (node, gateway) in queues(self) {
            run.nodes.push((node, true));
            let numbers = Numbers::from_iter(gateway.all_numbers());
            for &counter in ropewalk_terms::COUNTERS {
                if let Some(value) = numbers.known(counter) {
                    *run.counters.entry(counter).or_default() += value;
                }
            }
            let failing = i32::try_from(numbers.get(Counter::DiskFailing)).ok().filter(|&error| error > 0);
            run.failing_disks.extend(failing.map(|error| (node, error)));
            for (index, account) in (0..).map(StreamIndex).zip(&gateway.streams) {
                run.streams.entry(index).or_default().merge(account);
                run.ledger.streams.merge(account);
            }
            for flow in &gateway.flows {
                count_flow(&flow.packets, &mut run);
                run.ledger.events.merge(&flow.events.events);
            }
        }
        // Sets are lent to events and returned, like blocks of a pool.
        run.ledger.pools.held = run.counter(Counter::PoolHeld);
        let flows_of_all = self.gateways.iter().flat_map(|(_, gateway)| &gateway.flows);
        let lent: u64 = flows_of_all.map(|flow| flow.packets.opened).sum();
        run.ledger.pools.loans = lent.max(run.ledger.pools.held);
        run.ledger.pools.returned = run.ledger.pools.loans - run.ledger.pools.held;
        run.ledger.events.written = run.counter(Counter::EventsWritten);
        run.sources = sources(self, flows).into_iter().map(|(id, (account, _))| (id, account)).collect();
        run.numbering = numbering(self, flows);
        run.masks = masks(self, flows);
        run.lost_datagrams.insert(None, lost(self));
        run
    }

    /// Returns the numbers of each gateway and source, and the histogram cells of each source. `empty` has the run, its
    /// phase and the time.
    pub(crate) fn sample(&self, flows: &[FlowSection], mut cells: CellsBySource, empty: Sample) -> Sample {
        let mut sample = empty;
        for (node, gateway) in queues(self) {
            let numbers = Numbers::from_iter(gateway.all_numbers());
            sample.nodes.push(NodeSample {
                node,
                is_connected: true,
                reported: gateway.at.filter(|_| !gateway.is_over),
                incarnation: None,
                numbers,
                distributions: BTreeMap::new(),
            });
            gateway.flows.iter().for_each(|flow| sample.events.merge(&flow.events.events));
        }
        let held_back = dead(self).as_nanos() as u64;
        let (masks, numbering) = (masks(self, flows), numbering(self, flows));
        // As in the reports of readout units.
        let masked = |source: SourceId| match masks.get(&source).map(|record| record.part) {
            None | Some(Part::Takes) => 0,
            Some(Part::Masked) => 1,
            Some(Part::AskedBack) => 2,
        };
        let source = |(source, (account, bytes)): (SourceId, (FragmentAccount, u64))| SourceSample {
            source,
            readout: NodeId::builder(self.first_unit),
            account,
            lost_datagrams: ByCause::default(),
            corrupt: Vec::new(),
            // Only the trigger can hold a source back, and it holds all of them.
            numbers: Numbers::from_iter([
                (Counter::FragmentsReceived, account.received),
                (Counter::PayloadBytesReceived, bytes),
                (Counter::BackPressureTime, held_back),
                (Counter::SourceMasked, masked(source)),
            ]),
            doubts: Vec::new(),
            sends_datagrams: true,
            numbering: numbering.get(&source).map(|all| numbering_of(all)).unwrap_or_default(),
            histograms: cells.remove(&source).unwrap_or_default(),
        };
        sample.sources = sources(self, flows).into_iter().map(source).collect();
        sample.lost_datagrams = lost(self);
        sample
    }
}

/// Adds the packets of a flow as fragments.
fn count_flow(flow: &FlowAccount, run: &mut RunSnapshot) {
    run.ledger.fragments.merge(&flow.packets);
    run.ledger.fragments.missing.merge(&flow.missing);
    let mut add = |counter, count| *run.counters.entry(counter).or_default() += count;
    add(Counter::PayloadBytesReceived, flow.bytes);
    add(Counter::WireBytesReceived, flow.bytes);
    add(Counter::FragmentsReceived, flow.packets.received);
    add(Counter::DatagramsNobodys, flow.packets.dropped.get(Cause::UnknownSource));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_is_a_process_of_its_own_has_the_number_that_its_run_files_have() {
        let gateway = || ("gw1".to_owned(), GatewayReport::default());
        let snapshot =
            GatewaySnapshot { first_unit: 3, gateways: vec![gateway(), gateway()], ..GatewaySnapshot::default() };
        let sample = snapshot.sample(&[], CellsBySource::new(), Sample::default());
        let nodes: Vec<_> = sample.nodes.iter().map(|node| node.node).collect();
        assert_eq!(nodes, [3, 4].map(NodeId::builder));
        let run = snapshot.run_snapshot(&[], RunSnapshot::default());
        assert_eq!(run.nodes, [3, 4].map(|number| (NodeId::builder(number), true)));
    }

    #[test]
    fn a_gateway_has_reported_when_its_threads_did_until_it_ends() {
        let at = Some(ropewalk_terms::Instant::from_nanoseconds(5));
        let reported = |is_over| {
            let gateways = vec![("gw0".to_owned(), GatewayReport { at, is_over, ..GatewayReport::default() })];
            let snapshot = GatewaySnapshot { gateways, ..GatewaySnapshot::default() };
            snapshot.sample(&[], CellsBySource::new(), Sample::default()).nodes[0].reported
        };
        assert_eq!((reported(false), reported(true)), (at, None));
    }

    fn record(turns: &[&[u64]]) -> (Part, Vec<(u64, Option<u64>)>) {
        let keys: Vec<Vec<EventKey>> =
            turns.iter().map(|turns| turns.iter().map(|&event| EventKey::new(0, event)).collect()).collect();
        let record = record_of(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let interval = |one: &MaskedInterval| (one.from.number(), one.to.map(|to| to.number()));
        (record.part, record.intervals.iter().map(interval).collect())
    }

    #[test]
    fn a_source_is_out_when_every_queue_says_so_and_outside_of_its_intervals_it_took_part_everywhere() {
        assert_eq!(record(&[&[20]]), (Part::Masked, vec![(20, None)]));
        assert_eq!(record(&[&[20], &[]]), (Part::Takes, vec![(20, None)]), "one has not heard of it");
        assert_eq!(record(&[&[20], &[15]]), (Part::Masked, vec![(15, None)]));
        assert_eq!(record(&[&[20, 30], &[15]]), (Part::AskedBack, vec![(15, None)]));
        assert_eq!(record(&[&[20, 30], &[15, 35]]), (Part::Takes, vec![(15, Some(35))]));
        assert_eq!(record(&[&[20, 30, 50], &[15, 35]]), (Part::Takes, vec![(15, Some(35)), (50, None)]));
        assert_eq!(record(&[&[20, 30, 50], &[15, 35, 40]]), (Part::Masked, vec![(15, Some(35)), (40, None)]));
    }

    #[test]
    fn the_packets_of_a_source_that_was_out_for_a_while_are_all_somewhere() {
        let mut flow = FlowAccount { complete: 10, incomplete: 3, ..FlowAccount::default() };
        flow.dropped.add(Cause::AfterStop, 1);
        // It has six of ten complete sets, and one of four others; two lie in open sets.
        let account = SourceAccount {
            packets: 9,
            bytes: 900,
            missing: 1,
            masked: 5,
            out_of_sync: 3,
            corrupt: 2,
            left_out_of_complete: 4,
            left_out_of_incomplete: 2,
            ..SourceAccount::default()
        };
        let fragments = fragments_of(&account, &flow);
        assert_eq!((fragments.received, fragments.in_complete_events), (19, 6));
        assert_eq!((fragments.in_incomplete_events, fragments.in_flight), (1, 2));
        let dropped = [Cause::Masked, Cause::OutOfSync].map(|cause| fragments.dropped.get(cause));
        assert_eq!((dropped, fragments.accounted()), ([5, 3], 19));
    }
}
