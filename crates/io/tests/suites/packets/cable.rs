//! The mechanisms between two hosts, with cards, frames and fragments.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::process::{Command, Stdio};

use ropewalk_io::packet::cable::{CARD, Cable, SINK, SOURCE};
use ropewalk_io::packet::{
    Flow, FrameConfig, FrameSender, MemoryInUse, Packet, PacketError, PacketMemory, ReceiveConfig, ReceiveMechanism,
    Receiver, RingConfig, RingReceiver, SendConfig, SendMechanism, Sender, SocketReceiver, SocketSender, TransmitRing,
    XdpCard, XdpConfig, XdpInput, XdpMode, XdpReceiver, XdpTransmit, over_v4,
};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_terms::{Cause, Instant};

use super::{Mechanism, Pair, Sizes, Skip, pattern, pool, run, staging};

/// MTU for the largest payload; with the usual MTU, larger packets are cut into fragments.
pub(crate) const JUMBO: u32 = 9100;
pub(crate) const USUAL: u32 = 1500;

const TO: SocketAddrV4 = SocketAddrV4::new(SINK, 0);
const FROM: SocketAddrV4 = SocketAddrV4::new(SOURCE, 0);

pub(crate) type ReceiverMaker = fn(Flow, Sizes) -> Box<dyn Receiver + Send>;
pub(crate) type SenderMaker = fn(Flow, Sizes) -> Box<dyn Sender + Send>;

pub(crate) fn batches(flow: Flow, sizes: Sizes) -> Box<dyn Receiver + Send> {
    socket(ReceiveMechanism::RecvMmsg, flow, sizes)
}

pub(crate) fn trains(flow: Flow, sizes: Sizes) -> Box<dyn Receiver + Send> {
    socket(ReceiveMechanism::UdpGro, flow, sizes)
}

fn socket(mechanism: ReceiveMechanism, flow: Flow, sizes: Sizes) -> Box<dyn Receiver + Send> {
    let Sizes { batch, largest, queue: socket_buffer, .. } = sizes;
    let config = ReceiveConfig { mechanism, batch, largest, socket_buffer, ..ReceiveConfig::new(flow, TO) };
    let memory: PacketMemory = pool("receive", sizes.block, sizes.blocks).into();
    Box::new(SocketReceiver::new(config, memory).expect("a socket"))
}

pub(crate) fn ring(flow: Flow, sizes: Sizes) -> Box<dyn Receiver + Send> {
    let block_size = sizes.block.min(sizes.queue / 2).next_power_of_two();
    let blocks = (sizes.queue / block_size).clamp(2, sizes.blocks);
    let (batch, largest) = (sizes.batch, sizes.largest);
    let config = RingConfig { batch, largest, block_size, blocks, ..RingConfig::new(flow, TO, CARD) };
    Box::new(RingReceiver::new(&config).expect("a ring"))
}

pub(crate) fn mmsg(flow: Flow, sizes: Sizes) -> Box<dyn Sender + Send> {
    sending_socket(SendMechanism::SendMmsg, flow, sizes)
}

pub(crate) fn gso(flow: Flow, sizes: Sizes) -> Box<dyn Sender + Send> {
    sending_socket(SendMechanism::UdpGso, flow, sizes)
}

fn sending_socket(mechanism: SendMechanism, flow: Flow, sizes: Sizes) -> Box<dyn Sender + Send> {
    let config = SendConfig { mechanism, batch: sizes.send_batch, ..SendConfig::new(flow, FROM) };
    Box::new(SocketSender::new(config, staging()).expect("a socket"))
}

pub(crate) fn transmit_ring(flow: Flow, sizes: Sizes) -> Box<dyn Sender + Send> {
    let config = FrameConfig { frames: sizes.send_batch, ..FrameConfig::new(flow, FROM, CARD) };
    let mut sender = FrameSender::<TransmitRing>::new(config, staging()).expect("a ring");
    assert!(sender.is_near(SINK, MonotonicClock.now()), "the kernel has found it");
    Box::new(sender)
}

