//! Where the segments of a run lie: on several disks in turn, open ones and closed ones.

use super::{StorageConfig, StreamStorage};
use ropewalk_io::disk::Disk;
use ropewalk_terms::RunNumber;
use ropewalk_wire::run_file::run_directory_name;
use std::path::{Path, PathBuf};

/// The directories of one stream of a run.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Where segments are written: one directory on each disk.
    open: Vec<PathBuf>,
    /// Where closed ones go, disk by disk; nothing where they stay.
    handed_over: Vec<PathBuf>,
}

impl Places {
    pub(super) fn of(config: &StorageConfig, stream: &StreamStorage, run: RunNumber) -> Self {
        let name = run_directory_name(run);
        let (disks, hand_over) = config.places_of(stream);
        let open = disks.iter().map(|disk| disk.join(&name)).collect();
        // One that is named from the root stays what it is.
        let handed_over = hand_over.iter().flat_map(|place| disks.iter().map(move |disk| disk.join(place))).collect();
        Self { open, handed_over }
    }

    /// Makes the directories that are not there; returns the names of what is in any of them.
    pub(super) fn enter(&self, disk: &mut impl Disk) -> Vec<String> {
        self.open.iter().chain(&self.handed_over).flat_map(|directory| disk.enter_directory(directory)).collect()
    }

    /// One directory on each disk.
    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        self.open.iter().map(PathBuf::as_path)
    }

    /// Whether closed segments are handed over.
    pub(super) const fn hands_over(&self) -> bool {
        !self.handed_over.is_empty()
    }

    /// Where this segment is written.
    pub(super) fn open(&self, segment: u32) -> &Path {
        self.turn(&self.open, segment)
    }

    /// Where it is when it is closed.
    pub(super) fn closed(&self, segment: u32) -> &Path {
        self.turn(if self.handed_over.is_empty() { &self.open } else { &self.handed_over }, segment)
    }

    /// Segments go to the disks in turn; they are counted from 1.
    fn turn<'a>(&self, directories: &'a [PathBuf], segment: u32) -> &'a Path {
        let disks = self.open.len().max(1);
        directories.get((segment.max(1) as usize - 1) % disks).map_or(Path::new(""), PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::storage::tests::config;
    use ropewalk_terms::AcknowledgementLevel;

    #[test]
    fn segments_go_to_the_disks_in_turn() {
        let more_outputs = vec!["/second".into()];
        let config = StorageConfig { more_outputs, ..config(AcknowledgementLevel::Written) };
        let places = Places::of(&config, &StreamStorage::default(), RunNumber(7));
        let [first, second] = ["/data/run000007", "/second/run000007"].map(Path::new);
        assert_eq!([1, 2, 3].map(|segment| places.open(segment)), [first, second, first]);
        assert_eq!(places.closed(2), second, "they stay where they are");

        let config = StorageConfig { hand_over: Some("done".into()), ..config };
        let places = Places::of(&config, &StreamStorage::default(), RunNumber(7));
        assert_eq!(places.open(2), second);
        assert_eq!([1, 2].map(|segment| places.closed(segment)), ["/data/done", "/second/done"].map(Path::new));
    }
    #[test]
    fn a_stream_may_have_disks_of_its_own() {
        let config = StorageConfig { hand_over: Some("done".into()), ..config(AcknowledgementLevel::Written) };
        let outputs = ["/fast", "/faster"].map(PathBuf::from).to_vec();
        let places = Places::of(&config, &StreamStorage { outputs, ..StreamStorage::default() }, RunNumber(7));
        let [fast, faster] = ["/fast/run000007", "/faster/run000007"].map(Path::new);
        assert_eq!([1, 2, 3].map(|segment| places.open(segment)), [fast, faster, fast]);
        assert_eq!(places.closed(2), Path::new("/faster/done"), "as of all streams");
        let stream = StreamStorage { hand_over: Some("/away".into()), ..StreamStorage::default() };
        let places = Places::of(&config, &stream, RunNumber(7));
        assert_eq!((places.open(1), places.closed(1)), (Path::new("/data/run000007"), Path::new("/away")));
    }
}
