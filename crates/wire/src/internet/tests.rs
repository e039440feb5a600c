//! Every fault, checksums, and arbitrary bytes.

use super::*;
use core::net::{Ipv4Addr, SocketAddrV4};
use proptest::prelude::*;

const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000);
const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 9001);

/// A packet with `payload` and a changed header.
fn packet(protocol: u8, payload: &[u8], change: impl FnOnce(&mut Ipv4Header)) -> Vec<u8> {
    let (from, to) = (FROM.ip().octets(), TO.ip().octets());
    let mut header = Ipv4Header::new(0, 64, IpNumber(protocol), from, to).expect("it is short");
    change(&mut header);
    header.set_payload_len(payload.len()).expect("it is short");
    header.header_checksum = header.calc_header_checksum();
    [&header.to_bytes()[..], payload].concat()
}

/// A datagram in its packet.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let addresses = PacketBuilder::ipv4(FROM.ip().octets(), TO.ip().octets(), 64);
    let mut bytes = Vec::new();
    addresses.udp(FROM.port(), TO.port()).write(&mut bytes, payload).expect("it is short");
    bytes
}

/// Whether the checksum of a packet's datagram is wrong.
fn is_wrong(bytes: &[u8]) -> Result<bool, InternetError> {
    let packet = Ipv4Packet::parse(bytes)?;
    packet.datagram().map(|datagram| packet.has_wrong_checksum(&datagram))
}

#[test]
fn the_checksum_is_that_of_the_standards_examples() {
    // RFC 1071, section 3, and an IPv4 header from textbooks.
    assert_eq!(checksum(&[&[0x00, 0x01, 0xF2, 0x03], &[0xF4, 0xF5, 0xF6, 0xF7]]), [0x22, 0x0D]);
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xB8, 0x61, 0xC0, 0xA8, 0x00, 0x01, 0xC0, 0xA8,
        0x00, 0xC7,
    ];
    assert_eq!(checksum(&[&header]), [0, 0]);
    assert_eq!(Ipv4Packet::parse(&header), Err(InternetError::Length), "115 bytes are stated");
}

#[test]
fn each_fault_of_a_packet_has_its_name() {
    let good = packet(253, b"payload", |_| {});
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Ipv4Packet::parse(&bytes).map(|packet| packet.payload.len())
    };
    assert_eq!(with(26, 0), Ok(7), "the payload has a checksum of its own, or none");
    assert_eq!(with(0, 0x65), Err(InternetError::NotIpv4));
    assert_eq!((with(0, 0x44), with(0, 0x47)), (Err(InternetError::HeaderLength), Err(InternetError::HeaderLength)));
    assert_eq!((with(3, 19), with(3, 28)), (Err(InternetError::Length), Err(InternetError::Length)));
    assert_eq!((with(3, 0), with(2, 255)), (Err(InternetError::Length), Err(InternetError::Length)));
    assert_eq!((with(8, 63), with(3, 26)), (Err(InternetError::HeaderChecksum), Err(InternetError::HeaderChecksum)));
    assert_eq!(Ipv4Packet::parse(&good[..19]), Err(InternetError::Short));
    assert_eq!(Ipv4Packet::parse(&[]), Err(InternetError::Short));
    assert_eq!(InternetError::HeaderChecksum.cause(), Cause::BadChecksum);
    assert_eq!(InternetError::Length.cause(), Cause::LengthMismatch);
    assert_eq!(InternetError::Short.cause(), Cause::Malformed);
}

#[test]
fn a_frame_is_opened_behind_its_tag() {
    let tagged = [&[9; 12][..], &[0x81, 0, 0x61, 0x23, 8, 0], b"packet"].concat();
    assert_eq!(behind_ethernet(&tagged), Ok(&b"packet"[..]));
    let plain = [&[9; 12][..], &[8, 0], b"packet"].concat();
    assert_eq!(behind_ethernet(&plain), Ok(&b"packet"[..]));
    assert_eq!(behind_ethernet(&plain[..14]), Ok(&b""[..]));
    assert_eq!(behind_ethernet(&tagged[..18]), Ok(&b""[..]));
    for short in [&plain[..13], &tagged[..13], &tagged[..17]] {
        assert_eq!(behind_ethernet(short), Err(InternetError::Short));
    }
}

