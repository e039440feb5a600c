//! Each direction of a connection ends on its own.

use ropewalk_io::{BrokenCause, Dispatcher, SendError};

use crate::world::{Last, Mechanism, Sizes, World};

fn two_nodes<M: Mechanism>() -> World<M> {
    World::new(&[Sizes::default(); 2])
}

pub(crate) fn a_side_that_has_finished_still_receives<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.nodes[1].dispatcher.set_half_close(there, true);
    world.send(0, here, 3_000_000, 10_000).expect("an empty queue takes any size");
    world.nodes[0].dispatcher.finish(here);
    assert_eq!(world.send(0, here, 1, 1), Err(SendError::Closed));
    assert_eq!(world.nodes[0].dispatcher.send_room(here), 0);
    world.run_until("the end of the question", |world| world.seen(1, there).finished);
    assert_eq!(world.seen(1, there).received, 3_000_000, "what was queued comes first");
    world.settle();
    world.send_all(1, there, 2_000_000, 50_000, 1_000);
    world.nodes[1].dispatcher.finish(there);
    assert_eq!(world.until_ended(1, there), Last::Disconnected);
    assert_eq!(world.until_ended(0, here), Last::Disconnected);
    assert_eq!(world.seen(0, here).received, 2_000_000, "the whole answer");
    assert!(!world.seen(0, here).finished, "the end of the answer is the connection's");
    world.finish();
}

pub(crate) fn whoever_does_not_care_for_half_a_connection_ends_with_the_peer<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.send(0, here, 1_000, 100).expect("room in an empty queue");
    world.nodes[0].dispatcher.finish(here);
    assert_eq!(world.until_ended(1, there), Last::Disconnected);
    assert_eq!((world.seen(1, there).received, world.seen(1, there).finished), (1_000, false));
    assert_eq!(world.until_ended(0, here), Last::Disconnected);
    world.finish();
}

pub(crate) fn both_sides_may_finish_at_once_and_everything_arrives<M: Mechanism>() {
    const LENGTH: usize = 5 << 20;
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    for (node, endpoint) in [(0, here), (1, there)] {
        world.send(node, endpoint, LENGTH, 10_000).expect("an empty queue takes any size");
        world.nodes[node].dispatcher.finish(endpoint);
        world.nodes[node].dispatcher.finish(endpoint);
    }
    assert_eq!(world.until_ended(0, here), Last::Disconnected);
    assert_eq!(world.until_ended(1, there), Last::Disconnected);
    assert_eq!((world.seen(0, here).received, world.seen(1, there).received), (LENGTH, LENGTH));
    world.finish();
}

pub(crate) fn closing_after_half_a_connection_ended_sends_what_is_queued<M: Mechanism>() {
    const LENGTH: usize = 5 << 20;
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.nodes[1].dispatcher.set_half_close(there, true);
    world.nodes[0].dispatcher.finish(here);
    world.run_until("the peer's end", |world| world.seen(1, there).finished);
    world.send(1, there, LENGTH, 10_000).expect("an empty queue takes any size");
    world.nodes[1].dispatcher.close(there);
    assert_eq!(world.until_ended(0, here), Last::Disconnected);
    assert_eq!(world.seen(0, here).received, LENGTH);
    assert_eq!(world.until_ended(1, there), Last::Disconnected);
    world.finish();
}

pub(crate) fn a_peer_that_finished_and_then_aborts_breaks_the_connection<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.nodes[1].dispatcher.set_half_close(there, true);
    world.nodes[0].dispatcher.finish(here);
    world.run_until("the peer's end", |world| world.seen(1, there).finished);
    world.abort(0, here);
    world.send(1, there, 4 << 20, 10_000).expect("nobody knows yet");
    assert_eq!(world.until_ended(1, there), Last::Broken(BrokenCause::Reset));
    world.finish();
}
