//! The logbook of an output directory: operators' notes on its runs, and run control's own, in one file that only
//! grows.
//!
//! ```text
//! logbook.jsonl    {"at_ns":1790000000000000000,"run":7,"kind":"note","by":"ada","text":"target moved by 2 mm"}
//! ```
//! A line is one entry. A write torn by a crash leaves a partial line: readers skip it, and the next write begins a new
//! line.

use ropewalk_terms::{RunNumber, Utc};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Name of the file in the output directory.
pub const LOGBOOK: &str = "logbook.jsonl";
/// Maximum size of an entry's text, in bytes.
pub const LONGEST_NOTE: usize = 16 << 10;
/// Number of bytes at the end of the file that are read for the newest entries: thousands of entries.
pub const LOGBOOK_TAIL: u64 = 1 << 20;
/// Maximum length of a line that is read: a text with its escapes. No longer line is written.
const LONGEST_LINE: u64 = 128 << 10;

/// What kind of entry it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteKind {
    /// A note by a user.
    #[default]
    Note,
    /// The state changed.
    State,
    /// An operator gave a command, or control changed hands.
    Command,
    /// A command failed, or the run came to a standstill.
    Fault,
    /// An unexpected event that did not stop the run.
    Incident,
}

/// A user's note, or an entry of the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// Time, in nanoseconds since 1970 UTC.
    pub at_ns: i64,
    /// The run; `None` outside of runs.
    pub run: Option<u32>,
    /// Kind of the entry.
    #[serde(default)]
    pub kind: NoteKind,
    /// The author.
    pub by: String,
    /// The text.
    pub text: String,
}

/// The logbook of one output directory.
#[derive(Clone, Debug)]
pub struct Logbook {
    file: PathBuf,
}

impl Logbook {
    /// Creates the logbook of this output directory. The first entry creates the file.
    pub fn of(output: &Path) -> Self {
        Self { file: output.join(LOGBOOK) }
    }

