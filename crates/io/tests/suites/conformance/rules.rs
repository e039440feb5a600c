//! Rules for every mechanism: connections, bytes in order, buffers and back-pressure, and ends of one direction.

use ropewalk_io::{BrokenCause, ConnectCause, Dispatcher, Endpoint, EndpointError, Parcel, SendError, SendLimits};
use ropewalk_memory::{Owner, Pool};

use super::world::{Last, Mechanism, Sizes, World, is_full, pool};

fn two_nodes<M: Mechanism>() -> World<M> {
    World::new(&[Sizes::default(); 2])
}

pub(crate) fn both_sides_are_established_and_closed_in_order<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.nodes[0].dispatcher.close(here);
    assert_eq!(world.until_ended(1, there), Last::Disconnected);
    assert_eq!(world.until_ended(0, here), Last::Disconnected);
    world.finish();
}

pub(crate) fn both_sides_may_close_at_once<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.nodes[0].dispatcher.close(here);
    world.nodes[1].dispatcher.close(there);
    assert_eq!(world.until_ended(0, here), Last::Disconnected);
    assert_eq!(world.until_ended(1, there), Last::Disconnected);
    world.finish();
}

pub(crate) fn connecting_without_a_listener_is_refused<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let endpoint = world.connect(0, M::NO_LISTENER);
    assert_eq!(world.until_ended(0, endpoint), Last::Failed(ConnectCause::Refused));
    world.finish();
}

pub(crate) fn a_rejected_connection_ends<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    world.nodes[1].answers = false;
    let address = world.listen(1);
    let here = world.connect(0, &address);
    world.run_until("a request", |world| !world.nodes[1].requests.is_empty());
    let (_, there) = world.nodes[1].requests[0];
    world.nodes[1].dispatcher.reject(there);
    world.nodes[1].seen.get_mut(&there).expect("the requested endpoint").last = Some(Last::Dropped);
    let expected =
        if M::TELLS_REJECTION { Last::Failed(ConnectCause::Rejected) } else { Last::Broken(BrokenCause::Reset) };
    assert_eq!(world.until_ended(0, here), expected);
    world.finish();
}

pub(crate) fn nothing_is_sent_before_it_is_established_or_after_it_has_ended<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let address = world.listen(1);
    let here = world.connect(0, &address);
    assert_eq!(world.send(0, here, 10, 10), Err(SendError::Closed));
    assert_eq!(world.nodes[0].dispatcher.send_room(here), 0);
    world.run_until("established", |world| world.seen(0, here).established);
    world.send(0, here, 10, 10).expect("room in an empty queue");
    world.nodes[0].dispatcher.close(here);
    assert_eq!(world.send(0, here, 10, 10), Err(SendError::Closed));
    world.until_ended(0, here);
    assert_eq!(world.send(0, here, 10, 10), Err(SendError::Closed));
    assert_eq!((world.nodes[0].dispatcher.queued(here), world.nodes[0].dispatcher.send_room(here)), (0, 0));
    world.finish();
}

pub(crate) fn an_ended_endpoint_never_touches_its_successor<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (old, _) = world.connected_pair(0, 1);
    world.nodes[0].dispatcher.close(old);
    world.until_ended(0, old);
    world.settle();
    let (new, there) = world.connected_pair(0, 1);
    assert_eq!(new.index(), old.index(), "the index is used again, otherwise this tests nothing");
    assert_ne!(new, old);
    let dispatcher = &mut world.nodes[0].dispatcher;
    dispatcher.abort(old);
    dispatcher.close(old);
    dispatcher.reject(old);
    dispatcher.accept(old);
    dispatcher.set_reading(old, false);
    assert_eq!(world.send(0, old, 10, 10), Err(SendError::Closed));
    world.send(0, new, 1000, 100).expect("room in an empty queue");
    world.until_received(1, there, 1000);
    world.finish();
}

