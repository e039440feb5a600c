//! What must hold of every run, as programs and nodes saw it.

use super::super::broken::{Broken, Checker};
use super::program::Program;
use super::scenario::{ANSWER, DRAIN, Scenario};
use ropewalk_flow::control::RunCommand;
use ropewalk_flow::control::front_ends::Incident;
use ropewalk_terms::{EventKey, Instant, RunNumber};
use ropewalk_wire::front_end::{Command, Stage};
use std::time::Duration;

/// What everything that is waited for takes at most, and what the network adds to it.
const LONGEST_END: Duration = Duration::from_millis(500 + (2 * ANSWER.as_millis() + DRAIN.as_millis()) as u64);

/// The referee of one run.
#[derive(Debug)]
pub(super) struct Referee {
    run: usize,
    /// By place: nothing happens to it in this run.
    reliable: Vec<bool>,
    has_trigger: bool,
    is_forced: bool,
    nodes_started: Option<Instant>,
    stopped: Option<Instant>,
    triggered: bool,
    vetoed: bool,
    pub(super) last: Option<u64>,
}

impl Referee {
    pub(super) fn new(scenario: &Scenario, run: usize) -> Self {
        Self {
            run,
            reliable: (0..scenario.programs.len()).map(|place| scenario.is_reliable(run, place)).collect(),
            has_trigger: scenario.has_trigger,
            is_forced: scenario.forced == Some(run),
            nodes_started: None,
            stopped: None,
            triggered: false,
            vetoed: false,
            last: None,
        }
    }

    /// The run's number.
    const fn number(&self) -> RunNumber {
        RunNumber(self.run as u32 + 1)
    }

    /// Whether a program has come so far in this run.
    fn is_in(&self, program: &Program, stage: Stage) -> bool {
        program.run == self.number() && program.stage >= stage
    }

    /// The stop was given, or the nodes drained by themselves.
    pub(super) fn stop(&mut self, now: Instant) {
        self.stopped.get_or_insert(now);
    }

    /// A program obeyed a command. `programs` are as they are after it.
    pub(super) fn obeyed(&mut self, place: usize, command: &Command, programs: &[Program]) -> Result<(), Broken> {
        match command {
            Command::Enable(run) if *run == self.number() => {
                self.triggered |= place == 0;
                let late = (0..programs.len())
                    .find(|&place| self.reliable[place] && !self.is_in(&programs[place], Stage::Started));
                Broken::unless(late.is_none(), Checker::Order, || {
                    format!("run {}: the trigger is enabled before program {late:?} has started", self.run)
                })
            }
            Command::Veto(run) if *run == self.number() => {
                self.vetoed |= place == 0;
                Ok(())
            }
            Command::Stop(stop)
                if stop.run == self.number() && self.has_trigger && self.reliable[0] && !self.is_forced =>
            {
                let is_early = self.triggered && !self.vetoed;
                Broken::unless(!is_early, Checker::Order, || {
                    format!("run {}: program {place} is stopped while triggers come", self.run)
                })
            }
            _ => Ok(()),
        }
    }

    /// The nodes are told something.
    pub(super) fn nodes_told(
        &mut self,
        now: Instant,
        command: &RunCommand,
        programs: &[Program],
    ) -> Result<(), Broken> {
        match command {
            RunCommand::Start { .. } => {
                self.nodes_started = Some(now);
                let unready = (0..programs.len()).find(|&place| {
                    let program = &programs[place];
                    self.reliable[place] && program.setting.is_required && !self.is_in(program, Stage::Ready)
                });
                Broken::unless(unready.is_none(), Checker::Order, || {
                    format!("run {}: the nodes are started before program {unready:?} is ready", self.run)
                })
            }
            RunCommand::Stop { last } => {
                self.last = last.map(EventKey::number);
                let is_open = |program: &Program| self.is_in(program, Stage::Started) && program.stage < Stage::Stopped;
                let early = (0..programs.len()).find(|&place| self.reliable[place] && is_open(&programs[place]));
                Broken::unless(early.is_none() || self.is_forced, Checker::Order, || {
                    format!("run {}: the nodes are stopped while data of program {early:?} still leave", self.run)
                })
            }
            _ => Ok(()),
        }
    }

    /// Everything comes to its end, however many do not answer.
    pub(super) fn is_overdue(&self, now: Instant) -> Result<(), Broken> {
        let is_late = self.stopped.is_some_and(|stopped| now.since(stopped) > LONGEST_END);
        Broken::unless(!is_late, Checker::Liveness, || format!("run {}: its stop does not finish", self.run))
    }

    /// The run has ended.
    pub(super) fn judge(&self, programs: &[Program], incidents: &[Incident]) -> Result<(), Broken> {
        if self.is_forced {
            return Ok(());
        }
        for incident in incidents {
            let place = incident.source.0 as usize - 1;
            Broken::unless(!self.reliable[place], Checker::TimeOut, || {
                format!("run {}: nothing happened to program {place}, but {}", self.run, incident.kind)
            })?;
        }
        if !self.triggered || !self.reliable[0] || self.nodes_started.is_none() {
            return Ok(());
        }
        let issued = programs[0].seen;
        Broken::unless(self.last.unwrap_or(0) == issued, Checker::Loss, || {
            format!("run {}: the nodes end with {:?}, the trigger with {issued}", self.run, self.last)
        })?;
        for (place, program) in programs.iter().enumerate().filter(|&(place, _)| self.reliable[place]) {
            Broken::unless(program.sent == issued, Checker::Loss, || {
                format!("run {}: program {place} sent {} of {issued} events", self.run, program.sent)
            })?;
        }
        Ok(())
    }
}