#[test]
fn each_fault_of_a_datagram_has_its_name() {
    let good = datagram(b"payload");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        is_wrong(&bytes)
    };
    assert_eq!(with(20, good[20]), Ok(false));
    for length in [0, 7, 16] {
        assert_eq!(with(25, length), Err(InternetError::Length), "{length}");
    }
    assert_eq!((with(30, !good[30]), with(21, !good[21])), (Ok(true), Ok(true)));
    let short = packet(17, &[0; 7], |_| {});
    assert_eq!(is_wrong(&short), Err(InternetError::Short));
}

#[test]
fn a_checksum_that_was_left_to_a_card_is_distinguished_from_a_wrong_one() {
    let mut bytes = datagram(b"payload");
    let unfinished = checksum(&[&bytes[12..20], &[0, 17, 0, 15]]).map(|byte| !byte);
    bytes[26..28].copy_from_slice(&unfinished);
    assert_eq!(is_wrong(&bytes), Ok(false));
    bytes[26..28].fill(0);
    assert_eq!(is_wrong(&bytes), Ok(false), "no checksum");
    bytes[26] = 1;
    assert_eq!(is_wrong(&bytes), Ok(true));
}

#[test]
fn a_sum_of_zero_is_sent_as_its_complement() {
    // One 16-bit word of the payload is free: exactly one value of it makes the sum all ones.
    let found = (0..=u16::MAX).find(|word| datagram(&word.to_be_bytes())[26..28] == [0xFF, 0xFF]);
    assert_eq!(is_wrong(&datagram(&found.expect("one of all words").to_be_bytes())), Ok(false));
}

#[test]
fn options_and_padding_are_no_payload() {
    let mut bytes = packet(253, b"x", |header| header.options = [7, 3, 4, 0].into());
    bytes.resize(60, 0xEE);
    let view = Ipv4Packet::parse(&bytes).expect("a good packet");
    assert_eq!((view.header.options(), view.payload), (&[7, 3, 4, 0][..], &b"x"[..]));
    bytes[21] = 9;
    assert_eq!(Ipv4Packet::parse(&bytes), Err(InternetError::HeaderChecksum), "the checksum covers the options");
}

/// The sum word by word, as in the standard.
fn plain_sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| low.into()));
    words.fold(0u32, |sum, word| {
        let sum = sum + word;
        (sum & 0xFFFF) + (sum >> 16)
    }) as u16
}

proptest! {
    #[test]
    fn the_sum_is_the_standards(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..100_usize) {
        let (first, rest) = bytes.split_at((2 * cut).min(bytes.len() / 2 * 2));
        let sum = !u16::from_be_bytes(checksum(&[first, rest]));
        // 0 and all ones are the same number here.
        prop_assert_eq!(sum % 0xFFFF, plain_sum(&bytes) % 0xFFFF);
        prop_assert_eq!(sum == 0, bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn datagrams_come_back_and_a_changed_bit_is_seen(
        payload in prop::collection::vec(any::<u8>(), 0..100),
        padding in 0..40_usize,
        bit: prop::sample::Index,
    ) {
        let mut bytes = datagram(&payload);
        let whole = bytes.len();
        bytes.resize(whole + padding, 0xEE);
        let view = Ipv4Packet::parse(&bytes).expect("what was just written");
        let udp = view.datagram().expect("what was just written");
        prop_assert_eq!((udp.source_port(), udp.destination_port()), (FROM.port(), TO.port()));
        prop_assert_eq!((udp.payload(), is_wrong(&bytes)), (&payload[..], Ok(false)));
        let bit = bit.index((whole - 28) * 8 + 1);
        if bit > 0 {
            bytes[28 + (bit - 1) / 8] ^= 1 << ((bit - 1) % 8);
            let unfinished = checksum(&[&bytes[12..20], &[0, 17], &bytes[24..26]]).map(|byte| !byte);
            prop_assert!(is_wrong(&bytes) == Ok(true) || bytes[26..28] == unfinished);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), signed: bool) {
        let mut bytes = bytes;
        if signed && bytes.len() >= 34 {
            bytes[12..15].copy_from_slice(&[8, 0, 0x46]);
            let end = bytes.len().min(38);
            bytes[24..26].fill(0);
            let right = checksum(&[&bytes[14..end]]);
            bytes[24..26].copy_from_slice(&right);
        }
        if let Ok(packet) = behind_ethernet(&bytes) {
            let _ = (is_wrong(packet), Ipv4Packet::parse_captured(packet));
        }
    }
}
