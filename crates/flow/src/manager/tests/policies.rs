//! The policies alone: pure functions of loads.

use crate::manager::tests::hand::config;
use crate::manager::{AssignPolicy, BuilderLoad, ManagerConfigError};

fn load(builder: u16, in_work: u32, free_bytes: u64) -> BuilderLoad {
    BuilderLoad { builder, in_work, free_bytes }
}

#[test]
fn round_robin_goes_on_behind_the_last_one() {
    let all = [load(0, 9, 1), load(1, 0, 9), load(3, 5, 5)];
    let choose = |last| AssignPolicy::RoundRobin.choose(last, all.into_iter());
    assert_eq!(choose(None), Some(0));
    assert_eq!(choose(Some(0)), Some(1));
    assert_eq!(choose(Some(1)), Some(3));
    assert_eq!(choose(Some(2)), Some(3));
    assert_eq!(choose(Some(3)), Some(0));
}

#[test]
fn least_loaded_counts_events_and_takes_turns_among_equals() {
    let all = [load(0, 2, 1), load(1, 2, 9), load(2, 7, 99)];
    let choose = |last| AssignPolicy::LeastLoaded.choose(last, all.into_iter());
    assert_eq!(choose(None), Some(0));
    assert_eq!(choose(Some(0)), Some(1));
    assert_eq!(choose(Some(1)), Some(0));
}

#[test]
fn free_bytes_looks_at_bytes_alone() {
    let all = [load(0, 0, 10), load(1, 50, 11), load(2, 9, 11)];
    let choose = |last| AssignPolicy::FreeBytes.choose(last, all.into_iter());
    assert_eq!(choose(None), Some(1));
    assert_eq!(choose(Some(1)), Some(2));
}

#[test]
fn nobody_is_chosen_of_nobody() {
    for policy in [AssignPolicy::RoundRobin, AssignPolicy::LeastLoaded, AssignPolicy::FreeBytes] {
        assert_eq!(policy.choose(Some(1), [].into_iter()), None);
    }
}

#[test]
fn settings_outside_their_limits_are_named() {
    let good = config(2, 2);
    assert_eq!(good.check(), Ok(()));
    let check = |change: fn(&mut crate::manager::ManagerConfig)| {
        let mut bad = config(2, 2);
        change(&mut bad);
        bad.check()
    };
    assert_eq!(check(|bad| bad.readouts = 0), Err(ManagerConfigError::NoReadouts));
    assert_eq!(check(|bad| bad.builders = 0), Err(ManagerConfigError::NoBuilders));
    assert_eq!(check(|bad| bad.capacity = 100), Err(ManagerConfigError::Capacity(100)));
    assert_eq!(check(|bad| bad.batch = 65), Err(ManagerConfigError::Batch(65)));
    assert_eq!(check(|bad| bad.trigger_readout = Some(2)), Err(ManagerConfigError::TriggerReadout(2)));
}
