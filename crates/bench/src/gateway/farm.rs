//! Farms: one that has decided an event as soon as it has left, and nodes that receive and decide.

use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ropewalk_engine::Drive;
use ropewalk_engine::gateway::{
    Datagrams, EmulatedFilterConfig, FarmNodeDrive, FarmNodeDriveConfig, FarmNodeReport, Link, NodeFilterConfig, Notice,
};
use ropewalk_flow::gateway::FarmNodeConfig;
use ropewalk_flow::source::TimeDistribution;
use ropewalk_io::packet::cable::SOURCE;
use ropewalk_io::packet::{
    Fill, Flow, Packet, PacketError, ReceiveConfig, Receiver, Refusal, SendConfig, SendCounters, Sender, SocketReceiver,
};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_limits::pin_to_cpu;
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::gateway::{
    Credit, Decision, Decisions, MOST_DECISIONS, MOST_OUTSTANDING, Message, PIECE_HEAD_BYTES, PUSH_HEAD_BYTES,
    PieceHead, Verdict,
};

use super::setup::staging;
use crate::BenchError;
use crate::cable::{Rig, SOURCE_CPU, pool};

pub(super) const NODES: u16 = 2;
/// The incarnation of gateways and nodes.
pub(super) const LIFE: Incarnation = Incarnation(1);
/// Interval of a node's heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(30);

/// A farm of one node that has decided as soon as an event has been sent to it, or put together.
pub(super) struct AtOnce {
    /// `None` if nothing is sent.
    sender: Option<Box<dyn Sender + Send>>,
    home: SocketAddrV4,
    room: Vec<u8>,
    messages: Staging,
    message: Vec<u8>,
    /// Events below `said` are decided and reported; those below `left` have left.
    said: u64,
    left: u64,
    decided: Arc<AtomicU64>,
    credit_due: Instant,
}

impl AtOnce {
    pub(super) fn new(
        sender: Option<Box<dyn Sender + Send>>,
        home: SocketAddrV4,
        decided: Arc<AtomicU64>,
    ) -> Result<Self, PacketError> {
        let (room, message) = (vec![0; 1 << 16], Vec::with_capacity(2048));
        let messages = staging()?;
        Ok(Self { sender, home, room, messages, message, said: 0, left: 0, decided, credit_due: Instant::ZERO })
    }

    fn say(&mut self, message: &Message, packets: &mut Vec<Packet>) {
        self.message.clear();
        message.encode(&mut self.message);
        if let Some(slice) = self.messages.write(&self.message) {
            packets.push(Packet { from: self.home.into(), to: 0, payload: slice.into(), came: None });
        }
    }
}

impl Link for AtOnce {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        let before = packets.len();
        if now >= self.credit_due {
            self.credit_due = now.after(HEARTBEAT);
            let window = MOST_OUTSTANDING as u16;
            self.say(&Message::Credit(Credit { node: 0, incarnation: LIFE, window }), packets);
        }
        while self.said < self.left {
            let end = self.left.min(self.said + MOST_DECISIONS as u64);
            let (incarnation, gateway_incarnation) = (LIFE, LIFE);
            let mut decisions = Decisions { incarnation, gateway_incarnation, cumulative: end, ..Decisions::default() };
            let rejected = |sequence| Decision { sequence, verdict: Verdict::Reject, word: 0 };
            decisions.entries.extend((self.said..end).map(rejected));
            self.decided.fetch_add(end - self.said, Ordering::Relaxed);
            self.said = end;
            self.say(&Message::Decisions(decisions), packets);
        }
        packets.len() - before
    }

    fn send(&mut self, to: SocketAddrV4, message: &mut Vec<Slice>) -> Result<(), Refusal> {
        let left = left_in_slices(self.left, message);
        match &mut self.sender {
            Some(sender) => sender.send(to, message)?,
            None => message.clear(),
        }
        self.left = left;
        Ok(())
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        let mut left = self.left;
        match &mut self.sender {
            Some(sender) => sender.send_with(to, most, &mut |room| {
                let bytes = fill(room);
                left = left_in(left, &room[..bytes]);
                bytes
            })?,
            None => {
                let bytes = fill(&mut self.room[..most]);
                left = left_in(left, &self.room[..bytes]);
            }
        }
        self.left = left;
        Ok(())
    }

    fn flush(&mut self, now: Instant) -> usize {
        self.sender.as_mut().map_or(0, |sender| sender.flush(now))
    }

    fn is_queued(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.queued() > 0)
    }

    fn prepare_wait(&mut self) -> bool {
        self.said == self.left && !self.is_queued()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.credit_due)
    }

    fn sent(&self) -> SendCounters {
        self.sender.as_ref().map(|sender| sender.counters()).unwrap_or_default()
    }
}

