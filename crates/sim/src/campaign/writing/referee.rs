//! What must hold of the names that appear, and of what stands behind them.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_node::file_based::documents::{EndOfLumisection, EndOfRun, Numbers, RawFile, parse_numbers};
use ropewalk_wire::frd::{Event, FILE_HEADER_BYTES, FileHeader, FileKind, FileName};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where the files of the run are.
pub(super) const DIRECTORY: &str = "/ram/run000001";

/// The data of an event, of 8 to 71 bytes.
pub(super) fn data_of(seed: u64, number: u64) -> Vec<u8> {
    let length = 8 + mixed(seed, number, 1) % 64;
    (0..length).map(|place| mixed(seed, number, 2 + place) as u8).collect()
}

/// Sees what filter units would see.
#[derive(Debug, Default)]
pub(super) struct Referee {
    seed: u64,
    seen: Vec<PathBuf>,
    /// The files of an event, by its number.
    files: BTreeMap<u64, Vec<FileName>>,
    /// What was written in each lumisection.
    written: BTreeMap<u32, EndOfLumisection>,
    closed: BTreeSet<u32>,
    is_over: bool,
}

impl Referee {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Whether an event is in a file that has its name.
    pub(super) fn has(&self, number: u64) -> bool {
        self.files.contains_key(&number)
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Looks at names that are new.
    pub(super) fn look(&mut self, medium: &SimulatedStorage) -> Result<(), Broken> {
        let mut paths = medium.paths();
        paths.retain(|path| path.parent() == Some(Path::new(DIRECTORY)));
        if paths == self.seen {
            return Ok(());
        }
        let new: Vec<FileName> =
            paths.iter().filter(|path| !self.seen.contains(path)).filter_map(|path| name_of(path)).collect();
        // Events first: an end that appears together with a file comes behind it.
        let (raw, others): (Vec<FileName>, Vec<_>) =
            new.into_iter().partition(|name| matches!(name.kind, FileKind::Raw { .. }));
        raw.into_iter().try_for_each(|name| self.file(medium, name))?;
        for name in others {
            match name.kind {
                FileKind::EndOfLumisection => self.end_of_lumisection(medium, name)?,
                FileKind::EndOfRun => self.end_of_run(medium, name)?,
                FileKind::Account { .. } | FileKind::Raw { .. } => {}
            }
        }
        self.seen = paths;
        Ok(())
    }

    /// A file of events: whole, of one lumisection, and with its document.
    fn file(&mut self, medium: &SimulatedStorage, name: FileName) -> Result<(), Broken> {
        let lumisection = name.lumisection;
        let FileKind::Raw { index } = name.kind else { return Ok(()) };
        let document = FileName { kind: FileKind::Account { index }, ..name };
        let account: RawFile = numbers(medium, document)?;
        Broken::unless(!self.closed.contains(&lumisection), Checker::Order, || {
            format!("{name} came behind the end of its lumisection")
        })?;
        let bytes = read(medium, name)?;
        let header = bytes.first_chunk().and_then(|first| FileHeader::parse(first).ok());
        let (mut at, mut events) = (FILE_HEADER_BYTES, 0);
        while at < bytes.len() {
            let event = Event::parse(&bytes[at..]);
            let event = event.map_err(|error| Broken::new(Checker::Content, format!("{name} at {at}: {error}")))?;
            let (said, number) = (event.header(), event.header().event);
            let is_right = event.is_right() && event.data() == data_of(self.seed, number);
            Broken::unless(is_right && said.lumisection == lumisection, Checker::Content, || {
                format!("{name} at {at}: event {number} of lumisection {} is not as it was", said.lumisection)
            })?;
            self.files.entry(number).or_default().push(name);
            (at, events) = (at + event.bytes().len(), events + 1);
        }
        let says = header.map(|header| (u64::from(header.events), header.file_bytes));
        let holds = (events, bytes.len() as u64);
        Broken::unless(says == Some(holds) && holds == (account.events, account.bytes), Checker::Content, || {
            format!("{name} holds {holds:?}, its header says {says:?} and its document {account:?}")
        })?;
        let sum = self.written.entry(lumisection).or_default();
        (sum.events, sum.files, sum.bytes) = (sum.events + events, sum.files + 1, sum.bytes + bytes.len() as u64);
        Ok(())
    }

    /// The end of a lumisection says what lies there.
    fn end_of_lumisection(&mut self, medium: &SimulatedStorage, name: FileName) -> Result<(), Broken> {
        let told: EndOfLumisection = numbers(medium, name)?;
        let sum = self.written.get(&name.lumisection).copied().unwrap_or_default();
        let holds = (sum.events, sum.files, sum.bytes);
        Broken::unless((told.events, told.files, told.bytes) == holds, Checker::Ledger, || {
            format!("{name} says {told:?}, and there is {holds:?}")
        })?;
        self.closed.insert(name.lumisection);
        Ok(())
    }

    /// The end of the run says what lies there, and comes behind all others.
    fn end_of_run(&mut self, medium: &SimulatedStorage, name: FileName) -> Result<(), Broken> {
        let told: EndOfRun = numbers(medium, name)?;
        let open: Vec<_> = self.written.keys().filter(|lumisection| !self.closed.contains(lumisection)).collect();
        Broken::unless(open.is_empty(), Checker::Order, || format!("{name} is there, and {open:?} are not closed"))?;
        let events = self.written.values().map(|sum| sum.events).sum();
        let files = self.written.values().map(|sum| sum.files).sum();
        let last_lumisection = self.closed.last().copied().unwrap_or_default().into();
        let expected = EndOfRun { events, files, lumisections: self.written.len() as u64, last_lumisection };
        Broken::unless(told == expected, Checker::Ledger, || {
            format!("{name} says {told:?}, and there is {expected:?}")
        })?;
        self.is_over = true;
        Ok(())
    }

    /// What must hold when the run is closed: each event is there, and twice only where it was given twice.
    pub(super) fn judge(
        &self,
        medium: &SimulatedStorage,
        expected: impl Iterator<Item = u64>,
        twice: &BTreeSet<u64>,
    ) -> Result<(), Broken> {
        for number in expected {
            let files = self.files.get(&number).map_or(&[][..], Vec::as_slice);
            Broken::unless(!files.is_empty(), Checker::Loss, || format!("event {number} is in no file"))?;
            Broken::unless(files.len() == 1 || twice.contains(&number), Checker::Keys, || {
                format!("event {number} is in {files:?}")
            })?;
        }
        let left: Vec<PathBuf> =
            medium.paths().into_iter().filter(|path| path.parent() != Some(Path::new(DIRECTORY))).collect();
        Broken::unless(left.is_empty(), Checker::Liveness, || format!("{left:?} are left"))
    }
}

fn name_of(path: &Path) -> Option<FileName> {
    path.file_name()?.to_str()?.parse().ok()
}

fn read(medium: &SimulatedStorage, name: FileName) -> Result<Vec<u8>, Broken> {
    let bytes = medium.read(&Path::new(DIRECTORY).join(name.to_string()));
    bytes.map_err(|_| Broken::new(Checker::Order, format!("{name} is not there")))
}

fn numbers<N: Numbers>(medium: &SimulatedStorage, name: FileName) -> Result<N, Broken> {
    parse_numbers(&read(medium, name)?).ok_or_else(|| Broken::new(Checker::Content, format!("{name} is torn")))
}
