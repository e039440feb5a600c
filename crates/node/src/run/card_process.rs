//! A card whose blocks another process writes: the ring in a file is its standard input, the bell its standard output.
//!
//! ```text
//!  run: ring (memfd) --> thread that watches the process -- starts --> ropewalk felix card CONFIG NAME
//!        ^   the process has ended: ends the ring for it                    |
//!        +------------------------ blocks, write pointer, bell -------------+
//! ```
//! What the process has handed over is there however it ends; the rest is lost with it, and that is said.

use super::cards::emulated;
use super::feeder::FeederNotes;
use super::resolve::{Addresses, Resolved};
use super::stream::{StreamRunError, turn};
use crate::configuration::{Configuration, WakeChoice};
use crate::drive::EmulatedCardDrive;
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::wait::{Bell, Waiter};
use ropewalk_memory::ring::RingWriter;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether the process lives.
const LOOK: Duration = Duration::from_millis(5);
/// How long it may take to end by itself when the run is over.
const LEAVING: Duration = Duration::from_secs(1);

/// The process, while it lives.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildSlot(Arc<Mutex<Option<Child>>>);

impl ChildSlot {
    /// Asks the process for the end: a card says what was triggered before, and no more.
    pub(super) fn stop(&self) {
        self.with(|child| {
            // Only one that was not waited for: its number is still its own.
            if let Ok(None) = child.try_wait() {
                let _ = kill_process(Pid::from_child(child), Signal::TERM);
            }
        });
    }

    /// Waits for the end of a process, which `is_over` brings about if nothing else does. Returns its number and how it ended.
    pub(super) fn watch(&self, started: Child, is_over: &AtomicBool) -> io::Result<(u32, ExitStatus)> {
        let process = started.id();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok((process, wait(self, is_over)?))
    }

    fn with<T>(&self, what: impl FnOnce(&mut Child) -> T) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(what)
    }
}

/// What a process needs to write a card's blocks.
pub(super) struct CardProcess {
    /// The configuration that it reads as well.
    pub(super) configuration: PathBuf,
    /// The card's name.
    pub(super) name: String,
    /// After how many triggers it ends.
    pub(super) events: Option<u64>,
    /// The ring's file.
    pub(super) ring: OwnedFd,
    /// Ends the ring when the process has not done it.
    pub(super) writer: RingWriter,
    pub(super) bell: Option<Bell>,
}

impl CardProcess {
    /// Starts the process and waits for its end, which `is_over` brings about if nothing else does.
    pub(super) fn watch(mut self, child: &ChildSlot, is_over: &AtomicBool, notes: &FeederNotes) {
        let ended = self.start().and_then(|started| child.watch(started, is_over));
        let must_ring = self.writer.close();
        if must_ring && let Some(bell) = &self.bell {
            bell.ring();
        }
        notes.leave(match ended {
            Ok((_, status)) if status.success() => Vec::new(),
            Ok((process, status)) => vec![format!(
                "its writer, process {process}, {}: what it had not handed over is lost",
                how_it_ended(status)
            )],
            Err(error) => vec![format!("its writer cannot be started: {error}")],
        });
    }

    fn start(&self) -> io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["felix", "card"]).arg(&self.configuration).arg(&self.name);
        if let Some(events) = self.events {
            command.args(["--events", &events.to_string()]);
        }
        let bell = self.bell.as_ref().map(|bell| bell.as_fd().try_clone_to_owned()).transpose()?;
        command.stdin(Stdio::from(self.ring.try_clone()?));
        command.stdout(bell.map_or_else(Stdio::null, Stdio::from));
        command.spawn()
    }
}

fn wait(child: &ChildSlot, is_over: &AtomicBool) -> io::Result<ExitStatus> {
    let mut over_since = None;
    loop {
        let looked = child.with(|child| {
            let since = is_over.load(Ordering::Relaxed).then(|| *over_since.get_or_insert_with(Instant::now));
            if since.is_some_and(|since| since.elapsed() >= LEAVING) {
                child.kill()?;
            }
            child.try_wait()
        });
        match looked {
            Some(Ok(None)) => std::thread::sleep(LOOK),
            Some(Ok(Some(status))) => return Ok(status),
            Some(Err(error)) => return Err(error),
            None => return Err(io::Error::other("it is not there")),
        }
    }
}

pub(super) fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, code) => format!("ended with status {}", code.unwrap_or_default()),
    }
}

/// In the process: writes the blocks of an emulated card into the ring that is standard input, until it has said what
/// `events` triggers bring, the ring's reader has gone, or `watch` says false; then it says what was triggered before.
///
/// # Errors
/// Where there is no such card, it is not emulated, or standard input is no ring.
pub fn write_card(
    configuration: &Configuration,
    name: &str,
    events: Option<u64>,
    mut watch: impl FnMut() -> bool,
) -> Result<(), StreamRunError> {
    // A reader that was killed says nothing any more, also not that it has gone.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    let resolved = Resolved::new(configuration, Addresses::in_process(configuration));
    let known = || configuration.felix.iter().map(|card| card.name.as_str()).collect::<Vec<_>>().join(", ");
    let card = resolved.card(name);
    let card =
        card.ok_or_else(|| StreamRunError::Unfit(format!("no card is named `{name}`; there are: {}", known())))?;
    let emulate = card.emulate.as_ref();
    let emulate = emulate.ok_or_else(|| StreamRunError::Unfit(format!("{name} has no [felix.emulate]")))?;
    let no_ring = |error| {
        let why = "a run starts this command by itself for a card with `writer = \"process\"`";
        StreamRunError::Unfit(format!("standard input is no ring of a card: {error}; {why}"))
    };
    let ring = RingWriter::open(io::stdin().as_fd().try_clone_to_owned()?).map_err(no_ring)?;
    let bell = match card.wake {
        WakeChoice::Interrupt => Some(Bell::from(io::stdout().as_fd().try_clone_to_owned()?)),
        WakeChoice::Poll => None,
    };
    let gate = Arc::new(TriggerGate::new(events.unwrap_or(u64::MAX)));
    let config = emulated(card, emulate, &resolved.links(card));
    let mut drive = EmulatedCardDrive::new(config, ring, bell, Arc::clone(&gate));
    turn(&mut drive, Waiter::new()?, |_| {
        if !watch() {
            gate.close();
        }
    })?;
    Ok(())
}
