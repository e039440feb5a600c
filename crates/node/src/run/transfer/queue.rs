//! Which file is transferred next. Time is passed in.

use super::places::Found;
use ropewalk_terms::Instant;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The pause behind the first failure of a file; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What is known of a file that is not transferred.
#[derive(Debug)]
struct Waiting {
    found: Found,
    failures: u32,
    /// Not before this.
    due: Instant,
    is_under_way: bool,
    /// It was tried since everything was to be tried once more.
    is_tried: bool,
}

/// The files that are not transferred, in the order of their paths.
#[derive(Debug)]
pub(super) struct Queue {
    files: BTreeMap<PathBuf, Waiting>,
    at_once: usize,
}

impl Queue {
    /// Nothing is known; so many files may be under way at once, one at least.
    pub(super) fn new(at_once: usize) -> Self {
        Self { files: BTreeMap::new(), at_once: at_once.max(1) }
    }

    /// These are there; what is not, somebody took away.
    pub(super) fn found(&mut self, files: impl IntoIterator<Item = Found>) {
        let mut gone = std::mem::take(&mut self.files);
        for found in files {
            let known = gone.remove(&found.path);
            let path = found.path.clone();
            let fresh = Waiting { found, failures: 0, due: Instant::ZERO, is_under_way: false, is_tried: false };
            self.files.insert(path, known.unwrap_or(fresh));
        }
        // How those end is still told.
        self.files.extend(gone.into_iter().filter(|(_, file)| file.is_under_way));
    }

    /// The next file to transfer, if one is due and may begin.
    pub(super) fn next(&mut self, now: Instant) -> Option<Found> {
        if self.files.values().filter(|file| file.is_under_way).count() >= self.at_once {
            return None;
        }
        let file = self.files.values_mut().find(|file| !file.is_under_way && file.due <= now)?;
        file.is_under_way = true;
        Some(file.found.clone())
    }

    /// The file is safe elsewhere.
    pub(super) fn succeeded(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// The attempt failed: the file is tried again after a pause that grows.
    pub(super) fn failed(&mut self, now: Instant, path: &Path) {
        let Some(file) = self.files.get_mut(path) else { return };
        (file.is_under_way, file.is_tried) = (false, true);
        let doublings = file.failures.min(16);
        file.failures += 1;
        file.due = now.after(FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE));
    }

    /// Nobody waits for a pause to end any more.
    pub(super) fn try_everything_once_more(&mut self) {
        for file in self.files.values_mut() {
            (file.due, file.is_tried) = (Instant::ZERO, false);
        }
    }

    /// Each file that is left was tried since then.
    pub(super) fn is_tried(&self) -> bool {
        self.files.values().all(|file| file.is_tried && !file.is_under_way)
    }

    /// Files that are not transferred.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Found {
        Found { path: name.into(), run: 1 }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn next(queue: &mut Queue, seconds: u64) -> Option<String> {
        queue.next(at(seconds)).map(|found| found.path.display().to_string())
    }

    #[test]
    fn a_file_that_fails_waits_twice_as_long_each_time() {
        let mut queue = Queue::new(1);
        queue.found([found("a")]);
        let mut now = at(0);
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert!(queue.next(now).is_some());
            queue.failed(now, Path::new("a"));
            let almost = now.after(Duration::from_millis(pause * 1000 - 1));
            assert!(queue.next(almost).is_none(), "not before {pause} s have passed");
            queue.found([found("a")]);
            assert!(queue.next(almost).is_none(), "to be found again makes nothing sooner");
            now = now.after(Duration::from_secs(pause));
        }
    }

    #[test]
    fn one_that_fails_does_not_hold_up_the_others() {
        let mut queue = Queue::new(1);
        queue.found(["a", "b"].map(found));
        assert_eq!(next(&mut queue, 0).as_deref(), Some("a"));
        assert_eq!(next(&mut queue, 0), None, "one at a time");
        queue.failed(at(0), Path::new("a"));
        assert_eq!(next(&mut queue, 0).as_deref(), Some("b"));
        queue.succeeded(Path::new("b"));
        assert_eq!((next(&mut queue, 0), queue.len()), (None, 1));
        queue.try_everything_once_more();
        assert!(!queue.is_tried());
        assert_eq!(next(&mut queue, 0).as_deref(), Some("a"), "nobody waits at the end");
        queue.failed(at(0), Path::new("a"));
        assert!(queue.is_tried());
    }

    #[test]
    fn so_many_at_once_and_what_is_taken_away_is_forgotten() {
        let mut queue = Queue::new(2);
        queue.found(["a", "b", "c"].map(found));
        let both = [next(&mut queue, 0), next(&mut queue, 0), next(&mut queue, 0)];
        assert_eq!(both.map(Option::unwrap_or_default), ["a", "b", ""]);
        queue.found(["b"].map(found));
        assert_eq!(queue.len(), 2, "c was taken away, and of a it is not known yet how it ends");
        queue.failed(at(0), Path::new("a"));
        queue.found(["b"].map(found));
        assert_eq!(queue.len(), 1);
    }
}
