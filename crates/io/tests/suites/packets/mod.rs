//! One conformance suite for every mechanism behind [`ropewalk_io::packet::Receiver`] and its `Sender`.

mod cable;
mod odd;
mod rules;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use ropewalk_io::packet::simulated::{PacketFaults, PacketNetwork};
use ropewalk_io::packet::{
    Flow, Packet, PacketMemory, ReceiveConfig, ReceiveMechanism, Receiver, Refusal, SendConfig, SendMechanism, Sender,
    SocketReceiver, SocketSender,
};
use ropewalk_io::wait::Waiter;
use ropewalk_io::{Clock, MonotonicClock, SimulatedClock};
use ropewalk_memory::{NextPacket, Owner, PacketAllocator, Pool, PoolConfig, Slice, Staging};
use ropewalk_terms::Instant;

/// An address of this host for one test only: a raw socket gets all packets of its protocol that arrive at its address.
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

/// The way in which packets are received, sent and stored.
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

/// A pair of sockets on this host, or the reason why they cannot be opened.
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

/// Virtual time: moves to the time of the next event.
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
                    let name = concat!("packets::", stringify!($module), "::", stringify!($rule));
                    run(name, crate::packets::rules::$rule::<$mechanism>);
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
            packets_gathered_from_slices_equal_packets_written_in_place,
            the_sender_is_named,
            packets_that_are_too_long_are_refused_and_counted,
            what_a_full_queue_loses_is_counted,
            the_use_of_a_queue_is_reported_and_as_much_as_has_room_is_kept,
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

/// Sizes of a pair under test.
#[derive(Copy, Clone)]
pub(crate) struct Sizes {
    /// Bytes of a block for received packets, and the number of blocks.
    pub(crate) block: usize,
    pub(crate) blocks: usize,
    /// Bytes of the longest payload.
    pub(crate) largest: usize,
    /// Number of packets of a batch.
    pub(crate) batch: usize,
    /// Number of packets that wait to be sent.
    pub(crate) send_batch: usize,
    /// Number of bytes that wait in the kernel.
    pub(crate) queue: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { block: 256 << 10, blocks: 32, largest: 9000, batch: 32, send_batch: 64, queue: 4 << 20 }
    }
}

pub(crate) struct Pair {
    pub(crate) receiver: Box<dyn Receiver>,
    pub(crate) sender: Box<dyn Sender>,
}

/// A mechanism under test.
pub(crate) trait Mechanism: Default {
    /// Number of packets that may arrive beyond a batch.
    const TRAIN: usize;
    /// Whether the receiver counts every lost packet, and not only trains of them.
    const COUNTS_LOSSES: bool = Self::TRAIN == 1;

    /// Bytes of the longest payload that can be sent.
    const LARGEST: usize = 9000;
    /// Whether packets wait, rather than get lost, while all memory is held.
    const WAITS: bool = true;

    /// Makes a receiver and a sender, or returns the reason why this machine has none.
    fn pair(&mut self, sizes: Sizes) -> Result<Pair, &'static str>;

    fn now(&self) -> Instant;
}

/// The reason why a test was skipped.
pub(crate) type Skip = Result<(), &'static str>;

/// Runs a test, and reports if it was skipped.
pub(crate) fn run(name: &str, test: fn() -> Skip) {
    if let Err(why) = test() {
        ropewalk_tidy::skipped(name, why);
    }
}

/// A pair and the received packets.
pub(crate) struct World<M> {
    pub(crate) mechanism: M,
    pub(crate) receiver: Box<dyn Receiver>,
    pub(crate) sender: Box<dyn Sender>,
    pub(crate) came: Vec<Packet>,
    source: Pool,
}

/// Long enough that nothing times out, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(20);

impl<M: Mechanism> World<M> {
    pub(crate) fn new(sizes: Sizes) -> Result<Self, &'static str> {
        let mut mechanism = M::default();
        let Pair { receiver, sender } = mechanism.pair(sizes)?;
        let source = Pool::new(PoolConfig::heap("source", 16 << 10, 64)).expect("memory for a test");
        Ok(Self { mechanism, receiver, sender, came: Vec::new(), source })
    }

    /// Queues a packet that is written in place.
    pub(crate) fn send(&mut self, number: usize, bytes: usize) -> Result<(), Refusal> {
        let fill = &mut |room: &mut [u8]| {
            room[..bytes].copy_from_slice(&pattern(number, bytes));
            bytes
        };
        self.sender.send_with(self.receiver.address_v4(), bytes, fill)
    }

    /// Queues the same packet in pieces of `piece` bytes.
    pub(crate) fn send_pieces(&mut self, number: usize, bytes: usize, piece: usize) -> Result<(), Refusal> {
        let mut rest = self.slice(&pattern(number, bytes));
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            pieces.push(rest.split_to(piece.min(rest.len())));
        }
        self.sender.send(self.receiver.address_v4(), &mut pieces)
    }

    fn slice(&mut self, bytes: &[u8]) -> Slice {
        self.source.loan(Owner::SHARED).and_then(|mut loan| loan.append(bytes)).expect("room for a packet")
    }

    /// Flushes until the queue is empty.
    pub(crate) fn flush(&mut self) {
        let begin = MonotonicClock.now();
        while self.sender.queued() > 0 {
            self.sender.flush(self.mechanism.now());
            assert!(MonotonicClock.now().since(begin) < PATIENCE, "{} packets do not leave", self.sender.queued());
        }
    }

    /// Queues a packet, and flushes as often as needed.
    pub(crate) fn send_surely(&mut self, number: usize, bytes: usize) {
        if self.send(number, bytes).is_err() {
            self.flush();
            self.send(number, bytes).expect("room in an empty queue");
        }
    }

    /// Receives once.
    pub(crate) fn receive(&mut self) -> usize {
        self.receiver.receive(self.mechanism.now(), &mut self.came)
    }

    /// Receives until `count` packets have arrived.
    pub(crate) fn await_packets(&mut self, count: usize) {
        let begin = MonotonicClock.now();
        while self.came.len() < count {
            self.receive();
            let counters = self.receiver.counters();
            assert!(MonotonicClock.now().since(begin) < PATIENCE, "{} of {count}: {counters:?}", self.came.len());
        }
    }

    /// Receives until nothing arrives for a while.
    pub(crate) fn receive_all(&mut self) {
        let waiter = self.waiter();
        let mut silent = 0;
        while silent < 5 {
            silent = if self.receive() > 0 { 0 } else { silent + 1 };
            if let (0, Some(waiter)) = (silent % 2, &waiter) {
                waiter.wait(Some(Duration::from_millis(4)));
            }
        }
    }

    /// Watches the receiver, if it can be watched.
    pub(crate) fn waiter(&self) -> Option<Waiter> {
        let descriptor = self.receiver.wait_descriptor()?;
        let mut waiter = Waiter::new().expect("an eventfd");
        waiter.watch(descriptor).expect("a descriptor");
        Some(waiter)
    }
}

/// The payload of packet `number`: the number, as far as there is room, then bytes that depend on it.
pub(crate) fn pattern(number: usize, bytes: usize) -> Vec<u8> {
    let number = number as u32;
    let mut payload: Vec<u8> = (0..bytes).map(|at| (number as usize * 31 + at * 7 + at / 256) as u8).collect();
    let front = bytes.min(4);
    payload[..front].copy_from_slice(&number.to_le_bytes()[..front]);
    payload
}
