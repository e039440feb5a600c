//! A host with settings that do not always do what they are told.

use ropewalk_tune::Setting;

/// How a setting behaves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Habit {
    /// A value that it refuses.
    pub refuses: Option<u8>,
    /// A value that becomes another one.
    pub rounds: Option<(u8, u8)>,
    /// A later setting that gets its value, too.
    pub moves: Option<usize>,
    /// A later setting that is never beyond it.
    pub limits: Option<usize>,
}

/// A host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    habits: Vec<Habit>,
    /// The present value of each setting.
    pub values: Vec<u8>,
}

impl Host {
    /// A host on which these values were written, one after the other: what it has it can have.
    pub fn new(habits: Vec<Habit>, values: &[u8]) -> Self {
        let mut host = Self { values: vec![0; habits.len()], habits };
        (0..values.len()).for_each(|index| host.put(index, values[index]));
        host
    }

    /// The name of a setting.
    pub fn setting(index: usize) -> Setting {
        Setting::sysctl(&format!("host.setting{index}"))
    }

    /// Which setting it is.
    pub fn index(&self, setting: &Setting) -> Option<usize> {
        (0..self.values.len()).find(|&index| Self::setting(index) == *setting)
    }

    /// Writes a value; whether it was taken.
    pub fn write(&mut self, index: usize, value: &str) -> bool {
        let value = value.parse().ok().filter(|&value| self.habits[index].refuses != Some(value));
        value.map(|value| self.put(index, value)).is_some()
    }

    fn put(&mut self, index: usize, value: u8) {
        let Habit { rounds, moves, limits, .. } = self.habits[index];
        let value = rounds.filter(|(from, _)| *from == value).map_or(value, |(_, to)| to);
        self.values[index] = value;
        if let Some(other) = moves {
            self.values[other] = value;
        }
        if let Some(other) = limits {
            self.values[other] = self.values[other].min(value);
        }
    }
}
