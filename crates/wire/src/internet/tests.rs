//! Headers there and back, arbitrary bytes, every fault, and packets as a kernel sent them.

use super::*;
use arrayvec::ArrayVec;
use core::net::{Ipv4Addr, SocketAddrV4};
use proptest::prelude::*;
use ropewalk_terms::Cause;

fn any_address() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 4]>().prop_map(Ipv4Addr::from)
}

fn any_ethernet() -> impl Strategy<Value = EthernetHeader> {
    // What is VLAN's own number would be a second tag.
    let ether_type = any::<u16>().prop_filter("no tag", |&number| EtherType(number) != EtherType::VLAN);
    (any::<[u8; 6]>(), any::<[u8; 6]>(), any::<Option<u16>>(), ether_type).prop_map(|(to, from, tag, number)| {
        let (destination, source) = (MacAddress(to), MacAddress(from));
        EthernetHeader { destination, source, vlan: tag.map(VlanTag), ether_type: EtherType(number) }
    })
}

fn any_ipv4() -> impl Strategy<Value = Ipv4Header> {
    let fragmentation = (any::<bool>(), any::<bool>(), 0..1_u16 << 13)
        .prop_map(|(is_forbidden, has_more, eighths)| Fragmentation { is_forbidden, has_more, offset: eighths << 3 });
    let options = prop::collection::vec(any::<[u8; 4]>(), 0..=MOST_OPTION_BYTES / 4);
    (any::<(u8, u16, u8, u8)>(), fragmentation, any_address(), any_address(), options).prop_map(
        |((traffic_class, identification, time_to_live, protocol), fragmentation, source, destination, options)| {
            let options = options.into_iter().flatten().collect();
            Ipv4Header {
                traffic_class,
                identification,
                fragmentation,
                time_to_live,
                protocol,
                source,
                destination,
                options,
            }
        },
    )
}

/// A packet that carries `payload`.
fn packet(header: &Ipv4Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.byte_count()];
    assert_eq!(header.write(payload.len(), &mut bytes), Some(bytes.len()));
    bytes.extend_from_slice(payload);
    bytes
}

/// A datagram in its packet.
fn datagram(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; UDP_BYTES];
    let header = UdpHeader { source: from, destination: to };
    assert_eq!(header.write(core::iter::once(payload), &mut bytes), Some(UDP_BYTES));
    bytes.extend_from_slice(payload);
    packet(&Ipv4Header::new(*from.ip(), *to.ip(), UDP_PROTOCOL), &bytes)
}

const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000);
const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 9001);

#[test]
fn the_checksum_is_that_of_the_standards_examples() {
    // RFC 1071, section 3, and an IPv4 header as textbooks have it.
    assert_eq!(Sum::default().with(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]).folded(), 0xDDF2);
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xB8, 0x61, 0xC0, 0xA8, 0x00, 0x01, 0xC0, 0xA8,
        0x00, 0xC7,
    ];
    assert_eq!(checksum(&header), 0);
    let view = Ipv4Packet::parse(&header);
    assert_eq!(view, Err(InternetError::Length), "115 bytes are stated");
}

#[test]
fn the_fields_are_where_the_standards_put_them() {
    let header = EthernetHeader {
        destination: MacAddress([1, 2, 3, 4, 5, 6]),
        source: MacAddress([7, 8, 9, 10, 11, 12]),
        vlan: Some(VlanTag(0x6123)),
        ether_type: EtherType::IPV4,
    };
    let mut bytes = [0; 18];
    assert_eq!(header.write(&mut bytes), Some(18));
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0x61, 0x23, 8, 0]);
    assert_eq!((VlanTag(0x6123).id(), header.source.to_string().as_str()), (0x123, "07:08:09:0a:0b:0c"));
    assert_eq!(header.write(&mut bytes[..17]), None);
    let mut ip = Ipv4Header::new(*FROM.ip(), *TO.ip(), EXPERIMENTAL_PROTOCOL);
    ip.identification = 0x0102;
    ip.fragmentation = Fragmentation { is_forbidden: false, has_more: true, offset: 1480 };
    let bytes = packet(&ip, &[0; 8]);
    assert_eq!(bytes[..10], [0x45, 0, 0, 28, 1, 2, 0x20, 185, 64, 253]);
    assert_eq!(bytes[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
    let udp = datagram(FROM, TO, b"abc");
    assert_eq!(udp[20..26], [0x23, 0x28, 0x23, 0x29, 0, 11]);
}

#[test]
fn each_fault_of_a_packet_has_its_name() {
    let good = packet(&Ipv4Header::new(*FROM.ip(), *TO.ip(), 253), b"payload");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Ipv4Packet::parse(&bytes).map(|packet| packet.payload.len())
    };
    assert_eq!(with(26, 0), Ok(7), "the payload has a checksum of its own, or none");
    assert_eq!(with(0, 0x65), Err(InternetError::NotIpv4));
    assert_eq!((with(0, 0x44), with(0, 0x47)), (Err(InternetError::HeaderLength), Err(InternetError::HeaderLength)));
    assert_eq!((with(3, 19), with(3, 28)), (Err(InternetError::Length), Err(InternetError::Length)));
    assert_eq!((with(8, 63), with(3, 26)), (Err(InternetError::HeaderChecksum), Err(InternetError::HeaderChecksum)));
    assert_eq!(Ipv4Packet::parse(&good[..19]), Err(InternetError::Short));
    assert_eq!(EthernetFrame::parse(&[0; 13]), Err(InternetError::Short));
    let mut tagged = [0; 17];
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    assert_eq!(EthernetFrame::parse(&tagged), Err(InternetError::Short));
    assert_eq!(InternetError::HeaderChecksum.cause(), Cause::BadChecksum);
    assert_eq!(InternetError::Length.cause(), Cause::LengthMismatch);
    assert_eq!(InternetError::Short.cause(), Cause::Malformed);
}

