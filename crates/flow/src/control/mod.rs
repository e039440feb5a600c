//! Run control in its smallest form: decides when a run starts, drains and has ended.
//!
//! ```text
//! initial --all nodes connected--> configured --Start--> running --Stop, last event--> draining --> ended
//!    |                                 |             ^                    ForceStop: everything left is dropped
//!    +--Stop-----------------------> ended           |
//!    +--TakeOver-------------------------------------+
//! ```
//! Commands may come at any time and any number of times: a start waits for the nodes, a second stop changes nothing. A
//! started run is running when every connected readout unit has begun it, and sources may begin. The event manager does
//! the work; this machine only decides when. If front ends are under run control too, [`front_ends`] precedes it.
//! [`operation`] is the view of an operator: a sequence of runs.

pub mod front_ends;
pub mod operation;
#[cfg(test)]
mod tests;

use crate::messages::Setting;
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant, NodeId, Role, RunNumber, SourceId};
use std::collections::VecDeque;

/// A command of an operator, a time limit or the program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RunCommand {
    /// Start this run as soon as every node is connected; with `last`, exactly the keys up to it.
    Start {
        /// The run.
        run: RunNumber,
        /// Its first key.
        first: EventKey,
        /// Its last key, if known.
        last: Option<EventKey>,
    },
    /// Continue this run of an event manager that is gone. Does not wait for all nodes: the connected ones report their
    /// state.
    TakeOver {
        /// The run.
        run: RunNumber,
        /// Its first key.
        first: EventKey,
        /// Its last key, if known.
        last: Option<EventKey>,
    },
    /// Stop and drain; with `last`, everything up to this key is waited for.
    Stop {
        /// The last key that the sources send, if known.
        last: Option<EventKey>,
    },
    /// Stop at once and drop everything unfinished.
    ForceStop,
    /// Build no further events for now.
    Pause,
    /// Build events again.
    Resume,
    /// Change a parameter from now on.
    Set(Setting),
    /// Mask or unmask a source; before the run begins, from its first event on.
    Mask {
        /// The source.
        source: SourceId,
        /// Whether it is masked.
        is_masked: bool,
    },
}

/// An action of the event manager.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ControlAction {
    /// Start this run.
    Start {
        /// The run.
        run: RunNumber,
        /// Its first key.
        first: EventKey,
        /// Its last key, if known.
        last: Option<EventKey>,
    },
    /// Take this run over.
    TakeOver {
        /// The run.
        run: RunNumber,
        /// Its first key.
        first: EventKey,
        /// Its last key, if known.
        last: Option<EventKey>,
    },
    /// Stop and drain.
    Stop {
        /// The last key, if known.
        last: Option<EventKey>,
    },
    /// Drop everything unfinished.
    ForceStop,
    /// Pause or resume the assignment of events.
    Pause(bool),
    /// Change a parameter.
    Set(Setting),
    /// Mask or unmask a source.
    Mask {
        /// The source.
        source: SourceId,
        /// Whether it is masked.
        is_masked: bool,
    },
}

/// Phase of a run.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum RunPhase {
    /// Nodes are missing.
    #[default]
    Initial,
    /// All nodes are connected.
    Configured,
    /// Events are built.
    Running,
    /// No further events are opened; existing ones are finished.
    Draining,
    /// Everything is done and closed.
    Ended,
}

impl RunPhase {
    /// Every phase, in order.
    pub const ALL: [Self; 5] = [Self::Initial, Self::Configured, Self::Running, Self::Draining, Self::Ended];

    /// Returns the stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Configured => "configured",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Ended => "ended",
        }
    }

    /// Whether events are built.
    pub const fn is_running(self) -> bool {
        matches!(self, Self::Running)
    }

    /// Whether it is the last phase.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Ended)
    }
}

/// A node that a run waits for.
#[derive(Copy, Clone, Debug)]
struct Expected {
    node: NodeId,
    is_connected: bool,
    /// Whether it was connected and is not any more.
    is_lost: bool,
    /// Whether it has reported that the run has begun for it.
    has_begun: bool,
}

/// A readout unit that has not reported its beginning for this time after the start hangs, and does not hold up the
/// others.
const BEGINNING: Duration = Duration::from_secs(2);

