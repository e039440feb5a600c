//! What a journal says ([`History`]), the values from before and what was put in their place; and how it is taken back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::application::{Bringing, Next, Target, Trouble};
use super::{Action, Answer, Machine};
use crate::{Identity, Setting};

/// What to do with settings that another program has changed since.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Foreign {
    /// Leave them as they are, and keep the journal open for them.
    #[default]
    Leave,
    /// They get the values from before all the same.
    Overwrite,
    /// Leave them as they are, and close the journal.
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
    /// The setting already has its old value: after a restart of the machine, or if a step was never written.
    /// Interrupts of an earlier start count as such, because their numbers have changed.
    AlreadyBack,
    /// Another program has changed the setting since; it is left as it is.
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

/// Undoes the changes in a journal, in reverse order.
///
/// Each setting is compared with the journal: our value is replaced by the old one; the old value needs no change; any
/// other value was set by another program since. If an application or an undo was killed half-way since the kernel
/// started, a third value may be the kernel's answer to ours, or the effect of another of our settings: it is restored
/// too.
pub struct Undoing {
    history: History,
    identity: Identity,
    time: String,
    foreign: Foreign,
    fates: Vec<Fate>,
    /// The final value of each setting, whether it must be written or not: another one may change it.
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
    /// The setting of this index was missing: a restored one may have restored it too. And whether one has been
    /// restored.
    LookingAgain(usize, bool),
    /// All is taken back except what another program has changed, what is gone, and what is stuck.
    Leaving,
    Ending,
    PuttingAway,
    Finished,
}

/// The result of an undo.
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
        let is_done = self.stuck().is_empty();
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

/// A line of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "entry")]
pub enum Entry {
    /// The first line: of which machine it is.
    Began {
        /// The name and version of this format: [`Entry::SCHEMA`].
        schema: String,
        /// The host's name.
        host: String,
        /// What /etc/machine-id says.
        machine: String,
        /// What the kernel drew when it started.
        boot: String,
        /// When, in UTC.
        time: String,
    },
    /// Settings are about to be changed; their steps follow.
    Applying {
        /// What the kernel drew when it started.
        boot: String,
        /// The network namespace; empty if unknown.
        #[serde(default)]
        network: String,
        /// When, in UTC.
        time: String,
        /// The number of steps that follow. If one is missing, nothing was changed.
        steps: usize,
        /// Settings of earlier plans that another program has changed since.
        left: Vec<Setting>,
    },
    /// A setting will be changed. On the disk with all others before anything is written.
    Step {
        /// Which.
        setting: Setting,
        /// What it shall be again, in its normal form: its value before any of this journal, or the one that the
        /// machine was started with since, unless this program had set that.
        old: String,
        /// What it shall be.
        new: String,
        /// The rule that asks for it.
        rule: String,
    },
    /// A setting was changed, and read again.
    Done {
        /// Which.
        setting: Setting,
    },
    /// Everything since `Applying` is as it shall be.
    Applied,
    /// Everything since `Applying` is as it was before that but for what is stuck.
    RolledBack {
        /// Settings that could not be brought back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stuck: Vec<Setting>,
    },
    /// Settings are about to be taken back.
    Undoing {
        /// What the kernel drew when it started.
        boot: String,
        /// When, in UTC.
        time: String,
        /// Settings that another program has changed since, and that are left as they are.
        left: Vec<Setting>,
    },
    /// Everything since `Undoing` is taken back but for what is left and what is stuck.
    Undone {
        /// Settings that could not be brought back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stuck: Vec<Setting>,
    },
    /// Everything is as it was before the first line.
    TakenBack {
        /// When, in UTC.
        time: String,
    },
}

impl Entry {
    /// The name and version of the journal's format.
    pub const SCHEMA: &str = "ropewalk-tune-journal-1";

    /// The first line.
    pub(crate) fn began(identity: &Identity, time: &str) -> Self {
        let Identity { host, machine, boot, .. } = identity.clone();
        Self::Began { schema: Self::SCHEMA.to_owned(), host, machine, boot, time: time.to_owned() }
    }
}