#[test]
fn each_fault_of_a_datagram_has_its_name() {
    let good = datagram(FROM, TO, b"payload");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        let packet = Ipv4Packet::parse(&bytes).expect("the header is untouched");
        UdpDatagram::parse(&packet).map(|datagram| datagram.checksum_state())
    };
    assert_eq!(with(20, good[20]), Ok(ChecksumState::Right));
    assert_eq!((with(25, 7), with(25, 16)), (Err(InternetError::Length), Err(InternetError::Length)));
    assert_eq!((with(30, !good[30]), with(21, !good[21])), (Ok(ChecksumState::Wrong), Ok(ChecksumState::Wrong)));
    let header = |change: fn(&mut Ipv4Header)| {
        let mut header = Ipv4Header::new(*FROM.ip(), *TO.ip(), UDP_PROTOCOL);
        change(&mut header);
        let bytes = packet(&header, &good[20..]);
        let packet = Ipv4Packet::parse(&bytes).expect("a good packet");
        UdpDatagram::parse(&packet).map(|datagram| datagram.header())
    };
    assert_eq!(header(|_| {}), Ok(UdpHeader { source: FROM, destination: TO }));
    assert_eq!(header(|header| header.protocol = 6), Err(InternetError::Protocol));
    assert_eq!(header(|header| header.fragmentation.has_more = true), Err(InternetError::Protocol));
    let short = packet(&Ipv4Header::new(*FROM.ip(), *TO.ip(), UDP_PROTOCOL), &[0; 7]);
    let short = Ipv4Packet::parse(&short).expect("a good packet");
    assert_eq!(UdpDatagram::parse(&short).map(|datagram| datagram.payload().len()), Err(InternetError::Short));
}

#[test]
fn a_checksum_that_was_left_to_a_card_is_told_from_a_wrong_one() {
    let mut bytes = datagram(FROM, TO, b"payload");
    let unfinished = pseudo_header(*FROM.ip(), *TO.ip(), UDP_PROTOCOL, 15).folded();
    let state = |bytes: &[u8]| {
        let packet = Ipv4Packet::parse(bytes).expect("a good packet");
        UdpDatagram::parse(&packet).expect("a datagram").checksum_state()
    };
    bytes[26..28].copy_from_slice(&unfinished.to_be_bytes());
    assert_eq!(state(&bytes), ChecksumState::Unfinished);
    let header = UdpHeader { source: FROM, destination: TO };
    assert_eq!(header.write_unchecked(7, &mut bytes[20..]), Some(8));
    assert_eq!(state(&bytes), ChecksumState::Absent);
}

#[test]
fn a_sum_of_zero_is_sent_as_its_complement() {
    // One 16-bit word of the payload is free: exactly one value of it makes the sum all ones.
    let found = (0..=u16::MAX).find(|word| datagram(FROM, TO, &word.to_be_bytes())[26..28] == [0xFF, 0xFF]);
    let bytes = datagram(FROM, TO, &found.expect("one of all words").to_be_bytes());
    let packet = Ipv4Packet::parse(&bytes).expect("a good packet");
    assert_eq!(UdpDatagram::parse(&packet).expect("a datagram").checksum_state(), ChecksumState::Right);
}

