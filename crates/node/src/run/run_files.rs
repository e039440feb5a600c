//! From `[run]` and `[storage]` to what writes run files and takes them away: the same for builder units and gateways.

use super::transfer::TransferConfig;
use crate::configuration::{Configuration, SyncChoice};
use crate::drive::{StorageConfig, StreamStorage};
use ropewalk_flow::filter::Streams;
use ropewalk_io::disk::RealDiskConfig;
use ropewalk_terms::{NodeId, StreamIndex};
use ropewalk_wire::run_file::StreamName;
use std::path::PathBuf;
use std::time::Duration;

/// How the writers of a run write: builder units, or input queues of gateways.
pub(super) struct RunFiles<'a> {
    configuration: &'a Configuration,
    /// All of the run, in whichever processes: `keep` is divided among them.
    writers: u64,
}

impl<'a> RunFiles<'a> {
    /// Those of builder units, or of the queues of gateways.
    pub(super) fn of(configuration: &'a Configuration) -> Self {
        let queues: u64 = configuration.gateway.iter().map(|gateway| u64::from(gateway.queues)).sum();
        Self { configuration, writers: configuration.builder.len() as u64 + queues }
    }

    /// What a writer of these streams is given, without sources.
    pub(super) fn storage_config(&self, writer: NodeId, output: PathBuf, streams: &Streams) -> StorageConfig {
        let Configuration { run, storage, stream: sections, .. } = self.configuration;
        let stream = |(name, index): (StreamName, _)| {
            let own = sections.iter().find(|stream| stream.name == name.as_str());
            StreamStorage {
                name,
                selected: !streams.takes_all(StreamIndex(index)),
                compression: own.and_then(|stream| stream.compress).unwrap_or(storage.compress),
                outputs: own.map(|stream| stream.outputs.clone()).unwrap_or_default(),
                hand_over: own.and_then(|stream| stream.hand_over.clone()),
            }
        };
        StorageConfig {
            more_outputs: storage.more_outputs.clone(),
            checksums: storage.checksums,
            hand_over: storage.hand_over.clone(),
            taken_away: storage.transfer.is_some(),
            room: storage.room(),
            streams: streams.names().zip(0..).map(stream).collect(),
            sync_batches: run.sync == SyncChoice::Batch,
            segment_bytes: run.segment_bytes.0,
            packing_threads: storage.compress_threads.get(),
            preallocate: storage.preallocate,
            segment_events: run.segment_events.unwrap_or(u64::MAX),
            segment_time: run.segment_time.map(|time| time.0),
            keep: run.keep.map(|keep| keep.0 / self.writers.max(1)),
            // Earlier than the end of draining, so that lost events are counted as `write_failed`.
            give_up_after: self.give_up_after(),
            ..StorageConfig::new(writer, output)
        }
    }

    fn give_up_after(&self) -> Duration {
        self.configuration.timeouts.drain.0 / 2
    }

    /// What the disk of a writer is given.
    pub(super) fn disk_config(&self, thread_name: String, storage: &StorageConfig) -> RealDiskConfig {
        RealDiskConfig {
            thread_name,
            sync_on_publish: self.configuration.run.sync != SyncChoice::Never,
            mode: self.configuration.storage.write,
            threads: storage.disk_threads(),
            packing_threads: storage.packing_threads,
            ..RealDiskConfig::default()
        }
    }

    /// The transfer of closed files; `None` without a transfer command or writers.
    pub(super) fn transfer_config(&self, writers: &[StorageConfig]) -> Option<TransferConfig> {
        let section = self.configuration.storage.transfer.as_ref()?;
        let places = places(writers);
        if places.is_empty() {
            return None;
        }
        Some(TransferConfig {
            command: section.command.clone(),
            checksum: section.checksum.clone(),
            delete: section.delete,
            timeout: section.timeout.0,
            at_once: section.at_once,
            places,
            writers: writers.iter().map(|storage| storage.writer).collect(),
        })
    }
}

/// Where these writers write to, each place once, and where closed files are moved from there.
fn places(writers: &[StorageConfig]) -> Vec<(PathBuf, Option<PathBuf>)> {
    let mut places = Vec::new();
    for storage in writers {
        for (outputs, hand_over) in storage.streams.iter().map(|stream| storage.places_of(stream)) {
            places.extend(outputs.into_iter().map(|output| (output.clone(), hand_over.cloned())));
        }
    }
    places.sort();
    places.dedup();
    places
}

/// Where these writers write to, each place once.
pub(super) fn outputs(writers: &[StorageConfig]) -> Vec<PathBuf> {
    let mut outputs: Vec<_> = places(writers).into_iter().map(|(output, _)| output).collect();
    outputs.dedup();
    outputs
}