/// Run control of one run: see the diagram of the module.
#[derive(Debug)]
pub struct RunControl {
    phase: RunPhase,
    nodes: Vec<Expected>,
    start: Option<ControlAction>,
    /// When the run was started or taken over. It is not called running before every readout unit has begun it: data
    /// that a source sends earlier do not belong to the run.
    beginning: Option<Instant>,
    actions: VecDeque<ControlAction>,
    stopped_by: Option<Cause>,
    is_paused: bool,
}

impl RunControl {
    /// Creates a run control that waits for these nodes.
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

    /// Creates one that waits for the same nodes again.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.nodes().collect())
    }

    /// Handles a command; a command that is impossible now changes nothing.
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
                // Nothing was begun, so there is nothing to drain.
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

    /// Records that a node is connected. Unexpected nodes are ignored.
    pub fn node_connected(&mut self, now: Instant, node: NodeId) {
        if let Some(known) = self.expected(node) {
            (known.is_connected, known.is_lost, known.has_begun) = (true, false, false);
        }
        self.begin(now);
    }

    /// Records that a node has begun the run.
    pub fn node_begun(&mut self, _now: Instant, node: NodeId) {
        if let Some(known) = self.expected(node) {
            known.has_begun = true;
        }
        self.look_whether_all_have_begun();
    }

    fn expected(&mut self, node: NodeId) -> Option<&mut Expected> {
        self.nodes.iter_mut().find(|expected| expected.node == node)
    }

    /// Calls the run running when every readout unit has begun it or is lost.
    fn look_whether_all_have_begun(&mut self) {
        let mut readouts = self.nodes.iter().filter(|known| known.node.role == Role::Readout);
        if readouts.all(|known| known.has_begun || known.is_lost) {
            self.beginning = None;
        }
    }

    /// Records the loss of a node, which does not stop a run.
    pub fn node_lost(&mut self, _now: Instant, node: NodeId) {
        if let Some(known) = self.expected(node) {
            (known.is_connected, known.is_lost) = (false, true);
        }
        self.look_whether_all_have_begun();
        if self.phase == RunPhase::Configured {
            self.phase = RunPhase::Initial;
        }
    }

    /// Handles a node's request to stop the run, for this cause.
    pub fn stop_requested(&mut self, now: Instant, cause: Cause) {
        if self.phase == RunPhase::Running {
            self.stopped_by.get_or_insert(cause);
            self.command(now, RunCommand::Stop { last: None });
        }
    }

    /// Records that the event manager drains: the run was stopped before it was taken over.
    pub fn drains(&mut self, _now: Instant) {
        if self.phase == RunPhase::Running {
            self.phase = RunPhase::Draining;
        }
    }

    /// Records that the event manager has finished the run.
    pub const fn run_ended(&mut self, _now: Instant) {
        self.phase = RunPhase::Ended;
    }

    /// Returns the next action of the event manager.
    pub fn poll(&mut self, now: Instant) -> Option<ControlAction> {
        self.beginning = self.beginning.filter(|&until| now < until);
        self.actions.pop_front()
    }

    /// When [`RunControl::poll`] must be called without further input.
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.beginning
    }

    /// Returns the phase of the run. It is running when the readout units have begun it.
    pub const fn phase(&self) -> RunPhase {
        if self.phase.is_running() && self.beginning.is_some() { RunPhase::Configured } else { self.phase }
    }

    /// Returns why the run was stopped, if a node requested it.
    pub const fn stopped_by(&self) -> Option<Cause> {
        self.stopped_by
    }

    /// Whether the run is paused; a draining run is not.
    pub const fn is_paused(&self) -> bool {
        self.is_paused && self.phase().is_running()
    }

    /// Returns the expected nodes.
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

    /// Begins the run, or takes it over.
    fn run(&mut self, now: Instant, action: ControlAction) {
        self.phase = RunPhase::Running;
        self.beginning = (!is_planted(Flaw::RunningUnheard)).then_some(now.after(BEGINNING));
        self.actions.push_back(action);
        // Without readout units there is nothing to wait for.
        self.look_whether_all_have_begun();
    }
}
