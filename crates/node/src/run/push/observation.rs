//! The numbers of a push system as whoever watches a run knows them: an input queue of a gateway is a builder unit, `bu0` and so on as in the
//! names of its run files, and reads the sources out, too; a packet is a fragment, a set of events a buffer.

use super::handle::PushSnapshot;
use crate::configuration::push::FlowSection;
use crate::drive::RunSnapshot;
use crate::drive::gateway::GatewayReport;
use ropewalk_flow::gateway::{FlowAccount, SourceAccount};
use ropewalk_monitor::{NodeSample, Numbers, Sample, SourceSample};
use ropewalk_terms::{ByCause, Cause, Counter, FragmentAccount, NodeId, SourceId};
use std::collections::BTreeMap;
use std::time::Duration;

/// What became of the packets of each source, over all gateways, and how many bytes they have.
fn sources(snapshot: &PushSnapshot, flows: &[FlowSection]) -> BTreeMap<SourceId, (FragmentAccount, u64)> {
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

/// Where the packets of a source went. Each complete set has one of them; the others that were finished have one unless it is missing. Those
/// of sets that were dropped count as those of incomplete ones, and what was refused is in the account of the flow alone.
fn fragments_of(account: &SourceAccount, flow: &FlowAccount) -> FragmentAccount {
    let in_incomplete_events = (flow.incomplete + flow.dropped.total()).saturating_sub(account.missing);
    let mut missing = ByCause::default();
    missing.add(Cause::TimedOut, account.missing);
    FragmentAccount {
        received: account.packets,
        in_complete_events: flow.complete,
        in_incomplete_events,
        in_flight: account.packets.saturating_sub(flow.complete + in_incomplete_events),
        missing,
        ..FragmentAccount::default()
    }
}

/// The queues, each with its number as a builder unit.
fn queues(snapshot: &PushSnapshot) -> impl Iterator<Item = (NodeId, &GatewayReport)> {
    (0..).zip(&snapshot.gateways).map(|(number, (_, report))| (NodeId::builder(number), report))
}

/// What was lost in front of all of them.
fn lost(snapshot: &PushSnapshot) -> ByCause {
    let mut lost = ByCause::default();
    snapshot.gateways.iter().flat_map(|(_, gateway)| &gateway.received).for_each(|input| lost.merge(&input.lost));
    lost
}

/// How long nobody took anything: no gateway let a trigger come.
fn dead(snapshot: &PushSnapshot) -> Duration {
    snapshot.gateways.iter().map(|(_, gateway)| gateway.dead).min().unwrap_or_default()
}

/// Adds the numbers to a snapshot that says how far the run is.
pub(super) fn count(snapshot: &PushSnapshot, flows: &[FlowSection], into: &mut RunSnapshot) {
    for (node, gateway) in queues(snapshot) {
        into.nodes.push((node, true));
        let numbers = Numbers::from_iter(gateway.numbers());
        for &counter in ropewalk_terms::COUNTERS {
            if let Some(value) = numbers.known(counter) {
                *into.counters.entry(counter).or_default() += value;
            }
        }
        let failing = i32::try_from(numbers.get(Counter::DiskFailing)).ok().filter(|&error| error > 0);
        into.failing_disks.extend(failing.map(|error| (node, error)));
        for flow in &gateway.flows {
            into.ledger.fragments.merge(&flow.packets.packets);
            into.ledger.events.merge(&flow.events.events);
            *into.counters.entry(Counter::PayloadBytesReceived).or_default() += flow.packets.bytes;
            *into.counters.entry(Counter::FragmentsReceived).or_default() += flow.packets.packets.received;
        }
    }
    // Sets are lent to events and come back, as blocks of a pool elsewhere.
    into.ledger.pools.held = into.counter(Counter::PoolHeld);
    let lent: u64 =
        snapshot.gateways.iter().flat_map(|(_, gateway)| &gateway.flows).map(|flow| flow.packets.opened).sum();
    into.ledger.pools.loans = lent.max(into.ledger.pools.held);
    into.ledger.pools.returned = into.ledger.pools.loans - into.ledger.pools.held;
    into.ledger.events.written = into.counter(Counter::EventsWritten);
    into.sources = sources(snapshot, flows).into_iter().map(|(id, (account, _))| (id, account)).collect();
    into.lost_datagrams.insert(None, lost(snapshot));
}

/// Adds the numbers of each gateway and source to a sample that says when and of what it is.
pub(super) fn observe(snapshot: &PushSnapshot, flows: &[FlowSection], into: &mut Sample) {
    for (node, gateway) in queues(snapshot) {
        let numbers = Numbers::from_iter(gateway.numbers());
        into.nodes.push(NodeSample {
            node,
            is_connected: true,
            incarnation: None,
            numbers,
            distributions: BTreeMap::new(),
        });
        gateway.flows.iter().for_each(|flow| into.events.merge(&flow.events.events));
    }
    let held_back = dead(snapshot).as_nanos() as u64;
    let source = |(source, (account, bytes)): (SourceId, (FragmentAccount, u64))| SourceSample {
        source,
        readout: NodeId::builder(0),
        account,
        lost_datagrams: ByCause::default(),
        corrupt: Vec::new(),
        // Nobody can hold a source back but the trigger, and that holds all of them.
        numbers: Numbers::from_iter([
            (Counter::FragmentsReceived, account.received),
            (Counter::PayloadBytesReceived, bytes),
            (Counter::BackPressureTime, held_back),
        ]),
        histograms: BTreeMap::new(),
    };
    into.sources = sources(snapshot, flows).into_iter().map(source).collect();
    into.lost_datagrams = lost(snapshot);
}
