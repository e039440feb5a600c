//! Documents of builder units, and their sum.

use super::{Archive, MergeError, merge};
use crate::drive::RecordKeeper;
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

/// So many accepted events of trigger 5, each of which fills one value, and one that was rejected.
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

/// Writes these, each by a builder unit, and looks whether each record came back.
fn keep(output: &Path, records: Vec<(usize, LumisectionRecord)>) {
    let stream: StreamName = "physics".parse().expect("a name");
    let mut archive = Archive::new();
    let mut lines = [0, 1].map(|index| archive.line(NodeId::builder(index), output.to_owned(), vec![stream]));
    let count = records.len();
    for (builder, record) in records {
        lines[builder].keep(RunNumber(7), record).expect("there is room for some before anybody writes");
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
        // A later life of the same builder unit had events of the first lumisection as well.
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
    // The sum is no document itself, and neither is what is being written.
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
    // Whatever numbers a document has, adding them up does not end the program.
    let huge = text.replace("\"accepted\":1", &format!("\"accepted\":{}", u64::MAX)).replace("11.0", "10.0");
    std::fs::write(&path, huge.replace("\"energy\"", "\"other\"")).expect("it is ours");
    assert_eq!(merge(&[directory.run()]).expect("it can be").total.accepted, u64::MAX);
}

#[test]
fn what_cannot_be_written_is_told() {
    let directory = Directory::new("full");
    // A file where the run's directory would be.
    std::fs::write(directory.run(), "in the way").expect("it is ours");
    let mut archive = Archive::new();
    let mut line = archive.line(NodeId::builder(0), directory.0.clone(), Vec::new());
    line.keep(RunNumber(7), record(1, 10, &[1.0])).expect("there is room");
    drop(line);
    let told = archive.write_all();
    assert!(told.len() == 1 && told[0].contains("lumisection 1 cannot be kept"), "{told:?}");
}
