//! Whatever a capture holds, nothing panics, and nothing is taken twice.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

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
    fn a_stream_is_the_same_in_whatever_order_its_segments_come(
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
