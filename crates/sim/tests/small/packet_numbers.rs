//! Campaigns of sources that push packets whose numbers are wrong.

use crate::seeds;
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