#[test]
fn what_is_too_long_for_the_length_field_is_not_written() {
    let header = Ipv4Header::new(*FROM.ip(), *TO.ip(), UDP_PROTOCOL);
    assert_eq!((header.write(65_515, &mut [0; 20]), header.write(65_516, &mut [0; 20])), (Some(20), None));
    assert_eq!(header.write(0, &mut [0; 19]), None);
    let (payload, udp) = (vec![0; 65_528], UdpHeader { source: FROM, destination: TO });
    assert_eq!(udp.write([&payload[..]].into_iter(), &mut [0; 8]), None);
    assert_eq!(udp.write([&payload[1..]].into_iter(), &mut [0; 8]), Some(8));
    assert_eq!(udp.write([&payload[1..]].into_iter(), &mut [0; 7]), None);
}

#[test]
fn options_that_are_no_whole_word_are_filled_up() {
    let mut header = Ipv4Header::new(*FROM.ip(), *TO.ip(), 253);
    header.options = ArrayVec::from_iter([7, 3, 4]);
    let bytes = packet(&header, b"x");
    let view = Ipv4Packet::parse(&bytes).expect("a good packet");
    assert_eq!((view.options(), view.payload, view.header_bytes()), (&[7, 3, 4, 0][..], &b"x"[..], 24));
}

/// The sum word by word, as the standard says it.
fn plain_sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| low.into()));
    words.fold(0u32, |sum, word| {
        let sum = sum + word;
        (sum & 0xFFFF) + (sum >> 16)
    }) as u16
}

proptest! {
    #[test]
    fn a_sum_over_pieces_is_the_sum_over_all(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut sum, mut at) = (Sum::default(), 0);
        for cut in cuts.into_iter().chain([bytes.len()]) {
            sum = sum.with(&bytes[at..cut]);
            at = cut;
        }
        // 0 and all ones are the same number here.
        prop_assert_eq!(sum.folded() % 0xFFFF, plain_sum(&bytes) % 0xFFFF);
        prop_assert_eq!(sum.folded() == 0, bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn ethernet_headers_come_back(header in any_ethernet(), payload in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut bytes = vec![0; header.byte_count()];
        prop_assert_eq!(header.write(&mut bytes), Some(bytes.len()));
        bytes.extend_from_slice(&payload);
        prop_assert_eq!(EthernetFrame::parse(&bytes), Ok(EthernetFrame { header, payload: &payload }));
    }

    #[test]
    fn ipv4_headers_come_back(
        header in any_ipv4(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        padding in 0..40_usize,
    ) {
        let mut bytes = packet(&header, &payload);
        bytes.resize(bytes.len() + padding, 0xEE);
        let view = Ipv4Packet::parse(&bytes).expect("what was just written");
        prop_assert_eq!(view.to_header(), header);
        prop_assert_eq!(view.payload, &payload[..]);
    }

    #[test]
    fn datagrams_come_back_and_a_changed_bit_is_seen(
        from in any_address(), to in any_address(), ports in any::<(u16, u16)>(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        bit: prop::sample::Index,
    ) {
        let (from, to) = (SocketAddrV4::new(from, ports.0), SocketAddrV4::new(to, ports.1));
        let mut bytes = datagram(from, to, &payload);
        let view = Ipv4Packet::parse(&bytes).expect("what was just written");
        let udp = UdpDatagram::parse(&view).expect("what was just written");
        prop_assert_eq!(udp.header(), UdpHeader { source: from, destination: to });
        prop_assert_eq!((udp.payload(), udp.checksum_state()), (&payload[..], ChecksumState::Right));
        let bit = bit.index((bytes.len() - 28) * 8 + 1);
        if bit > 0 {
            bytes[28 + (bit - 1) / 8] ^= 1 << ((bit - 1) % 8);
            let view = Ipv4Packet::parse(&bytes).expect("the header is untouched");
            let udp = UdpDatagram::parse(&view).expect("the lengths are untouched");
            prop_assert!(matches!(udp.checksum_state(), ChecksumState::Wrong | ChecksumState::Unfinished));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), signed: bool) {
        let mut bytes = bytes;
        if signed && bytes.len() >= 34 {
            bytes[12..15].copy_from_slice(&[8, 0, 0x46]);
            let end = bytes.len().min(38);
            bytes[24..26].fill(0);
            let sum = checksum(&bytes[14..end]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        if let Ok(frame) = EthernetFrame::parse(&bytes)
            && let Ok(packet) = Ipv4Packet::parse(frame.payload)
        {
            let _ = packet.to_header();
            if let Ok(udp) = UdpDatagram::parse(&packet) {
                let _ = (udp.header(), udp.payload(), udp.checksum_state());
            }
        }
    }
}
