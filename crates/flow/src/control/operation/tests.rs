//! Each arrow of the picture, repetitions, time limits, and any order of events.

use super::*;
use proptest::prelude::*;
use ropewalk_terms::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: TaskLimits =
    TaskLimits { prepare: SECOND, begin: SECOND, pause: SECOND, drain: SECOND, force: SECOND, close: SECOND };

/// An operation, the time, and a caller that executes its tasks.
struct Rig {
    operation: Operation,
    now: Instant,
    last: u64,
    answers: BTreeMap<u64, Answer>,
    done: Vec<Task>,
}

impl Rig {
    fn new() -> Self {
        let operation = Operation::new(LIMITS);
        Self { operation, now: Instant::ZERO, last: 0, answers: BTreeMap::new(), done: Vec::new() }
    }

    fn running() -> Self {
        let mut rig = Self::new();
        rig.ask(Command::Configure);
        rig.ask(Command::Start);
        rig
    }

    fn give(&mut self, command: Command) -> u64 {
        self.last += 1;
        self.operation.command(self.now, CommandNumber(self.last), command);
        self.collect();
        self.last
    }

    /// The command's answer, after all of its tasks were done at once.
    fn ask(&mut self, command: Command) -> Answer {
        let number = self.give(command);
        while self.work() {}
        self.answers[&number]
    }

    fn next(&mut self) -> (TaskNumber, Task) {
        self.operation.poll().expect("there is something to do")
    }

    fn end(&mut self, number: TaskNumber, task: Task, outcome: Outcome) {
        self.done.push(task);
        if matches!(task, Task::Drain | Task::Force) && outcome == Outcome::Done {
            self.operation.run_over(self.now);
        } else {
            self.operation.ended(self.now, number, outcome);
        }
        self.collect();
    }

    fn work(&mut self) -> bool {
        let Some((number, task)) = self.operation.poll() else { return false };
        self.end(number, task, Outcome::Done);
        true
    }

    /// Executes the next task, which must be `task`, with this outcome.
    fn expect(&mut self, task: Task, outcome: Outcome) {
        let (number, next) = self.next();
        assert_eq!(next, task);
        self.end(number, task, outcome);
    }

    fn time_out(&mut self) {
        self.now = self.operation.next_deadline().expect("something is under way");
        self.operation.tick(self.now);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some((CommandNumber(number), answer)) = self.operation.poll_answer() {
            assert_eq!(self.answers.insert(number, answer), None, "answered twice");
        }
    }

    fn state(&self) -> OperationState {
        self.operation.state()
    }
}

#[test]
fn two_runs_follow_each_other() {
    let mut rig = Rig::running();
    assert_eq!(rig.state(), OperationState::Running);
    for (command, state) in [
        (Command::Pause, OperationState::Paused),
        (Command::Resume, OperationState::Running),
        (Command::Stop, OperationState::Configured),
        (Command::Start, OperationState::Running),
        (Command::Reset, OperationState::Initial),
        (Command::Shutdown, OperationState::Over),
    ] {
        assert_eq!((rig.ask(command), rig.state()), (Answer::Done, state), "{command:?}");
    }
    let first = [Task::Prepare, Task::Begin, Task::Pause, Task::Resume, Task::Drain, Task::Close];
    assert_eq!(rig.done, [&first[..], &[Task::Prepare, Task::Begin, Task::Force, Task::Close]].concat());
}

#[test]
fn a_command_for_the_present_state_is_answered_already_so() {
    let mut rig = Rig::new();
    assert_eq!(rig.ask(Command::Reset), Answer::AlreadySo);
    assert_eq!(rig.ask(Command::Stop), Answer::AlreadySo);
    for command in [Command::Configure, Command::Start, Command::Pause, Command::Resume, Command::Stop] {
        assert_eq!(rig.ask(command), Answer::Done, "{command:?}");
        assert_eq!(rig.ask(command), Answer::AlreadySo, "{command:?}");
    }
    assert_eq!(rig.ask(Command::Shutdown), Answer::Done);
    assert_eq!(rig.ask(Command::Shutdown), Answer::AlreadySo);
    assert_eq!(rig.ask(Command::Stop), Answer::NotNow(OperationState::Over));
}

