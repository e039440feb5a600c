//! Campaigns of a part of the system each: one or two machines as they are, and simulated surroundings.

use ropewalk_sim::campaign::Broken;
use std::fmt::Debug;

/// As many seeds as every test run looks through. `ROPEWALK_INPUTS` sets another number, for a longer look by hand.
fn seeds(usual: u64) -> u64 {
    std::env::var("ROPEWALK_INPUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// What a seed comes to, whose runs are equal.
fn equal_runs<T: PartialEq + Debug>(seed: u64, run: impl Fn() -> Result<T, Broken>) -> T {
    let result = run();
    assert_eq!(result, run(), "seed {seed}");
    result.expect("nothing is broken")
}

/// Campaigns of splitters in processes of their own.
mod dividing {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::dividing::{Mishap, Scenario, World};
    use ropewalk_sim::campaign::run_dividing;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_lost_follows_from_what_went_wrong_and_nobody_waits_for_ever() {
        for seed in 0..seeds(300) {
            let scenario = Scenario::draw(seed);
            assert_eq!(run_dividing(scenario.clone()), None, "seed {seed}: {scenario:#?}");
        }
    }

    #[test]
    fn a_seed_is_a_run_and_each_mishap_is_drawn() {
        let mut digests = BTreeSet::new();
        let mut kinds = BTreeSet::new();
        for seed in 0..40 {
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
            let mishaps = Scenario::draw(seed).boards.into_iter().flat_map(|board| board.mishaps.into_values());
            kinds.extend(mishaps.map(|mishap| match mishap {
                Mishap::Crash(_) => "crash",
                Mishap::Hang(_) => "hang",
                Mishap::Lie(_) => "lie",
                Mishap::Malformed => "malformed",
            }));
        }
        assert!(digests.len() > 35, "different seeds are different runs");
        assert_eq!(kinds.len(), 4);
    }
}

/// Campaigns of boards whose event numbers are wrong.
mod numbering {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::numbering::{Mishap, Scenario, World};
    use ropewalk_sim::campaign::run_numbering;
    use std::collections::BTreeSet;

    /// The same failure with as few mishaps as possible.
    fn shrunk(mut scenario: Scenario) -> Scenario {
        let fails = |scenario: &Scenario| run_numbering(scenario.clone()).is_some();
        for board in 0..scenario.boards.len() {
            let mut smaller = scenario.clone();
            smaller.boards[board].left_over = None;
            if fails(&smaller) {
                scenario = smaller;
            }
            for event in scenario.boards[board].mishaps.keys().copied().collect::<Vec<_>>() {
                let mut smaller = scenario.clone();
                smaller.boards[board].mishaps.remove(&event);
                if fails(&smaller) {
                    scenario = smaller;
                }
            }
        }
        for board in (0..scenario.boards.len()).rev() {
            let mut smaller = scenario.clone();
            smaller.boards.remove(board);
            // Left-overs are known by what most boards show.
            if scenario.is_first_given && !smaller.boards.is_empty() && fails(&smaller) {
                scenario = smaller;
            }
        }
        scenario
    }

    #[test]
    fn bad_numbers_cost_one_fragment_each_and_pair_nothing_wrongly() {
        let failed = (0..seeds(400)).filter(|&seed| run_numbering(Scenario::draw(seed)).is_some());
        let words: Vec<String> = failed
            .map(|seed| {
                let scenario = shrunk(Scenario::draw(seed));
                let broken = run_numbering(scenario.clone()).map(|broken| broken.to_string());
                format!("seed {seed}: {}\n{scenario:?}", broken.unwrap_or_default())
            })
            .collect();
        assert!(words.is_empty(), "{} seeds failed:\n{}", words.len(), words.join("\n"));
    }

    #[test]
    fn a_seed_is_a_run_and_everything_is_drawn() {
        let (mut digests, mut widths, mut mishaps) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for seed in 0..40 {
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
            let scenario = Scenario::draw(seed);
            widths.insert(scenario.width);
            mishaps.extend(scenario.boards.iter().flat_map(|board| board.mishaps.values()).map(
                |mishap| match mishap {
                    Mishap::Flip { is_shown: true, .. } => "flip with a checksum",
                    Mishap::Flip { .. } => "flip",
                    Mishap::Damage => "damage",
                    Mishap::Gap(_) => "gap",
                    Mishap::Twice => "twice",
                    Mishap::Swap => "swap",
                    Mishap::Restart => "restart",
                },
            ));
        }
        assert!(digests.len() > 35, "different seeds are different runs");
        assert_eq!((widths.len(), mishaps.len()), (4, 7));
    }
}

/// Campaigns of sources that push packets whose numbers are wrong.
mod packet_numbers {
    use super::seeds;
    use ropewalk_sim::campaign::packet_numbers::{Mishap, Scenario, World};
    use ropewalk_sim::campaign::run_packet_numbers;

    #[test]
    fn bad_packets_cost_themselves_and_are_in_no_other_set() {
        let broken = (0..seeds(400)).filter_map(|seed| Some((seed, run_packet_numbers(Scenario::draw(seed))?)));
        assert_eq!(broken.map(|(seed, broken)| format!("{seed}: {broken}")).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn each_mishap_is_drawn() {
        let all: Vec<Mishap> =
            (0..100).flat_map(|seed| Scenario::draw(seed).mishaps).flat_map(|one| one.into_values()).collect();
        let kinds: [fn(&Mishap) -> bool; 5] = [
            |one| matches!(one, Mishap::Flip(_)),
            |one| matches!(one, Mishap::Gap(_)),
            |one| matches!(one, Mishap::Twice),
            |one| matches!(one, Mishap::Swap),
            |one| matches!(one, Mishap::Restart(_)),
        ];
        assert!(kinds.into_iter().all(|kind| all.iter().any(kind)));
    }

    #[test]
    fn equal_seeds_have_equal_histories() {
        let digest = |seed| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().expect("a good seed");
            world.digest()
        };
        assert_eq!((1..20).map(digest).collect::<Vec<_>>(), (1..20).map(digest).collect::<Vec<_>>());
    }
}

/// Campaigns of boards whose event numbers grow, and of their black boxes.
mod growing {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::growing::{Ending, Mishap, Scenario, World};
    use ropewalk_sim::campaign::run_growing;
    use std::collections::BTreeSet;

    #[test]
    fn events_are_of_one_pulse_and_recordings_are_what_came() {
        let broken = |seed| Some((seed, run_growing(Scenario::draw(seed))?));
        let all: Vec<_> = (0..seeds(300)).filter_map(broken).collect();
        assert!(
            all.is_empty(),
            "{all:#?}\nthe first of them: {:#?}",
            all.first().map(|(seed, _)| Scenario::draw(*seed))
        );
    }

    #[test]
    fn a_seed_is_a_run_and_everything_is_drawn() {
        let (mut digests, mut drawn) = (BTreeSet::new(), BTreeSet::new());
        for seed in 0..40 {
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
            let scenario = Scenario::draw(seed);
            drawn.extend(scenario.set_back.map(|_| "set back"));
            drawn.extend(scenario.boards.iter().filter(|board| board.left_overs > 0).map(|_| "left-overs"));
            drawn.extend((scenario.bits < 64).then_some("wrap"));
            drawn.insert(match scenario.ending {
                Ending::Last => "last",
                Ending::Stop(_) => "stop",
                Ending::Force(_) => "force",
            });
            let mishaps = scenario.boards.into_iter().flat_map(|board| board.mishaps.into_values());
            drawn.extend(mishaps.map(|mishap| match mishap {
                Mishap::Restart { .. } => "restart",
                Mishap::Silent { .. } => "silent",
                Mishap::CutOff => "cut off",
                Mishap::Damage => "damage",
                Mishap::Jump => "jump",
                Mishap::Noise => "noise",
                Mishap::Outliers { .. } => "outliers",
                Mishap::Overtaken { .. } => "overtaken",
            }));
        }
        assert!(digests.len() > 35, "different seeds are different runs");
        assert_eq!(drawn.len(), 14);
    }
}

/// Campaigns of boards that send an event in several frames.
mod gathering {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::gathering::{Break, Scenario, World};
    use ropewalk_sim::campaign::run_gathering;
    use std::collections::BTreeSet;

    #[test]
    fn a_fragment_holds_the_frames_of_its_event_and_says_where_others_are_missing() {
        for seed in 0..seeds(300) {
            let scenario = Scenario::draw(seed);
            assert_eq!(run_gathering(scenario.clone()), None, "seed {seed}: {scenario:#?}");
        }
    }

    #[test]
    fn a_seed_is_a_run_and_everything_is_drawn() {
        let (mut digests, mut styles, mut breaks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for seed in 0..40 {
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
            let scenario = Scenario::draw(seed);
            styles.insert(scenario.style);
            breaks.extend(scenario.boards.iter().flat_map(|board| board.breaks.values()).map(|behind| match behind {
                Break::Short => "short",
                Break::Long => "long",
                Break::HangUp => "hangs up",
            }));
        }
        assert!(digests.len() > 35, "different seeds are different runs");
        assert_eq!((styles.len(), breaks.len()), (3, 3));
    }
}

/// Campaigns of filter units in processes of their own.
mod filtering {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::filtering::{Mishap, Scenario, World};
    use ropewalk_sim::campaign::run_filtering;
    use std::collections::BTreeSet;

    #[test]
    fn every_event_is_decided_once_whatever_becomes_of_filter_units() {
        for seed in 0..seeds(300) {
            let scenario = Scenario::draw(seed);
            assert_eq!(run_filtering(scenario.clone()), None, "seed {seed}: {scenario:#?}");
        }
    }

    #[test]
    fn every_event_is_decided_once_whatever_becomes_of_filter_units_on_other_machines() {
        for seed in 0..seeds(300) {
            let scenario = Scenario::draw_remote(seed);
            assert_eq!(run_filtering(scenario.clone()), None, "seed {seed}: {scenario:#?}");
        }
    }

    #[test]
    fn connections_are_lost_in_many_seeds_and_in_no_quiet_one() {
        let lost = |seed| {
            let mut world = World::new(Scenario::draw_remote(seed));
            world.run().map(|()| world.lost_connections()).expect("nothing is broken")
        };
        let lost: Vec<usize> = (0..60).map(lost).collect();
        assert_eq!(lost.iter().step_by(4).sum::<usize>(), 0);
        assert!(lost.iter().filter(|&&lost| lost > 0).count() > 25, "{lost:?}");
    }

    #[test]
    fn a_seed_is_a_run_and_each_mishap_is_drawn() {
        let mut digests = BTreeSet::new();
        let mut kinds = BTreeSet::new();
        for seed in 0..40 {
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
            kinds.extend(Scenario::draw(seed).mishaps.into_values().map(|mishap| match mishap {
                Mishap::Crash(_) => "crash",
                Mishap::Hang(_) => "hang",
                Mishap::Slow(_) => "slow",
                Mishap::Lie(_) => "lie",
                Mishap::Undecided => "undecided",
            }));
        }
        assert!(digests.len() > 35, "different seeds are different runs");
        assert_eq!(kinds.len(), 5);
    }
}

/// Campaigns of files of events as a builder unit writes them.
mod writing {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::run_writing;
    use ropewalk_sim::campaign::writing::{Scenario, World};
    use std::collections::BTreeSet;

    #[test]
    fn every_event_is_in_a_file_that_is_whole_whenever_the_process_dies() {
        for seed in 0..seeds(300) {
            let scenario = Scenario::draw(seed);
            assert_eq!(run_writing(scenario.clone()), None, "seed {seed}: {scenario:#?}");
        }
    }

    #[test]
    fn a_seed_is_a_run_and_everything_is_drawn() {
        let mut digests = BTreeSet::new();
        let (mut deaths, mut torn, mut refused) = (0, 0, 0);
        for seed in 0..60 {
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
            let Scenario { deaths: died, faults, .. } = Scenario::draw(seed);
            deaths += u32::from(!died.is_empty());
            torn += u32::from(faults.torn_append > 0.0);
            refused += u32::from(faults.write_error + faults.name_error > 0.0);
        }
        assert!(digests.len() > 50, "different seeds are different runs");
        assert!([deaths, torn, refused].iter().all(|&count| (10..60).contains(&count)), "{deaths} {torn} {refused}");
    }
}

/// Campaigns of files between builder units and filter units.
mod filing {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::filing::{Scenario, World};
    use ropewalk_sim::campaign::run_filing;
    use std::collections::BTreeSet;

    #[test]
    fn every_event_of_every_file_has_one_fate_whoever_dies() {
        for seed in 0..seeds(1000) {
            let scenario = Scenario::draw(seed);
            assert_eq!(run_filing(scenario.clone()), None, "seed {seed}: {scenario:#?}");
        }
    }

    #[test]
    fn a_seed_is_a_run_and_everything_is_drawn() {
        let (mut digests, mut units) = (BTreeSet::new(), BTreeSet::new());
        let (mut deaths, mut hangs, mut broker_deaths, mut refusals) = (0, 0, 0, 0);
        for seed in 0..60 {
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
            let scenario = Scenario::draw(seed);
            units.insert(scenario.units);
            deaths += u32::from(scenario.deaths > 0);
            hangs += u32::from(scenario.hangs > 0);
            broker_deaths += u32::from(scenario.broker_deaths > 0);
            refusals += u32::from(scenario.refusals > 0);
        }
        assert!(digests.len() > 50, "different seeds are different runs");
        assert_eq!(units, (1..=4).collect());
        assert!([deaths, hangs, broker_deaths, refusals].iter().all(|&count| (10..60).contains(&count)));
    }
}

/// Campaigns of run files in several streams.
mod storing {
    use super::{equal_runs, seeds};
    use ropewalk_io::disk::SimulatedStorage;
    use ropewalk_sim::campaign::run_storing;
    use ropewalk_sim::campaign::storing::{Accident, Scenario, World};
    use ropewalk_terms::AcknowledgementLevel;
    use ropewalk_tools::{recover, verify};
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
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
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
}

/// Campaigns of front ends under run control.
mod front_ends {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::controlled::{Mishap, Scenario, World};
    use ropewalk_sim::campaign::run_controlled;
    use ropewalk_wire::front_end::{CONTROL_VERSION, Kind};
    use std::collections::BTreeSet;

    #[test]
    fn every_run_begins_and_ends_in_order_whatever_happens_to_programs() {
        for seed in 0..seeds(500) {
            let scenario = Scenario::draw(seed);
            assert_eq!(run_controlled(scenario.clone()), None, "seed {seed}: {scenario:#?}");
        }
    }

    #[test]
    fn a_seed_is_a_run_and_each_mishap_is_drawn() {
        let mut digests = BTreeSet::new();
        let mut kinds = BTreeSet::new();
        let (mut paused, mut old, mut deaf) = (0, 0, BTreeSet::new());
        for seed in 0..60 {
            let digest = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.digest())
            });
            digests.insert(digest);
            let scenario = Scenario::draw(seed);
            paused += usize::from(!scenario.pauses.is_empty());
            old += usize::from(scenario.programs[0].version < CONTROL_VERSION);
            deaf.extend(scenario.programs.iter().filter_map(|program| program.deaf_to).map(|kind| kind as u8));
            kinds.extend(scenario.mishaps.into_iter().map(|(_, _, _, mishap)| match mishap {
                Mishap::Reset => "reset",
                Mishap::HalfOpen => "half open",
                Mishap::Kill(_) => "kill",
            }));
        }
        assert!(digests.len() > 55, "different seeds are different runs");
        assert_eq!(kinds.len(), 3);
        assert!(
            paused > 30 && (1..20).contains(&old),
            "{paused} with pauses, {old} with a trigger source that knows none"
        );
        assert!([Kind::Hold, Kind::Release].iter().any(|&kind| deaf.contains(&(kind as u8))), "{deaf:?}");
    }
}

/// Campaigns of run control as operators have it.
mod operating {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::operating::{Scenario, World};
    use ropewalk_sim::campaign::run_operating;

    #[test]
    fn every_command_is_answered_with_the_truth_and_every_stop_finishes() {
        for seed in 0..seeds(2000) {
            let scenario = Scenario::draw(seed);
            assert_eq!(run_operating(scenario.clone()), None, "seed {seed}: {scenario:#?}");
        }
    }

    #[test]
    fn every_kind_of_answer_is_given_and_a_seed_is_a_run() {
        let mut sum = [0; 7];
        for seed in 0..400 {
            let answers = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.answers())
            });
            sum.iter_mut().zip(answers).for_each(|(sum, count)| *sum += count);
        }
        assert!(sum.iter().all(|&count| count > 10), "{sum:?}");
    }
}