/// Both ends of a queue of a card with the program.
fn queue(flow: Flow, address: SocketAddrV4, sizes: Sizes) -> (XdpReceiver, FrameSender<XdpTransmit>) {
    let receive_frames = (sizes.queue.min(sizes.block * sizes.blocks) / 4096).max(64);
    let (batch, largest, send_frames) = (sizes.batch, sizes.largest, sizes.send_batch);
    let config = XdpConfig { batch, largest, receive_frames, send_frames, ..XdpConfig::new(flow, address, CARD) };
    let card = XdpCard::attach(config, [pool("fragments", 64 << 10, 16)]).expect("a program at the card");
    card.open(0, staging()).expect("a socket of its queue")
}

pub(crate) fn xdp(flow: Flow, sizes: Sizes) -> Box<dyn Receiver + Send> {
    Box::new(queue(flow, TO, sizes).0)
}

pub(crate) fn xdp_transmit(flow: Flow, sizes: Sizes) -> Box<dyn Sender + Send> {
    let (receiver, mut sender) = queue(flow, FROM, sizes);
    drop(receiver);
    assert!(sender.is_near(SINK, MonotonicClock.now()), "the kernel has found it");
    Box::new(sender)
}

/// A receiver and a sender in two hosts.
pub(crate) fn pair(
    mtu: u32,
    flow: Flow,
    receiver: ReceiverMaker,
    sender: SenderMaker,
    sizes: Sizes,
) -> Result<(Cable, Pair), &'static str> {
    let cable = lay(mtu)?;
    let receiver = cable.sink.inside(|| receiver(flow, sizes));
    let sender = cable.source.inside(|| sender(flow, sizes));
    Ok((cable, Pair { receiver, sender }))
}

/// Lays a cable between hosts that know each other.
///
/// # Errors
/// The text to report if there are none.
pub(crate) fn lay(mtu: u32) -> Result<Cable, &'static str> {
    let cable = Cable::lay(mtu, 1).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => "may not make network namespaces",
        _ => panic!("no cable: {error}"),
    })?;
    cable.resolve().expect("a way there and back");
    Ok(cable)
}

macro_rules! between_hosts {
    ($name:ident, $mtu:expr, $flow:expr, $receiver:ident, $sender:ident, train $train:expr, waits $waits:expr) => {
        between_hosts!($name, $mtu, $flow, $receiver, $sender, train $train, waits $waits, up to 9000);
    };
    ($name:ident, $mtu:expr, $flow:expr, $receiver:ident, $sender:ident, train $train:expr, waits $waits:expr, up to $largest:expr) => {
        #[derive(Default)]
        pub(crate) struct $name {
            _cable: Option<Cable>,
        }

        impl Mechanism for $name {
            const TRAIN: usize = $train;
            const WAITS: bool = $waits;
            const LARGEST: usize = $largest;

            fn pair(&mut self, sizes: Sizes) -> Result<Pair, &'static str> {
                let (cable, pair) = pair($mtu, $flow, $receiver, $sender, sizes)?;
                self._cable = Some(cable);
                Ok(pair)
            }

            fn now(&self) -> Instant {
                MonotonicClock.now()
            }
        }
    };
}

between_hosts!(Sockets, USUAL, Flow::Udp, batches, mmsg, train 1, waits true);
between_hosts!(Trains, JUMBO, Flow::Udp, trains, gso, train 64, waits true);
between_hosts!(CutTrains, USUAL, Flow::Udp, batches, gso, train 1, waits true);
between_hosts!(Raw, USUAL, Flow::Ip(253), batches, mmsg, train 1, waits true);
between_hosts!(Ring, JUMBO, Flow::Udp, ring, mmsg, train 1, waits false);
between_hosts!(RingOfFragments, USUAL, Flow::Udp, ring, mmsg, train 1, waits false);
between_hosts!(Transmit, JUMBO, Flow::Udp, batches, transmit_ring, train 1, waits true);
between_hosts!(Xdp, JUMBO, Flow::Udp, xdp, mmsg, train 1, waits false);
between_hosts!(XdpOfFragments, 3100, Flow::Udp, xdp, mmsg, train 1, waits false);
between_hosts!(XdpTransmitted, JUMBO, Flow::Udp, batches, xdp_transmit, train 1, waits true, up to 4050);
between_hosts!(RawXdpBoth, JUMBO, Flow::Ip(253), xdp, xdp_transmit, train 1, waits false, up to 4050);
between_hosts!(RawRings, JUMBO, Flow::Ip(253), ring, transmit_ring, train 1, waits false);