pub(crate) fn closing_before_it_is_established_ends_it_once<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    world.nodes[1].answers = false;
    let address = world.listen(1);
    let here = world.connect(0, &address);
    world.nodes[0].dispatcher.close(here);
    assert_eq!(world.until_ended(0, here), Last::Disconnected);
    let other = world.connect(0, &address);
    world.run_until("the other's request", |world| world.nodes[1].seen.len() == 2 || world.seen(0, other).established);
    world.settle();
    for (_, endpoint) in core::mem::take(&mut world.nodes[1].requests) {
        world.nodes[1].dispatcher.close(endpoint);
        assert_eq!(world.until_ended(1, endpoint), Last::Disconnected);
    }
    world.until_ended(0, other);
    world.finish();
}

pub(crate) fn wrong_addresses_are_refused_with_words<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let address = world.listen(1);
    let taken = world.nodes[0].dispatcher.listen(&address).expect_err("the address is taken");
    assert!(matches!(taken, EndpointError::AddressInUse { .. }), "{taken}");
    let bad = world.nodes[0].dispatcher.listen("").expect_err("no address");
    assert!(matches!(bad, EndpointError::BadAddress { .. }), "{bad}");
    world.finish();
}

/// Many sizes of messages and cuts, in both directions at once.
pub(crate) fn bytes_arrive_in_order_however_they_are_cut<M: Mechanism>() {
    let sizes = Sizes { block: 9_999, ..Sizes::default() };
    let mut world = World::<M>::new(&[sizes; 2]);
    let (here, there) = world.connected_pair(0, 1);
    for round in 0..300 {
        let (length, cut) = (1 + round * round % 7_919, 1 + round * 37 % 1_500);
        while world.send(0, here, length, cut) == Err(SendError::Full) {
            world.go_on();
        }
        while world.send(1, there, 2 * length, cut) == Err(SendError::Full) {
            world.go_on();
        }
        if round % 3 == 0 {
            world.step();
        }
    }
    let (first, second) = (world.seen(0, here).sent, world.seen(1, there).sent);
    world.until_received(1, there, first);
    world.until_received(0, here, second);
    world.finish();
}

pub(crate) fn one_byte_at_a_time_is_enough<M: Mechanism>() {
    let sizes = Sizes { receive_batch: 1, ..Sizes::default() };
    let mut world = World::<M>::new(&[Sizes::default(), sizes]);
    let (here, there) = world.connected_pair(0, 1);
    world.send(0, here, 5_000, 1).expect("room in an empty queue");
    world.until_received(1, there, 5_000);
    assert_eq!(world.nodes[1].largest_slice, 1);
    world.finish();
}

pub(crate) fn a_message_larger_than_the_queue_goes_through<M: Mechanism>() {
    const LENGTH: usize = 64 << 20;
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.send(0, here, LENGTH, 60_000).expect("an empty queue takes any size");
    assert_eq!(world.nodes[0].dispatcher.queued(here), LENGTH);
    assert_eq!(world.send(0, here, 1, 1), Err(SendError::Full));
    world.until_received(1, there, LENGTH);
    world.run_until("room again", |world| world.seen(0, here).lows == 1);
    world.send(0, here, 1, 1).expect("room after the queue ran low");
    world.until_received(1, there, LENGTH + 1);
    world.finish();
}

pub(crate) fn a_full_queue_says_when_there_is_room<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    let mut refusals = 0;
    while world.seen(0, here).sent < 20 << 20 {
        if world.send(0, here, 100_000, 2_048) == Err(SendError::Full) {
            refusals += 1;
            world.run_until("room", |world| world.seen(0, here).lows == refusals);
            assert!(world.nodes[0].dispatcher.send_room(here) >= 100_000);
            assert!(world.nodes[0].dispatcher.queued(here) <= Sizes::default().send_queue / 2);
        }
    }
    assert!(refusals > 0, "the queue never was full, which tests nothing");
    let sent = world.seen(0, here).sent;
    world.until_received(1, there, sent);
    assert_eq!(world.seen(0, here).lows, refusals);
    world.finish();
}

