//! Over a cable between two namespaces: the packets of the flood are counted, and come back.

use super::*;
use ropewalk_io::packet::Card;
use ropewalk_io::packet::cable::{CARD, Cable, SINK, SOURCE};
use ropewalk_wire::internet::{IpNumber, PacketBuilder};

/// Packets sent, a few at a time.
const PACKETS: u64 = 320;

fn cable(test: &str) -> Option<Cable> {
    match Cable::lay(1500, 1).and_then(|cable| cable.resolve().map(|()| cable)) {
        Ok(cable) => Some(cable),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            ropewalk_tidy::skipped(test, "may not make network namespaces");
            None
        }
        Err(error) => panic!("a cable: {error}"),
    }
}

/// A frame with 100 bytes of payload.
fn frame(cable: &Cable, from: SocketAddrV4, to: SocketAddrV4, is_raw: bool) -> Vec<u8> {
    let card_of = |host: &ropewalk_io::packet::cable::Host| {
        host.inside(|| Card::find(CARD, std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket")).expect("a card").mac)
    };
    let (source, destination) = (card_of(&cable.source), card_of(&cable.sink));
    let packet = PacketBuilder::ethernet2(source, destination).ipv4(from.ip().octets(), to.ip().octets(), 64);
    let mut bytes = Vec::new();
    match is_raw {
        true => packet.write(&mut bytes, IpNumber(BARE_PROTOCOL), &[7; 100]),
        false => packet.udp(from.port(), to.port()).write(&mut bytes, &[7; 100]),
    }
    .expect("memory has room");
    bytes
}

/// Counts received packets, until `awaited` have arrived or they are lost.
fn received(socket: &OwnedFd, awaited: u64) -> u64 {
    let (mut count, until) = (0, std::time::Instant::now() + Duration::from_secs(5));
    loop {
        match rustix::net::recv(socket, &mut [0; 2048][..], rustix::net::RecvFlags::empty()) {
            Ok(_) => count += 1,
            Err(_) if count >= awaited || std::time::Instant::now() >= until => return count,
            Err(_) => std::thread::yield_now(),
        }
    }
}

fn open(how: BarePackets) -> std::io::Result<BareReceiver> {
    BareReceiver::open(how, SocketAddrV4::new(SINK, 0), CARD, Depth::USUAL)
}

/// Sends all packets, and receives them or sends them back; returns how many came back.
fn flooded(cable: &Cable, how: BarePackets, comes_back: bool) -> (u64, BareReceiver) {
    let take = if comes_back { BareReceiver::echo } else { BareReceiver::receive };
    let is_raw = how == BarePackets::RawIp;
    let mut receiver = cable.sink.inside(|| open(how)).expect("a receiver");
    let back = cable.source.inside(|| bound(SocketAddrV4::new(SOURCE, 0), is_raw)).expect("a socket");
    let frame = frame(cable, back.1, receiver.address(), is_raw);
    let mut flood = cable.source.inside(|| Flood::open(CARD, &vec![frame; 32])).expect("a flood");
    let (mut taken, mut returned) = (0, 0);
    for _ in 0..PACKETS / 32 {
        (0..32).for_each(|index| assert!(flood.put(index), "there is room"));
        flood.flush().expect("a card that is up");
        let until = std::time::Instant::now() + Duration::from_secs(5);
        while taken < flood.sent() && std::time::Instant::now() < until {
            taken += take(&mut receiver);
            receiver.wait(Duration::from_millis(1));
        }
        assert_eq!(taken, flood.sent(), "{how:?}");
        returned += received(&back.0, if comes_back { 32 } else { 0 });
    }
    (returned, receiver)
}

#[test]
fn what_is_flooded_is_counted_by_every_receiver() {
    let Some(cable) = cable("limits::packet::what_is_flooded_is_counted_by_every_receiver") else { return };
    for how in BarePackets::ALL {
        let (returned, mut receiver) = flooded(&cable, how, false);
        assert_eq!((returned, receiver.receive()), (0, 0), "{how:?}");
    }
}

#[test]
fn what_is_flooded_comes_back_from_every_echo() {
    let Some(cable) = cable("limits::packet::what_is_flooded_comes_back_from_every_echo") else { return };
    for how in BarePackets::ALL {
        assert_eq!(flooded(&cable, how, true).0, PACKETS, "{how:?}");
    }
}

#[test]
fn what_is_sent_to_another_card_is_counted_by_no_receiver() {
    let Some(cable) = cable("limits::packet::what_is_sent_to_another_card_is_counted_by_no_receiver") else { return };
    let back = cable.source.inside(|| bound(SocketAddrV4::new(SOURCE, 0), false)).expect("a socket");
    for how in BarePackets::ALL.into_iter().filter(|how| *how != BarePackets::RawIp) {
        let mut receiver = cable.sink.inside(|| open(how)).expect("a receiver");
        let ours = frame(&cable, back.1, receiver.address(), false);
        // Every byte of the address counts.
        let mut frames = vec![ours.clone(); 7];
        (0..6).for_each(|byte| frames[byte][byte] ^= 2);
        let mut flood = cable.source.inside(|| Flood::open(CARD, &frames)).expect("a flood");
        (0..7).for_each(|index| assert!(flood.put(index), "there is room"));
        flood.flush().expect("a card that is up");
        let (mut count, until) = (0, std::time::Instant::now() + Duration::from_secs(5));
        while count == 0 && std::time::Instant::now() < until {
            receiver.wait(Duration::from_millis(1));
            count += receiver.receive();
        }
        assert_eq!((count, receiver.receive()), (1, 0), "{how:?}");
    }
}
