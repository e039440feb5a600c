//! Clocks of boards whose frames arrive late, as on a busy machine, and numbers that increase by more than one per
//! frame.

use super::*;

/// The clock in a frame: bytes, byte order, nanoseconds per tick.
#[derive(Copy, Clone, Debug)]
struct Ticking {
    bytes: usize,
    is_big: bool,
    tick: u64,
}

/// A board with a clock: frames at random times, some of which wait until a stall of this machine is over.
fn late(ticking: Ticking, rate_hz: u64, seconds: u64, transport: Transport) -> Group {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(23));
    let (mut now, mut arrived, mut stalled) = (0_u64, 0_u64, 0_u64);
    for index in 0..(rate_hz * seconds) as u32 {
        // The sum of three random values is far from regular.
        now += (0..3).map(|_| noise.next() % (2 * 1_000_000_000 / rate_hz / 3)).sum::<u64>();
        if noise.next() % (rate_hz / 7).max(1) == 0 {
            stalled = now + 5_000_000 + noise.next() % 10_000_000;
        }
        arrived = arrived.max(now + 100_000 + noise.next() % 500_000).max(stalled.min(now + 15_000_000));
        let ticks = 0x0123_4567 + now / ticking.tick;
        let mut bytes = vec![0xA5, 0xC3, 0, 0];
        put(&mut bytes, u64::from(index), 4, ticking.is_big);
        put(&mut bytes, ticks, ticking.bytes, ticking.is_big);
        let rest = 8 + 2 * (noise.next() % 40) as usize;
        let begin = bytes.len();
        bytes.resize(begin + rest, 0);
        noise.fill(&mut bytes[begin..]);
        let length = (bytes.len() as u16).to_le_bytes();
        bytes[2..4].copy_from_slice(&length);
        sniffer.accept(peer(1, transport), at(1_000_000_000 + arrived), &bytes);
    }
    only(&sniffer)
}

fn put(out: &mut Vec<u8>, number: u64, bytes: usize, is_big: bool) {
    let all = number.to_be_bytes();
    let kept = &all[8 - bytes..];
    if is_big { out.extend(kept) } else { out.extend(kept.iter().rev()) }
}

#[test]
fn a_clock_is_found_although_arrivals_scatter() {
    for rate_hz in [100, 400, 1000, 4000, 20_000] {
        for (bytes, tick, is_big) in [(6, 25, false), (4, 10, true), (8, 1, true), (6, 8, true), (4, 100, false)] {
            for transport in [Transport::Udp, Transport::Tcp] {
                let ticking = Ticking { bytes, is_big, tick };
                let group = late(ticking, rate_hz, 6, transport);
                let found = clocks(&group);
                let is_near = |(number, found): &(Number, f64)| {
                    let digits = (*found / tick as f64).log2() / 8.0;
                    number.is_big_endian == is_big && (digits - digits.round()).abs() < 0.001
                };
                assert!(found.iter().any(is_near), "{rate_hz} Hz, {ticking:?}, {transport:?}: {}", told(&group));
            }
        }
    }
}

/// A sum of random values, such as the number of sent bytes, grows with time and is not a clock, however long it is
/// observed.
#[test]
fn a_sum_over_a_long_time_is_no_clock() {
    for seed in 0..20 {
        let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(seed));
        let (mut sum, mut now) = (0_u32, 0);
        for number in 0..50_000_u32 {
            let mut bytes = vec![0; 24];
            noise.fill(&mut bytes);
            sum += (noise.next() % 2000) as u32;
            now += noise.next() % 2_000_000;
            bytes[8..12].copy_from_slice(&number.to_be_bytes());
            bytes[12..16].copy_from_slice(&sum.to_be_bytes());
            sniffer.accept(peer(1, Transport::Udp), at(now), &bytes);
        }
        let group = only(&sniffer);
        assert_eq!((clocks(&group), frame_counters(&group).len()), (Vec::new(), 1), "{seed}: {}", told(&group));
    }
}

