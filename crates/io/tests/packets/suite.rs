//! What holds of every mechanism.

use std::time::Duration;

use ropewalk_io::packet::Refusal;
use ropewalk_terms::Cause;

use crate::world::{Mechanism, Sizes, Skip, World, pattern};

/// From nothing to the largest frames, with those around powers of two and of usual limits.
const SIZES: &[usize] = &[1, 2, 17, 18, 19, 46, 64, 100, 255, 256, 257, 1000, 1024, 1472, 1480, 2048, 4000, 8972, 9000];

pub(crate) fn packets_of_every_size_come_whole_and_in_order<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes::default())?;
    let (mut sizes, mut checked) = (Vec::new(), 0);
    for round in 0..30 {
        for &bytes in SIZES.iter().filter(|&&bytes| bytes <= M::LARGEST) {
            world.send_surely(sizes.len(), bytes);
            sizes.push(bytes);
            // Trains of equally long packets too.
            for _ in 0..round % 5 {
                world.send_surely(sizes.len(), bytes);
                sizes.push(bytes);
            }
        }
        world.flush();
        world.await_packets(sizes.len());
        for (number, packet) in world.came.iter_mut().enumerate().skip(checked) {
            assert!(packet.payload.to_vec() == pattern(number, sizes[number]), "packet {number}");
            packet.payload.clear();
        }
        checked = sizes.len();
    }
    let (sent, came) = (world.sender.counters(), world.receiver.counters());
    assert_eq!((sent.packets, sent.failed, came.packets), (sizes.len() as u64, 0, sizes.len() as u64));
    assert_eq!((sent.bytes, came.bytes), (sizes.iter().sum::<usize>() as u64, sent.bytes));
    assert_eq!(came.lost.total(), 0);
    assert!(world.receiver.memory_in_use().held <= 1, "what was dropped is not held");
    Ok(())
}

pub(crate) fn a_batch_is_bounded_and_nothing_is_lost_in_between<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes { batch: 7, ..Sizes::default() })?;
    for number in 0..100 {
        world.send_surely(number, 100);
    }
    world.flush();
    let mut largest = 0;
    for _ in 0..100_000 {
        largest = largest.max(world.receive());
        if world.came.len() == 100 {
            break;
        }
    }
    world.await_packets(100);
    assert!(largest < 7 + M::TRAIN, "{largest}");
    assert!(world.came.iter().enumerate().all(|(number, packet)| packet.payload.to_vec() == pattern(number, 100)));
    assert_eq!(world.receive(), 0);
    Ok(())
}

pub(crate) fn packets_gathered_from_slices_are_those_written_in_place<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes::default())?;
    for (number, piece) in [1000, 999, 100, 32, 7, 1].into_iter().enumerate() {
        world.send_pieces(number, 1000, piece).expect("room");
        world.flush();
    }
    world.send(6, 1000).expect("room");
    world.flush();
    world.await_packets(7);
    assert!(world.came.iter().enumerate().all(|(number, packet)| packet.payload.to_vec() == pattern(number, 1000)));
    Ok(())
}

pub(crate) fn the_sender_is_named<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes::default())?;
    world.send(0, 10).expect("room");
    world.flush();
    world.await_packets(1);
    assert_eq!(world.came[0].from, world.sender.address().into());
    Ok(())
}

pub(crate) fn packets_that_are_too_long_are_refused_and_counted<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes { largest: 1000, ..Sizes::default() })?;
    for (number, bytes) in [1000, 1001, 1000, M::LARGEST.min(5000), 10].into_iter().enumerate() {
        world.send_surely(number, bytes);
    }
    world.flush();
    world.await_packets(3);
    world.receive_all();
    let lengths: Vec<usize> = world.came.iter().map(|packet| packet.payload.len()).collect();
    let counters = world.receiver.counters();
    assert_eq!((lengths, counters.lost.get(Cause::Truncated), counters.packets), (vec![1000, 1000, 10], 2, 3));
    Ok(())
}

pub(crate) fn what_a_full_queue_loses_is_counted<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes { queue: 64 << 10, ..Sizes::default() })?;
    let sent = 2000;
    for number in 0..sent {
        world.send_surely(number, 1000);
    }
    world.flush();
    world.receive_all();
    let counters = world.receiver.counters();
    assert_eq!((counters.packets, world.sender.counters().packets), (world.came.len() as u64, sent as u64));
    assert!(counters.packets < sent as u64, "the queue is small");
    if M::COUNTS_LOSSES {
        assert_eq!(counters.packets + counters.lost.total(), sent as u64, "{counters:?}");
    }
    // What the kernel keeps is the first of them.
    assert!(world.came.iter().take(10).enumerate().all(|(number, p)| p.payload.to_vec() == pattern(number, 1000)));
    Ok(())
}

