//! Each arrow of the picture, repeats, time limits, and any order of everything.

use super::*;
use proptest::prelude::*;
use ropewalk_terms::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: TaskLimits =
    TaskLimits { prepare: SECOND, begin: SECOND, pause: SECOND, drain: SECOND, force: SECOND, close: SECOND };

/// An operation, the time, and a caller that does its tasks.
struct Desk {
    operation: Operation,
    now: Instant,
    last: u64,
    answers: BTreeMap<u64, Answer>,
    done: Vec<Task>,
}

impl Desk {
    fn new() -> Self {
        let operation = Operation::new(LIMITS);
        Self { operation, now: Instant::ZERO, last: 0, answers: BTreeMap::new(), done: Vec::new() }
    }

    fn running() -> Self {
        let mut desk = Self::new();
        desk.ask(Command::Configure);
        desk.ask(Command::Start);
        desk
    }

    fn give(&mut self, command: Command) -> u64 {
        self.last += 1;
        self.operation.command(self.now, CommandNumber(self.last), command);
        self.collect();
        self.last
    }

    /// The command's answer, after everything that it takes was done at once.
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

    /// Does the next thing, which is expected, with this outcome.
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
    let mut desk = Desk::running();
    assert_eq!(desk.state(), OperationState::Running);
    for (command, state) in [
        (Command::Pause, OperationState::Paused),
        (Command::Resume, OperationState::Running),
        (Command::Stop, OperationState::Configured),
        (Command::Start, OperationState::Running),
        (Command::Reset, OperationState::Initial),
        (Command::Shutdown, OperationState::Over),
    ] {
        assert_eq!((desk.ask(command), desk.state()), (Answer::Done, state), "{command:?}");
    }
    let first = [Task::Prepare, Task::Begin, Task::Pause, Task::Resume, Task::Drain, Task::Close];
    assert_eq!(desk.done, [&first[..], &[Task::Prepare, Task::Begin, Task::Force, Task::Close]].concat());
}

#[test]
fn a_command_for_the_present_state_is_answered_already_so() {
    let mut desk = Desk::new();
    assert_eq!(desk.ask(Command::Reset), Answer::AlreadySo);
    assert_eq!(desk.ask(Command::Stop), Answer::AlreadySo);
    for command in [Command::Configure, Command::Start, Command::Pause, Command::Resume, Command::Stop] {
        assert_eq!(desk.ask(command), Answer::Done, "{command:?}");
        assert_eq!(desk.ask(command), Answer::AlreadySo, "{command:?}");
    }
    assert_eq!(desk.ask(Command::Shutdown), Answer::Done);
    assert_eq!(desk.ask(Command::Shutdown), Answer::AlreadySo);
    assert_eq!(desk.ask(Command::Stop), Answer::NotNow(OperationState::Over));
}

#[test]
fn what_cannot_be_had_is_refused_with_the_state() {
    let mut desk = Desk::new();
    for command in [Command::Start, Command::Pause, Command::Resume] {
        assert_eq!(desk.ask(command), Answer::NotNow(OperationState::Initial), "{command:?}");
    }
    desk.ask(Command::Configure);
    assert_eq!(desk.ask(Command::Pause), Answer::NotNow(OperationState::Configured));
    desk.ask(Command::Start);
    assert_eq!(desk.ask(Command::Configure), Answer::NotNow(OperationState::Running));
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
            let mut desk = Desk::new();
            path.iter().for_each(|&step| assert_eq!(desk.ask(step), Answer::Done));
            let (state, allowed) = (desk.state(), desk.state().allowed());
            let answer = desk.ask(command);
            assert_eq!(answer == Answer::Done, allowed.contains(&command), "{command:?} in {state:?}: {answer:?}");
        }
    }
}

#[test]
fn a_check_that_says_no_changes_nothing() {
    let mut desk = Desk::new();
    let configure = desk.give(Command::Configure);
    desk.expect(Task::Prepare, Outcome::Refused);
    assert_eq!((desk.answers[&configure], desk.state()), (Answer::Refused, OperationState::Initial));
    desk.ask(Command::Configure);
    let start = desk.give(Command::Start);
    desk.expect(Task::Begin, Outcome::Refused);
    assert_eq!((desk.answers[&start], desk.state()), (Answer::Refused, OperationState::Configured));
    assert_eq!((desk.ask(Command::Start), desk.state()), (Answer::Done, OperationState::Running));
}

#[test]
fn a_start_while_the_next_run_is_set_up_waits_for_that() {
    let mut desk = Desk::running();
    let stop = desk.give(Command::Stop);
    desk.expect(Task::Drain, Outcome::Done);
    desk.expect(Task::Close, Outcome::Done);
    assert_eq!((desk.answers[&stop], desk.state()), (Answer::Done, OperationState::Configured));
    let start = desk.give(Command::Start);
    assert!(!desk.answers.contains_key(&start));
    desk.expect(Task::Prepare, Outcome::Done);
    desk.expect(Task::Begin, Outcome::Done);
    assert_eq!((desk.answers[&start], desk.state()), (Answer::Done, OperationState::Running));
}

