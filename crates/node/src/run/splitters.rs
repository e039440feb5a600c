//! Splitters of a run's sources: loaded where they are trusted, and otherwise tried out before the run, in a process of their
//! own as they are used in.

use super::assemble::{RunError, Workshop};
use crate::configuration::{KeysChoice, SourceSection, SplitterSection};
use crate::drive::{ProcessSight, ReadoutDrive, SplitterLink};
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_io::Dispatcher;
use ropewalk_memory::Payload;
use ropewalk_plugin::process::{MOST_FRAMES, ProcessConfig, SplitterProcess};
use ropewalk_plugin::{Journal, Keys, Splitter, SplitterConfig};
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
    ) -> Result<Vec<WatchedSplitter>, RunError> {
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
                process.missing().texts().for_each(|text| self.placer.warn(format!("{name}: splitter: {text}")));
                let journal = process.journal();
                readout.add_splitter_process(id, Box::new(Linked(process)), supervision(section));
                journal
            };
            watched.push(WatchedSplitter { name, journal, told: 0 });
        }
        Ok(watched)
    }
}

/// What there is to tell of a source's splitter.
#[derive(Debug)]
pub(super) struct WatchedSplitter {
    /// The source's name.
    name: String,
    journal: Journal,
    /// Sorts of ends that were told.
    told: usize,
}

impl WatchedSplitter {
    /// What went wrong for the first time since it was asked last.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        let ends = self.journal.ends();
        let news = ends[self.told..].iter().map(|(end, _)| format!("{}: splitter: {end}", self.name)).collect();
        self.told = ends.len();
        news
    }

    /// What went wrong in the run, and how often.
    pub(super) fn remarks(&self) -> Vec<String> {
        let times = |times| if times == 1 { "once".to_owned() } else { format!("{times} times") };
        let of = |what: &str, count| format!("{}: splitter: {what} ({})", self.name, times(count));
        let remarks = self.journal.ends().into_iter().map(|(end, count)| of(&end.to_string(), count));
        let beyond = Some(self.journal.beyond()).filter(|&beyond| beyond > 0);
        remarks.chain(beyond.map(|beyond| of("something else", beyond))).collect()
    }
}

fn splitter(source: &SourceSection, section: &SplitterSection) -> SplitterConfig {
    SplitterConfig {
        library: section.library.clone(),
        configuration: section.configuration.clone(),
        keys: match section.keys {
            KeysChoice::Events => Keys::Events,
            KeysChoice::Times => Keys::Times,
        },
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
