//! Campaigns of those who watch a run.

use crate::seeds;
use ropewalk_sim::campaign::run_watching;
use ropewalk_sim::campaign::watching::Scenario;

#[test]
fn alarms_are_what_the_documentation_says_and_what_limits_a_run_is_named_within_seconds() {
    for seed in 0..seeds(2000) {
        let scenario = Scenario::draw(seed);
        assert_eq!(run_watching(&scenario), None, "seed {seed}: {scenario:#?}");
    }
}
