//! Captures of both kinds and orders, the headers between link and datagram, and damage.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::internet::{IpFragOffset, IpNumber, Ipv4Header, PacketBuilder, UdpHeader};
use ropewalk_terms::Utc;

const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 9);
const UDP_PROTOCOL: u8 = 17;

/// An IPv4 packet with this payload.
fn ipv4(protocol: u8, payload: &[u8], change: impl FnOnce(&mut Ipv4Header)) -> Vec<u8> {
    let (length, protocol) = (payload.len() as u16, IpNumber(protocol));
    let header = Ipv4Header::new(length, 64, protocol, SOURCE.octets(), DESTINATION.octets());
    let mut header = header.expect("it is short");
    change(&mut header);
    header.header_checksum = header.calc_header_checksum();
    [&header.to_bytes()[..], payload].concat()
}

/// A datagram from port 9000 to port 9001.
fn udp(payload: &[u8]) -> Vec<u8> {
    let header = UdpHeader::without_ipv4_checksum(9000, 9001, payload.len()).expect("it is short");
    [&header.to_bytes()[..], payload].concat()
}

/// A segment of a connection from port 5000 to port 5001.
fn tcp(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x13, 0x88, 0x13, 0x89];
    segment.extend_from_slice(&sequence.to_be_bytes());
    segment.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    segment.extend_from_slice(payload);
    segment
}

fn ethernet(vlan: Option<u16>, ip: &[u8]) -> Vec<u8> {
    let tag = vlan.map_or(Vec::new(), |tag| [[0x81, 0], tag.to_be_bytes()].concat());
    [&[2; 6][..], &[4; 6], &tag, &[8, 0], ip].concat()
}

/// A datagram in an Ethernet frame.
fn frame(payload: &[u8]) -> Vec<u8> {
    ethernet(None, &ipv4(UDP_PROTOCOL, &udp(payload), |_| {}))
}

fn packet(link: LinkType, bytes: &[u8]) -> Packet<'_> {
    Packet { time: None, interface: 0, link, bytes, original_bytes: bytes.len() as u32 }
}

/// The result of reading a file: packets with their times, and all errors.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    packets: Vec<(Option<i64>, u16, Vec<u8>)>,
    damaged: Vec<CaptureError>,
    end: Option<CaptureError>,
    left: usize,
}

/// Reads a file of which `step` more bytes are available at each request of the reader.
fn read(file: &[u8], step: usize) -> Read {
    let (mut reader, mut read, mut at, mut there) = (CaptureReader::new(), Read::default(), 0, 0);
    loop {
        let bytes = match reader.next(&file[at..there]) {
            Err(error) => {
                read.end = Some(error);
                break;
            }
            Ok(Found::Needs(needed)) => {
                assert!(needed > there - at, "what is there is enough");
                if there == file.len() {
                    break;
                }
                there = file.len().min(there + step);
                continue;
            }
            Ok(Found::Other { bytes }) => bytes,
            Ok(Found::Damaged { bytes, error }) => {
                read.damaged.push(error);
                bytes
            }
            Ok(Found::Packet { bytes, packet }) => {
                read.packets.push((packet.time.map(|time| time.0), packet.link.0, packet.bytes.to_vec()));
                bytes
            }
        };
        assert!(bytes > 0 && bytes <= there - at);
        at += bytes;
    }
    read.left = file.len() - at;
    read
}

/// A capture with these packets, a microsecond apart, written by the encoder.
fn written(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    encode_interface(LinkType::ETHERNET, &mut file);
    for (index, packet) in packets.iter().enumerate() {
        encode_packet(Utc(1_700_000_000_000_000_000 + 1000 * index as i64), packet, &mut file);
    }
    file
}

/// Writes numbers in one byte order.
struct Numbers {
    is_big: bool,
    out: Vec<u8>,
}

impl Numbers {
    fn new(is_big: bool) -> Self {
        Self { is_big, out: Vec::new() }
    }

