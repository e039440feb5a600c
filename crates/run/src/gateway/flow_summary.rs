//! The account of one flow, over all gateways of this process.

use super::snapshot::GatewaySnapshot;
use crate::summary_sections::UnbalancedSummary;
use ropewalk_config::FlowSection;
use ropewalk_engine::gateway::PacketSourceReport;
use ropewalk_flow::gateway::{FarmAccount, FlowAccount, SourceAccount};
use ropewalk_terms::{ByCause, Cause, EventAccount, Fact, Facts};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A flow: its packets, sets and events.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct FlowSummary {
    /// The account of events: assigned = built + incomplete_emitted + the sum of incomplete_dropped + in_flight.
    pub events: FlowEventSummary,
    /// Events at the nodes of the farm.
    pub farm: FarmAccount,
    /// Packets of any flow that the machine lost, as its interfaces and protocols count them, by cause. They may also be
    /// in `lost_by_cause`.
    pub lost_around_by_cause: ByCause,
    /// Packets of this flow that were lost or refused before reception, by cause.
    pub lost_by_cause: ByCause,
    /// Packets; each counts once, with all of its fragments.
    pub packets: PacketSummary,
    /// Rates while the run was running.
    pub rate: FlowRateSummary,
    /// Packets sent by emulated sources of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentSummary>,
    /// The sets of events that packets made: opened = complete + incomplete + the sum of dropped + open.
    pub sets: SetSummary,
    /// Each source that the configuration does not mask, by its id.
    pub sources: BTreeMap<String, PacketSourceSummary>,
    /// Packets sent that neither arrived nor have a cause, 0 if all is well; negative if more arrived. If flows share an
    /// address, losses of their gateway are included.
    pub unexplained: i64,
}

/// The account of a flow's events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct FlowEventSummary {
    /// Events that were accepted.
    pub accepted: u64,
    /// Events of all sets that came.
    pub assigned: u64,
    /// Events of complete sets that were decided.
    pub built: u64,
    /// Events that are not decided yet, counted from the table.
    pub in_flight: u64,
    /// Events that were dropped, by cause.
    pub incomplete_dropped: ByCause,
    /// Events of incomplete sets that were decided.
    pub incomplete_emitted: u64,
    /// Events that were rejected.
    pub rejected: u64,
}

/// Packets: received = in_complete_events + in_incomplete_events + duplicate + late + corrupt + stale +
/// after_stop + the sum of dropped + in_flight.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct PacketSummary {
    /// Packets behind the run's last event.
    pub after_stop: u64,
    /// Bytes of all packets, headers included.
    pub bytes: u64,
    /// Not counted for packets: 0.
    pub corrupt: u64,
    /// Packets that were refused, by cause.
    pub dropped: ByCause,
    /// Packets that came twice.
    pub duplicate: u64,
    /// Packets in complete sets.
    pub in_complete_events: u64,
    /// Packets in open sets, counted from the table.
    pub in_flight: u64,
    /// Packets in incomplete sets.
    pub in_incomplete_events: u64,
    /// Packets that came behind their set's end.
    pub late: u64,
    /// Packets that came.
    pub received: u64,
    /// Packets before the run's first event.
    pub stale: u64,
}

/// Rates of a flow while the run was running.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct FlowRateSummary {
    /// Bytes of packets received in a second.
    #[schemars(range(min = 0))]
    pub bytes_per_s: f64,
    /// Events decided in a second, by a node or by default.
    #[schemars(range(min = 0))]
    pub events_per_s: f64,
    /// Packets received in a second.
    #[schemars(range(min = 0))]
    pub packets_per_s: f64,
}

/// Packets sent by emulated sources.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct SentSummary {
    /// Bytes of the packets.
    pub bytes: u64,
    /// Seconds in which gateways throttled triggers.
    #[schemars(range(min = 0))]
    pub dead_s: f64,
    /// Accepted events among the decisions in order.
    pub decisions_accepted: u64,
    /// Decisions that came in the order of events.
    pub decisions_in_order: u64,
    /// Decisions that were missing or out of order.
    pub decisions_missed: u64,
    /// Events in the sets.
    pub events: u64,
    /// Packets that the system refused or that were too long; they were not sent.
    pub failed: u64,
    /// Seconds without throttling.
    #[schemars(range(min = 0))]
    pub live_s: f64,
    /// Packets that were lost on purpose.
    pub lost_on_purpose: u64,
    /// Packets that were sent, second copies included.
    pub packets: u64,
    /// Packets that were sent twice.
    pub sent_twice: u64,
    /// Sets of events that were triggered.
    pub sets: u64,
}

