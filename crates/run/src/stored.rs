//! The files of a run on the disks, found by their names, their ends and the run's account.
//!
//! Only files with names of run files are considered, in the directories of the run's configuration. Links are not
//! followed. Requested paths are only compared with names, and never opened.

use super::record::account;
use super::registry::RunDirectory;
use super::transfer::is_transferred;
use crate::{ACCOUNT, CONFIGURATION};
use ropewalk_config::Written;
use ropewalk_terms::{NodeId, RunNumber};
use ropewalk_tools::Footer;
use ropewalk_wire::frd::{self, FILE_HEADER_BYTES, FileHeader, FileKind};
use ropewalk_wire::run_file::{OPEN_EXTENSION, SegmentName, run_directory_name};
use serde::Serialize;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Maximum number of files in one answer.
pub const MOST_FILES: usize = 500;
/// Maximum length of a path in bytes, as in the system.
const PATH_BYTES: usize = 4096;
/// Directories of a builder unit's event files: of unfinished ones, and of those set aside because filter units crashed
/// on them.
const OPEN: &str = "open";
const ASIDE: &str = "error";

/// State of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// It is being written, or was left behind by a process that was killed.
    Open,
    /// It is complete.
    Closed,
    /// It is complete, and the destination confirmed its checksum.
    Transferred,
    /// It was set aside: file-based filter units crashed on it.
    SetAside,
}

/// A file of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StoredFile {
    /// Its path, relative to the output directory; absolute if it is on another disk.
    pub path: String,
    /// The writer: `bu0` is builder unit 0; `None` if neither name nor place tell it.
    pub writer: Option<String>,
    /// The stream; `None` if the run is not divided into streams.
    pub stream: Option<String>,
    /// The lumisection, from 1; `None` if one file has events of several.
    pub lumisection: Option<u32>,
    /// Its length in bytes.
    pub bytes: u64,
    /// Number of events in it; `None` while it is open, or if its end does not contain the number.
    pub events: Option<u64>,
    /// Its state.
    pub state: FileState,
}

/// Some files of a run, the newest first.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StoredFiles {
    /// The run; `None` without a run.
    pub run: Option<u32>,
    /// Whether it has an account: it has ended in order.
    pub has_account: bool,
    /// Number of its existing files, including those not listed here.
    pub found: u64,
    /// The requested files.
    pub files: Vec<StoredFile>,
    /// Files that were deleted to stay within `keep`, according to the account.
    pub deleted: Value,
    /// Transfers of closed files, according to the account.
    pub transfer: Value,
}

/// The text is not the path of a file of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not the path of a file of a run, such as run000001/run000001-bu0-000001.rwk")]
pub struct NotAFile;

/// A file of a run by its path. The order is by the number of the file, then by path: later files are greater,
/// regardless of the writer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileName {
    number: (u32, u32),
    path: String,
}

impl FromStr for FileName {
    type Err = NotAFile;

    fn from_str(text: &str) -> Result<Self, NotAFile> {
        let is_plain = Path::new(text).components().all(|part| !matches!(part, Component::ParentDir));
        if text.len() > PATH_BYTES || text.contains(char::is_control) || !is_plain {
            return Err(NotAFile);
        }
        let name = text.rsplit('/').next().and_then(Name::read).ok_or(NotAFile)?;
        Ok(Self { number: name.number(), path: closed(text).to_owned() })
    }
}

/// Returns the name of a file once it is closed, which keeps its place in the order.
fn closed(text: &str) -> &str {
    text.strip_suffix(OPEN_EXTENSION).unwrap_or(text)
}

/// The decoded name of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Name {
    Segment(SegmentName),
    Events { run: RunNumber, lumisection: u32, index: u32 },
}

impl Name {
    fn read(text: &str) -> Option<Self> {
        if let Ok(segment) = closed(text).parse() {
            return Some(Self::Segment(segment));
        }
        match text.parse().ok()? {
            frd::FileName { run, lumisection, kind: FileKind::Raw { index } } => {
                Some(Self::Events { run, lumisection, index })
            }
            _ => None,
        }
    }

    const fn run(self) -> RunNumber {
        match self {
            Self::Segment(name) => name.run,
            Self::Events { run, .. } => run,
        }
    }

    const fn number(self) -> (u32, u32) {
        match self {
            Self::Segment(name) => (name.segment, 0),
            Self::Events { lumisection, index, .. } => (lumisection, index),
        }
    }
}