    fn u16(mut self, number: u16) -> Self {
        self.out.extend(if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() });
        self
    }

    fn u32(mut self, number: u32) -> Self {
        self.out.extend(if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() });
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// A pcapng block around a body.
    fn block(self, kind: u32, body: impl FnOnce(Self) -> Self) -> Self {
        let mut inner = body(Self::new(self.is_big)).out;
        inner.resize(inner.len().next_multiple_of(4), 0);
        let length = inner.len() as u32 + 12;
        self.u32(kind).u32(length).bytes(&inner).u32(length)
    }

    fn section(self) -> Self {
        self.block(0x0A0D_0D0A, |body| body.u32(0x1A2B_3C4D).u16(1).u16(0).u32(u32::MAX).u32(u32::MAX))
    }

    /// An interface with one option.
    fn interface(self, link: u16, longest: u32, option: u16, value: &[u8]) -> Self {
        self.block(1, |body| {
            let mut padded = value.to_vec();
            padded.resize(value.len().next_multiple_of(4), 0);
            body.u16(link).u16(0).u32(longest).u16(option).u16(value.len() as u16).bytes(&padded).u32(0)
        })
    }

    fn packet(self, interface: u32, ticks: u64, bytes: &[u8]) -> Self {
        self.block(6, |body| {
            let length = bytes.len() as u32;
            body.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32).u32(length).u32(length).bytes(bytes)
        })
    }
}

#[test]
fn a_pcap_file_is_read_in_both_orders_and_units() {
    for is_big in [false, true] {
        for (magic, time) in [(0xA1B2_C3D4, 7_000_009_000), (0xA1B2_3C4D, 7_000_000_009)] {
            let file = Numbers::new(is_big).u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(101);
            let file = file.u32(7).u32(9).u32(3).u32(5).bytes(b"abc").u32(8).u32(0).u32(0).u32(0).out;
            assert!(CaptureReader::recognises(&file));
            for step in [1, 5, 1000] {
                let read = read(&file, step);
                let expected = vec![(Some(time), 101, b"abc".to_vec()), (Some(8_000_000_000), 101, Vec::new())];
                assert_eq!(read, Read { packets: expected, ..Read::default() });
            }
        }
    }
}

#[test]
fn what_we_write_is_what_is_read() {
    let packets = [frame(b"one"), frame(b"four"), Vec::new()];
    let file = written(&packets);
    for step in [1, 7, 1000] {
        let read = read(&file, step);
        assert_eq!((read.damaged.len(), read.end, read.left), (0, None, 0));
        let first = 1_700_000_000_000_000_000;
        let expected = packets.iter().zip(0..).map(|(bytes, index)| (Some(first + 1000 * index), 1, bytes.clone()));
        assert_eq!(read.packets, expected.collect::<Vec<_>>());
    }
}

#[test]
fn sections_have_an_order_and_interfaces_of_their_own() {
    let little = Numbers::new(false).section().interface(1, 0, 1, b"").packet(0, 5, b"a").out;
    let big = Numbers::new(true).section().interface(101, 0, 9, &[9]).interface(113, 0, 9, &[3]);
    let big = big.packet(1, 7, b"bcd").packet(0, 1 << 33, b"e").out;
    let read = read(&[little, big].concat(), 11);
    let expected = [(5000, 1, &b"a"[..]), (7_000_000, 113, b"bcd"), (1 << 33, 101, b"e")];
    assert_eq!(read.packets, expected.map(|(time, link, bytes)| (Some(time), link, bytes.to_vec())));
    assert_eq!((read.damaged, read.end, read.left), (Vec::new(), None, 0));
}

#[test]
fn times_may_count_powers_of_two_and_begin_elsewhere() {
    let time = |option, value: &[u8], ticks| {
        let file = Numbers::new(false).section().interface(1, 0, option, value).packet(0, ticks, b"").out;
        read(&file, 1000).packets[0].0.expect("it says when")
    };
    assert_eq!(time(9, &[0x80 | 10], 1536), 1_500_000_000);
    assert_eq!(time(9, &[12], 5000), 5);
    assert_eq!(time(9, &[127], u64::MAX), 0, "a unit below everything");
    assert_eq!(time(9, &[0], u64::MAX), i64::MAX, "seconds beyond what fits");
    assert_eq!(time(14, &100_i64.to_le_bytes(), 3), 100_000_003_000);
    assert_eq!(time(14, &(-1_i64).to_le_bytes(), 3), -999_997_000);
    assert_eq!(time(14, &i64::MIN.to_le_bytes(), 3), i64::MIN);
    let file = Numbers::new(true).section().interface(1, 0, 14, &100_i64.to_be_bytes()).packet(0, 3, b"").out;
    assert_eq!(read(&file, 1000).packets[0].0, Some(100_000_003_000), "in the section's order of bytes");
}

