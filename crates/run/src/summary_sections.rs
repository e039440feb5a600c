//! Sections of an account: `ledger`, `clock`, `disk` and `deleted`, `cards`, `measures`, `filter`, `streams` and
//! `lumisections`.

use super::run_files::DiskLeft;
use ropewalk_engine::RunSnapshot;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::LumisectionEnd;
use ropewalk_io::clock::ClockQuality;
use ropewalk_io::disk::write_probe;
use ropewalk_monitor::{Distribution, Sample};
use ropewalk_terms::{Cause, Counter, Imbalance, MEASURES, Measure, StreamAccount, StreamIndex, Unit};
use ropewalk_wire::run_file::StreamName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The equations of an account that do not hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct LedgerSummary {
    /// Whether every equation holds.
    pub balanced: bool,
    /// The equations that do not hold.
    pub unbalanced: Vec<UnbalancedSummary>,
}

/// An equation that does not hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct UnbalancedSummary {
    /// The equation: its name, such as `fragments`, `events`, `decisions` or `pools`, or its terms.
    pub equation: String,
    /// The flow, in a push system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// The gateway, in a push system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Its left side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// Its right side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right: Option<u64>,
    /// The source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<u32>,
    /// The thread that panicked, instead of `left` and `right`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Packets sent that neither arrived nor have a cause; negative if more arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexplained: Option<i64>,
    /// An explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl LedgerSummary {
    /// Creates it from the equations that do not hold.
    pub(super) fn new(unbalanced: impl IntoIterator<Item = UnbalancedSummary>) -> Self {
        let unbalanced: Vec<_> = unbalanced.into_iter().collect();
        Self { balanced: unbalanced.is_empty(), unbalanced }
    }

    /// Adds equations that do not hold.
    pub(super) fn add(&mut self, more: impl IntoIterator<Item = UnbalancedSummary>) {
        self.unbalanced.extend(more);
        self.balanced = self.unbalanced.is_empty();
    }
}

impl UnbalancedSummary {
    /// Returns the equations of a pull run that do not hold.
    pub(super) fn of_run(snapshot: &RunSnapshot) -> impl Iterator<Item = Self> {
        let built = snapshot.ledger.events.built;
        let beyond = snapshot.beyond_events().filter(|_| snapshot.phase == RunPhase::Ended);
        let beyond = beyond.map(move |(source, more)| Self {
            source: Some(source.0),
            ..Self::sides("fragments of a source in complete events <= complete events", built + more, built)
        });
        snapshot.ledger.imbalances().into_iter().map(Self::from).chain(beyond)
    }

    /// Creates an equation without details.
    pub(super) fn new(equation: impl Into<String>) -> Self {
        Self { equation: equation.into(), ..Self::default() }
    }

    /// Creates an equation whose sides differ.
    pub(super) fn sides(equation: impl Into<String>, left: u64, right: u64) -> Self {
        Self { left: Some(left), right: Some(right), ..Self::new(equation) }
    }

    /// Creates an equation with an explanation.
    pub(super) fn because(equation: &str, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..Self::new(equation) }
    }

    /// Creates an equation of sent packets.
    pub(super) fn unexplained(equation: &str, packets: i64) -> Self {
        Self { unexplained: Some(packets), ..Self::new(equation) }
    }

    /// Threads that panicked.
    pub(super) fn panicked(threads: &[String]) -> impl Iterator<Item = Self> {
        threads.iter().map(|thread| Self { thread: Some(thread.clone()), ..Self::new("every thread ended by itself") })
    }
}

impl From<Imbalance> for UnbalancedSummary {
    fn from(Imbalance { equation, left, right }: Imbalance) -> Self {
        Self::sides(equation, left, right)
    }
}

impl fmt::Display for UnbalancedSummary {
    /// Writes it as JSON.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// What the kernel of the event manager's machine said of its civil time, which `started_ns` and the times of lumisections come from.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClockSummary {
    /// When the run began; null if this event manager was not there then, or was not told.
    pub at_start: Option<ClockReading>,
    /// When the account was closed; null if the kernel was not asked.
    pub at_end: Option<ClockReading>,
}

/// What the kernel said.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClockReading {
    /// Whether the clock is synchronised, for example by NTP or PTP.
    pub synchronised: bool,
    /// Estimated error of the clock, in microseconds.
    pub estimated_error_us: u64,
    /// Upper bound of the clock's error, in microseconds; 16,000,000 if unknown.
    pub maximum_error_us: u64,
}

impl ClockReading {
    /// Returns the present quality; `None` if the process is not allowed to ask.
    pub(super) fn now() -> Option<Self> {
        ClockQuality::of_this_machine().ok().map(Self::of)
    }

