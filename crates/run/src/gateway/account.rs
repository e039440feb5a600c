//! The part of a run's account on gateways: gateways, the farm, and the equations that do not hold.

use super::flow_summary::{FlowSummary, FlowTotals, SENT, is_explained};
use super::snapshot::GatewaySnapshot;
use crate::source_summary::MaskedSummary;
use crate::summary_sections::{FailingDisk, UnbalancedSummary};
use ropewalk_config::FlowSection;
use ropewalk_engine::gateway::{FarmNodeReport, GatewayReport, Shown};
use ropewalk_terms::{ByCause, EventKey, Fact, Facts, StreamAccount};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The part of a run's account on the gateways, farm nodes and emulated sources of this process.
#[derive(Clone, Debug)]
pub(crate) struct GatewayAccount {
    pub(crate) flows: BTreeMap<String, FlowSummary>,
    pub(crate) gateways: BTreeMap<String, GatewaySummary>,
    /// `None` without a farm node in this process.
    pub(crate) farm: Option<FarmNodeReport>,
    pub(crate) failing_disks: Vec<FailingDisk>,
    pub(crate) unbalanced: Vec<UnbalancedSummary>,
    /// Facts on packets and events, for the exit status.
    pub(crate) facts: Facts,
}

impl GatewayAccount {
    /// Creates the account of the current state. `running` is the time from start to stop.
    pub(crate) fn new(snapshot: &GatewaySnapshot, flows: &[FlowSection], running: Duration) -> Self {
        let each = flows.iter().enumerate();
        let totals: Vec<FlowTotals> = each.map(|(index, flow)| FlowTotals::new(snapshot, index, flow)).collect();
        let unbalanced = totals.iter().flat_map(|flow| flow.unbalanced.iter().cloned());
        let unbalanced = unbalanced.chain(snapshot.gateways.iter().filter_map(unwritten));
        let unbalanced = unbalanced.chain(snapshot.gateways.iter().filter_map(streams_unbalanced));
        let unbalanced = unbalanced.chain(snapshot.gateways.iter().filter_map(not_taken));
        let unbalanced = unbalanced.chain(unexplained_together(snapshot, &totals));
        let summary =
            |(section, flow): (&FlowSection, &FlowTotals)| (section.name.clone(), flow.summary(section, running));
        let of_gateways = snapshot.gateways.iter().flat_map(|(_, gateway)| facts_of(gateway));
        let failing = snapshot.gateways.iter();
        let failing = failing.filter_map(|(name, gateway)| Some(FailingDisk::new(name.clone(), gateway.disk_error()?)));
        let gateways = snapshot.gateways.iter().zip(&snapshot.hardware);
        Self {
            facts: totals.iter().fold(Facts::default(), |all, flow| all.and(&flow.facts())).with(of_gateways),
            unbalanced: unbalanced.collect(),
            flows: flows.iter().zip(&totals).map(summary).collect(),
            gateways: gateways
                .map(|((name, one), told)| (name.clone(), GatewaySummary::new(one, told.as_ref(), flows)))
                .collect(),
            farm: snapshot.nodes.iter().copied().reduce(|mut sum, node| {
                sum.merge(&node);
                sum
            }),
            failing_disks: failing.collect(),
        }
    }
}

/// Returns the losses at addresses that flows share, and the events that were not written.
fn facts_of(gateway: &GatewayReport) -> [(Fact, u64); 2] {
    let lost = gateway.received_together().map_or(0, |input| input.lost.total());
    [(Fact::DatagramsLost, lost), (Fact::Unwritten, gateway.not_written)]
}

fn of_gateway(equation: &str, gateway: &str) -> UnbalancedSummary {
    UnbalancedSummary { gateway: Some(gateway.to_owned()), ..UnbalancedSummary::new(equation) }
}

/// Returns the equation of a gateway's files, if it does not hold.
fn unwritten((name, report): &(String, GatewayReport)) -> Option<UnbalancedSummary> {
    report.storage.filter(|_| report.is_over)?;
    let stored: u64 = report.flows.iter().map(|flow| flow.events.stored).sum();
    let equation = "events to storage = written + failed + left out by streams";
    (stored != report.written + report.not_written + report.left_out).then(|| of_gateway(equation, name))
}

/// Returns the equation of a gateway's streams, if it does not hold for one of them.
fn streams_unbalanced((name, report): &(String, GatewayReport)) -> Option<UnbalancedSummary> {
    let holds = |stream: &StreamAccount| stream.selected == stream.accounted();
    let equation = "selected by a stream = prescaled away + written + failed + in flight";
    (!report.streams.iter().all(holds)).then(|| of_gateway(equation, name))
}

