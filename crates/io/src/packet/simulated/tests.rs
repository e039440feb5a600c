//! What the network does to packets, and that a seed decides it.

use std::net::Ipv4Addr;
use std::time::Duration;

use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_terms::{Cause, Instant};

use super::*;
use crate::packet::{ANY, Flow, Packet, ReceiveConfig, Receiver, SendConfig, Sender};

fn pool() -> Pool {
    Pool::new(PoolConfig::heap("packets", 4096, 64)).expect("memory")
}

fn pair(network: &PacketNetwork) -> (SimulatedSender, SimulatedReceiver) {
    let sender = network.sender(SendConfig::new(Flow::Udp, ANY), Staging::new(pool()));
    (sender, network.receiver(ReceiveConfig::new(Flow::Udp, ANY), pool()).expect("a free port"))
}

/// Sends packets with these numbers, one each millisecond; what comes, in its order.
fn transmit(network: &PacketNetwork, numbers: core::ops::Range<u64>) -> (Vec<u64>, u64) {
    let (mut sender, mut receiver) = pair(network);
    let (mut came, mut packets) = (Vec::new(), Vec::new());
    for number in numbers.clone().chain([u64::MAX; 5]) {
        let now = Instant::ZERO.after(Duration::from_micros(100 * number.min(numbers.end + 100)));
        if number < u64::MAX {
            let fill = &mut |room: &mut [u8]| {
                room[..8].copy_from_slice(&number.to_le_bytes());
                8
            };
            sender.send_with(receiver.address_v4(), 8, fill).expect("room");
            sender.flush(now);
        }
        receiver.receive(now, &mut packets);
        came.extend(
            packets.drain(..).filter_map(|Packet { payload, .. }| payload.read_array(0).map(u64::from_le_bytes)),
        );
    }
    (came, receiver.counters().packets)
}

#[test]
fn without_faults_all_packets_come_in_order() {
    let network = PacketNetwork::new(1, PacketFaults::default());
    assert_eq!(transmit(&network, 0..1000), ((0..1000).collect(), 1000));
    assert_eq!(network.counters(), NetworkCounters { sent: 1000, ..NetworkCounters::default() });
}

#[test]
fn what_is_lost_doubled_and_overtaken_follows_from_the_seed_and_is_counted() {
    let of = |seed| {
        let network = PacketNetwork::new(seed, PacketFaults::nasty());
        let (came, _) = transmit(&network, 0..10_000);
        (came, network.counters())
    };
    let (came, counters) = of(7);
    assert_eq!((&came, counters), (&of(7).0, of(7).1));
    assert_ne!(came, of(8).0);
    assert_eq!(came.len() as u64, counters.sent - counters.lost + counters.doubled);
    assert!((50..200).contains(&counters.lost) && (50..200).contains(&counters.doubled), "{counters:?}");
    let overtaken = came.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(overtaken > 100, "{overtaken}");
}

#[test]
fn a_receiver_that_is_too_slow_counts_what_it_lost() {
    let network = PacketNetwork::new(1, PacketFaults { queue: 10, ..PacketFaults::default() });
    let (mut sender, mut receiver) = pair(&network);
    for _ in 0..30 {
        sender.send_with(receiver.address_v4(), 1, &mut |_| 1).expect("room");
    }
    assert_eq!(sender.flush(Instant::ZERO), 30);
    let now = receiver.next_deadline().expect("packets are under way");
    assert_eq!(now, Instant::ZERO.after(Duration::from_micros(20)));
    let mut packets = Vec::new();
    assert_eq!(receiver.receive(now, &mut packets), 10);
    assert_eq!(receiver.counters().lost.get(Cause::SocketQueueFull), 20);
}

#[test]
fn flows_and_addresses_are_apart_and_one_receives_at_each() {
    let network = PacketNetwork::new(1, PacketFaults::default());
    let address = "10.0.0.1:0".parse().expect("an address");
    let raw = |number| network.receiver(ReceiveConfig::new(Flow::Ip(number), address), pool());
    let (mut first, mut second) = (raw(253).expect("a free address"), raw(254).expect("another protocol"));
    assert!(raw(253).is_err());
    let mut sender = network.sender(SendConfig::new(Flow::Ip(254), ANY), Staging::new(pool()));
    sender.send_with("10.0.0.1:99".parse().expect("an address"), 1, &mut |_| 1).expect("room");
    sender.flush(Instant::ZERO);
    let (now, mut packets) = (Instant::from_nanoseconds(1_000_000), Vec::new());
    assert_eq!((first.receive(now, &mut packets), second.receive(now, &mut packets)), (0, 1));
    drop(second);
    sender.send_with(address, 1, &mut |_| 1).expect("room");
    sender.flush(now);
    assert_eq!(network.counters().unreachable, 1);
    assert!(raw(254).is_ok());
}

#[test]
fn a_path_has_faults_of_its_own_and_who_watches_sees_what_becomes_of_each_packet() {
    let network = PacketNetwork::new(1, PacketFaults { queue: 1, ..PacketFaults::default() });
    let (mut sender, mut receiver) = pair(&network);
    let home = Ipv4Addr::LOCALHOST;
    network.watch();
    let send = |sender: &mut SimulatedSender, receiver: &SimulatedReceiver, number: u8| {
        let mut fill = |room: &mut [u8]| {
            room[0] = number;
            1
        };
        sender.send_with(receiver.address_v4(), 1, &mut fill).expect("room");
        sender.flush(Instant::ZERO);
    };
    let path = |faults| PacketPath { from: home..=home, to: home..=home, faults };
    let lossy = PacketFaults { loss: 1.0, ..PacketFaults::default() };
    let slow = PacketFaults { latency: Duration::from_millis(7), ..PacketFaults::default() };
    network.set_paths(vec![path(lossy), path(slow)]);
    send(&mut sender, &receiver, 1);
    network.set_paths(vec![path(slow)]);
    send(&mut sender, &receiver, 2);
    send(&mut sender, &receiver, 3);
    let (later, mut packets) = (Instant::ZERO.after(Duration::from_millis(7)), Vec::new());
    assert_eq!((receiver.receive(later, &mut packets), receiver.next_deadline()), (1, None));
    let seen = network.take_passages().into_iter().map(|passage| match passage {
        Passage::Sent { payload, arrivals, .. } => (payload[0], arrivals[0]),
        Passage::Overflown { payload, .. } => (10 * payload[0], None),
    });
    assert_eq!(seen.collect::<Vec<_>>(), [(1, None), (2, Some(later)), (3, Some(later)), (30, None)]);
    assert_eq!(network.take_passages(), []);
}
