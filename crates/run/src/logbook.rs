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

/// The file, in the output directory.
pub const LOGBOOK: &str = "logbook.jsonl";
/// Bytes of an entry's text, at most.
pub const LONGEST_NOTE: usize = 16 << 10;
/// Bytes at the end of the file that are read where the newest entries are asked for: thousands of them.
pub const LOGBOOK_TAIL: u64 = 1 << 20;
/// The longest line that is read: a text with its escapes. No longer one is written here.
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
    /// A command could not be carried out, or nothing goes on.
    Fault,
    /// Something was not as it should be, and the run went on.
    Incident,
}

/// A user's note, or an entry of the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// When, in nanoseconds since 1970 UTC.
    pub at_ns: i64,
    /// Of which run; `None` outside of runs.
    pub run: Option<u32>,
    /// What kind of entry it is.
    #[serde(default)]
    pub kind: NoteKind,
    /// Who.
    pub by: String,
    /// What.
    pub text: String,
}

/// The logbook of one output directory.
#[derive(Clone, Debug)]
pub struct Logbook {
    file: PathBuf,
}

impl Logbook {
    /// That of this output directory. The file is made by the first entry.
    pub fn of(output: &Path) -> Self {
        Self { file: output.join(LOGBOOK) }
    }

    /// Adds an entry, which is on the disk when this returns. Several programs may do so at once.
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
        // A terminal that shows the note would do what they say.
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
    /// If the file cannot be written; it holds none of them then, so that they can be added again.
    pub fn append(&self, notes: &[Note]) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&self.file)?;
        // Two that write at once must both see how the file ends.
        file.lock()?;
        let mut lines = if ends_a_line(&mut file)? { Vec::new() } else { vec![b'\n'] };
        for note in notes {
            serde_json::to_writer(&mut lines, note)?;
            lines.push(b'\n');
        }
        write_or_cut(&mut file, &lines, |file, lines| file.write_all(lines).and_then(|()| file.sync_data()))
    }

    /// All entries, the oldest first; pieces of lines are passed over.
    ///
    /// # Errors
    /// If there is a file that cannot be read.
    pub fn notes(&self) -> io::Result<Vec<Note>> {
        self.read(None, |_| true)
    }

    /// Those of one run.
    ///
    /// # Errors
    /// As [`Logbook::notes`].
    pub fn notes_of(&self, run: RunNumber) -> io::Result<Vec<Note>> {
        self.read(None, |note| note.run == Some(run.0))
    }

    /// The newest notes by users, the oldest first: those in the last [`LOGBOOK_TAIL`] bytes, however long the file has
    /// become.
    ///
    /// # Errors
    /// As [`Logbook::notes`].
    pub fn newest_said(&self) -> io::Result<Vec<Note>> {
        self.read(Some(LOGBOOK_TAIL), |note| note.kind == NoteKind::Note)
    }

    /// The entries that are wanted of the whole file, or of this many bytes at its end.
    fn read(&self, tail: Option<u64>, is_wanted: impl Fn(&Note) -> bool) -> io::Result<Vec<Note>> {
        let mut file = match File::open(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        let begin = tail.map_or(0, |tail| file.metadata().map_or(0, |metadata| metadata.len().saturating_sub(tail)));
        // A line that begins before this place is cut, and its rest does not parse; one that begins right there is
        // whole.
        file.seek(SeekFrom::Start(begin))?;
        let (mut reader, mut notes, mut line) = (BufReader::new(file), Vec::new(), Vec::new());
        loop {
            line.clear();
            // The rest of a longer line is read as a line of its own, and does not parse.
            if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(notes);
            }
            notes.extend(serde_json::from_slice::<Note>(&line).ok().filter(&is_wanted));
        }
    }
}

/// Writes behind the end of a file. Where that fails, what has come there is cut off.
fn write_or_cut(
    file: &mut File,
    lines: &[u8],
    write: impl FnOnce(&mut File, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let before = file.metadata()?.len();
    let written = write(file, lines);
    if written.is_err() {
        // A file that cannot be cut either keeps a piece of a line, or entries that come twice.
        let _ = file.set_len(before);
    }
    written
}

/// Whether the next byte begins a line.
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
        // The program's own last line takes a place and is not a user's note; of the first line only a part may be in
        // the tail.
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
        // Terminals do what an escape says, those of 8 bits too.
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