#[test]
fn a_stop_overtakes_a_start_and_the_late_end_of_its_task_means_nothing() {
    let mut desk = Desk::new();
    desk.ask(Command::Configure);
    let start = desk.give(Command::Start);
    let (begin, _) = desk.next();
    let stop = desk.give(Command::Stop);
    assert_eq!(desk.answers[&start], Answer::Overtaken);
    desk.operation.ended(desk.now, begin, Outcome::Failed);
    assert_eq!((desk.operation.fault(), desk.operation.task()), (None, Some(Task::Drain)));
    while desk.work() {}
    assert_eq!((desk.answers[&stop], desk.state()), (Answer::Done, OperationState::Configured));
}

#[test]
fn a_stop_always_finishes() {
    let mut desk = Desk::running();
    let stop = desk.give(Command::Stop);
    let tasks = [Task::Drain, Task::Force, Task::Close].map(|task| {
        assert_eq!(desk.operation.task(), Some(task));
        desk.time_out();
        task
    });
    let fault = Fault::TimedOut(tasks[2]);
    assert_eq!((desk.answers[&stop], desk.state()), (Answer::Failed(fault), OperationState::Error));
    assert_eq!(desk.operation.fault(), Some(fault));
    assert_eq!((desk.ask(Command::Reset), desk.state()), (Answer::Done, OperationState::Initial));
}

#[test]
fn a_reset_during_a_stop_drops_what_is_left() {
    for (first, end) in [(Command::Stop, OperationState::Initial), (Command::Shutdown, OperationState::Over)] {
        let mut desk = Desk::running();
        let first = desk.give(first);
        let (drain, _) = desk.next();
        let reset = desk.give(Command::Reset);
        assert_eq!(desk.operation.task(), Some(Task::Force));
        assert!(!desk.operation.is_under_way(drain));
        while desk.work() {}
        assert_eq!((desk.answers[&first], desk.answers[&reset]), (Answer::Done, Answer::Done));
        assert_eq!(desk.state(), end);
    }
}

#[test]
fn a_run_that_fails_is_dropped_and_waits_for_an_operator() {
    let mut desk = Desk::running();
    desk.operation.run_failed(desk.now);
    assert_eq!((desk.state(), desk.operation.fault()), (OperationState::Error, Some(Fault::Run)));
    while desk.work() {}
    assert_eq!(desk.done[2..], [Task::Force, Task::Close]);
    assert_eq!(desk.ask(Command::Start), Answer::NotNow(OperationState::Error));
    assert_eq!((desk.ask(Command::Reset), desk.operation.fault()), (Answer::Done, None));
    assert_eq!(desk.ask(Command::Configure), Answer::Done);
}

#[test]
fn what_cannot_be_set_up_or_begun_is_an_error() {
    let mut desk = Desk::new();
    let configure = desk.give(Command::Configure);
    desk.expect(Task::Prepare, Outcome::Failed);
    assert_eq!(desk.answers[&configure], Answer::Failed(Fault::Failed(Task::Prepare)));
    desk.ask(Command::Reset);
    desk.ask(Command::Configure);
    let start = desk.give(Command::Start);
    desk.time_out();
    assert_eq!(desk.answers[&start], Answer::Failed(Fault::TimedOut(Task::Begin)));
    assert_eq!(desk.operation.task(), Some(Task::Force));
    while desk.work() {}
    assert_eq!(desk.state(), OperationState::Error);
}

#[test]
fn a_run_that_is_paused_by_itself_waits_until_it_is_resumed_or_stopped() {
    let mut desk = Desk::running();
    desk.operation.pause_by_itself(desk.now);
    while desk.work() {}
    assert_eq!(desk.state(), OperationState::Paused);
    desk.operation.pause_by_itself(desk.now);
    assert!(!desk.work());
    assert_eq!((desk.ask(Command::Resume), desk.state()), (Answer::Done, OperationState::Running));
    let stop = desk.give(Command::Stop);
    desk.operation.pause_by_itself(desk.now);
    while desk.work() {}
    assert_eq!((desk.answers[&stop], desk.state()), (Answer::Done, OperationState::Configured));
}

