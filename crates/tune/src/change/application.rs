//! A plan is applied: journalled, written, checked; and rolled back when a step fails. Settings are brought to values
//! one after the other, until all of them are there at once.

use schemars::JsonSchema;
use serde::Serialize;

use super::undoing::{Entry, Held, History};
use super::{Action, Answer, Machine};
use crate::{Change, Identity, Plan, Setting};

/// Applies a plan.
///
/// First all settings are read, since one may change another; then the journal gets what they were, all at once, and
/// has it on the disk before anything is written. Each is then written and read again. When one is refused, or is not
/// what was written, all are brought back in reverse order.
pub struct Application {
    identity: Identity,
    time: String,
    /// The content of an open journal, which this application continues.
    history: Option<History>,
    changes: Vec<Change>,
    /// What the settings were when this application read them.
    before: Vec<String>,
    /// Settings of earlier plans that are not in this one, and are still to be looked at.
    others: Vec<Held>,
    /// Those of them that another program has changed since.
    left: Vec<Setting>,
    stage: Stage,
    failure: Option<Failure>,
    changed: Vec<Change>,
}

enum Stage {
    Reading,
    /// Settings changed by earlier plans are read too: they may change.
    LookingAround,
    Journalling,
    Changing(Bringing),
    /// The step of this index is written down as done.
    Noting(Bringing, usize),
    RollingBack(Bringing),
    /// The last lines, and whether the journal is then put away.
    Ending(Vec<Entry>, bool),
    PuttingAway,
    Finished,
}

/// The result of an application.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Applied {
    /// What was changed, `from` being what was found right before; empty after a failure.
    pub changed: Vec<Change>,
    /// Settings that were already as they shall be.
    pub already: usize,
    /// Why it is not applied.
    pub failure: Option<Failure>,
}

/// Why a plan is not applied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure {
    /// The setting that failed, if it was a setting.
    pub setting: Option<Setting>,
    /// What happened.
    pub why: String,
    /// Settings that could not be brought back after that: the journal stays open, and `undo` tries again.
    pub not_brought_back: Vec<Trouble>,
}

impl Application {
    /// Applies a plan to a machine, at a time (as text, for the journal). `history` is what an open journal says.
    pub fn new(plan: &Plan, identity: &Identity, time: &str, history: Option<History>) -> Self {
        let changes = plan.changes.clone();
        let (identity, time) = (identity.clone(), time.to_owned());
        let is_other = |held: &&Held| changes.iter().all(|change| change.setting != held.setting);
        let others = history.iter().flat_map(|history| &history.held).filter(is_other).cloned().collect();
        let (before, changed, left) = (Vec::new(), Vec::new(), Vec::new());
        let (stage, failure) = (Stage::Reading, None);
        let mut this = Self { identity, time, history, changes, before, others, left, stage, failure, changed };
        if this.changes.is_empty() {
            this.begin();
        }
        this
    }

    /// The lines that say what is about to be done.
    fn intent(&self) -> Vec<Entry> {
        let began = self.history.is_none().then(|| Entry::began(&self.identity, &self.time));
        let Identity { boot, network, .. } = self.identity.clone();
        let (time, left) = (self.time.clone(), self.left.clone());
        let applying = Entry::Applying { boot, network, time, steps: self.changes.len(), left };
        let step = |(change, before): (&Change, &String)| {
            let history = self.history.as_ref();
            let old = history.map_or(before.as_str(), |one| one.old_of(&change.setting, before, &self.identity.boot));
            let (setting, new, rule) = (change.setting.clone(), change.to.clone(), change.rule.clone());
            Entry::Step { setting, old: old.to_owned(), new, rule }
        };
        let steps = self.changes.iter().zip(&self.before).map(step);
        began.into_iter().chain([applying]).chain(steps).collect()
    }

    /// When all of the plan are read.
    fn begin(&mut self) {
        let is_there = self.is_there();
        let is_unfinished = self.history.as_ref().is_some_and(History::is_unfinished);
        self.stage = match self.others.is_empty() {
            _ if is_there && !is_unfinished => Stage::Finished,
            true => Stage::Journalling,
            false => Stage::LookingAround,
        };
    }

    fn is_there(&self) -> bool {
        self.changes.iter().zip(&self.before).all(|(change, before)| change.to == *before)
    }

    /// What an earlier plan changed, and its present value.
    fn look_at(&mut self, other: &Held, present: Option<&str>) {
        let is_half_way = other.is_half_way(&self.identity.boot);
        let is_ours = |present: &str| is_half_way || present == other.old || other.put.iter().any(|put| put == present);
        if present.is_some_and(|present| !is_ours(present)) {
            self.left.push(other.setting.clone());
        }
    }