#[test]
fn unknown_blocks_are_passed_over_and_older_packets_are_read() {
    let file = Numbers::new(false).section().block(0x0000_0BAD, |body| body.bytes(b"comment"));
    let file = file.interface(1, 4, 1, b"").block(5, |body| body.u32(0).u32(1).u32(2));
    let file = file.block(3, |body| body.u32(9).bytes(b"kept"));
    let file = file.block(2, |body| body.u16(0).u16(1).u32(0).u32(2).u32(3).u32(3).bytes(b"old"));
    let read = read(&file.out, 1000);
    assert_eq!(read.packets, [(None, 1, b"kept".to_vec()), (Some(2000), 1, b"old".to_vec())]);
    assert_eq!((read.damaged, read.end), (Vec::new(), None));
}

#[test]
fn a_damaged_packet_costs_itself_alone() {
    let begin = Numbers::new(false).section().interface(1, 0, 1, b"");
    let long = begin.block(6, |body| body.u32(0).u32(0).u32(0).u32(5).u32(5).bytes(b"abcd"));
    let file = long.packet(1, 0, b"of no interface").packet(0, 0, b"good").out;
    let read = read(&file, 1000);
    assert_eq!(read.damaged, [CaptureError::Packet, CaptureError::Interface]);
    assert_eq!(read.packets, [(Some(0), 1, b"good".to_vec())]);
}

#[test]
fn where_the_next_block_is_unknown_the_file_ends() {
    let begin = || Numbers::new(false).section();
    for (file, error) in [
        (b"no capture at all".to_vec(), CaptureError::Magic),
        (begin().u32(6).u32(8).u32(0).out, CaptureError::Length),
        (begin().u32(6).u32(15).u32(0).u32(15).out, CaptureError::Length),
        (begin().u32(6).u32(12).u32(16).out, CaptureError::Length),
        (begin().u32(6).u32(1 << 30).u32(0).out, CaptureError::Oversize),
        (begin().bytes(&[0; 4096]).out, CaptureError::Length),
        (Numbers::new(false).u32(0xA1B2_CD34).u16(2).u16(4).bytes(&[0; 40]).out, CaptureError::Magic),
        (Numbers::new(false).u32(0x0A0D_0D0A).u32(28).u32(7).u32(0).u32(0).u32(0).out, CaptureError::Magic),
        (Numbers::new(true).u32(0xA1B2_C3D4).u16(9).u16(1).bytes(&[0; 16]).out, CaptureError::Version(9, 1)),
    ] {
        assert_eq!(read(&file, 1000).end, Some(error), "{file:x?}");
    }
    let later = Numbers::new(false).block(0x0A0D_0D0A, |body| body.u32(0x1A2B_3C4D).u16(2).u16(0).u32(0).u32(0));
    assert_eq!(read(&later.out, 1000).end, Some(CaptureError::Version(2, 0)));
    let huge = Numbers::new(false).u32(0xA1B2_C3D4).u16(2).u16(4).bytes(&[0; 16]).u32(0).u32(0).u32(1 << 30).u32(0);
    assert_eq!(read(&huge.out, 1000).end, Some(CaptureError::Oversize));
}

#[test]
fn interfaces_are_bounded() {
    let mut file = Numbers::new(false).section();
    for _ in 0..MOST_INTERFACES + 1 {
        file = file.interface(1, 0, 1, b"");
    }
    assert_eq!(read(&file.out, 1 << 20).damaged, [CaptureError::Interfaces]);
}

