//! Run control as operators use it: commands at any moment, from the holder of the controls or from others, while the crew
//! that carries out its tasks fails, hangs, or ends too late.
//!
//! ```text
//!   Operators --commands--> flow's Operation --tasks--> Crew: slow, refuses, fails, hangs      World: are the answers true?
//!      <-----answers-----------+   <--ends, late ones too--+
//! ```

use super::draw::Draw;
use super::outcome::{Broken, Checker};
use ropewalk_flow::control::operation::{
    AfterRun, Answer, Command, CommandNumber, Controls, Operation, OperationState, Outcome, Task, TaskLimits,
    TaskNumber,
};
use ropewalk_terms::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// A sequence of runs and its operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// Commands that operators give.
    pub commands: u64,
    /// The longest time between two of them.
    pub pause: Duration,
    /// How long each task may take.
    pub limits: TaskLimits,
    /// What follows a run that ends by itself.
    pub after_run: AfterRun,
    /// One in so many tasks says no, fails, hangs, or ends after its time.
    pub trouble: Option<u64>,
    /// The longest time that a task takes otherwise.
    pub work: Duration,
    /// One run in so many ends by itself, and as many go wrong.
    pub own_end: Option<u64>,
    /// How many operators there are.
    pub operators: u64,
    /// Before one in so many commands, operators take or give control.
    pub turns: u64,
    /// An operator that gives no sign for so long loses control.
    pub silence: Duration,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0x0be7);
        let mut limit = || draw.time(Duration::from_millis(100), Duration::from_secs(5));
        let limits = TaskLimits {
            prepare: limit(),
            begin: limit(),
            pause: limit(),
            drain: limit(),
            force: limit(),
            close: limit(),
        };
        Self {
            seed,
            commands: draw.between(5, 60),
            pause: draw.time(Duration::from_millis(1), Duration::from_secs(10)),
            limits,
            after_run: draw.of(&[AfterRun::Wait, AfterRun::Wait, AfterRun::Next, AfterRun::Over]),
            trouble: draw.one_in(2).then(|| draw.between(3, 20)),
            work: draw.time(Duration::from_micros(100), Duration::from_millis(300)),
            own_end: draw.one_in(2).then(|| draw.between(1, 6)),
            operators: draw.between(1, 4),
            turns: draw.between(2, 10),
            silence: draw.time(Duration::from_millis(10), Duration::from_secs(60)),
        }
    }
}

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
        // The program itself needs no permission.
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

    /// Takes tasks from the operation, and checks its answers.
    fn settle(&mut self) -> Result<(), Broken> {
        while let Some((number, task)) = self.operation.poll() {
            let words = || format!("{} ran out of time and is to be done once more without a command", task.name());
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

    /// Checks that the state is what the answer says.
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

/// The real controls, and who should hold them by what was done so far.
struct Operators {
    draw: Draw,
    count: u64,
    silence: Duration,
    /// One in so many times they turn to the controls before a command.
    turns: u64,
    controls: Controls,
    /// Who holds them, and the last sign of life.
    holder: Option<(String, Instant)>,
}

impl Operators {
    fn new(scenario: &Scenario) -> Self {
        Self {
            draw: Draw::new(scenario.seed, 0x0be9),
            count: scenario.operators,
            silence: scenario.silence,
            turns: scenario.turns,
            controls: Controls::new(scenario.silence),
            holder: None,
        }
    }

    fn name(&mut self) -> String {
        format!("operator {}", self.draw.below(self.count))
    }

    /// An operator wants to give a command. Returns whether it is permitted.
    fn may_command(&mut self, now: Instant) -> Result<bool, Broken> {
        self.grow_silent(now)?;
        if self.draw.one_in(self.turns) {
            self.turn_to_controls(now)?;
        }
        let by = self.name();
        let is_heard = self.controls.permit(now, &by).is_ok();
        let should = self.may(&by);
        let words = || format!("a command of {by} is permitted: {is_heard}, while {:?} has control", self.holder);
        Broken::unless(is_heard == should, Checker::Content, words)?;
        if let Some((_, heard)) = self.holder.as_mut().filter(|(holder, _)| *holder == by) {
            *heard = now;
        }
        Ok(is_heard)
    }

    fn may(&self, by: &str) -> bool {
        self.holder.as_ref().is_none_or(|(holder, _)| holder == by)
    }

    fn grow_silent(&mut self, now: Instant) -> Result<(), Broken> {
        let is_lost = self.holder.take_if(|(_, heard)| heard.after(self.silence) <= now).is_some();
        let is_told = self.controls.tick(now).is_some();
        let words = || format!("a silent operator loses control: {is_lost}, and it is reported: {is_told}");
        Broken::unless(is_lost == is_told, Checker::Content, words)
    }

    fn turn_to_controls(&mut self, now: Instant) -> Result<(), Broken> {
        let (by, to) = (self.name(), self.name());
        let may = self.may(&by);
        let (is_done, should, after) = match self.draw.below(5) {
            0 | 1 => (self.controls.take(now, &by, false).is_ok(), may, Some(by)),
            2 => (self.controls.take(now, &by, true).is_ok(), true, Some(by)),
            3 => (self.controls.give(now, &by, Some(&to)).is_ok(), may && self.holder.is_some(), Some(to)),
            _ => (self.controls.give(now, &by, None).is_ok(), may, None),
        };
        if should {
            self.holder = after.map(|name| (name, now));
        }
        let holder = self.holder.as_ref().map(|(name, _)| name.as_str());
        let is_so = is_done == should && self.controls.holder() == holder;
        let words = || format!("{:?} has control, and it should be {holder:?}", self.controls.holder());
        Broken::unless(is_so, Checker::Content, words)
    }
}

/// What there is of a run.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Held {
    Nothing,
    Prepared,
    /// Begun, for some of the nodes at least.
    Begun,
    Running,
    Paused,
    /// Done, or dropped.
    Done,
}

/// Work that will be done by then, if it is still wanted.
#[derive(Copy, Clone, Debug)]
struct Work {
    number: TaskNumber,
    task: Task,
    at: Instant,
    outcome: Outcome,
}

/// What the crew says.
enum Word {
    Ended(TaskNumber, Outcome),
    /// Everything of the run that came is done or dropped.
    RunOver,
    RunFailed,
    StopsByItself,
}

struct Crew {
    scenario: Scenario,
    draw: Draw,
    held: Held,
    work: Vec<Work>,
    /// When the run ends by itself, and whether that goes wrong.
    own_end: Option<(Instant, bool)>,
}

/// Late is this much later.
const LATE: Duration = Duration::from_secs(7);

impl Crew {
    fn new(scenario: Scenario) -> Self {
        let draw = Draw::new(scenario.seed, 0xc4e3);
        Self { scenario, draw, held: Held::Nothing, work: Vec::new(), own_end: None }
    }

    /// Takes a task on, which has to make sense with what there is.
    fn take(&mut self, now: Instant, number: TaskNumber, task: Task) -> Result<(), Broken> {
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
                // It hangs until after its time-out.
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
    fn next_deadline(&self) -> Option<Instant> {
        self.work.iter().map(|work| work.at).chain(self.own_end.map(|(at, _)| at)).min()
    }

    /// What has happened by now. Work that is no longer wanted is reported all the same, as people do.
    fn turn(&mut self, now: Instant, is_wanted: impl Fn(TaskNumber) -> bool) -> Vec<Word> {
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
            // The crew itself gives back what came too late.
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
    fn left_behind(&mut self, task: Task) {
        match task {
            Task::Close | Task::Discard => self.held = Held::Nothing,
            Task::Force => self.held = Held::Done,
            _ => {}
        }
    }
}
