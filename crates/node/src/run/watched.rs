//! What there is to tell of functions of others, in this process or in theirs.

use ropewalk_plugin::Journal;

/// A splitter or a filter whose journal is read.
#[derive(Debug)]
pub(super) struct Watched {
    /// Whose it is and what it is: what is told begins so.
    name: String,
    journal: Journal,
    /// Sorts of ends that were told.
    told: usize,
}

impl Watched {
    /// Nothing was told yet.
    pub(super) const fn new(name: String, journal: Journal) -> Self {
        Self { name, journal, told: 0 }
    }

    /// What went wrong for the first time since it was asked last.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        let ends = self.journal.ends();
        let news = ends[self.told..].iter().map(|(end, _)| format!("{}: {end}", self.name)).collect();
        self.told = ends.len();
        news
    }

    /// What went wrong in the run, and how often.
    pub(super) fn remarks(&self) -> Vec<String> {
        let times = |times| if times == 1 { "once".to_owned() } else { format!("{times} times") };
        let of = |what: &str, count| format!("{}: {what} ({})", self.name, times(count));
        let remarks = self.journal.ends().into_iter().map(|(end, count)| of(&end.to_string(), count));
        let beyond = Some(self.journal.beyond()).filter(|&beyond| beyond > 0);
        remarks.chain(beyond.map(|beyond| of("something else", beyond))).collect()
    }
}
