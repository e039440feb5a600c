//! The packets of a flow's sources, as they lie ready: before one leaves, its events get their numbers.

use std::net::{Ipv4Addr, SocketAddrV4};

use ropewalk_flow::gateway::{Address, FlowConfig, PacketSource};
use ropewalk_flow::source::mep::{MepSourceConfig, MepSources};
use ropewalk_io::packet::Flow;
use ropewalk_io::packet::cable::SOURCE;
use ropewalk_terms::SourceId;
use ropewalk_wire::mep::{FRAGMENT_HEADER_BYTES, MEP_HEADER_BYTES};

use crate::BenchError;
use crate::cable::{Frame, Rig, Source};

/// The sources of a flow that is measured with: those of the paper's flows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Packets {
    /// How many there are.
    pub(super) sources: u16,
    /// Events in a packet.
    pub(super) packing: u16,
    /// Bytes of a fragment.
    pub(super) fragment: u32,
}

/// The port of the first source.
const FIRST_PORT: u16 = 20_000;
/// Packets of each source that lie ready.
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

    /// How many of them lie ready.
    pub(super) const fn ready(self) -> usize {
        self.sources as usize * READY
    }

    /// Where a source sends from: of UDP another port, straight over IP another address.
    fn address(flow: Flow, source: u16) -> SocketAddrV4 {
        match flow {
            Flow::Udp => SocketAddrV4::new(SOURCE, FIRST_PORT + source),
            Flow::Ip(_) => SocketAddrV4::new(Ipv4Addr::from_bits(SOURCE.to_bits() + 2 + u32::from(source)), 0),
        }
    }

    /// What a gateway has to know of them.
    pub(super) fn flow(self, flow: Flow) -> FlowConfig {
        let source = |number| {
            let address = Self::address(flow, number);
            PacketSource { id: SourceId(number.into()), address: Address { ip: *address.ip(), port: address.port() } }
        };
        FlowConfig::new((0..self.sources).map(source).collect(), self.packing)
    }

    /// Their packets, ready to be sent to a gateway's queues, a set of events to each in turns.
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

    /// Gives the packets that leave their numbers: all sources' of one set of events, then those of the next.
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