/// The sets of events that packets made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct SetSummary {
    /// Sets that had every source that took part in them.
    pub complete: u64,
    /// Sets that were dropped by policy, or because the run had ended, by cause.
    pub dropped: ByCause,
    /// Incomplete sets that went to nodes.
    pub incomplete: u64,
    /// Packets that were missing in finished sets, by cause.
    pub missing_packets: ByCause,
    /// Sets in assembly, counted from the table.
    pub open: u64,
    /// Sets that were begun.
    pub opened: u64,
    /// Sets that were refused although a packet arrived, by cause.
    pub refused: ByCause,
}

/// The packets of one source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PacketSourceSummary {
    /// The last restart of its numbering; null if none.
    pub last_restart: Option<RestartSummary>,
    /// Its packets that were dropped while it was masked.
    pub masked: u64,
    /// Finished sets that lack its packet, without those in which it took no part.
    pub missing: u64,
    /// Its packets that were dropped after a restart of its numbering.
    pub out_of_sync: u64,
    /// Its packets that became part of a set.
    pub packets: u64,
    /// Restarts of its numbering.
    pub restarts: u64,
}

/// A restart of a source's numbering.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RestartSummary {
    /// The first event of its newest packet before.
    pub from: u32,
    /// The first event of its first packet afterwards.
    pub to: u32,
}

impl FlowEventSummary {
    fn new(events: &EventAccount) -> Self {
        Self {
            accepted: events.accepted,
            assigned: events.assigned,
            built: events.built,
            in_flight: events.in_flight,
            incomplete_dropped: events.incomplete_dropped,
            incomplete_emitted: events.incomplete_emitted,
            rejected: events.rejected,
        }
    }
}

impl PacketSummary {
    fn new(flow: &FlowAccount) -> Self {
        let packets = &flow.packets;
        Self {
            after_stop: packets.after_stop,
            bytes: flow.bytes,
            corrupt: packets.corrupt,
            dropped: packets.dropped,
            duplicate: packets.duplicate,
            in_complete_events: packets.in_complete_events,
            in_flight: packets.in_flight,
            in_incomplete_events: packets.in_incomplete_events,
            late: packets.late,
            received: packets.received,
            stale: packets.stale,
        }
    }
}

impl SetSummary {
    fn new(flow: &FlowAccount) -> Self {
        Self {
            complete: flow.complete,
            dropped: flow.dropped,
            incomplete: flow.incomplete,
            missing_packets: flow.missing,
            open: flow.open,
            opened: flow.opened,
            refused: flow.refused,
        }
    }
}

impl SentSummary {
    fn new(sources: &PacketSourceReport, packing: u16) -> Self {
        Self {
            bytes: sources.bytes,
            dead_s: sources.dead.as_secs_f64(),
            decisions_accepted: sources.accepted,
            decisions_in_order: sources.decisions,
            decisions_missed: sources.missed,
            events: sources.sets * u64::from(packing),
            failed: sources.failed,
            live_s: sources.live.as_secs_f64(),
            lost_on_purpose: sources.lost,
            packets: sources.packets,
            sent_twice: sources.duplicates,
            sets: sources.sets,
        }
    }
}

impl PacketSourceSummary {
    fn new(account: &SourceAccount) -> Self {
        let last = account.last_restart;
        Self {
            last_restart: (account.restarts > 0).then_some(RestartSummary { from: last.from, to: last.to }),
            masked: account.masked,
            missing: account.missing,
            out_of_sync: account.out_of_sync,
            packets: account.packets,
            restarts: account.restarts,
        }
    }
}

/// Totals of one flow over all gateways, and the equations that it violates.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowTotals {
    packets: FlowAccount,
    by_source: Vec<SourceAccount>,
    events: FarmAccount,
    pub(super) lost: ByCause,
    around: ByCause,
    /// Whether it shares an address with other flows, so that losses there are not known by flow.
    pub(super) is_mixed: bool,
    sources: Option<PacketSourceReport>,
    /// Whether a gateway of this process receives it.
    is_received_here: bool,
    pub(super) unbalanced: Vec<UnbalancedSummary>,
}

impl FlowTotals {
    pub(super) fn new(snapshot: &GatewaySnapshot, flow: usize, section: &FlowSection) -> Self {
        let name = &section.name;
        let wanted = section.sources.entries(false).count();
        let mut summary = Self { by_source: vec![SourceAccount::default(); wanted], ..Self::default() };
        for (gateway, gateway_report) in &snapshot.gateways {
            let Some(known) = gateway_report.flows.get(flow) else { continue };
            let (packets, events) = (&known.packets, &known.events);
            let mut check = |equation: &str, holds: bool| {
                if !holds {
                    let of = UnbalancedSummary::new(equation);
                    let (flow, gateway) = (Some(name.clone()), Some(gateway.clone()));
                    summary.unbalanced.push(UnbalancedSummary { flow, gateway, ..of });
                }
            };
            check("packets received = where they went; sets opened = how they ended", packets.is_balanced());
            check("events assigned = where they went; decided = accepted + rejected", events.is_balanced());
            check("sets finished = sets in the farm + on their way there", known.is_handed_over(section.packing));
            summary.is_received_here = true;
            summary.packets.merge(packets);
            summary.by_source.iter_mut().zip(&known.by_source).for_each(|(all, one)| all.merge(one));
            summary.events.merge(events);
            if let Some(received) = gateway_report.received_apart(flow) {
                summary.lost.merge(&received.lost);
                summary.around.merge(&received.around);
            } else {
                summary.is_mixed = true;
            }
        }
        summary.sources = snapshot.sources.iter().find(|(of, _)| *of == flow).map(|(_, report)| *report);
        let is_over = snapshot.gateways.iter().all(|(_, gateway)| gateway.is_over);
        let unexplained = summary.unexplained();
        if is_over && !summary.is_mixed && !is_explained(unexplained, summary.strangers(), summary.lost.total()) {
            let flow = Some(name.clone());
            summary.unbalanced.push(UnbalancedSummary { flow, ..UnbalancedSummary::unexplained(SENT, unexplained) });
        }
        summary
    }

