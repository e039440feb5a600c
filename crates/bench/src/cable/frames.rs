//! Frames with their headers, as they lie ready.

use std::net::SocketAddrV4;

use ropewalk_io::packet::Flow;
use ropewalk_wire::internet::{
    ETHERNET_BYTES, EtherType, EthernetHeader, IPV4_BYTES, Ipv4Header, LEAST_FRAME_BYTES, MacAddress, UDP_BYTES,
    UDP_PROTOCOL, UdpHeader,
};

/// A frame, and where in it the payload begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) payload: usize,
}

impl Frame {
    /// From one card to another, without a checksum of UDP's: Ethernet has one.
    pub(super) fn new(
        [source, destination]: [MacAddress; 2],
        from: SocketAddrV4,
        to: SocketAddrV4,
        flow: Flow,
        payload: &[u8],
    ) -> Self {
        let udp_bytes = if flow == Flow::Udp { UDP_BYTES } else { 0 };
        let (ip, udp) = (ETHERNET_BYTES, ETHERNET_BYTES + IPV4_BYTES);
        let begin = udp + udp_bytes;
        let mut bytes = vec![0; (begin + payload.len()).max(LEAST_FRAME_BYTES)];
        let ethernet = EthernetHeader { destination, source, vlan: None, ether_type: EtherType::IPV4 };
        let protocol = if let Flow::Ip(number) = flow { number } else { UDP_PROTOCOL };
        let header = Ipv4Header::new(*from.ip(), *to.ip(), protocol);
        ethernet.write(&mut bytes).expect("there is room for a header");
        header.write(udp_bytes + payload.len(), &mut bytes[ip..]).expect("there is room for a header");
        if flow == Flow::Udp {
            let header = UdpHeader { source: from, destination: to };
            header.write_unchecked(payload.len(), &mut bytes[udp..]).expect("there is room for a header");
        }
        bytes[begin..begin + payload.len()].copy_from_slice(payload);
        Self { bytes, payload: begin }
    }
}
