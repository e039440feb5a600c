//! What the run of a push system says of itself: `run.json` in its directory and the last line of `--json`.
//! `docs/schema/push-run.json` is generated from the types here.

use super::flow_summary::{FlowSummary, FlowTotals, SENT, is_explained};
use super::gateway_summary::GatewaySummary;
use super::handle::PushSnapshot;
use crate::configuration::FlowSection;
use crate::drive::gateway::{FarmNodeReport, GatewayReport};
use crate::fields::Fields;
use crate::run::clock_summary::ClockSummary;
use crate::run::configured::ConfigurationSummary;
use crate::run::disk_summary::{DeletedSummary, DiskSummary};
use crate::run::filter_summary::StreamSummary;
use crate::run::forecast::DiskLeft;
use crate::run::histograms::SourceHistograms;
use crate::run::ledger_summary::{LedgerSummary, UnbalancedSummary};
use crate::run::takeover_record::ACCOUNT;
use crate::run::transfer::TransferSummary;
use crate::status::StatusSummary;
use crate::whole_file;
use ropewalk_terms::{Asked, Fact, Facts, RunNumber, StreamAccount};
use ropewalk_wire::run_file::StreamName;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The form's name and version.
pub const PUSH_SUMMARY_SCHEMA: &str = "ropewalk-push-run-1";

/// A run's account.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(
    title = "The account of a push system's run: run.json, and the last line of `ropewalk run --json` with a [[gateway]], `node gateway`, `source mep` and `farm-node`"
)]
pub struct PushSummary {
    /// The form's name and version.
    #[schemars(extend("const" = PUSH_SUMMARY_SCHEMA))]
    pub schema: &'static str,
    /// The run's number; 0 where this process has no gateway.
    pub run: u32,
    /// How it ended.
    pub state: PushState,
    /// The run's directory; empty if this process has no gateway.
    pub directory: PathBuf,
    /// When it began, in nanoseconds since 1970 UTC; null where it never did.
    pub started_ns: Option<i64>,
    /// Fields given at the start, by name (`--field beam=120GeV`).
    pub fields: Fields,
    /// The configuration; a copy is in `configuration.toml` beside the account.
    pub configuration: ConfigurationSummary,
    /// The accuracy of the times in the account: the clock state of the kernel.
    pub clock: ClockSummary,
    /// Seconds from start to the end of draining.
    #[schemars(range(min = 0))]
    pub duration_s: f64,
    /// Each flow, by name: all gateways of this process together.
    pub flows: BTreeMap<String, FlowSummary>,
    /// Each gateway of this process, by name.
    pub gateways: BTreeMap<String, GatewaySummary>,
    /// The counters of all emulated nodes.
    pub nodes: NodeSummary,
    /// Events in files.
    pub written: u64,
    /// Each stream with a name.
    pub streams: BTreeMap<String, StreamSummary>,
    /// Run files deleted to stay within `keep`.
    pub deleted: DeletedSummary,
    /// Disk errors, failing disks, run files deleted while they were written, and free space.
    pub disk: DiskSummary,
    /// Transfers of closed run files since this process started; null if no transfer is configured.
    pub transfer: Option<TransferSummary>,
    /// Whether the account adds up.
    pub ledger: LedgerSummary,
    /// The exit status, and why.
    pub status: StatusSummary,
    /// What was counted of sources' fragments, as `[[histogram]]` asks for.
    pub histograms: Vec<SourceHistograms>,
    /// What was asked of the system, refused, and gone without.
    pub warnings: Vec<String>,
    #[serde(skip)]
    pub(super) facts: Facts,
}

/// The state of a run of a push system.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PushState {
    /// It ended normally.
    Ended,
    /// Its stop was forced.
    Forced,
    /// It is running.
    Running,
}