#[test]
fn a_file_that_was_cut_gives_every_packet_before_the_cut() {
    let ends = |count: usize| written(&vec![frame(b"one"); count]).len();
    let file = written(&vec![frame(b"one"); 2]);
    for cut in 0..file.len() {
        let read = read(&file[..cut], 1000);
        let whole = (1..3).filter(|&count| ends(count) <= cut).count();
        assert_eq!((read.packets.len(), read.damaged.len(), read.end), (whole, 0, None), "cut at {cut}");
        assert!(read.left > 0 || [0, 28, ends(0), ends(1)].contains(&cut), "cut at {cut}");
    }
}

#[test]
fn a_length_without_bytes_behind_it_takes_no_memory() {
    let block = Numbers::new(true).section().u32(6).u32(16 << 20).out;
    let record = Numbers::new(true).u32(0xA1B2_C3D4).u16(2).u16(4).bytes(&[0; 16]).u32(0).u32(0).u32(16 << 20).u32(0);
    for (file, needed) in [(block, 16 << 20), (record.out, 16 + (16 << 20))] {
        let mut reader = CaptureReader::new();
        let Ok(Found::Other { bytes }) = reader.next(&file) else { panic!("a header comes first") };
        assert_eq!(reader.next(&file[bytes..]), Ok(Found::Needs(needed)));
    }
}

fn payload_of<'a>(traffic: &'a mut Traffic, packet: &Packet<'a>) -> &'a [u8] {
    match traffic.accept(packet) {
        Carried::Datagram(datagram) => datagram.payload,
        other => panic!("no datagram: {other:?}"),
    }
}

fn aside(link: LinkType, bytes: &[u8]) -> Aside {
    match Traffic::new().accept(&packet(link, bytes)) {
        Carried::Aside(aside) => aside,
        other => panic!("nothing aside: {other:?}"),
    }
}

#[test]
fn a_datagram_is_found_behind_every_link() {
    let ip = ipv4(UDP_PROTOCOL, &udp(b"payload"), |_| {});
    let tagged = ethernet(Some(7), &ip);
    let twice = [&tagged[..12], &[0x88, 0xA8, 0, 3], &tagged[12..]].concat();
    let with_options = ipv4(UDP_PROTOCOL, &udp(b"payload"), |header| {
        header.options = [1; 40].into();
        header.total_len += 40;
    });
    let cooked = [&[0; 14][..], &[8, 0], &ip].concat();
    let cooked_2 = [&[8, 0][..], &[0; 18], &ip].concat();
    let loopback = [&[2, 0, 0, 0][..], &ip].concat();
    for (link, bytes) in [
        (LinkType::ETHERNET, ethernet(None, &ip)),
        (LinkType::ETHERNET, tagged),
        (LinkType::ETHERNET, twice),
        (LinkType::LINUX_COOKED, cooked),
        (LinkType::LINUX_COOKED_2, cooked_2),
        (LinkType::NULL, loopback),
        (LinkType::RAW, ip.clone()),
        (LinkType::IPV4, ip.clone()),
        (LinkType::IPV4, with_options),
        (LinkType(12), ip),
    ] {
        let mut traffic = Traffic::new();
        assert_eq!(payload_of(&mut traffic, &packet(link, &bytes)), b"payload", "{link:?}");
        for cut in 0..bytes.len() {
            let short = Packet { original_bytes: bytes.len() as u32, ..packet(link, &bytes[..cut]) };
            assert_eq!(Traffic::new().accept(&short), Carried::Aside(Aside::Cut), "{link:?} cut at {cut}");
        }
    }
}

#[test]
fn whence_and_where_stand_with_the_datagram_and_padding_does_not() {
    let padded = [frame(b"x"), vec![0; 20]].concat();
    let mut traffic = Traffic::new();
    let Carried::Datagram(datagram) = traffic.accept(&packet(LinkType::ETHERNET, &padded)) else {
        panic!("no datagram")
    };
    assert_eq!(datagram.source.to_string(), "192.168.10.1:9000");
    assert_eq!(datagram.destination.to_string(), "192.168.10.9:9001");
    assert_eq!(datagram.payload, b"x");
}

