//! Which packets of a capture are meant, and the name of what the others are.

use super::choosing::Chosen;
use ropewalk_wire::capture::{Aside, Carried, IpPacket};
use ropewalk_wire::mending::{Mender, StreamFrames};
use std::net::IpAddr;

/// Which packets of a capture are meant: all of them, where nothing is said.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Those that went to this port.
    pub port: Option<u16>,
    /// Those that this address sent.
    pub from: Option<IpAddr>,
    /// Those that came from this port.
    pub from_port: Option<u16>,
    /// Those that went to this address.
    pub to: Option<IpAddr>,
    /// Those that lie straight in IP, with this protocol number.
    pub protocol: Option<u8>,
    /// Those of connections that any of these addresses sent; of all where there are none.
    pub senders: Vec<IpAddr>,
    /// Which of the connections that are left, in the order in which they begin to carry something, from 0.
    pub connection: usize,
    /// Which of them others want.
    pub others: Vec<usize>,
    /// What the frames of a stream are, to find how they go on behind bytes that a capture misses; none where that is not known.
    pub frames: Option<StreamFrames>,
    /// The longest of them, in bytes.
    pub max_frame: usize,
    /// Which frames of a stream are meant, where those of several boards are in it.
    pub chosen: Option<Chosen>,
}

/// In what frames lie.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Carrier {
    /// In datagrams: of UDP, or straight in IP where a protocol is wanted.
    Datagrams,
    /// In connections.
    Connections,
}

impl Wanted {
    /// Those that went to this port, if it is one.
    pub(super) fn port(port: Option<u16>) -> Self {
        Self { port, ..Self::default() }
    }

    /// What gives on the frames of a stream that a capture holds.
    pub(super) fn mender(&self) -> Mender {
        Mender::new(self.frames.clone(), self.max_frame)
    }

    /// What of a packet is meant.
    ///
    /// # Errors
    /// The name under which it is counted instead: what it is, or how it differs.
    pub(super) fn pick<'a>(&self, carrier: Carrier, carried: Carried<'a>) -> Result<Carried<'a>, &'static str> {
        let (source, destination, ports, kind) = match &carried {
            Carried::Aside(aside) => return Err(Aside::name(*aside)),
            Carried::Datagram(it) => {
                let is_kind = carrier == Carrier::Datagrams && self.protocol.is_none();
                (it.source.ip(), it.destination.ip(), Some((it.source.port(), it.destination.port())), is_kind)
            }
            Carried::Segment(it) => {
                let is_kind = carrier == Carrier::Connections;
                (it.source.ip(), it.destination.ip(), Some((it.source.port(), it.destination.port())), is_kind)
            }
            Carried::Other(it) => (it.source, it.destination, None, self.is_protocol(it)),
        };
        let differs = |wanted: Option<IpAddr>, found: IpAddr| wanted.is_some_and(|wanted| wanted != found);
        let is_elsewhere = |(_, port)| self.port.is_some_and(|wanted| port != wanted);
        if ports.is_some_and(is_elsewhere) {
            return Err("other_port");
        }
        if !kind {
            return Err("other_protocol");
        }
        let is_from_elsewhere = self.from_port.is_some_and(|wanted| ports.map(|(from, _)| from) != Some(wanted));
        let is_of_another_board =
            carrier == Carrier::Connections && !self.senders.is_empty() && !self.senders.contains(&source);
        if differs(self.from, source) || differs(self.to, destination) || is_from_elsewhere || is_of_another_board {
            return Err("other_address");
        }
        Ok(carried)
    }

    fn is_protocol(&self, packet: &IpPacket<'_>) -> bool {
        self.protocol == Some(packet.protocol)
    }
}
