//! A scenario from the first command to the end of everything.

use super::super::broken::{Broken, Checker};
use super::super::draw::Draw;
use super::crew::{Crew, Held, Word};
use super::operators::Operators;
use super::scenario::Scenario;
use ropewalk_flow::control::operation::{
    Answer, Command, CommandNumber, Operation, OperationState, Outcome, Task, TaskNumber,
};
use ropewalk_terms::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Operators, run control and its crew.
pub struct World {
    scenario: Scenario,
    draw: Draw,
    now: Instant,
    operation: Operation,
    operators: Operators,
    crew: Crew,
    /// The task that was given last, while it is waited for.
    given: Option<(TaskNumber, Task)>,
    /// The task that ran out of time since the last command.
    timed_out: Option<Task>,
    /// Commands without an answer, and since when.
    open: BTreeMap<CommandNumber, (Command, Instant)>,
    last: u64,
    answers: [u64; 7],
}

impl World {
    /// Nothing has happened yet.
    pub fn new(scenario: Scenario) -> Self {
        let draw = Draw::new(scenario.seed, 0x0be8);
        let operation = Operation::new(scenario.limits);
        let (operators, crew) = (Operators::new(&scenario), Crew::new(scenario.clone()));
        let (open, given) = (BTreeMap::new(), None);
        Self {
            scenario,
            draw,
            now: Instant::ZERO,
            operation,
            operators,
            crew,
            given,
            timed_out: None,
            open,
            last: 0,
            answers: [0; 7],
        }
    }

    /// Until everything is over.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        for _ in 0..self.scenario.commands {
            let until = self.now.after(self.draw.time(Duration::from_micros(1), self.scenario.pause));
            self.go_on_until(until)?;
            let command = self.draw.of(&Command::ALL[..6]);
            if self.operators.may_command(self.now)? {
                self.give(command)?;
            } else {
                self.look_at(command, Answer::HeldByAnother)?;
            }
        }
        // The program itself asks nobody.
        self.give(Command::Shutdown)?;
        self.go_on_until(self.now.after(self.longest()))?;
        let state = self.operation.state();
        let words = || format!("it is {} and {:?} long after the shutdown", state.name(), self.operation.task());
        Broken::unless(state == OperationState::Over, Checker::Liveness, words)?;
        let words = || format!("{:?} have no answer although all is over", self.open);
        Broken::unless(self.open.is_empty(), Checker::Liveness, words)?;
        Broken::unless(self.crew.held == Held::Nothing, Checker::Pools, || {
            format!("a run is left: {:?}", self.crew.held)
        })
    }

    /// How many commands had which answer.
    pub const fn answers(&self) -> [u64; 7] {
        self.answers
    }

    /// A command has its answer by then, whatever happens: every task may be waited for once for its own run and once for the next.
    fn longest(&self) -> Duration {
        let limits = &self.scenario.limits;
        2 * (limits.prepare + limits.begin + limits.pause + limits.drain + limits.force + limits.close)
    }

    fn give(&mut self, command: Command) -> Result<(), Broken> {
        self.last += 1;
        self.timed_out = None;
        let number = CommandNumber(self.last);
        self.open.insert(number, (command, self.now));
        self.operation.command(self.now, number, command);
        self.settle()
    }

    fn go_on_until(&mut self, until: Instant) -> Result<(), Broken> {
        loop {
            let next = [self.operation.next_deadline(), self.crew.next_deadline()].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= until) else { break };
            self.now = self.now.max(next);
            let wanted = self.given.filter(|&(number, _)| self.operation.is_under_way(number));
            for word in self.crew.turn(self.now, |number| wanted.is_some_and(|(wanted, _)| wanted == number)) {
                self.hear(&word);
                self.settle()?;
            }
            let before = self.operation.task();
            self.operation.tick(self.now);
            if let Some(task) =
                before.filter(|_| wanted.is_some_and(|(number, _)| !self.operation.is_under_way(number)))
            {
                self.crew.left_behind(task);
                self.timed_out = Some(task);
            }
            self.settle()?;
        }
        self.now = until;
        Ok(())
    }

    fn hear(&mut self, word: &Word) {
        match *word {
            Word::Ended(number, outcome) => {
                let before = self.operation.task();
                self.operation.ended(self.now, number, outcome);
                if outcome == Outcome::Failed && before == Some(Task::Force) {
                    self.crew.left_behind(Task::Force);
                }
            }
            Word::RunOver => self.operation.run_over(self.now),
            Word::RunFailed => self.operation.run_failed(self.now),
            Word::StopsByItself => self.operation.stop_by_itself(self.now, self.scenario.after_run),
        }
    }

    /// Tasks are given out, and answers are looked at.
    fn settle(&mut self) -> Result<(), Broken> {
        while let Some((number, task)) = self.operation.poll() {
            let words = || format!("{} ran out of time and is to be done once more, and nobody asked", task.name());
            Broken::unless(self.timed_out != Some(task), Checker::Liveness, words)?;
            self.crew.take(self.now, number, task)?;
            self.given = Some((number, task));
        }
        while let Some((number, answer)) = self.operation.poll_answer() {
            let open = self.open.remove(&number);
            let Some((command, _)) = open else {
                return Err(Broken::new(Checker::Keys, format!("{number:?} is answered although it is not open")));
            };
            self.look_at(command, answer)?;
        }
        let longest = self.longest();
        let forgotten = self.open.iter().find(|(_, (_, since))| self.now.since(*since) > longest);
        let words = || format!("{forgotten:?} has no answer after {longest:?}");
        Broken::unless(forgotten.is_none(), Checker::Liveness, words)
    }

    /// What is said to be so is so.
    fn look_at(&mut self, command: Command, answer: Answer) -> Result<(), Broken> {
        let kind = match answer {
            Answer::Done => 0,
            Answer::AlreadySo => 1,
            Answer::NotNow(_) => 2,
            Answer::Refused => 3,
            Answer::Failed(_) => 4,
            Answer::Overtaken => 5,
            Answer::HeldByAnother => 6,
        };
        self.answers[kind] += 1;
        let (held, state) = (self.crew.held, self.operation.state());
        let is_so = !answer.is_good()
            || match command {
                Command::Configure => held == Held::Prepared,
                Command::Start | Command::Resume => held == Held::Running,
                Command::Pause => held == Held::Paused,
                Command::Stop => !matches!(held, Held::Begun | Held::Running | Held::Paused | Held::Done),
                Command::Reset | Command::Shutdown => held == Held::Nothing,
            };
        let words = || format!("{} is answered {} while the run is {held:?}", command.name(), answer.name());
        Broken::unless(is_so, Checker::Content, words)?;
        let is_refused_here = match answer {
            Answer::NotNow(told) => told == state,
            _ => true,
        };
        Broken::unless(is_refused_here, Checker::Content, || format!("{answer:?} in state {}", state.name()))
    }
}
