//! What came of the events in files.

/// Events, and how long they are.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// How many.
    pub events: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

impl Counts {
    /// Adds others.
    pub const fn add(&mut self, other: Self) {
        self.events += other.events;
        self.bytes += other.bytes;
    }
}

/// What a filter unit made of one file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileAccount {
    /// Events that it looked at: all that are in the file.
    pub processed: u64,
    /// What went to each stream, by its index. An event may go to several, and to none.
    pub streams: Vec<Counts>,
}

/// What became of a lumisection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LumisectionAccount {
    /// Files of events.
    pub files: u64,
    /// Events that filter units looked at.
    pub processed: u64,
    /// Events in files that were set aside.
    pub set_aside: u64,
    /// What went to each stream.
    pub streams: Vec<Counts>,
}

impl LumisectionAccount {
    /// An account of so many streams.
    pub fn new(streams: usize) -> Self {
        Self { streams: vec![Counts::default(); streams], ..Self::default() }
    }

    /// Adds what came of a file.
    pub fn add_file(&mut self, file: &FileAccount) {
        self.files += 1;
        self.processed += file.processed;
        self.streams.iter_mut().zip(&file.streams).for_each(|(sum, &counts)| sum.add(counts));
    }

    /// Adds another lumisection's.
    pub fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.processed += other.processed;
        self.set_aside += other.set_aside;
        self.streams.iter_mut().zip(&other.streams).for_each(|(sum, &counts)| sum.add(counts));
    }
}