/// The counters of all emulated nodes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct NodeSummary {
    /// Events that they accepted.
    pub accepted: u64,
    /// Bytes of complete events.
    pub bytes: u64,
    /// Configured deaths.
    pub deaths: u64,
    /// Complete events received.
    pub events: u64,
    /// Received events in which a source is missing.
    pub incomplete: u64,
    /// Datagrams that are no message of a gateway.
    pub malformed: u64,
    /// Complete events that another node had received before.
    pub sent_again: u64,
}

impl NodeSummary {
    fn new(nodes: &[FarmNodeReport]) -> Self {
        let sum = |of: fn(&FarmNodeReport) -> u64| nodes.iter().map(of).sum();
        Self {
            accepted: sum(|node| node.accepted),
            bytes: sum(|node| node.bytes),
            deaths: sum(|node| node.deaths),
            events: sum(|node| node.events),
            incomplete: sum(|node| node.incomplete),
            malformed: sum(|node| node.malformed),
            sent_again: sum(|node| node.sent_again),
        }
    }
}

/// What was lost where flows come in together, and what was not written.
fn facts_of(gateway: &GatewayReport) -> [(Fact, u64); 2] {
    let lost = gateway.received_together().map_or(0, |input| input.lost.total());
    [(Fact::DatagramsLost, lost), (Fact::Unwritten, gateway.not_written)]
}

fn of_gateway(equation: &str, gateway: &str) -> UnbalancedSummary {
    UnbalancedSummary { gateway: Some(gateway.to_owned()), ..UnbalancedSummary::new(equation) }
}

/// The equation of a gateway's files, where it does not hold.
fn unwritten((name, report): &(String, GatewayReport)) -> Option<UnbalancedSummary> {
    report.storage.filter(|_| report.is_over)?;
    let stored: u64 = report.flows.iter().map(|flow| flow.events.stored).sum();
    let equation = "events to storage = written + failed + left out by streams";
    (stored != report.written + report.not_written + report.left_out).then(|| of_gateway(equation, name))
}

/// The equation of a gateway's streams, where it does not hold for one.
fn astray((name, report): &(String, GatewayReport)) -> Option<UnbalancedSummary> {
    let holds = |stream: &StreamAccount| stream.selected == stream.accounted();
    let equation = "selected by a stream = prescaled away + written + failed + in flight";
    (!report.streams.iter().all(holds)).then(|| of_gateway(equation, name))
}

/// The equation of a gateway's inputs, where it does not hold. Of what they count it asks now and then, and once more at its
/// end.
fn not_taken((name, report): &(String, GatewayReport)) -> Option<UnbalancedSummary> {
    let handed_on: u64 = report.received.iter().map(|input| input.packets).sum();
    let received: u64 = report.flows.iter().map(|flow| flow.packets.packets.received).sum();
    let equation = "packets handed on by inputs = received";
    (report.is_over && handed_on != received).then(|| of_gateway(equation, name))
}