pub(crate) fn what_waits_is_told_and_as_much_as_has_room_is_kept<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes { queue: 1 << 20, largest: 1400, ..Sizes::default() })?;
    let empty = world.receiver.queue_in_use();
    assert!(empty.used == 0 && empty.room > 0 && empty.packet > 0, "{empty:?}");
    // A ring's blocks are handed over before they are full, where packets come slowly; trains are not sent one by one.
    let count = (empty.packets_left() / 2).min(200) as usize;
    for number in 0..count {
        world.send_surely(number, 1400);
    }
    world.flush();
    world.await_packets(1);
    let waiting = world.receiver.queue_in_use();
    assert!(waiting.used <= waiting.room && waiting.used > 0, "{waiting:?}");
    world.await_packets(count);
    world.receive_all();
    let lost = world.receiver.counters().lost;
    world.came.clear();
    world.receive();
    let after = world.receiver.queue_in_use();
    assert_eq!((lost.total(), after.used, after.packets_left()), (0, 0, empty.packets_left()), "{after:?}");
    Ok(())
}

pub(crate) fn packets_wait_while_all_memory_is_held<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes { block: 128 << 10, blocks: 2, largest: 4000, ..Sizes::default() })?;
    let mut number = 0;
    // Packets are held until there is no room for more.
    while world.receiver.counters().dry == 0 {
        world.send_surely(number, 3000);
        world.flush();
        world.receive();
        number += 1;
        assert!(number < 10_000, "two blocks hold few packets");
    }
    world.send_surely(number, 3000);
    world.flush();
    let in_use = world.receiver.memory_in_use();
    assert_eq!(world.receive(), 0);
    assert!(in_use.is_above(99) && in_use.held == in_use.all, "{in_use:?}");
    world.came.iter_mut().for_each(|packet| packet.payload.clear());
    if M::WAITS {
        world.await_packets(number + 1);
        assert!(world.came[number].payload.to_vec() == pattern(number, 3000), "it has waited");
    }
    // What came meanwhile is there or counted, and it goes on.
    number += 1;
    for _ in 0..3 {
        world.send_surely(number, 3000);
        world.flush();
        number += 1;
        world.receive_all();
        world.came.iter_mut().for_each(|packet| packet.payload.clear());
    }
    let lost = world.receiver.counters().lost.total();
    assert_eq!((world.came.len() + lost as usize, lost > 0), (number, !M::WAITS));
    Ok(())
}

pub(crate) fn a_full_send_queue_takes_nothing<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes { send_batch: 8, ..Sizes::default() })?;
    for number in 0..8 {
        world.send_pieces(number, 100, 10).expect("room");
    }
    assert_eq!((world.send(8, 100), world.send_pieces(8, 100, 10)), (Err(Refusal::Full), Err(Refusal::Full)));
    let too_large = world.sender.largest() + 1;
    assert_eq!(world.sender.send_with(world.receiver.address_v4(), too_large, &mut |_| 0), Err(Refusal::TooLarge));
    world.flush();
    world.send(8, 100).expect("room");
    world.flush();
    world.await_packets(9);
    assert!(world.came.iter().enumerate().all(|(number, packet)| packet.payload.to_vec() == pattern(number, 100)));
    Ok(())
}

pub(crate) fn a_packet_of_too_many_pieces_is_sent_all_the_same<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes::default())?;
    let bytes = M::LARGEST.min(8000);
    world.send_pieces(0, bytes, 3).expect("room");
    world.flush();
    world.await_packets(1);
    assert!(world.came[0].payload.to_vec() == pattern(0, bytes));
    Ok(())
}

pub(crate) fn a_waiting_thread_is_woken_by_a_packet<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes::default())?;
    assert_eq!(world.receive(), 0);
    let Some(waiter) = world.waiter() else {
        assert_eq!(world.receiver.next_deadline(), None);
        world.send(0, 10).expect("room");
        world.flush();
        assert!(world.receiver.next_deadline() > Some(world.mechanism.now()));
        return Ok(());
    };
    assert!(world.receiver.prepare_wait());
    assert!(!waiter.wait(Some(Duration::from_millis(1))), "nothing has come");
    world.send(0, 10).expect("room");
    world.flush();
    assert!(waiter.wait(Some(Duration::from_secs(20))));
    world.await_packets(1);
    Ok(())
}
