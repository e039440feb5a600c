//! Run control, in its smallest form: when a run starts, drains and has ended.
//!
//! ```text
//! initial --all nodes connected--> configured --Start--> running --Stop, last event--> draining --> ended
//!    |                                 |             ^                    ForceStop: everything left is dropped
//!    +--Stop-----------------------> ended           |
//!    +--TakeOver-------------------------------------+
//! ```
//! Commands may come at any time and any number of times: a start waits for the nodes, a second stop changes
//! nothing. A run that was started is running when every readout unit that is there has heard of it, and sources may begin.
//! The event manager does the work; this machine only says when. Where front ends are under run control, too,
//! [`front_ends`] stands before it. [`operation`] is what an operator has: runs, one after the other.

pub mod front_ends;
pub mod operation;
#[cfg(test)]
mod tests;

use crate::messages::Setting;
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant, NodeId, Role, RunNumber, SourceId};
use std::collections::VecDeque;

/// What an operator, a time limit or the program asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RunCommand {
    /// Start this run as soon as every node is connected; with `last`, exactly the keys up to it.
    Start {
        /// The run.
        run: RunNumber,
        /// Its first key.
        first: EventKey,
        /// Its last key, where it is known.
        last: Option<EventKey>,
    },
    /// Go on with this run, which an event manager began that is gone. Does not wait for all nodes: the connected ones
    /// report what they have.
    TakeOver {
        /// The run.
        run: RunNumber,
        /// Its first key.
        first: EventKey,
        /// Its last key, where it is known.
        last: Option<EventKey>,
    },
    /// Stop and drain; with `last`, everything up to this key is waited for.
    Stop {
        /// The last key that the sources send, if known.
        last: Option<EventKey>,
    },
    /// Stop at once: what is not done is dropped.
    ForceStop,
    /// Build no further event for now.
    Pause,
    /// Go on.
    Resume,
    /// A parameter has another value from now on.
    Set(Setting),
    /// A source takes part no longer, or again; before the run begins, from its first event on.
    Mask {
        /// The source.
        source: SourceId,
        /// It takes part no longer.
        is_masked: bool,
    },
}

/// What the event manager is to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ControlAction {
    /// Start this run.
    Start {
        /// The run.
        run: RunNumber,
        /// Its first key.
        first: EventKey,
        /// Its last key, where it is known.
        last: Option<EventKey>,
    },
    /// Take this run over.
    TakeOver {
        /// The run.
        run: RunNumber,
        /// Its first key.
        first: EventKey,
        /// Its last key, where it is known.
        last: Option<EventKey>,
    },
    /// Stop and drain.
    Stop {
        /// The last key, where it is known.
        last: Option<EventKey>,
    },
    /// Drop what is left.
    ForceStop,
    /// Assign no further event, or go on with that.
    Pause(bool),
    /// A parameter has another value.
    Set(Setting),
    /// A source takes part no longer, or again.
    Mask {
        /// The source.
        source: SourceId,
        /// It takes part no longer.
        is_masked: bool,
    },
}

/// How far a run is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum RunPhase {
    /// Nodes are missing.
    #[default]
    Initial,
    /// Every node is there.
    Configured,
    /// Events are built.
    Running,
    /// No further event is opened; what is there is finished.
    Draining,
    /// Everything is done and closed.
    Ended,
}

impl RunPhase {
    /// Every phase, in order.
    pub const ALL: [Self; 5] = [Self::Initial, Self::Configured, Self::Running, Self::Draining, Self::Ended];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Configured => "configured",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Ended => "ended",
        }
    }

    /// Events are built.
    pub const fn is_running(self) -> bool {
        matches!(self, Self::Running)
    }

    /// Nothing follows.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Ended)
    }
}

/// A node that a run waits for.
#[derive(Copy, Clone, Debug)]
struct Expected {
    node: NodeId,
    is_connected: bool,
    /// It was connected, and is not any more.
    is_lost: bool,
    /// It has said that the run has begun for it.
    has_begun: bool,
}

/// A readout unit that has not said so long after the start that it has begun hangs, and keeps the others from nothing.
const BEGINNING: Duration = Duration::from_secs(2);

/// Run control of one run: see the module's picture.
#[derive(Debug)]
pub struct RunControl {
    phase: RunPhase,
    nodes: Vec<Expected>,
    start: Option<ControlAction>,
    /// The run was started or taken over, and until then it is not called running before every readout unit has begun it: what a
    /// source sends earlier is not of the run.
    beginning: Option<Instant>,
    actions: VecDeque<ControlAction>,
    stopped_by: Option<Cause>,
    is_paused: bool,
}

impl RunControl {
    /// Waits for these nodes.
    pub fn new(nodes: Vec<NodeId>) -> Self {
        let expected = |node| Expected { node, is_connected: false, is_lost: false, has_begun: false };
        Self {
            phase: RunPhase::Initial,
            nodes: nodes.into_iter().map(expected).collect(),
            start: None,
            beginning: None,
            actions: VecDeque::new(),
            stopped_by: None,
            is_paused: false,
        }
    }

