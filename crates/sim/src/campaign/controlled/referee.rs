//! What must hold of every run, as programs and nodes saw it.

use super::super::broken::{Broken, Checker};
use super::program::Program;
use super::scenario::{ANSWER, DRAIN, Scenario};
use ropewalk_flow::control::RunCommand;
use ropewalk_flow::control::front_ends::{Incident, IncidentKind};
use ropewalk_node::drive::FrontEndsAccount;
use ropewalk_terms::{EventKey, Instant, RunNumber};
use ropewalk_wire::front_end::{Command, OLDEST_CONTROL_VERSION, Stage};
use std::time::Duration;

/// What everything that is waited for takes at most, and what the network adds to it.
const LONGEST_END: Duration = Duration::from_millis(500 + (2 * ANSWER.as_millis() + DRAIN.as_millis()) as u64);

/// What a pause takes at most until the nodes are paused.
const LONGEST_PAUSE: Duration = Duration::from_millis(100 + ANSWER.as_millis() as u64);
/// What a trigger source that answers takes at most to be released, beyond the time in which it obeys.
const LONGEST_RELEASE: Duration = Duration::from_millis(100);

/// The referee of one run.
#[derive(Debug)]
pub(super) struct Referee {
    run: usize,
    /// By place: nothing happens to it in this run.
    reliable: Vec<bool>,
    has_trigger: bool,
    is_forced: bool,
    /// The trigger source, which answers, knows what it is to be held.
    may_hold: bool,
    /// Since when the run is to be paused, or to go on again.
    pausing: Option<Instant>,
    resuming: Option<Instant>,
    are_nodes_paused: bool,
    /// The nodes were paused while a trigger source issued triggers that cannot be held.
    was_beyond_hold: bool,
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
            may_hold: scenario.programs[0].version > OLDEST_CONTROL_VERSION,
            pausing: None,
            resuming: None,
            are_nodes_paused: false,
            was_beyond_hold: false,
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

    /// The run is to be paused, or to go on.
    pub(super) fn pause(&mut self, now: Instant, is_paused: bool) {
        let now = Some(now).filter(|_| self.stopped.is_none());
        (self.pausing, self.resuming) = if is_paused { (now, None) } else { (None, now) };
    }

    /// The trigger source let a trigger through.
    pub(super) fn triggered(&self, event: u64) -> Result<(), Broken> {
        let is_held = self.are_nodes_paused && self.reliable[0] && self.may_hold;
        Broken::unless(!is_held, Checker::Order, || {
            format!("run {}: the trigger makes event {event} while the run is paused", self.run)
        })
    }

    /// A pause comes about in its time, and ends.
    pub(super) fn expect_pauses(&self, now: Instant, trigger: &Program) -> Result<(), Broken> {
        let is_late = |since: Option<Instant>, longest: Duration| {
            self.stopped.is_none() && since.is_some_and(|since| now.since(since) > longest)
        };
        let longest_release = trigger.setting.delay + LONGEST_RELEASE;
        Broken::unless(self.are_nodes_paused || !is_late(self.pausing, LONGEST_PAUSE), Checker::Liveness, || {
            format!("run {}: it is not paused", self.run)
        })?;
        let is_held = self.has_trigger && self.reliable[0] && trigger.is_held;
        Broken::unless(!(is_held && is_late(self.resuming, longest_release)), Checker::Liveness, || {
            format!("run {}: it goes on, and the trigger is held", self.run)
        })
    }

    fn expect_hold(&self, place: usize, command: &Command, programs: &[Program]) -> Result<(), Broken> {
        let is_meant = place == 0 && self.has_trigger && programs[0].setting.version > OLDEST_CONTROL_VERSION;
        let is_late = self.vetoed && self.reliable[0];
        Broken::unless(is_meant && !is_late, Checker::Order, || {
            format!("run {}: program {place} is told {:?}", self.run, command.kind())
        })
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
            Command::Hold(run) | Command::Release(run) if *run == self.number() => {
                self.expect_hold(place, command, programs)
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
            RunCommand::Pause => {
                self.are_nodes_paused = true;
                let trigger = &programs[0];
                let is_triggering = self.is_in(trigger, Stage::Started) && trigger.stage < Stage::Vetoed;
                self.was_beyond_hold |= self.triggered && !self.may_hold;
                let must_be_held = self.has_trigger && self.reliable[0] && self.may_hold && is_triggering;
                Broken::unless(!must_be_held || trigger.is_held, Checker::Order, || {
                    format!("run {}: the nodes are paused before the trigger is held", self.run)
                })
            }
            RunCommand::Resume => {
                self.are_nodes_paused = false;
                let is_released = self.has_trigger && self.reliable[0] && self.may_hold && !programs[0].is_held;
                let is_early = is_released && self.is_in(&programs[0], Stage::Started) && self.stopped.is_none();
                Broken::unless(!is_early, Checker::Order, || {
                    format!("run {}: the trigger is released before the nodes go on", self.run)
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
    pub(super) fn judge(&self, programs: &[Program], account: &FrontEndsAccount) -> Result<(), Broken> {
        if self.is_forced {
            return Ok(());
        }
        let is_known = |one: &&Incident| one.source.0 == 1 && one.kind == IncidentKind::CannotBeHeld && !self.may_hold;
        let told = account.incidents.iter().filter(is_known).count();
        let is_told_once = told < 2 && (told == 1 || !self.was_beyond_hold || !self.reliable[0]);
        Broken::unless(is_told_once || !self.has_trigger, Checker::TimeOut, || {
            format!("run {}: it is said {told} times that the trigger cannot be held", self.run)
        })?;
        for incident in account.incidents.iter().filter(|one| !is_known(one)) {
            let place = incident.source.0 as usize - 1;
            Broken::unless(!self.reliable[place], Checker::TimeOut, || {
                format!("run {}: nothing happened to program {place}, but {}", self.run, incident.kind)
            })?;
        }
        if !self.triggered || !self.reliable[0] || self.nodes_started.is_none() {
            return Ok(());
        }
        let issued = programs[0].seen;
        if let Some(vetoed) = &account.front_ends[0].vetoed {
            let kept_back: u64 = vetoed.vetoed.iter().map(|cause| cause.count).sum();
            Broken::unless(vetoed.issued == issued + kept_back, Checker::Ledger, || {
                format!("run {}: of {issued} accepted triggers the source says {vetoed:?}", self.run)
            })?;
        }
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