/// Each receiver of a group gets all packets of some senders.
fn a_group_shares_the_packets(receiver: fn(SocketAddrV4) -> Box<dyn Receiver + Send>) -> Skip {
    let cable = lay(USUAL)?;
    let first = cable.sink.inside(|| receiver(TO));
    let to = first.address_v4();
    let mut group = [first, cable.sink.inside(|| receiver(to))];
    for _ in 0..30 {
        let mut sender = cable.source.inside(|| mmsg(Flow::Udp, Sizes::default()));
        for _ in 0..4 {
            sender.send_with(to, 1, &mut |_| 1).expect("room");
        }
        assert_eq!(sender.flush(MonotonicClock.now()), 4);
    }
    let mut packets = Vec::new();
    while packets.len() < 120 {
        group.iter_mut().for_each(|receiver| _ = receiver.receive(MonotonicClock.now(), &mut packets));
    }
    let parts = group.map(|mut receiver| receiver.counters().packets);
    assert!(parts.iter().all(|part| part % 4 == 0 && *part > 0) && parts.iter().sum::<u64>() == 120, "{parts:?}");
    Ok(())
}

#[test]
fn rings_of_a_group_share_the_packets() {
    run("packets::cable::rings_of_a_group_share_the_packets", || {
        a_group_shares_the_packets(|address| {
            let config = RingConfig { group: Some(7), ..RingConfig::new(Flow::Udp, address, CARD) };
            Box::new(RingReceiver::new(&config).expect("a ring"))
        })
    });
}

/// A queue with all its parts, in the receiving host.
fn sink_queue(cable: &Cable, config: impl FnOnce(&mut XdpConfig) + Send) -> (XdpReceiver, FrameSender<XdpTransmit>) {
    cable.sink.inside(|| {
        let mut settings = XdpConfig::new(Flow::Udp, TO, CARD);
        config(&mut settings);
        let card = XdpCard::attach(settings, [pool("fragments", 64 << 10, 4)]).expect("a program at the card");
        card.open(0, staging()).expect("a socket of its queue")
    })
}

/// Receives until `count` packets have arrived.
fn receive(receiver: &mut dyn Receiver, count: usize) -> Vec<Packet> {
    let (mut packets, begin) = (Vec::new(), MonotonicClock.now());
    while packets.len() < count {
        receiver.receive(MonotonicClock.now(), &mut packets);
        assert!(MonotonicClock.now().since(begin).as_secs() < 20, "{} packets", packets.len());
    }
    packets
}

#[test]
fn a_received_frame_leaves_again_without_a_copy_unless_another_slice_holds_it() {
    run("packets::cable::a_received_frame_leaves_again_without_a_copy_unless_another_slice_holds_it", || {
        let cable = lay(USUAL)?;
        let (mut receiver, mut sender) = sink_queue(&cable, |_| {});
        assert!(sender.is_near(SOURCE, MonotonicClock.now()));
        let source = cable.source.inside(|| UdpSocket::bind((SOURCE, 0))).expect("its own address");
        let mut answer = [0; 2000];
        // More often than there are frames: each is returned after it has left.
        for round in 0..3000_usize {
            let payload = pattern(round, 18 + round % 1400);
            source.send_to(&payload, SocketAddr::V4(receiver.address_v4())).expect("a way");
            let Packet { from, payload: came, .. } = receive(&mut receiver, 1).remove(0);
            let held = (round % 100 == 7).then(|| came.clone());
            let mut slices: Vec<_> = came.into_slices().collect();
            sender.send(over_v4(from), &mut slices).expect("room");
            sender.flush(MonotonicClock.now());
            let (bytes, whence) = source.recv_from(&mut answer).expect("an answer");
            assert!(answer[..bytes] == payload && whence == SocketAddr::V4(sender.address()), "{round}");
            assert!(held.is_none_or(|held| held.to_vec() == payload), "what is held is left alone");
        }
        let copied: usize = (0..3000).filter(|round| round % 100 == 7).map(|round| 18 + round % 1400).sum();
        assert_eq!(sender.counters().bytes_copied, copied as u64);
        sender.flush(MonotonicClock.now());
        assert_eq!((sender.queued(), receiver.memory_in_use().held), (0, 0));
        Ok(())
    });
}

