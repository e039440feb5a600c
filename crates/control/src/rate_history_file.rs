//! Persists the rate history on a background thread, so that nothing waits for the disk.

use ropewalk_monitor::history::{History, Record};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};

/// The file's name, in the directory where the runs are.
pub(crate) const FILE: &str = "history.dat";
/// Records that wait to be written; while the disk stalls, further ones are dropped.
const WAITING: usize = 64;

/// Writes each record at its place in the file.
#[derive(Debug)]
pub(crate) struct RateHistoryFile(SyncSender<(u64, Record)>);

impl RateHistoryFile {
    /// Opens the file of this directory, which is made where it is not there, and takes what is in it.
    ///
    /// # Errors
    /// What the system says about directory, file or thread.
    pub(crate) fn open(directory: &Path) -> io::Result<(Self, History)> {
        std::fs::create_dir_all(directory)?;
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(directory.join(FILE))?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(History::FILE_BYTES as u64).read_to_end(&mut bytes)?;
        let history = History::restore(&bytes);
        if !bytes.starts_with(&History::header()) {
            // Of another kind, or with other series: what it says would be taken for these.
            file.set_len(0)?;
            file.write_all_at(&History::header(), 0)?;
        }
        file.set_len(History::FILE_BYTES as u64)?;
        let (sender, places) = sync_channel(WAITING);
        let write = move || places.into_iter().for_each(|place| write(&file, place));
        std::thread::Builder::new().name("history".to_owned()).spawn(write)?;
        Ok((Self(sender), history))
    }

    /// Queues the records that the last sample changed.
    pub(crate) fn keep(&self, history: &History) {
        // A dropped record reads as a gap after a restart; memory still has it.
        history.changed().for_each(|place| _ = self.0.try_send(place));
    }
}

fn write(file: &File, (at, record): (u64, Record)) {
    // A disk that is full is an alarm already, and the next place is tried again.
    let _ = file.write_all_at(&record, at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_monitor::Sample;
    use ropewalk_terms::{Instant, RunNumber, Utc};
    use std::time::Duration;

    fn look(second: i64) -> Sample {
        let time = Instant::from_nanoseconds(second as u64 * 1_000_000_000);
        Sample { run: RunNumber(1), time, utc: Utc(second * 1_000_000_000), ..Sample::default() }
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart_and_the_file_does_not_grow() {
        let directory = std::env::temp_dir().join(format!("ropewalk-keeper-{}", std::process::id()));
        let (keeper, mut history) = RateHistoryFile::open(&directory).expect("a directory can be made");
        assert!(history.stretch(0, 1).times.is_empty());
        for second in 1_000..1_010 {
            history.observe(look(second));
            keeper.keep(&history);
        }
        let begun = std::time::Instant::now();
        loop {
            let (_, again) = RateHistoryFile::open(&directory).expect("it is there");
            if again.stretch(0, 1) == history.stretch(0, 1) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "it is not kept");
        }
        let path = directory.join(FILE);
        let bytes = std::fs::metadata(&path).expect("it is there").len();
        assert_eq!(bytes, History::FILE_BYTES as u64);
        // Another program's file of this name is begun anew.
        std::fs::write(&path, "something else").expect("it can be written");
        let (_, anew) = RateHistoryFile::open(&directory).expect("it is there");
        assert!(anew.stretch(0, 1).times.is_empty());
        let begin = std::fs::read(&path).expect("it is there");
        assert!(begin.starts_with(&History::header()) && begin.len() == History::FILE_BYTES);
        std::fs::remove_dir_all(&directory).expect("the test's own");
    }
}
