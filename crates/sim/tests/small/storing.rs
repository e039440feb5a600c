//! Campaigns of run files in several streams.

use crate::seeds;
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_node::offline::{recover, verify};
use ropewalk_sim::campaign::run_storing;
use ropewalk_sim::campaign::storing::{Accident, Scenario, World};
use ropewalk_terms::AcknowledgementLevel;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn what_is_acknowledged_is_in_each_of_its_streams_whatever_happens() {
    for seed in 0..seeds(300) {
        let scenario = Scenario::draw(seed);
        assert_eq!(run_storing(scenario.clone()), None, "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_everything_is_drawn() {
    let (mut digests, mut streams, mut accidents, mut levels) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for seed in 0..40 {
        let digest = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(1), digest(2), "seed {seed}");
        digests.insert(digest(3).expect("nothing is broken"));
        let scenario = Scenario::draw(seed);
        streams.insert(scenario.streams);
        accidents.extend(scenario.accidents.into_values());
        levels.insert(scenario.level);
    }
    assert!(digests.len() > 35, "different seeds are different runs");
    assert_eq!(streams, (1..=4).collect());
    assert_eq!(accidents, [Accident::Death, Accident::PowerCut].into());
    assert_eq!(levels, [AcknowledgementLevel::Written, AcknowledgementLevel::Synced].into());
}

/// What recovery makes of the files of a process that died is whole.
#[test]
fn files_of_dead_processes_are_recovered_whole() {
    for seed in 0..seeds(300) / 6 {
        let scenario = Scenario::draw(seed);
        let mut world = World::new(scenario);
        assert_eq!(world.run(), Ok(()), "seed {seed}");
        let directory = Directory::of(world.medium(), seed);
        recover(&directory.0).expect("everything can be recovered");
        let report = verify(&[&directory.0]).expect("there are segments");
        assert!(report.is_intact(), "seed {seed}: {report:#?}");
    }
}

/// Files of a simulated disk as files of this machine, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn of(medium: &SimulatedStorage, seed: u64) -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("ropewalk-storing-{}-{seed}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        for file in medium.paths() {
            let bytes = medium.read(&file).expect("the medium is readable");
            let name = file.file_name().expect("a file has a name");
            fs::write(path.join(name), bytes).expect("the temporary directory is writable");
        }
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
