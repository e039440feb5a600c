//! What a journal holds is taken back.

use ropewalk_terms::flaws::{Flaw, is_planted};
use schemars::JsonSchema;
use serde::Serialize;

use super::bringing::{Bringing, Next, Target, Trouble};
use super::history::{Entry, Held, History};
use super::{Action, Answer, Machine};
use crate::{Identity, Setting};

/// What is done with settings that somebody else has changed since.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Foreign {
    /// They are left as they are, and the journal stays open for them.
    #[default]
    Leave,
    /// They get the values from before all the same.
    Overwrite,
    /// They are left as they are, and the journal is put away.
    Keep,
}

/// What becomes of a setting.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "fate")]
pub enum Fate {
    /// The setting was restored.
    BroughtBack {
        /// The value that it had before.
        from: String,
    },
    /// The setting is already what it was: after a restart of the machine, or where a step was never written.
    /// Interrupts of an earlier start count as such, since their numbers mean others now.
    AlreadyBack,
    /// The setting was changed by someone else since and is left as it is.
    Foreign {
        /// The value that it has.
        present: String,
    },
    /// The machine does not have the setting now. Until the machine is started again it may come back, with what was
    /// put there, so that the journal stays.
    Gone,
    /// The setting was that of a thread that has ended: nothing is left to be brought back.
    Ended,
    /// The setting could not be read.
    Unreadable {
        /// What happened.
        why: String,
    },
}

/// Takes back what a journal holds, in reverse order.
///
/// Each setting is compared with what the journal says: what was put there is ours, and is brought back; what was there
/// before needs nothing; anything else somebody has put there since. Where an application or an undoing was killed
/// half-way in this same run of the kernel, a third value may be the kernel's answer to ours, or what another of our
/// settings made of it: it is brought back, too.
pub struct Undoing {
    history: History,
    identity: Identity,
    time: String,
    foreign: Foreign,
    fates: Vec<Fate>,
    /// What each setting shall have at the end, whether it needs to be written or not: another one may move it.
    values: Vec<Option<String>>,
    stage: Stage,
    troubles: Vec<Trouble>,
    fault: Option<String>,
    is_put_away: bool,
}

enum Stage {
    Judging,
    Journalling,
    Bringing(Bringing),
    /// The setting of this index was gone: what came back may have brought it back, too. And whether one has come so.
    LookingAgain(usize, bool),
    /// All is taken back but for what somebody else has changed, what is gone, and what is stuck.
    Leaving,
    Ending,
    PuttingAway,
    Finished,
}

/// What an undoing has come to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Undone {
    /// What became of each setting, in the order of the journal.
    pub fates: Vec<(Setting, Fate)>,
    /// Settings that could not be brought back.
    pub troubles: Vec<Trouble>,
    /// What went wrong with the journal.
    pub fault: Option<String>,
    /// Whether nothing is left to be taken back.
    pub is_put_away: bool,
}

impl Undoing {
    /// Takes back what a journal says of this machine, at a time (as text, for the journal).
    pub fn new(history: History, identity: &Identity, time: &str, foreign: Foreign) -> Self {
        let (identity, time) = (identity.clone(), time.to_owned());
        let stage = if history.held.is_empty() { Stage::Ending } else { Stage::Judging };
        let (fates, values, troubles) = (Vec::new(), Vec::new(), Vec::new());
        Self { history, identity, time, foreign, fates, values, stage, troubles, fault: None, is_put_away: false }
    }

    /// What becomes of a setting by what was read, and the value that it has when all is done.
    fn judge(&self, held: &Held, answer: Answer) -> (Fate, Option<String>) {
        match answer {
            _ if held.is_of_another(&self.identity.boot) && !held.setting.may_end() => (Fate::AlreadyBack, None),
            _ if held.is_of_another(&self.identity.boot) => (Fate::Ended, None),
            Answer::Value(Some(present)) => {
                let (fate, value) = self.judge_value(held, present);
                (fate, Some(value))
            }
            Answer::Refused(why) => (Fate::Unreadable { why }, None),
            _ if held.setting.may_end() => (Fate::Ended, None),
            _ => (Fate::Gone, None),
        }
    }

    fn judge_value(&self, held: &Held, present: String) -> (Fate, String) {
        let is_untouched = held.put.iter().all(|put| *put == held.old);
        let is_half_way = held.is_half_way(&self.identity.boot);
        if present == held.old || is_untouched && !is_half_way {
            (Fate::AlreadyBack, present)
        } else if is_half_way || held.put.contains(&present) || self.foreign == Foreign::Overwrite {
            (Fate::BroughtBack { from: present }, held.old.clone())
        } else {
            (Fate::Foreign { present: present.clone() }, present)
        }
    }

