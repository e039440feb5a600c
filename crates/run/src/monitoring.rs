//! The filters' counts, stored beside the events: a document of each builder unit for each lumisection, and the sum
//! over builder units.
//!
//! ```text
//!  RecordStore of a builder unit --> Archive, a thread --> run000001-bu0-ls000001.json
//!                                                           run000001-bu1-ls000001.json --merge--> Histograms, histograms.json
//! ```
//! A document appears atomically under its name. If a builder unit restarts in the middle of a run, the same
//! lumisection may have a second document, `run000001-bu0-ls000001-2.json`. Each covers different events, and both
//! count.

use ropewalk_engine::RecordStore;
use ropewalk_flow::filter::{Histogram, LumisectionRecord};
use ropewalk_terms::{NodeId, RunNumber};
use ropewalk_wire::run_file::{StreamName, run_directory_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};

/// Maximum number of lumisections that wait to be written.
const WAITING: usize = 64;

/// A record on its way to the archive.
struct Closed {
    run: RunNumber,
    /// Index of the builder unit.
    writer: usize,
    record: LumisectionRecord,
}

/// A builder unit's line to the archive.
pub(crate) struct Line {
    writer: usize,
    to_write: SyncSender<Closed>,
    written: Receiver<LumisectionRecord>,
}

#[cfg(test)]
impl Line {
    /// Closes the line. Returns the receiver of written records.
    fn into_returned(self) -> Receiver<LumisectionRecord> {
        self.written
    }
}

impl RecordStore for Line {
    fn keep(&mut self, run: RunNumber, record: LumisectionRecord) -> Result<(), LumisectionRecord> {
        match self.to_write.try_send(Closed { run, writer: self.writer, record }) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(closed) | TrySendError::Disconnected(closed)) => Err(closed.record),
        }
    }

    fn give_back(&mut self) -> Option<LumisectionRecord> {
        self.written.try_recv().ok()
    }
}

/// A builder unit, and where its records are written.
struct Writer {
    node: NodeId,
    /// Parent of its run directories.
    output: PathBuf,
    streams: Vec<StreamName>,
    written: Sender<LumisectionRecord>,
}

/// Writes the documents of the builder units of this process.
pub(crate) struct Archive {
    to_write: SyncSender<Closed>,
    waiting: Receiver<Closed>,
    writers: Vec<Writer>,
}

impl Archive {
    /// Creates an archive without writers.
    pub(crate) fn new() -> Self {
        let (to_write, waiting) = sync_channel(WAITING);
        Self { to_write, waiting, writers: Vec::new() }
    }

    /// Adds a builder unit whose run directories are in `output`, and whose streams have these names.
    pub(crate) fn line(&mut self, node: NodeId, output: PathBuf, streams: Vec<StreamName>) -> Line {
        let (written, received) = channel();
        let writer = self.writers.len();
        self.writers.push(Writer { node, output, streams, written });
        Line { writer, to_write: self.to_write.clone(), written: received }
    }

    /// Returns whether no builder unit has a line to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Returns the directories that may contain documents.
    pub(crate) fn outputs(&self) -> Vec<PathBuf> {
        let mut outputs: Vec<_> = self.writers.iter().map(|writer| writer.output.clone()).collect();
        outputs.sort();
        outputs.dedup();
        outputs
    }

    /// Writes incoming records until every line is closed. Returns descriptions of the failures.
    pub(crate) fn write_all(self) -> Vec<String> {
        let Self { to_write, waiting, writers } = self;
        drop(to_write);
        let mut failed = Vec::new();
        for Closed { run, writer, record } in waiting {
            let Some(writer) = writers.get(writer) else { continue };
            let directory = writer.output.join(run_directory_name(run));
            if let Err(error) = write(&directory, run, writer, &record) {
                let (node, number) = (writer.node, record.number);
                failed.push(format!(
                    "{node}: what the filter counted in lumisection {number} cannot be kept in {}: {error}",
                    directory.display()
                ));
            }
            // The drive may have ended before.
            let _ = writer.written.send(record);
        }
        failed
    }
}

