//! From a frame, or what IP has in it, to what it carries.

use std::net::SocketAddrV4;
use std::ops::Range;

use ropewalk_terms::Cause;
use ropewalk_wire::internet::{ChecksumState, Ipv4Packet, UDP_BYTES, UDP_PROTOCOL, UdpDatagram};

use crate::packet::Flow;

/// What a receiver takes: packets to its addresses, of which there may be several.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    inputs: Vec<Input>,
    /// The longest payload.
    largest: usize,
}

/// One of the addresses, and the number that packets to it get.
#[derive(Copy, Clone, Debug)]
pub(super) struct Input {
    pub(super) flow: Flow,
    pub(super) address: SocketAddrV4,
    pub(super) to: u16,
}

/// A packet that is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Opened {
    pub(super) from: SocketAddrV4,
    /// The number of the address that it was sent to.
    pub(super) to: u16,
    /// Where its payload lies, from the IP header on.
    pub(super) payload: Range<usize>,
}

impl Wanted {
    /// Packets to any of these.
    pub(super) const fn new(inputs: Vec<Input>, largest: usize) -> Self {
        Self { inputs, largest }
    }

    /// Packets to one address.
    pub(super) fn one(flow: Flow, address: SocketAddrV4, largest: usize) -> Self {
        Self::new(vec![Input { flow, address, to: 0 }], largest)
    }

    /// Looks at a packet that begins with its IP header, and may have padding behind it. Nothing if the packet is for
    /// another receiver, or is a fragment, which the kernel has to put together first.
    ///
    /// # Errors
    /// Why a packet that is wanted cannot be had.
    #[inline]
    pub(super) fn open(&self, bytes: &[u8], verify_checksum: bool) -> Result<Option<Opened>, Cause> {
        let packet = Ipv4Packet::parse(bytes).map_err(|error| error.cause())?;
        let (host, protocol) = (packet.destination(), packet.protocol());
        let is_here = |input: &&Input| *input.address.ip() == host && input.flow.protocol() == protocol;
        if packet.fragmentation().is_fragment() || !self.inputs.iter().any(|input| is_here(&input)) {
            return Ok(None);
        }
        let begin = packet.header_bytes();
        if protocol != UDP_PROTOCOL {
            let (from, payload) = (SocketAddrV4::new(packet.source(), 0), begin..begin + packet.payload.len());
            return self.measured(self.inputs.iter().find(is_here), from, payload);
        }
        let datagram = UdpDatagram::parse(&packet).map_err(|error| error.cause())?;
        let header = datagram.header();
        let input = self.inputs.iter().filter(is_here).find(|input| input.address.port() == header.destination.port());
        if input.is_some() && verify_checksum && datagram.checksum_state() == ChecksumState::Wrong {
            return Err(Cause::BadChecksum);
        }
        let begin = begin + UDP_BYTES;
        self.measured(input, header.source, begin..begin + datagram.payload().len())
    }

    fn measured(
        &self,
        input: Option<&Input>,
        from: SocketAddrV4,
        payload: Range<usize>,
    ) -> Result<Option<Opened>, Cause> {
        let Some(&Input { to, .. }) = input else { return Ok(None) };
        if payload.len() > self.largest { Err(Cause::Truncated) } else { Ok(Some(Opened { from, to, payload })) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_wire::internet::{Ipv4Header, UdpHeader};
    use std::net::Ipv4Addr;

    const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 9001);

    /// A packet with options and padding, whose header was changed.
    fn packet(protocol: u8, change: impl FnOnce(&mut Ipv4Header)) -> Vec<u8> {
        let mut udp = vec![0; UDP_BYTES];
        UdpHeader { source: FROM, destination: TO }.write(core::iter::once(&b"abc"[..]), &mut udp).expect("room");
        udp.extend_from_slice(b"abc");
        let mut header = Ipv4Header::new(*FROM.ip(), *TO.ip(), protocol);
        header.options.extend([1; 4]);
        change(&mut header);
        let mut bytes = vec![0; header.byte_count()];
        header.write(udp.len(), &mut bytes).expect("room");
        bytes.extend_from_slice(&udp);
        bytes.resize(60, 0xEE);
        bytes
    }

    fn wanted(flow: Flow) -> Wanted {
        Wanted::one(flow, if flow == Flow::Udp { TO } else { SocketAddrV4::new(*TO.ip(), 0) }, 11)
    }

    #[test]
    fn what_is_wanted_is_opened_and_what_is_not_is_left_alone() {
        let udp = wanted(Flow::Udp);
        assert_eq!(
            udp.open(&packet(UDP_PROTOCOL, |_| {}), true),
            Ok(Some(Opened { from: FROM, to: 0, payload: 32..35 }))
        );
        let raw = wanted(Flow::Ip(253));
        let from = SocketAddrV4::new(*FROM.ip(), 0);
        assert_eq!(raw.open(&packet(253, |_| {}), true), Ok(Some(Opened { from, to: 0, payload: 24..35 })));
        assert_eq!((raw.open(&packet(252, |_| {}), true), udp.open(&packet(253, |_| {}), true)), (Ok(None), Ok(None)));
        let elsewhere = packet(UDP_PROTOCOL, |header| header.destination = *FROM.ip());
        let fragment = packet(UDP_PROTOCOL, |header| header.fragmentation.has_more = true);
        assert_eq!((udp.open(&elsewhere, true), udp.open(&fragment, true)), (Ok(None), Ok(None)));
        let other_port = Wanted::one(Flow::Udp, SocketAddrV4::new(*TO.ip(), 9), 11);
        assert_eq!(other_port.open(&packet(UDP_PROTOCOL, |_| {}), true), Ok(None));
    }

    #[test]
    fn a_packet_says_which_of_several_addresses_it_was_sent_to() {
        let input = |flow, port, to| Input { flow, address: SocketAddrV4::new(*TO.ip(), port), to };
        let inputs = [input(Flow::Udp, 9, 4), input(Flow::Udp, TO.port(), 5), input(Flow::Ip(253), 0, 6)];
        let wanted = Wanted::new(inputs.to_vec(), 11);
        let to = |protocol| wanted.open(&packet(protocol, |_| {}), true).map(|opened| opened.map(|opened| opened.to));
        assert_eq!([to(UDP_PROTOCOL), to(253), to(254)], [Ok(Some(5)), Ok(Some(6)), Ok(None)]);
    }

    #[test]
    fn what_is_wrong_has_its_cause() {
        let udp = wanted(Flow::Udp);
        let good = packet(UDP_PROTOCOL, |_| {});
        let with = |at: usize, value: u8, verify| {
            let mut bytes = good.clone();
            bytes[at] = value;
            udp.open(&bytes, verify).map(|opened| opened.is_some())
        };
        assert_eq!((with(32, b'x', true), with(32, b'x', false)), (Err(Cause::BadChecksum), Ok(true)));
        assert_eq!(with(8, 1, false), Err(Cause::BadChecksum), "the header's own");
        assert_eq!(udp.open(&good[..30], true), Err(Cause::LengthMismatch));
        assert_eq!(udp.open(&good[..19], true), Err(Cause::Malformed));
        let short = Wanted::one(Flow::Udp, TO, 2);
        assert_eq!(short.open(&good, true), Err(Cause::Truncated));
    }
}
