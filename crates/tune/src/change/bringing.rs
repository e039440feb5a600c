//! Settings are brought to values, one after the other, until all of them are there at once.

use ropewalk_terms::flaws::{Flaw, is_planted};
use schemars::JsonSchema;

use super::{Action, Answer};
use crate::Setting;

/// A setting, and what it shall be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) setting: Setting,
    pub(super) value: String,
}

/// A setting that could not be brought to its value.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, JsonSchema)]
pub struct Trouble {
    /// The setting.
    pub setting: Setting,
    /// The value that it should have.
    pub value: String,
    /// The value found, or the error.
    pub why: String,
}

/// Settings may change one another. So after the last one all are looked at again, and those that are not there any
/// more are brought there once more, for so many rounds at most.
const ROUNDS: usize = 8;
/// Why a setting is not there that was.
const MOVED: &str = "another setting changes it again each time";

/// Brings settings to values: in each round each is read, written where it differs, and read again.
pub(super) struct Bringing {
    targets: Vec<Target>,
    /// Whether it goes on with the others when one cannot be brought to its value.
    is_stubborn: bool,
    round: usize,
    /// Whether this is the last look at all of them, which tells what is there where something is not.
    is_survey: bool,
    at: usize,
    stage: Stage,
    /// Settings that this round has brought to their values: the next round looks whether that has moved others.
    moved: Vec<usize>,
    troubles: Vec<(usize, String)>,
    reached: Vec<bool>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Stage {
    Look,
    Write,
    Check,
    Reached,
    Finished,
}

/// What it wants next.
pub(super) enum Next {
    /// To have something done.
    Do(Action),
    /// To be heard: the target of this index was brought to its value for the first time.
    Reached(usize),
    /// Nothing more.
    Finished,
}

impl Bringing {
    pub(super) fn new(targets: Vec<Target>, is_stubborn: bool) -> Self {
        let stage = if targets.is_empty() { Stage::Finished } else { Stage::Look };
        let reached = vec![false; targets.len()];
        let (moved, troubles) = (Vec::new(), Vec::new());
        Self { targets, is_stubborn, round: 1, is_survey: false, at: 0, stage, moved, troubles, reached }
    }

    /// The settings that could not be brought to their values.
    pub(super) fn troubles(&self) -> Vec<Trouble> {
        let trouble = |(index, why): &(usize, String)| {
            let Target { setting, value } = self.targets[*index].clone();
            Trouble { setting, value, why: why.clone() }
        };
        self.troubles.iter().map(trouble).collect()
    }

    pub(super) fn poll(&mut self) -> Next {
        let Some(target) = self.targets.get(self.at) else { return Next::Finished };
        match self.stage {
            Stage::Look | Stage::Check => Next::Do(Action::Read(target.setting.clone())),
            Stage::Write => Next::Do(Action::Write(target.setting.clone(), target.value.clone())),
            Stage::Reached => {
                let index = self.at;
                self.reached[index] = true;
                self.step();
                Next::Reached(index)
            }
            Stage::Finished => Next::Finished,
        }
    }

    pub(super) fn on_answer(&mut self, answer: Answer) {
        let value = &self.targets[self.at].value;
        match (self.stage, answer) {
            (Stage::Look, Answer::Value(Some(present))) if present == *value => self.there(),
            (Stage::Look, Answer::Value(Some(_))) if self.is_survey => self.fail(MOVED.to_owned()),
            (Stage::Look, Answer::Value(Some(_))) => self.stage = Stage::Write,
            (Stage::Write, Answer::Done) => self.stage = Stage::Check,
            (Stage::Check, Answer::Value(Some(present))) if present == *value => {
                self.moved.push(self.at);
                self.there();
            }
            (Stage::Check, Answer::Value(Some(present))) => {
                self.fail(format!("`{value}` was written, and `{present}` is read again"));
            }
            // Nothing is left to be brought anywhere.
            (_, Answer::Value(None)) if self.targets[self.at].setting.may_end() => self.step(),
            (_, Answer::Value(None)) => self.fail("this machine does not have it".to_owned()),
            (_, Answer::Refused(why)) => self.fail(why),
            (_, _) => {}
        }
    }

    fn there(&mut self) {
        if self.reached[self.at] { self.step() } else { self.stage = Stage::Reached }
    }

    fn fail(&mut self, why: String) {
        if self.troubles.iter().all(|(index, _)| *index != self.at) {
            self.troubles.push((self.at, why));
        }
        if self.is_stubborn { self.step() } else { self.stage = Stage::Finished }
    }

    /// To the next setting, or to the next round.
    fn step(&mut self) {
        (self.at, self.stage) = (self.at + 1, Stage::Look);
        if self.at < self.targets.len() {
            return;
        }
        let moved = std::mem::take(&mut self.moved);
        let is_last = moved.is_empty() || is_planted(Flaw::MovedSettingUnseen);
        if is_last || self.round == ROUNDS {
            let moved = moved.into_iter().filter(|_| !is_last);
            self.troubles.extend(moved.map(|index| (index, MOVED.to_owned())));
            // What refused its value may have moved others that were looked at before.
            let is_sure = self.troubles.is_empty() || self.is_survey || !self.is_stubborn;
            (self.at, self.is_survey) = (0, true);
            self.stage = if is_sure { Stage::Finished } else { Stage::Look };
        } else {
            (self.round, self.at) = (self.round + 1, 0);
            // Whoever could not be brought there is tried once more: what stood in the way may be gone.
            self.troubles.clear();
        }
    }
}
