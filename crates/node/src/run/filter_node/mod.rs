//! A filter node: the filter units of builder units on other machines, in a process and on a thread of its own.

mod caller;
mod served;

use super::assemble::{RunError, endpoint, system};
use super::filters::{fingerprint, process, unfit};
use super::placement::{Part, Purpose, pool_of};
use super::thread_placement::ThreadPlacement;
use super::watched::Watched;
use super::worker::{Ending, Worker};
use crate::configuration::Configuration;
use ropewalk_io::tcp::{Tcp, TcpConfig};
use ropewalk_memory::{MemoryKind, PoolConfig, Staging};
use ropewalk_wire::filter_node::LARGEST_CONTROL;
use served::{FilterNodeDrive, NodeCounts};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The thread's name, and the begin of those of its pools.
const NAME: &str = "filter-node";
/// Bytes of a decision at most.
const MOST_DECISION: usize = LARGEST_CONTROL;
/// Blocks that decisions are sent from: each has room for several.
const STAGING_BLOCK: usize = 256 << 10;
const STAGING_BLOCKS: usize = 64;
/// Bytes of decisions that wait to be sent.
const QUEUE: usize = 4 << 20;
/// Blocks that events are received into.
const RECEIVE_BLOCK: usize = 1 << 20;

/// A filter node at work.
#[derive(Debug)]
pub struct FilterNodeHandle {
    worker: Worker,
    ending: Arc<Ending>,
    address: String,
    counts: Arc<NodeCounts>,
    watched: Vec<Watched>,
    warnings: Vec<String>,
}

/// What a filter node has done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FilterNodeSummary {
    /// Callers whose filter became ready.
    pub welcomed: u64,
    /// Callers who were refused.
    pub refused: u64,
    /// Decisions that were sent.
    pub decisions: u64,
}

/// Starts a filter node that listens there, with the filter of this configuration, which is tried out first.
///
/// # Errors
/// Where there is no such filter, or the address, memory or a thread cannot be had.
pub fn launch_filter_node(configuration: &Configuration, listen: &str) -> Result<FilterNodeHandle, RunError> {
    let section = configuration.filter.as_ref().filter(|section| section.has_processes());
    let section = section.ok_or_else(|| {
        RunError::Unfit(
            "a filter node needs a [filter] with a `library` that is not trusted, or a `program`".to_owned(),
        )
    })?;
    let placement = ThreadPlacement::new(configuration, Part::Other)?;
    // Twice as many as are wanted at once: whoever comes again does not wait for the end of the process that it had.
    let units = 2 * usize::from(section.units) * configuration.builder.len().max(1);
    let memory = MemoryKind::Memfd;
    let blocks = (section.node_memory.0 as usize).div_ceil(RECEIVE_BLOCK).max(2 * units);
    let receive =
        PoolConfig { memory, ..PoolConfig::anonymous(&pool_of(NAME, Purpose::Control), RECEIVE_BLOCK, blocks) };
    let receive = placement.pool(receive)?;
    let tcp = TcpConfig { send_queue_bytes: QUEUE, ..TcpConfig::default() };
    let peers = Tcp::new(tcp, receive).map_err(endpoint(NAME))?;
    let staging = PoolConfig::anonymous(&pool_of(NAME, Purpose::Staging), STAGING_BLOCK, STAGING_BLOCKS);
    let staging = Staging::new(placement.untouched_pool(staging)?);
    let mut warnings = Vec::new();
    let mut processes = Vec::new();
    for unit in 0..units {
        let mut one = process(section).map_err(unfit)?;
        if unit == 0 {
            one.try_out(crate::library_process::START).map_err(unfit)?;
            warnings.extend(one.missing().texts().map(|text| format!("{NAME}: {text}")));
        }
        processes.push(one);
    }
    let watched =
        (0..).zip(&processes).map(|(unit, one)| Watched::new(format!("filter {unit}"), one.journal())).collect();
    let drive = FilterNodeDrive::new(listen, fingerprint(section), section.events, peers, staging, processes);
    let drive = drive.map_err(endpoint(NAME))?;
    let (address, counts, ending) = (drive.address().to_owned(), drive.counts(), Arc::new(Ending::default()));
    let prepare = placement.on_start(NAME);
    let worker = Worker::start(NAME, vec![Box::new(drive)], Arc::clone(&ending), prepare);
    let worker = worker.map_err(system(format!("thread {NAME}")))?;
    warnings.extend(placement.finish()?);
    Ok(FilterNodeHandle { worker, ending, address, counts, watched, warnings })
}

impl FilterNodeHandle {
    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What was asked of the system, refused, and gone without.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What filters did wrong for the first time since it was asked last.
    pub fn take_news(&mut self) -> Vec<String> {
        self.watched.iter_mut().flat_map(Watched::take_news).collect()
    }

    /// Whether its thread has ended, as it does where it panics.
    pub fn has_ended(&self) -> bool {
        self.worker.is_finished()
    }

    /// What it has done until now.
    pub fn summary(&self) -> FilterNodeSummary {
        let NodeCounts { welcomed, refused, decisions } = &*self.counts;
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        FilterNodeSummary { welcomed: read(welcomed), refused: read(refused), decisions: read(decisions) }
    }

    /// Ends it, with its processes.
    pub fn finish(self) -> FilterNodeSummary {
        self.ending.halt();
        self.worker.wake();
        let summary = self.summary();
        self.worker.join();
        summary
    }
}
