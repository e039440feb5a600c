//! The ways to receive, ours and bare.

use std::net::SocketAddrV4;

use ropewalk_io::packet::cable::{CARD, SINK};
use ropewalk_io::packet::{
    Flow, PacketError, PacketMemory, ReceiveConfig, ReceiveMechanism, Receiver, RingConfig, RingReceiver,
    SocketReceiver, XdpCard, XdpConfig,
};
use ropewalk_limits::{BARE_PROTOCOL, BarePackets, Depth};
use ropewalk_memory::{Pool, PoolConfig, PoolError, Staging};

/// Bytes of the longest packet that Ethernet's usual frames carry.
const LARGEST: usize = 1480;

/// A way to receive.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Mechanism {
    RecvFrom,
    RecvMmsg,
    Gro,
    RawIp,
    Ring,
    Xdp,
}

impl Mechanism {
    pub(crate) const ALL: [Self; 6] = [Self::RecvFrom, Self::RecvMmsg, Self::Gro, Self::RawIp, Self::Ring, Self::Xdp];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RecvFrom => "recvfrom",
            Self::RecvMmsg => "recvmmsg",
            Self::Gro => "gro",
            Self::RawIp => "raw-ip",
            Self::Ring => "ring",
            Self::Xdp => "xdp",
        }
    }

    /// Whether what it receives lies in memory that was there before, which the kernel neither makes nor frees.
    pub(crate) const fn recycles(self) -> bool {
        matches!(self, Self::Ring | Self::Xdp)
    }

    pub(crate) const fn flow(self) -> Flow {
        if matches!(self, Self::RawIp) { Flow::Ip(BARE_PROTOCOL) } else { Flow::Udp }
    }

    pub(super) const fn bare(self) -> BarePackets {
        match self {
            Self::RecvFrom => BarePackets::RecvFrom,
            Self::RecvMmsg => BarePackets::RecvMmsg,
            Self::Gro => BarePackets::UdpGro,
            Self::RawIp => BarePackets::RawIp,
            Self::Ring => BarePackets::Ring,
            Self::Xdp => BarePackets::Xdp,
        }
    }

    /// A receiver of ours in the calling thread's namespace.
    pub(crate) fn receiver(self, depth: Depth) -> Result<Box<dyn Receiver + Send>, PacketError> {
        let (flow, address) = (self.flow(), SocketAddrV4::new(SINK, 0));
        Ok(match self {
            Self::Ring => {
                let config = RingConfig::new(flow, address, CARD);
                Box::new(RingReceiver::new(&RingConfig { blocks: depth.blocks, ..config })?)
            }
            Self::Xdp => {
                let config = XdpConfig::new(flow, address, CARD);
                let (receive_frames, posted_frames) = (depth.frames, depth.frames);
                let config = XdpConfig { frame_size: 2048, receive_frames, posted_frames, ..config };
                let card = XdpCard::attach(config, [pool("fragments", 64 << 10, 16)?])?;
                Box::new(card.open(0, Staging::new(pool("staging", 64 << 10, 4)?))?.0)
            }
            _ => Box::new(self.socket(pool("packets", 256 << 10, 64)?.into(), LARGEST, depth)?),
        })
    }

    /// A socket that receives packets of so many bytes at most into this memory; not for rings.
    pub(crate) fn socket(
        self,
        memory: PacketMemory,
        largest: usize,
        depth: Depth,
    ) -> Result<SocketReceiver, PacketError> {
        let mechanism = match self {
            Self::RecvFrom => ReceiveMechanism::RecvFrom,
            Self::Gro => ReceiveMechanism::UdpGro,
            _ => ReceiveMechanism::RecvMmsg,
        };
        let config = ReceiveConfig::new(self.flow(), SocketAddrV4::new(SINK, 0));
        let socket_buffer = depth.socket_bytes as usize;
        SocketReceiver::new(ReceiveConfig { mechanism, largest, socket_buffer, ..config }, memory)
    }
}

pub(crate) fn pool(name: &str, block: usize, blocks: usize) -> Result<Pool, PoolError> {
    Pool::new(PoolConfig::anonymous(name, block, blocks))
}
