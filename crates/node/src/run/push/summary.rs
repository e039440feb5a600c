//! What the run of a push system says of itself: `run.json` in its directory and the last line of `--json`.
//! `docs/schema/push-run.json` describes it.

use super::handle::PushSnapshot;
use crate::configuration::push::FlowSection;
use crate::drive::gateway::{GatewayReport, PacketSourceReport, Shown};
use crate::fields::Fields;
use crate::run::claim::ACCOUNT;
use crate::run::clock_summary::ClockSummary;
use crate::run::configured::ConfigurationSummary;
use crate::run::histograms::SourceHistograms;
use crate::run::summary::{add_unbalanced, causes, panicked};
use crate::status::StatusSummary;
use crate::whole_file;
use ropewalk_flow::gateway::{FarmAccount, FlowAccount, SourceAccount};
use ropewalk_terms::{Asked, ByCause, Cause, EventKey, Fact, Facts, FragmentAccount, RunNumber};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The form's name and version.
pub const PUSH_SUMMARY_SCHEMA: &str = "ropewalk-push-run-1";

/// A run's account.
#[derive(Clone, Debug, Serialize)]
pub struct PushSummary {
    /// [`PUSH_SUMMARY_SCHEMA`].
    pub schema: &'static str,
    /// The run's number; 0 where this process has no gateway.
    pub run: u32,
    /// `ended`, `forced` or `running`.
    pub state: &'static str,
    /// The run's directory.
    pub directory: PathBuf,
    /// When it began, in nanoseconds since 1970 UTC; null where it never did.
    pub started_ns: Option<i64>,
    /// What was said of it when it was started.
    pub fields: Fields,
    /// With which configuration it was taken.
    pub configuration: ConfigurationSummary,
    /// How far its times can be believed.
    pub clock: ClockSummary,
    /// From start to the end of draining, in seconds.
    pub duration_s: f64,
    /// Each flow, by name: all gateways together.
    pub flows: Map<String, Value>,
    /// Each gateway, by name: what it sent, wrote, copied, and how long it held the trigger up.
    pub gateways: Map<String, Value>,
    /// What emulated nodes saw, all together.
    pub nodes: Value,
    /// Events in files.
    pub written: u64,
    /// Whether every equation holds.
    pub ledger: Value,
    /// The exit status, and why.
    pub status: StatusSummary,
    /// What was counted of sources' fragments, as `[[histogram]]` asks for.
    pub histograms: Vec<SourceHistograms>,
    /// What was asked of the system, refused, and gone without.
    pub warnings: Vec<String>,
    #[serde(skip)]
    pub(super) facts: Facts,
}

/// One flow over all gateways, and the equations that it breaks.
#[derive(Clone, Debug, Default)]
pub struct FlowSummary {
    packets: FlowAccount,
    by_source: Vec<SourceAccount>,
    events: FarmAccount,
    lost: ByCause,
    around: ByCause,
    /// Some of its packets came in together with those of other flows: what was lost there is not known by flow.
    is_mixed: bool,
    sources: Option<PacketSourceReport>,
    unbalanced: Vec<Value>,
}

impl FlowSummary {
    fn new(snapshot: &PushSnapshot, flow: usize, section: &FlowSection) -> Self {
        let name = &section.name;
        let wanted = section.sources.entries(false).count();
        let mut summary = Self { by_source: vec![SourceAccount::default(); wanted], ..Self::default() };
        for (gateway, gateway_report) in &snapshot.gateways {
            let Some(known) = gateway_report.flows.get(flow) else { continue };
            let (packets, events) = (&known.packets, &known.events);
            let mut check = |equation: &str, holds: bool| {
                if !holds {
                    summary.unbalanced.push(json!({ "equation": equation, "flow": name, "gateway": gateway }));
                }
            };
            check("packets received = where they went; sets opened = how they ended", packets.is_balanced());
            check("events assigned = where they went; decided = accepted + rejected", events.is_balanced());
            check("sets finished = sets in the farm + on their way there", known.is_handed_over(section.packing));
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
            summary.unbalanced.push(json!({ "equation": SENT, "flow": name, "unexplained": unexplained }));
        }
        summary
    }

    /// Packets that were sent and neither came nor were lost for a reason that anybody names; 0 where nothing is known of
    /// what was sent, or no gateway is here. Where flows come in together, what they lost together is in there. What strangers
    /// sent is left out, as far as it came.
    fn unexplained(&self) -> i64 {
        let Some(sources) = self.sources.filter(|_| self.packets.opened > 0) else { return 0 };
        let received = self.packets.packets.received - self.strangers();
        sources.packets as i64 - received as i64 - self.lost.total() as i64
    }