/// The equation of what was sent, of all flows together, where some of them share an input. It needs the number of packets
/// that each of those flows sent, which only the process of its sources knows.
fn unexplained_together(snapshot: &PushSnapshot, flows: &[FlowTotals]) -> Option<UnbalancedSummary> {
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

impl PushSummary {
    /// The summary of what is known now.
    pub(super) fn new(
        snapshot: &PushSnapshot,
        flows: &[FlowSection],
        state: PushState,
        run: RunNumber,
        directory: &Path,
        (running, whole): (Duration, Duration),
    ) -> Self {
        let each = flows.iter().enumerate();
        let totals: Vec<FlowTotals> = each.map(|(index, flow)| FlowTotals::new(snapshot, index, flow)).collect();
        let unbalanced = totals.iter().flat_map(|flow| flow.unbalanced.iter().cloned());
        let unbalanced = unbalanced.chain(snapshot.gateways.iter().filter_map(unwritten));
        let unbalanced = unbalanced.chain(snapshot.gateways.iter().filter_map(astray));
        let unbalanced = unbalanced.chain(snapshot.gateways.iter().filter_map(not_taken));
        let unbalanced = unbalanced.chain(unexplained_together(snapshot, &totals));
        let summary =
            |(section, flow): (&FlowSection, &FlowTotals)| (section.name.clone(), flow.summary(section, running));
        let of_gateways = snapshot.gateways.iter().flat_map(|(_, gateway)| facts_of(gateway));
        let found = totals.iter().fold(Facts::default(), |all, flow| all.and(&flow.facts())).with(of_gateways);
        let gateways = snapshot.gateways.iter().zip(&snapshot.hardware);
        let sum = |counter| snapshot.counter(counter);
        let failing =
            snapshot.gateways.iter().filter_map(|(name, gateway)| Some((name.clone(), gateway.disk_error()?)));
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
            flows: flows.iter().zip(&totals).map(summary).collect(),
            gateways: gateways
                .map(|((name, one), told)| (name.clone(), GatewaySummary::new(one, told.as_ref(), flows)))
                .collect(),
            nodes: NodeSummary::new(&snapshot.nodes),
            written: snapshot.gateways.iter().map(|(_, gateway)| gateway.written).sum(),
            streams: BTreeMap::new(),
            deleted: DeletedSummary::new(sum),
            disk: DiskSummary::new(sum, failing),
            transfer: None,
            histograms: Vec::new(),
            ledger: LedgerSummary::new(unbalanced),
            status: StatusSummary::default(),
            warnings: Vec::new(),
            facts: found,
        }
        .judged()
    }

    /// The same with its status, after whatever was added to it.
    fn judged(mut self) -> Self {
        let unbalanced = self.ledger.unbalanced.len() as u64;
        let facts = [
            (Fact::Forced, u64::from(self.state == PushState::Forced)),
            (Fact::Unbalanced, unbalanced),
            (Fact::StreamFailed, self.streams.values().map(|stream| stream.failed).sum()),
            (Fact::EventsGone, self.disk.events_gone),
            (Fact::KeptNewest, self.deleted.events),
        ];
        self.status = StatusSummary::of(&self.facts.with(facts), Asked::Taken);
        self
    }

    /// The same with the accounts of the streams of these names.
    pub(super) fn with_streams(mut self, names: &[StreamName], snapshot: &PushSnapshot) -> Self {
        let sum = |index: usize| {
            let mut sum = StreamAccount::default();
            let accounts = snapshot.gateways.iter().filter_map(|(_, gateway)| gateway.streams.get(index));
            accounts.for_each(|account| sum.merge(account));
            sum
        };
        let named = names.iter().enumerate().filter(|(_, name)| !name.is_unnamed());
        self.streams = named.map(|(index, name)| (name.to_string(), StreamSummary::from(&sum(index)))).collect();
        self
    }

    /// The same with the free space of the disks of this process.
    pub(super) fn with_disk_left(mut self, left: Option<DiskLeft>) -> Self {
        self.disk = self.disk.with_left(left);
        self
    }

    /// The same, where these threads panicked: what they had counted is what they told of themselves before.
    pub(super) fn with_panicked(mut self, threads: &[String]) -> Self {
        self.ledger.add(UnbalancedSummary::panicked(threads));
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
    pub const fn is_balanced(&self) -> bool {
        self.ledger.balanced
    }

    /// Nothing was lost, misplaced or doubtful.
    pub const fn is_complete(&self) -> bool {
        self.status.is_good()
    }
}

#[cfg(test)]
#[test]
fn losses_of_a_shared_input_are_compared_with_what_was_sent_only_where_that_is_known() {
    use crate::drive::gateway::{FlowReport, PacketSourceReport};
    use ropewalk_io::packet::ReceiveCounters;
    use ropewalk_terms::Cause;

    let mut input = ReceiveCounters::default();
    input.lost.add(Cause::NoFrame, 7);
    let flows = vec![FlowReport::default(), FlowReport::default()];
    let gateway = GatewayReport { flows, received: vec![input], is_over: true, ..GatewayReport::default() };
    let mut snapshot = PushSnapshot { gateways: vec![("gw0".to_owned(), gateway)], ..PushSnapshot::default() };
    let totals = |snapshot: &PushSnapshot| {
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
