//! The mechanisms between two hosts, where there are cards, frames and fragments.

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};

use ropewalk_io::packet::{
    Flow, FrameConfig, FrameSender, PacketMemory, ReceiveConfig, ReceiveMechanism, Receiver, RingConfig, RingReceiver,
    SendConfig, SendMechanism, Sender, SocketReceiver, SocketSender, TransmitRing,
};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_terms::Instant;

use crate::namespaces::{CARD, Cable, SINK, SOURCE};
use crate::world::{Mechanism, Pair, Sizes, Skip, run};
use crate::{pool, staging};

/// Frames that carry the largest payload, and the usual ones, for which larger packets are cut into fragments.
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

/// A receiver and a sender in two hosts.
pub(crate) fn pair(
    mtu: u32,
    flow: Flow,
    receiver: ReceiverMaker,
    sender: SenderMaker,
    sizes: Sizes,
) -> Result<(Cable, Pair), &'static str> {
    let cable = Cable::lay(mtu, 1)?;
    cable.resolve();
    let receiver = cable.sink.inside(|| receiver(flow, sizes));
    let sender = cable.source.inside(|| sender(flow, sizes));
    Ok((cable, Pair { receiver, sender }))
}

impl Cable {
    /// Lets each host find the other one's card, so that no packet has to wait for that.
    pub(crate) fn resolve(&self) {
        let sink = self.sink.inside(|| UdpSocket::bind((SINK, 0))).expect("its own address");
        let source = self.source.inside(|| UdpSocket::bind((SOURCE, 0))).expect("its own address");
        let to: SocketAddr = sink.local_addr().expect("a bound address");
        source.send_to(b"?", to).expect("a way");
        let (_, from) = sink.recv_from(&mut [0; 1]).expect("a packet");
        sink.send_to(b"!", from).expect("a way back");
        source.recv_from(&mut [0; 1]).expect("a packet");
    }
}

macro_rules! between_hosts {
    ($name:ident, $mtu:expr, $flow:expr, $receiver:ident, $sender:ident, train $train:expr, waits $waits:expr) => {
        #[derive(Default)]
        pub(crate) struct $name {
            _cable: Option<Cable>,
        }

        impl Mechanism for $name {
            const TRAIN: usize = $train;
            const WAITS: bool = $waits;

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
between_hosts!(RawRing, USUAL, Flow::Ip(253), ring, mmsg, train 1, waits false);
between_hosts!(Transmit, JUMBO, Flow::Udp, batches, transmit_ring, train 1, waits true);
between_hosts!(RawRings, JUMBO, Flow::Ip(253), ring, transmit_ring, train 1, waits false);

/// Each of a group gets the packets of some senders, and every one of theirs.
fn a_group_shares_the_packets(receiver: fn(SocketAddrV4) -> Box<dyn Receiver + Send>) -> Skip {
    let cable = Cable::lay(USUAL, 1)?;
    cable.resolve();
    let first = cable.sink.inside(|| receiver(TO));
    let to = first.address();
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
    run("cable::rings_of_a_group_share_the_packets", || {
        a_group_shares_the_packets(|address| {
            let config = RingConfig { group: Some(7), ..RingConfig::new(Flow::Udp, address, CARD) };
            Box::new(RingReceiver::new(&config).expect("a ring"))
        })
    });
}