#[test]
fn what_cannot_be_had_is_refused_with_the_state() {
    let mut rig = Rig::new();
    for command in [Command::Start, Command::Pause, Command::Resume] {
        assert_eq!(rig.ask(command), Answer::NotNow(OperationState::Initial), "{command:?}");
    }
    rig.ask(Command::Configure);
    assert_eq!(rig.ask(Command::Pause), Answer::NotNow(OperationState::Configured));
    rig.ask(Command::Start);
    assert_eq!(rig.ask(Command::Configure), Answer::NotNow(OperationState::Running));
}

#[test]
fn what_is_allowed_leads_somewhere_from_each_state() {
    let paths: [&[Command]; 4] = [
        &[],
        &[Command::Configure],
        &[Command::Configure, Command::Start],
        &[Command::Configure, Command::Start, Command::Pause],
    ];
    for path in paths {
        for command in Command::ALL {
            let mut rig = Rig::new();
            path.iter().for_each(|&step| assert_eq!(rig.ask(step), Answer::Done));
            let (state, allowed) = (rig.state(), rig.state().allowed());
            let answer = rig.ask(command);
            assert_eq!(answer == Answer::Done, allowed.contains(&command), "{command:?} in {state:?}: {answer:?}");
        }
    }
}

#[test]
fn a_check_that_says_no_changes_nothing() {
    let mut rig = Rig::new();
    let configure = rig.give(Command::Configure);
    rig.expect(Task::Prepare, Outcome::Refused);
    assert_eq!((rig.answers[&configure], rig.state()), (Answer::Refused, OperationState::Initial));
    rig.ask(Command::Configure);
    let start = rig.give(Command::Start);
    rig.expect(Task::Begin, Outcome::Refused);
    assert_eq!((rig.answers[&start], rig.state()), (Answer::Refused, OperationState::Configured));
    assert_eq!((rig.ask(Command::Start), rig.state()), (Answer::Done, OperationState::Running));
}

#[test]
fn a_start_while_the_next_run_is_set_up_waits_for_that() {
    let mut rig = Rig::running();
    let stop = rig.give(Command::Stop);
    rig.expect(Task::Drain, Outcome::Done);
    rig.expect(Task::Close, Outcome::Done);
    assert_eq!((rig.answers[&stop], rig.state()), (Answer::Done, OperationState::Configured));
    let start = rig.give(Command::Start);
    assert!(!rig.answers.contains_key(&start));
    rig.expect(Task::Prepare, Outcome::Done);
    rig.expect(Task::Begin, Outcome::Done);
    assert_eq!((rig.answers[&start], rig.state()), (Answer::Done, OperationState::Running));
}

#[test]
fn a_stop_overtakes_a_start_and_the_late_end_of_its_task_means_nothing() {
    let mut rig = Rig::new();
    rig.ask(Command::Configure);
    let start = rig.give(Command::Start);
    let (begin, _) = rig.next();
    let stop = rig.give(Command::Stop);
    assert_eq!(rig.answers[&start], Answer::Overtaken);
    rig.operation.ended(rig.now, begin, Outcome::Failed);
    assert_eq!((rig.operation.fault(), rig.operation.task()), (None, Some(Task::Drain)));
    while rig.work() {}
    assert_eq!((rig.answers[&stop], rig.state()), (Answer::Done, OperationState::Configured));
}

#[test]
fn a_stop_always_finishes() {
    let mut rig = Rig::running();
    let stop = rig.give(Command::Stop);
    let tasks = [Task::Drain, Task::Force, Task::Close].map(|task| {
        assert_eq!(rig.operation.task(), Some(task));
        rig.time_out();
        task
    });
    let fault = Fault::TimedOut(tasks[2]);
    assert_eq!((rig.answers[&stop], rig.state()), (Answer::Failed(fault), OperationState::Error));
    assert_eq!(rig.operation.fault(), Some(fault));
    assert_eq!((rig.ask(Command::Reset), rig.state()), (Answer::Done, OperationState::Initial));
}

#[test]
fn a_reset_during_a_stop_drops_what_is_left() {
    for (first, end) in [(Command::Stop, OperationState::Initial), (Command::Shutdown, OperationState::Over)] {
        let mut rig = Rig::running();
        let first = rig.give(first);
        let (drain, _) = rig.next();
        let reset = rig.give(Command::Reset);
        assert_eq!(rig.operation.task(), Some(Task::Force));
        assert!(!rig.operation.is_under_way(drain));
        while rig.work() {}
        assert_eq!((rig.answers[&first], rig.answers[&reset]), (Answer::Done, Answer::Done));
        assert_eq!(rig.state(), end);
    }
}