    /// When all is in the journal.
    fn change(&mut self) {
        let target = |change: &Change| Target { setting: change.setting.clone(), value: change.to.clone() };
        self.stage = Stage::Changing(Bringing::new(self.changes.iter().map(target).collect(), false));
    }

    fn fail(&mut self, setting: Option<Setting>, why: String) {
        self.failure = Some(Failure { setting, why, not_brought_back: Vec::new() });
    }

    fn roll_back(&mut self) {
        let target =
            |(change, before): (&Change, &String)| Target { setting: change.setting.clone(), value: before.to_owned() };
        let targets = self.changes.iter().zip(&self.before).rev().map(target).collect();
        self.stage = Stage::RollingBack(Bringing::new(targets, true));
    }

    fn rolled_back(&mut self, troubles: Vec<Trouble>) {
        let stuck: Vec<_> = troubles.iter().map(|trouble| trouble.setting.clone()).collect();
        if let Some(failure) = &mut self.failure {
            failure.not_brought_back = troubles;
        }
        // What an earlier application changed is still to be taken back, and so is what is stuck.
        let is_all = self.history.is_none() && stuck.is_empty();
        let taken_back = is_all.then(|| Entry::TakenBack { time: self.time.clone() });
        self.stage = Stage::Ending([Entry::RolledBack { stuck }].into_iter().chain(taken_back).collect(), is_all);
    }

    fn applied(&mut self) {
        let changes = self.changes.iter().zip(&self.before).filter(|(change, before)| change.to != **before);
        self.changed = changes.map(|(change, before)| Change { from: before.clone(), ..change.clone() }).collect();
        self.stage = Stage::Ending(vec![Entry::Applied], false);
    }

    /// Advances `bringing`, or the stage when it is done. `None` without an action to do now.
    fn get_on(&mut self, mut bringing: Bringing) -> Option<Action> {
        match bringing.poll() {
            Next::Do(action) => {
                self.stage = Stage::Changing(bringing);
                return Some(action);
            }
            Next::Reached(index) => self.stage = Stage::Noting(bringing, index),
            Next::Finished => match bringing.troubles().into_iter().next() {
                Some(trouble) => {
                    self.fail(Some(trouble.setting), trouble.why);
                    self.roll_back();
                }
                None => self.applied(),
            },
        }
        None
    }

    fn get_back(&mut self, mut bringing: Bringing) -> Option<Action> {
        match bringing.poll() {
            Next::Do(action) => {
                self.stage = Stage::RollingBack(bringing);
                return Some(action);
            }
            Next::Reached(_) => self.stage = Stage::RollingBack(bringing),
            Next::Finished => self.rolled_back(bringing.troubles()),
        }
        None
    }
}

impl Machine for Application {
    type Outcome = Applied;

    fn poll(&mut self) -> Option<Action> {
        loop {
            let action = match std::mem::replace(&mut self.stage, Stage::Finished) {
                Stage::Finished => return None,
                Stage::Changing(bringing) => self.get_on(bringing),
                Stage::RollingBack(bringing) => self.get_back(bringing),
                waiting => {
                    let action = match &waiting {
                        Stage::Reading => Action::Read(self.changes[self.before.len()].setting.clone()),
                        Stage::LookingAround => Action::Read(self.others[0].setting.clone()),
                        Stage::Journalling => Action::Journal(self.intent()),
                        Stage::Noting(_, index) => {
                            Action::Journal(vec![Entry::Done { setting: self.changes[*index].setting.clone() }])
                        }
                        Stage::Ending(entries, _) => Action::Journal(entries.clone()),
                        _ => Action::PutAway,
                    };
                    self.stage = waiting;
                    Some(action)
                }
            };
            if action.is_some() {
                return action;
            }
        }
    }

