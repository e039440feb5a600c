//! Rules for every mechanism for packets, and rules for sockets only.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use ropewalk_io::packet::{
    ANY, Flow, MOST_BATCH, PacketError, ReceiveConfig, ReceiveMechanism, Receiver, Refusal, SendConfig, SendMechanism,
    Sender, SocketReceiver, SocketSender, over_v4,
};
use ropewalk_terms::{Cause, Instant};

use super::{Mechanism, Sizes, Skip, World, here, pattern, pool, staging};

/// From nothing to the largest frames, with sizes around powers of two and usual limits.
const SIZES: &[usize] = &[1, 2, 17, 18, 19, 46, 64, 100, 255, 256, 257, 1000, 1024, 1472, 1480, 2048, 4000, 8972, 9000];

pub(crate) fn packets_of_every_size_come_whole_and_in_order<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes::default())?;
    let (mut sizes, mut checked) = (Vec::new(), 0);
    for round in 0..30 {
        for &bytes in SIZES.iter().filter(|&&bytes| bytes <= M::LARGEST) {
            world.send_surely(sizes.len(), bytes);
            sizes.push(bytes);
            // Also trains of equally long packets.
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

pub(crate) fn packets_gathered_from_slices_equal_packets_written_in_place<M: Mechanism>() -> Skip {
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
    // The kernel keeps the first of them.
    assert!(world.came.iter().take(10).enumerate().all(|(number, p)| p.payload.to_vec() == pattern(number, 1000)));
    Ok(())
}

pub(crate) fn the_use_of_a_queue_is_reported_and_as_much_as_has_room_is_kept<M: Mechanism>() -> Skip {
    let mut world = World::<M>::new(Sizes { queue: 1 << 20, largest: 1400, ..Sizes::default() })?;
    let empty = world.receiver.queue_in_use();
    assert!(empty.used == 0 && empty.room > 0 && empty.packet > 0, "{empty:?}");
    // A ring's blocks are handed over before they are full if packets arrive slowly; trains are not sent one by one.
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
    // Packets that arrived meanwhile are received or counted, and receiving continues.
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

fn receiver(config: ReceiveConfig) -> Result<SocketReceiver, PacketError> {
    SocketReceiver::new(config, pool("receive", 64 << 10, 4))
}

/// Waits for one packet.
fn one(receiver: &mut SocketReceiver) -> ropewalk_io::packet::Packet {
    let mut packets = Vec::new();
    while receiver.receive(Instant::ZERO, &mut packets) == 0 {
        std::thread::yield_now();
    }
    packets.remove(0)
}

#[test]
fn the_sender_of_a_packet_can_be_answered_where_it_receives() {
    let mut ends = [0; 2].map(|_| {
        let receiver = receiver(ReceiveConfig::new(Flow::Udp, here())).expect("a free port");
        let sender = receiver.sender(SendConfig::new(Flow::Udp, ANY), staging()).expect("its socket");
        (receiver, sender)
    });
    let to = ends[1].0.address_v4();
    ends[0].1.send_with(to, 8, &mut |room| (room[..2].copy_from_slice(b"hi"), 2).1).expect("room");
    ends[0].1.flush(Instant::ZERO);
    let packet = one(&mut ends[1].0);
    assert_eq!((packet.payload.to_vec(), packet.from), (b"hi".to_vec(), ends[0].0.address()));
    ends[1].1.send_with(over_v4(packet.from), 0, &mut |_| 0).expect("room");
    ends[1].1.flush(Instant::ZERO);
    let answer = one(&mut ends[0].0);
    assert!(answer.payload.is_empty() && answer.from == to.into(), "an empty packet is one too");
}

#[test]
fn an_address_that_is_taken_is_reported_unless_it_is_shared() {
    let shared = |address: SocketAddr, is_shared| {
        receiver(ReceiveConfig { is_shared, ..ReceiveConfig::new(Flow::Udp, address) })
    };
    let first = shared(here().into(), false).expect("a free port");
    let error = shared(first.address(), false).err().expect("the port is taken");
    assert!(matches!(error, PacketError::AddressInUse { address } if address == first.address()), "{error}");
    let mut both = [shared(here().into(), true).expect("a free port")].into_iter().collect::<Vec<_>>();
    both.push(shared(both[0].address(), true).expect("it is shared"));
    // Each of many senders reaches the same one of the two receivers every time.
    for _ in 0..30 {
        let mut sender = SocketSender::new(SendConfig::new(Flow::Udp, here()), staging()).expect("a socket");
        for _ in 0..4 {
            sender.send_with(both[0].address_v4(), 1, &mut |_| 1).expect("room");
        }
        assert_eq!(sender.flush(Instant::ZERO), 4);
    }
    let mut packets = Vec::new();
    while packets.len() < 120 {
        both.iter_mut().for_each(|receiver| _ = receiver.receive(Instant::ZERO, &mut packets));
    }
    let parts = both.iter_mut().map(|receiver| receiver.counters().packets).collect::<Vec<_>>();
    assert!(parts.iter().all(|part| part % 4 == 0 && *part > 0), "{parts:?}");
}

#[test]
fn ipv6_is_received_by_every_mechanism_and_the_any_address_hears_ipv4_too() {
    let Ok(v6) = UdpSocket::bind("[::1]:0") else {
        return ropewalk_tidy::skipped(
            "packets::rules::ipv6_is_received_by_every_mechanism_and_the_any_address_hears_ipv4_too",
            "this machine has no IPv6",
        );
    };
    let v4 = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let whence = [&v6, &v4].map(|socket| socket.local_addr().expect("it is bound"));
    for mechanism in ReceiveMechanism::ALL {
        for any in ["[::1]:0", "[::]:0"] {
            let address = any.parse::<SocketAddr>().expect("an address");
            let config = ReceiveConfig { mechanism: *mechanism, ..ReceiveConfig::new(Flow::Udp, address) };
            let mut receiver = SocketReceiver::new(config, pool("receive", 128 << 10, 4)).expect("a free port");
            let port = receiver.address().port();
            v6.send_to(b"six", (Ipv6Addr::LOCALHOST, port)).expect("a way to this host");
            let packet = one(&mut receiver);
            assert_eq!((packet.payload.to_vec(), packet.from), (b"six".to_vec(), whence[0]), "{mechanism} {any}");
            if any == "[::]:0" {
                v4.send_to(b"four", (Ipv4Addr::LOCALHOST, port)).expect("a way to this host");
                let packet = one(&mut receiver);
                assert_eq!((packet.payload.to_vec(), packet.from), (b"four".to_vec(), whence[1]), "{mechanism}");
            }
        }
    }
    let raw = receiver(ReceiveConfig::new(Flow::Ip(253), "[::1]:0".parse::<SocketAddr>().expect("an address")));
    assert!(matches!(raw, Err(PacketError::Config { .. })));
}

#[test]
fn settings_that_cannot_be_are_refused_with_words() {
    let good = ReceiveConfig::new(Flow::Udp, here());
    let refused = |config| matches!(receiver(config), Err(PacketError::Config { .. }));
    assert!(refused(ReceiveConfig { batch: 0, ..good.clone() }));
    assert!(refused(ReceiveConfig { batch: MOST_BATCH + 1, ..good.clone() }));
    assert!(refused(ReceiveConfig { largest: 64 << 10, ..good.clone() }), "a block has no room for it");
    assert!(refused(ReceiveConfig { largest: 0, ..good.clone() }));
    assert!(refused(ReceiveConfig { mechanism: ReceiveMechanism::UdpGro, flow: Flow::Ip(253), ..good.clone() }));
    let sender = |config| SocketSender::new(config, staging()).err().map(|error| error.to_string());
    let good = SendConfig::new(Flow::Udp, here());
    assert_eq!(sender(SendConfig { batch: 0, ..good.clone() }).as_deref(), Some("a batch has 1 to 1024 packets"));
    let elsewhere = SendConfig { address: "192.0.2.1:0".parse().expect("an address"), ..good };
    let error = sender(elsewhere).expect("the address is not ours");
    assert!(error.starts_with("cannot bind a socket at 192.0.2.1:0: "), "{error}");
}

#[test]
fn what_the_kernel_refuses_for_good_is_counted_and_does_not_hold_up_what_follows() {
    let mut receiver = receiver(ReceiveConfig::new(Flow::Udp, here())).expect("a free port");
    for mechanism in SendMechanism::ALL {
        let config = SendConfig { mechanism: *mechanism, ..SendConfig::new(Flow::Udp, here()) };
        let mut sender = SocketSender::new(config, staging()).expect("a socket");
        // No packet can leave the machine from 127.0.0.0/8.
        for to in ["192.0.2.1:9".parse().expect("an address"), receiver.address_v4()] {
            sender.send_with(to, 1, &mut |room| (room[0] = 1, 1).1).expect("room");
        }
        assert_eq!((sender.flush(Instant::ZERO), sender.queued()), (1, 0), "{mechanism}");
        let counters = sender.counters();
        assert_eq!((counters.failed, counters.packets, counters.bytes, counters.bytes_copied), (1, 1, 1, 2));
        assert_eq!(counters.last_error, libc::EINVAL);
        assert_eq!(one(&mut receiver).from, sender.address().into());
    }
    assert_eq!(receiver.counters().lost.get(Cause::SocketQueueFull), 0);
}

#[test]
fn the_words_for_mechanisms_are_understood() {
    for mechanism in ReceiveMechanism::ALL {
        assert_eq!(mechanism.name().parse(), Ok(*mechanism));
    }
    for mechanism in SendMechanism::ALL {
        assert_eq!(mechanism.name().parse(), Ok(*mechanism));
    }
    let error = "dpdk".parse::<ReceiveMechanism>().expect_err("no such mechanism");
    assert_eq!(error.to_string(), "no such mechanism; there are recvfrom, recvmmsg and udp-gro");
}