    fn of(quality: ClockQuality) -> Self {
        Self {
            synchronised: quality.is_synchronised,
            estimated_error_us: quality.estimated_error.as_micros() as u64,
            maximum_error_us: quality.maximum_error.as_micros() as u64,
        }
    }
}

impl ClockSummary {
    /// Returns whether the clock was synchronised whenever the kernel was asked, and its maximum error then, in
    /// microseconds. `None` if it was never asked.
    pub fn worst(&self) -> Option<(bool, u64)> {
        let readings = self.at_start.iter().chain(&self.at_end);
        readings
            .map(|reading| (reading.synchronised, reading.maximum_error_us))
            .reduce(|one, other| (one.0 && other.0, one.1.max(other.1)))
    }
}

/// Write errors, all of which were tried again, and free space.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct DiskSummary {
    /// Events that were written, in run files that were deleted: closed ones, and open ones that could not be written
    /// once more. They are lost.
    pub events_gone: u64,
    /// Builder units or gateways whose disk fails for another reason than lack of space.
    pub failing: Vec<FailingDisk>,
    /// What short probes found (`write = "auto"`), by output of this process: those of disks that were probed.
    pub probes: Vec<ProbedDisk>,
    /// Run files that were deleted or moved while they were written, and that were written once more.
    pub files_restored: u64,
    /// Free bytes above `least_free` on the disk of this process that is full first; null without a disk.
    pub free_bytes: Option<u64>,
    /// Failed operations, for lack of space or another reason.
    pub refusals: u64,
    /// Seconds until the disk is full at the rate of the last minute; null if it is not filling, or the run was short.
    pub seconds_left: Option<u64>,
}

/// Which way into files is faster on a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ProbedDisk {
    /// Bytes per second through the page cache, until they were on the device.
    pub buffered: u64,
    /// Bytes per second past the page cache.
    pub direct: u64,
    /// The directory.
    pub output: String,
    /// Which way is used where much is written: `direct` or `buffered`.
    pub write: &'static str,
}

/// A disk that fails.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct FailingDisk {
    /// The error message of the operating system.
    pub error: String,
    /// The builder unit or gateway.
    pub node: String,
}

/// Run files deleted to stay within `keep`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct DeletedSummary {
    /// Bytes in the run files.
    pub bytes: u64,
    /// Why they were deleted.
    #[schemars(extend("const" = Cause::KeptNewest.name()))]
    pub cause: &'static str,
    /// Events in them.
    pub events: u64,
    /// Run files.
    pub segments: u64,
}

/// Returns the error message of a disk, or of the pipe that replaces run files: without a reader it is not connected.
pub fn disk_error(number: i32) -> String {
    if number == rustix::io::Errno::NOTCONN.raw_os_error() {
        return "no program reads the pipe ([storage] pipe)".to_owned();
    }
    std::io::Error::from_raw_os_error(number).to_string()
}

impl DiskSummary {
    /// Creates it from the sums of counters and the error numbers of failing disks, by the name of the node.
    pub(super) fn new(sum: impl Fn(Counter) -> u64, failing: impl Iterator<Item = (String, i32)>) -> Self {
        Self {
            events_gone: sum(Counter::EventsGone),
            failing: failing.map(|(node, error)| FailingDisk::new(node, error)).collect(),
            files_restored: sum(Counter::FilesRestored),
            free_bytes: None,
            probes: Vec::new(),
            refusals: sum(Counter::DiskRefusals),
            seconds_left: None,
        }
    }

    /// Adds the free space of the disks of this process.
    #[must_use]
    pub(super) fn with_left(self, left: Option<DiskLeft>) -> Self {
        let seconds_left = left.and_then(|left| left.time).map(|time| time.as_secs());
        Self { free_bytes: left.map(|left| left.free_bytes), seconds_left, ..self }
    }
}

impl ProbedDisk {
    /// Returns the result of the probe of this output's disk; `None` if it was not probed.
    pub(super) fn of(output: &Path) -> Option<Self> {
        let probe = write_probe(output)?;
        Some(Self {
            buffered: probe.buffered as u64,
            direct: probe.direct as u64,
            output: output.display().to_string(),
            write: if probe.prefers_direct() { "direct" } else { "buffered" },
        })
    }
}

impl FailingDisk {
    pub(super) fn new(node: String, error: i32) -> Self {
        Self { error: disk_error(error), node }
    }
}

impl DeletedSummary {
    /// Creates it from the sums of counters.
    pub(super) fn new(sum: impl Fn(Counter) -> u64) -> Self {
        Self {
            bytes: sum(Counter::BytesDeleted),
            cause: Cause::KeptNewest.name(),
            events: sum(Counter::EventsDeleted),
            segments: sum(Counter::SegmentsDeleted),
        }
    }
}

