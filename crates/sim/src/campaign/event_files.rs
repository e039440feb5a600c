//! Builder units that write event files for filter units on files, and what must hold of these files at every moment.
//!
//! The files name neither attempt nor source: the copies of an event count in the order in which they are found, and a
//! fragment is known by its content.

use super::fault::Place;
use super::referee::{Held, Record};
use super::runner::{Broken, Checker, ensure};
use super::scenario::{Managers, Scenario};
use super::world::World;
use ropewalk_engine::EventFilesConfig;
use ropewalk_engine::documents::{EndOfLumisection, EndOfRun, Numbers, RawFile, parse_numbers};
use ropewalk_flow::readout::Format;
use ropewalk_flow::source::Random;
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_terms::{AcknowledgementLevel, Attempt, Cause};
use ropewalk_wire::frd::{Event, FILE_HEADER_BYTES, FileHeader, FileKind, FileName, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which stream of the seed decides on event files.
const STREAM: u64 = 1010;
/// Parent of the run's directory.
const PARENT: &str = "/data";
/// Where the files with their final names are.
const DIRECTORY: &str = "/data/run000001";

/// When builder units close a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EventFileLimits {
    events: u32,
    bytes: u64,
    time: Duration,
}

impl Scenario {
    /// Whether builder units write event files. A stream of its own. Not with event managers that take over, with a
    /// second count of events, nor with payloads that are not recognised by their content alone.
    pub(super) fn draw_event_files(&mut self) {
        let mut draw = Random::new(self.seed, STREAM);
        let is_plain = self.managers == Managers::Alone && self.cards.is_empty() && self.masks.is_empty();
        if !is_plain || self.trigger.is_some() || self.filters.is_some() || !draw.one_in(2) {
            return;
        }
        self.event_files = Some(EventFileLimits {
            events: draw.between(1, 12) as u32,
            bytes: draw.of(&[1000, 20_000, 1 << 20]),
            time: draw.time(Duration::from_millis(1), Duration::from_millis(50)),
        });
        self.level = AcknowledgementLevel::Written;
        self.sources.fill(Format::Ferol);
    }
}

impl EventFileLimits {
    /// The configuration of a builder unit.
    pub(super) fn config(self, scenario: &Scenario, index: u16) -> EventFilesConfig {
        EventFilesConfig {
            writer: format!("BU-{index}"),
            directory: PARENT.into(),
            version: Version::V5,
            file_events: self.events,
            file_bytes: self.bytes,
            file_time: self.time,
            level: scenario.level,
            room: None,
            give_up_after: scenario.time_outs.drain / 2,
        }
    }
}

impl World {
    /// Reads the event files of a builder unit.
    ///
    /// # Errors
    /// What is not as it should be.
    pub(super) fn read_event_files(
        &self,
        writer: u16,
        storage: &SimulatedStorage,
        may_be_torn: bool,
        held: &mut Held,
    ) -> Result<(), Broken> {
        let broken = |words: String| Broken::new(Checker::Content, format!("{}: {words}", Place::Builder(writer)));
        let mut names: Vec<FileName> = names_in(storage);
        names.sort_unstable();
        let (mut written, mut closed) = (BTreeMap::<u32, EndOfLumisection>::new(), BTreeSet::new());
        let mut place = 0;
        for &name in &names {
            let told = match name.kind {
                FileKind::Raw { index } => {
                    let (events, bytes) = match read_raw(storage, name) {
                        Ok(read) => read,
                        Err(_) if may_be_torn => continue,
                        Err(words) => return Err(broken(words)),
                    };
                    for (number, data) in &events {
                        place += 1;
                        self.take_event(writer, place, *number, data, held)?;
                    }
                    let sum = written.entry(name.lumisection).or_default();
                    (sum.events, sum.files) = (sum.events + events.len() as u64, sum.files + 1);
                    sum.bytes += bytes;
                    let document = FileName { kind: FileKind::Account { index }, ..name };
                    numbers::<RawFile>(storage, document).and_then(|told| {
                        let holds = RawFile { events: events.len() as u64, bytes };
                        differs(name, &told, &holds)
                    })
                }
                FileKind::EndOfLumisection => {
                    closed.insert(name.lumisection);
                    numbers::<EndOfLumisection>(storage, name).and_then(|told| {
                        let sum = written.get(&name.lumisection).copied().unwrap_or_default();
                        let own = EndOfLumisection { events: told.events, files: told.files, bytes: told.bytes, ..sum };
                        differs(name, &own, &sum)
                    })
                }
                FileKind::Account { .. } | FileKind::EndOfRun => Ok(()),
            };
            // What a power cut left may lack names and bytes.
            told.or_else(|words| if may_be_torn { Ok(()) } else { Err(broken(words)) })?;
        }
        let end = names.iter().find(|name| name.kind == FileKind::EndOfRun).filter(|_| !may_be_torn);
        let Some(&end) = end else { return Ok(()) };
        let open: Vec<u32> = written.keys().copied().filter(|lumisection| !closed.contains(lumisection)).collect();
        ensure!(Content, open.is_empty(); "bu{writer} ended its run, and lumisections {open:?} are not closed")?;
        let expected = EndOfRun {
            events: written.values().map(|sum| sum.events).sum(),
            files: written.values().map(|sum| sum.files).sum(),
            lumisections: written.len() as u64,
            last_lumisection: closed.last().copied().unwrap_or_default().into(),
        };
        numbers(storage, end).and_then(|told: EndOfRun| differs(end, &told, &expected)).map_err(broken)
    }

