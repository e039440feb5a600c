//! Finds the payload in a frame, or in an IP packet.

use std::net::SocketAddrV4;
use std::ops::Range;

use ropewalk_terms::Cause;
use ropewalk_wire::internet::{Ipv4Packet, UdpHeader, ip_number};

use crate::packet::Flow;

/// The packets that a receiver takes: those to its addresses, of which there may be several.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    inputs: Vec<Input>,
    /// Bytes of the longest payload.
    largest: usize,
}

/// One of the addresses, and the number assigned to packets to it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Input {
    pub(super) flow: Flow,
    pub(super) address: SocketAddrV4,
    pub(super) to: u16,
}

/// A wanted packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Opened {
    pub(super) from: SocketAddrV4,
    /// The number of the address to which it was sent.
    pub(super) to: u16,
    /// The range of its payload, counted from the IP header.
    pub(super) payload: Range<usize>,
}

impl Wanted {
    /// Accepts packets to any of these addresses.
    pub(super) const fn new(inputs: Vec<Input>, largest: usize) -> Self {
        Self { inputs, largest }
    }

    /// Accepts packets to one address.
    pub(super) fn one(flow: Flow, address: SocketAddrV4, largest: usize) -> Self {
        Self::new(vec![Input { flow, address, to: 0 }], largest)
    }

    /// Examines a packet that begins with its IP header, and may have padding behind it. `None` if the packet is for
    /// another receiver, or is a fragment, which the kernel has to reassemble first.
    ///
    /// # Errors
    /// The cause for which a wanted packet is refused.
    #[inline]
    pub(super) fn open(&self, bytes: &[u8], verify_checksum: bool) -> Result<Option<Opened>, Cause> {
        let packet = Ipv4Packet::parse(bytes).map_err(|error| error.cause())?;
        let header = packet.header;
        let (host, protocol) = (header.destination_addr(), header.protocol().0);
        let is_here = |input: &&Input| *input.address.ip() == host && input.flow.protocol() == protocol;
        if header.is_fragmenting_payload() || !self.inputs.iter().any(|input| is_here(&input)) {
            return Ok(None);
        }
        let begin = header.slice().len();
        if protocol != ip_number::UDP.0 {
            let (from, payload) = (SocketAddrV4::new(header.source_addr(), 0), begin..begin + packet.payload.len());
            return self.measured(self.inputs.iter().find(is_here), from, payload);
        }
        let datagram = packet.datagram().map_err(|error| error.cause())?;
        let to = datagram.destination_port();
        let input = self.inputs.iter().filter(is_here).find(|input| input.address.port() == to);
        if input.is_some() && verify_checksum && packet.has_wrong_checksum(&datagram) {
            return Err(Cause::BadChecksum);
        }
        let from = SocketAddrV4::new(header.source_addr(), datagram.source_port());
        let begin = begin + UdpHeader::LEN;
        self.measured(input, from, begin..begin + datagram.payload().len())
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
    use ropewalk_wire::internet::{IpNumber, Ipv4Header};
    use std::net::Ipv4Addr;

    const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 9001);

    /// Makes a packet with options and padding, with a changed header.
    fn packet(protocol: u8, change: impl FnOnce(&mut Ipv4Header)) -> Vec<u8> {
        let (from, to) = (FROM.ip().octets(), TO.ip().octets());
        let mut header = Ipv4Header::new(11, 64, IpNumber(protocol), from, to).expect("it is short");
        header.options = [1; 4].into();
        header.total_len += 4;
        let udp = UdpHeader::with_ipv4_checksum(FROM.port(), TO.port(), &header, b"abc").expect("it is short");
        change(&mut header);
        header.header_checksum = header.calc_header_checksum();
        let mut bytes = [&header.to_bytes()[..], &udp.to_bytes(), b"abc"].concat();
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
            udp.open(&packet(ip_number::UDP.0, |_| {}), true),
            Ok(Some(Opened { from: FROM, to: 0, payload: 32..35 }))
        );
        let raw = wanted(Flow::Ip(253));
        let from = SocketAddrV4::new(*FROM.ip(), 0);
        assert_eq!(raw.open(&packet(253, |_| {}), true), Ok(Some(Opened { from, to: 0, payload: 24..35 })));
        assert_eq!((raw.open(&packet(252, |_| {}), true), udp.open(&packet(253, |_| {}), true)), (Ok(None), Ok(None)));
        let elsewhere = packet(ip_number::UDP.0, |header| header.destination = FROM.ip().octets());
        let fragment = packet(ip_number::UDP.0, |header| header.more_fragments = true);
        assert_eq!((udp.open(&elsewhere, true), udp.open(&fragment, true)), (Ok(None), Ok(None)));
        let other_port = Wanted::one(Flow::Udp, SocketAddrV4::new(*TO.ip(), 9), 11);
        assert_eq!(other_port.open(&packet(ip_number::UDP.0, |_| {}), true), Ok(None));
    }

    #[test]
    fn a_packet_says_which_of_several_addresses_it_was_sent_to() {
        let input = |flow, port, to| Input { flow, address: SocketAddrV4::new(*TO.ip(), port), to };
        let inputs = [input(Flow::Udp, 9, 4), input(Flow::Udp, TO.port(), 5), input(Flow::Ip(253), 0, 6)];
        let wanted = Wanted::new(inputs.to_vec(), 11);
        let to = |protocol| wanted.open(&packet(protocol, |_| {}), true).map(|opened| opened.map(|opened| opened.to));
        assert_eq!([to(ip_number::UDP.0), to(253), to(254)], [Ok(Some(5)), Ok(Some(6)), Ok(None)]);
    }

    #[test]
    fn what_is_wrong_has_its_cause() {
        let udp = wanted(Flow::Udp);
        let good = packet(ip_number::UDP.0, |_| {});
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