/// A directory that may contain files of the run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    directory: PathBuf,
    /// The writer, if the directory belongs to one writer.
    writer: Option<String>,
}

/// Returns the directories that may contain files of a run, according to its configuration.
fn places(output: &Path, run: RunNumber, written: &Written) -> BTreeSet<Place> {
    let name = run_directory_name(run);
    let texts = |keys: &[(&str, &str)]| -> Vec<PathBuf> {
        keys.iter().flat_map(|(section, key)| written.texts(section, key)).map(PathBuf::from).collect()
    };
    let mut outputs = texts(&[
        ("storage", "more_outputs"),
        ("stream", "outputs"),
        ("builder", "output"),
        ("file_based", "directory"),
    ]);
    outputs.push(output.to_owned());
    let hand_overs = texts(&[("storage", "hand_over"), ("stream", "hand_over")]);
    let builders = written.texts("builder", "name");
    let mut places = BTreeSet::new();
    for output in &outputs {
        let mut add = |directory: PathBuf, writer| places.insert(Place { directory, writer });
        add(output.join(&name), (builders.len() == 1).then(|| NodeId::builder(0).to_string()));
        // If several builder units write event files, each has its own directory.
        for (index, builder) in (0..).zip(&builders).filter(|_| builders.len() > 1) {
            add(output.join(builder).join(&name), Some(NodeId::builder(index).to_string()));
        }
        hand_overs.iter().for_each(|place| _ = add(output.join(place), None));
    }
    places
}

/// A file that was found, described without opening it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    key: FileName,
    name: Name,
    place: PathBuf,
    writer: Option<String>,
    state: FileState,
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Found {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Found {
    /// Returns its description; `None` if it has been removed since.
    fn look(self) -> Option<StoredFile> {
        let mut place = self.place;
        let mut state = self.state;
        let mut path = self.key.path;
        let bytes = match fs::symlink_metadata(&place) {
            Ok(file) => file.len(),
            // It was closed meanwhile.
            Err(_) if matches!(self.name, Name::Segment(_)) && state == FileState::Open => {
                (place, state) = (place.with_extension(""), FileState::Closed);
                fs::symlink_metadata(&place).ok()?.len()
            }
            Err(_) => return None,
        };
        if state == FileState::Open && matches!(self.name, Name::Segment(_)) {
            path.push_str(OPEN_EXTENSION);
        }
        if state == FileState::Closed && is_transferred(&place) {
            state = FileState::Transferred;
        }
        let events = match self.name {
            _ if state == FileState::Open => None,
            Name::Segment(_) => Footer::count_events(&place).ok().flatten().map(u64::from),
            Name::Events { .. } => count_in(&place),
        };
        let (writer, stream, lumisection) = match self.name {
            Name::Segment(name) => {
                let stream = (!name.stream.is_unnamed()).then(|| name.stream.to_string());
                (Some(name.writer.to_string()), stream, None)
            }
            Name::Events { lumisection, .. } => (self.writer, None, Some(lumisection)),
        };
        Some(StoredFile { path, writer, stream, lumisection, bytes, events, state })
    }
}

/// Returns the number of events in an event file, from its header.
fn count_in(path: &Path) -> Option<u64> {
    let mut header = [0; FILE_HEADER_BYTES];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    Some(FileHeader::parse(&header).ok()?.events.into())
}

/// Returns the files of a run in this directory, with the state that the directory implies.
fn files_in(output: &Path, place: &Place, run: RunNumber, state: FileState) -> Vec<Found> {
    let entries = fs::read_dir(&place.directory).into_iter().flatten().flatten();
    let found = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).filter_map(|entry| {
        let file = entry.file_name();
        let text = file.to_str()?;
        let name = Name::read(text).filter(|name| name.run() == run)?;
        let state = if text.ends_with(OPEN_EXTENSION) { FileState::Open } else { state };
        let path = entry.path();
        let shown = path.strip_prefix(output).unwrap_or(&path).to_str()?;
        let key = FileName { number: name.number(), path: closed(shown).to_owned() };
        Some(Found { key, name, writer: place.writer.clone(), state, place: path.clone() })
    });
    found.collect()
}

impl StoredFiles {
    /// Returns the empty list, without a run.
    pub const fn none() -> Self {
        Self { run: None, has_account: false, found: 0, files: Vec::new(), deleted: Value::Null, transfer: Value::Null }
    }