    /// Takes an event of a file: fragments of sources back to back, each as its source made it.
    fn take_event(&self, writer: u16, place: u64, number: u64, data: &[u8], held: &mut Held) -> Result<(), Broken> {
        ensure!(Keys, (1..=self.scenario.events).contains(&number); "there is no event {number}")?;
        let (mut rest, mut found) = (data, BTreeMap::new());
        for source in 0..self.scenario.sources.len() {
            let mut known = self.known_as(source, number).into_iter();
            let fragment = known.find(|fragment| rest.starts_with(fragment));
            rest = &rest[fragment.as_ref().map_or(0, Vec::len)..];
            // The files do not say why a fragment is missing.
            found.insert(self.scenario.source_id(source), fragment.is_none().then_some(Cause::OutcomeUnknown));
        }
        ensure!(Content, rest.is_empty(); "event {number}: {} bytes are no fragment of it", rest.len())?;
        let copies = held.events.entry(number).or_default();
        let attempt = Attempt(copies.len() as u16 + 1);
        copies.push(Record::of_event_file(writer, attempt, place, found));
        Ok(())
    }
}

/// The names of the files that filter units see.
fn names_in(storage: &SimulatedStorage) -> Vec<FileName> {
    let paths = storage.paths().into_iter().filter(|path| path.parent() == Some(Path::new(DIRECTORY)));
    paths.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()
}

/// The files that do not have their final names yet.
pub(super) fn unnamed_files(storage: &SimulatedStorage) -> Vec<PathBuf> {
    storage.paths().into_iter().filter(|path| path.parent() != Some(Path::new(DIRECTORY))).collect()
}

fn read(storage: &SimulatedStorage, name: FileName) -> Result<Vec<u8>, String> {
    storage.read(&Path::new(DIRECTORY).join(name.to_string())).map_err(|cause| format!("{name}: {cause}"))
}

fn numbers<N: Numbers>(storage: &SimulatedStorage, name: FileName) -> Result<N, String> {
    parse_numbers(&read(storage, name)?).ok_or_else(|| format!("{name} is torn"))
}

fn differs<N: PartialEq + std::fmt::Debug>(name: FileName, told: &N, holds: &N) -> Result<(), String> {
    if told == holds { Ok(()) } else { Err(format!("{name} says {told:?}, and there is {holds:?}")) }
}

/// The numbers of events and their data.
type NumberedEvents = Vec<(u64, Vec<u8>)>;

/// The events of a file, with their numbers, and its size in bytes. It is whole and of one lumisection.
fn read_raw(storage: &SimulatedStorage, name: FileName) -> Result<(NumberedEvents, u64), String> {
    let bytes = read(storage, name)?;
    let header = bytes.first_chunk().and_then(|first| FileHeader::parse(first).ok());
    let (mut at, mut events) = (FILE_HEADER_BYTES, Vec::new());
    while at < bytes.len() {
        let event = Event::parse(&bytes[at..]).map_err(|error| format!("{name} at {at}: {error}"))?;
        let header = event.header();
        if !event.is_right() || header.lumisection != name.lumisection {
            return Err(format!("{name} at {at}: event {} of lumisection {}", header.event, header.lumisection));
        }
        events.push((header.event, event.data().to_vec()));
        at += event.bytes().len();
    }
    let (says, holds) = (header.map(|one| (u64::from(one.events), one.file_bytes)), (events.len() as u64, bytes.len()));
    if says != Some((holds.0, holds.1 as u64)) {
        return Err(format!("{name} holds {holds:?}, and its header says {says:?}"));
    }
    Ok((events, holds.1 as u64))
}
