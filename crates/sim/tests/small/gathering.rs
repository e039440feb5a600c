//! Campaigns of boards that send an event in several frames.

use crate::seeds;
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
        let digest = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(1), digest(2), "seed {seed}");
        digests.insert(digest(3).expect("nothing is broken"));
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
