//! Run control as an operator sees it: runs, one after the other, of one configuration.
//!
//! ```text
//!            configure           start            pause
//!  initial ----------> configured -----> running -------> paused
//!     ^                  ^    |             | ^              | |
//!     |                  |    |             | +---resume-----+ |
//!     |               closed  |             | stop, or its end | stop
//!     |                  |    |             v                  |
//!     +---reset----------|----+         draining <-------------+
//!     ^                  +-----------------/
//!     +---reset--- error <---- anything that failed           shutdown: from anywhere to `over`, draining on the way
//! ```
//! The machine gives the caller one task at a time; the caller reports how it ended. Each task has a time limit.
//! Each command gets one answer: done, already so, not possible now (with the possible commands), or failed. A stop
//! always finishes: what does not drain in time is dropped, what does not close in time is left behind. [`Controls`]
//! decides whose commands are accepted, before the machine gets them.

mod command;
#[cfg(test)]
mod tests;

pub use command::{Answer, Command, CommandNumber, Controls, ControlsChange, ControlsRefusal, OperationState};

use ropewalk_terms::Instant;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Operations, one at a time. A later one may replace an earlier one that has not ended; then the
/// earlier one's end means nothing any more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// Set everything up for one run, and check that it could begin.
    Prepare,
    /// Check once more, and begin the run.
    Begin,
    /// Have no further event built.
    Pause,
    /// Go on.
    Resume,
    /// Stop the run in order. Ends with [`Operation::run_over`].
    Drain,
    /// Drop what is not done. Ends with [`Operation::run_over`].
    Force,
    /// Close the run's account and give everything back. What does not end is left behind.
    Close,
    /// Give back what was prepared for a run that never began.
    Discard,
}

impl Task {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Begin => "begin",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Drain => "drain",
            Self::Force => "force",
            Self::Close => "close",
            Self::Discard => "discard",
        }
    }
}

/// Which task ended: they are numbered as they are given out.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskNumber(pub u64);

/// How a task ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// A check says no, and nothing has changed. Of [`Task::Prepare`] and [`Task::Begin`] alone.
    Refused,
    /// It cannot be done.
    Failed,
}

/// Why nothing goes on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// This could not be done.
    Failed(Task),
    /// This was not done in its time.
    TimedOut(Task),
    /// Something went wrong while the run was under way.
    Run,
}

impl Fault {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed(_) => "failed",
            Self::TimedOut(_) => "timed_out",
            Self::Run => "run",
        }
    }

    /// The task that it is about.
    pub const fn task(self) -> Option<Task> {
        match self {
            Self::Failed(task) | Self::TimedOut(task) => Some(task),
            Self::Run => None,
        }
    }
}

/// What follows a run that ends by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterRun {
    /// The next run is set up and waits for the command `start`. This needs run control.
    #[default]
    Wait,
    /// The next run begins, and so on until an operator stops it.
    Next,
    /// The program ends.
    Over,
}

/// How long each task may take.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TaskLimits {
    /// To set everything up: memory is touched, addresses are bound.
    pub prepare: Duration,
    /// To begin a run: nodes connect, front ends under run control get ready.
    pub begin: Duration,
    /// To pause or go on.
    pub pause: Duration,
    /// To finish what has come.
    pub drain: Duration,
    /// To drop what is left.
    pub force: Duration,
    /// To close files and threads.
    pub close: Duration,
}

impl TaskLimits {
    /// That of this task.
    pub const fn of(&self, task: Task) -> Duration {
        match task {
            Task::Prepare => self.prepare,
            Task::Begin => self.begin,
            Task::Pause | Task::Resume => self.pause,
            Task::Drain => self.drain,
            Task::Force => self.force,
            Task::Close | Task::Discard => self.close,
        }
    }
}

/// What the operator has now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    /// Nothing.
    Empty,
    /// Nothing either, after a run: what the next one needs is set up without being asked for.
    Between,
    /// Everything for a run.
    Prepared,
    /// A run that has not begun on every node.
    Begun,
    Running,
    Paused,
    /// A run that is done, and not closed.
    Drained,
    /// Nothing, after a fault.
    Broken,
    Over,
}

