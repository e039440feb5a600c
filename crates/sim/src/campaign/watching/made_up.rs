//! Samples of runs that nobody took.

use ropewalk_monitor::{NodeSample, Sample, SourceSample};
use ropewalk_terms::{ByCause, Counter, FragmentAccount, Instant, NodeId, RunNumber, SourceId, Utc};
use std::time::Duration;

/// A source of this readout unit that has sent nothing yet.
pub(super) fn source(id: u32, readout: NodeId) -> SourceSample {
    SourceSample {
        source: SourceId(id),
        readout,
        account: FragmentAccount::default(),
        lost_datagrams: ByCause::default(),
        corrupt: Vec::new(),
        numbers: [(Counter::SourceConnections, 1)].into_iter().collect(),
        histograms: Default::default(),
    }
}

/// A connected node that has counted this.
pub(super) fn node(node: NodeId, numbers: &[(Counter, u64)]) -> NodeSample {
    NodeSample {
        node,
        is_connected: true,
        incarnation: None,
        numbers: numbers.iter().copied().collect(),
        distributions: Default::default(),
    }
}

/// A run that takes data, so long after somebody began to count.
pub(super) fn running(run: u32, at: Duration, nodes: Vec<NodeSample>, sources: Vec<SourceSample>) -> Sample {
    let time = Instant::from_nanoseconds(at.as_nanos() as u64);
    Sample {
        time,
        utc: Utc(at.as_nanos() as i64),
        run: RunNumber(run),
        phase: "running",
        nodes,
        sources,
        ..Sample::default()
    }
}
