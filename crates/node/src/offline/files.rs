//! Which segments there are.

use super::{Found, OfflineError, SegmentReader};
use ropewalk_wire::run_file::{OPEN_EXTENSION, SegmentName};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A file that is a segment by its name, or that was named by hand.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SegmentFile {
    /// What its name says; none for a file that was named by hand and is called something else.
    pub name: Option<SegmentName>,
    /// Whether it was never closed: being written, or left behind by a process that died.
    pub open: bool,
    /// Where it is.
    pub path: PathBuf,
}

impl SegmentFile {
    /// What the path's name says.
    fn named(path: PathBuf) -> Self {
        let text = path.file_name().unwrap_or_default().to_string_lossy();
        let closed = text.strip_suffix(OPEN_EXTENSION);
        let name = closed.unwrap_or(&text).parse().ok();
        Self { name, open: closed.is_some(), path }
    }

    /// What is not called a segment should hold a record, or it is none: damaged or not.
    fn expect_records(&self) -> Result<(), OfflineError> {
        if self.name.is_some() {
            return Ok(());
        }
        let mut reader = SegmentReader::open(&self.path)?;
        while let Some(found) = reader.advance()? {
            if matches!(found, Found::Record { .. }) {
                return Ok(());
            }
        }
        Err(OfflineError::NoRunFile { path: self.path.clone(), begin: first_bytes(&self.path)? })
    }
}

/// The first bytes of a file, for people: as numbers, and as text where they are that.
fn first_bytes(path: &Path) -> Result<String, OfflineError> {
    let mut begin = Vec::new();
    let file = File::open(path).map_err(OfflineError::system("open", path))?;
    file.take(8).read_to_end(&mut begin).map_err(OfflineError::system("read", path))?;
    let numbers = begin.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    Ok(match std::str::from_utf8(&begin) {
        Ok("") => "nothing".to_owned(),
        Ok(text) if !text.contains(char::is_control) => format!("`{numbers}` ({text:?})"),
        _ => format!("`{numbers}`"),
    })
}

/// The segments in run directories, and files that are named themselves: each once, in the order of their names.
///
/// # Errors
/// Where a directory cannot be listed, there is no segment at all, or a file that is named is none.
pub fn segment_files<P: AsRef<Path>>(places: &[P]) -> Result<Vec<SegmentFile>, OfflineError> {
    let mut files = BTreeSet::new();
    for place in places {
        let place = place.as_ref();
        // Two ways to one directory must not make a duplicate of every event.
        let place = place.canonicalize().map_err(OfflineError::system("find", place))?;
        if !place.is_dir() {
            let file = SegmentFile::named(place);
            file.expect_records()?;
            files.insert(file);
            continue;
        }
        for entry in place.read_dir().map_err(OfflineError::system("list", &place))? {
            let entry = entry.map_err(OfflineError::system("list", &place))?;
            let file = SegmentFile::named(entry.path());
            if file.name.is_some() {
                files.insert(file);
            }
        }
    }
    if files.is_empty() {
        let places: Vec<String> = places.iter().map(|place| place.as_ref().display().to_string()).collect();
        return Err(OfflineError::NoSegments { places: places.join(", ") });
    }
    Ok(files.into_iter().collect())
}
