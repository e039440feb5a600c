//! What a journal says: the values from before, and what was put in their place.

use serde::{Deserialize, Serialize};

use crate::{Identity, Setting};

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
        /// When, in UTC.
        time: String,
    },
    /// A setting will be changed. On the disk before anything is written.
    Step {
        /// Which.
        setting: Setting,
        /// What it was before any of this journal, in its normal form.
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
    /// Everything since `Applying` is as it was before that.
    RolledBack,
    /// Settings are about to be taken back.
    Undoing {
        /// What the kernel drew when it started.
        boot: String,
        /// When, in UTC.
        time: String,
        /// Settings that somebody else has changed since, and that are left as they are.
        left: Vec<Setting>,
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
        let Identity { host, machine, boot } = identity.clone();
        Self::Began { schema: Self::SCHEMA.to_owned(), host, machine, boot, time: time.to_owned() }
    }
}

/// A setting that a journal holds the old value of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Held {
    /// Which.
    pub setting: Setting,
    /// What it was before any of it.
    pub old: String,
    /// What was put in its place, one after the other.
    pub put: Vec<String>,
    /// Whether the last of these was read again after it was written.
    pub is_done: bool,
    /// The rule that asked for the last one.
    pub rule: String,
    /// Whether somebody else had changed it when the others were taken back.
    pub is_left: bool,
}

/// What a journal says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct History {
    /// The machine, when the journal was begun.
    pub identity: Identity,
    /// When it was begun, in UTC.
    pub time: String,
    /// The settings, in the order in which they were first changed.
    pub held: Vec<Held>,
    /// The kernel's start in which something was begun and not ended: what was killed half-way.
    pub unfinished: Option<String>,
    /// Whether everything is as it was before the first line.
    pub is_taken_back: bool,
    /// What was unfinished when the present application began.
    #[serde(skip)]
    earlier: Option<String>,
    /// The settings that the present application has a step for.
    #[serde(skip)]
    stepped: Vec<Setting>,
}

impl History {
    /// Reads entries in their order. None where the first one is not the beginning of this format.
    pub fn of(entries: &[Entry]) -> Option<Self> {
        let (Entry::Began { schema, host, machine, boot, time }, rest) = entries.split_first()? else { return None };
        if schema != Entry::SCHEMA {
            return None;
        }
        let identity = Identity { host: host.clone(), machine: machine.clone(), boot: boot.clone() };
        let mut history = Self { identity, time: time.clone(), ..Self::default() };
        rest.iter().for_each(|entry| history.take(entry));
        Some(history)
    }

    fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Began { .. } => {}
            Entry::Applying { boot, .. } => {
                self.earlier = self.unfinished.replace(boot.clone());
                self.stepped.clear();
            }
            Entry::Step { setting, old, new, rule } => self.hold(setting, old, new, rule),
            Entry::Done { setting } => self.held(setting).into_iter().for_each(|held| held.is_done = true),
            // What was killed half-way stays so where nobody has looked at its settings again.
            Entry::Applied if self.held.iter().all(|held| self.stepped.contains(&held.setting)) => {
                self.unfinished = None
            }
            Entry::Applied | Entry::RolledBack => self.unfinished = self.earlier.clone(),
            Entry::Undoing { boot, left, .. } => {
                self.unfinished = Some(boot.clone());
                self.held.iter_mut().for_each(|held| held.is_left = left.contains(&held.setting));
            }
            Entry::TakenBack { .. } => (self.unfinished, self.is_taken_back) = (None, true),
        }
    }

    fn held(&mut self, setting: &Setting) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.setting == *setting)
    }

    fn hold(&mut self, setting: &Setting, old: &str, new: &str, rule: &str) {
        let (new, rule) = (new.to_owned(), rule.to_owned());
        self.stepped.push(setting.clone());
        match self.held(setting) {
            Some(held) => {
                held.put.push(new);
                (held.rule, held.is_done, held.is_left) = (rule, false, false);
            }
            None => {
                let (setting, old) = (setting.clone(), old.to_owned());
                self.held.push(Held { setting, old, put: vec![new], is_done: false, rule, is_left: false });
            }
        }
    }

    /// What a setting was before any of it, if the journal holds it.
    pub fn old(&self, setting: &Setting) -> Option<&str> {
        self.held.iter().find(|held| held.setting == *setting).map(|held| held.old.as_str())
    }
}
