//! Whoever does what run control says: it has one run at most, and takes its time.

use super::super::broken::{Broken, Checker};
use super::super::draw::Draw;
use super::scenario::Scenario;
use ropewalk_flow::control::operation::{Outcome, Task, TaskNumber};
use ropewalk_terms::Instant;
use std::time::Duration;

/// What there is of a run.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Held {
    Nothing,
    Prepared,
    /// Begun, for some of the nodes at least.
    Begun,
    Running,
    Paused,
    /// Done, or dropped.
    Done,
}

/// Something that will have been done, unless nobody wants it any more.
#[derive(Copy, Clone, Debug)]
struct Work {
    number: TaskNumber,
    task: Task,
    at: Instant,
    outcome: Outcome,
}

/// What the crew says.
pub(super) enum Word {
    Ended(TaskNumber, Outcome),
    /// Everything of the run that came is done or dropped.
    RunOver,
    RunFailed,
    StopsByItself,
}

pub(super) struct Crew {
    scenario: Scenario,
    draw: Draw,
    pub(super) held: Held,
    work: Vec<Work>,
    /// When the run ends by itself, and whether that goes wrong.
    own_end: Option<(Instant, bool)>,
}

/// Late is this much later.
const LATE: Duration = Duration::from_secs(7);

impl Crew {
    pub(super) fn new(scenario: Scenario) -> Self {
        let draw = Draw::new(scenario.seed, 0xc4e3);
        Self { scenario, draw, held: Held::Nothing, work: Vec::new(), own_end: None }
    }

    /// Takes a task on, which has to make sense with what there is.
    pub(super) fn take(&mut self, now: Instant, number: TaskNumber, task: Task) -> Result<(), Broken> {
        let makes_sense = match task {
            Task::Prepare => self.held == Held::Nothing,
            Task::Begin | Task::Discard => self.held == Held::Prepared,
            Task::Pause => self.held == Held::Running,
            Task::Resume => self.held == Held::Paused,
            Task::Drain | Task::Force => (Held::Begun..=Held::Paused).contains(&self.held),
            Task::Close => (Held::Begun..=Held::Done).contains(&self.held),
        };
        let words = || format!("{} is to be done with a run that is {:?}", task.name(), self.held);
        Broken::unless(makes_sense, Checker::Order, words)?;
        if task == Task::Begin {
            self.held = Held::Begun;
        }
        let outcome = match self.draw.below(3) {
            _ if !self.is_troubled() => Outcome::Done,
            0 => Outcome::Refused,
            1 => Outcome::Failed,
            _ => {
                // It hangs, until nobody waits any more.
                let at = now.after(LATE).after(self.draw.time(Duration::from_millis(1), LATE));
                self.work.push(Work { number, task, at, outcome: Outcome::Done });
                return Ok(());
            }
        };
        let at = now.after(self.draw.time(Duration::from_micros(1), self.scenario.work));
        self.work.push(Work { number, task, at, outcome });
        Ok(())
    }

    fn is_troubled(&mut self) -> bool {
        self.scenario.trouble.is_some_and(|times| self.draw.one_in(times))
    }

    /// When something happens next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.work.iter().map(|work| work.at).chain(self.own_end.map(|(at, _)| at)).min()
    }

    /// What has happened by now. What nobody waits for any more is told all the same, for people do.
    pub(super) fn turn(&mut self, now: Instant, is_wanted: impl Fn(TaskNumber) -> bool) -> Vec<Word> {
        let mut words = Vec::new();
        let ended: Vec<_> = self.work.extract_if(.., |work| work.at <= now).collect();
        for work in ended {
            self.end(now, work, is_wanted(work.number), &mut words);
        }
        if let Some((_, goes_wrong)) = self.own_end.take_if(|(at, _)| *at <= now)
            && matches!(self.held, Held::Running | Held::Paused)
        {
            words.push(if goes_wrong { Word::RunFailed } else { Word::StopsByItself });
        }
        words
    }

    fn end(&mut self, now: Instant, Work { number, task, outcome, .. }: Work, is_wanted: bool, words: &mut Vec<Word>) {
        if !is_wanted {
            // What came too late is given back by whoever has it.
            words.push(Word::Ended(number, outcome));
            return;
        }
        let is_done = outcome == Outcome::Done;
        match task {
            Task::Drain | Task::Force if is_done => {
                self.held = Held::Done;
                return words.push(Word::RunOver);
            }
            Task::Prepare if is_done => self.held = Held::Prepared,
            Task::Begin if is_done => {
                self.held = Held::Running;
                self.own_end = self.scenario.own_end.filter(|&times| self.draw.one_in(times)).map(|_| {
                    let at = now.after(self.draw.time(Duration::from_millis(1), self.scenario.pause));
                    (at, self.draw.one_in(2))
                });
            }
            Task::Begin if outcome == Outcome::Refused => self.held = Held::Prepared,
            Task::Pause if is_done => self.held = Held::Paused,
            Task::Resume if is_done => self.held = Held::Running,
            // Whatever could not be closed is left behind.
            Task::Close | Task::Discard => self.held = Held::Nothing,
            _ => {}
        }
        words.push(Word::Ended(number, outcome));
    }

    /// Run control does not wait any longer for the task that it gave before.
    pub(super) fn left_behind(&mut self, task: Task) {
        match task {
            Task::Close | Task::Discard => self.held = Held::Nothing,
            Task::Force => self.held = Held::Done,
            _ => {}
        }
    }
}