impl Place {
    const fn has_run(self) -> bool {
        matches!(self, Self::Begun | Self::Running | Self::Paused)
    }
}

/// Where the last command leads.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Goal {
    Initial,
    Configured,
    Running,
    Paused,
    Over,
}

#[derive(Copy, Clone, Debug)]
struct UnderWay {
    number: TaskNumber,
    task: Task,
    until: Instant,
}

/// Commands that wait for their answer, at most; more are not taken.
const MOST_WAITING: usize = 256;

/// Run control of a sequence of runs: see the module's picture.
#[derive(Debug)]
pub struct Operation {
    limits: TaskLimits,
    place: Place,
    goal: Goal,
    fault: Option<Fault>,
    /// What is left of the run is to be dropped.
    is_forced: bool,
    /// Another run begins behind this one.
    starts_next: bool,
    under_way: Option<UnderWay>,
    next_task: TaskNumber,
    tasks: VecDeque<(TaskNumber, Task)>,
    waiting: Vec<(CommandNumber, Command)>,
    answers: VecDeque<(CommandNumber, Answer)>,
}

impl Operation {
    /// Nothing is set up.
    pub const fn new(limits: TaskLimits) -> Self {
        Self {
            limits,
            place: Place::Empty,
            goal: Goal::Initial,
            fault: None,
            is_forced: false,
            starts_next: false,
            under_way: None,
            next_task: TaskNumber(0),
            tasks: VecDeque::new(),
            waiting: Vec::new(),
            answers: VecDeque::new(),
        }
    }

    /// What is begun from now on may take so long.
    pub const fn set_limits(&mut self, limits: TaskLimits) {
        self.limits = limits;
    }

    /// Where the sequence of runs is.
    pub fn state(&self) -> OperationState {
        if self.fault.is_some() {
            return OperationState::Error;
        }
        match self.place {
            Place::Empty => OperationState::Initial,
            Place::Begun | Place::Running | Place::Paused if self.is_ending() => OperationState::Draining,
            Place::Between | Place::Prepared | Place::Begun => OperationState::Configured,
            Place::Running => OperationState::Running,
            Place::Paused => OperationState::Paused,
            Place::Drained => OperationState::Draining,
            Place::Broken => OperationState::Error,
            Place::Over => OperationState::Over,
        }
    }

    /// What is being done.
    pub fn task(&self) -> Option<Task> {
        self.under_way.map(|under_way| under_way.task)
    }

    /// Why nothing goes on, in [`OperationState::Error`].
    pub const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    fn is_ending(&self) -> bool {
        matches!(self.task(), Some(Task::Drain | Task::Force | Task::Close))
    }

    /// Takes a command. It is answered once, sooner or later.
    pub fn command(&mut self, now: Instant, number: CommandNumber, command: Command) {
        if self.is_so(command) {
            return self.answers.push_back((number, Answer::AlreadySo));
        }
        let Some(goal) = self.goal_of(command).filter(|_| self.waiting.len() < MOST_WAITING) else {
            return self.answers.push_back((number, Answer::NotNow(self.state())));
        };
        if goal != self.goal {
            self.overtake();
            self.goal = goal;
        }
        self.starts_next &= command != Command::Stop;
        self.is_forced |= command == Command::Reset && self.place.has_run();
        self.waiting.push((number, command));
        self.abandon();
        self.advance(now);
    }

    /// Whether the state that the command asks for is reached, and nothing leads away from it.
    fn is_so(&self, command: Command) -> bool {
        let is_at = |place, goal| self.place == place && self.goal == goal && self.under_way.is_none();
        match command {
            Command::Configure => is_at(Place::Prepared, Goal::Configured),
            Command::Start | Command::Resume => is_at(Place::Running, Goal::Running),
            Command::Pause => is_at(Place::Paused, Goal::Paused),
            Command::Stop => {
                let has_none = matches!(self.place, Place::Empty | Place::Between | Place::Prepared);
                has_none && self.fault.is_none() && self.goal != Goal::Running
            }
            Command::Reset => is_at(Place::Empty, Goal::Initial),
            Command::Shutdown => self.place == Place::Over,
        }
    }

