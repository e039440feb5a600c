//! The readout units, builder units and event manager of a run that are in this process. They build events by
//! requesting data from sources.

use super::base::RunBase;
use super::controlled::{FrontEndService, FrontEndsOfRun};
use super::registry::TakeoverRecord;
use super::worker::{Board, Worker};
use ropewalk_engine::{RunSnapshot, Sent};
use ropewalk_flow::control::RunCommand;
use ropewalk_flow::messages::Setting;
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::clock::Clock;
use ropewalk_terms::{Counter, Epoch, EventKey, SourceId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// How an event manager in its own process came to manage the run.
#[derive(Clone, Debug)]
pub(super) enum Managing {
    /// It manages the run from its beginning.
    First {
        /// Its epoch.
        epoch: Epoch,
        /// Its address.
        address: String,
    },
    /// It took the run over.
    Successor {
        /// The run's first event key.
        first: EventKey,
        /// The key of the run's last event, if it was known at the start.
        last: Option<EventKey>,
        /// Its epoch.
        epoch: Epoch,
        /// Age of the run at the takeover.
        before: Duration,
    },
}

/// The units of a run that are in this process.
#[derive(Debug)]
pub(super) struct Units {
    /// Whether all sources are e-links of cards whose blocks come from outside of this process.
    pub(super) is_fed: bool,
    pub(super) commands: Sender<RunCommand>,
    pub(super) board: Arc<Board>,
    /// Stops emulated and played sources.
    pub(super) gate: Option<Arc<TriggerGate>>,
    pub(super) sent: Vec<(SourceId, Arc<Sent>)>,
    /// Front ends under run control, and their service if only this run uses it.
    pub(super) front_ends: Option<FrontEndsOfRun>,
    pub(super) own_service: Option<FrontEndService>,
    /// How this process manages the run, if the event manager has its own process.
    pub(super) manager: Option<Managing>,
}

impl Units {
    /// Creates it without units. Returns the receiving end of the event manager's commands as well.
    pub(super) fn new(is_fed: bool) -> (Self, Receiver<RunCommand>) {
        let (commands, received) = std::sync::mpsc::channel();
        let units = Self {
            is_fed,
            commands,
            board: Arc::default(),
            gate: None,
            sent: Vec::new(),
            front_ends: None,
            own_service: None,
            manager: None,
        };
        (units, received)
    }

    /// Sends a command to the event manager.
    pub(super) fn command(&self, workers: &[Worker], command: RunCommand) {
        // An event manager that has ended needs no command.
        let _ = self.commands.send(command);
        workers.iter().for_each(Worker::wake);
    }

    /// Returns the epoch of the event manager, if it has its own process.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.manager.as_ref().map(|managing| match managing {
            Managing::First { epoch, .. } | Managing::Successor { epoch, .. } => *epoch,
        })
    }

    /// Returns the number of fragments and bytes that each emulated or played source sent.
    pub(super) fn sent(&self) -> Vec<(SourceId, u64, u64)> {
        let read = |sent: &Sent| (sent.fragments.load(Ordering::Relaxed), sent.bytes.load(Ordering::Relaxed));
        self.sent.iter().map(|(id, sent)| (*id, read(sent).0, read(sent).1)).collect()
    }

    /// Writes the record for the takeover by another event manager, if the event manager has its own process.
    pub(super) fn leave_word(&self, base: &RunBase, first: EventKey, last: Option<EventKey>) -> std::io::Result<()> {
        let Some(Managing::First { epoch, address }) = &self.manager else { return Ok(()) };
        let record = TakeoverRecord {
            run: base.run,
            epoch: *epoch,
            first,
            last,
            address: address.clone(),
            started: base.clock.utc(),
            fields: base.fields.clone(),
        };
        record.make(&base.directory)
    }

    /// Begins the run as soon as all nodes are connected, and all front ends under run control are ready.
    pub(super) fn start(&self, base: &RunBase, first: EventKey, last: Option<EventKey>) {
        match &self.front_ends {
            Some(front_ends) => front_ends.start(base, (&self.board, &self.commands), (first, last), false),
            None => self.command(&base.workers, RunCommand::Start { run: base.run, first, last }),
        }
    }

    /// Continues the run that was taken over. Returns its age; `None` if there was none.
    pub(super) fn go_on(&self, base: &RunBase) -> Option<Duration> {
        let Some(Managing::Successor { first, last, before, .. }) = self.manager else { return None };
        if let Some(front_ends) = &self.front_ends {
            front_ends.start(base, (&self.board, &self.commands), (first, last), true);
        }
        Some(before)
    }

    pub(super) fn stop(&self, base: &RunBase) {
        base.feeders.iter().for_each(|feeder| feeder.child.stop());
        let last = self.gate.as_ref().map(|gate| EventKey::new(0, gate.close()));
        match &self.front_ends {
            Some(front_ends) => front_ends.stop(last),
            None => self.command(&base.workers, RunCommand::Stop { last }),
        }
    }

    pub(super) fn force_stop(&self, workers: &[Worker]) {
        if let Some(gate) = &self.gate {
            gate.close();
        }
        match &self.front_ends {
            Some(front_ends) => front_ends.force_stop(),
            None => self.command(workers, RunCommand::ForceStop),
        }
    }

    pub(super) fn mask(&self, workers: &[Worker], source: SourceId, is_masked: bool) {
        if let Some(front_ends) = &self.front_ends {
            front_ends.mask(source, is_masked);
        }
        self.command(workers, RunCommand::Mask { source, is_masked });
    }

    pub(super) fn set(&self, workers: &[Worker], setting: Setting) {
        self.command(workers, RunCommand::Set(setting));
    }

    /// Pauses or resumes. A trigger source under run control is held first. Without one readout units fill up and hold
    /// their sources back.
    pub(super) fn pause(&self, workers: &[Worker], is_paused: bool) {
        match &self.front_ends {
            Some(front_ends) => front_ends.pause(is_paused),
            None => self.command(workers, if is_paused { RunCommand::Pause } else { RunCommand::Resume }),
        }
    }

    /// Returns whether no more data of the sources will come. `until_sources_end`: sources that disconnect end the run.
    /// `has_limit`: a number of events is requested, so that sources without further events are no end. `given_up`
    /// connections ended with their readout unit and will not return.
    pub(super) fn are_sources_over(
        &self,
        base: &RunBase,
        (until_sources_end, has_limit): (bool, bool),
        snapshot: &RunSnapshot,
        given_up: u64,
    ) -> bool {
        let opened = snapshot.counter(Counter::SourceConnections);
        let have_come = opened >= base.sources as u64;
        let have_come_and_gone = have_come && opened == snapshot.counter(Counter::SourceDisconnections) + given_up;
        (until_sources_end || !has_limit) && base.have_emulators_ended()
            || (until_sources_end || self.is_fed) && have_come_and_gone
    }
}
