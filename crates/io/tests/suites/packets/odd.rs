//! Invalid and foreign packets on a cable, and cables that are pulled.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use ropewalk_io::packet::cable::{CARD, Cable, SINK, SOURCE};
use ropewalk_io::packet::{Card, Flow, Packet, ReceiveCounters, Receiver};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_terms::Cause;
use ropewalk_wire::internet::{
    EtherType, Ethernet2Header, IpFragOffset, IpNumber, Ipv4Header, LEAST_FRAME_BYTES, UdpHeader, ether_type,
};
use rustix::net::{self, AddressFamily, SendFlags, SocketType};

use super::cable::{ReceiverMaker, USUAL};
use super::{Sizes, Skip, cable, pattern, run};

/// The two hosts: a receiver on one, and on the other a socket that sends any bytes as a frame.
struct Wire {
    cable: Cable,
    receiver: Box<dyn Receiver + Send>,
    came: Vec<Packet>,
    flow: Flow,
    socket: OwnedFd,
    ethernet: Ethernet2Header,
}

impl Wire {
    fn new(flow: Flow, receiver: ReceiverMaker) -> Result<Self, &'static str> {
        let cable = cable::lay(USUAL)?;
        let receiver = cable.sink.inside(|| receiver(flow, Sizes::default()));
        let find = || Card::find(CARD, net::socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket"));
        let to = cable.sink.inside(find).expect("a card of ours");
        let (socket, from) = cable.source.inside(|| {
            let socket = net::socket(AddressFamily::PACKET, SocketType::RAW, None).expect("the administrator's right");
            (socket, find().expect("a card of ours"))
        });
        bind(&socket, from.index);
        let (destination, source) = (to.mac, from.mac);
        let ethernet = Ethernet2Header { destination, source, ether_type: ether_type::IPV4 };
        Ok(Self { cable, receiver, came: Vec::new(), flow, socket, ethernet })
    }

    /// The content of an IP packet: a payload, after UDP's header if there is one.
    fn carried(&self, payload: &[u8]) -> Vec<u8> {
        if self.flow != Flow::Udp {
            return payload.to_vec();
        }
        let port = self.receiver.address_v4().port();
        let header = UdpHeader::with_ipv4_checksum(4000, port, &self.header(), payload).expect("it is short");
        [&header.to_bytes()[..], payload].concat()
    }

    fn header(&self) -> Ipv4Header {
        let protocol = IpNumber(self.flow.protocol());
        Ipv4Header::new(0, 64, protocol, SOURCE.octets(), SINK.octets()).expect("it is short")
    }

    /// A packet with this header in a frame.
    fn frame(&self, ethernet: &Ethernet2Header, header: &Ipv4Header, carried: &[u8]) -> Vec<u8> {
        self.tagged_frame(ethernet, None, header, carried)
    }

    /// The same with a VLAN tag.
    fn tagged_frame(
        &self,
        ethernet: &Ethernet2Header,
        tag: Option<u16>,
        header: &Ipv4Header,
        carried: &[u8],
    ) -> Vec<u8> {
        let mut header = header.clone();
        header.set_payload_len(carried.len()).expect("it is short");
        header.header_checksum = header.calc_header_checksum();
        let mut bytes = ethernet.to_bytes().to_vec();
        if let Some(tag) = tag {
            bytes.splice(12..12, [[0x81, 0], tag.to_be_bytes()].concat());
        }
        bytes.extend_from_slice(&header.to_bytes());
        bytes.extend_from_slice(carried);
        bytes.resize(bytes.len().max(LEAST_FRAME_BYTES), 0xEE);
        bytes
    }

    /// A valid packet.
    fn good(&self, payload: &[u8]) -> Vec<u8> {
        self.frame(&self.ethernet, &self.header(), &self.carried(payload))
    }

    fn send(&self, frame: &[u8]) {
        net::send(&self.socket, frame, SendFlags::empty()).expect("the cable is there");
    }

    /// Sends a valid packet, receives until it arrives, and returns the packets before it.
    fn received(&mut self) -> Vec<Vec<u8>> {
        self.send(&self.good(b"end"));
        let begin = MonotonicClock.now();
        let is_end = |packet: &Packet| packet.payload.contiguous() == Some(b"end");
        while !self.came.iter().any(is_end) {
            self.receiver.receive(MonotonicClock.now(), &mut self.came);
            assert!(MonotonicClock.now().since(begin).as_secs() < 20, "{:?}", self.receiver.counters());
        }
        self.came.retain(|packet| !is_end(packet));
        self.came.drain(..).map(|packet| packet.payload.to_vec()).collect()
    }