/// The report without a clock: that there is none, or which bytes it may be.
#[test]
fn a_clock_that_was_not_found_is_mentioned() {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(3));
    for number in 0..2000_u32 {
        let mut bytes = [&b"TAES"[..], &number.to_be_bytes(), &[0; 8]].concat();
        noise.fill(&mut bytes[8..]);
        sniffer.accept(peer(1, Transport::Udp), at(u64::from(number) * 1_000_000 + noise.next() % 900_000), &bytes);
    }
    let notes: Vec<String> = only(&sniffer).notes.iter().map(Note::to_string).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("no clock found"), "{notes:?}");

    // The sender delays frames by up to 2 s.
    let (mut sniffer, mut noise, mut now) = (Sniffer::new(Limits::default()), Noise(3), 0);
    for number in 0..6000_u32 {
        now += noise.next() % 2_000_000;
        let mut bytes = [&b"TAES"[..], &number.to_be_bytes(), &((now / 25) as u32).to_be_bytes(), &[0; 8]].concat();
        noise.fill(&mut bytes[12..]);
        sniffer.accept(peer(1, Transport::Udp), at((now / 400_000_000 + 1) * 400_000_000), &bytes);
    }
    let group = only(&sniffer);
    let doubts: Vec<String> = group.doubts.iter().map(Doubt::to_string).collect();
    let is_named = doubts.iter().any(|doubt| doubt.contains("u32be at 8 may be a clock"));
    assert!(is_named || !clocks(&group).is_empty(), "{doubts:?} {:?}\n{}", group.notes, told(&group));

    let mut sniffer = Sniffer::new(Limits::default());
    sniffer.accept(peer(1, Transport::File), at(0), &stream(&digitiser(), 100, true));
    let group = only(&sniffer);
    assert_eq!(group.notes, [Note::NoTimes], "{:?}\n{}", group.doubts, told(&group));
}

/// The number of the first of `by` events in each frame.
#[test]
fn a_number_that_goes_up_by_more_than_one_is_not_masked() {
    for by in [2_u64, 3, 4, 5, 8, 10, 16, 32] {
        for (bytes, is_big) in [(4, true), (4, false), (2, true), (2, false), (8, true), (3, false)] {
            for transport in [Transport::Udp, Transport::Tcp] {
                let (mut sniffer, mut noise, mut now) = (Sniffer::new(Limits::default()), Noise(by), 0);
                for index in 0..1000_u64 {
                    now += noise.next() % 2_000_000;
                    let mut frame = vec![0xEE, 2, 0, 0, 0xA5, 0xC3, 0x10, 0x5A];
                    // Numbers may begin with 0 or 1.
                    put(&mut frame, index * by + u64::from(is_big), bytes, is_big);
                    let begin = frame.len();
                    frame.resize(begin + 4 + (noise.next() % 60) as usize, 0);
                    noise.fill(&mut frame[begin..]);
                    let length = (frame.len() as u16).to_be_bytes();
                    frame[2..4].copy_from_slice(&length);
                    if index % 50 != 7 {
                        sniffer.accept(peer(1, transport), at(now), &frame);
                    }
                }
                let group = only(&sniffer);
                let case = format!("{by} per frame, {bytes} bytes, big {is_big}, {transport:?}: {}", told(&group));
                let found = group.doubts.iter().find_map(|doubt| match doubt {
                    Doubt::Steps(number, by) => Some((*number, *by)),
                    _ => None,
                });
                let (number, found) = found.unwrap_or_else(|| panic!("{case}{:?}", group.doubts));
                assert!(number.mask.is_none() && number.bytes > 1, "{number:?} {case}");
                assert_eq!((number.is_big_endian, found), (is_big, by), "{case}");
                let layout = draft(&group).expect("frames were found");
                assert_eq!((layout.event, layout.sequence), (Vec::new(), None), "{case}");
            }
        }
    }
}

/// One to four events in each frame, with the number of the first.
#[test]
fn a_number_that_goes_up_by_a_few_is_mentioned() {
    let (mut sniffer, mut noise, mut now, mut number) = (Sniffer::new(Limits::default()), Noise(8), 0, 0_u32);
    for _ in 0..1000 {
        now += noise.next() % 2_000_000;
        let mut frame = [&b"TAES"[..], &number.to_be_bytes(), &[0; 8]].concat();
        noise.fill(&mut frame[8..]);
        number += 1 + (noise.next() % 4) as u32;
        sniffer.accept(peer(1, Transport::Udp), at(now), &frame);
    }
    let group = only(&sniffer);
    let doubts: Vec<String> = group.doubts.iter().map(Doubt::to_string).collect();
    assert!(doubts.iter().any(|doubt| doubt.contains("several events in each frame")), "{doubts:?}\n{}", told(&group));
}