    /// The goal of the command; `None` if it is not possible in this state.
    fn goal_of(&self, command: Command) -> Option<Goal> {
        let state = self.state();
        let is_way_there = |goal| (self.goal == goal && self.fault.is_none()).then_some(goal);
        match (command, state) {
            (_, OperationState::Over) => None,
            (Command::Shutdown, _) => Some(Goal::Over),
            (Command::Reset, _) if self.goal != Goal::Over => Some(Goal::Initial),
            // An operator who shuts down need not wait for the rest of the run.
            (Command::Reset | Command::Stop, _) if self.goal == Goal::Over && state.has_run() => Some(Goal::Over),
            _ if self.goal == Goal::Over => None,
            (Command::Configure, OperationState::Initial) => Some(Goal::Configured),
            (Command::Configure, OperationState::Configured) => is_way_there(Goal::Configured),
            (Command::Start, OperationState::Configured) => Some(Goal::Running),
            (Command::Start, OperationState::Running) => is_way_there(Goal::Running),
            (Command::Pause, OperationState::Running | OperationState::Paused) => Some(Goal::Paused),
            (Command::Resume, OperationState::Running | OperationState::Paused) => Some(Goal::Running),
            // A run that is ending anyway keeps its goal.
            (Command::Stop, OperationState::Draining) => Some(self.goal),
            (Command::Stop, OperationState::Configured | OperationState::Running | OperationState::Paused) => {
                Some(Goal::Configured)
            }
            _ => None,
        }
    }

    /// A new command replaces the goal: waiting commands are answered as overtaken, except stops, since the run ends
    /// all the same.
    fn overtake(&mut self) {
        let answers = &mut self.answers;
        self.waiting.retain(|&(number, command)| {
            let stays = command == Command::Stop;
            if !stays {
                answers.push_back((number, Answer::Overtaken));
            }
            stays
        });
    }

    /// Gives up what is under way where the goal no longer lies behind it.
    fn abandon(&mut self) {
        let is_ended = matches!(self.goal, Goal::Configured | Goal::Initial | Goal::Over);
        let is_of_no_use = match self.task() {
            Some(Task::Begin | Task::Pause | Task::Resume) => is_ended,
            Some(Task::Drain) => self.is_forced,
            _ => false,
        };
        if is_of_no_use {
            self.forget();
        }
    }

    /// Forgets the task under way, even if the caller has not begun it.
    fn forget(&mut self) {
        if let Some(UnderWay { number, .. }) = self.under_way.take() {
            self.tasks.retain(|&(other, _)| other != number);
        }
    }

    /// The run will end without a command: a limit is reached, or its sources have ended.
    pub fn stop_by_itself(&mut self, now: Instant, then: AfterRun) {
        if self.place.has_run() && matches!(self.goal, Goal::Running | Goal::Paused) && !self.is_ending() {
            self.has_begun();
            self.overtake();
            self.goal = if then == AfterRun::Over { Goal::Over } else { Goal::Configured };
            self.starts_next = then == AfterRun::Next;
            self.abandon();
            self.advance(now);
        }
    }

    /// Pauses a run that goes on, because an operator must look at it.
    pub fn pause_by_itself(&mut self, now: Instant) {
        if self.place.has_run() && self.goal == Goal::Running && !self.is_ending() {
            self.has_begun();
            self.overtake();
            self.goal = Goal::Paused;
            self.advance(now);
        }
    }

    /// A run that ends by itself has begun, even if it was never seen running.
    fn has_begun(&mut self) {
        if self.place == Place::Begun {
            self.answer_those(|command| command == Command::Start, Answer::Done);
        }
    }