#[test]
fn as_many_packets_wait_as_frames_are_posted_and_more_can_be_held() {
    run("packets::cable::as_many_packets_wait_as_frames_are_posted_and_more_can_be_held", || {
        let cable = lay(USUAL)?;
        let (mut receiver, _sender) = sink_queue(&cable, |config| {
            (config.receive_frames, config.posted_frames) = (256, 64);
        });
        let source = cable.source.inside(|| UdpSocket::bind((SOURCE, 0))).expect("its own address");
        let to = SocketAddr::V4(receiver.address_v4());
        let send = |count| (0..count).for_each(|_: usize| assert_eq!(source.send_to(b"packet", to).expect("a way"), 6));
        send(100);
        let mut held = receive(&mut receiver, 64);
        // Posts others.
        let look = |receiver: &mut XdpReceiver| receiver.receive(MonotonicClock.now(), &mut Vec::new());
        assert_eq!(look(&mut receiver), 0);
        assert_eq!(receiver.counters().lost.get(Cause::NoFrame), 36, "no receiver posted frames");
        for waiting in [64, 64, 64] {
            send(waiting);
            held.extend(receive(&mut receiver, waiting));
            assert_eq!(look(&mut receiver), 0);
        }
        assert_eq!((held.len(), receiver.memory_in_use()), (256, MemoryInUse { held: 256, all: 256 }));
        send(10);
        assert_eq!((receiver.counters().lost.get(Cause::NoFrame), receiver.memory_in_use().held), (46, 256));
        drop(held);
        assert_eq!(look(&mut receiver), 0);
        send(64);
        assert_eq!(receive(&mut receiver, 64).len(), 64);
        Ok(())
    });
}

/// Several flows at one card: the number assigned to packets of each, and the queue of each.
fn flows(wanted: &[(Flow, Option<u32>)], queues: u32) -> XdpConfig {
    let input = |(to, &(flow, queue))| XdpInput { flow, address: TO, queue, to };
    let inputs = (10..).zip(wanted).map(input).collect();
    XdpConfig { inputs, queues, largest: 3000, ..XdpConfig::new(Flow::Udp, TO, CARD) }
}

fn fragments(config: &XdpConfig) -> Vec<ropewalk_memory::Pool> {
    config.inputs.iter().map(|_| pool("fragments", 64 << 10, 4)).collect()
}

/// Sends a packet to an input, from a separate socket.
fn send_to(cable: &Cable, input: &XdpInput, payload: &[u8]) {
    let mut sender = cable.source.inside(|| mmsg(input.flow, Sizes::default()));
    let fill = &mut |room: &mut [u8]| {
        room[..payload.len()].copy_from_slice(payload);
        payload.len()
    };
    sender.send_with(input.address, payload.len(), fill).expect("room");
    assert_eq!(sender.flush(MonotonicClock.now()), 1);
}

#[test]
fn several_flows_share_a_queue_and_each_packet_says_whose_it_is() {
    run("packets::cable::several_flows_share_a_queue_and_each_packet_says_whose_it_is", || {
        let cable = lay(USUAL)?;
        let config = flows(&[(Flow::Udp, None), (Flow::Udp, None), (Flow::Ip(253), None), (Flow::Ip(254), None)], 1);
        let (card, (mut receiver, _sender)) = cable.sink.inside(|| {
            let memory = fragments(&config);
            let card = XdpCard::attach(config, memory).expect("a program at the card");
            let pair = card.open(0, staging()).expect("a socket of its queue");
            (card, pair)
        });
        // No receiver takes these.
        let other = XdpInput { flow: Flow::Ip(252), ..card.inputs()[2] };
        for (number, input) in card.inputs().iter().chain([&other]).enumerate() {
            // Whole, and in fragments.
            send_to(&cable, input, &pattern(number, 900));
            send_to(&cable, input, &pattern(number, 2500));
        }
        let mut came: Vec<_> = receive(&mut receiver, 8)
            .iter()
            .map(|packet| (packet.to, packet.payload.len(), packet.payload.to_vec()))
            .collect();
        came.sort();
        let wanted = (0..4).flat_map(|number| [900, 2500].map(|bytes| (number, bytes)));
        let wanted: Vec<_> =
            wanted.map(|(number, bytes)| (10 + number as u16, bytes, pattern(number, bytes))).collect();
        assert!(came == wanted);
        assert_eq!(receiver.counters().packets, 8);
        Ok(())
    });
}

