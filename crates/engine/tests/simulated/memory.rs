//! One held fragment pins its whole block: where little is held in many blocks, it moves.

use super::front_end::content;
use super::referee::Held;
use super::world::{Plan, World};
use ropewalk_terms::{Counter, SourceId};
use std::time::Duration;

/// Events of the runs here.
const EVENTS: u64 = 150;

/// A run in which one source waits for another one, which is slow, and sends each fragment so often that every fragment
/// that is held has a block, or more, for itself.
fn wasteful(seed: u64) -> World {
    let mut world = World::new(Plan { readouts: 1, sources: 2, events: EVENTS, ..Plan::new(seed) });
    world.front_ends[1].pace = Duration::from_millis(8);
    world.front_ends[0].waste = 5 << 10;
    world
}

#[test]
fn fragments_that_pin_a_block_each_move_so_that_their_source_goes_on() {
    for seed in 0..6 {
        let mut world = wasteful(seed);
        world.run_for(Duration::from_millis(200));
        let snapshot = world.snapshot();
        assert!(snapshot.counter(Counter::BytesCopied) > 0, "{}", world.described());
        world.run_to_end();
        let moved = world.snapshot().counter(Counter::BytesCopied);
        let sent: u64 =
            (1..=EVENTS).flat_map(|event| [100, 101].map(|id| content(seed, SourceId(id), event).len() as u64)).sum();
        assert!(moved <= sent, "each moves once at most: {moved} of {sent} bytes");
        // The referee compares every byte; what was sent twice is the only loss.
        let snapshot = world.expect_in_order();
        let fragments = &snapshot.ledger.fragments;
        assert_eq!((fragments.in_complete_events, fragments.lost()), (2 * EVENTS, fragments.duplicate));
        Held::in_storage(&world.storage, seed).expect_all(EVENTS, &world.plan.all_sources());
    }
}

/// Nothing is copied where nothing is pinned.
#[test]
fn nothing_moves_as_long_as_blocks_come_home() {
    for seed in 0..4 {
        let mut world = World::new(Plan::new(seed));
        world.run_to_end();
        assert_eq!(world.snapshot().counter(Counter::BytesCopied), 0);
        world.expect_lossless();
    }
}