/// A setting that a journal holds the old value of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Held {
    /// Which.
    pub setting: Setting,
    /// What it shall be again (see [`Entry::Step`]).
    pub old: String,
    /// What was put in its place, one after the other.
    pub put: Vec<String>,
    /// Whether the last of these was read again after it was written.
    pub is_done: bool,
    /// The rule that asked for the last one.
    pub rule: String,
    /// Whether another program had changed it when others were changed or taken back.
    pub is_left: bool,
    /// The kernel's start in which it, or others beside it, were last changed or taken back; empty if it was looked at
    /// since.
    pub boot: String,
    /// The kernel's start in which the last value was put there.
    pub put_in: String,
    /// The kernel's start in which a process was killed half-way with it, or could not bring it back.
    pub half_way: Option<String>,
}

/// What a journal says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct History {
    /// The machine when the journal was begun; the kernel's start and the network namespace when something was last
    /// applied.
    pub identity: Identity,
    /// When it was begun, in UTC.
    pub time: String,
    /// The settings, in the order in which they were first changed.
    pub held: Vec<Held>,
    /// Whether everything is as it was before the first line.
    pub is_taken_back: bool,
    /// What was known of the settings when the present application began.
    #[serde(skip)]
    earlier: Vec<Held>,
    /// The settings that the present application has a step for.
    #[serde(skip)]
    stepped: Vec<Setting>,
    /// An application that does not have all its steps yet.
    #[serde(skip)]
    begun: Option<Begun>,
}

/// An application that does not have all its steps yet.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Begun {
    boot: String,
    network: String,
    missing: usize,
    left: Vec<Setting>,
    steps: Vec<Held>,
}

impl History {
    /// Reads entries in their order. `None` if the first one is not the beginning of this format.
    pub fn of(entries: &[Entry]) -> Option<Self> {
        let (Entry::Began { schema, host, machine, boot, time }, rest) = entries.split_first()? else { return None };
        if schema != Entry::SCHEMA {
            return None;
        }
        let (host, machine, boot) = (host.clone(), machine.clone(), boot.clone());
        let identity = Identity { host, machine, boot, network: String::new() };
        let mut history = Self { identity, time: time.clone(), ..Self::default() };
        rest.iter().for_each(|entry| history.take(entry));
        Some(history)
    }

    fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Began { .. } => {}
            Entry::Applying { boot, network, steps, left, .. } => {
                let (boot, network, left) = (boot.clone(), network.clone(), left.clone());
                self.begun = Some(Begun { boot, network, missing: *steps, left, steps: Vec::new() });
                self.begin_if_whole();
            }
            Entry::Step { setting, old, new, rule } => {
                let Some(begun) = &mut self.begun else { return };
                let (setting, old, rule) = (setting.clone(), old.clone(), rule.clone());
                let (put, boot) = (vec![new.clone()], begun.boot.clone());
                let (put_in, half_way) = (boot.clone(), Some(boot.clone()));
                begun.steps.push(Held {
                    setting,
                    old,
                    put,
                    is_done: false,
                    rule,
                    is_left: false,
                    boot,
                    put_in,
                    half_way,
                });
                begun.missing = begun.missing.saturating_sub(1);
                self.begin_if_whole();
            }
            Entry::Done { setting } => self.held(setting).into_iter().for_each(|held| held.is_done = true),
            Entry::Applied => self.applied(),
            Entry::RolledBack { stuck } => self.rolled_back(stuck),
            Entry::Undoing { boot, left, .. } => self.touch(boot, left),
            Entry::Undone { stuck } => {
                let is_back = |held: &&mut Held| !stuck.contains(&held.setting);
                self.held.iter_mut().filter(is_back).for_each(Held::settle);
            }
            Entry::TakenBack { .. } => self.is_taken_back = true,
        }
    }

    /// A setting that was half-way after a kill stays so until it is read again.
    fn applied(&mut self) {
        for held in &mut self.held {
            let earlier = self.earlier.iter().find(|earlier| earlier.setting == held.setting);
            let is_stepped = self.stepped.contains(&held.setting);
            held.half_way = earlier.filter(|_| !is_stepped).and_then(|earlier| earlier.half_way.clone());
        }
    }

    /// Records the values of restored settings as known before. Stuck settings are half-way.
    fn rolled_back(&mut self, stuck: &[Setting]) {
        for held in self.held.iter_mut().filter(|held| !stuck.contains(&held.setting)) {
            let earlier = self.earlier.iter().find(|earlier| earlier.setting == held.setting);
            held.half_way = earlier.and_then(|earlier| earlier.half_way.clone());
            if self.stepped.contains(&held.setting) {
                held.is_left = earlier.is_some_and(|earlier| earlier.is_left);
            }
        }
    }

    fn held(&mut self, setting: &Setting) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.setting == *setting)
    }

    /// An application begins with the last of its steps: before that nothing was written.
    fn begin_if_whole(&mut self) {
        let Some(begun) = self.begun.take_if(|begun| begun.missing == 0) else { return };
        self.earlier = self.held.clone();
        self.stepped = begun.steps.iter().map(|step| step.setting.clone()).collect();
        self.touch(&begun.boot, &begun.left);
        begun.steps.into_iter().for_each(|step| self.hold(step));
        (self.identity.boot, self.identity.network) = (begun.boot, begun.network);
    }

    /// From now on any setting may change; those in `left` belong to other programs.
    fn touch(&mut self, boot: &str, left: &[Setting]) {
        for held in &mut self.held {
            held.is_left = left.contains(&held.setting);
            boot.clone_into(&mut held.boot);
            held.half_way = Some(boot.to_owned());
        }
    }

    fn hold(&mut self, step: Held) {
        let Some(held) = self.held(&step.setting) else { return self.held.push(step) };
        if held.old != step.old {
            (held.old, held.put) = (step.old, Vec::new());
        }
        held.put.extend(step.put);
        (held.rule, held.is_done, held.is_left) = (step.rule, false, false);
        (held.put_in, held.half_way) = (step.put_in, step.half_way);
    }

    /// Whether something was begun and not ended: a process was killed half-way, or could not bring everything back.
    pub fn is_unfinished(&self) -> bool {
        self.held.iter().any(|held| held.half_way.is_some())
    }

    /// What a setting shall be again, if the journal holds it.
    pub fn old(&self, setting: &Setting) -> Option<&str> {
        self.held.iter().find(|held| held.setting == *setting).map(|held| held.old.as_str())
    }

    /// What a setting shall be again that has this value now, in this start of the kernel, right before it is changed.
    pub(super) fn old_of<'a>(&'a self, setting: &Setting, present: &'a str, boot: &str) -> &'a str {
        let held = self.held.iter().find(|held| held.setting == *setting);
        let is_old = |held: &&Held| !held.is_started_with(present, boot);
        held.filter(is_old).map_or(present, |held| held.old.as_str())
    }
}

impl Held {
    /// It was looked at when all others were back: what it has later on, none of ours has moved it there.
    fn settle(&mut self) {
        self.half_way = None;
        self.boot.clear();
    }

    /// Whether a process was killed half-way with it since the kernel started: then any value may be ours.
    pub(super) fn is_half_way(&self, boot: &str) -> bool {
        let is_since = self.half_way.as_deref() == Some(boot);
        self.half_way.is_some() && is_since && !self.is_left
    }

    /// Whether the present value is the machine's own since its start: neither our change of this setting nor of
    /// another one set it.
    fn is_started_with(&self, present: &str, boot: &str) -> bool {
        let is_ours = present == self.old || self.put.iter().any(|put| put == present);
        let is_untouched = self.put_in != boot && (self.boot != boot || self.is_left);
        self.is_of_another(boot) || is_untouched && !is_ours
    }

    /// Whether its name meant something else when it was put there than in this start of the kernel: interrupts are
    /// numbered anew at each.
    pub fn is_of_another(&self, boot: &str) -> bool {
        self.put_in != boot && self.setting.is_numbered_anew()
    }
}
