//! Splitters of a run's sources: loaded where they are trusted, and otherwise tried out before the run, in a process of their
//! own as they are used in.

use super::assemble::{RunError, Workshop};
use super::watched::Watched;
use crate::configuration::{SourceSection, SplitterSection};
use crate::drive::{ProcessSight, ReadoutDrive, SplitterLink};
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_io::Dispatcher;
use ropewalk_memory::Payload;
use ropewalk_plugin::process::{MOST_FRAMES, ProcessConfig, SplitterProcess};
use ropewalk_plugin::{Splitter, SplitterConfig};
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::framing::Piece;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

/// The command of the program that is a splitter's process.
const COMMAND: &str = "splitter-process";
/// How long a splitter may take until it is ready.
const START: Duration = Duration::from_secs(10);

impl Workshop<'_> {
    /// Gives the sources of a readout unit their splitters, where the configuration names any. Their receivers must be there.
    /// Returns what there will be to tell of them.
    pub(super) fn splitters<S: Dispatcher, P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<S, P>,
    ) -> Result<Vec<Watched>, RunError> {
        let mut watched = Vec::new();
        for source in self.resolved.sources_of(index) {
            let Some(section) = source.own_splitter() else { continue };
            let unfit = |error: &dyn std::fmt::Display| {
                RunError::Unfit(format!("{}: its splitter cannot be used: {error}", source.name_or_id()))
            };
            let config = splitter(source, section);
            let (id, name) = (SourceId(source.id), source.name_or_id());
            let journal = if section.trusted {
                let splitter = Splitter::new(&config).map_err(|error| unfit(&error))?;
                let journal = splitter.journal();
                readout.add_splitter(id, Box::new(splitter));
                journal
            } else {
                let process = process(config, section).map_err(|error| unfit(&error))?;
                process.missing().texts().for_each(|text| self.placement.warn(format!("{name}: splitter: {text}")));
                let journal = process.journal();
                readout.add_splitter_process(id, Box::new(Linked(process)), supervision(section));
                journal
            };
            watched.push(Watched::new(format!("{name}: splitter"), journal));
        }
        Ok(watched)
    }
}

fn splitter(source: &SourceSection, section: &SplitterSection) -> SplitterConfig {
    SplitterConfig {
        library: section.library.clone(),
        configuration: section.configuration.clone(),
        keys: section.keys,
        max_frame: source.max_fragment.0.min(u64::from(u32::MAX)) as usize,
    }
}

fn supervision(section: &SplitterSection) -> SupervisorConfig {
    SupervisorConfig {
        timeout: section.timeout.0,
        start_timeout: START,
        restart_delay: section.restart_delay.0,
        restarts: section.restarts,
    }
}

/// A process that is not there yet, of a splitter that was tried out.
fn process(splitter: SplitterConfig, section: &SplitterSection) -> std::io::Result<SplitterProcess> {
    let command = vec![std::env::current_exe()?, PathBuf::from(COMMAND)];
    let mut process = SplitterProcess::new(ProcessConfig { splitter, memory: section.memory.0, command })?;
    process.try_out(START)?;
    Ok(process)
}

/// A process, as the drive sees it.
struct Linked(SplitterProcess);

impl SplitterLink for Linked {
    fn most_frames(&self) -> usize {
        MOST_FRAMES
    }

    fn start(&mut self) {
        self.0.start();
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn put(&mut self, frame: &Payload) {
        self.0.put(frame);
    }

    fn ask(&mut self, first: usize, count: usize) {
        self.0.ask(first, count);
    }

    fn look(&mut self, _: Instant) -> ProcessSight {
        let seen = self.0.look();
        ProcessSight { is_ready: seen.is_ready, done: seen.done, has_ended: seen.has_ended }
    }

    fn answer(&mut self, index: usize, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        self.0.answer(index, pieces).ok()
    }

    fn copied_bytes(&self) -> u64 {
        self.0.copied_bytes()
    }

    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.0.descriptors());
    }
}