fn write(directory: &Path, run: RunNumber, writer: &Writer, record: &LumisectionRecord) -> io::Result<()> {
    let document = Document {
        schema: DOCUMENT_SCHEMA.to_owned(),
        run: run.0,
        writer: writer.node.to_string(),
        lumisection: record.number,
        counts: Counts::of(record, &writer.streams),
    };
    std::fs::create_dir_all(directory)?;
    let name = format!("run{run:06}-{}-ls{:06}", writer.node, record.number);
    // Documents of earlier incarnations of this builder unit are kept.
    let names = std::iter::once(name.clone()).chain((2..).map(|life| format!("{name}-{life}")));
    let free = names.map(|name| directory.join(name + ".json")).find(|path| !path.exists());
    let path = free.ok_or(io::ErrorKind::AlreadyExists)?;
    write_whole(&path, &document)
}

/// Writes a document atomically.
fn write_whole(path: &Path, document: &impl serde::Serialize) -> io::Result<()> {
    let temporary = path.with_extension("json.tmp");
    std::fs::write(&temporary, serde_json::to_vec(document)?)?;
    std::fs::rename(&temporary, path)
}

/// Decisions on events, the events that each trigger and stream took, and the content of histograms.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Events that were accepted, whether or not a stream took them.
    pub accepted: u64,
    /// Events that were rejected.
    pub rejected: u64,
    /// Events of which no decision could be made: they are in the stream `error`.
    pub quarantined: u64,
    /// Accepted events that passed each trigger, by its number; triggers that none passed are left out.
    pub triggers: BTreeMap<u8, u64>,
    /// Events that each stream took, after its prescale, by its name.
    pub streams: BTreeMap<String, u64>,
    /// Histograms by their names.
    pub histograms: BTreeMap<String, HistogramCounts>,
    /// Fills for which there was no room or no histogram.
    pub dropped_fills: u64,
}

/// A histogram: bins of equal width from `low` on up to `high`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HistogramCounts {
    /// Where the first bin begins.
    pub low: f64,
    /// Where the last bin ends.
    pub high: f64,
    /// All entries: those of the bins, and the three that follow.
    pub entries: u64,
    /// Values below the first bin.
    pub underflow: u64,
    /// Values behind the last bin.
    pub overflow: u64,
    /// What was no number.
    pub not_a_number: u64,
    /// The entries of each bin, all of equal width.
    pub bins: Vec<u64>,
}

impl Counts {
    /// Creates the counts of a record whose streams have these names.
    fn of(record: &LumisectionRecord, streams: &[StreamName]) -> Self {
        let named = streams.iter().zip(&record.streams).map(|(name, &count)| (name.to_string(), count));
        let passed = (0..).zip(&record.triggers).filter(|(_, count)| **count > 0);
        let histogram = |one: &Histogram| (one.shape().name().to_owned(), HistogramCounts::of(one));
        Self {
            accepted: record.accepted,
            rejected: record.rejected,
            quarantined: record.quarantined,
            triggers: passed.map(|(trigger, &count)| (trigger, count)).collect(),
            streams: named.collect(),
            histograms: record.histograms.iter().map(histogram).collect(),
            dropped_fills: record.dropped_fills,
        }
    }

    /// Returns the number of events that were decided on, or could not be.
    pub const fn events(&self) -> u64 {
        self.accepted + self.rejected + self.quarantined
    }

    /// Adds other counts. The error is the name of a histogram whose shape differs from the one of that name here; it
    /// is not added.
    fn add(&mut self, other: &Self) -> Result<(), String> {
        for (name, more) in &other.histograms {
            let known = self.histograms.entry(name.clone()).or_insert_with(|| more.without_entries());
            if !known.add(more) {
                return Err(name.clone());
            }
        }
        for (sum, more) in [
            (&mut self.accepted, other.accepted),
            (&mut self.rejected, other.rejected),
            (&mut self.quarantined, other.quarantined),
            (&mut self.dropped_fills, other.dropped_fills),
        ] {
            add(sum, more);
        }
        other.triggers.iter().for_each(|(trigger, &count)| add(self.triggers.entry(*trigger).or_default(), count));
        other.streams.iter().for_each(|(name, &count)| add(self.streams.entry(name.clone()).or_default(), count));
        Ok(())
    }
}

/// Adds a number from a file, which may have any value.
const fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

impl HistogramCounts {
    fn of(histogram: &Histogram) -> Self {
        Self {
            low: histogram.shape().low(),
            high: histogram.shape().high(),
            entries: histogram.entries(),
            underflow: histogram.underflow,
            overflow: histogram.overflow,
            not_a_number: histogram.not_a_number,
            bins: histogram.counts.to_vec(),
        }
    }

    fn without_entries(&self) -> Self {
        let bins = vec![0; self.bins.len()];
        Self { entries: 0, underflow: 0, overflow: 0, not_a_number: 0, bins, ..*self }
    }

