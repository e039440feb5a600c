//! Filter units: what each does at a step.

use super::directory::{Directory, Output, is_accepted};
use ropewalk_flow::files::{UnitId, Work};
use std::collections::VecDeque;

/// What a unit tells the broker.
#[derive(Copy, Clone, Debug)]
pub(super) enum Said {
    /// It wants a file.
    Request,
    /// It has written everything.
    Done(Work),
    /// It could not filter the file.
    Failed(Work),
    /// Its connection has ended: nothing comes behind this.
    Gone,
}

#[derive(Copy, Clone, Debug)]
enum State {
    /// It has asked for a file, or will.
    Idle { has_asked: bool },
    /// It has looked at so many events of the file.
    Working { work: Work, looked_at: usize },
    /// It was told that nothing comes any more.
    Finished,
}

/// A process that filters.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) id: UnitId,
    state: State,
    /// So many steps it does nothing.
    pause: u64,
    /// What it said, in order, and the broker has not heard.
    pub(super) said: VecDeque<Said>,
    /// What it was given, and has not heard of.
    pub(super) given: VecDeque<Work>,
}

impl Unit {
    pub(super) const fn new(id: u32) -> Self {
        let state = State::Idle { has_asked: false };
        Self { id: UnitId(id), state, pause: 0, said: VecDeque::new(), given: VecDeque::new() }
    }

    /// It does nothing for so many steps.
    pub(super) const fn hang(&mut self, steps: u64) {
        self.pause = steps;
    }

    pub(super) const fn is_hung(&self) -> bool {
        self.pause > 0
    }

    pub(super) const fn finish(&mut self) {
        self.state = State::Finished;
    }

    pub(super) const fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// Does one thing: asks, begins with a file, looks at one event of it, or closes what it wrote.
    pub(super) fn step(&mut self, seed: u64, directory: &mut Directory) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        match self.state {
            State::Idle { has_asked: false } => {
                self.said.push_back(Said::Request);
                self.state = State::Idle { has_asked: true };
            }
            State::Idle { has_asked: true } => {
                if let Some(work) = self.given.pop_front() {
                    self.begin(work, directory);
                }
            }
            State::Working { work, looked_at } => self.look(seed, work, looked_at, directory),
            State::Finished => {}
        }
    }

    /// Nothing is written over: what is there already is of somebody whose broker died.
    fn begin(&mut self, work: Work, directory: &mut Directory) {
        if directory.outputs.contains_key(&work) {
            self.said.push_back(Said::Failed(work));
            self.state = State::Idle { has_asked: false };
            return;
        }
        directory.outputs.insert(work, Output::default());
        self.state = State::Working { work, looked_at: 0 };
    }

    fn look(&mut self, seed: u64, work: Work, looked_at: usize, directory: &mut Directory) {
        let event = directory.raw.get(&work.file).map(|events| events.get(looked_at).copied());
        // What a try that was given up has written may be gone under its hands, and so may its file.
        let (Some(event), Some(output)) = (event, directory.outputs.get_mut(&work)) else {
            self.state = State::Idle { has_asked: false };
            return;
        };
        match event {
            Some(event) => {
                output.decided.push((event, is_accepted(seed, event)));
                self.state = State::Working { work, looked_at: looked_at + 1 };
            }
            None => {
                output.is_whole = true;
                self.said.push_back(Said::Done(work));
                self.state = State::Idle { has_asked: false };
            }
        }
    }
}
