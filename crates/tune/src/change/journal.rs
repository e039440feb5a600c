//! The journal's file: JSON, one entry a line, each with a checksum that also covers the lines before it.
//!
//! ```text
//! {"entry":"began","schema":"ropewalk-tune-journal-1","host":"daq1",...,"crc32c":"9ae0daaf"}
//! {"entry":"step","setting":{...},"old":"212992","new":"16777216",...,"crc32c":"02b9c3e1"}
//! ```
//! An incomplete last line is not damage: the program was killed while writing it, and did nothing after it.
//! Any other line that does not match its checksum is damage, and the journal is refused: wrong old values must not be
//! written.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ropewalk_kernels::crc32c;

use super::{Entry, History};
use crate::Identity;

/// The text between an entry and its checksum.
const MARK: &str = ",\"crc32c\":\"";
/// What ends a line.
const END: &str = "\"}";

/// A journal that is open for this process alone.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    /// Held for as long as this lives.
    _lock: File,
    file: Option<File>,
    /// Bytes that are good.
    length: u64,
    /// The checksum of the last line.
    sum: u32,
    history: Option<History>,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A line does not fit its checksum.
    #[error(
        "{}: line {line} is damaged, so that nothing is taken back by it; its lines hold the values from before; \
         move it away to begin anew", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// It is something else, or of a version that is not known.
    #[error("{}: this is no journal of `{}`; name another file with --journal", path.display(), Entry::SCHEMA)]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// It was written on another machine.
    #[error("{}: this journal is of another machine, `{of}`, and this one is `{this}`: nothing is done by it", path.display())]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// The machine that it is of.
        of: String,
        /// The machine that this is.
        this: String,
    },
    /// It was written in another network namespace of this machine, whose settings are others.
    #[error(
        "{}: this journal is of another network namespace, `{of}`, and this one is `{this}`: nothing is done by it; \
         go there (nsenter --net), name another file with --journal, or move this one away where that namespace is gone",
        path.display()
    )]
    OtherNetwork {
        /// The file.
        path: PathBuf,
        /// The namespace that it is of.
        of: String,
        /// The namespace that this is.
        this: String,
    },
    /// Another process has it open.
    #[error("{}: another `ropewalk tune` is at work with it; wait until that has ended", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("{}: {source}{}", path.display(), hint(source))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run it with sudo, or name another file with --journal",
        _ => "",
    }
}

impl JournalFile {
    /// Opens a journal of this machine and locks it. A missing one is made with the first entry. One that was taken
    /// back completely but not put away is put away.
    ///
    /// # Errors
    /// When it is damaged, of another machine, in use, or cannot be read.
    pub fn open(path: &Path, identity: &Identity, time: &str) -> Result<Self, JournalError> {
        let fault = |source| JournalError::File { path: path.to_owned(), source };
        if let Some(directory) = parent(path) {
            std::fs::create_dir_all(directory).map_err(fault)?;
        }
        let lock = lock(path)?;
        let mut bytes = Vec::new();
        let mut file = there(OpenOptions::new().read(true).write(true).open(path)).map_err(fault)?;
        file.as_mut().map_or(Ok(0), |file| file.read_to_end(&mut bytes)).map_err(fault)?;
        let Good { history, length, sum } = read(path, &bytes, identity)?;
        let mut this = Self { path: path.to_owned(), _lock: lock, file, length, sum, history };
        if this.history.as_ref().is_some_and(|history| history.is_taken_back) {
            this.put_away(time)?;
        }
        Ok(this)
    }

