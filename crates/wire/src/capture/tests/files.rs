//! The files: both kinds, both orders, every unit of time, blocks that nobody knows, and damage.

use super::*;

/// Numbers in an order of bytes.
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

    /// An interface with an option of so many bytes.
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
}

#[test]
fn blocks_that_nobody_knows_are_passed_over_and_older_packets_are_read() {
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
    let file = written(&[frame(b"one"), frame(b"two")]);
    let read = read(&file[..file.len() - 1], 1000);
    assert_eq!((read.packets.len(), read.end, read.left > 0), (1, None, true));
}
