//! What packets carry: links, fragments, complaints, connections.

use super::*;
use crate::internet::Sum;
use core::net::{Ipv6Addr, SocketAddrV6};

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

/// An extension header that leads to another, with so many bytes.
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
    let written = ipv6_datagram(at(1, 4000), at(2, 9000), b"odd").expect("it is short");
    let mut traffic = Traffic::new();
    let Carried::Datagram(found) = traffic.accept(&packet(LinkType::RAW, &written)) else { panic!("no datagram") };
    assert_eq!((found.source, found.destination), (at(1, 4000).into(), at(2, 9000).into()));
    assert_eq!(found.payload, b"odd");
    let pseudo = Sum::default().with(&written[8..40]).with(&written[4..6]).with_u16(UDP_PROTOCOL.into());
    assert_eq!(pseudo.with(&written[40..]).checksum(), 0);
    assert_eq!(ipv6_datagram(at(1, 1), at(2, 2), &[0; 65_528]), None);
}

#[test]
fn what_is_no_datagram_is_told_apart() {
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

/// Captures on the sending host see packets before the network card has filled in what it computes.
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

/// The IP fragments of a datagram, each of so many bytes.
fn parts(payload: &[u8], step: usize, identification: u16) -> Vec<Vec<u8>> {
    let datagram = udp(payload);
    let parts = datagram.chunks(step).enumerate().map(|(index, chunk)| {
        let has_more = (index + 1) * step < datagram.len();
        ipv4(UDP_PROTOCOL, chunk, |header| {
            header.identification = identification;
            header.fragmentation.is_forbidden = false;
            header.fragmentation.has_more = has_more;
            header.fragmentation.offset = (index * step) as u16;
        })
    });
    parts.collect()
}

#[test]
fn a_datagram_of_several_parts_is_put_together_whatever_their_order() {
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
        // One that came twice changes nothing.
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

/// What a stream carried: the pieces, and how much of it was lost.
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
        // Sent again in larger pieces, and once more when all had come.
        vec![at(0, 10), at(20, 30), at(40, 50), at(10, 256), at(20, 30)],
    ] {
        assert_eq!(stream(&[vec![(0, 2, &b""[..])], order].concat()), (sent.clone(), 0));
    }
}
