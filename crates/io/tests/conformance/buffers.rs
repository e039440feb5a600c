//! What a user may say about queues and buffers: marks, posted blocks, and that nobody starves.

use ropewalk_io::{Dispatcher, SendError, SendLimits};
use ropewalk_memory::{Owner, Pool};

use crate::pools::{is_full, pool};
use crate::world::{Mechanism, Sizes, World};

fn two_nodes<M: Mechanism>() -> World<M> {
    World::new(&[Sizes::default(); 2])
}

pub(crate) fn a_queue_tells_once_that_it_is_high_and_once_that_it_is_low<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.nodes[1].dispatcher.set_reading(there, false);
    let limits = SendLimits { bound: 64 << 20, high: 32 << 20, low: 1 << 20 };
    world.nodes[0].dispatcher.set_send_limits(here, limits);
    while world.seen(0, here).sent < 60 << 20 {
        world.send(0, here, 1 << 20, 60_000).expect("below the bound");
        world.step();
    }
    world.settle();
    assert_eq!((world.seen(0, here).highs, world.seen(0, here).lows), (1, 0));
    assert_eq!(world.send(0, here, 64 << 20, 60_000), Err(SendError::Full), "the bound is another matter");
    world.nodes[1].dispatcher.set_reading(there, true);
    world.run_until("the queue is low", |world| world.seen(0, here).lows > 0);
    assert!(world.nodes[0].dispatcher.queued(here) <= 1 << 20);
    world.until_received(1, there, 60 << 20);
    world.settle();
    assert_eq!((world.seen(0, here).highs, world.seen(0, here).lows), (1, 1));
    world.finish();
}

/// Posts a block of each of these sizes, and looks at how what comes is cut into them.
pub(crate) fn posted_blocks_of_every_size_are_filled_in_order_to_the_last_byte<M: Mechanism>() {
    let sizes = [1, 2, 3, 7, 100, 4_095, 4_096, 4_097, 65_536, 9];
    let total: usize = sizes.iter().sum();
    let mut pools: Vec<Pool> = sizes.iter().map(|&size| pool("posted", size, 1)).collect();
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.nodes[1].keeps = true;
    for pool in &mut pools {
        let block = pool.loan(Owner::SHARED).expect("the pool's only block");
        let posted = world.nodes[1].dispatcher.post_block(there, block);
        assert_eq!(posted.is_ok(), M::HAS_POOL, "where bytes come in the peer's blocks it comes back");
    }
    if !M::HAS_POOL {
        return world.finish();
    }
    world.send(0, here, 2 * total, 10_000).expect("an empty queue takes any size");
    world.run_until("all posted blocks are full", |world| world.seen(1, there).received >= total);
    world.run_until("there is none", |world| world.nodes[1].dispatcher.is_dry(there));
    assert_eq!(world.seen(1, there).received, total, "into posted blocks alone");
    let kept = core::mem::take(&mut world.nodes[1].kept);
    for (pool, &size) in pools.iter_mut().zip(&sizes) {
        let filled: usize = kept.iter().filter(|slice| slice.pool() == pool.id()).map(|slice| slice.len()).sum();
        assert_eq!((filled, is_full(pool)), (size, false));
    }
    drop(kept);
    assert!(pools.iter_mut().all(is_full), "the endpoint holds none of those that are full");
    world.nodes[1].keeps = false;
    let mut larger = pool("larger", total + 1, 2);
    for _ in 0..2 {
        let block = larger.loan(Owner::SHARED).expect("two blocks");
        assert!(world.nodes[1].dispatcher.post_block(there, block).is_ok());
    }
    world.until_received(1, there, 2 * total);
    world.finish();
    assert!(is_full(&mut larger), "what was not filled came back when the endpoint ended");
}

pub(crate) fn an_ended_endpoint_takes_no_block<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, _) = world.connected_pair(0, 1);
    world.nodes[0].dispatcher.close(here);
    world.until_ended(0, here);
    let mut pool = pool("posted", 100, 1);
    let block = pool.loan(Owner::SHARED).expect("the pool's only block");
    assert!(world.nodes[0].dispatcher.post_block(here, block).is_err());
    assert!(is_full(&mut pool));
    world.finish();
}

/// One sender has always more to send; the other's few bytes must come through within a bounded number of polls.
pub(crate) fn an_endpoint_that_floods_does_not_starve_another<M: Mechanism>() {
    let sizes = Sizes { receive_batch: 10_000, ..Sizes::default() };
    let mut world = World::<M>::new(&[Sizes::default(), sizes]);
    let (flood, _) = world.connected_pair(0, 1);
    let (quiet, quiet_there) = world.connected_pair(0, 1);
    let keep_flooding = |world: &mut World<M>| while world.send(0, flood, 100_000, 50_000).is_ok() {};
    for round in 1..=20 {
        keep_flooding(&mut world);
        world.step();
        world.send(0, quiet, 100, 100).expect("room");
        let mut polls = 0;
        while world.seen(1, quiet_there).received < 100 * round {
            keep_flooding(&mut world);
            world.go_on();
            polls += 1;
            assert!(polls < 5_000, "it starves in round {round}");
        }
    }
    world.finish();
}

/// However much the transport has taken in already: nothing is delivered while reading is off, and nothing is lost.
pub(crate) fn what_came_before_reading_stopped_is_delivered_when_it_goes_on<M: Mechanism>() {
    let sizes = Sizes { block: 10_000, receive_batch: 1_000, ..Sizes::default() };
    let mut world = World::<M>::new(&[Sizes::default(), sizes]);
    let (here, there) = world.connected_pair(0, 1);
    world.send(0, here, 200_000, 5_000).expect("room in an empty queue");
    for part in 1..=5 {
        world.run_until("a part", |world| world.seen(1, there).received >= part * 20_000);
        world.nodes[1].dispatcher.set_reading(there, false);
        let before = world.seen(1, there).received;
        world.settle();
        assert_eq!(world.seen(1, there).received, before);
        world.nodes[1].dispatcher.set_reading(there, true);
    }
    world.until_received(1, there, 200_000);
    world.finish();
}

/// Each is busy for a while and is given blocks for that; then come the next ones, and there are few blocks.
pub(crate) fn endpoints_that_have_become_quiet_leave_the_pool_to_the_others<M: Mechanism>() {
    let sizes = Sizes { block: 10_000, blocks: 8, receive_batch: 50_000, ..Sizes::default() };
    let mut world = World::<M>::new(&[Sizes::default(), sizes]);
    for _ in 0..6 {
        let (here, there) = world.connected_pair(0, 1);
        world.send(0, here, 503_000, 10_000).expect("room in an empty queue");
        world.until_received(1, there, 503_000);
    }
    world.finish();
}