    /// Returns whether this process both sends and receives it, so that the numbers can be compared.
    pub(super) const fn is_comparable(&self) -> bool {
        self.sources.is_some() && self.is_received_here
    }

    /// Returns the number of packets sent that neither arrived nor have a cause; 0 if this process does not know both
    /// numbers. If flows share an address, their common losses are included. Packets of unknown senders are left out.
    pub(super) fn unexplained(&self) -> i64 {
        let Some(sources) = self.sources.filter(|_| self.is_received_here) else { return 0 };
        let received = self.packets.packets.received - self.strangers();
        sources.packets as i64 - received as i64 - self.lost.total() as i64
    }

    /// Returns the number of packets of unknown senders.
    pub(super) const fn strangers(&self) -> u64 {
        self.packets.packets.dropped.get(Cause::UnknownSource)
    }

    /// Returns its account.
    pub(super) fn summary(&self, section: &FlowSection, running: Duration) -> FlowSummary {
        let (packets, events) = (&self.packets, &self.events);
        let ids = section.sources.entries(false).map(|(id, _)| id.to_string());
        let seconds = running.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        FlowSummary {
            events: FlowEventSummary::new(&events.events),
            farm: *events,
            lost_around_by_cause: self.around,
            lost_by_cause: self.lost,
            packets: PacketSummary::new(packets),
            rate: FlowRateSummary {
                bytes_per_s: per_second(packets.bytes),
                events_per_s: per_second(events.decided),
                packets_per_s: per_second(packets.packets.received),
            },
            sent: self.sources.as_ref().map(|sources| SentSummary::new(sources, section.packing)),
            sets: SetSummary::new(packets),
            sources: ids.zip(self.by_source.iter().map(PacketSourceSummary::new)).collect(),
            unexplained: self.unexplained(),
        }
    }

    /// Returns the facts for the exit status.
    pub(super) fn facts(&self) -> Facts {
        let (flow, farm) = (&self.packets, &self.events);
        let dropped = flow.packets.dropped.total() - flow.packets.dropped.get(Cause::Masked);
        Facts::default().with([
            (Fact::Late, flow.packets.late),
            (Fact::Duplicate, flow.packets.duplicate),
            (Fact::Corrupt, flow.packets.corrupt),
            (Fact::Stale, flow.packets.stale),
            (Fact::AfterStop, flow.packets.after_stop),
            (Fact::Dropped, dropped - self.strangers()),
            (Fact::DatagramsNobodys, self.strangers()),
            (Fact::Masked, flow.packets.dropped.get(Cause::Masked)),
            (Fact::DatagramsLost, self.lost.total()),
            (Fact::Missing, flow.missing.total() - flow.missing.get(Cause::Masked)),
            (Fact::Incomplete, farm.events.incomplete_emitted),
            (Fact::EventsDropped, flow.dropped.total() + flow.refused.total()),
            (Fact::EventsInFlight, farm.events.in_flight),
            (Fact::DecidedByDefault, farm.by_default),
            (Fact::Rejected, farm.events.rejected),
        ])
    }
}

/// The equation of a flow's sources.
pub(super) const SENT: &str = "packets sent = received + lost by a named cause";

/// Returns whether it holds. If there are unknown senders as well, some of the lost packets may have been theirs.
pub(super) fn is_explained(unexplained: i64, strangers: u64, lost: u64) -> bool {
    unexplained == 0 || (unexplained < 0 && strangers > 0 && unexplained.unsigned_abs() <= lost)
}

#[cfg(test)]
#[test]
fn where_strangers_send_as_well_lost_packets_may_be_theirs() {
    assert!(is_explained(0, 0, 0) && is_explained(-3, 1, 3), "the lost ones may be theirs");
    assert!(
        !is_explained(-3, 0, 3) && !is_explained(-4, 1, 3),
        "there were no strangers, or too few packets of theirs"
    );
    assert!(!is_explained(1, 9, 9), "theirs are no loss of a source");
}
