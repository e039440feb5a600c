//! How a gateway is set up, and what it is made of.

use std::net::SocketAddrV4;

use ropewalk_engine::gateway::Gathering;
use ropewalk_io::packet::cable::{CARD, SINK};
use ropewalk_io::packet::{Flow, RingConfig, RingReceiver};
use ropewalk_io::packet::{
    FrameConfig, FrameSender, PacketError, PacketMemory, Receiver, SendConfig, SendMechanism, Sender, SocketSender,
    XdpCard, XdpConfig,
};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_limits::{Depth, pin_to_cpu, schedule};
use ropewalk_memory::{NextPacket, PacketAllocator, PoolConfig, Staging};
use ropewalk_wire::gateway::Copying;

use super::packets::Packets;
use super::run::WINDOW_OF_CARD;
use crate::cable::{Mechanism, SINK_CPU, SOURCE_CPU, pool};

/// Memory that packets are received into (Table II).
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

    /// 64 MiB of it.
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
    /// Through the queue that packets came by.
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

/// Where events go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Towards {
    /// Sets are built and let go.
    Nobody,
    /// Events are put together, and let go without being sent.
    Itself,
    /// They are sent, dropped when they have arrived, and decided as soon as they are sent.
    Card,
    /// To nodes of a farm that decide, and say so.
    Nodes,
}

/// Where packets come in, and where events leave.
type Ends = (Box<dyn Receiver + Send>, Box<dyn Sender + Send>);

/// Before whom the gateway's thread runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Priority {
    /// As whoever started the bench has it, with the processor for itself.
    Alone,
    /// As usual, beside a thread that computes on the same processor; or before that.
    Beside,
    Before,
}

/// Who does what (Table I).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Architecture {
    /// One thread does everything.
    ToCompletion,
    /// Two threads do everything, each for every second set of events: one on each processor.
    TwoQueues,
    /// One thread receives and builds, the other one, on the source's processor, sends and hears decisions.
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
    /// Bytes of the longest packet that is sent.
    pub(super) mtu: u32,
    pub(super) architecture: Architecture,
    pub(super) priority: Priority,
    /// The gateway's thread is kept on its processor.
    pub(super) is_placed: bool,
}

impl Setup {
    /// The program's own choices.
    pub(super) const USUAL: Self = Self {
        packets: Packets::FIRST_LEVEL,
        receive: Mechanism::RecvMmsg,
        memory: Memory::Pool,
        gathering: Gathering::Copy(Copying::Short),
        send: Sending::SendMmsg,
        towards: Towards::Card,
        mtu: 1500,
        architecture: Architecture::ToCompletion,
        priority: Priority::Alone,
        is_placed: true,
    };

    /// Puts the calling thread where the gateway belongs, or its second thread.
    pub(super) fn place(&self, is_second: bool) {
        // Without the right to choose it must do as it is.
        if self.is_placed {
            let _ = pin_to_cpu(if is_second { SOURCE_CPU } else { SINK_CPU });
        }
        let _ = match self.priority {
            Priority::Alone => Ok(()),
            Priority::Beside => schedule(None),
            Priority::Before => schedule(Some(10)),
        };
    }

    /// What its packets carry at most, over UDP.
    pub(super) const fn largest_push(&self) -> usize {
        self.mtu as usize - 28
    }

    /// Receiver and sender, in the gateway's namespace.
    pub(super) fn open(&self) -> Result<Ends, PacketError> {
        let address = SocketAddrV4::new(SINK, 0);
        let flow = self.receive.flow();
        if self.receive == Mechanism::Xdp {
            // Short frames, of which the kernel has few: what it fills again soon is still in the cache. The source's window
            // is half as large.
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