    /// Adds another histogram. Returns false, without adding, if its shape differs.
    fn add(&mut self, other: &Self) -> bool {
        if (self.low, self.high, self.bins.len()) != (other.low, other.high, other.bins.len()) {
            return false;
        }
        self.bins.iter_mut().zip(&other.bins).for_each(|(count, &more)| add(count, more));
        for (sum, more) in [
            (&mut self.entries, other.entries),
            (&mut self.underflow, other.underflow),
            (&mut self.overflow, other.overflow),
            (&mut self.not_a_number, other.not_a_number),
        ] {
            add(sum, more);
        }
        true
    }

    /// Returns the mean of the values in bins, each taken as the middle of its bin; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        let inside: u64 = self.bins.iter().sum();
        let width = (self.high - self.low) / self.bins.len() as f64;
        let middle = |bin: usize| (bin as f64 + 0.5).mul_add(width, self.low);
        let sum: f64 = self.bins.iter().enumerate().map(|(bin, &count)| middle(bin) * count as f64).sum();
        (inside > 0).then(|| sum / inside as f64)
    }
}

/// Name and version of the format of a builder unit's document.
const DOCUMENT_SCHEMA: &str = "ropewalk-lumisection-1";
/// Name and version of the format of the sum: `docs/schema/histograms.json`.
pub const HISTOGRAMS_SCHEMA: &str = "ropewalk-histograms-1";
/// Name of the file with the sum in a run's directory.
pub const MERGED_FILE: &str = "histograms.json";

/// The counts of one builder unit in one lumisection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Document {
    /// [`DOCUMENT_SCHEMA`].
    schema: String,
    run: u32,
    /// The builder unit.
    writer: String,
    lumisection: u32,
    counts: Counts,
}

/// What the filters of a run counted, of all builder units.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(
    title = "What the filters of a run counted: `histograms.json` in its directory, and the output of `ropewalk histograms RUNDIR... --json`"
)]
pub struct Histograms {
    /// The form's name and version.
    #[schemars(extend("const" = HISTOGRAMS_SCHEMA))]
    pub schema: &'static str,
    /// The run's number.
    pub run: u32,
    /// Builder units that have documents in the directory.
    pub builders: BTreeSet<String>,
    /// All lumisections together.
    pub total: Counts,
    /// Each of them, in order.
    pub lumisections: Vec<LumisectionCounts>,
}

/// What was counted in one lumisection.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct LumisectionCounts {
    /// Its number.
    pub lumisection: u32,
    /// The number of documents of builder units in the sum.
    pub documents: u64,
    /// What they say.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Why documents cannot be added up.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The system refused something.
    #[error("{}: cannot {action}: {error}", path.display())]
    System {
        /// The operation.
        action: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// There are none.
    #[error(
        "{places}: no documents of filters here, such as run000001-bu0-ls000001.json; name the directories of a run with a [filter]"
    )]
    Nothing {
        /// Where they were searched.
        places: String,
    },
    /// The content of a file does not fit its name, or the other files.
    #[error("{}: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The problem and its remedy.
        why: String,
    },
}

/// Adds up the documents in some directories of one run.
///
/// # Errors
/// If there are none, if one cannot be read, or if they are not of one run.
pub fn merge(directories: &[PathBuf]) -> Result<Histograms, MergeError> {
    let mut paths = BTreeSet::new();
    for directory in directories {
        let system = |error| MergeError::System { action: "read the directory", path: directory.clone(), error };
        for entry in std::fs::read_dir(directory).map_err(system)? {
            let path = entry.map_err(system)?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(is_document) {
                paths.insert(path);
            }
        }
    }
    let (mut run, mut builders, mut total) = (None, BTreeSet::new(), Counts::default());
    let mut lumisections: BTreeMap<u32, LumisectionCounts> = BTreeMap::new();
    for path in paths {
        let document = read(&path)?;
        let expected = *run.get_or_insert(document.run);
        if document.run != expected {
            let why =
                format!("of run {}, and others are of run {expected}; name the directories of one run", document.run);
            return Err(MergeError::Unfit { path, why });
        }
        builders.insert(document.writer);
        let lumisection = document.lumisection;
        let empty = || LumisectionCounts { lumisection, documents: 0, counts: Counts::default() };
        let known = lumisections.entry(lumisection).or_insert_with(empty);
        known.documents += 1;
        for counts in [&mut known.counts, &mut total] {
            counts.add(&document.counts).map_err(|name| {
                let others = "than in other documents of the run; give it another name where it is another one";
                MergeError::Unfit {
                    path: path.clone(),
                    why: format!("histogram `{name}` has other bins here {others}"),
                }
            })?;
        }
    }
    let places = || directories.iter().map(|one| one.display().to_string()).collect::<Vec<_>>().join(", ");
    let run = run.ok_or_else(|| MergeError::Nothing { places: places() })?;
    let lumisections = lumisections.into_values().collect();
    Ok(Histograms { schema: HISTOGRAMS_SCHEMA, run, builders, total, lumisections })
}