/// Data of all link cards.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct CardSummary {
    /// Blocks, good and bad.
    pub blocks: u64,
    /// Blocks that were damaged as a whole.
    pub blocks_damaged: u64,
    /// Blocks that their e-links' sequence numbers show to be missing.
    pub blocks_missing: u64,
    /// Whole chunks, including flagged ones and those of e-links without a source.
    pub chunks: u64,
    /// Incomplete chunks that were given up.
    pub given_up: u64,
    /// Flags that cards gave to chunks.
    pub flagged: u64,
    /// Chunks, whole or given up, of e-links without a source.
    pub nobodys: u64,
    /// Signals beside the data.
    pub signals: u64,
    /// How often a card was found without room.
    pub stalls: u64,
    /// Bytes of an incomplete last block.
    pub left_over_bytes: u64,
    /// Chunks for subscribers, once for each: offered = sent + dropped + moved + queued.
    pub subscribers: SubscriberSummary,
}

/// Data of the subscribers of link cards.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SubscriberSummary {
    /// Subscribers that came.
    pub joined: u64,
    /// Chunks that a subscriber asked for.
    pub offered: u64,
    /// Chunks that were sent to it.
    pub sent: u64,
    /// Chunks that were dropped: the queue was full, or the subscriber left and no other one took over.
    pub dropped: u64,
    /// Chunks that others of its group took over when it went, to which they are offered anew.
    pub moved: u64,
    /// Chunks that wait, counted from the queues.
    pub queued: u64,
    /// Bytes that were copied for subscribers that may lose chunks.
    pub copied_bytes: u64,
    /// Messages to e-links that were refused: there is no down-link, or no room in it.
    pub down_refused: u64,
}

impl CardSummary {
    pub(super) fn new(snapshot: &RunSnapshot) -> Self {
        let counter = |counter| snapshot.counter(counter);
        let chunks = &snapshot.ledger.chunks;
        Self {
            blocks: counter(Counter::CardBlocks),
            blocks_damaged: counter(Counter::CardBlocksDamaged),
            blocks_missing: counter(Counter::CardBlocksMissing),
            chunks: counter(Counter::CardChunks),
            given_up: counter(Counter::CardChunksGivenUp),
            flagged: counter(Counter::CardChunksFlagged),
            nobodys: counter(Counter::CardChunksNobodys),
            signals: counter(Counter::CardSignals),
            stalls: counter(Counter::CardStalls),
            left_over_bytes: counter(Counter::CardBytesLeftOver),
            subscribers: SubscriberSummary {
                joined: counter(Counter::SubscribersJoined),
                offered: chunks.offered,
                sent: chunks.sent,
                dropped: chunks.dropped,
                moved: chunks.moved,
                queued: chunks.queued,
                copied_bytes: counter(Counter::ChunkBytesCopied),
                down_refused: counter(Counter::DownLinkRefused),
            },
        }
    }
}

/// How a measure's values are distributed, over all nodes. Percentiles are known to an eighth of themselves, and rounded up.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MeasureSummary {
    /// The unit of the values.
    pub unit: MeasureUnit,
    /// How many values there are.
    pub count: u64,
    /// The median.
    #[schemars(range(min = 0))]
    pub p50: f64,
    /// The 90th percentile.
    #[schemars(range(min = 0))]
    pub p90: f64,
    /// The 99th percentile.
    #[schemars(range(min = 0))]
    pub p99: f64,
    /// The 99.9th percentile.
    #[schemars(range(min = 0))]
    pub p99_9: f64,
    /// The largest value.
    #[schemars(range(min = 0))]
    pub max: f64,
}

/// The unit of a measure.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeasureUnit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl MeasureSummary {
    /// Summarises each measure that has a value, by its stable name: `event_size`, `build_latency`, `filter`,
    /// `disk_write`.
    pub(super) fn all(sample: &Sample) -> BTreeMap<String, Self> {
        let summary = |&measure: &Measure| {
            let summary = Self::new(measure.unit(), &sample.distribution(measure))?;
            Some((measure.name().to_owned(), summary))
        };
        MEASURES.iter().filter_map(summary).collect()
    }

    fn new(unit: Unit, distribution: &Distribution) -> Option<Self> {
        let (unit, scale) = if unit == Unit::Bytes { (MeasureUnit::Bytes, 1.0) } else { (MeasureUnit::Seconds, 1e9) };
        let quantile = |part| distribution.quantile(part).map(|value| value as f64 / scale);
        Some(Self {
            unit,
            count: distribution.count(),
            p50: quantile(0.5)?,
            p90: quantile(0.9)?,
            p99: quantile(0.99)?,
            p99_9: quantile(0.999)?,
            max: quantile(1.0)?,
        })
    }
}