#[test]
fn a_run_that_fails_is_dropped_and_waits_for_an_operator() {
    let mut rig = Rig::running();
    rig.operation.run_failed(rig.now);
    assert_eq!((rig.state(), rig.operation.fault()), (OperationState::Error, Some(Fault::Run)));
    while rig.work() {}
    assert_eq!(rig.done[2..], [Task::Force, Task::Close]);
    assert_eq!(rig.ask(Command::Start), Answer::NotNow(OperationState::Error));
    assert_eq!((rig.ask(Command::Reset), rig.operation.fault()), (Answer::Done, None));
    assert_eq!(rig.ask(Command::Configure), Answer::Done);
}

#[test]
fn what_cannot_be_set_up_or_begun_is_an_error() {
    let mut rig = Rig::new();
    let configure = rig.give(Command::Configure);
    rig.expect(Task::Prepare, Outcome::Failed);
    assert_eq!(rig.answers[&configure], Answer::Failed(Fault::Failed(Task::Prepare)));
    rig.ask(Command::Reset);
    rig.ask(Command::Configure);
    let start = rig.give(Command::Start);
    rig.time_out();
    assert_eq!(rig.answers[&start], Answer::Failed(Fault::TimedOut(Task::Begin)));
    assert_eq!(rig.operation.task(), Some(Task::Force));
    while rig.work() {}
    assert_eq!(rig.state(), OperationState::Error);
}

#[test]
fn a_run_that_is_paused_by_itself_waits_until_it_is_resumed_or_stopped() {
    let mut rig = Rig::running();
    rig.operation.pause_by_itself(rig.now);
    while rig.work() {}
    assert_eq!(rig.state(), OperationState::Paused);
    rig.operation.pause_by_itself(rig.now);
    assert!(!rig.work());
    assert_eq!((rig.ask(Command::Resume), rig.state()), (Answer::Done, OperationState::Running));
    let stop = rig.give(Command::Stop);
    rig.operation.pause_by_itself(rig.now);
    while rig.work() {}
    assert_eq!((rig.answers[&stop], rig.state()), (Answer::Done, OperationState::Configured));
}

#[test]
fn a_pause_that_fails_leaves_the_run_as_it_was() {
    let mut rig = Rig::running();
    let pause = rig.give(Command::Pause);
    rig.time_out();
    assert_eq!(rig.answers[&pause], Answer::Failed(Fault::TimedOut(Task::Pause)));
    assert_eq!(rig.state(), OperationState::Running);
    let (pause, resume) = (rig.give(Command::Pause), rig.give(Command::Resume));
    while rig.work() {}
    assert_eq!((rig.answers[&pause], rig.answers[&resume]), (Answer::Overtaken, Answer::Done));
    assert_eq!(rig.state(), OperationState::Running);
}

#[test]
fn a_pause_that_is_refused_is_no_pause() {
    let mut rig = Rig::running();
    let pause = rig.give(Command::Pause);
    rig.expect(Task::Pause, Outcome::Refused);
    assert_eq!(rig.answers[&pause], Answer::Failed(Fault::Failed(Task::Pause)));
    assert_eq!(rig.state(), OperationState::Running);
}

#[test]
fn a_run_may_end_by_itself_and_another_one_follow() {
    let mut rig = Rig::running();
    rig.operation.stop_by_itself(rig.now, AfterRun::Next);
    assert_eq!(rig.state(), OperationState::Draining);
    while rig.work() {}
    assert_eq!(rig.state(), OperationState::Running);
    // This run ends without a command.
    rig.operation.run_over(rig.now);
    while rig.work() {}
    assert_eq!(rig.state(), OperationState::Configured);
    rig.ask(Command::Start);
    rig.operation.stop_by_itself(rig.now, AfterRun::Next);
    let stop = rig.give(Command::Stop);
    while rig.work() {}
    assert_eq!((rig.answers[&stop], rig.state()), (Answer::Done, OperationState::Configured));
}

