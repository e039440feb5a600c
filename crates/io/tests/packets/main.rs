//! One conformance suite for every mechanism behind [`ropewalk_io::packet::Receiver`] and its `Sender`.

mod cable;
mod odd;
mod sockets;
mod suite;
mod world;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU16, Ordering};

use ropewalk_io::packet::simulated::{PacketFaults, PacketNetwork};
use ropewalk_io::packet::{
    Flow, PacketMemory, ReceiveConfig, ReceiveMechanism, SendConfig, SendMechanism, SocketReceiver, SocketSender,
};
use ropewalk_io::{Clock, MonotonicClock, SimulatedClock};
use ropewalk_memory::{NextPacket, PacketAllocator, Pool, PoolConfig, Staging};

use crate::world::{Mechanism, Pair, Sizes};

/// An address of this host that nobody else has: a raw socket gets all packets of its protocol that come to its address.
fn here() -> SocketAddrV4 {
    static NEXT: AtomicU16 = AtomicU16::new(2);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(127, 9, high, low), 0)
}

fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap(name, block, blocks)).expect("memory for a test")
}

fn staging() -> Staging {
    Staging::new(pool("staging", 128 << 10, 8))
}

/// How packets are received, sent and kept.
struct Way {
    receive: ReceiveMechanism,
    send: SendMechanism,
    memory: fn(Sizes) -> PacketMemory,
}

fn in_pool(sizes: Sizes) -> PacketMemory {
    pool("receive", sizes.block, sizes.blocks).into()
}

fn in_ring(sizes: Sizes) -> PacketMemory {
    let config = PoolConfig::heap("receive", sizes.block, sizes.blocks);
    PacketMemory::Ring(NextPacket::new(config).expect("memory for a test"))
}

fn in_stdlib(sizes: Sizes) -> PacketMemory {
    let packets = (sizes.block / sizes.largest).max(1) * sizes.blocks;
    PacketMemory::Stdlib(PacketAllocator::new("receive", packets).expect("a table for a test"))
}

/// A pair of sockets on this host, or why there is none.
fn sockets(way: &Way, flow: Flow, sizes: Sizes) -> Result<Pair, &'static str> {
    let receive = ReceiveConfig {
        mechanism: way.receive,
        batch: sizes.batch,
        largest: sizes.largest,
        socket_buffer: sizes.queue,
        ..ReceiveConfig::new(flow, here())
    };
    let send = SendConfig { mechanism: way.send, batch: sizes.send_batch, ..SendConfig::new(flow, here()) };
    let receiver = match SocketReceiver::new(receive, (way.memory)(sizes)) {
        Err(ropewalk_io::packet::PacketError::Denied { .. }) => return Err("may not open raw sockets"),
        receiver => receiver.expect("a socket"),
    };
    let sender = SocketSender::new(send, staging()).expect("a socket");
    Ok(Pair { receiver: Box::new(receiver), sender: Box::new(sender) })
}

macro_rules! over_sockets {
    ($name:ident, $flow:expr, $receive:ident, $send:ident, $memory:ident) => {
        #[derive(Default)]
        struct $name;

        impl Mechanism for $name {
            const TRAIN: usize = if matches!(ReceiveMechanism::$receive, ReceiveMechanism::UdpGro) { 64 } else { 1 };

            fn pair(&mut self, sizes: Sizes) -> Result<Pair, &'static str> {
                let way = Way { receive: ReceiveMechanism::$receive, send: SendMechanism::$send, memory: $memory };
                sockets(&way, $flow, sizes)
            }

            fn now(&self) -> ropewalk_terms::Instant {
                MonotonicClock.now()
            }
        }
    };
}

