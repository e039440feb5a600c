//! Writes the logbook while runs are controlled: state changes, commands, faults and incidents, beside the operators'
//! notes. A command or a webhook gets every line too. A background thread reads the journal, so that nothing waits for
//! the disk. If the disk stalls for longer than the journal reaches back, the logbook says which entries are missing.

use crate::notify::{Notifier, Told};
use ropewalk_config::LogbookSection;
use ropewalk_run::session::{ControlHandle, Entry, EntryKind};
use ropewalk_run::{Logbook, Note, NoteKind};
use ropewalk_terms::Utc;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The interval at which the journal is read.
const LOOK: Duration = Duration::from_millis(100);
/// In whose name the program itself writes.
const BY: &str = "ropewalk";

/// The logbook and the thread that writes into it. Dropping this writes the remaining entries, and ends the thread.
#[derive(Debug)]
pub(crate) struct LogbookWriter {
    logbook: Logbook,
    notifier: Option<Arc<Notifier>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LogbookWriter {
    /// Starts the logbook of this output directory, which is created if it does not exist.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(output: &Path, section: &LogbookSection, control: ControlHandle) -> io::Result<Self> {
        let notifier = Notifier::start("logbook", &section.command, section.webhook.as_deref(), section.timeout.0)?;
        let notifier = notifier.map(Arc::new);
        let (logbook, is_over) = (Logbook::of(output), Arc::<AtomicBool>::default());
        let mut reader =
            Reader { logbook: logbook.clone(), notifier: notifier.clone(), control, last: 0, unwritten: Vec::new() };
        let ending = Arc::clone(&is_over);
        let work = move || {
            while !ending.load(Ordering::Acquire) {
                reader.look();
                std::thread::sleep(LOOK);
            }
            reader.look();
        };
        let thread = std::thread::Builder::new().name("logbook".to_owned()).spawn(work)?;
        Ok(Self { logbook, notifier, is_over, thread: Some(thread) })
    }

    /// Adds a note to a run in the name of the operator `by`. The note is on disk when this returns.
    ///
    /// # Errors
    /// As [`Logbook::add`].
    pub(crate) fn note(&self, at: Utc, run: u32, by: &str, text: &str) -> io::Result<Note> {
        let note = self.logbook.add(at, ropewalk_terms::RunNumber(run), by, text)?;
        hand_on(self.notifier.as_deref(), &note);
        Ok(note)
    }

    /// Returns all entries of a run, oldest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn notes_of(&self, run: u32) -> io::Result<Vec<Note>> {
        self.logbook.notes_of(ropewalk_terms::RunNumber(run))
    }

    /// Returns the newest notes of operators, by run, oldest first.
    ///
    /// # Errors
    /// As [`Logbook::newest_said`].
    pub(crate) fn newest_said(&self) -> io::Result<BTreeMap<u32, Vec<Note>>> {
        let mut by_run = BTreeMap::<_, Vec<_>>::new();
        for note in self.logbook.newest_said()? {
            if let Some(run) = note.run {
                by_run.entry(run).or_default().push(note);
            }
        }
        Ok(by_run)
    }

    /// Returns the counts of entries sent; none if neither a command nor a webhook is configured.
    pub(crate) fn told(&self) -> Option<Told> {
        self.notifier.as_deref().map(Notifier::told)
    }
}

impl Drop for LogbookWriter {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic has already been reported.
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct Reader {
    logbook: Logbook,
    notifier: Option<Arc<Notifier>>,
    control: ControlHandle,
    /// Number of the last journal entry read.
    last: u64,
    /// Entries not written to disk yet.
    unwritten: Vec<Note>,
}

/// Entries that wait for a disk; further ones stay in the journal while it has room.
const MOST_UNWRITTEN: usize = 1000;

impl Reader {
    fn look(&mut self) {
        if self.unwritten.len() < MOST_UNWRITTEN {
            let entries = self.control.journal_after(self.last);
            if let Some(first) = entries.first().filter(|first| first.number > self.last + 1) {
                let text = format!("{} entries before this one are missing", first.number - self.last - 1);
                self.unwritten.push(note_of(Entry { text, kind: EntryKind::Fault, by: None, ..first.clone() }));
            }
            self.last = entries.last().map_or(self.last, |last| last.number);
            // Notes are on disk already.
            let entries = entries.into_iter().filter(|entry| entry.kind != EntryKind::Note);
            self.unwritten.extend(entries.map(note_of));
        }
        // A disk that is full is an alarm already, and is asked again the next time.
        if !self.unwritten.is_empty() && self.logbook.append(&self.unwritten).is_ok() {
            self.unwritten.drain(..).for_each(|note| hand_on(self.notifier.as_deref(), &note));
        }
    }
}

fn hand_on(notifier: Option<&Notifier>, note: &Note) {
    if let Some(notifier) = notifier {
        notifier.tell(note);
    }
}

fn note_of(entry: Entry) -> Note {
    let kind = match entry.kind {
        EntryKind::Note => NoteKind::Note,
        EntryKind::State => NoteKind::State,
        EntryKind::Command => NoteKind::Command,
        EntryKind::Fault => NoteKind::Fault,
        EntryKind::Incident => NoteKind::Incident,
    };
    let by = entry.by.unwrap_or_else(|| BY.to_owned());
    Note { at_ns: entry.at_ns, run: entry.run, kind, by, text: entry.text }
}