pub(crate) fn a_hundred_endpoints_at_once<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let address = world.listen(1);
    let mut endpoints: Vec<_> = (0..100).map(|_| world.connect(0, &address)).collect();
    world.run_until("all are established", |world| {
        let established = |node: usize| world.nodes[node].seen.values().filter(|seen| seen.established).count();
        established(0) == 100 && established(1) == 100
    });
    for (number, &endpoint) in endpoints.iter().enumerate() {
        world.send(0, endpoint, 100 * (number + 1), 33).expect("room in an empty queue");
    }
    world.run_until("all has arrived", |world| {
        world.nodes[1].seen.values().map(|seen| seen.received).sum::<usize>() == 100 * 5050
    });
    let mut received: Vec<_> = world.nodes[1].seen.values().map(|seen| seen.received).collect();
    received.sort_unstable();
    assert!(received.iter().enumerate().all(|(number, &bytes)| bytes == 100 * (number + 1)));
    for endpoint in endpoints.drain(..) {
        world.nodes[0].dispatcher.close(endpoint);
        assert_eq!(world.until_ended(0, endpoint), Last::Disconnected);
    }
    world.finish();
}

/// Back-pressure of one endpoint affects only that endpoint, is bounded, and loses nothing.
pub(crate) fn an_endpoint_that_is_not_read_holds_back_only_its_peer<M: Mechanism>() {
    const MOST: usize = 64 << 20;
    let mut world = two_nodes::<M>();
    let (slow, slow_there) = world.connected_pair(0, 1);
    let (fast, fast_there) = world.connected_pair(0, 1);
    world.nodes[1].dispatcher.set_reading(slow_there, false);
    // Events read before the switch may be in the log; no others may follow.
    world.settle();
    let mut rounds_without_progress = 0;
    while rounds_without_progress < 50 {
        assert!(world.seen(0, slow).sent < MOST, "nothing holds the sender back");
        if world.send(0, slow, 50_000, 5_000).is_ok() {
            rounds_without_progress = 0
        } else {
            rounds_without_progress += 1
        }
        world.step();
        if rounds_without_progress > 0 {
            let soon = world.mechanism.now().after(core::time::Duration::from_micros(200));
            world.mechanism.idle(Some(soon));
        }
    }
    assert_eq!(world.seen(1, slow_there).received, 0);
    world.send_all(0, fast, 5 << 20, 50_000, 5_000);
    world.until_received(1, fast_there, 5 << 20);
    assert_eq!(world.seen(1, slow_there).received, 0);
    let sent = world.seen(0, slow).sent;
    world.nodes[1].dispatcher.set_reading(slow_there, true);
    world.until_received(1, slow_there, sent);
    // The kernel may need sent data for a moment after they have arrived.
    world.run_until("there is room again", |world| world.seen(0, slow).lows > 0);
    world.settle();
    assert_eq!(world.seen(0, slow).lows, 1, "one report that there is room again");
    world.finish();
}

/// An owner's quota bounds the memory of one endpoint; others continue; reading continues when blocks come back.
pub(crate) fn a_quota_that_is_used_up_stops_its_endpoint_alone<M: Mechanism>() {
    if !M::HAS_POOL {
        return;
    }
    const TOTAL: usize = 1 << 20;
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    let (other, other_there) = world.connected_pair(0, 1);
    let dispatcher = &mut world.nodes[1].dispatcher;
    let owner = dispatcher.pool_mut().and_then(|pool| pool.reserve(3).ok()).expect("three blocks of the pool");
    dispatcher.set_owner(there, owner);
    assert!(!dispatcher.is_dry(there));
    world.nodes[1].keeps = true;
    world.send_all(0, here, TOTAL, 40_000, 5_000);
    world.run_until("the quota is used up", |world| world.nodes[1].dispatcher.is_dry(there));
    let held = world.seen(1, there).received;
    assert!(held <= 3 * Sizes::default().block, "{held} bytes in three blocks");
    world.send(0, other, 1000, 100).expect("room in an empty queue");
    world.until_received(1, other_there, 1000);
    assert_eq!(world.seen(1, there).received, held);
    world.nodes[1].keeps = false;
    world.nodes[1].kept.clear();
    world.until_received(1, there, TOTAL);
    assert!(!world.nodes[1].dispatcher.is_dry(there));
    world.finish();
}

