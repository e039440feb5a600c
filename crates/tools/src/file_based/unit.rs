//! A filter unit: takes one file after the other until there are no more. It talks to its broker in lines of text.
//!
//! ```text
//!  unit --> broker   want                       broker --> unit   give 1 7 2     lumisection, index, attempt
//!                    done 1 7 2                                   finish         nothing comes any more
//!                    failed 1 7 2 why
//! ```

use super::documents::{FilteredFile, StreamFile, write_whole};
use super::filter::{EventFilter, FileEvent};
use super::place::{FilesError, Place};
use ropewalk_flow::files::{FileId, Work};
use ropewalk_flow::filter::{Decision, Streams};
use ropewalk_terms::{Attempt, StreamIndex};
use ropewalk_wire::frd::{Event, FILE_HEADER_BYTES, FileHeader};
use ropewalk_wire::run_file::StreamName;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::str::FromStr;

/// What a unit says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromUnit {
    /// It wants a file.
    Want,
    /// Everything is written for this one.
    Done(Work),
    /// This one cannot be filtered, and why, in words: no line's end is among them.
    Failed(Work, String),
}

/// What a broker says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ToUnit {
    /// Filter this file.
    Give(Work),
    /// No more files come.
    Finish,
}

/// The text is no such line.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("neither want, done, failed, give nor finish, with lumisection, index and attempt where they belong")]
pub struct NotALine;

fn write(out: &mut fmt::Formatter<'_>, word: &str, work: &Work) -> fmt::Result {
    write!(out, "{word} {} {} {}", work.file.lumisection, work.file.index, work.attempt.0)
}

/// The command, the work after it if there is any, and the rest.
fn parse_line(text: &str) -> Option<(&str, Option<Work>, &str)> {
    let mut words = text.trim().splitn(5, ' ');
    let word = words.next()?;
    let Some(lumisection) = words.next() else { return Some((word, None, "")) };
    let file = FileId { lumisection: lumisection.parse().ok()?, index: words.next()?.parse().ok()? };
    let attempt = Attempt(words.next()?.parse().ok()?);
    Some((word, Some(Work { file, attempt }), words.next().unwrap_or_default()))
}

impl fmt::Display for FromUnit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Want => write!(out, "want"),
            Self::Done(work) => write(out, "done", work),
            Self::Failed(work, why) => {
                write(out, "failed", work)?;
                if why.is_empty() { Ok(()) } else { write!(out, " {why}") }
            }
        }
    }
}

impl FromStr for FromUnit {
    type Err = NotALine;

    fn from_str(text: &str) -> Result<Self, NotALine> {
        match parse_line(text).ok_or(NotALine)? {
            ("want", None, "") => Ok(Self::Want),
            ("done", Some(work), "") => Ok(Self::Done(work)),
            ("failed", Some(work), why) => Ok(Self::Failed(work, why.to_owned())),
            _ => Err(NotALine),
        }
    }
}

impl fmt::Display for ToUnit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Give(work) => write(out, "give", work),
            Self::Finish => write!(out, "finish"),
        }
    }
}

impl FromStr for ToUnit {
    type Err = NotALine;

    fn from_str(text: &str) -> Result<Self, NotALine> {
        match parse_line(text).ok_or(NotALine)? {
            ("give", Some(work), "") => Ok(Self::Give(work)),
            ("finish", None, "") => Ok(Self::Finish),
            _ => Err(NotALine),
        }
    }
}

/// Who decides, and what takes the accepted events of one file after the other.
pub struct FilterUnit {
    filter: Box<dyn EventFilter>,
    streams: Streams,
    /// The file that is filtered.
    file: Vec<u8>,
    /// What the filter says of its events.
    decisions: Vec<Decision>,
    /// For each stream what it takes of it.
    taken: Vec<Taken>,
}

/// Accepted events of a file that a stream takes.
struct Taken {
    stream: StreamName,
    events: u32,
    /// The stream's file, its header included.
    bytes: Vec<u8>,
}

impl Taken {
    fn begin(&mut self) {
        self.events = 0;
        self.bytes.clear();
        self.bytes.resize(FILE_HEADER_BYTES, 0);
    }

    fn take(&mut self, event: &[u8]) {
        self.events += 1;
        self.bytes.extend_from_slice(event);
    }

    /// The whole file; `None` without an event.
    fn close(&mut self) -> Option<&[u8]> {
        let header = FileHeader { events: self.events, file_bytes: self.bytes.len() as u64 };
        self.bytes[..FILE_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        (self.events > 0).then_some(&self.bytes)
    }
}

impl FilterUnit {
    /// A unit with this filter and these streams.
    pub fn new(filter: Box<dyn EventFilter>, streams: Streams) -> Self {
        let taken = streams.names().map(|stream| Taken { stream, events: 0, bytes: Vec::new() }).collect();
        Self { filter, streams, file: Vec::new(), decisions: Vec::new(), taken }
    }