    /// Whether the kernel's protocols open frames for the receiver.
    fn is_socket(&self) -> bool {
        let descriptor = self.receiver.wait_descriptor().expect("it is no simulated one");
        net::sockopt::socket_domain(descriptor) == Ok(AddressFamily::INET)
    }
}

fn bind(socket: &OwnedFd, card: u32) {
    // SAFETY: numbers, for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, card as i32);
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: reads an address of this length.
    assert_eq!(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }, 0);
}

fn options_are_no_payload(flow: Flow, receiver: ReceiverMaker) -> Skip {
    let mut wire = Wire::new(flow, receiver)?;
    for options in [4, 20, 40] {
        let mut header = wire.header();
        // No-operation options, repeated.
        header.options = vec![1; options][..].try_into().expect("whole words");
        wire.send(&wire.frame(&wire.ethernet, &header, &wire.carried(&pattern(options, 500))));
    }
    assert!(wire.received() == [4, 20, 40].map(|options| pattern(options, 500)));
    Ok(())
}

fn padding_is_no_payload(flow: Flow, receiver: ReceiverMaker) -> Skip {
    let mut wire = Wire::new(flow, receiver)?;
    (0..20).for_each(|bytes| wire.send(&wire.good(&pattern(1, bytes))));
    assert_eq!(wire.received(), (0..20).map(|bytes| pattern(1, bytes)).collect::<Vec<_>>());
    Ok(())
}

fn fragments_become_one_packet_in_any_order(flow: Flow, receiver: ReceiverMaker) -> Skip {
    let mut wire = Wire::new(flow, receiver)?;
    let payload = pattern(7, 3500);
    let carried = wire.carried(&payload);
    let part = |number: u16| {
        let mut header = wire.header();
        (header.identification, header.dont_fragment, header.more_fragments) = (77, false, number < 2);
        header.fragment_offset = IpFragOffset::try_new(number * 185).expect("13 bits");
        let begin = usize::from(number) * 1480;
        wire.frame(&wire.ethernet, &header, &carried[begin..carried.len().min(begin + 1480)])
    };
    let parts = [0, 1, 2].map(part);
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        order.iter().for_each(|&number: &usize| wire.send(&parts[number]));
    }
    // A packet with a missing fragment never arrives.
    wire.send(&parts[1]);
    let mut came = wire.received();
    for _ in 0..200 {
        // Fragments may take another path than whole packets.
        if came.len() < 3 {
            came.extend(wire.received());
        }
    }
    assert!(came == [&payload[..]; 3], "{} packets", came.len());
    Ok(())
}

fn a_priority_is_no_network_and_other_networks_are_not_listened_to(flow: Flow, receiver: ReceiverMaker) -> Skip {
    let mut wire = Wire::new(flow, receiver)?;
    for (number, tag) in [0xA000, 0x0005, 0, 0xA005].into_iter().enumerate() {
        let carried = wire.carried(&pattern(number, 100));
        wire.send(&wire.tagged_frame(&wire.ethernet, Some(tag), &wire.header(), &carried));
    }
    assert!(wire.received() == [pattern(0, 100), pattern(2, 100)]);
    Ok(())
}

fn wrong_checksums_are_refused_and_counted(flow: Flow, receiver: ReceiverMaker) -> Skip {
    let mut wire = Wire::new(flow, receiver)?;
    let mut header = wire.good(&pattern(1, 100));
    header[24] ^= 1;
    wire.send(&header);
    if flow == Flow::Udp {
        for length in [100, 1400] {
            let mut datagram = wire.good(&pattern(2, length));
            datagram[60] ^= 1;
            wire.send(&datagram);
        }
    }
    wire.send(&wire.good(&pattern(3, 100)));
    assert!(wire.received() == [pattern(3, 100)]);
    let ReceiveCounters { lost, around, .. } = wire.receiver.counters();
    let of_udp = if flow == Flow::Udp { 2 } else { 0 };
    let found =
        [lost.get(Cause::BadChecksum), lost.total(), around.get(Cause::BadChecksum), around.get(Cause::Malformed)];
    // A receiver of frames also checks IP's checksum; for a socket the kernel's protocols have dropped such packets.
    let wanted = if wire.is_socket() { [of_udp, of_udp, of_udp, 1] } else { [of_udp + 1, of_udp + 1, 0, 0] };
    assert_eq!(found, wanted, "{lost:?} {around:?}");
    Ok(())
}

fn runts_and_lies_about_lengths_are_no_packets(flow: Flow, receiver: ReceiverMaker) -> Skip {
    let mut wire = Wire::new(flow, receiver)?;
    let good = wire.good(&pattern(1, 100));
    for length in [15, 20, 33, 34, 37, 41, 100] {
        wire.send(&good[..length]);
    }
    // UDP's length is larger or smaller than IP's.
    if flow == Flow::Udp {
        for length in [0_u16, 7, 109, 65_535] {
            let mut lie = good.clone();
            lie[38..40].copy_from_slice(&length.to_be_bytes());
            wire.send(&lie);
        }
    }
    wire.send(&good);
    assert!(wire.received() == [pattern(1, 100)]);
    Ok(())
}