    /// What it said when it was opened; `None` for a new journal.
    pub const fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// Adds entries; they are on the disk when this returns.
    ///
    /// # Errors
    /// When they cannot be written: then the journal holds none of them.
    pub fn append(&mut self, entries: &[Entry]) -> Result<(), JournalError> {
        let (mut text, mut sum) = (String::new(), self.sum);
        for entry in entries {
            let line = render(entry, &mut sum).map_err(|source| self.fault(source))?;
            text.push_str(&line);
        }
        self.write(text.as_bytes()).map_err(|source| self.fault(source))?;
        (self.sum, self.length) = (sum, self.length + text.len() as u64);
        Ok(())
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => {
                let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
                sync_directory(&self.path)?;
                file
            }
        };
        // After the last good line: an incomplete line is cut off.
        file.set_len(self.length)?;
        file.seek(SeekFrom::Start(self.length))?;
        let written = file.write_all(text).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(self.length);
        }
        self.file = Some(file);
        written
    }

    /// Puts it away under a dated name beside its own, so that its history stays.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn put_away(&mut self, time: &str) -> Result<(), JournalError> {
        let stamp: String = time.chars().filter(|letter| !"-:".contains(*letter)).collect();
        let name = |suffix: &str| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{stamp}{suffix}"));
            PathBuf::from(name)
        };
        let numbered = (2..).map(|number: u32| name(&format!("-{number}")));
        let free = [name("")].into_iter().chain(numbered).find(|name| !name.exists());
        let free = free.expect("numbers do not end");
        let renamed = std::fs::rename(&self.path, free).and_then(|()| sync_directory(&self.path));
        renamed.map_err(|source| self.fault(source))?;
        (self.file, self.length, self.sum, self.history) = (None, 0, 0, None);
        Ok(())
    }

    fn fault(&self, source: io::Error) -> JournalError {
        JournalError::File { path: self.path.clone(), source }
    }
}

/// What a journal of this machine says, without a lock; `None` if there is no journal.
///
/// # Errors
/// As [`JournalFile::open`], but for the lock.
pub(super) fn look(path: &Path, identity: &Identity) -> Result<Option<History>, JournalError> {
    let bytes = there(std::fs::read(path)).map_err(|source| JournalError::File { path: path.to_owned(), source })?;
    let good = read(path, &bytes.unwrap_or_default(), identity)?;
    Ok(good.history.filter(|history| !history.is_taken_back))
}

/// None for a file that is not there.
fn there<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// What is good of a file.
struct Good {
    history: Option<History>,
    length: u64,
    sum: u32,
}

/// Reads the lines of a journal of this machine.
fn read(path: &Path, bytes: &[u8], identity: &Identity) -> Result<Good, JournalError> {
    let mut entries = Vec::new();
    let mut good = Good { history: None, length: 0, sum: 0 };
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        // The end is missing: its writer was killed.
        let Some(whole) = line.strip_suffix(b"\n") else { break };
        let damaged = || JournalError::Damaged { path: path.to_owned(), line: index + 1 };
        let (entry, sum) = parse(whole, good.sum).ok_or_else(damaged)?;
        entries.push(entry);
        (good.sum, good.length) = (sum, good.length + line.len() as u64);
    }
    if !entries.is_empty() {
        let history = History::of(&entries).ok_or_else(|| JournalError::Unknown { path: path.to_owned() })?;
        check(path, &history, identity)?;
        good.history = Some(history);
    }
    Ok(good)
}

fn check(path: &Path, history: &History, identity: &Identity) -> Result<(), JournalError> {
    let of = &history.identity;
    // Containers may have no machine-id; then the host's name has to do.
    let is_this = if of.machine.is_empty() && identity.machine.is_empty() {
        of.host == identity.host
    } else {
        of.machine == identity.machine
    };
    let name = |one: &Identity| {
        if one.machine.is_empty() { one.host.clone() } else { format!("{}, {}", one.host, one.machine) }
    };
    if !is_this {
        return Err(JournalError::OtherMachine { path: path.to_owned(), of: name(of), this: name(identity) });
    }
    // Namespaces are gone when the machine is started again, and their names mean others then.
    let is_known = of.boot == identity.boot && !of.network.is_empty() && !identity.network.is_empty();
    if is_known && of.network != identity.network {
        let (of, this) = (of.network.clone(), identity.network.clone());
        return Err(JournalError::OtherNetwork { path: path.to_owned(), of, this });
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, JournalError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let fault = |source| JournalError::File { path: PathBuf::from(&name), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&name).map_err(fault)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(JournalError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(fault(source)),
    }
}

fn parent(path: &Path) -> Option<&Path> {
    path.parent().filter(|directory| !directory.as_os_str().is_empty())
}

/// A new name is on the disk only when its directory is.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(parent(path).unwrap_or(Path::new(".")))?.sync_all()
}

/// The line of an entry after a line with this checksum; the checksum becomes the line's own.
fn render(entry: &Entry, sum: &mut u32) -> io::Result<String> {
    let mut line = serde_json::to_string(entry)?;
    line.pop();
    *sum = crc32c(*sum, line.as_bytes());
    line.push_str(&format!("{MARK}{sum:08x}{END}\n"));
    Ok(line)
}