#[test]
fn a_datagram_of_ipv6_is_found_behind_its_extension_headers() {
    let datagram = udp(b"six");
    let extension = [UDP_PROTOCOL, 0, 0, 0, 0, 0, 0, 0];
    let only_part = [60, 0, 0, 0, 0, 0, 0, 9];
    let length = (datagram.len() + 16) as u16;
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend_from_slice(&length.to_be_bytes());
    ip.extend_from_slice(&[44, 64]);
    ip.extend_from_slice(&[0xFE; 15]);
    ip.extend_from_slice(&[1; 17]);
    ip.extend_from_slice(&only_part);
    ip.extend_from_slice(&extension);
    ip.extend_from_slice(&datagram);
    let mut traffic = Traffic::new();
    assert_eq!(payload_of(&mut traffic, &packet(LinkType::IPV6, &ip)), b"six");
    for cut in 0..ip.len() {
        assert_eq!(aside(LinkType::IPV6, &ip[..cut]), Aside::Malformed);
    }
}

/// An IPv6 packet from fe80::1 to fe80::2 that begins with this kind of header.
fn ipv6(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend_from_slice(&(rest.len() as u16).to_be_bytes());
    ip.extend_from_slice(&[kind, 64]);
    for last in [1, 2] {
        ip.extend_from_slice(&Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, last).octets());
    }
    ip.extend_from_slice(rest);
    ip
}

/// An extension header of `bytes` bytes that leads to another header.
fn extension(next: u8, bytes: usize, units: u8) -> Vec<u8> {
    let mut header = vec![0; bytes];
    header[..2].copy_from_slice(&[next, units]);
    header
}

#[test]
fn every_extension_header_of_ipv6_is_passed_over_or_makes_the_packet_malformed() {
    let datagram = udp(b"six");
    let chain = |kinds: &[u8]| {
        let nexts = kinds.iter().skip(1).copied().chain([UDP_PROTOCOL]);
        let headers = kinds.iter().zip(nexts).flat_map(|(kind, next)| match kind {
            44 => extension(next, 8, 0),
            51 => extension(next, 24, 4),
            _ => extension(next, 24, 2),
        });
        headers.chain(datagram.iter().copied()).collect::<Vec<_>>()
    };
    for kinds in [&[0][..], &[43], &[44], &[51], &[60], &[135], &[139], &[140], &[0, 60, 43, 44, 51, 60]] {
        let ip = ipv6(kinds[0], &chain(kinds));
        let mut traffic = Traffic::new();
        let Carried::Datagram(found) = traffic.accept(&packet(LinkType::IPV6, &ip)) else { panic!("{kinds:?}") };
        assert_eq!((found.payload, found.source.to_string().as_str()), (&b"six"[..], "[fe80::1]:9000"), "{kinds:?}");
        for cut in 0..ip.len() {
            assert_eq!(aside(LinkType::IPV6, &ip[..cut]), Aside::Malformed, "{kinds:?} cut at {cut}");
        }
    }
    let long = ipv6(60, &chain(&[60; 9]));
    assert_eq!(aside(LinkType::IPV6, &long), Aside::Malformed, "more headers than any packet has");
    let mut beyond = ipv6(60, &chain(&[60]));
    beyond[41] = 200;
    assert_eq!(aside(LinkType::IPV6, &beyond), Aside::Malformed, "a header that ends behind the packet");
    let encrypted = ipv6(50, &[7; 40]);
    let mut traffic = Traffic::new();
    let found = traffic.accept(&packet(LinkType::IPV6, &encrypted));
    assert!(matches!(found, Carried::Other(ip) if ip.protocol == 50), "{found:?}");
}

