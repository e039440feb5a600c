//! What holds of sockets alone.

use ropewalk_io::packet::{
    ANY, Flow, MOST_BATCH, PacketError, ReceiveConfig, ReceiveMechanism, Receiver, SendConfig, SendMechanism, Sender,
    SocketReceiver, SocketSender, over_v4,
};
use ropewalk_terms::{Cause, Instant};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::{here, pool, staging};

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
fn who_sent_a_packet_can_be_answered_where_it_receives() {
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
fn an_address_that_is_taken_is_told_unless_it_is_shared() {
    let shared = |address: SocketAddr, is_shared| {
        receiver(ReceiveConfig { is_shared, ..ReceiveConfig::new(Flow::Udp, address) })
    };
    let first = shared(here().into(), false).expect("a free port");
    let error = shared(first.address(), false).err().expect("the port is taken");
    assert!(matches!(error, PacketError::AddressInUse { address } if address == first.address()), "{error}");
    let mut both = [shared(here().into(), true).expect("a free port")].into_iter().collect::<Vec<_>>();
    both.push(shared(both[0].address(), true).expect("it is shared"));
    // Each of many senders reaches the same one of the two every time.
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
        return ropewalk_tidy::skipped("sockets::ipv6_is_received", "this machine has no IPv6");
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
        // From 127.0.0.0/8 nothing can go to the world.
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
    let error = "dpdk".parse::<ReceiveMechanism>().expect_err("there is none");
    assert_eq!(error.to_string(), "no such mechanism; there are recvfrom, recvmmsg and udp-gro");
}
