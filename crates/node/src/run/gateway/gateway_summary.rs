//! The account of one gateway: sent, written and copied bytes, and throttling.

use crate::configuration::FlowSection;
use crate::drive::gateway::{GatewayReport, Shown};
use crate::run::fragment_summary::causes;
use crate::run::source_summary::MaskedSummary;
use ropewalk_terms::EventKey;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// A gateway, or one input queue of it.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct GatewaySummary {
    /// Payload bytes copied in this process.
    pub copied_bytes: u64,
    /// Packets that were copied because too much of their memory was held.
    pub evacuated_packets: u64,
    /// Packets that the machine lost, of any flow, if flows share an address, by cause. They may also be in
    /// `lost_by_cause`.
    pub lost_around_by_cause: BTreeMap<&'static str, u64>,
    /// Packets lost at an address that flows share, so that their flow is unknown, by cause.
    pub lost_by_cause: BTreeMap<&'static str, u64>,
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
    /// Of a gateway with these flows, and with hardware or without.
    pub(super) fn new(report: &GatewayReport, hardware: Option<&Shown>, flows: &[FlowSection]) -> Self {
        let together = report.received_together().unwrap_or_default();
        let written = report.storage.unwrap_or_default();
        let (sent, waiting) = (&report.sent, &report.most_waiting);
        Self {
            copied_bytes: sent.bytes_copied,
            evacuated_packets: report.evacuated,
            lost_around_by_cause: causes(&together.around),
            lost_by_cause: causes(&together.lost),
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

/// The events of a gateway in which sources were masked in mid-run.
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
