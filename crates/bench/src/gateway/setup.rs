//! The setup of a gateway and its parts.

use super::run::WINDOW_OF_CARD;
use crate::BenchError;
use crate::cable::{Frame, Mechanism, Rig, SINK_CPU, SOURCE_CPU, Source, pool};
use ropewalk_engine::gateway::Gathering;
use ropewalk_flow::gateway::{Address, FlowConfig, PacketSource};
use ropewalk_flow::source::mep::{MepSourceConfig, MepSources};
use ropewalk_io::packet::cable::{CARD, SINK, SOURCE};
use ropewalk_io::packet::{
    Flow, FrameConfig, FrameSender, PacketError, PacketMemory, Receiver, RingConfig, RingReceiver, SendConfig,
    SendMechanism, Sender, SocketSender, XdpCard, XdpConfig,
};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_limits::{Depth, pin_to_cpu, schedule};
use ropewalk_memory::{NextPacket, PacketAllocator, PoolConfig, Staging};
use ropewalk_terms::SourceId;
use ropewalk_wire::mep::{FRAGMENT_HEADER_BYTES, MEP_HEADER_BYTES};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Memory for received packets (Table II).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    Pool,
    Ring,
    Stdlib,
}

impl Memory {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Ring => "ring",
            Self::Stdlib => "stdlib",
        }
    }

    /// Allocates 64 MiB.
    fn make(self) -> Result<PacketMemory, PacketError> {
        const BLOCK: usize = 256 << 10;
        Ok(match self {
            Self::Pool => pool("packets", BLOCK, 256)?.into(),
            Self::Ring => PacketMemory::Ring(NextPacket::new(PoolConfig::anonymous("packets", BLOCK, 256))?),
            Self::Stdlib => PacketMemory::Stdlib(PacketAllocator::new("packets", 1 << 16)?),
        })
    }
}

/// How events leave (Table IV).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Sending {
    SendTo,
    SendMmsg,
    Gso,
    Ring,
    /// Through the queue that received the packets.
    Xdp,
}

impl Sending {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SendTo => "sendto",
            Self::SendMmsg => "sendmmsg",
            Self::Gso => "gso",
            Self::Ring => "transmit ring",
            Self::Xdp => "xdp",
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Towards {
    /// Sets are built and discarded.
    Discard,
    /// Events are put together, and dropped without being sent.
    Itself,
    /// They are sent, dropped on arrival, and decided as soon as they are sent.
    Card,
    /// To the nodes of a farm, which send their decisions.
    Nodes,
}

/// Where packets come in, and where events leave.
type Ends = (Box<dyn Receiver + Send>, Box<dyn Sender + Send>);

/// The priority of the gateway's thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Priority {
    /// Inherited from the bench, with the processor to itself.
    Alone,
    /// Usual, beside a thread that computes on the same processor; or above that thread.
    Beside,
    Before,
}

/// The division of work among threads (Table I).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Architecture {
    /// One thread does everything.
    ToCompletion,
    /// Two threads do everything, each for every second set of events, on one processor each.
    TwoQueues,
    /// One thread receives and builds; the other, on the source's processor, sends and receives decisions.
    ProducerConsumer,
}

/// What is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Setup {
    pub(super) packets: Packets,
    pub(super) receive: Mechanism,
    pub(super) memory: Memory,
    pub(super) gathering: Gathering,
    pub(super) send: Sending,
    pub(super) towards: Towards,
    /// Maximum length of a sent packet, in bytes.
    pub(super) mtu: u32,
    pub(super) architecture: Architecture,
    pub(super) priority: Priority,
    /// Whether the gateway's thread is pinned to its processor.
    pub(super) is_placed: bool,
}