over_sockets!(OneByOne, Flow::Udp, RecvFrom, SendTo, in_pool);
over_sockets!(Batches, Flow::Udp, RecvMmsg, SendMmsg, in_pool);
over_sockets!(Trains, Flow::Udp, UdpGro, UdpGso, in_pool);
over_sockets!(CutTrains, Flow::Udp, RecvMmsg, UdpGso, in_pool);
over_sockets!(BatchesInARing, Flow::Udp, RecvMmsg, SendMmsg, in_ring);
over_sockets!(OneByOneInARing, Flow::Udp, RecvFrom, SendMmsg, in_ring);
over_sockets!(OneByOneOfTheLibrary, Flow::Udp, RecvFrom, SendMmsg, in_stdlib);
over_sockets!(BatchesOfTheLibrary, Flow::Udp, RecvMmsg, SendMmsg, in_stdlib);
over_sockets!(RawBatches, Flow::Ip(253), RecvMmsg, SendMmsg, in_pool);
over_sockets!(RawOneByOne, Flow::Ip(254), RecvFrom, SendTo, in_ring);

/// Virtual time: goes to whatever happens next.
#[derive(Default)]
struct OnASimulatedNetwork {
    clock: SimulatedClock,
}

impl Mechanism for OnASimulatedNetwork {
    const TRAIN: usize = 1;

    fn pair(&mut self, sizes: Sizes) -> Result<Pair, &'static str> {
        let faults = PacketFaults { queue: sizes.queue / 1024, ..PacketFaults::default() };
        let network = PacketNetwork::new(1, faults);
        let receive =
            ReceiveConfig { batch: sizes.batch, largest: sizes.largest, ..ReceiveConfig::new(Flow::Udp, here()) };
        let receiver = network.receiver(receive, in_pool(sizes)).expect("a free address");
        let send = SendConfig { batch: sizes.send_batch, ..SendConfig::new(Flow::Udp, here()) };
        Ok(Pair { receiver: Box::new(receiver), sender: Box::new(network.sender(send, staging())) })
    }

    fn now(&self) -> ropewalk_terms::Instant {
        self.clock.advance(std::time::Duration::from_micros(10));
        self.clock.now()
    }
}

macro_rules! conformance {
    ($mechanism:path, $module:ident: $($rule:ident),* $(,)?) => {
        mod $module {
            use super::*;

            $(
                #[test]
                fn $rule() {
                    let name = concat!(stringify!($module), "::", stringify!($rule));
                    crate::world::run(name, crate::suite::$rule::<$mechanism>);
                }
            )*
        }
    };
}

macro_rules! every_rule_for {
    ($($module:ident = $mechanism:path),* $(,)?) => {$(
        conformance!($mechanism, $module:
            packets_of_every_size_come_whole_and_in_order,
            a_batch_is_bounded_and_nothing_is_lost_in_between,
            packets_gathered_from_slices_are_those_written_in_place,
            the_sender_is_named,
            packets_that_are_too_long_are_refused_and_counted,
            what_a_full_queue_loses_is_counted,
            what_waits_is_told_and_as_much_as_has_room_is_kept,
            packets_wait_while_all_memory_is_held,
            a_full_send_queue_takes_nothing,
            a_packet_of_too_many_pieces_is_sent_all_the_same,
            a_waiting_thread_is_woken_by_a_packet,
        );
    )*};
}

every_rule_for!(
    recvfrom_sendto = OneByOne,
    recvmmsg_sendmmsg = Batches,
    gro_gso = Trains,
    recvmmsg_gso = CutTrains,
    ring_recvmmsg = BatchesInARing,
    ring_recvfrom = OneByOneInARing,
    stdlib_recvfrom = OneByOneOfTheLibrary,
    stdlib_recvmmsg = BatchesOfTheLibrary,
    raw_recvmmsg = RawBatches,
    raw_recvfrom = RawOneByOne,
    simulated = OnASimulatedNetwork,
    cable_recvmmsg = cable::Sockets,
    cable_gro_gso = cable::Trains,
    cable_recvmmsg_gso = cable::CutTrains,
    cable_raw = cable::Raw,
    ring_udp = cable::Ring,
    ring_fragments = cable::RingOfFragments,
    transmit_ring = cable::Transmit,
    rings_raw = cable::RawRings,
    xdp_udp = cable::Xdp,
    xdp_fragments = cable::XdpOfFragments,
    xdp_transmit = cable::XdpTransmitted,
    xdp_both = cable::RawXdpBoth,
);