    /// The run is over, for any reason: all its data is processed or dropped.
    pub fn run_over(&mut self, now: Instant) {
        if !self.place.has_run() {
            return;
        }
        self.forget();
        self.has_begun();
        self.place = Place::Drained;
        if matches!(self.goal, Goal::Running | Goal::Paused) {
            self.overtake();
            self.goal = Goal::Configured;
        }
        self.advance(now);
    }

    /// Something went wrong with the run that is under way; nothing otherwise.
    pub fn run_failed(&mut self, now: Instant) {
        if self.place.has_run() {
            self.fail(Fault::Run);
            self.advance(now);
        }
    }

    /// A task has ended. The end of an abandoned task is ignored: the caller gives back what the task set up.
    pub fn ended(&mut self, now: Instant, number: TaskNumber, outcome: Outcome) {
        let is_heard = |under_way: &UnderWay| under_way.number == number;
        let Some(under_way) = self.under_way.filter(is_heard) else { return };
        // These end with the run.
        if matches!(under_way.task, Task::Drain | Task::Force) && outcome == Outcome::Done {
            return;
        }
        // Nothing else is a question.
        let may_refuse = matches!(under_way.task, Task::Prepare | Task::Begin);
        let is_refused = outcome == Outcome::Refused && may_refuse;
        let has_failed = outcome != Outcome::Done && !is_refused;
        let fault = has_failed.then_some(Fault::Failed(under_way.task));
        self.conclude(now, under_way.task, fault, is_refused);
    }

    /// Whether this task is still asked for.
    pub fn is_under_way(&self, number: TaskNumber) -> bool {
        self.under_way.is_some_and(|under_way| under_way.number == number)
    }

    fn conclude(&mut self, now: Instant, task: Task, fault: Option<Fault>, is_refused: bool) {
        self.forget();
        match (task, fault) {
            (Task::Prepare, None) if is_refused => {
                (self.place, self.goal) = (Place::Empty, self.goal_without(Goal::Initial));
                self.answer_all(Answer::Refused);
            }
            (Task::Begin, None) if is_refused => {
                (self.place, self.goal) = (Place::Prepared, self.goal_without(Goal::Configured));
                self.answer_all(Answer::Refused);
            }
            (Task::Prepare, None) => self.place = Place::Prepared,
            (Task::Begin | Task::Resume, None) => self.place = Place::Running,
            (Task::Pause, None) => self.place = Place::Paused,
            (Task::Pause | Task::Resume, Some(fault)) => {
                // The run goes on as it was.
                self.goal = if task == Task::Pause { Goal::Running } else { Goal::Paused };
                let command = if task == Task::Pause { Command::Pause } else { Command::Resume };
                self.answer_those(|waiting| waiting == command, Answer::Failed(fault));
            }
            (Task::Prepare, Some(fault)) => {
                self.place = Place::Broken;
                self.fail(fault);
            }
            (Task::Begin, Some(fault)) => self.fail(fault),
            (Task::Drain, _) => self.is_forced = true,
            (Task::Force, _) => self.place = Place::Drained,
            (Task::Close | Task::Discard, fault) => self.closed(fault),
        }
        self.advance(now);
    }

    /// The goal that remains where the one that there was cannot be had.
    fn goal_without(&self, instead: Goal) -> Goal {
        if matches!(self.goal, Goal::Initial | Goal::Over) { self.goal } else { instead }
    }

    /// Everything was given back; or not, and is left behind.
    fn closed(&mut self, fault: Option<Fault>) {
        self.is_forced = false;
        if let Some(fault) = fault {
            self.fail(fault);
        }
        if std::mem::take(&mut self.starts_next) && self.goal == Goal::Configured {
            self.goal = Goal::Running;
        }
        self.place = match self.goal {
            _ if self.fault.is_some() => Place::Broken,
            Goal::Configured | Goal::Running | Goal::Paused => Place::Between,
            Goal::Initial | Goal::Over => Place::Empty,
        };
        self.answer_those(|command| command == Command::Stop, self.fault.map_or(Answer::Done, Answer::Failed));
    }