#[test]
fn a_run_that_was_over_before_it_was_seen_has_begun_all_the_same() {
    for ends in [false, true] {
        let mut rig = Rig::new();
        rig.ask(Command::Configure);
        let start = rig.give(Command::Start);
        rig.next();
        if ends {
            rig.operation.run_over(rig.now);
        } else {
            rig.operation.stop_by_itself(rig.now, AfterRun::Wait);
        }
        while rig.work() {}
        assert_eq!((rig.answers[&start], rig.state()), (Answer::Done, OperationState::Configured));
    }
}

#[test]
fn a_run_that_is_the_only_one_leaves_nothing_behind_it() {
    let mut rig = Rig::running();
    rig.operation.stop_by_itself(rig.now, AfterRun::Over);
    while rig.work() {}
    assert_eq!((rig.state(), &rig.done[2..]), (OperationState::Over, &[Task::Drain, Task::Close][..]));
}

#[test]
fn names_of_other_systems_are_known() {
    for (name, command) in [("conf", Command::Configure), ("enable", Command::Start), ("halt", Command::Reset)] {
        assert_eq!(Command::from_name(name), Some(command));
    }
    for command in Command::ALL {
        assert_eq!(Command::from_name(command.name()), Some(command));
    }
    assert_eq!(Command::from_name("explode"), None);
}

#[derive(Copy, Clone, Debug)]
enum Step {
    Command(Command),
    End(Outcome),
    LateEnd(u64),
    TimeOut,
    Over,
    Failed,
    ByItself(AfterRun),
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![4 => Just(Outcome::Done), 1 => Just(Outcome::Refused), 1 => Just(Outcome::Failed)];
    prop_oneof![
        6 => prop::sample::select(&Command::ALL[..6]).prop_map(Step::Command),
        8 => outcome.prop_map(Step::End),
        1 => (0_u64..40).prop_map(Step::LateEnd),
        1 => Just(Step::TimeOut),
        1 => Just(Step::Over),
        1 => Just(Step::Failed),
        1 => prop::sample::select(&[AfterRun::Wait, AfterRun::Next, AfterRun::Over][..]).prop_map(Step::ByItself),
    ]
}

proptest! {
    /// In any order of events: tasks come one at a time, each resource is released once at most, and each command gets
    /// one answer.
    #[test]
    fn every_command_is_answered_and_nothing_is_kept(steps in prop::collection::vec(step(), 0..80)) {
        let mut rig = Rig::new();
        let mut given = None;
        let mut holds = false;
        for step in steps {
            match step {
                Step::Command(command) => { rig.give(command); }
                Step::End(outcome) => if let Some((number, task)) = given {
                    rig.end(number, task, outcome);
                },
                Step::LateEnd(number) => {
                    let number = TaskNumber(number);
                    if !rig.operation.is_under_way(number) {
                        let before = (rig.state(), rig.operation.task());
                        rig.operation.ended(rig.now, number, Outcome::Failed);
                        prop_assert_eq!((rig.state(), rig.operation.task()), before);
                    }
                }
                Step::TimeOut => if rig.operation.next_deadline().is_some() { rig.time_out(); },
                Step::Over => rig.operation.run_over(rig.now),
                Step::Failed => rig.operation.run_failed(rig.now),
                Step::ByItself(next) => rig.operation.stop_by_itself(rig.now, next),
            }
            rig.collect();
            while let Some((number, task)) = rig.operation.poll() {
                prop_assert!(rig.operation.is_under_way(number));
                match task {
                    Task::Prepare => { prop_assert!(!holds); holds = true; }
                    Task::Close | Task::Discard => { prop_assert!(holds); holds = false; }
                    _ => prop_assert!(holds),
                }
                given = Some((number, task));
            }
            // What could not be set up is not held.
            holds &= rig.operation.state() != OperationState::Initial || rig.operation.task() == Some(Task::Prepare);
            holds &= rig.operation.state() != OperationState::Error || rig.operation.task().is_some();
            given = given.filter(|&(number, _)| rig.operation.is_under_way(number));
        }
        let shutdown = rig.give(Command::Shutdown);
        for _ in 0..8 {
            if rig.operation.next_deadline().is_some() { rig.time_out(); }
        }
        prop_assert_eq!(rig.state(), OperationState::Over);
        prop_assert_eq!(rig.answers[&shutdown], if rig.answers[&shutdown] == Answer::AlreadySo { Answer::AlreadySo } else { Answer::Done });
        prop_assert_eq!(rig.answers.len() as u64, rig.last);
    }
}
