//! Whatever comes: no panic, and what was hidden in frames of any layout is found.

use super::*;
use proptest::prelude::*;
use ropewalk_wire::layout::{Clock, Contents, Frame, Layout, Plan};

fn anything() -> impl Strategy<Value = Vec<(u8, bool, u64, Vec<u8>)>> {
    let byte = prop_oneof![Just(0), Just(0xff), any::<u8>()];
    proptest::collection::vec((0_u8..4, any::<bool>(), 0_u64..1_000_000, proptest::collection::vec(byte, 0..80)), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_makes_it_panic(packets in anything(), head_bytes in 0_usize..100) {
        let mut sniffer = Sniffer::new(Limits { head_bytes, stream_bytes: 2000, ..Limits::default() });
        let mut now = 0;
        for (number, is_stream, step, bytes) in &packets {
            now += step;
            let transport = if *is_stream { Transport::Tcp } else { Transport::Udp };
            sniffer.accept(peer(*number, transport), at(now), bytes);
        }
        for group in sniffer.findings().groups {
            prop_assert!(group.guesses.iter().all(|guess| guess.holds <= guess.of && guess.score() <= 1.0));
            told(&group);
            if let Some(layout) = draft(&group) {
                prop_assert!(Plan::compile(&layout).is_ok());
            }
        }
    }

    /// A counter and a clock of any place, width and order, not overlapping, in frames of noise.
    #[test]
    fn what_was_planted_is_found(
        places in (0_i32..8, 0_i32..8),
        orders in any::<[bool; 2]>(),
        width in prop_oneof![Just(2_u8), Just(4)],
        tick in 4_u64..60,
        seed in any::<u64>(),
        start in any::<u32>(),
    ) {
        let field = |at: i32, bytes: u8, big: bool| Number { is_big_endian: big, ..Number::little_endian(at, bytes) };
        // Even places: where a counter of four bytes begins at an odd one, two of them are as good a guess.
        let counter = field(2 * places.0, width, orders[0]);
        let ticks = field(20 + 2 * places.1, 4, orders[1]);
        let time = Clock { ticks: vec![ticks], tick_attoseconds: tick * 1_000_000_000, seconds: None };
        let layout = Layout { event: vec![counter], time: Some(time), ..Layout::new(Frame::Datagram, 1000) };
        let plan = Plan::compile(&layout).expect("nothing overlaps");
        let (mut sniffer, mut noise, mut now) = (Sniffer::new(Limits::default()), Noise(seed), 0_u64);
        for number in 0..400_u64 {
            now += 50_000 + noise.next() % 100_000;
            let mut payload = vec![0; 50 + (noise.next() % 30) as usize];
            noise.fill(&mut payload);
            let time = u64::from(start) + now / tick;
            let mut bytes = Vec::new();
            plan.compose(&Contents { event: u64::from(start) + number, time, ..Contents::default() }, &payload, &mut bytes);
            sniffer.accept(peer(1, Transport::Udp), at(now + noise.next() % 2000), &bytes);
        }
        let group = only(&sniffer);
        let counters = frame_counters(&group);
        prop_assert_eq!(counters.len(), 1, "{}", told(&group));
        let found = counters[0].0;
        // Of its upper bits, which never moved, nobody knows whether they belong to it.
        let lowest = |number: &Number| if number.is_big_endian { number.at + i32::from(number.bytes) } else { number.at };
        prop_assert_eq!((lowest(&found), found.is_big_endian), (lowest(&counter), counter.is_big_endian), "{}", told(&group));
        let clocks = clocks(&group);
        prop_assert!(clocks.iter().any(|(number, found)| *number == ticks && (found - tick as f64).abs() < 0.1), "{}", told(&group));
    }
}