#[test]
fn parts_of_ipv6_are_put_together_and_may_begin_with_an_extension_header() {
    let payload: Vec<u8> = (0..3000_u32).map(|index| index as u8).collect();
    for before in [&[][..], &extension(UDP_PROTOCOL, 16, 1)] {
        let whole = [before, &udp(&payload)].concat();
        let next = if before.is_empty() { UDP_PROTOCOL } else { 60 };
        let parts = whole.chunks(1232).enumerate().map(|(index, part)| {
            let has_more = (index + 1) * 1232 < whole.len();
            let place = (index as u16 * 1232) | u16::from(has_more);
            let [high, low] = place.to_be_bytes();
            ipv6(44, &[&[next, 0, high, low, 0, 0, 0, 7], part].concat())
        });
        let mut parts: Vec<_> = parts.collect();
        assert_eq!(parts.len(), 3);
        for _ in 0..2 {
            parts.reverse();
            let mut traffic = Traffic::new();
            for part in &parts[..2] {
                assert_eq!(traffic.accept(&packet(LinkType::IPV6, part)), Carried::Aside(Aside::Part));
            }
            assert_eq!(payload_of(&mut traffic, &packet(LinkType::IPV6, &parts[2])), payload);
        }
    }
}

#[test]
fn a_datagram_of_ipv6_that_is_written_is_read() {
    let at = |last, port| SocketAddrV6::new(Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last), port, 0, 0);
    let addresses = PacketBuilder::ipv6(at(1, 0).ip().octets(), at(2, 0).ip().octets(), 64);
    let mut written = Vec::new();
    addresses.udp(4000, 9000).write(&mut written, b"odd").expect("it is short");
    let mut traffic = Traffic::new();
    let Carried::Datagram(found) = traffic.accept(&packet(LinkType::RAW, &written)) else { panic!("no datagram") };
    assert_eq!((found.source, found.destination), (at(1, 4000).into(), at(2, 9000).into()));
    assert_eq!(found.payload, b"odd");
}

#[test]
fn other_packets_than_datagrams_are_distinguished() {
    let icmp = ethernet(None, &ipv4(1, &[3, 3, 0, 0, 0, 0, 0, 0], |_| {}));
    let mut arp = ethernet(None, &[0; 28]);
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut wrong_sum = frame(b"x");
    wrong_sum[24] ^= 1;
    let mut wrong_length = frame(b"x");
    wrong_length[38..40].copy_from_slice(&[0, 200]);
    assert_eq!(aside(LinkType::ETHERNET, &icmp), Aside::Icmp);
    assert_eq!(aside(LinkType::ETHERNET, &arp), Aside::NoIp);
    assert_eq!(aside(LinkType::ETHERNET, &wrong_sum), Aside::Malformed);
    assert_eq!(aside(LinkType::ETHERNET, &wrong_length), Aside::Malformed);
    assert_eq!(aside(LinkType(147), &icmp), Aside::UnknownLink);
    let raw = ipv4(253, b"multi-event packet", |_| {});
    let mut traffic = Traffic::new();
    let other = traffic.accept(&packet(LinkType::RAW, &raw));
    assert!(matches!(other, Carried::Other(ip) if ip.payload == b"multi-event packet"), "{other:?}");
}

/// A capture on the sending host contains packets before the network card has filled in its fields.
#[test]
fn what_the_network_card_computes_may_be_zero_in_a_capture() {
    let right = ipv4(UDP_PROTOCOL, &udp(b"x"), |_| {});
    let changed = |at: usize, bytes: &[u8]| {
        let mut packet = right.clone();
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        packet
    };
    let unsummed = changed(10, &[0, 0]);
    let mut unmeasured = unsummed.clone();
    unmeasured[2..4].fill(0);
    for bytes in [unsummed, unmeasured] {
        assert_eq!(payload_of(&mut Traffic::new(), &packet(LinkType::RAW, &bytes)), b"x");
    }
    let wrong = u16::from_be_bytes([right[10], right[11]]) ^ 0x0101;
    assert_ne!(wrong, 0);
    assert_eq!(aside(LinkType::RAW, &changed(10, &wrong.to_be_bytes())), Aside::Malformed);
    assert_eq!(aside(LinkType::RAW, &changed(10, &[0xFF, 0xFF])), Aside::Malformed);
}

