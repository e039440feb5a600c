//! What there is to tell of functions of others, in this process, in theirs, or on other machines.

use crate::drive::RemoteNotes;
use ropewalk_plugin::Journal;

/// A splitter or a filter whose journal is read.
#[derive(Debug)]
pub(super) struct Watched {
    /// Whose it is and what it is: what is told begins so.
    name: String,
    tells: Tells,
    /// Sorts of ends that were told.
    told: usize,
}

/// Who tells what went wrong.
#[derive(Debug)]
enum Tells {
    Journal(Journal),
    Remote(RemoteNotes),
}

impl Watched {
    /// Nothing was told yet.
    pub(super) const fn new(name: String, journal: Journal) -> Self {
        Self { name, tells: Tells::Journal(journal), told: 0 }
    }

    /// Of a filter unit on another machine.
    pub(super) const fn remote(name: String, notes: RemoteNotes) -> Self {
        Self { name, tells: Tells::Remote(notes), told: 0 }
    }

    /// What went wrong, each sort once.
    fn all(&self) -> Vec<String> {
        match &self.tells {
            Tells::Journal(journal) => journal.ends().into_iter().map(|(end, _)| end.to_string()).collect(),
            Tells::Remote(notes) => notes.all(),
        }
    }

    /// What went wrong for the first time since it was asked last.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        let all = self.all();
        let news = all[self.told..].iter().map(|text| format!("{}: {text}", self.name)).collect();
        self.told = all.len();
        news
    }

    /// What went wrong in the run, and how often.
    pub(super) fn remarks(&self) -> Vec<String> {
        let times = |times| if times == 1 { "once".to_owned() } else { format!("{times} times") };
        let of = |what: &str, count| format!("{}: {what} ({})", self.name, times(count));
        match &self.tells {
            Tells::Remote(notes) => notes.all().iter().map(|text| format!("{}: {text}", self.name)).collect(),
            Tells::Journal(journal) => {
                let remarks = journal.ends().into_iter().map(|(end, count)| of(&end.to_string(), count));
                let beyond = Some(journal.beyond()).filter(|&beyond| beyond > 0);
                remarks.chain(beyond.map(|beyond| of("something else", beyond))).collect()
            }
        }
    }
}