    /// Packets that came from nobody who is a source.
    const fn strangers(&self) -> u64 {
        self.packets.packets.dropped.get(Cause::UnknownSource)
    }

    fn to_json(&self, section: &FlowSection, running: Duration) -> Value {
        let (packets, events) = (&self.packets, &self.events);
        let ids = section.sources.entries(false).map(|(id, _)| id.to_string());
        let by_source = ids.zip(&self.by_source).map(|(id, one)| (id, source(one)));
        let seconds = running.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let mut flow = json!({
            "packets": fragments(&packets.packets, packets.bytes),
            "lost_by_cause": causes(&self.lost),
            "lost_around_by_cause": causes(&self.around),
            "unexplained": self.unexplained(),
            "sets": {
                "opened": packets.opened,
                "complete": packets.complete,
                "incomplete": packets.incomplete,
                "dropped": causes(&packets.dropped),
                "refused": causes(&packets.refused),
                "open": packets.open,
                "missing_packets": causes(&packets.missing),
            },
            "sources": by_source.collect::<Map<_, _>>(),
            "events": {
                "assigned": events.events.assigned,
                "built": events.events.built,
                "incomplete_emitted": events.events.incomplete_emitted,
                "incomplete_dropped": causes(&events.events.incomplete_dropped),
                "accepted": events.events.accepted,
                "rejected": events.events.rejected,
                "in_flight": events.events.in_flight,
            },
            "farm": {
                "pushed": events.pushed,
                "pushed_again": events.pushed_again,
                "pushed_bytes": events.pushed_bytes,
                "decided": events.decided,
                "by_default": events.by_default,
                "late": events.late,
                "ignored": events.ignored,
                "lost_decisions": events.lost,
                "not_received": events.not_received,
                "taken_back": events.taken_back,
                "in_budget": events.in_budget,
                "streamed": events.streamed,
                "stored": events.stored,
                "stored_bytes": events.stored_bytes,
            },
            "rate": {
                "packets_per_s": per_second(packets.packets.received),
                "bytes_per_s": per_second(packets.bytes),
                "events_per_s": per_second(events.decided + events.by_default),
            },
        });
        if let Some(sources) = &self.sources {
            flow["sent"] = sent(sources, section.packing);
        }
        flow
    }

    /// What the exit status depends on.
    fn facts(&self) -> Facts {
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
            (Fact::Incomplete, flow.incomplete),
            (Fact::EventsDropped, flow.dropped.total() + flow.refused.total()),
            (Fact::EventsInFlight, farm.events.in_flight),
            (Fact::DecidedByDefault, farm.by_default),
            (Fact::Rejected, farm.events.rejected),
        ])
    }
}

fn source(account: &SourceAccount) -> Value {
    let last = account.last_restart;
    json!({
        "packets": account.packets,
        "missing": account.missing,
        "masked": account.masked,
        "out_of_sync": account.out_of_sync,
        "restarts": account.restarts,
        "last_restart": (account.restarts > 0).then(|| json!({ "from": last.from, "to": last.to })),
    })
}

fn sent(sources: &PacketSourceReport, packing: u16) -> Value {
    json!({
        "sets": sources.sets,
        "events": sources.sets * u64::from(packing),
        "packets": sources.packets,
        "bytes": sources.bytes,
        "lost_on_purpose": sources.lost,
        "sent_twice": sources.duplicates,
        "failed": sources.failed,
        "decisions_in_order": sources.decisions,
        "decisions_accepted": sources.accepted,
        "decisions_missed": sources.missed,
        "live_s": sources.live.as_secs_f64(),
        "dead_s": sources.dead.as_secs_f64(),
    })
}

fn fragments(account: &FragmentAccount, bytes: u64) -> Value {
    json!({
        "received": account.received,
        "bytes": bytes,
        "in_complete_events": account.in_complete_events,
        "in_incomplete_events": account.in_incomplete_events,
        "duplicate": account.duplicate,
        "late": account.late,
        "corrupt": account.corrupt,
        "stale": account.stale,
        "after_stop": account.after_stop,
        "dropped": causes(&account.dropped),
        "in_flight": account.in_flight,
    })
}