#[test]
fn a_ring_in_front_of_a_held_block_says_how_little_is_left() {
    run("packets::cable::a_ring_in_front_of_a_held_block_says_how_little_is_left", || {
        let cable = lay(USUAL)?;
        let config =
            RingConfig { largest: 1000, block_size: 16 << 10, blocks: 8, ..RingConfig::new(Flow::Udp, TO, CARD) };
        let mut ring = cable.sink.inside(|| RingReceiver::new(&config).expect("a ring"));
        let input = XdpInput { flow: Flow::Udp, address: ring.address_v4(), queue: None, to: 0 };
        let next = |ring: &mut RingReceiver| {
            send_to(&cable, &input, b"packet");
            let packet = receive(ring, 1).remove(0);
            // No further packet is in its block, which is therefore closed.
            ring.receive(MonotonicClock.now(), &mut Vec::new());
            packet
        };
        let held = next(&mut ring);
        let mut in_use = Vec::new();
        for _ in 0..7 {
            in_use.push(ring.memory_in_use().held);
            drop(next(&mut ring));
        }
        assert_eq!(in_use, [1, 2, 3, 4, 5, 6, 7], "one is held, and those behind it come after it");
        assert_eq!(ring.memory_in_use().held, 8, "it has stopped");
        drop(held);
        assert_eq!(ring.memory_in_use().held, 0);
        drop(next(&mut ring));
        Ok(())
    });
}

/// Number of packets that IP has seen in the receiving host.
fn seen_by_ip(cable: &Cable) -> u64 {
    let text = cable.sink.inside(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).expect("Linux has it");
    let numbers =
        text.lines().filter_map(|line| line.strip_prefix("Ip: ")).nth(1).expect("a line of names, one of numbers");
    numbers.split(' ').nth(2).and_then(|number| number.parse().ok()).expect("InReceives")
}

#[test]
fn the_kernel_is_spared_what_a_ring_has_got_and_nothing_else() {
    run("packets::cable::the_kernel_is_spared_what_a_ring_has_got_and_nothing_else", || {
        let cable = lay(USUAL)?;
        let source = cable.source.inside(|| UdpSocket::bind((SOURCE, 0))).expect("its own address");
        let other = cable.sink.inside(|| UdpSocket::bind((SINK, 0))).expect("its own address");
        let mut bytes = [0; 10];
        for flow in [Flow::Udp, Flow::Ip(253)] {
            let mut ring = cable.sink.inside(|| RingReceiver::new(&RingConfig::new(flow, TO, CARD)).expect("a ring"));
            let input = XdpInput { flow, address: ring.address_v4(), queue: None, to: 0 };
            let before = seen_by_ip(&cable);
            let mut came = 0;
            for number in 0..100 {
                send_to(&cable, &input, &pattern(number, 900));
                // A slow sender's packets have a block each, and there are fewer blocks than packets.
                came += ring.receive(MonotonicClock.now(), &mut Vec::new());
            }
            came += receive(&mut ring, 100 - came).len();
            assert_eq!((came, seen_by_ip(&cable) - before), (100, 0), "{flow:?}");
            source.send_to(b"other", other.local_addr().expect("it is bound")).expect("a way");
            assert_eq!(other.recv(&mut bytes).ok(), Some(5), "others get theirs");
            drop(ring);
            send_to(&cable, &input, b"unwanted");
            assert_eq!(seen_by_ip(&cable) - before, 2, "{flow:?}: with the ring the program goes");
        }
        Ok(())
    });
}