impl Setup {
    /// The program's defaults.
    pub(super) const USUAL: Self = Self {
        packets: Packets::FIRST_LEVEL,
        receive: Mechanism::RecvMmsg,
        memory: Memory::Pool,
        gathering: Gathering::ShortCopy,
        send: Sending::SendMmsg,
        towards: Towards::Card,
        mtu: 1500,
        architecture: Architecture::ToCompletion,
        priority: Priority::Alone,
        is_placed: true,
    };

    /// Pins the calling thread to the gateway's processor, or to that of its second thread.
    pub(super) fn place(&self, is_second: bool) {
        // Without permission the thread runs unpinned.
        if self.is_placed {
            let _ = pin_to_cpu(if is_second { SOURCE_CPU } else { SINK_CPU });
        }
        let _ = match self.priority {
            Priority::Alone => Ok(()),
            Priority::Beside => schedule(None),
            Priority::Before => schedule(Some(10)),
        };
    }

    /// Maximum payload of its packets, over UDP.
    pub(super) const fn largest_push(&self) -> usize {
        self.mtu as usize - 28
    }

    /// Receiver and sender, in the gateway's namespace.
    pub(super) fn open(&self) -> Result<Ends, PacketError> {
        let address = SocketAddrV4::new(SINK, 0);
        let flow = self.receive.flow();
        if self.receive == Mechanism::Xdp {
            // Short frames, of which the kernel gets few: frames that it soon fills again are still in the cache. The
            // source's window is half as large.
            let posted_frames = 2 * WINDOW_OF_CARD as usize;
            let frames = XdpConfig {
                receive_frames: 2048,
                posted_frames,
                frame_size: 2048,
                ..XdpConfig::new(flow, address, CARD)
            };
            let config = XdpConfig { checksums: false, ..frames };
            let card = XdpCard::attach(config, [pool("fragments", 64 << 10, 16)?])?;
            let (receiver, mut sender) = card.open(0, staging()?)?;
            if self.send == Sending::Xdp {
                sender.is_near(ropewalk_io::packet::cable::SOURCE, MonotonicClock.now());
                return Ok((Box::new(receiver), Box::new(sender)));
            }
            return Ok((Box::new(receiver), self.sender()?));
        }
        let receiver: Box<dyn Receiver + Send> = if self.receive == Mechanism::Ring {
            Box::new(RingReceiver::new(&RingConfig::new(flow, address, CARD))?)
        } else {
            Box::new(self.receive.socket(self.memory.make()?, self.packets.bytes(), Depth::USUAL)?)
        };
        Ok((receiver, self.sender()?))
    }

    fn sender(&self) -> Result<Box<dyn Sender + Send>, PacketError> {
        let address = SocketAddrV4::new(SINK, 0);
        let mechanism = match self.send {
            Sending::SendTo => SendMechanism::SendTo,
            Sending::Gso => SendMechanism::UdpGso,
            Sending::Ring => {
                let mut sender = FrameSender::new(FrameConfig::new(Flow::Udp, address, CARD), staging()?)?;
                sender.is_near(ropewalk_io::packet::cable::SOURCE, MonotonicClock.now());
                return Ok(Box::new(sender));
            }
            Sending::SendMmsg | Sending::Xdp => SendMechanism::SendMmsg,
        };
        let config = SendConfig { mechanism, ..SendConfig::new(Flow::Udp, address) };
        Ok(Box::new(SocketSender::new(config, staging()?)?))
    }
}

pub(super) fn staging() -> Result<Staging, PacketError> {
    Ok(Staging::new(pool("staging", 256 << 10, 16)?))
}

// ---- prepared packets: the source sets the event numbers before it sends one

/// The packets of a flow: those of the paper's flows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Packets {
    /// The number of sources.
    pub(super) sources: u16,
    /// Events in a packet.
    pub(super) packing: u16,
    /// Bytes of a fragment.
    pub(super) fragment: u32,
}

/// The port of the first source.
const FIRST_PORT: u16 = 20_000;
/// Prepared packets of each source.
const READY: usize = 4;