    fn intent(&self) -> Entry {
        let held = self.history.held.iter().zip(&self.values);
        let is_left = |(held, value): &(&Held, &Option<String>)| value.as_ref().is_some_and(|value| *value != held.old);
        let left = held.filter(is_left).map(|(held, _)| held.setting.clone()).collect();
        Entry::Undoing { boot: self.identity.boot.clone(), time: self.time.clone(), left }
    }

    fn bring_back(&mut self) {
        let values = self.history.held.iter().zip(&self.values).rev();
        let target = |(held, value): (&Held, &Option<String>)| {
            Some(Target { setting: held.setting.clone(), value: value.clone()? })
        };
        self.stage = Stage::Bringing(Bringing::new(values.filter_map(target).collect(), true));
    }

    /// What could not be brought back, and what could not be looked at.
    fn stuck(&self) -> Vec<Setting> {
        let fates = self.history.held.iter().zip(&self.fates);
        let unreadable =
            fates.filter(|(_, fate)| matches!(fate, Fate::Unreadable { .. })).map(|(held, _)| &held.setting);
        unreadable.chain(self.troubles.iter().map(|trouble| &trouble.setting)).cloned().collect()
    }

    /// When everything that is there is brought back: the first setting from this index on that was gone is looked at.
    fn look_again(&mut self, from: usize, has_come: bool) {
        let gone = (from..self.fates.len()).find(|&index| self.fates[index] == Fate::Gone);
        match gone {
            Some(index) => self.stage = Stage::LookingAgain(index, has_come),
            None if has_come => self.bring_back(),
            None => self.end(),
        }
    }

    fn end(&mut self) {
        let is_open = |(held, fate): (&Held, &Fate)| match fate {
            Fate::Foreign { .. } => self.foreign != Foreign::Keep,
            Fate::Gone => self.foreign != Foreign::Keep && held.put_in == self.identity.boot,
            _ => false,
        };
        let is_done = self.stuck().is_empty() || is_planted(Flaw::JournalPutAwayTooEarly);
        let is_left = self.history.held.iter().zip(&self.fates).any(is_open);
        self.stage = if is_left || !is_done { Stage::Leaving } else { Stage::Ending };
    }
}

impl Machine for Undoing {
    type Outcome = Undone;

    fn poll(&mut self) -> Option<Action> {
        while let Stage::Bringing(bringing) = &mut self.stage {
            match bringing.poll() {
                Next::Do(action) => return Some(action),
                Next::Reached(_) => {}
                Next::Finished => {
                    self.troubles = bringing.troubles();
                    self.look_again(0, false);
                }
            }
        }
        match &self.stage {
            Stage::Judging => Some(Action::Read(self.history.held[self.fates.len()].setting.clone())),
            Stage::Journalling => Some(Action::Journal(vec![self.intent()])),
            Stage::LookingAgain(index, _) => Some(Action::Read(self.history.held[*index].setting.clone())),
            Stage::Leaving => Some(Action::Journal(vec![Entry::Undone { stuck: self.stuck() }])),
            Stage::Ending => Some(Action::Journal(vec![Entry::TakenBack { time: self.time.clone() }])),
            Stage::PuttingAway => Some(Action::PutAway),
            Stage::Bringing(_) | Stage::Finished => None,
        }
    }

    fn on_answer(&mut self, answer: Answer) {
        match &mut self.stage {
            Stage::Judging => {
                let (fate, value) = self.judge(&self.history.held[self.fates.len()], answer);
                self.fates.push(fate);
                self.values.push(value);
                if self.fates.len() == self.history.held.len() {
                    self.stage = Stage::Journalling;
                }
            }
            Stage::Journalling => match answer {
                Answer::Refused(why) => (self.fault, self.stage) = (Some(why), Stage::Finished),
                _ => self.bring_back(),
            },
            Stage::Bringing(bringing) => bringing.on_answer(answer),
            &mut Stage::LookingAgain(index, has_come) => {
                (self.fates[index], self.values[index]) = self.judge(&self.history.held[index], answer);
                self.look_again(index + 1, has_come || self.values[index].is_some());
            }
            Stage::Leaving => {
                self.stage = Stage::Finished;
                if let Answer::Refused(why) = answer {
                    self.fault = Some(why);
                }
            }
            Stage::Ending => match answer {
                Answer::Refused(why) => (self.fault, self.stage) = (Some(why), Stage::Finished),
                _ => self.stage = Stage::PuttingAway,
            },
            Stage::PuttingAway => {
                self.stage = Stage::Finished;
                match answer {
                    Answer::Refused(why) => self.fault = Some(why),
                    _ => self.is_put_away = true,
                }
            }
            Stage::Finished => {}
        }
    }

    fn outcome(self) -> Undone {
        let settings = self.history.held.into_iter().map(|held| held.setting);
        let (troubles, fault, is_put_away) = (self.troubles, self.fault, self.is_put_away);
        Undone { fates: settings.zip(self.fates).collect(), troubles, fault, is_put_away }
    }
}
