//! A filter unit: takes one file after the other, until there are no more.

use super::documents::{FilteredFile, StreamFile, write_whole};
use super::error::FilesError;
use super::filter::EventFilter;
use super::line::{FromUnit, ToUnit};
use super::place::{Place, SELECTED};
use ropewalk_flow::files::Work;
use ropewalk_wire::frd::{Event, FILE_HEADER_BYTES, FileHeader};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Filters the files of a run that its broker gives, to the end. Returns how many there were.
///
/// # Errors
/// Where the broker cannot be reached. It may go at any time: that is an end, and no error.
pub fn filter_files(place: &Place, filter: &mut (impl EventFilter + ?Sized)) -> Result<u64, FilesError> {
    let socket = place.socket();
    let mut broker = UnixStream::connect(&socket).map_err(FilesError::system("reach the broker at", &socket))?;
    let mut lines = BufReader::new(broker.try_clone().map_err(FilesError::system("read from", &socket))?).lines();
    let mut files = 0;
    let mut say = |word: FromUnit| writeln!(broker, "{word}").is_ok();
    while say(FromUnit::Want) {
        let Some(Ok(text)) = lines.next() else { break };
        match text.parse().map_err(|_| FilesError::Line { text })? {
            ToUnit::Finish => break,
            ToUnit::Give(work) => {
                let said = match filter_file(place, work, filter) {
                    Ok(()) => FromUnit::Done(work),
                    Err(error) => {
                        tracing::warn!("{error}");
                        FromUnit::Failed(work)
                    }
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

/// Filters a file: what is accepted is written first, then what came of it.
fn filter_file(place: &Place, work: Work, filter: &mut (impl EventFilter + ?Sized)) -> Result<(), FilesError> {
    let path = place.raw(work.file);
    let bytes = std::fs::read(&path).map_err(FilesError::system("read", &path))?;
    let mut told =
        FilteredFile { attempt: work.attempt.0, source: format!("fu-{}", std::process::id()), ..Default::default() };
    let (mut accepted, mut events) = (vec![0; FILE_HEADER_BYTES], 0);
    let is_header = |bytes: &[u8]| bytes.first_chunk().is_some_and(|first| FileHeader::parse(first).is_ok());
    let mut at = if is_header(&bytes) { FILE_HEADER_BYTES } else { 0 };
    while at < bytes.len() {
        let failed = |error| FilesError::Events { path: path.clone(), offset: at, error };
        let event = Event::parse(&bytes[at..]).map_err(failed)?;
        told.processed += 1;
        told.wrong_checksums += u64::from(!event.is_right());
        let undecided = |why| FilesError::Undecided { path: path.clone(), offset: at, why };
        if filter.accepts(&event).map_err(undecided)? {
            accepted.extend_from_slice(event.bytes());
            events += 1;
        }
        at += event.bytes().len();
    }
    let mut stream = StreamFile { stream: SELECTED.to_owned(), events: events.into(), bytes: 0 };
    if events > 0 {
        stream.bytes = accepted.len() as u64;
        accepted[..FILE_HEADER_BYTES].copy_from_slice(&FileHeader { events, file_bytes: stream.bytes }.to_bytes());
        write_new(&place.selected(work), &accepted)?;
    }
    told.streams.push(stream);
    let draft = place.draft(work);
    // Nothing is written over: what is there is of a unit whose broker died.
    if draft.exists() {
        return Err(FilesError::system("write", &draft)(std::io::ErrorKind::AlreadyExists.into()));
    }
    write_whole(&draft, &told)
}

/// Writes a file that was not there.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), FilesError> {
    let mut file = File::create_new(path).map_err(FilesError::system("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_data()).map_err(FilesError::system("write", path))
}