/// Campaigns of settings of a host that are changed and taken back.
mod tuning {
    use super::{equal_runs, seeds};
    use ropewalk_sim::campaign::run_tuning;
    use ropewalk_sim::campaign::tuning::{Act, Scenario, World};
    use std::collections::BTreeSet;

    #[test]
    fn whatever_happens_the_old_values_come_back() {
        for seed in 0..seeds(3000) {
            let scenario = Scenario::draw(seed);
            assert_eq!(run_tuning(scenario.clone()), None, "seed {seed}: {scenario:#?}");
        }
    }

    #[test]
    fn everything_is_drawn_and_a_seed_is_a_run() {
        let (mut sum, mut drawn) = ([0; 6], BTreeSet::new());
        for seed in 0..300 {
            let counts = equal_runs(seed, || {
                let mut world = World::new(Scenario::draw(seed));
                world.run().map(|()| world.counts())
            });
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            drawn.extend(Scenario::draw(seed).acts.iter().map(|act| match act {
                Act::Apply { .. } => "apply",
                Act::Undo { .. } => "undo",
                Act::Foreign(..) => "foreign",
                Act::Restart(None) => "restart",
                Act::Restart(Some(_)) => "surprise",
            }));
        }
        assert!(sum.iter().all(|&count| count > 10), "{sum:?}");
        assert_eq!(drawn.len(), 5);
    }
}

/// Campaigns of alarms, and of findings about what limits a run.
mod watching {
    use super::seeds;
    use ropewalk_sim::campaign::run_watching;
    use ropewalk_sim::campaign::watching::Scenario;

    #[test]
    fn alarms_are_what_the_documentation_says_and_what_limits_a_run_is_named_within_seconds() {
        for seed in 0..seeds(2000) {
            let scenario = Scenario::draw(seed);
            assert_eq!(run_watching(&scenario), None, "seed {seed}: {scenario:#?}");
        }
    }
}
