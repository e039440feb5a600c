//! What stands for the nodes of a run: they start, drain and end after a while.

use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_terms::Instant;
use std::time::Duration;

/// How long each step of theirs takes.
const STEP: Duration = Duration::from_millis(20);

/// The nodes of one run.
#[derive(Debug, Default)]
pub(super) struct StandInNodes {
    pub(super) phase: RunPhase,
    pub(super) is_paused: bool,
    next: Option<(Instant, RunPhase)>,
}

impl StandInNodes {
    pub(super) fn command(&mut self, now: Instant, command: &RunCommand) {
        let is_running = self.phase == RunPhase::Running;
        match command {
            RunCommand::Pause => self.is_paused = is_running,
            RunCommand::Resume => self.is_paused = false,
            _ => {}
        }
        let next = match (command, self.phase) {
            (RunCommand::Start { .. }, RunPhase::Initial) => RunPhase::Running,
            (RunCommand::Stop { .. }, RunPhase::Running) => RunPhase::Draining,
            (RunCommand::Stop { .. } | RunCommand::ForceStop, RunPhase::Initial) => RunPhase::Ended,
            (RunCommand::ForceStop, RunPhase::Running) => RunPhase::Draining,
            _ => return,
        };
        self.next = Some((now.after(STEP), next));
    }

    /// They drain by themselves.
    pub(super) fn drain(&mut self, now: Instant) {
        if self.phase == RunPhase::Running {
            self.next = Some((now, RunPhase::Draining));
        }
    }

    /// The new phase, where it has changed by now.
    pub(super) fn turn(&mut self, now: Instant) -> Option<RunPhase> {
        let (_, phase) = self.next.take_if(|(due, _)| now >= *due)?;
        self.phase = phase;
        if phase == RunPhase::Draining {
            self.next = Some((now.after(STEP), RunPhase::Ended));
        }
        Some(phase)
    }
}