/// A connection whose receiving end has no block, and an owner of two blocks for it.
fn pair_without_blocks<M: Mechanism>() -> (World<M>, Endpoint, Endpoint, Owner) {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    let pool = world.nodes[1].dispatcher.pool_mut().expect("a mechanism with a pool");
    let (none, two) = (pool.reserve(0).expect("no block"), pool.reserve(2).expect("two blocks"));
    world.nodes[1].dispatcher.set_owner(there, none);
    (world, here, there, two)
}

/// An endpoint without a quota is dry as soon as bytes wait; peeking takes nothing, and another owner then reads all
/// bytes.
pub(crate) fn first_bytes_can_be_looked_at_without_a_block_and_come_to_an_owner_with_blocks<M: Mechanism>() {
    if !M::HAS_POOL {
        return;
    }
    let (mut world, here, there, owner) = pair_without_blocks::<M>();
    let dispatcher = &mut world.nodes[1].dispatcher;
    assert_eq!(dispatcher.peek(there, &mut [0; 64]), Some(0), "nothing has come");
    for length in [10, 30, 100_000] {
        world.send(0, here, length, 5_000).expect("room in an empty queue");
        let sent = world.seen(0, here).sent;
        for _ in 0..2 {
            let mut head = [0; 64];
            world.run_until("the bytes wait", |world| {
                let dispatcher = &mut world.nodes[1].dispatcher;
                dispatcher.is_dry(there) && dispatcher.peek(there, &mut head) == Some(sent.min(64))
            });
            assert!(world.pattern.matches(0, &head[..sent.min(64)]), "the first bytes, however often one looks");
        }
    }
    assert_eq!(world.seen(1, there).received, 0);
    world.nodes[1].dispatcher.set_owner(there, owner);
    assert!(!world.nodes[1].dispatcher.is_dry(there), "it may have blocks now");
    world.until_received(1, there, 100_040);
    world.finish();
}

/// If nothing is read, a peek shows the end, or an event reports it.
pub(crate) fn the_end_of_a_connection_shows_where_there_is_no_block<M: Mechanism>() {
    if !M::HAS_POOL {
        return;
    }
    let mut world = two_nodes::<M>();
    for aborts in [false, true] {
        let (here, there) = world.connected_pair(0, 1);
        let dispatcher = &mut world.nodes[1].dispatcher;
        let without_blocks = dispatcher.pool_mut().and_then(|pool| pool.reserve(0).ok()).expect("no block");
        dispatcher.set_owner(there, without_blocks);
        if aborts {
            world.abort(0, here)
        } else {
            world.nodes[0].dispatcher.close(here)
        }
        world.run_until("the end shows", |world| {
            let node = &mut world.nodes[1];
            node.seen[&there].last.is_some() || node.dispatcher.peek(there, &mut [0; 64]).is_none()
        });
    }
    world.finish();
}

/// In-process connections cannot tell.
pub(crate) fn the_end_of_a_connection_shows_ahead_of_bytes_that_wait<M: Mechanism>() {
    if !M::HAS_POOL {
        return;
    }
    let (mut world, here, there, owner) = pair_without_blocks::<M>();
    world.send(0, here, 10_000, 5_000).expect("room in an empty queue");
    world.run_until("the bytes wait", |world| world.nodes[1].dispatcher.peek(there, &mut [0; 64]) == Some(64));
    assert!(!world.nodes[1].dispatcher.peer_has_ended(there) && world.nodes[1].dispatcher.has_waiting(there));
    world.nodes[0].dispatcher.close(here);
    world.run_until("the end shows", |world| world.nodes[1].dispatcher.peer_has_ended(there));
    world.nodes[1].dispatcher.set_owner(there, owner);
    world.until_received(1, there, 10_000);
    assert!(!world.nodes[1].dispatcher.has_waiting(there));
    world.run_until("the end comes", |world| world.nodes[1].seen[&there].last.is_some());
    world.finish();
}

