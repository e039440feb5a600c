//! Writes documents, on a thread of its own: whoever carries data never waits for a disk that is slow.

use super::counts::Counts;
use super::merge::{DOCUMENT_SCHEMA, Document};
use crate::drive::RecordKeeper;
use ropewalk_flow::filter::LumisectionRecord;
use ropewalk_terms::{NodeId, RunNumber};
use ropewalk_wire::run_file::{StreamName, run_directory_name};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};

/// Lumisections that wait until they are written.
const WAITING: usize = 64;

/// A record on its way.
struct Closed {
    run: RunNumber,
    /// Which builder unit's.
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
    /// Nothing more is kept; what comes back.
    pub(super) fn into_returned(self) -> Receiver<LumisectionRecord> {
        self.written
    }
}

impl RecordKeeper for Line {
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

/// Whose records are written where.
struct Writer {
    node: NodeId,
    /// Where its run directories are.
    output: PathBuf,
    streams: Vec<StreamName>,
    written: Sender<LumisectionRecord>,
}

/// What writes the documents of the builder units of this process.
pub(crate) struct Archive {
    to_write: SyncSender<Closed>,
    waiting: Receiver<Closed>,
    writers: Vec<Writer>,
}

impl Archive {
    /// Of nobody.
    pub(crate) fn new() -> Self {
        let (to_write, waiting) = sync_channel(WAITING);
        Self { to_write, waiting, writers: Vec::new() }
    }

    /// A builder unit whose run directories are in `output`, and whose streams have these names.
    pub(crate) fn line(&mut self, node: NodeId, output: PathBuf, streams: Vec<StreamName>) -> Line {
        let (written, received) = channel();
        let writer = self.writers.len();
        self.writers.push(Writer { node, output, streams, written });
        Line { writer, to_write: self.to_write.clone(), written: received }
    }

    /// Whether nobody has a line to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Where documents may be.
    pub(crate) fn outputs(&self) -> Vec<PathBuf> {
        let mut outputs: Vec<_> = self.writers.iter().map(|writer| writer.output.clone()).collect();
        outputs.sort();
        outputs.dedup();
        outputs
    }

    /// Writes what comes, until nobody has a line any more. Returns what could not be written, in words.
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
    // What an earlier life of this builder unit has written stays.
    let names = std::iter::once(name.clone()).chain((2..).map(|life| format!("{name}-{life}")));
    let free = names.map(|name| directory.join(name + ".json")).find(|path| !path.exists());
    let path = free.ok_or(io::ErrorKind::AlreadyExists)?;
    write_whole(&path, &document)
}

/// Writes a document, which is whole under its name.
pub(super) fn write_whole(path: &Path, document: &impl serde::Serialize) -> io::Result<()> {
    let temporary = path.with_extension("json.tmp");
    std::fs::write(&temporary, serde_json::to_vec(document)?)?;
    std::fs::rename(&temporary, path)
}