/// Returns the equation of a gateway's inputs, if it does not hold. Their counts are read periodically, and once more
/// at the end.
fn not_taken((name, report): &(String, GatewayReport)) -> Option<UnbalancedSummary> {
    let handed_on: u64 = report.received.iter().map(|input| input.packets).sum();
    let received: u64 = report.flows.iter().map(|flow| flow.packets.packets.received).sum();
    let equation = "packets handed on by inputs = received";
    (report.is_over && handed_on != received).then(|| of_gateway(equation, name))
}

/// Returns the equation of sent packets for all flows together, if some of them share an input. It needs the number of
/// packets that each of those flows sent, which only the process of its sources knows.
fn unexplained_together(snapshot: &GatewaySnapshot, flows: &[FlowTotals]) -> Option<UnbalancedSummary> {
    let is_over = snapshot.gateways.iter().all(|(_, gateway)| gateway.is_over);
    let mut mixed = flows.iter().filter(|flow| flow.is_mixed).peekable();
    if !is_over || mixed.peek().is_none() || !mixed.all(FlowTotals::is_comparable) {
        return None;
    }
    let lost: u64 = snapshot
        .gateways
        .iter()
        .filter_map(|(_, gateway)| gateway.received_together())
        .map(|input| input.lost.total())
        .sum();
    let unexplained = flows.iter().map(FlowTotals::unexplained).sum::<i64>() - lost as i64;
    let (strangers, apart) =
        flows.iter().fold((0, 0), |(strangers, lost), flow| (strangers + flow.strangers(), lost + flow.lost.total()));
    let holds = is_explained(unexplained, strangers, lost + apart);
    (!holds).then(|| UnbalancedSummary::unexplained(SENT, unexplained))
}

#[cfg(test)]
#[test]
fn losses_of_a_shared_input_are_compared_with_what_was_sent_only_where_that_is_known() {
    use ropewalk_engine::gateway::{FlowReport, PacketSourceReport};
    use ropewalk_io::packet::ReceiveCounters;
    use ropewalk_terms::Cause;

    let mut input = ReceiveCounters::default();
    input.lost.add(Cause::NoFrame, 7);
    let flows = vec![FlowReport::default(), FlowReport::default()];
    let gateway = GatewayReport { flows, received: vec![input], is_over: true, ..GatewayReport::default() };
    let mut snapshot = GatewaySnapshot { gateways: vec![("gw0".to_owned(), gateway)], ..GatewaySnapshot::default() };
    let totals = |snapshot: &GatewaySnapshot| {
        let text =
            "name = \"l1\"\npacking = 1\nsources = { count = 1, first = 0, address = \"10.0.0.1\" }\ntimeout = \"1s\"";
        let section: FlowSection = toml::from_str(text).expect("a flow");
        [0, 1].map(|flow| FlowTotals::new(snapshot, flow, &section))
    };
    assert_eq!(unexplained_together(&snapshot, &totals(&snapshot)), None, "the sources are in another process");

    let sent = |packets| PacketSourceReport { packets, ..PacketSourceReport::default() };
    snapshot.sources = vec![(0, sent(3))];
    assert_eq!(unexplained_together(&snapshot, &totals(&snapshot)), None, "those of one flow are");
    snapshot.sources = vec![(0, sent(3)), (1, sent(4))];
    assert_eq!(unexplained_together(&snapshot, &totals(&snapshot)), None, "all were lost by a named cause");
    snapshot.sources = vec![(0, sent(3)), (1, sent(5))];
    let unbalanced = unexplained_together(&snapshot, &totals(&snapshot)).expect("one packet vanished");
    assert_eq!(unbalanced.unexplained, Some(1));
}

/// A gateway, or one input queue of it.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct GatewaySummary {
    /// Payload bytes copied in this process.
    pub copied_bytes: u64,
    /// Packets that were copied because too much of their memory was held.
    pub evacuated_packets: u64,
    /// Packets that the machine lost, of any flow, if flows share an address, by cause. They may also be in
    /// `lost_by_cause`.
    pub lost_around_by_cause: ByCause,
    /// Packets lost at an address that flows share, so that their flow is unknown, by cause.
    pub lost_by_cause: ByCause,
    /// The events in which a source was masked in mid-run, by its id. Sources that were never masked are left out.
    pub masked: BTreeMap<String, Vec<MaskedSummary>>,
    /// Readers of decisions that were disconnected because they were too slow.
    pub readers_cut_off: u64,
    /// Packets sent to nodes: events and messages.
    pub sent: SendingSummary,
    /// How long and how often it throttled the trigger.
    pub throttle: ThrottleSummary,
    /// The fullest input queue: its high-water mark and its size.
    pub waiting: WaitingSummary,
    /// Run files.
    pub written: WritingSummary,
}