/// The IP fragments of a datagram, each of `step` bytes.
fn parts(payload: &[u8], step: usize, identification: u16) -> Vec<Vec<u8>> {
    let datagram = udp(payload);
    let parts = datagram.chunks(step).enumerate().map(|(index, chunk)| {
        let has_more = (index + 1) * step < datagram.len();
        ipv4(UDP_PROTOCOL, chunk, |header| {
            header.identification = identification;
            header.dont_fragment = false;
            header.more_fragments = has_more;
            header.fragment_offset = IpFragOffset::try_new((index * step / 8) as u16).expect("13 bits");
        })
    });
    parts.collect()
}

#[test]
fn a_datagram_of_several_parts_is_put_together_in_any_order() {
    let payload: Vec<u8> = (0..5000_u32).map(|index| index as u8).collect();
    let mut forwards = parts(&payload, 1480, 7);
    assert_eq!(forwards.len(), 4);
    for _ in 0..2 {
        forwards.reverse();
        let (mut traffic, others) = (Traffic::new(), parts(&payload, 800, 8));
        for (part, other) in forwards[..3].iter().zip(&others) {
            assert_eq!(traffic.accept(&packet(LinkType::RAW, part)), Carried::Aside(Aside::Part));
            assert_eq!(traffic.accept(&packet(LinkType::RAW, other)), Carried::Aside(Aside::Part));
        }
        // A duplicate changes nothing.
        assert_eq!(traffic.accept(&packet(LinkType::RAW, &forwards[0])), Carried::Aside(Aside::Part));
        assert_eq!(payload_of(&mut traffic, &packet(LinkType::RAW, &forwards[3])), payload);
        assert_eq!(traffic.unfinished_datagrams(), 1);
    }
}

#[test]
fn parts_that_never_become_whole_take_bounded_memory() {
    let mut traffic = Traffic::new();
    for identification in 0..1000 {
        let part = &parts(&[0; 3000], 1480, identification)[0];
        assert_eq!(traffic.accept(&packet(LinkType::RAW, part)), Carried::Aside(Aside::Part));
    }
    assert_eq!(traffic.unfinished_datagrams(), 1000);
}

/// The bytes of a stream, and the number of lost bytes.
fn stream(segments: &[(u32, u8, &[u8])]) -> (Vec<u8>, u64) {
    let (mut traffic, mut streams, mut out, mut lost) = (Traffic::new(), Streams::new(), Vec::new(), 0);
    let mut stretches = Stretches::default();
    let mut add = |stretches: &Stretches| {
        for (piece, bytes) in stretches.iter() {
            lost += piece.lost_bytes;
            out.extend_from_slice(bytes);
        }
    };
    for (sequence, flags, payload) in segments {
        let bytes = ipv4(6, &tcp(*sequence, *flags, payload), |_| {});
        let Carried::Segment(segment) = traffic.accept(&packet(LinkType::RAW, &bytes)) else { panic!("no segment") };
        stretches.clear();
        assert!(streams.accept(&segment, &mut stretches), "there is room");
        add(&stretches);
    }
    streams.end(&mut |_, stretches| add(stretches));
    (out, lost)
}

#[test]
fn the_bytes_of_a_connection_come_in_order() {
    const SYN: u8 = 2;
    let begin = u32::MAX - 3;
    let at = |offset: u32| begin.wrapping_add(1 + offset);
    let whole = stream(&[(begin, SYN, b""), (at(0), 0, b"abcd"), (at(4), 0, b"efg")]);
    assert_eq!(whole, (b"abcdefg".to_vec(), 0));
    let mixed =
        stream(&[(begin, SYN, b""), (at(4), 0, b"efg"), (at(4), 0, b"efg"), (at(2), 0, b"cde"), (at(0), 0, b"abcd")]);
    assert_eq!(mixed, (b"abcdefg".to_vec(), 0));
    let joined_late = stream(&[(at(2), 0, b"cd"), (at(0), 0, b"ab"), (at(4), 0, b"e")]);
    assert_eq!(joined_late, (b"cde".to_vec(), 0));
}