    /// Returns at most `limit` files of a run of this output directory, the newest first; with `before`, those before
    /// this file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such run, or its directory is a link; otherwise the error of the system.
    pub fn of_run(output: &Path, run: RunNumber, before: Option<&FileName>, limit: usize) -> io::Result<Self> {
        let path = output.join(run_directory_name(run));
        let missing = |why: String| io::Error::new(ErrorKind::NotFound, why);
        match fs::symlink_metadata(&path) {
            Ok(file) if file.is_dir() => {}
            Ok(_) => {
                return Err(missing(format!("the directory of run {run} is a file or a link, which is not followed")));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing(format!("there is no run {run}"))),
            Err(error) => return Err(error),
        }
        // Without a configuration that names other places, the files are here.
        let written = Written::read(&path.join(CONFIGURATION)).unwrap_or_default();
        let (mut found, limit) = (0, limit.min(MOST_FILES));
        let mut newest = BinaryHeap::with_capacity(limit + 1);
        for place in places(output, run, &written) {
            let beside = |name: &str| Place { directory: place.directory.join(name), writer: place.writer.clone() };
            let (open, aside) = (beside(OPEN), beside(ASIDE));
            for (place, state) in [(&place, FileState::Closed), (&open, FileState::Open), (&aside, FileState::SetAside)]
            {
                for file in files_in(output, place, run, state) {
                    found += 1;
                    if before.is_none_or(|before| file.key < *before) {
                        newest.push(Reverse(file));
                    }
                    if newest.len() > limit {
                        newest.pop();
                    }
                }
            }
        }
        let files = newest.into_sorted_vec().into_iter().filter_map(|Reverse(file)| file.look()).collect();
        let directory = RunDirectory { run, path };
        let has_account = directory.path.join(ACCOUNT).is_file();
        let mut account = if has_account { account(&directory).unwrap_or_default() } else { Value::Null };
        let mut part = |name: &str| account.get_mut(name).map(Value::take).unwrap_or_default();
        let (deleted, transfer) = (part("deleted"), part("transfer"));
        Ok(Self { run: Some(run.0), has_account, found, files, deleted, transfer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ropewalk-stored-{test}-{}", std::process::id()));
        fs::create_dir_all(path.join("run000007")).expect("a directory can be made");
        path
    }

    fn list(output: &Path, before: Option<&str>, limit: usize) -> StoredFiles {
        let before = before.map(|text| text.parse().expect("a file of a run"));
        StoredFiles::of_run(output, RunNumber(7), before.as_ref(), limit).expect("there is such a run")
    }

    fn paths(files: &StoredFiles) -> Vec<&str> {
        files.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn the_newest_files_come_first_and_page_by_page_none_is_missed_or_told_twice() {
        let output = directory("pages");
        let place = output.join("run000007");
        let name = |builder: u32, segment: u32| format!("run000007-bu{builder}-{segment:06}.rwk");
        for (builder, segment) in [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)] {
            fs::write(place.join(name(builder, segment)), "x").expect("it can be written");
        }
        fs::write(place.join(name(1, 3) + ".open"), "open").expect("it can be written");
        fs::write(place.join(name(0, 1) + ".transferred"), "").expect("it can be written");
        for other in ["run000008-bu0-000001.rwk", "notes.txt", "run000007-bu0-000009.rwk.crc32c", "run000007-bu0.rwk"] {
            fs::write(place.join(other), "x").expect("it can be written");
        }
        let all = list(&output, None, 500);
        let expected = [(1, 3), (0, 3), (1, 2), (0, 2), (1, 1), (0, 1)];
        let expected = expected.map(|(builder, segment)| format!("run000007/{}", name(builder, segment)));
        assert_eq!(paths(&all)[1..], expected[1..]);
        assert_eq!((all.found, all.files[0].path == format!("{}.open", expected[0])), (6, true), "{all:?}");
        let [first, last] = [&all.files[0], &all.files[5]];
        assert_eq!((first.state, first.bytes, first.writer.as_deref()), (FileState::Open, 4, Some("bu1")));
        assert_eq!((last.state, last.events, &last.stream), (FileState::Transferred, None, &None), "it has no footer");
        let (mut told, mut before) = (Vec::new(), None);
        loop {
            let page = list(&output, before.as_deref(), 4);
            let Some(last) = page.files.last() else { break };
            (before, _) = (Some(last.path.clone()), told.extend(page.files.iter().map(|file| file.path.clone())));
            // Also if an open file has been closed since.
            let _ = fs::rename(place.join(name(1, 3) + ".open"), place.join(name(1, 3)));
        }
        assert_eq!(told, paths(&all));
        assert_eq!(list(&output, None, 0).files.len(), 0);
        fs::remove_dir_all(output).expect("the test's own");
    }

    #[test]
    fn what_is_no_path_of_a_run_file_is_refused_and_links_are_not_followed() {
        let long = format!("{}/run000007-bu0-000001.rwk", "a".repeat(PATH_BYTES));
        for wrong in [
            "",
            "..",
            "/etc/passwd",
            "run000007/../run000007-bu0-000001.rwk",
            "../run000007-bu0-000001.rwk",
            "run000007-bu0-000001.rwk\0",
            "run000007-bu0-000001.rwk/",
            "run000007_ls0001_EoLS.jsn",
            &long,
        ] {
            assert_eq!(wrong.parse::<FileName>(), Err(NotAFile), "{wrong}");
        }
        let output = directory("links");
        let (here, elsewhere) = (output.join("run000007"), output.join("elsewhere"));
        fs::create_dir(&elsewhere).expect("it can be made");
        fs::write(elsewhere.join("run000007-bu0-000001.rwk"), "x").expect("it can be written");
        let link = |to: &Path, from: PathBuf| std::os::unix::fs::symlink(to, from).expect("it can be made");
        link(&elsewhere.join("run000007-bu0-000001.rwk"), here.join("run000007-bu0-000001.rwk"));
        assert_eq!(list(&output, None, 500).found, 0);
        link(&elsewhere, output.join("run000009"));
        for run in [8, 9] {
            let error = StoredFiles::of_run(&output, RunNumber(run), None, 9).expect_err("there is no such run");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
        fs::remove_dir_all(output).expect("the test's own");
    }

    #[test]
    fn files_are_found_where_the_configuration_of_the_run_has_them_go() {
        let output = directory("places");
        let other = output.join("other");
        let text = format!(
            "[run]\noutput = \"moved since\"\n[storage]\nmore_outputs = [{other:?}]\nhand_over = \"done\"\n\
             [[builder]]\nname = \"one\"\n[[builder]]\nname = \"two\"\n"
        );
        fs::write(output.join("run000007").join(CONFIGURATION), text).expect("it can be written");
        let write = |directory: PathBuf, name: &str, bytes: &[u8]| {
            fs::create_dir_all(&directory).expect("a directory can be made");
            fs::write(directory.join(name), bytes).expect("it can be written");
        };
        write(other.join("run000007"), "run000007-bu0-physics-000004.rwk.open", b"x");
        write(output.join("done"), "run000007-bu0-physics-000003.rwk", b"x");
        write(output.join("done"), "run000006-bu0-physics-000003.rwk", b"of another run");
        let header = FileHeader { events: 17, file_bytes: FILE_HEADER_BYTES as u64 }.to_bytes();
        let events = output.join("two").join("run000007");
        write(events.clone(), "run000007_ls0002_index000001.raw", &header);
        write(events.join("open"), "run000007_ls0002_index000002.raw", b"");
        write(events.join("error"), "run000007_ls0001_index000001.raw", &header);
        let files = list(&output, None, 500);
        let other = other.join("run000007/run000007-bu0-physics-000004.rwk.open").display().to_string();
        let other = other.strip_prefix(&format!("{}/", output.display())).expect("it is in it").to_owned();
        let expected = [
            (&*other, "bu0", Some("physics"), None, None, FileState::Open),
            ("done/run000007-bu0-physics-000003.rwk", "bu0", Some("physics"), None, None, FileState::Closed),
            ("two/run000007/open/run000007_ls0002_index000002.raw", "bu1", None, Some(2), None, FileState::Open),
            ("two/run000007/run000007_ls0002_index000001.raw", "bu1", None, Some(2), Some(17), FileState::Closed),
            (
                "two/run000007/error/run000007_ls0001_index000001.raw",
                "bu1",
                None,
                Some(1),
                Some(17),
                FileState::SetAside,
            ),
        ];
        let told = |file: &StoredFile| {
            let (path, writer, stream) = (file.path.clone(), file.writer.clone(), file.stream.clone());
            (path, writer, stream, file.lumisection, file.events, file.state)
        };
        let expected = expected.map(|(path, writer, stream, lumisection, events, state)| {
            (path.to_owned(), Some(writer.to_owned()), stream.map(str::to_owned), lumisection, events, state)
        });
        assert_eq!(files.files.iter().map(told).collect::<Vec<_>>(), expected);
        fs::remove_dir_all(output).expect("the test's own");
    }
}
