//! From a frame, or what IP has in it, to what it carries.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

use ropewalk_terms::Cause;
use ropewalk_wire::internet::{ChecksumState, Ipv4Packet, UdpDatagram};

use crate::packet::Flow;

/// What a receiver takes.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) flow: Flow,
    pub(super) address: SocketAddrV4,
    /// The longest payload.
    pub(super) largest: usize,
}

/// A packet that is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Opened {
    pub(super) from: SocketAddrV4,
    /// Where its payload lies, from the IP header on.
    pub(super) payload: Range<usize>,
}

impl Wanted {
    /// Looks at a packet that begins with its IP header, and may have padding behind it. Nothing where it is somebody else's,
    /// or a fragment, which the kernel has to put together first.
    ///
    /// # Errors
    /// Why a packet that is wanted cannot be had.
    #[inline]
    pub(super) fn open(&self, bytes: &[u8], verify_checksum: bool) -> Result<Option<Opened>, Cause> {
        let packet = Ipv4Packet::parse(bytes).map_err(|error| error.cause())?;
        if packet.destination() != *self.address.ip() || packet.fragmentation().is_fragment() {
            return Ok(None);
        }
        let begin = packet.header_bytes();
        match self.flow {
            Flow::Ip(number) if number == packet.protocol() => {
                let payload = begin..begin + packet.payload.len();
                self.measured(Opened { from: SocketAddrV4::new(packet.source(), 0), payload })
            }
            Flow::Udp if packet.protocol() == ropewalk_wire::internet::UDP_PROTOCOL => {
                let datagram = UdpDatagram::parse(&packet).map_err(|error| error.cause())?;
                let header = datagram.header();
                if header.destination.port() != self.address.port() {
                    return Ok(None);
                }
                if verify_checksum && datagram.checksum_state() == ChecksumState::Wrong {
                    return Err(Cause::BadChecksum);
                }
                let begin = begin + ropewalk_wire::internet::UDP_BYTES;
                self.measured(Opened { from: header.source, payload: begin..begin + datagram.payload().len() })
            }
            _ => Ok(None),
        }
    }

    fn measured(&self, opened: Opened) -> Result<Option<Opened>, Cause> {
        if opened.payload.len() > self.largest { Err(Cause::Truncated) } else { Ok(Some(opened)) }
    }

    /// The address, which must be one of the card's.
    pub(super) const fn ip(&self) -> Ipv4Addr {
        *self.address.ip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_wire::internet::{Ipv4Header, UDP_BYTES, UDP_PROTOCOL, UdpHeader};

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
        Wanted { flow, address: TO, largest: 11 }
    }

    #[test]
    fn what_is_wanted_is_opened_and_what_is_not_is_left_alone() {
        let udp = wanted(Flow::Udp);
        assert_eq!(udp.open(&packet(UDP_PROTOCOL, |_| {}), true), Ok(Some(Opened { from: FROM, payload: 32..35 })));
        let raw = wanted(Flow::Ip(253));
        let from = SocketAddrV4::new(*FROM.ip(), 0);
        assert_eq!(raw.open(&packet(253, |_| {}), true), Ok(Some(Opened { from, payload: 24..35 })));
        assert_eq!((raw.open(&packet(252, |_| {}), true), udp.open(&packet(253, |_| {}), true)), (Ok(None), Ok(None)));
        let elsewhere = packet(UDP_PROTOCOL, |header| header.destination = *FROM.ip());
        let fragment = packet(UDP_PROTOCOL, |header| header.fragmentation.has_more = true);
        assert_eq!((udp.open(&elsewhere, true), udp.open(&fragment, true)), (Ok(None), Ok(None)));
        let other_port = Wanted { address: SocketAddrV4::new(*TO.ip(), 9), ..udp };
        assert_eq!(other_port.open(&packet(UDP_PROTOCOL, |_| {}), true), Ok(None));
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
        let short = Wanted { largest: 2, ..udp };
        assert_eq!(short.open(&good, true), Err(Cause::Truncated));
    }
}