    /// Stops all progress: the rest of a run is dropped, and an operator has to look.
    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
        let is_ending = matches!(self.goal, Goal::Initial | Goal::Over);
        self.answer_those(|command| !is_ending && command != Command::Stop, Answer::Failed(fault));
        if self.place.has_run() && !matches!(self.task(), Some(Task::Force)) {
            self.forget();
            self.is_forced = true;
        }
    }

    fn answer_all(&mut self, answer: Answer) {
        let is_ending = matches!(self.goal, Goal::Initial | Goal::Over);
        self.answer_those(|command| !is_ending || !matches!(command, Command::Reset | Command::Shutdown), answer);
    }

    fn answer_those(&mut self, is_meant: impl Fn(Command) -> bool, answer: Answer) {
        let answers = &mut self.answers;
        self.waiting.retain(|&(number, command)| {
            let is_meant = is_meant(command);
            if is_meant {
                answers.push_back((number, answer));
            }
            !is_meant
        });
    }

    /// Does what follows, until there is a task or nothing left to do.
    fn advance(&mut self, now: Instant) {
        while self.under_way.is_none() {
            let is_ending = matches!(self.goal, Goal::Initial | Goal::Over);
            let task = match (self.place, self.goal) {
                (Place::Drained, _) => Task::Close,
                (Place::Begun | Place::Running | Place::Paused, goal) => {
                    let is_forced = self.is_forced || self.fault.is_some() || goal == Goal::Initial;
                    match (self.place, goal) {
                        _ if is_forced => Task::Force,
                        (_, Goal::Configured | Goal::Over) => Task::Drain,
                        (Place::Running, Goal::Paused) => Task::Pause,
                        (Place::Paused, Goal::Running) => Task::Resume,
                        _ => break,
                    }
                }
                (Place::Empty | Place::Between | Place::Broken, _) if is_ending => {
                    self.fault = None;
                    self.place = if self.goal == Goal::Over { Place::Over } else { Place::Empty };
                    break;
                }
                (Place::Empty | Place::Between, _) => Task::Prepare,
                (Place::Prepared, Goal::Running | Goal::Paused) => {
                    self.place = Place::Begun;
                    Task::Begin
                }
                (Place::Prepared, _) if is_ending => Task::Discard,
                (Place::Prepared | Place::Broken | Place::Over, _) => break,
            };
            self.give(now, task);
        }
        self.settle();
    }

    fn give(&mut self, now: Instant, task: Task) {
        let number = self.next_task;
        self.next_task = TaskNumber(number.0 + 1);
        self.under_way = Some(UnderWay { number, task, until: now.after(self.limits.of(task)) });
        self.tasks.push_back((number, task));
    }

    /// Answers commands whose goal is reached.
    fn settle(&mut self) {
        if self.under_way.is_some() {
            return;
        }
        let place = self.place;
        let is_reached = |command| match command {
            Command::Configure => place == Place::Prepared,
            Command::Start | Command::Resume => place == Place::Running,
            Command::Pause => place == Place::Paused,
            Command::Stop => !place.has_run() && place != Place::Drained,
            Command::Reset => matches!(place, Place::Empty | Place::Over),
            Command::Shutdown => place == Place::Over,
        };
        self.answer_those(is_reached, Answer::Done);
    }

    /// Returns the task that has run out of time, if there is one; its end is no longer waited for.
    pub fn tick(&mut self, now: Instant) -> Option<Task> {
        let UnderWay { task, .. } = self.under_way.filter(|under_way| under_way.until <= now)?;
        self.conclude(now, task, Some(Fault::TimedOut(task)), false);
        Some(task)
    }

    /// When [`Operation::tick`] is of use.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.under_way.map(|under_way| under_way.until)
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<(TaskNumber, Task)> {
        self.tasks.pop_front()
    }

    /// The next answer.
    pub fn poll_answer(&mut self) -> Option<(CommandNumber, Answer)> {
        self.answers.pop_front()
    }
}