/// What happened to filter units and to their events.
#[derive(Copy, Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FilterSummary {
    /// Events of which no decision could be made.
    pub failures: u64,
    /// Events that a filter unit had when it ended, and that went to another one.
    pub returned: u64,
    /// Decisions on what a filter unit did not have: ignored.
    pub stale_decisions: u64,
    /// Filter units that were started to replace another one.
    pub restarts: u64,
    /// Filter units that ended too often and are not restarted.
    pub given_up: u64,
    /// Events of ordered streams that came after later ones had been written: their builder unit had died.
    pub out_of_order: u64,
    /// Bytes of events that were copied for filters.
    pub copied_bytes: u64,
}

impl FilterSummary {
    pub(super) fn new(snapshot: &RunSnapshot) -> Self {
        let counter = |counter| snapshot.counter(counter);
        Self {
            failures: counter(Counter::FilterFailures),
            returned: counter(Counter::FilterReturned),
            stale_decisions: counter(Counter::FilterStaleDecisions),
            restarts: counter(Counter::FilterRestarts),
            given_up: counter(Counter::FilterUnitsGivenUp),
            out_of_order: counter(Counter::EventsOutOfOrder),
            copied_bytes: counter(Counter::FilterBytesCopied),
        }
    }
}

/// Returns the accounts of the named streams.
pub(super) fn stream_summaries(snapshot: &RunSnapshot, names: &[StreamName]) -> BTreeMap<String, StreamAccount> {
    let named = names.iter().zip((0..).map(StreamIndex)).filter(|(name, _)| !name.is_unnamed());
    named.map(|(name, index)| (name.to_string(), snapshot.streams.get(&index).copied().unwrap_or_default())).collect()
}

/// A lumisection that is over: its events, all of which have ended. assigned = built + incomplete_emitted +
/// incomplete_dropped; built + incomplete_emitted = accepted + rejected + quarantined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LumisectionSummary {
    /// Its number, from 1.
    #[schemars(range(min = 1))]
    pub number: u32,
    /// Its first event.
    pub first: String,
    /// The flow of its events; null if builder units pull.
    pub flow: Option<String>,
    /// Event keys given to builder units, each once however often it was assigned.
    pub assigned: u64,
    /// Events built with every required source.
    pub built: u64,
    /// Incomplete events that were kept.
    pub incomplete_emitted: u64,
    /// Events that were dropped.
    pub incomplete_dropped: u64,
    /// Events kept by the decision.
    pub accepted: u64,
    /// Accepted events that no stream took because of prescales.
    pub unselected: u64,
    /// Events thrown away by the decision.
    pub rejected: u64,
    /// Events set aside without a decision.
    pub quarantined: u64,
}

impl LumisectionSummary {
    /// Creates the summary of a lumisection that is over.
    pub(crate) fn new(end: &LumisectionEnd) -> Self {
        let account = end.account();
        Self {
            number: end.number,
            first: end.before.below.to_string(),
            flow: None,
            assigned: account.assigned,
            built: account.built,
            incomplete_emitted: account.incomplete_emitted,
            incomplete_dropped: account.incomplete_dropped.total(),
            accepted: account.accepted,
            unselected: account.unselected,
            rejected: account.rejected,
            quarantined: account.quarantined,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_worst_of_both_ends_is_what_counts() {
        let reading = |is_synchronised, milliseconds| {
            let error = Duration::from_millis(milliseconds);
            Some(ClockReading::of(ClockQuality { is_synchronised, estimated_error: error / 2, maximum_error: error }))
        };
        assert_eq!(ClockSummary::default().worst(), None);
        let only = ClockSummary { at_start: None, at_end: reading(true, 3) };
        assert_eq!(only.worst(), Some((true, 3_000)));
        let lost = ClockSummary { at_start: reading(true, 5), at_end: reading(false, 4) };
        assert_eq!(lost.worst(), Some((false, 5_000)));
    }

    #[test]
    fn percentiles_are_of_all_values_and_in_the_units_that_people_read() {
        let values: Distribution = (1..=1_000_000).collect();
        let sizes = MeasureSummary::new(Unit::Bytes, &values).expect("there are values");
        assert_eq!((sizes.unit, sizes.count), (MeasureUnit::Bytes, 1_000_000));
        for (told, exact) in
            [(sizes.p50, 5e5), (sizes.p90, 9e5), (sizes.p99, 9.9e5), (sizes.p99_9, 9.99e5), (sizes.max, 1e6)]
        {
            assert!((exact..=exact * 1.125).contains(&told), "{told} for {exact}");
        }
        let times = MeasureSummary::new(Unit::Nanoseconds, &values).expect("there are values");
        assert_eq!((times.unit, times.max), (MeasureUnit::Seconds, sizes.max / 1e9));
        assert_eq!(MeasureSummary::new(Unit::Bytes, &Distribution::default()), None);
    }
}