/// The number below which all events have left after a push, if all below `left` had before.
fn left_in(mut left: u64, push: &[u8]) -> u64 {
    let mut at = PUSH_HEAD_BYTES;
    while let Some(head) = push.get(at..).and_then(read_head) {
        at += PIECE_HEAD_BYTES + head.length as usize;
        left = left_by(left, &head);
    }
    left
}

/// The same for a push in slices: its head, then for each piece its head and its bytes.
fn left_in_slices(mut left: u64, push: &[Slice]) -> u64 {
    let mut slices = push.iter().skip(1);
    while let Some(head) = slices.next().and_then(|slice| read_head(slice)) {
        let mut bytes = head.length as usize;
        while bytes > 0
            && let Some(slice) = slices.next()
        {
            bytes -= slice.len().min(bytes);
        }
        left = left_by(left, &head);
    }
    left
}

fn read_head(bytes: &[u8]) -> Option<PieceHead> {
    PieceHead::from_bytes(bytes.first_chunk()?).ok()
}

/// An event has left with its last part.
const fn left_by(left: u64, head: &PieceHead) -> u64 {
    let is_last = head.offset + head.length == head.total;
    if is_last && head.sequence >= left { head.sequence + 1 } else { left }
}

type Node = FarmNodeDrive<Datagrams<SocketReceiver, Box<dyn Sender + Send>>>;

/// Nodes that receive events and decide on them at once.
pub(super) struct Nodes {
    drives: Vec<Node>,
    notices: Vec<Notice<FarmNodeReport>>,
}

impl Nodes {
    /// Nodes in the source's namespace, connected to this gateway.
    pub(super) fn open(rig: &Rig, gateway: SocketAddrV4) -> Result<Self, BenchError> {
        let open = |node| rig.cable.source.inside(|| farm_node(node, gateway));
        let drives = (0..NODES).map(open).collect::<Result<Vec<_>, PacketError>>().map_err(BenchError::wrong)?;
        let notices = drives.iter().map(FarmNodeDrive::notice).collect();
        Ok(Self { drives, notices })
    }

    /// Works until `is_over`, and stores the number of decided events in `decided`.
    pub(super) fn run(&mut self, decided: &AtomicU64, is_over: &AtomicBool) {
        // Without permission the thread runs unpinned.
        let _ = pin_to_cpu(SOURCE_CPU);
        while !is_over.load(Ordering::Relaxed) {
            let now = MonotonicClock.now();
            let work: usize = self.drives.iter_mut().map(|drive| drive.turn(now)).sum();
            if work == 0 {
                std::thread::sleep(PAUSE);
                continue;
            }
            decided.store(self.notices.iter().map(|notice| notice.read().events).sum(), Ordering::Relaxed);
        }
    }
}

/// How long idle nodes sleep.
const PAUSE: Duration = Duration::from_micros(50);

fn farm_node(node: u16, gateway: SocketAddrV4) -> Result<Node, PacketError> {
    let receiver = datagrams(SOURCE, 9000)?;
    let sending = SendConfig::new(Flow::Udp, receiver.address_v4());
    let sender: Box<dyn Sender + Send> = Box::new(receiver.sender(sending, staging()?)?);
    let machine = FarmNodeConfig {
        node,
        incarnation: LIFE,
        gateway: 0,
        window: MOST_OUTSTANDING as u16,
        heartbeat: HEARTBEAT,
        patience: Duration::from_millis(100),
        largest_event: 1 << 20,
    };
    let filter = EmulatedFilterConfig {
        times: TimeDistribution::Fixed(Duration::ZERO),
        at_once: MOST_OUTSTANDING as usize,
        accept: 0.0,
    };
    let filter = NodeFilterConfig::Emulated(filter);
    let (outages, is_over) = (Vec::new(), Arc::default());
    let config = FarmNodeDriveConfig { machine, gateways: vec![gateway], filter, outages, seed: node.into(), is_over };
    Ok(FarmNodeDrive::new(config, Datagrams { receiver, sender }))
}

/// A socket for messages between gateway and nodes.
pub(super) fn datagrams(host: std::net::Ipv4Addr, largest: usize) -> Result<SocketReceiver, PacketError> {
    let config = ReceiveConfig { largest, batch: 256, ..ReceiveConfig::new(Flow::Udp, SocketAddrV4::new(host, 0)) };
    SocketReceiver::new(config, pool("messages", 1 << 20, 32)?)
}