/// Packets sent to nodes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct SendingSummary {
    /// Bytes of the packets' payloads.
    pub bytes: u64,
    /// Packets that the kernel refused.
    pub failed: u64,
    /// Packets that the kernel accepted.
    pub packets: u64,
}

/// How long and how often a gateway throttled the trigger.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct ThrottleSummary {
    /// How long and how often each cause stopped the trigger: a flow's sets, by its name; `memory`; `queue`, the input
    /// queue; `out_of_sync`; `error`; `held`, by run control, which is neither live nor dead time.
    pub by_cause: BTreeMap<String, StopSummary>,
    /// Seconds with throttling.
    #[schemars(range(min = 0))]
    pub dead_s: f64,
    /// Seconds without throttling.
    #[schemars(range(min = 0))]
    pub live_s: f64,
    /// Messages to the hardware that stops the trigger; null without it.
    pub told: Option<ToldSummary>,
}

/// How long and how often one cause stopped the trigger.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct StopSummary {
    /// Seconds.
    #[schemars(range(min = 0))]
    pub dead_s: f64,
    /// Number of times.
    pub stops: u64,
}

/// Messages to the hardware that stops the trigger.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ToldSummary {
    /// Failed messages.
    pub failed: u64,
    /// The last failure; null if none.
    pub failure: Option<String>,
    /// Messages sent.
    pub times: u64,
}

/// An input queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct WaitingSummary {
    /// The highest number of bytes in the queue.
    pub most_bytes: u64,
    /// The size of the queue in bytes.
    pub room_bytes: u64,
}

/// The run files of a gateway.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct WritingSummary {
    /// Bytes written, before compression.
    pub bytes: u64,
    /// Events written.
    pub events: u64,
    /// Accepted events that were lost because the disk failed.
    pub failed: u64,
    /// Accepted events that no stream takes.
    pub left_out: u64,
}

impl GatewaySummary {
    /// Creates the summary of a gateway with these flows, and with or without hardware.
    pub(super) fn new(report: &GatewayReport, hardware: Option<&Shown>, flows: &[FlowSection]) -> Self {
        let together = report.received_together().unwrap_or_default();
        let written = report.storage.unwrap_or_default();
        let (sent, waiting) = (&report.sent, &report.most_waiting);
        Self {
            copied_bytes: sent.bytes_copied,
            evacuated_packets: report.evacuated,
            lost_around_by_cause: together.around,
            lost_by_cause: together.lost,
            masked: masked(report, flows),
            readers_cut_off: report.cut_off,
            sent: SendingSummary { bytes: sent.bytes, failed: sent.failed, packets: sent.packets },
            throttle: ThrottleSummary::new(report, hardware, flows),
            waiting: WaitingSummary { most_bytes: waiting.used, room_bytes: waiting.room },
            written: WritingSummary {
                bytes: written.bytes,
                events: report.written,
                failed: report.not_written,
                left_out: report.left_out,
            },
        }
    }
}

impl ThrottleSummary {
    fn new(report: &GatewayReport, hardware: Option<&Shown>, flows: &[FlowSection]) -> Self {
        let of_flows = flows.iter().map(|flow| flow.name.as_str());
        let levels = of_flows.chain(["memory", "queue", "out_of_sync", "error", "held"]);
        let stops = levels.zip(&report.stops).map(|(name, &(dead, stops))| {
            let stopped = StopSummary { dead_s: dead.as_secs_f64(), stops };
            (name.to_owned(), stopped)
        });
        let told =
            |shown: &Shown| ToldSummary { failed: shown.failed, failure: shown.failure.clone(), times: shown.told };
        Self {
            by_cause: stops.collect(),
            dead_s: report.dead.as_secs_f64(),
            live_s: report.live.as_secs_f64(),
            told: hardware.map(told),
        }
    }
}

/// Returns the events of a gateway in which sources were masked during the run.
fn masked(report: &GatewayReport, flows: &[FlowSection]) -> BTreeMap<String, Vec<MaskedSummary>> {
    let mut masked = BTreeMap::new();
    for (known, section) in report.flows.iter().zip(flows) {
        let ids: Vec<u32> = section.sources.entries(false).map(|(id, _)| id).collect();
        for one in &known.masked {
            let interval = |turns: &[EventKey]| MaskedSummary {
                from: turns[0].to_string(),
                to: turns.get(1).map(EventKey::to_string),
            };
            let intervals = one.turns.chunks(2).map(interval).collect();
            if let Some(id) = ids.get(usize::from(one.source)) {
                masked.insert(id.to_string(), intervals);
            }
        }
    }
    masked
}