/// Returns whether a file has the name of a document: `run000001-bu0-ls000001.json`, or one with the number of an
/// incarnation at its end.
fn is_document(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("run").and_then(|rest| rest.strip_suffix(".json")) else { return false };
    let mut parts = rest.split('-');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_run = parts.next().is_some_and(is_number);
    let is_builder = parts.next().is_some_and(|part| part.strip_prefix("bu").is_some_and(is_number));
    let is_lumisection = parts.next().is_some_and(|part| part.strip_prefix("ls").is_some_and(is_number));
    is_run && is_builder && is_lumisection && parts.next().is_none_or(is_number) && parts.next().is_none()
}

fn read(path: &Path) -> Result<Document, MergeError> {
    let system = |error| MergeError::System { action: "read it", path: path.to_owned(), error };
    let malformed = |why: String| MergeError::Unfit {
        path: path.to_owned(),
        why: format!("not what a builder unit writes of a filter: {why}; remove it, or name it otherwise"),
    };
    let bytes = std::fs::read(path).map_err(system)?;
    let document: Document = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    if document.schema != DOCUMENT_SCHEMA {
        return Err(malformed(format!("its schema is `{}` and not `{DOCUMENT_SCHEMA}`", document.schema)));
    }
    Ok(document)
}

impl Histograms {
    /// Writes the sum into a run's directory.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(&self, directory: &Path) -> io::Result<()> {
        write_whole(&directory.join(MERGED_FILE), self)
    }
}