    fn on_answer(&mut self, answer: Answer) {
        match std::mem::replace(&mut self.stage, Stage::Finished) {
            Stage::Reading => {
                let setting = self.changes[self.before.len()].setting.clone();
                match answer {
                    Answer::Value(Some(value)) => self.before.push(value),
                    // It has ended since the plan was made.
                    Answer::Value(None) if setting.may_end() => drop(self.changes.remove(self.before.len())),
                    Answer::Value(None) => return self.fail(Some(setting), "this machine does not have it".to_owned()),
                    Answer::Refused(why) => return self.fail(Some(setting), why),
                    Answer::Done => {}
                }
                self.stage = Stage::Reading;
                if self.before.len() == self.changes.len() {
                    self.begin();
                }
            }
            Stage::LookingAround => {
                let other = self.others.remove(0);
                let present = if let Answer::Value(Some(present)) = &answer { Some(present.as_str()) } else { None };
                self.look_at(&other, present);
                self.stage = if self.others.is_empty() { Stage::Journalling } else { Stage::LookingAround };
            }
            Stage::Journalling => match answer {
                // Nothing was written yet.
                Answer::Refused(why) => self.fail(None, why),
                _ => self.change(),
            },
            Stage::Changing(mut bringing) => {
                bringing.on_answer(answer);
                self.stage = Stage::Changing(bringing);
            }
            Stage::RollingBack(mut bringing) => {
                bringing.on_answer(answer);
                self.stage = Stage::RollingBack(bringing);
            }
            Stage::Noting(bringing, _) => match answer {
                Answer::Refused(why) => {
                    self.fail(None, why);
                    self.roll_back();
                }
                _ => self.stage = Stage::Changing(bringing),
            },
            Stage::Ending(entries, is_put_away) => match answer {
                Answer::Refused(why) if entries == [Entry::Applied] => {
                    self.changed.clear();
                    self.fail(None, why);
                    self.roll_back();
                }
                // What was restored is as before; only the journal lacks that, and `undo` checks all of it.
                Answer::Refused(_) => {}
                _ if is_put_away => self.stage = Stage::PuttingAway,
                _ => {}
            },
            Stage::PuttingAway | Stage::Finished => {}
        }
    }

    fn outcome(self) -> Applied {
        let already = self.changes.iter().zip(&self.before).filter(|(change, before)| change.to == **before).count();
        Applied { changed: self.changed, already, failure: self.failure }
    }
}

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

/// A setting may change another one. After the last one all are checked, and changed ones are set again, in at most
/// this many rounds.
const ROUNDS: usize = 8;
/// Why a setting is not there that was.
const MOVED: &str = "another setting changes it again each time";

/// Sets settings to values: in each round each is read, written if it differs, and read again.
pub(super) struct Bringing {
    targets: Vec<Target>,
    /// Whether it continues with the others when one cannot be set.
    is_stubborn: bool,
    round: usize,
    /// Whether this is the last look at all of them, which tells what is there where something is not.
    is_survey: bool,
    at: usize,
    stage: Step,
    /// Settings that this round has brought to their values: the next round looks whether that has moved others.
    moved: Vec<usize>,
    troubles: Vec<(usize, String)>,
    reached: Vec<bool>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Step {
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
    /// To be noted: the target of this index was brought to its value for the first time.
    Reached(usize),
    /// Nothing more.
    Finished,
}

impl Bringing {
    pub(super) fn new(targets: Vec<Target>, is_stubborn: bool) -> Self {
        let stage = if targets.is_empty() { Step::Finished } else { Step::Look };
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
            Step::Look | Step::Check => Next::Do(Action::Read(target.setting.clone())),
            Step::Write => Next::Do(Action::Write(target.setting.clone(), target.value.clone())),
            Step::Reached => {
                let index = self.at;
                self.reached[index] = true;
                self.step();
                Next::Reached(index)
            }
            Step::Finished => Next::Finished,
        }
    }

    pub(super) fn on_answer(&mut self, answer: Answer) {
        let value = &self.targets[self.at].value;
        match (self.stage, answer) {
            (Step::Look, Answer::Value(Some(present))) if present == *value => self.there(),
            (Step::Look, Answer::Value(Some(_))) if self.is_survey => self.fail(MOVED.to_owned()),
            (Step::Look, Answer::Value(Some(_))) => self.stage = Step::Write,
            (Step::Write, Answer::Done) => self.stage = Step::Check,
            (Step::Check, Answer::Value(Some(present))) if present == *value => {
                self.moved.push(self.at);
                self.there();
            }
            (Step::Check, Answer::Value(Some(present))) => {
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
        if self.reached[self.at] { self.step() } else { self.stage = Step::Reached }
    }

    fn fail(&mut self, why: String) {
        if self.troubles.iter().all(|(index, _)| *index != self.at) {
            self.troubles.push((self.at, why));
        }
        if self.is_stubborn { self.step() } else { self.stage = Step::Finished }
    }

    /// To the next setting, or to the next round.
    fn step(&mut self) {
        (self.at, self.stage) = (self.at + 1, Step::Look);
        if self.at < self.targets.len() {
            return;
        }
        let moved = std::mem::take(&mut self.moved);
        let is_last = moved.is_empty();
        if is_last || self.round == ROUNDS {
            let moved = moved.into_iter().filter(|_| !is_last);
            self.troubles.extend(moved.map(|index| (index, MOVED.to_owned())));
            // What refused its value may have moved others that were looked at before.
            let is_sure = self.troubles.is_empty() || self.is_survey || !self.is_stubborn;
            (self.at, self.is_survey) = (0, true);
            self.stage = if is_sure { Step::Finished } else { Step::Look };
        } else {
            (self.round, self.at) = (self.round + 1, 0);
            // A setting that could not be set is tried again: another one may have prevented it.
            self.troubles.clear();
        }
    }
}