impl Packets {
    /// 126 sources, 25 events in a packet, 32 bytes each.
    pub(super) const FIRST_LEVEL: Self = Self { sources: 126, packing: 25, fragment: 32 };

    /// The paper's second flow: 323 sources, 10 events in a packet, 100 bytes each.
    pub(super) const HIGH_LEVEL: Self = Self { sources: 323, packing: 10, fragment: 100 };

    /// Bytes of a packet.
    pub(super) const fn bytes(self) -> usize {
        MEP_HEADER_BYTES + self.packing as usize * self.stride()
    }

    const fn stride(self) -> usize {
        FRAGMENT_HEADER_BYTES + self.fragment as usize
    }

    /// The number of prepared packets.
    pub(super) const fn ready(self) -> usize {
        self.sources as usize * READY
    }

    /// The address of a source: over UDP it has its own port, over plain IP its own address.
    fn address(flow: Flow, source: u16) -> SocketAddrV4 {
        match flow {
            Flow::Udp => SocketAddrV4::new(SOURCE, FIRST_PORT + source),
            Flow::Ip(_) => SocketAddrV4::new(Ipv4Addr::from_bits(SOURCE.to_bits() + 2 + u32::from(source)), 0),
        }
    }

    /// The gateway's configuration of this flow.
    pub(super) fn flow(self, flow: Flow) -> FlowConfig {
        let source = |number| {
            let address = Self::address(flow, number);
            PacketSource { id: SourceId(number.into()), address: Address { ip: *address.ip(), port: address.port() } }
        };
        FlowConfig::new((0..self.sources).map(source).collect(), self.packing)
    }

    /// Prepares packets to a gateway's queues; the queues get sets of events in turn.
    pub(super) fn open(self, rig: &Rig, flow: Flow, queues: &[SocketAddrV4]) -> Result<Source, BenchError> {
        let mut sources = MepSources::new(MepSourceConfig::new(self.sources, self.packing, self.fragment));
        let mut frames: Vec<Frame> = Vec::new();
        for queue in 0..READY {
            let to = queues[queue % queues.len()];
            sources.trigger(0);
            while let Some(packet) = sources.next_packet() {
                let mut bytes = Vec::new();
                sources.encode(&packet, &mut bytes);
                frames.push(rig.frame(Self::address(flow, packet.source), to, flow, &bytes));
            }
        }
        rig.cable.source.inside(|| Source::open(&frames, None)).map_err(BenchError::system("the sources of packets"))
    }

    /// Numbers packets as they leave: all sources' packets of one set of events, then those of the next.
    pub(super) fn numbered(self) -> impl FnMut(usize, &mut [u8]) {
        let (mut left, mut event) = (self.sources, 0_u32);
        move |_, packet| {
            packet[..4].copy_from_slice(&event.to_le_bytes());
            let fragments = packet[MEP_HEADER_BYTES..].chunks_exact_mut(self.stride());
            for (number, fragment) in (event as u16..).zip(fragments) {
                fragment[..2].copy_from_slice(&number.to_le_bytes());
            }
            left -= 1;
            if left == 0 {
                (left, event) = (self.sources, event.wrapping_add(self.packing.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_wire::mep::MepView;

    #[test]
    fn packets_that_lie_ready_are_whole_with_every_number() {
        let packets = Packets { sources: 2, packing: 3, fragment: 32 };
        let mut sources = MepSources::new(MepSourceConfig::new(2, 3, 32));
        sources.trigger(0);
        let packet = sources.next_packet().expect("the first");
        let mut bytes = Vec::new();
        sources.encode(&packet, &mut bytes);
        assert_eq!(bytes.len(), packets.bytes());
        let mut number = packets.numbered();
        let mut firsts = Vec::new();
        for index in 0..5 {
            number(index, &mut bytes);
            firsts.push(MepView::parse(&bytes).expect("a whole packet").header().first_event);
        }
        assert_eq!(firsts, [0, 0, 3, 3, 6]);
    }
}