#[test]
fn rings_with_addresses_of_their_own_each_get_their_packets_and_fragments() {
    run("packets::cable::rings_with_addresses_of_their_own_each_get_their_packets_and_fragments", || {
        let cable = lay(USUAL)?;
        let flows = [Flow::Udp, Flow::Ip(253), Flow::Udp, Flow::Ip(254)];
        let config = |flow| RingConfig { largest: 3000, ..RingConfig::new(flow, TO, CARD) };
        let mut rings = cable.sink.inside(|| RingReceiver::several(&flows.map(config)).expect("rings"));
        for (number, (ring, flow)) in rings.iter().zip(flows).enumerate() {
            let input = XdpInput { flow, address: ring.address_v4(), queue: None, to: 0 };
            for bytes in [900, 2500] {
                send_to(&cable, &input, &pattern(number, bytes));
            }
        }
        for (number, ring) in rings.iter_mut().enumerate() {
            let came = receive(ring, 2).iter().map(|packet| packet.payload.to_vec()).collect::<BTreeSet<_>>();
            assert!(came == [900, 2500].map(|bytes| pattern(number, bytes)).into(), "ring {number}");
        }
        let foreign = XdpInput { flow: Flow::Ip(252), address: TO, queue: None, to: 0 };
        send_to(&cable, &foreign, b"unwanted");
        assert!(rings.iter_mut().all(|ring| ring.receive(MonotonicClock.now(), &mut Vec::new()) == 0));
        Ok(())
    });
}

#[test]
fn packets_come_to_the_queue_that_they_belong_to_wherever_the_card_puts_them() {
    run("packets::cable::packets_come_to_the_queue_that_they_belong_to_wherever_the_card_puts_them", || {
        let cable = Cable::lay(USUAL, 2).map_err(|_| "may not make network namespaces")?;
        cable.resolve().expect("a way there and back");
        let config = flows(&[(Flow::Udp, Some(0)), (Flow::Udp, Some(1))], 2);
        let (card, mut queues) = cable.sink.inside(|| {
            let memory = fragments(&config);
            let card = XdpCard::attach(config, memory).expect("a program at the card");
            let queues = [0, 1].map(|queue| card.open(queue, staging()).expect("a socket of its queue"));
            (card, queues)
        });
        // The card's queue of a packet depends on its ports.
        for number in 0..64 {
            card.inputs().iter().for_each(|input| send_to(&cable, input, &pattern(number, 100)));
        }
        for ((receiver, _), to) in queues.iter_mut().zip([10, 11]) {
            let mut came: Vec<_> =
                receive(receiver, 64).iter().map(|packet| (packet.to, packet.payload.to_vec())).collect();
            came.sort();
            let mut wanted: Vec<_> = (0..64).map(|number| (to, pattern(number, 100))).collect();
            wanted.sort();
            assert!(came == wanted);
        }
        Ok(())
    });
}