    /// Adds an entry, which is on the disk when this returns. Several programs may do so concurrently.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if there is no text, more than [`LONGEST_NOTE`] bytes, or control characters;
    /// otherwise if the file cannot be written.
    pub fn add(&self, at: Utc, run: RunNumber, by: &str, text: &str) -> io::Result<Note> {
        let text = text.trim();
        if text.is_empty() || text.len() > LONGEST_NOTE {
            let why = format!("a note has 1 to {LONGEST_NOTE} bytes, this one has {}", text.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        // A terminal that shows the note would execute control characters.
        let is_refused = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
        if text.contains(is_refused) || by.contains(char::is_control) {
            let why = "a note has no control characters but line breaks and tabs, and a name has none";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let (run, kind) = (Some(run.0), NoteKind::Note);
        let note = Note { at_ns: at.0, run, kind, by: by.to_owned(), text: text.to_owned() };
        self.append(std::slice::from_ref(&note))?;
        Ok(note)
    }

    /// Adds entries, which are on the disk when this returns.
    ///
    /// # Errors
    /// If the file cannot be written. It then contains none of them, so that they can be added again.
    pub fn append(&self, notes: &[Note]) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&self.file)?;
        // Concurrent writers must both see how the file ends.
        file.lock()?;
        let mut lines = if ends_a_line(&mut file)? { Vec::new() } else { vec![b'\n'] };
        for note in notes {
            serde_json::to_writer(&mut lines, note)?;
            lines.push(b'\n');
        }
        write_or_cut(&mut file, &lines, |file, lines| file.write_all(lines).and_then(|()| file.sync_data()))
    }

    /// Returns all entries, the oldest first. Incomplete lines are skipped.
    ///
    /// # Errors
    /// If there is a file that cannot be read.
    pub fn notes(&self) -> io::Result<Vec<Note>> {
        self.read(None, |_| true)
    }

    /// Returns the entries of one run.
    ///
    /// # Errors
    /// As [`Logbook::notes`].
    pub fn notes_of(&self, run: RunNumber) -> io::Result<Vec<Note>> {
        self.read(None, |note| note.run == Some(run.0))
    }

    /// Returns the newest notes by users, the oldest first: those in the last [`LOGBOOK_TAIL`] bytes, however long the
    /// file is.
    ///
    /// # Errors
    /// As [`Logbook::notes`].
    pub fn newest_said(&self) -> io::Result<Vec<Note>> {
        self.read(Some(LOGBOOK_TAIL), |note| note.kind == NoteKind::Note)
    }

    /// Returns the wanted entries of the whole file, or of this many bytes at its end.
    fn read(&self, tail: Option<u64>, is_wanted: impl Fn(&Note) -> bool) -> io::Result<Vec<Note>> {
        let mut file = match File::open(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        let begin = tail.map_or(0, |tail| file.metadata().map_or(0, |metadata| metadata.len().saturating_sub(tail)));
        // A line that begins before this place is cut, and its rest does not parse. A line that begins exactly there is
        // whole.
        file.seek(SeekFrom::Start(begin))?;
        let (mut reader, mut notes, mut line) = (BufReader::new(file), Vec::new(), Vec::new());
        loop {
            line.clear();
            // The rest of a longer line is read as a separate line, and does not parse.
            if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(notes);
            }
            notes.extend(serde_json::from_slice::<Note>(&line).ok().filter(&is_wanted));
        }
    }
}

/// Writes at the end of a file. If that fails, the new bytes are cut off.
fn write_or_cut(
    file: &mut File,
    lines: &[u8],
    write: impl FnOnce(&mut File, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let before = file.metadata()?.len();
    let written = write(file, lines);
    if written.is_err() {
        // A file that cannot be cut either keeps an incomplete line, or duplicate entries.
        let _ = file.set_len(before);
    }
    written
}

/// Returns whether the next byte begins a line.
fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logbook(test: &str) -> (Logbook, PathBuf) {
        let output = std::env::temp_dir().join(format!("ropewalk-logbook-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&output).expect("a directory can be made");
        (Logbook::of(&output), output)
    }

    #[test]
    fn a_torn_write_costs_itself_alone() {
        let (logbook, output) = logbook("torn");
        assert_eq!(logbook.notes().expect("nothing is there"), []);
        let first = logbook.add(Utc(1), RunNumber(7), "ada", " beam \"on\"\nsince 3 ").expect("it can be written");
        assert_eq!(first.text, "beam \"on\"\nsince 3");
        let torn = br#"{"at_ns":2,"run":7,"by":"ada","te"#;
        let mut file = OpenOptions::new().append(true).open(output.join(LOGBOOK)).expect("it is there");
        file.write_all(torn).expect("it can be written");
        let last = logbook.add(Utc(3), RunNumber(8), "bob", "target out").expect("it can be written");
        assert_eq!(logbook.notes().expect("it can be read"), [first.clone(), last]);
        assert_eq!(logbook.notes_of(RunNumber(7)).expect("it can be read"), [first]);
        std::fs::remove_dir_all(output).expect("it can be removed");
    }

    #[test]
    fn of_a_long_logbook_only_the_end_is_read_for_the_newest() {
        let (logbook, output) = logbook("tail");
        let text = "x".repeat(1000);
        let said =
            |at: i64| Note { at_ns: at, run: Some(7), kind: NoteKind::Note, by: "ada".into(), text: text.clone() };
        let state = Note { kind: NoteKind::State, ..said(0) };
        let all: Vec<_> = (1..=3000).map(said).chain([state]).collect();
        logbook.append(&all).expect("it can be written");
        let newest = logbook.newest_said().expect("it can be read");
        let line = serde_json::to_vec(&all[2999]).expect("it is JSON").len() as u64 + 1;
        // The program's own last line takes space and is not a user's note. The first line may be only partly in the
        // tail.
        assert_eq!(newest, all[3000 - newest.len()..3000]);
        assert!((LOGBOOK_TAIL / line - 2..=LOGBOOK_TAIL / line).contains(&(newest.len() as u64)), "{}", newest.len());
        assert_eq!(logbook.notes_of(RunNumber(7)).expect("it can be read"), all);
        std::fs::remove_dir_all(output).expect("it can be removed");
    }

    #[test]
    fn of_a_write_that_fails_nothing_is_left_to_come_twice() {
        let (logbook, output) = logbook("failed");
        let first = logbook.add(Utc(1), RunNumber(7), "ada", "beam on").expect("it can be written");
        let mut file = OpenOptions::new().append(true).open(output.join(LOGBOOK)).expect("it is there");
        let mut line = serde_json::to_vec(&first).expect("it is JSON");
        line.push(b'\n');
        let failed = write_or_cut(&mut file, &line, |file, line| {
            file.write_all(line)?;
            Err(ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::StorageFull));
        assert_eq!(logbook.notes().expect("it can be read"), [first]);
        std::fs::remove_dir_all(output).expect("it can be removed");
    }

    #[test]
    fn entries_of_many_at_once_are_all_there() {
        let (logbook, output) = logbook("many");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let logbook = &logbook;
                scope.spawn(move || {
                    for at in 0..25 {
                        logbook.add(Utc(at), RunNumber(writer), "ada", "here").expect("it can be written");
                    }
                });
            }
        });
        for writer in 0..4 {
            assert_eq!(logbook.notes_of(RunNumber(writer)).expect("it can be read").len(), 25);
        }
        std::fs::remove_dir_all(output).expect("it can be removed");
    }

    #[test]
    fn what_is_no_note_is_refused() {
        let (logbook, output) = logbook("none");
        // Terminals execute escapes, including 8-bit ones.
        let long = "long".repeat(LONGEST_NOTE);
        for (by, text) in [
            ("ada", ""),
            ("ada", " \n"),
            ("ada", long.as_str()),
            ("ada", "\u{1b}[2J"),
            ("ada", "\u{9b}2J"),
            ("ada", "a\rb"),
            ("\u{1b}[2J", "a"),
            ("a\nb", "a"),
        ] {
            let refused = logbook.add(Utc(1), RunNumber(1), by, text).map_err(|error| error.kind());
            assert_eq!(refused, Err(ErrorKind::InvalidInput), "{by:?} {text:?}");
        }
        assert!(!output.join(LOGBOOK).exists());
        std::fs::remove_dir_all(output).expect("it can be removed");
    }
}
