//! Campaigns of boards whose event numbers grow, and of their black boxes.

use crate::seeds;
use ropewalk_sim::campaign::growing::{Ending, Mishap, Scenario, World};
use ropewalk_sim::campaign::run_growing;
use std::collections::BTreeSet;

#[test]
fn events_are_of_one_pulse_and_recordings_are_what_came() {
    let broken = |seed| Some((seed, run_growing(Scenario::draw(seed))?));
    let all: Vec<_> = (0..seeds(300)).filter_map(broken).collect();
    assert!(all.is_empty(), "{all:#?}\nthe first of them: {:#?}", all.first().map(|(seed, _)| Scenario::draw(*seed)));
}

#[test]
fn a_seed_is_a_run_and_everything_is_drawn() {
    let (mut digests, mut drawn) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..40 {
        let digest = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(1), digest(2), "seed {seed}");
        digests.insert(digest(3).expect("nothing is broken"));
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