/// Binds a port that its former owner has closed. A process that another test starts holds copies of this process's
/// sockets between `fork` and `exec`, so the port can stay in use for a moment.
fn bind_soon(to: SocketAddrV4) -> UdpSocket {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        match UdpSocket::bind(to) {
            Ok(socket) => return socket,
            Err(error) => assert!(std::time::Instant::now() < until, "the port stays in use: {error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_card_is_as_before_when_its_receivers_have_ended() {
    run("packets::cable::a_card_is_as_before_when_its_receivers_have_ended", || {
        let cable = lay(USUAL)?;
        let source = cable.source.inside(|| UdpSocket::bind((SOURCE, 0))).expect("its own address");
        for _ in 0..3 {
            let (mut receiver, sender) = sink_queue(&cable, |_| {});
            let to = receiver.address_v4();
            source.send_to(b"frame", to).expect("a way");
            let packets = receive(&mut receiver, 1);
            let again = || XdpCard::attach(XdpConfig::new(Flow::Udp, TO, CARD), [pool("fragments", 64 << 10, 4)]).err();
            let refused = cable.sink.inside(|| again().map(|error| error.to_string())).expect("a card has one program");
            assert!(refused.starts_with("cannot attach a program to the card"), "{refused}");
            drop((receiver, sender));
            assert_eq!(packets[0].payload.to_vec(), b"frame", "packets outlive their receiver");
            let socket = cable.sink.inside(|| bind_soon(to));
            source.send_to(b"packet", to).expect("a way");
            let mut bytes = [0; 10];
            assert_eq!(
                socket.recv_from(&mut bytes).map(|(length, _)| length).ok(),
                Some(6),
                "the kernel gets packets again"
            );
        }
        Ok(())
    });
}

/// Names the receiver that a process of this test holds until it is killed.
const HOLDS: &str = "ROPEWALK_TEST_HOLDS";

/// Not a separate test: the next one starts it as a process, in the receiving host.
#[test]
fn a_process_that_holds_a_receiver() {
    let Ok(name) = std::env::var(HOLDS) else { return };
    let sizes = Sizes::default();
    let mut receiver = if name == "xdp" { xdp(Flow::Udp, sizes) } else { ring(Flow::Udp, sizes) };
    println!("{HOLDS} {}", receiver.address_v4());
    let mut packets = Vec::new();
    while packets.is_empty() {
        receiver.receive(MonotonicClock.now(), &mut packets);
    }
    println!("{HOLDS} received");
    loop {
        std::thread::park();
    }
}

/// The next output of the process.
fn said(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> String {
    let mut own = lines.filter_map(|line| Some(line.expect("text").split_once(&format!("{HOLDS} "))?.1.to_owned()));
    own.next().expect("the process is alive")
}

#[test]
fn a_card_is_as_before_when_who_held_it_was_killed() {
    run("packets::cable::a_card_is_as_before_when_who_held_it_was_killed", || {
        let cable = lay(USUAL)?;
        let source = cable.source.inside(|| UdpSocket::bind((SOURCE, 0))).expect("its own address");
        for name in ["xdp", "ring"] {
            let mut process = cable.sink.inside(|| {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.args(["--exact", "packets::cable::a_process_that_holds_a_receiver", "--nocapture"]);
                command.env(HOLDS, name).stdout(Stdio::piped()).spawn().expect("a process")
            });
            let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
            let to: SocketAddrV4 = said(&mut lines).parse().expect("an address");
            source.send_to(b"frame", to).expect("a way");
            assert_eq!(said(&mut lines), "received", "{name}: it has the card");
            process.kill().expect("a process of the test's own");
            process.wait().expect("it has ended");
            let before = seen_by_ip(&cable);
            let socket = cable.sink.inside(|| bind_soon(to));
            source.send_to(b"packet", to).expect("a way");
            assert_eq!(socket.recv(&mut [0; 10]).ok(), Some(6), "{name}: the kernel gets packets again");
            assert_eq!(seen_by_ip(&cable) - before, 1, "{name}");
            // Another socket may now use the card.
            let (mut receiver, _sender) = sink_queue(&cable, |_| {});
            source.send_to(b"frame", receiver.address_v4()).expect("a way");
            assert_eq!(receive(&mut receiver, 1)[0].payload.to_vec(), b"frame", "{name}");
        }
        Ok(())
    });
}

#[test]
fn a_generic_program_receives_as_one_of_the_driver_does() {
    run("packets::cable::a_generic_program_receives_as_one_of_the_driver_does", || {
        let cable = lay(USUAL)?;
        let source = cable.source.inside(|| UdpSocket::bind((SOURCE, 0))).expect("its own address");
        let (mut receiver, _sender) = sink_queue(&cable, |config| config.mode = XdpMode::Generic);
        for number in 0..100 {
            source.send_to(&pattern(number, 1000), SocketAddr::V4(receiver.address_v4())).expect("a way");
        }
        let packets = receive(&mut receiver, 100);
        assert!(packets.iter().enumerate().all(|(number, packet)| packet.payload.to_vec() == pattern(number, 1000)));
        Ok(())
    });
}

#[test]
fn a_card_that_cannot_write_into_frames_says_so() {
    run("packets::cable::a_card_that_cannot_write_into_frames_says_so", || {
        let cable = lay(USUAL)?;
        let error = cable.sink.inside(|| {
            let config = XdpConfig { mode: XdpMode::ZeroCopy, ..XdpConfig::new(Flow::Udp, TO, CARD) };
            let card = XdpCard::attach(config, [pool("fragments", 64 << 10, 4)]).expect("a program at the card");
            card.open(0, staging()).err().map(|error| error.to_string())
        });
        let error = error.expect("two hosts on one machine have no such card");
        assert!(error.starts_with("cannot open a socket for the card's queue at 10.77.0.2:"), "{error}");
        Ok(())
    });
}

#[test]
fn settings_of_rings_that_cannot_be_are_refused_with_words() {
    let ring = |change: fn(&mut RingConfig)| {
        let mut config = RingConfig::new(Flow::Udp, TO, CARD);
        change(&mut config);
        matches!(RingReceiver::new(&config), Err(PacketError::Config { .. }))
    };
    assert!(
        ring(|config| config.batch = 0) && ring(|config| config.block_size = 5000) && ring(|config| config.blocks = 1)
    );
    assert!(ring(|config| config.largest = 200 << 10) && ring(|config| config.address.set_ip([0, 0, 0, 0].into())));
    let card = |change: fn(&mut XdpConfig)| {
        let mut config = XdpConfig::new(Flow::Udp, TO, CARD);
        change(&mut config);
        let fragments = pool("fragments", 64 << 10, 1);
        matches!(XdpCard::attach(config, [fragments]), Err(PacketError::Config { .. }))
    };
    assert!(card(|config| config.batch = 5000) && card(|config| config.frame_size = 8192));
    assert!(card(|config| config.receive_frames = 1) && card(|config| config.posted_frames = 1));
    assert!(card(|config| config.queues = 0));
    assert!(card(|config| config.largest = 0) && card(|config| config.inputs[0].address.set_ip([0, 0, 0, 0].into())));
    assert!(card(|config| config.inputs[0].queue = Some(1)) && card(|config| config.inputs.clear()));
    assert!(card(|config| config.inputs.push(config.inputs[0])), "there is memory for one alone");
}

/// IPv6 over a cable: a link-local group is joined at the card with the given address, and the sender is identified by
/// its own address on that link.
#[test]
fn a_group_of_ipv6_is_heard_at_the_card_with_an_address() {
    run("packets::cable::a_group_of_ipv6_is_heard_at_the_card_with_an_address", || {
        let cable = lay(USUAL)?;
        let Some((own, index)) = cable.sink.inside(link_local) else { return Err("this machine has no IPv6") };
        let (sender, scope) = cable.source.inside(link_local).expect("both hosts have it");
        let group = SocketAddrV6::new("ff12::77".parse().expect("a group"), 0, 0, 0);
        let config = ReceiveConfig { interface: Some(own.into()), ..ReceiveConfig::new(Flow::Udp, group) };
        let mut receiver =
            cable.sink.inside(|| SocketReceiver::new(config, pool("group", 64 << 10, 4))).expect("a group at the card");
        assert!(matches!(receiver.address(), SocketAddr::V6(bound) if bound.scope_id() == index));
        let to = SocketAddrV6::new(*group.ip(), receiver.address().port(), 0, scope);
        // Addresses are usable after the kernel has asked whether another machine has them.
        let source = cable.source.inside(|| {
            loop {
                if let Ok(socket) = UdpSocket::bind(SocketAddrV6::new(sender, 0, 0, scope)) {
                    return socket;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let mut packets = Vec::new();
        while packets.is_empty() {
            source.send_to(b"to all", to).expect("a way to the group");
            std::thread::sleep(std::time::Duration::from_millis(20));
            receiver.receive(MonotonicClock.now(), &mut packets);
        }
        assert_eq!((packets[0].payload.to_vec(), packets[0].from.ip()), (b"to all".to_vec(), sender.into()));
        assert_eq!(receiver.take_membership().map(|mut membership| membership.look()), Some(None));
        Ok(())
    });
}

/// The address of a host's card on its link, and the card's index; `None` if the kernel has no IPv6.
fn link_local() -> Option<(Ipv6Addr, u32)> {
    // The kernel gives the address after it has noticed the cable.
    (0..100).find_map(|_| {
        let found = listed_link_local();
        if found.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        found
    })
}

fn listed_link_local() -> Option<(Ipv6Addr, u32)> {
    let list = std::fs::read_to_string("/proc/thread-self/net/if_inet6").ok()?;
    list.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_link = words.get(3) == Some(&"20") && words.get(5) == Some(&CARD);
        let address = u128::from_str_radix(words.first()?, 16).ok()?;
        is_link.then(|| Some((address.into(), u32::from_str_radix(words.get(1)?, 16).ok()?))).flatten()
    })
}
