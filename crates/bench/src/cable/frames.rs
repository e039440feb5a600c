//! Frames with their headers, as they lie ready.

use std::net::SocketAddrV4;

use ropewalk_io::packet::Flow;
use ropewalk_wire::internet::{Ethernet2Header, IpNumber, Ipv4Header, LEAST_FRAME_BYTES, UdpHeader, ether_type};

/// A frame, and where in it the payload begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) payload: usize,
}

impl Frame {
    /// From one card to another, without a checksum of UDP's: Ethernet has one.
    pub(super) fn new(
        [source, destination]: [[u8; 6]; 2],
        from: SocketAddrV4,
        to: SocketAddrV4,
        flow: Flow,
        payload: &[u8],
    ) -> Self {
        let ethernet = Ethernet2Header { destination, source, ether_type: ether_type::IPV4 };
        let udp = UdpHeader::without_ipv4_checksum(from.port(), to.port(), payload.len()).expect("it is short");
        let udp = if flow == Flow::Udp { &udp.to_bytes()[..] } else { &[] };
        let (bytes, protocol) = ((udp.len() + payload.len()) as u16, IpNumber(flow.protocol()));
        let ip = Ipv4Header::new(bytes, 64, protocol, from.ip().octets(), to.ip().octets());
        let mut ip = ip.expect("it is short");
        ip.header_checksum = ip.calc_header_checksum();
        let headers = [&ethernet.to_bytes()[..], &ip.to_bytes(), udp].concat();
        let mut bytes = [&headers[..], payload].concat();
        bytes.resize(bytes.len().max(LEAST_FRAME_BYTES), 0);
        Self { bytes, payload: headers.len() }
    }
}