pub(crate) fn closing_sends_what_is_queued_first<M: Mechanism>() {
    const LENGTH: usize = 8 << 20;
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.nodes[1].dispatcher.set_reading(there, false);
    world.send(0, here, LENGTH, 10_000).expect("an empty queue takes any size");
    world.nodes[0].dispatcher.close(here);
    world.settle();
    assert_eq!(world.seen(1, there).last, None, "an end that overtook what was sent before it");
    world.nodes[1].dispatcher.set_reading(there, true);
    assert_eq!(world.until_ended(1, there), Last::Disconnected);
    assert_eq!(world.seen(1, there).received, LENGTH);
    assert_eq!(world.until_ended(0, here), Last::Disconnected);
    world.finish();
}

/// The closing side discards arriving bytes, so that the other side's sending ends in order too.
pub(crate) fn closing_while_the_peer_sends_ends_in_order<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.send(0, here, 3_000, 1_000).expect("room in an empty queue");
    world.send(1, there, 4 << 20, 10_000).expect("an empty queue takes any size");
    world.step();
    world.nodes[0].dispatcher.close(here);
    assert_eq!(world.until_ended(1, there), Last::Disconnected);
    assert_eq!(world.seen(1, there).received, 3_000);
    assert_eq!(world.until_ended(0, here), Last::Disconnected);
    world.finish();
}

pub(crate) fn an_aborted_connection_breaks_at_the_peer_only<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.send(0, here, 4 << 20, 10_000).expect("an empty queue takes any size");
    world.step();
    world.abort(0, here);
    assert_eq!(world.until_ended(1, there), Last::Broken(BrokenCause::Reset));
    world.settle();
    world.finish();
}

pub(crate) fn a_sender_whose_peer_aborts_learns_it_once<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.send(0, here, 16 << 20, 10_000).expect("an empty queue takes any size");
    world.step();
    world.abort(1, there);
    assert_eq!(world.until_ended(0, here), Last::Broken(BrokenCause::Reset));
    world.settle();
    world.finish();
}

/// The end of a process also ends its dispatcher: every endpoint at the other side ends exactly once.
pub(crate) fn a_peer_that_dies_ends_every_endpoint_once<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let address = world.listen(1);
    let endpoints: Vec<_> = (0..10).map(|_| world.connect(0, &address)).collect();
    world.run_until("all are established", |world| {
        world.nodes[1].seen.values().filter(|seen| seen.established).count() == 10
            && world.nodes[0].seen.values().all(|seen| seen.established)
    });
    for &endpoint in &endpoints {
        world.send(0, endpoint, 100_000, 1_000).expect("room in an empty queue");
    }
    world.step();
    drop(world.nodes.pop());
    for &endpoint in &endpoints {
        let last = world.until_ended(0, endpoint);
        assert!(matches!(last, Last::Disconnected | Last::Broken(BrokenCause::Reset)), "{last:?}");
    }
    let late = world.connect(0, &address);
    assert_eq!(world.until_ended(0, late), Last::Failed(ConnectCause::Refused));
    world.settle();
    world.finish();
}