#[cfg(test)]
mod tests {
    use super::{Archive, MergeError, merge};
    use ropewalk_engine::RecordStore;
    use ropewalk_flow::filter::{Counted, Fill, Fills, HistogramShape, LumisectionRecord, Monitoring};
    use ropewalk_terms::{NodeId, RunNumber, StreamIndex, StreamSet, TriggerBits, Verdict};
    use ropewalk_wire::run_file::StreamName;
    use std::path::{Path, PathBuf};

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ropewalk-monitoring-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }

        fn run(&self) -> PathBuf {
            self.0.join("run000007")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Returns a record of this many accepted events of trigger 5, each of which fills one value, and one rejected
    /// event.
    fn record(lumisection: u32, bins: u32, values: &[f64]) -> LumisectionRecord {
        let mut monitoring = Monitoring::new(1);
        let places = monitoring.declare(&[HistogramShape::new("energy", bins, 0.0, 10.0).expect("there can be one")]);
        for &value in values {
            let (triggers, streams) = (TriggerBits::of(5), StreamSet::of(StreamIndex(0)));
            monitoring.decided(&Counted { lumisection, verdict: Verdict::Accepted, triggers, streams });
            let mut fills = Fills::default();
            fills.push(Fill { histogram: 0, value });
            monitoring.fill(lumisection, &places, &fills);
        }
        let (verdict, streams) = (Verdict::Rejected, StreamSet::EMPTY);
        monitoring.decided(&Counted { lumisection, verdict, triggers: TriggerBits::default(), streams });
        monitoring.close(lumisection);
        monitoring.next_closed().expect("it is closed")
    }

    /// Writes these records, each of a builder unit, and checks that each record was returned.
    fn keep(output: &Path, records: Vec<(usize, LumisectionRecord)>) {
        let stream: StreamName = "physics".parse().expect("a name");
        let mut archive = Archive::new();
        let mut lines = [0, 1].map(|index| archive.line(NodeId::builder(index), output.to_owned(), vec![stream]));
        let count = records.len();
        for (builder, record) in records {
            lines[builder].keep(RunNumber(7), record).expect("there is room for some before writing begins");
        }
        let receivers = lines.map(|line| line.into_returned());
        assert_eq!(archive.write_all(), Vec::<String>::new());
        assert_eq!(receivers.iter().flat_map(|returned| returned.try_iter()).count(), count);
    }

    fn energies(sum: &super::Histograms) -> (u64, u64) {
        let energy = &sum.total.histograms["energy"];
        (energy.entries, energy.bins.iter().sum())
    }

    #[test]
    fn the_documents_of_builder_units_are_added_up_by_lumisection() {
        let directory = Directory::new("sum");
        let records = vec![
            (0, record(1, 10, &[0.5, 1.5, 99.0])),
            (1, record(1, 10, &[0.5])),
            (0, record(2, 10, &[])),
            // A later incarnation of the same builder unit also had events of the first lumisection.
            (1, record(1, 10, &[-1.0, f64::NAN])),
        ];
        keep(&directory.0, records);
        let sum = merge(&[directory.run()]).expect("they are of one run");
        assert_eq!((sum.run, sum.builders.len(), sum.lumisections.len()), (7, 2, 2));
        assert_eq!((sum.total.accepted, sum.total.rejected, sum.total.events()), (6, 4, 10));
        assert_eq!((sum.total.triggers[&5], sum.total.streams["physics"]), (6, 6));
        assert_eq!(energies(&sum), (6, 3));
        let first = &sum.lumisections[0];
        assert_eq!((first.lumisection, first.documents), (1, 3));
        let energy = &first.counts.histograms["energy"];
        assert_eq!((energy.bins[0], energy.bins[1]), (2, 1));
        assert_eq!((energy.underflow, energy.overflow, energy.not_a_number), (1, 1, 1));
        assert_eq!(energy.mean(), Some((0.5 + 0.5 + 1.5) / 3.0));
        assert_eq!(sum.lumisections[1].counts.histograms["energy"].mean(), None);
        // Neither the sum nor a partly written file counts as a document.
        sum.keep(&directory.run()).expect("it can be written");
        std::fs::write(directory.run().join("run000007-bu0-ls000003.json.tmp"), "half").expect("it is ours");
        assert_eq!(merge(&[directory.run(), directory.run()]).expect("each counts once"), sum);
    }

    #[test]
    fn what_cannot_be_added_up_is_refused_with_its_file() {
        let directory = Directory::new("refused");
        std::fs::create_dir(directory.run()).expect("it is ours");
        assert!(matches!(merge(&[directory.run()]), Err(MergeError::Nothing { .. })));
        assert!(matches!(merge(&[directory.0.join("nowhere")]), Err(MergeError::System { .. })));
        keep(&directory.0, vec![(0, record(1, 10, &[1.0])), (1, record(1, 11, &[1.0]))]);
        let error = merge(&[directory.run()]).expect_err("the bins differ").to_string();
        assert!(error.contains("run000007-bu1-ls000001.json") && error.contains("histogram `energy`"), "{error}");
        let path = directory.run().join("run000007-bu1-ls000001.json");
        let text = std::fs::read_to_string(&path).expect("it is there");
        for (from, to, words) in [
            ("\"run\":7", "\"run\":8", "of run 8"),
            ("ropewalk-lumisection-1", "ropewalk-lumisection-9", "its schema is"),
            ("{\"schema\"", "[{\"schema\"", "not what a builder unit writes"),
        ] {
            assert!(text.contains(from), "{text}");
            std::fs::write(&path, text.replacen(from, to, 1)).expect("it is ours");
            let error = merge(&[directory.run()]).expect_err("it cannot be").to_string();
            assert!(error.contains(words) && error.contains("bu1-ls000001"), "{error}");
        }
        // No number in a document can make the program fail.
        let huge = text.replace("\"accepted\":1", &format!("\"accepted\":{}", u64::MAX)).replace("11.0", "10.0");
        std::fs::write(&path, huge.replace("\"energy\"", "\"other\"")).expect("it is ours");
        assert_eq!(merge(&[directory.run()]).expect("it can be").total.accepted, u64::MAX);
    }

    #[test]
    fn what_cannot_be_written_is_reported() {
        let directory = Directory::new("full");
        // A file at the place of the run's directory.
        std::fs::write(directory.run(), "in the way").expect("it is ours");
        let mut archive = Archive::new();
        let mut line = archive.line(NodeId::builder(0), directory.0.clone(), Vec::new());
        line.keep(RunNumber(7), record(1, 10, &[1.0])).expect("there is room");
        drop(line);
        let told = archive.write_all();
        assert!(told.len() == 1 && told[0].contains("lumisection 1 cannot be kept"), "{told:?}");
    }
}