#[test]
fn a_pause_that_fails_leaves_the_run_as_it_was() {
    let mut desk = Desk::running();
    let pause = desk.give(Command::Pause);
    desk.time_out();
    assert_eq!(desk.answers[&pause], Answer::Failed(Fault::TimedOut(Task::Pause)));
    assert_eq!(desk.state(), OperationState::Running);
    let (pause, resume) = (desk.give(Command::Pause), desk.give(Command::Resume));
    while desk.work() {}
    assert_eq!((desk.answers[&pause], desk.answers[&resume]), (Answer::Overtaken, Answer::Done));
    assert_eq!(desk.state(), OperationState::Running);
}

#[test]
fn a_pause_that_is_refused_is_no_pause() {
    let mut desk = Desk::running();
    let pause = desk.give(Command::Pause);
    desk.expect(Task::Pause, Outcome::Refused);
    assert_eq!(desk.answers[&pause], Answer::Failed(Fault::Failed(Task::Pause)));
    assert_eq!(desk.state(), OperationState::Running);
}

#[test]
fn a_run_may_end_by_itself_and_another_one_follow() {
    let mut desk = Desk::running();
    desk.operation.stop_by_itself(desk.now, AfterRun::Next);
    assert_eq!(desk.state(), OperationState::Draining);
    while desk.work() {}
    assert_eq!(desk.state(), OperationState::Running);
    // This run ends without having been asked to.
    desk.operation.run_over(desk.now);
    while desk.work() {}
    assert_eq!(desk.state(), OperationState::Configured);
    desk.ask(Command::Start);
    desk.operation.stop_by_itself(desk.now, AfterRun::Next);
    let stop = desk.give(Command::Stop);
    while desk.work() {}
    assert_eq!((desk.answers[&stop], desk.state()), (Answer::Done, OperationState::Configured));
}

#[test]
fn a_run_that_was_over_before_it_was_seen_has_begun_all_the_same() {
    for ends in [false, true] {
        let mut desk = Desk::new();
        desk.ask(Command::Configure);
        let start = desk.give(Command::Start);
        desk.next();
        if ends {
            desk.operation.run_over(desk.now);
        } else {
            desk.operation.stop_by_itself(desk.now, AfterRun::Wait);
        }
        while desk.work() {}
        assert_eq!((desk.answers[&start], desk.state()), (Answer::Done, OperationState::Configured));
    }
}

#[test]
fn a_run_that_is_the_only_one_leaves_nothing_behind_it() {
    let mut desk = Desk::running();
    desk.operation.stop_by_itself(desk.now, AfterRun::Over);
    while desk.work() {}
    assert_eq!((desk.state(), &desk.done[2..]), (OperationState::Over, &[Task::Drain, Task::Close][..]));
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
    /// In any order of events: tasks come one at a time, each thing that was set up is given back once, and each
    /// command gets one answer.
    #[test]
    fn every_command_is_answered_and_nothing_is_kept(steps in prop::collection::vec(step(), 0..80)) {
        let mut desk = Desk::new();
        let mut given = None;
        let mut holds = false;
        for step in steps {
            match step {
                Step::Command(command) => { desk.give(command); }
                Step::End(outcome) => if let Some((number, task)) = given {
                    desk.end(number, task, outcome);
                },
                Step::LateEnd(number) => {
                    let number = TaskNumber(number);
                    if !desk.operation.is_under_way(number) {
                        let before = (desk.state(), desk.operation.task());
                        desk.operation.ended(desk.now, number, Outcome::Failed);
                        prop_assert_eq!((desk.state(), desk.operation.task()), before);
                    }
                }
                Step::TimeOut => if desk.operation.next_deadline().is_some() { desk.time_out(); },
                Step::Over => desk.operation.run_over(desk.now),
                Step::Failed => desk.operation.run_failed(desk.now),
                Step::ByItself(next) => desk.operation.stop_by_itself(desk.now, next),
            }
            desk.collect();
            while let Some((number, task)) = desk.operation.poll() {
                prop_assert!(desk.operation.is_under_way(number));
                match task {
                    Task::Prepare => { prop_assert!(!holds); holds = true; }
                    Task::Close | Task::Discard => { prop_assert!(holds); holds = false; }
                    _ => prop_assert!(holds),
                }
                given = Some((number, task));
            }
            // What could not be set up is not held.
            holds &= desk.operation.state() != OperationState::Initial || desk.operation.task() == Some(Task::Prepare);
            holds &= desk.operation.state() != OperationState::Error || desk.operation.task().is_some();
            given = given.filter(|&(number, _)| desk.operation.is_under_way(number));
        }
        let shutdown = desk.give(Command::Shutdown);
        for _ in 0..8 {
            if desk.operation.next_deadline().is_some() { desk.time_out(); }
        }
        prop_assert_eq!(desk.state(), OperationState::Over);
        prop_assert_eq!(desk.answers[&shutdown], if desk.answers[&shutdown] == Answer::AlreadySo { Answer::AlreadySo } else { Answer::Done });
        prop_assert_eq!(desk.answers.len() as u64, desk.last);
    }
}