fn gateway(report: &GatewayReport, hardware: Option<&Shown>, flows: &[FlowSection]) -> Value {
    let levels = flows.iter().map(|flow| flow.name.as_str()).chain(["memory", "queue", "out_of_sync", "error", "held"]);
    let stops = levels
        .zip(&report.stops)
        .map(|(name, (dead, stops))| (name.to_owned(), json!({ "dead_s": dead.as_secs_f64(), "stops": stops })));
    let written = report.storage.unwrap_or_default();
    let together = report.received_together().unwrap_or_default();
    let told = hardware.map(|shown| json!({ "times": shown.told, "failed": shown.failed, "failure": shown.failure }));
    json!({
        "lost_by_cause": causes(&together.lost),
        "lost_around_by_cause": causes(&together.around),
        "masked": masked(report, flows),
        "sent": { "packets": report.sent.packets, "bytes": report.sent.bytes, "failed": report.sent.failed },
        "copied_bytes": report.sent.bytes_copied,
        "evacuated_packets": report.evacuated,
        "readers_cut_off": report.cut_off,
        "written": { "events": written.events, "bytes": written.bytes, "failed": report.not_written },
        "throttle": {
            "live_s": report.live.as_secs_f64(),
            "dead_s": report.dead.as_secs_f64(),
            "by_cause": stops.collect::<Map<_, _>>(),
            "told": told,
        },
        "waiting": { "most_bytes": report.most_waiting.used, "room_bytes": report.most_waiting.room },
    })
}

/// In which events of a gateway each source took no part that was masked in mid-run.
fn masked(report: &GatewayReport, flows: &[FlowSection]) -> Map<String, Value> {
    let mut masked = Map::new();
    for (known, section) in report.flows.iter().zip(flows) {
        let ids: Vec<u32> = section.sources.entries(false).map(|(id, _)| id).collect();
        for one in &known.masked {
            let interval = |turns: &[EventKey]| {
                let to = turns.get(1).map(EventKey::to_string);
                json!({ "from": turns[0].to_string(), "to": to })
            };
            let intervals = one.turns.chunks(2).map(interval).collect();
            if let Some(id) = ids.get(usize::from(one.source)) {
                masked.insert(id.to_string(), Value::Array(intervals));
            }
        }
    }
    masked
}

/// What was lost where flows come in together, and what was not written.
fn facts_of(gateway: &GatewayReport) -> [(Fact, u64); 2] {
    let lost = gateway.received_together().map_or(0, |input| input.lost.total());
    [(Fact::DatagramsLost, lost), (Fact::Unwritten, gateway.not_written)]
}

/// The equation of a gateway's files, where it does not hold.
fn unwritten((name, report): &(String, GatewayReport)) -> Option<Value> {
    let written = report.storage.filter(|_| report.is_over)?.events;
    let stored: u64 = report.flows.iter().map(|flow| flow.events.stored).sum();
    let equation = "events to storage = written + failed";
    (stored != written + report.not_written).then(|| json!({ "equation": equation, "gateway": name }))
}

/// The equation of a gateway's inputs, where it does not hold. Of what they count it asks now and then, and once more at its
/// end.
fn not_taken((name, report): &(String, GatewayReport)) -> Option<Value> {
    let handed_on: u64 = report.received.iter().map(|input| input.packets).sum();
    let received: u64 = report.flows.iter().map(|flow| flow.packets.packets.received).sum();
    let equation = "packets handed on by inputs = received";
    (report.is_over && handed_on != received).then(|| json!({ "equation": equation, "gateway": name }))
}

/// The equation of what was sent, of all flows together, where some of them come in together.
fn unexplained_together(snapshot: &PushSnapshot, flows: &[FlowSummary]) -> Option<Value> {
    let is_over = snapshot.gateways.iter().all(|(_, gateway)| gateway.is_over);
    if !is_over || !flows.iter().any(|flow| flow.is_mixed) {
        return None;
    }
    let lost: u64 = snapshot
        .gateways
        .iter()
        .filter_map(|(_, gateway)| gateway.received_together())
        .map(|input| input.lost.total())
        .sum();
    let unexplained = flows.iter().map(FlowSummary::unexplained).sum::<i64>() - lost as i64;
    let (strangers, apart) =
        flows.iter().fold((0, 0), |(strangers, lost), flow| (strangers + flow.strangers(), lost + flow.lost.total()));
    let holds = is_explained(unexplained, strangers, lost + apart);
    (!holds).then(|| json!({ "equation": SENT, "unexplained": unexplained }))
}

/// What must hold of a flow's sources.
const SENT: &str = "packets sent = received + lost by a named cause";

/// Whether it holds. Where strangers send as well, some of what was lost may have been theirs: who was lost nobody knows.
fn is_explained(unexplained: i64, strangers: u64, lost: u64) -> bool {
    unexplained == 0 || (unexplained < 0 && strangers > 0 && unexplained.unsigned_abs() <= lost)
}

