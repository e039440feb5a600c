//! Samples for tests.

use crate::{NodeSample, Numbers, Sample, SourceSample};
use core::time::Duration;
use ropewalk_terms::{ByCause, Counter, FragmentAccount, Instant, NodeId, RunNumber, SourceId};

/// A source of `ru0` that has sent `received` fragments of 100 bytes.
pub(crate) fn source(id: u32, received: u64) -> SourceSample {
    SourceSample {
        source: SourceId(id),
        readout: NodeId::readout(0),
        account: FragmentAccount { received, ..FragmentAccount::default() },
        lost_datagrams: ByCause::default(),
        corrupt: Vec::new(),
        numbers: Numbers::from_iter([
            (Counter::FragmentsReceived, received),
            (Counter::PayloadBytesReceived, 100 * received),
            (Counter::SourceConnections, 1),
        ]),
        doubts: Vec::new(),
        sends_datagrams: false,
        numbering: Default::default(),
        histograms: Default::default(),
    }
}

/// The same, held back for `time` since the start.
pub(crate) fn held_back(mut source: SourceSample, time: Duration) -> SourceSample {
    source.numbers.add(Counter::BackPressureTime, time.as_nanos() as u64);
    source
}

/// A connected node that counts `numbers`.
pub(crate) fn node(node: NodeId, numbers: &[(Counter, u64)]) -> NodeSample {
    NodeSample {
        node,
        is_connected: true,
        reported: None,
        incarnation: None,
        numbers: numbers.iter().copied().collect(),
        distributions: Default::default(),
    }
}

/// A run with these sources, a readout unit and a builder unit, `seconds` after its start.
pub(crate) fn sample(seconds: u64, sources: Vec<SourceSample>) -> Sample {
    Sample {
        time: Instant::from_nanoseconds(seconds * 1_000_000_000),
        run: RunNumber(3),
        phase: "running",
        nodes: vec![node(NodeId::readout(0), &[(Counter::PoolBlocks, 100)]), node(NodeId::builder(0), &[])],
        sources,
        ..Sample::default()
    }
}