    /// The same nodes are waited for again.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.nodes().collect())
    }

    /// Takes a command; one that makes no sense now changes nothing.
    pub fn command(&mut self, now: Instant, command: RunCommand) {
        match command {
            RunCommand::Start { run, first, last } => {
                if self.phase < RunPhase::Running && self.start.is_none() {
                    self.start = Some(ControlAction::Start { run, first, last });
                    self.begin(now);
                }
            }
            RunCommand::TakeOver { run, first, last } => {
                if self.phase < RunPhase::Running && self.start.is_none() {
                    self.run(now, ControlAction::TakeOver { run, first, last });
                }
            }
            RunCommand::Stop { last } => match self.phase {
                // Nothing was begun, so that there is nothing to drain.
                RunPhase::Initial | RunPhase::Configured => self.phase = RunPhase::Ended,
                RunPhase::Running => {
                    self.phase = RunPhase::Draining;
                    self.actions.push_back(ControlAction::Stop { last });
                }
                RunPhase::Draining | RunPhase::Ended => {}
            },
            RunCommand::ForceStop => match self.phase {
                RunPhase::Initial | RunPhase::Configured => self.phase = RunPhase::Ended,
                RunPhase::Running | RunPhase::Draining => {
                    self.phase = RunPhase::Draining;
                    self.actions.push_back(ControlAction::ForceStop);
                }
                RunPhase::Ended => {}
            },
            RunCommand::Pause => self.pause(true),
            RunCommand::Resume => self.pause(false),
            RunCommand::Set(setting) => {
                if !self.phase.is_final() {
                    self.actions.push_back(ControlAction::Set(setting));
                }
            }
            RunCommand::Mask { source, is_masked } => {
                if !self.phase.is_final() {
                    self.actions.push_back(ControlAction::Mask { source, is_masked });
                }
            }
        }
    }

    fn pause(&mut self, is_paused: bool) {
        if self.phase == RunPhase::Running && self.is_paused != is_paused {
            self.is_paused = is_paused;
            self.actions.push_back(ControlAction::Pause(is_paused));
        }
    }

    /// A node is connected. One that was not expected is not waited for either.
    pub fn node_connected(&mut self, now: Instant, node: NodeId) {
        if let Some(known) = self.expected(node) {
            (known.is_connected, known.is_lost, known.has_begun) = (true, false, false);
        }
        self.begin(now);
    }

    /// A node has heard of the start: from now on it takes what comes.
    pub fn node_begun(&mut self, _now: Instant, node: NodeId) {
        if let Some(known) = self.expected(node) {
            known.has_begun = true;
        }
        self.look_whether_all_have_begun();
    }

    fn expected(&mut self, node: NodeId) -> Option<&mut Expected> {
        self.nodes.iter_mut().find(|expected| expected.node == node)
    }

    /// The run is called running when every readout unit has begun it or is lost.
    fn look_whether_all_have_begun(&mut self) {
        let mut readouts = self.nodes.iter().filter(|known| known.node.role == Role::Readout);
        if readouts.all(|known| known.has_begun || known.is_lost) {
            self.beginning = None;
        }
    }

    /// A node is lost. A run that goes on is not stopped by it.
    pub fn node_lost(&mut self, _now: Instant, node: NodeId) {
        if let Some(known) = self.expected(node) {
            (known.is_connected, known.is_lost) = (false, true);
        }
        self.look_whether_all_have_begun();
        if self.phase == RunPhase::Configured {
            self.phase = RunPhase::Initial;
        }
    }

    /// A node asks for the stop of the run, for this cause.
    pub fn stop_requested(&mut self, now: Instant, cause: Cause) {
        if self.phase == RunPhase::Running {
            self.stopped_by.get_or_insert(cause);
            self.command(now, RunCommand::Stop { last: None });
        }
    }

    /// The event manager drains: the run was stopped before it was taken over.
    pub fn drains(&mut self, _now: Instant) {
        if self.phase == RunPhase::Running {
            self.phase = RunPhase::Draining;
        }
    }

    /// The event manager has finished the run.
    pub const fn run_ended(&mut self, _now: Instant) {
        self.phase = RunPhase::Ended;
    }

    /// The next thing that the event manager is to do.
    pub fn poll(&mut self, now: Instant) -> Option<ControlAction> {
        self.beginning = self.beginning.filter(|&until| now < until);
        self.actions.pop_front()
    }

    /// When it is to be polled even if nothing happens.
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.beginning
    }

    /// How far the run is. It is running when the readout units have begun it.
    pub const fn phase(&self) -> RunPhase {
        if self.phase.is_running() && self.beginning.is_some() { RunPhase::Configured } else { self.phase }
    }

    /// Why the run was stopped, where a node asked for it.
    pub const fn stopped_by(&self) -> Option<Cause> {
        self.stopped_by
    }

    /// Whether the run is paused; what stops is not.
    pub const fn is_paused(&self) -> bool {
        self.is_paused && self.phase().is_running()
    }

    /// The expected nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().map(|known| known.node)
    }

    fn begin(&mut self, now: Instant) {
        if self.phase == RunPhase::Initial && self.nodes.iter().all(|known| known.is_connected) {
            self.phase = RunPhase::Configured;
        }
        if self.phase == RunPhase::Configured
            && let Some(start) = self.start.take()
        {
            self.run(now, start);
        }
    }

    /// The run begins, here or as another event manager's.
    fn run(&mut self, now: Instant, action: ControlAction) {
        self.phase = RunPhase::Running;
        self.beginning = (!is_planted(Flaw::RunningUnheard)).then_some(now.after(BEGINNING));
        self.actions.push_back(action);
        // Without readout units there is nothing to wait for.
        self.look_whether_all_have_begun();
    }
}