impl PushSummary {
    /// The summary of what is known now.
    pub(super) fn new(
        snapshot: &PushSnapshot,
        flows: &[FlowSection],
        state: &'static str,
        run: RunNumber,
        directory: &Path,
        (running, whole): (Duration, Duration),
    ) -> Self {
        let each = flows.iter().enumerate();
        let summaries: Vec<FlowSummary> = each.map(|(index, flow)| FlowSummary::new(snapshot, index, flow)).collect();
        let unbalanced = summaries.iter().flat_map(|flow| flow.unbalanced.iter().cloned());
        let unbalanced = unbalanced.chain(snapshot.gateways.iter().filter_map(unwritten));
        let unbalanced = unbalanced.chain(snapshot.gateways.iter().filter_map(not_taken));
        let unbalanced: Vec<Value> = unbalanced.chain(unexplained_together(snapshot, &summaries)).collect();
        let json_of =
            |(section, flow): (&FlowSection, &FlowSummary)| (section.name.clone(), flow.to_json(section, running));
        let of_gateways = snapshot.gateways.iter().flat_map(|(_, gateway)| facts_of(gateway));
        let found = summaries.iter().fold(Facts::default(), |all, flow| all.and(&flow.facts())).with(of_gateways);
        let nodes = &snapshot.nodes;
        let gateways = snapshot.gateways.iter().zip(&snapshot.hardware);
        Self {
            schema: PUSH_SUMMARY_SCHEMA,
            run: run.0,
            state,
            directory: directory.to_owned(),
            started_ns: None,
            fields: Fields::default(),
            configuration: ConfigurationSummary::default(),
            clock: ClockSummary::default(),
            duration_s: whole.as_secs_f64(),
            flows: flows.iter().zip(&summaries).map(json_of).collect(),
            gateways: gateways.map(|((name, one), told)| (name.clone(), gateway(one, told.as_ref(), flows))).collect(),
            nodes: json!({
                "events": nodes.iter().map(|node| node.events).sum::<u64>(),
                "bytes": nodes.iter().map(|node| node.bytes).sum::<u64>(),
                "incomplete": nodes.iter().map(|node| node.incomplete).sum::<u64>(),
                "sent_again": nodes.iter().map(|node| node.sent_again).sum::<u64>(),
                "accepted": nodes.iter().map(|node| node.accepted).sum::<u64>(),
                "malformed": nodes.iter().map(|node| node.malformed).sum::<u64>(),
                "deaths": nodes.iter().map(|node| node.deaths).sum::<u64>(),
            }),
            written: snapshot
                .gateways
                .iter()
                .filter_map(|(_, gateway)| gateway.storage)
                .map(|storage| storage.events)
                .sum(),
            histograms: Vec::new(),
            ledger: json!({ "balanced": unbalanced.is_empty(), "unbalanced": unbalanced }),
            status: StatusSummary::default(),
            warnings: Vec::new(),
            facts: found,
        }
        .judged()
    }

    /// The same with its status, after whatever was added to it.
    fn judged(mut self) -> Self {
        let unbalanced = self.ledger["unbalanced"].as_array().map_or(0, Vec::len);
        let facts = [(Fact::Forced, u64::from(self.state == "forced")), (Fact::Unbalanced, unbalanced as u64)];
        self.status = StatusSummary::of(&self.facts.with(facts), Asked::Taken);
        self
    }

    /// The same, where these threads panicked: what they had counted is what they told of themselves before.
    pub(super) fn with_panicked(mut self, threads: &[String]) -> Self {
        add_unbalanced(&mut self.ledger, panicked(threads));
        self.judged()
    }

    /// Keeps the account in the run's directory; of a process without a gateway, which has none, nowhere.
    ///
    /// # Errors
    /// Where the directory cannot be written.
    pub fn keep(&self) -> std::io::Result<()> {
        if self.directory.as_os_str().is_empty() {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(self)? + "\n";
        whole_file::write(&self.directory.join(ACCOUNT), text.as_bytes())
    }

    /// Every equation of the ledger holds.
    pub fn is_balanced(&self) -> bool {
        self.ledger["balanced"] == true
    }

    /// Nothing was lost, misplaced or doubtful.
    pub const fn is_complete(&self) -> bool {
        self.status.is_good()
    }
}

#[cfg(test)]
#[test]
fn where_strangers_send_as_well_nobody_knows_whose_packets_were_lost() {
    assert!(is_explained(0, 0, 0) && is_explained(-3, 1, 3), "those that were lost may be theirs");
    assert!(!is_explained(-3, 0, 3) && !is_explained(-4, 1, 3), "nobody was there, or too few were lost");
    assert!(!is_explained(1, 9, 9), "theirs are no loss of a source");
}