pub(crate) fn objects_stay_in_order_with_bytes_or_come_back_untouched<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, there) = world.connected_pair(0, 1);
    world.send(0, here, 1000, 100).expect("room in an empty queue");
    for number in 1..=200_u64 {
        let dispatcher = &mut world.nodes[0].dispatcher;
        let hands_over = dispatcher.hands_over();
        match dispatcher.hand_over(here, Parcel::new(Box::new(number), 10)) {
            Ok(()) => assert!(hands_over),
            Err((error, parcel)) => {
                assert!(!hands_over, "{error}");
                assert_eq!((error, parcel.bytes()), (SendError::Closed, 10));
                assert_eq!(parcel.open::<u64>().expect("what was put in"), Box::new(number));
            }
        }
        if number == 100 {
            world.send(0, here, 500, 100).expect("room");
        }
    }
    world.run_until("all bytes", |world| world.seen(1, there).received == 1500);
    world.settle();
    let behind = |number| (number, if number <= 100 { 1000 } else { 1500 });
    let expected = if world.nodes[0].dispatcher.hands_over() { (1..=200).map(behind).collect() } else { Vec::new() };
    assert_eq!(world.seen(1, there).parcels, expected);
    assert_eq!(world.nodes[0].dispatcher.queued(here), 0);
    world.finish();
}

pub(crate) fn objects_count_as_their_weight_until_they_are_taken<M: Mechanism>() {
    let mut world = World::<M>::new(&[Sizes { send_queue: 1000, ..Sizes::default() }; 2]);
    let (here, there) = world.connected_pair(0, 1);
    if !world.nodes[0].dispatcher.hands_over() {
        return world.finish();
    }
    let dispatcher = &mut world.nodes[0].dispatcher;
    let mut put = |bytes| dispatcher.hand_over(here, Parcel::new(Box::new(7_u64), bytes)).map_err(|(error, _)| error);
    assert_eq!((put(900), put(200), put(0)), (Ok(()), Err(SendError::Full), Ok(())), "an empty one always fits");
    world.run_until("the queue is low", |world| world.seen(0, here).lows == 1);
    let dispatcher = &mut world.nodes[0].dispatcher;
    assert!(dispatcher.hand_over(here, Parcel::new(Box::new(8_u64), 200)).is_ok());
    world.run_until("all objects", |world| world.seen(1, there).parcels.len() == 3);
    world.finish();
}

pub(crate) fn a_closing_endpoint_hands_nothing_over<M: Mechanism>() {
    let mut world = two_nodes::<M>();
    let (here, _) = world.connected_pair(0, 1);
    world.nodes[0].dispatcher.close(here);
    let refused = world.nodes[0].dispatcher.hand_over(here, Parcel::new(Box::new(1_u64), 1));
    let (error, parcel) = refused.expect_err("a closing endpoint takes nothing");
    assert_eq!((error, parcel.open::<String>().is_err()), (SendError::Closed, true), "and it is no text");
    world.until_ended(0, here);
    world.finish();
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

/// Posts a block of each of these sizes, and checks how received bytes are cut into them.
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
    world.run_until("no posted block is left", |world| world.nodes[1].dispatcher.is_dry(there));
    assert_eq!(world.seen(1, there).received, total, "into posted blocks alone");
    let kept = core::mem::take(&mut world.nodes[1].kept);
    for (pool, &size) in pools.iter_mut().zip(&sizes) {
        let filled: usize = kept.iter().filter(|slice| slice.pool() == pool.id()).map(|slice| slice.len()).sum();
        assert_eq!((filled, is_full(pool)), (size, false));
    }
    drop(kept);
    assert!(pools.iter_mut().all(is_full), "the endpoint holds no full block");
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

/// One sender always has more to send; the other's few bytes must arrive within a bounded number of polls.
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

/// However much the transport has received already: nothing is delivered while reading is off, and nothing is lost.
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

/// Each is busy for a while and gets blocks for that; then the next ones are busy, and there are few blocks.
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

pub(crate) fn an_endpoint_without_half_close_ends_with_the_peer<M: Mechanism>() {
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
    world.send(1, there, 4 << 20, 10_000).expect("the reset is not known yet");
    assert_eq!(world.until_ended(1, there), Last::Broken(BrokenCause::Reset));
    world.finish();
}