/// The entry of a line and its checksum. `None` if the checksum does not match.
fn parse(line: &[u8], before: u32) -> Option<(Entry, u32)> {
    let line = std::str::from_utf8(line).ok()?;
    let (entry, written) = line.strip_suffix(END)?.rsplit_once(MARK)?;
    let sum = crc32c(before, entry.as_bytes());
    if written != format!("{sum:08x}") {
        return None;
    }
    serde_json::from_str(&format!("{entry}}}")).ok().map(|entry| (entry, sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;
    use std::fs;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ropewalk-journal-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("state/tune.journal")
        }

        fn open(&self) -> Result<JournalFile, JournalError> {
            JournalFile::open(&self.file(), &this(), "2026-11-23T16:20:05Z")
        }

        /// A journal with four lines.
        fn filled(self) -> Self {
            let mut journal = self.open().expect("it can be made");
            journal.append(&entries()).expect("it can be written");
            self
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn this() -> Identity {
        let (host, machine, boot) = ("daq1".to_owned(), "4711".to_owned(), "b1".to_owned());
        Identity { host, machine, boot, network: "net:[1]".to_owned() }
    }

    fn entries() -> Vec<Entry> {
        let setting = Setting::sysctl("net.core.rmem_max");
        let (old, new, rule) = ("1".to_owned(), "2".to_owned(), "receive_buffer".to_owned());
        let step = Entry::Step { setting: setting.clone(), old, new, rule };
        let (time, left, Identity { boot, network, .. }) = ("t".to_owned(), Vec::new(), this());
        let applying = Entry::Applying { boot, network, time, steps: 1, left };
        vec![Entry::began(&this(), "t"), applying, step, Entry::Done { setting }]
    }

    #[test]
    fn what_is_written_is_read_again_and_gone_on_with() {
        let directory = Directory::new("again").filled();
        let mut journal = directory.open().expect("it is good");
        assert_eq!(journal.history(), History::of(&entries()).as_ref());
        journal.append(&[Entry::Applied]).expect("it can be written");
        drop(journal);
        let history = directory.open().expect("it is good").history().cloned().expect("it is there");
        assert_eq!((history.held.len(), history.is_unfinished()), (1, false));
        let text = fs::read_to_string(directory.file()).expect("it is there");
        let json = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        assert!(text.lines().count() == 5 && text.lines().all(json), "{text}");
    }

    #[test]
    fn a_last_line_without_its_end_is_cut_off() {
        let directory = Directory::new("torn").filled();
        let whole = fs::read(directory.file()).expect("it is there");
        let lines: Vec<_> = whole.split_inclusive(|&byte| byte == b'\n').collect();
        let before = whole.len() - lines[3].len();
        for cut in 0..whole.len() {
            fs::write(directory.file(), &whole[..cut]).expect("it can be written");
            let mut journal = directory.open().expect("a torn line is no damage");
            let held = journal.history().map_or(0, |history| history.held.len());
            assert_eq!(held, usize::from(cut >= before), "{cut}");
            if cut >= before {
                journal.append(&[Entry::RolledBack { stuck: Vec::new() }]).expect("it can be written");
                drop(journal);
                assert!(directory.open().expect("it is good").history().is_some(), "{cut}");
            }
        }
    }

    #[test]
    fn damage_in_the_middle_is_refused() {
        let directory = Directory::new("damage").filled();
        let whole = fs::read(directory.file()).expect("it is there");
        for index in 0..whole.len() - 1 {
            let mut bytes = whole.clone();
            bytes[index] ^= 4;
            fs::write(directory.file(), &bytes).expect("it can be written");
            let line = 1 + whole[..index].iter().filter(|&&byte| byte == b'\n').count();
            let error = directory.open().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(
                error.contains(&format!("line {line} is damaged, so that nothing is taken back by it")),
                "{index}: {error}"
            );
        }
        let lines: Vec<_> = whole.split_inclusive(|&byte| byte == b'\n').collect();
        fs::write(directory.file(), [lines[0], lines[1], lines[3]].concat()).expect("it can be written");
        assert!(matches!(directory.open(), Err(JournalError::Damaged { line: 3, .. })), "a line is missing");
    }

    #[test]
    fn a_journal_of_another_machine_is_refused() {
        let directory = Directory::new("other").filled();
        let other = Identity { host: "daq2".to_owned(), machine: "4712".to_owned(), ..this() };
        let error =
            JournalFile::open(&directory.file(), &other, "t").expect_err("it is of another machine").to_string();
        assert!(
            error.ends_with("is of another machine, `daq1, 4711`, and this one is `daq2, 4712`: nothing is done by it"),
            "{error}"
        );
        assert!(matches!(look(&directory.file(), &other), Err(JournalError::OtherMachine { .. })));
        let renamed = Identity { host: "daq9".to_owned(), boot: "b2".to_owned(), ..this() };
        assert!(JournalFile::open(&directory.file(), &renamed, "t").is_ok(), "the same machine by another name");
        let nameless = Identity { machine: String::new(), ..this() };
        assert!(JournalFile::open(&directory.file(), &nameless, "t").is_err());
    }

    #[test]
    fn a_journal_of_another_network_namespace_is_refused_until_the_machine_is_started_again() {
        let directory = Directory::new("network").filled();
        let other = Identity { network: "net:[2]".to_owned(), ..this() };
        let error = JournalFile::open(&directory.file(), &other, "t").expect_err("it is of another one").to_string();
        assert!(error.contains("of another network namespace, `net:[1]`, and this one is `net:[2]`"), "{error}");
        assert!(matches!(look(&directory.file(), &other), Err(JournalError::OtherNetwork { .. })));
        let restarted = Identity { boot: "b2".to_owned(), ..other };
        let mut journal = JournalFile::open(&directory.file(), &restarted, "t").expect("it is not in use");
        // What is applied there then is of that one.
        let (time, left, Identity { boot, network, .. }) = ("t".to_owned(), Vec::new(), restarted);
        journal.append(&[Entry::Applying { boot, network, time, steps: 0, left }]).expect("it can be written");
        drop(journal);
        let back = Identity { boot: "b2".to_owned(), ..this() };
        assert!(matches!(look(&directory.file(), &back), Err(JournalError::OtherNetwork { .. })));
        // Earlier versions did not say.
        let text = fs::read_to_string(directory.file()).expect("it is there");
        assert!(text.contains("\"network\":\"net:[1]\""), "{text}");
        let earlier = r#"{"entry":"applying","boot":"b1","time":"t","steps":0,"left":[]}"#;
        assert!(serde_json::from_str::<Entry>(earlier).is_ok());
        for earlier in [r#"{"entry":"undone"}"#, r#"{"entry":"rolled_back"}"#] {
            assert!(serde_json::from_str::<Entry>(earlier).is_ok(), "{earlier}");
        }
    }

    #[test]
    fn what_is_no_journal_is_refused() {
        let directory = Directory::new("unknown").filled();
        let mut sum = 0;
        let mut began = entries().swap_remove(0);
        if let Entry::Began { schema, .. } = &mut began {
            *schema = "ropewalk-tune-journal-9".to_owned();
        }
        fs::write(directory.file(), render(&began, &mut sum).expect("it is JSON")).expect("it can be written");
        let error = directory.open().expect_err("it is of another version").to_string();
        assert!(
            error.ends_with("this is no journal of `ropewalk-tune-journal-1`; name another file with --journal"),
            "{error}"
        );
        fs::write(directory.file(), "net.core.rmem_max = 7\n").expect("it can be written");
        assert!(matches!(directory.open(), Err(JournalError::Damaged { line: 1, .. })));
    }

    #[test]
    fn two_do_not_work_with_it_at_once() {
        let directory = Directory::new("lock").filled();
        let journal = directory.open().expect("it is not in use");
        let error = directory.open().expect_err("it is in use").to_string();
        assert!(error.ends_with("another `ropewalk tune` is at work with it; wait until that has ended"), "{error}");
        drop(journal);
        assert!(directory.open().is_ok());
    }

    #[test]
    fn what_is_put_away_keeps_its_history_under_a_dated_name() {
        let directory = Directory::new("away").filled();
        for name in ["tune.journal.20261123T162005Z", "tune.journal.20261123T162005Z-2"] {
            let mut journal = directory.open().expect("it is good");
            assert!(journal.history().is_some());
            // As when it was killed right before it would have put it away.
            journal.append(&[Entry::TakenBack { time: "t".to_owned() }]).expect("it can be written");
            drop(journal);
            assert_eq!(look(&directory.file(), &this()).expect("it is good"), None);
            let journal = directory.open().expect("it is good");
            assert!(journal.history().is_none() && !directory.file().exists());
            assert!(directory.file().with_file_name(name).exists(), "{name}");
            drop(journal);
            directory.open().expect("it can be made").append(&entries()).expect("it can be written");
        }
    }
}
