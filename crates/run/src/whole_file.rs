//! Atomic replacement of files: after a death of the program or the machine during a write, the file is either complete
//! or unchanged.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file atomically. Once this has returned it survives a loss of power. Before that nothing of it is visible
/// under its name, where an earlier file stays.
///
/// # Errors
/// If it cannot be written. Its parts are then removed if possible.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".part");
    let part = directory.join(name);
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&part, path)).inspect_err(|_| {
        // The original error is reported.
        let _ = fs::remove_file(&part);
    })?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays_until_the_whole_of_what_follows_is() {
        let directory = std::env::temp_dir().join(format!("ropewalk-whole-file-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory can be made");
        let file = directory.join("run.json");
        write(&file, b"first").expect("it can be written");
        // As after the death of a writer in the middle.
        fs::write(directory.join("run.json.part"), "sec").expect("it can be written");
        assert_eq!(fs::read(&file).expect("it is there"), b"first");
        write(&file, b"second").expect("what is left is no obstacle");
        assert_eq!(fs::read(&file).expect("it is there"), b"second");
        // A directory cannot be replaced, and nothing is left of the attempt.
        let taken = directory.join("taken");
        fs::create_dir_all(taken.join("by")).expect("a directory can be made");
        assert!(write(&taken, b"third").is_err());
        let left: Vec<_> =
            fs::read_dir(&directory).expect("it is there").map(|entry| entry.expect("one").file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        fs::remove_dir_all(directory).expect("it is there");
    }
}
