//! Campaigns of run control as operators have it.

use crate::seeds;
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
        let answers = |_| {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.answers())
        };
        assert_eq!(answers(1), answers(2), "seed {seed}");
        let answers = answers(3).expect("nothing is broken");
        sum.iter_mut().zip(answers).for_each(|(sum, count)| *sum += count);
    }
    assert!(sum.iter().all(|&count| count > 10), "{sum:?}");
}