#[test]
fn bytes_that_the_capture_misses_are_given_up_and_counted() {
    let block = vec![7; 60_000];
    let mut segments: Vec<(u32, u8, &[u8])> = vec![(0, 2, b""), (1, 0, b"a")];
    segments.extend((0..400).map(|index| (102 + index * 60_000, 0, &block[..])));
    let (out, lost) = stream(&segments);
    assert_eq!((out.len(), lost), (1 + 400 * 60_000, 100));
}

#[test]
fn what_waits_when_the_capture_ends_is_given_behind_its_holes() {
    let begin = u32::MAX - 8;
    let at = |offset: u32| begin.wrapping_add(1 + offset);
    const SYN: u8 = 2;
    const FIN: u8 = 1;
    let (out, lost) =
        stream(&[(begin, SYN, b""), (at(0), 0, b"ab"), (at(5), 0, b"fg"), (at(10), FIN, b"kl"), (at(7), 0, b"h")]);
    assert_eq!((&out[..], lost), (&b"abfghkl"[..], 3 + 2));
}

#[test]
fn segments_that_were_sent_again_or_overtaken_are_no_holes() {
    let sent: Vec<u8> = (0..=255).collect();
    let at = |from: usize, to: usize| (1 + from as u32, 0, &sent[from..to]);
    for order in [
        vec![at(0, 100), at(150, 200), at(100, 150), at(200, 256)],
        vec![at(0, 100), at(150, 200), at(200, 256), at(90, 160)],
        vec![at(0, 100), at(0, 100), at(50, 120), at(110, 256)],
        // Sent again in larger pieces, and once more after all had arrived.
        vec![at(0, 10), at(20, 30), at(40, 50), at(10, 256), at(20, 30)],
    ] {
        assert_eq!(stream(&[vec![(0, 2, &b""[..])], order].concat()), (sent.clone(), 0));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_an_end(bytes in vec(any::<u8>(), 0..400), step in 1..50_usize) {
        read(&bytes, step);
    }

    #[test]
    fn a_damaged_capture_is_read_to_an_end(
        payloads in vec(vec(any::<u8>(), 0..40), 1..6),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut file = written(&payloads);
        for (place, byte) in damage {
            let at = place.index(file.len());
            file[at] = byte;
        }
        prop_assert_eq!(read(&file, 13), read(&file, 10_000), "however it comes");
    }

    #[test]
    fn any_packet_carries_something(link in 0..300_u16, bytes in vec(any::<u8>(), 0..200), damage in any::<prop::sample::Index>()) {
        let mut traffic = Traffic::new();
        let _ = traffic.accept(&packet(LinkType(link), &bytes));
        let mut frame = frame(&bytes);
        let at = damage.index(frame.len());
        frame[at] ^= 0x55;
        let _ = traffic.accept(&packet(LinkType::ETHERNET, &frame));
    }

    #[test]
    fn a_stream_is_the_same_in_any_order_of_its_segments(
        bytes in vec(any::<u8>(), 1..300),
        cuts in vec((any::<prop::sample::Index>(), 1..40_usize), 0..20),
        start in any::<u32>(),
    ) {
        let mut streams = Streams::new();
        let (mut out, mut stretches) = (Vec::new(), Stretches::default());
        let mut accept = |offset: usize, begins, payload: &[u8]| {
            let sequence = start.wrapping_add(offset as u32);
            let raw = ipv4(6, &tcp(sequence, if begins { 2 } else { 0 }, payload), |_| {});
            let mut traffic = Traffic::new();
            let Carried::Segment(segment) = traffic.accept(&packet(LinkType::RAW, &raw)) else { panic!("no segment") };
            stretches.clear();
            assert!(streams.accept(&segment, &mut stretches), "there is room");
            stretches.iter().for_each(|(_, bytes)| out.extend_from_slice(bytes));
            stretches.iter().map(|(piece, _)| piece.lost_bytes).sum::<u64>()
        };
        let mut lost = accept(0, true, b"");
        for (place, length) in cuts {
            let from = place.index(bytes.len());
            lost += accept(1 + from, false, &bytes[from..bytes.len().min(from + length)]);
        }
        lost += accept(1, false, &bytes);
        prop_assert_eq!((out, lost), (bytes, 0));
    }
}
