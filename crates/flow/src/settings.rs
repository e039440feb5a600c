//! Parameters that were changed while a run goes on, as whoever has to tell them again keeps them.

use crate::messages::Setting;
use arrayvec::ArrayVec;

/// More parameters than there are, with a prescale for each of the most streams.
const MOST: usize = 128;

/// The last value of each, in the order in which they were changed first. Beyond what there is nothing is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(ArrayVec<Setting, MOST>);

impl Settings {
    /// Keeps a value.
    pub(crate) fn keep(&mut self, setting: Setting) {
        let same = |known: &&mut Setting| (known.parameter, known.of) == (setting.parameter, setting.of);
        match self.0.iter_mut().find(same) {
            Some(known) => *known = setting,
            // A system has fewer.
            None => _ = self.0.try_push(setting),
        }
    }

    /// Keeps a value unless there is one already.
    pub(crate) fn keep_unless_known(&mut self, setting: Setting) -> bool {
        let same = |known: &&Setting| (known.parameter, known.of) == (setting.parameter, setting.of);
        let is_new = !self.0.iter().any(|known| same(&known));
        if is_new {
            self.keep(setting);
        }
        is_new
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = Setting> + '_ {
        self.0.iter().copied()
    }
}