    /// What the system lacks for the filter, for people.
    pub fn warnings(&self) -> Vec<String> {
        self.filter.warnings()
    }

    /// Filters the files that the broker gives, until the run is over or the broker has closed the connection. Returns
    /// the number of files.
    ///
    /// # Errors
    /// The broker sent a line that is not in the protocol.
    pub fn filter_files(&mut self, place: &Place, mut broker: UnixStream) -> Result<u64, FilesError> {
        let reader = broker.try_clone().map_err(FilesError::system("read from", &place.socket()))?;
        let mut lines = BufReader::new(reader).lines();
        let mut files = 0;
        let mut say = |word: FromUnit| writeln!(broker, "{word}").is_ok();
        while say(FromUnit::Want) {
            let Some(Ok(text)) = lines.next() else { break };
            match text.parse().map_err(|_| FilesError::Line { text })? {
                ToUnit::Finish => break,
                ToUnit::Give(work) => {
                    let said = match self.filter_file(place, work) {
                        Ok(()) => FromUnit::Done(work),
                        Err(error) => FromUnit::Failed(work, error.to_string().replace('\n', " ")),
                    };
                    files += 1;
                    if !say(said) {
                        break;
                    }
                }
            }
        }
        Ok(files)
    }

    /// Filters a file: first writes what streams take, then the document with the outcome.
    ///
    /// # Errors
    /// If the file cannot be read or is not valid, if the filter cannot decide, or if a file of this try exists
    /// already.
    pub fn filter_file(&mut self, place: &Place, work: Work) -> Result<(), FilesError> {
        let path = place.raw(work.file);
        read(&path, &mut self.file).map_err(FilesError::system("read", &path))?;
        // Prescales begin at the file's number: any unit that gets the file keeps the same events of it.
        self.streams.begin_part(work.file.index);
        self.taken.iter_mut().for_each(Taken::begin);
        let source = format!("fu-{}", std::process::id());
        let mut told = FilteredFile { attempt: work.attempt.0, source, ..FilteredFile::default() };
        let (events, wrong_checksums) = events_of(&self.file, &path)?;
        (told.processed, told.wrong_checksums) = (events.len() as u64, wrong_checksums);
        self.decisions.clear();
        self.filter.decide(&events, &mut self.decisions).map_err(|why| {
            let event = events.get(self.decisions.len()).map_or(0, |event| event.event().header().event);
            FilesError::Undecided { path: path.clone(), event, why }
        })?;
        for (event, decision) in events.iter().zip(&self.decisions).filter(|(_, decision)| decision.accept) {
            told.accepted += 1;
            let to = self.streams.select(decision.triggers, event.trigger_type());
            to.iter().for_each(|StreamIndex(index)| self.taken[usize::from(index)].take(event.event().bytes()));
            self.streams.written(to);
        }
        for (taken, (_, account)) in self.taken.iter_mut().zip(self.streams.accounts()) {
            let stream = taken.stream;
            let file = taken.close();
            file.map_or(Ok(()), |bytes| write_new(&place.stream_file(work, stream), bytes))?;
            told.streams.push(StreamFile {
                stream: stream.to_string(),
                selected: account.selected,
                prescaled_away: account.prescaled_away,
                written: account.written,
                bytes: file.map_or(0, |bytes| bytes.len() as u64),
            });
        }
        let draft = place.draft(work);
        // Nothing is written over: an existing file belongs to a unit whose broker died.
        if draft.exists() {
            return Err(FilesError::system("write", &draft)(std::io::ErrorKind::AlreadyExists.into()));
        }
        write_whole(&draft, &told)
    }
}

/// The events of a file, and how many have a wrong checksum.
fn events_of<'a>(file: &'a [u8], path: &Path) -> Result<(Vec<FileEvent<'a>>, u64), FilesError> {
    let is_header = file.first_chunk().is_some_and(|first| FileHeader::parse(first).is_ok());
    let (mut at, mut wrong) = (if is_header { FILE_HEADER_BYTES } else { 0 }, 0);
    let mut events = Vec::new();
    while at < file.len() {
        let failed = |error| FilesError::Events { path: path.to_owned(), offset: at, error };
        let event = Event::parse(&file[at..]).map_err(failed)?;
        at += event.bytes().len();
        wrong += u64::from(!event.is_right());
        events.push(FileEvent::new(event));
    }
    Ok((events, wrong))
}

/// Reads a file into existing memory.
fn read(path: &Path, bytes: &mut Vec<u8>) -> std::io::Result<usize> {
    bytes.clear();
    File::open(path)?.read_to_end(bytes)
}

/// Writes a file that was not there.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), FilesError> {
    let mut file = File::create_new(path).map_err(FilesError::system("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_data()).map_err(FilesError::system("write", path))
}