fn traffic_of_others_is_not_received(flow: Flow, receiver: ReceiverMaker) -> Skip {
    let mut wire = Wire::new(flow, receiver)?;
    let with = |change: &dyn Fn(&mut Ethernet2Header, &mut Ipv4Header)| {
        let (mut ethernet, mut header) = (wire.ethernet.clone(), wire.header());
        change(&mut ethernet, &mut header);
        wire.send(&wire.frame(&ethernet, &header, &wire.carried(&pattern(1, 100))));
    };
    with(&|_, header| header.protocol = IpNumber(250));
    with(&|_, header| header.destination = [10, 77, 0, 9]);
    with(&|ethernet, _| ethernet.destination[5] ^= 1);
    with(&|ethernet, _| ethernet.ether_type = EtherType(0x0806));
    with(&|ethernet, _| ethernet.ether_type = EtherType(0x88B5));
    if flow == Flow::Udp {
        let mut other_port = wire.carried(&pattern(1, 100));
        other_port[3] ^= 1;
        wire.send(&wire.frame(&wire.ethernet, &wire.header(), &other_port));
    }
    assert!(wire.received().is_empty());
    let ReceiveCounters { lost, around, .. } = wire.receiver.counters();
    assert_eq!(lost.total(), 0, "it does not count as a loss");
    // The interface counts packets that no protocol takes as dropped.
    assert!(around.get(Cause::InterfaceDropped) >= 1, "{around:?}");
    Ok(())
}

fn a_card_that_goes_down_and_comes_up_again_receives_again(flow: Flow, receiver: ReceiverMaker) -> Skip {
    let mut wire = Wire::new(flow, receiver)?;
    wire.send(&wire.good(b"before"));
    assert_eq!(wire.received(), [b"before"]);
    for _ in 0..2 {
        wire.cable.sink.set_up(false).expect("a card of ours");
        // The cable has lost its other end: packets sent are lost, or refused.
        let _ = net::send(&wire.socket, &wire.good(b"lost"), SendFlags::empty());
        assert_eq!(wire.receiver.receive(MonotonicClock.now(), &mut wire.came), 0);
        wire.cable.sink.set_up(true).expect("a card of ours");
        let begin = MonotonicClock.now();
        while wire.came.is_empty() {
            let _ = net::send(&wire.socket, &wire.good(b"again"), SendFlags::empty());
            wire.receiver.receive(MonotonicClock.now(), &mut wire.came);
            assert!(MonotonicClock.now().since(begin).as_secs() < 20, "{:?}", wire.receiver.counters());
        }
        assert!(wire.received().iter().all(|payload| payload == b"again"));
    }
    let waiter = ropewalk_io::wait::Waiter::new().map(|mut waiter| {
        wire.receiver.wait_descriptor().map(|descriptor| waiter.watch(descriptor));
        waiter
    });
    assert!(wire.receiver.prepare_wait());
    let woken = waiter.expect("an eventfd").wait(Some(std::time::Duration::from_millis(1)));
    assert!(!woken, "it sleeps as before");
    Ok(())
}

macro_rules! odd {
    ($($module:ident = $flow:expr, $receiver:path;)*) => {$(
        mod $module {
            use super::*;

            odd!(@rules $module, $flow, $receiver:
                options_are_no_payload,
                padding_is_no_payload,
                fragments_become_one_packet_in_any_order,
                a_priority_is_no_network_and_other_networks_are_not_listened_to,
                wrong_checksums_are_refused_and_counted,
                runts_and_lies_about_lengths_are_no_packets,
                traffic_of_others_is_not_received,
                a_card_that_goes_down_and_comes_up_again_receives_again,
            );
        }
    )*};
    (@rules $module:ident, $flow:expr, $receiver:path: $($rule:ident),* $(,)?) => {$(
        #[test]
        fn $rule() {
            let name = concat!("packets::odd::", stringify!($module), "::", stringify!($rule));
            run(name, || super::$rule($flow, $receiver));
        }
    )*};
}

odd! {
    udp = Flow::Udp, cable::batches;
    udp_gro = Flow::Udp, cable::trains;
    raw = Flow::Ip(253), cable::batches;
    ring_udp = Flow::Udp, cable::ring;
    ring_raw = Flow::Ip(253), cable::ring;
    xdp_udp = Flow::Udp, cable::xdp;
    xdp_raw = Flow::Ip(253), cable::xdp;
}
