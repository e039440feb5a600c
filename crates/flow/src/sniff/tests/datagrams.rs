//! Fields of datagrams.

use super::*;
use ropewalk_wire::layout::Counts;

/// A header of two boards: magic, board, length in words behind 16 bytes, frame counter, clock of 40 MHz.
fn frame(board: u8, number: u32, ticks: u32, noise: &mut Noise) -> Vec<u8> {
    let words = 4 + number % 7;
    let mut bytes = vec![0; 20 + 4 * words as usize];
    noise.fill(&mut bytes);
    bytes[..4].copy_from_slice(&[0xca, 0xfe, 0x10, board]);
    bytes[4..8].copy_from_slice(&(words + 1).to_be_bytes());
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    bytes[12..16].copy_from_slice(&ticks.to_be_bytes());
    bytes
}

/// What two boards sent at random times; every `lost`-th frame did not arrive.
fn two_boards(lost: u32) -> Sniffer {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(1));
    let mut now = 0;
    for number in 0..300_u32 {
        now += 100_000 + noise.next() % 900_000;
        for board in [1, 2] {
            // The network is late by up to a microsecond.
            let bytes = frame(board, 250 + number, 0xffff_0000_u32.wrapping_add((now / 25) as u32), &mut noise);
            let arrival = now + noise.next() % 1000;
            if !(number + u32::from(board)).is_multiple_of(lost) {
                sniffer.accept(peer(board, Transport::Udp), at(arrival), &bytes);
            }
        }
    }
    sniffer
}

#[test]
fn length_counter_clock_magic_and_board_are_found() {
    let group = only(&two_boards(u32::MAX));
    let told = told(&group);
    assert_eq!(frame_counters(&group), [(Number::big_endian(8, 4), true)], "{told}");
    let clocks = clocks(&group);
    assert_eq!(clocks.len(), 1, "{told}");
    assert!(clocks[0].0 == Number::big_endian(12, 4) && (clocks[0].1 - 25.0).abs() < 0.01, "{told}");
    let length = group.guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::Length(length) => Some((length.number, length.unit, length.counts)),
        _ => None,
    });
    assert_eq!(length, Some((Number::big_endian(4, 4), 4, Counts::Payload { header: 16 })), "{told}");
    let magic = Meaning::Constant { at: 0, bytes: vec![0xca, 0xfe, 0x10] };
    assert!(group.guesses.iter().any(|guess| guess.meaning == magic), "{told}");
    let board = Meaning::Peer { number: Number::little_endian(3, 1), values: vec![1, 2] };
    assert!(group.guesses.iter().any(|guess| guess.meaning == board), "{told}");
}

#[test]
fn a_counter_is_found_although_frames_were_lost() {
    let group = only(&two_boards(20));
    assert_eq!(frame_counters(&group), [(Number::big_endian(8, 4), true)], "{}", told(&group));
}

#[test]
fn a_counter_of_few_bits_has_a_mask() {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(2));
    for number in 0..400_u16 {
        let mut bytes = vec![0; 40];
        noise.fill(&mut bytes);
        // Four bits of something else above 12 bits that count.
        bytes[6..8].copy_from_slice(&((noise.next() as u16) << 12 | (number + 3900) & 0xfff).to_le_bytes());
        sniffer.accept(peer(1, Transport::Udp), at(u64::from(number) * 1000), &bytes);
    }
    let group = only(&sniffer);
    assert_eq!(frame_counters(&group), [(Number::little_endian(6, 2).masked(0xfff), false)], "{}", told(&group));
}

#[test]
fn a_counter_at_an_odd_place_is_as_wide_as_others() {
    let mut sniffer = Sniffer::new(Limits::default());
    for number in 0..50_u32 {
        let bytes = [&b"BOARD"[..], &number.to_be_bytes()].concat();
        sniffer.accept(peer(1, Transport::Udp), at(u64::from(number)), &bytes);
    }
    assert_eq!(frame_counters(&only(&sniffer)), [(Number::big_endian(5, 4), false)]);
}

#[test]
fn a_number_of_which_several_frames_are_sent_counts_events() {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(3));
    for number in 0..300_u32 {
        let mut bytes = vec![0; 30];
        noise.fill(&mut bytes);
        bytes[4..8].copy_from_slice(&(number / 3).to_le_bytes());
        sniffer.accept(peer(1, Transport::Udp), at(u64::from(number) * 1000), &bytes);
    }
    let group = only(&sniffer);
    let slow = group.guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::SlowCounter { number, frames_each, .. } => Some((number, frames_each.round())),
        _ => None,
    });
    assert_eq!(slow, Some((Number::little_endian(4, 4), 3.0)), "{}", told(&group));
}

#[test]
fn noise_has_no_meaning() {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(4));
    for number in 0..500_u64 {
        let mut bytes = vec![0; 60 + (noise.next() % 50) as usize];
        noise.fill(&mut bytes);
        sniffer.accept(peer((number % 3) as u8, Transport::Udp), at(number * 777_777), &bytes);
    }
    let group = only(&sniffer);
    assert_eq!(group.guesses, [], "{}", told(&group));
}

/// A board whose frames come as often as its events: what counts them is no clock, however regular they are.
#[test]
fn a_counter_is_no_clock_and_a_sum_is_none_either() {
    let (mut sniffer, mut noise) = (Sniffer::new(Limits::default()), Noise(5));
    let mut sum = 0_u32;
    for number in 0..300_u32 {
        let mut bytes = vec![0; 24];
        noise.fill(&mut bytes);
        sum += (noise.next() % 2000) as u32;
        bytes[8..12].copy_from_slice(&number.to_be_bytes());
        bytes[12..16].copy_from_slice(&sum.to_be_bytes());
        sniffer.accept(peer(1, Transport::Udp), at(u64::from(number) * 10_000), &bytes);
    }
    let group = only(&sniffer);
    assert_eq!((clocks(&group), frame_counters(&group).len()), (Vec::new(), 1), "{}", told(&group));
}

#[test]
fn who_comes_too_late_is_counted_and_memory_has_an_end() {
    let limits = Limits { peers: 2, frames: 10, head_bytes: 16, stream_bytes: 100 };
    let mut sniffer = Sniffer::new(limits);
    for number in 0..50_u8 {
        let transport = if number % 5 == 1 { Transport::Tcp } else { Transport::Udp };
        sniffer.accept(peer(number % 5, transport), at(u64::from(number)), &[number; 60]);
    }
    let findings = sniffer.findings();
    assert_eq!((findings.unheard, sniffer.packets()), (30, 50));
    let packets: u64 = findings.groups.iter().flat_map(|group| &group.peers).map(|account| account.packets).sum();
    assert_eq!(packets, 20);
    assert!(findings.groups.iter().all(|group| group.frames <= 10), "{findings:?}");
}
