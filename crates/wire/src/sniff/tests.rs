//! Fields that are what they are, found; and what is nothing, not.

use super::*;
use proptest::prelude::*;

fn sender(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 4000))
}

/// Pseudo-random bytes, the same every time.
fn noise(seed: u64) -> [u8; 8] {
    let mixed = (seed ^ seed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB).to_be_bytes()
}

/// What is guessed of datagrams of two senders that `make` makes of a sender's number and a datagram's, a millisecond apart.
fn sniffed(make: impl Fn(u8, u64) -> Vec<u8>) -> Sniffed {
    let mut sniffer = Sniffer::new();
    for number in 0..200_u64 {
        for last in [1, 2] {
            let time = Utc(1_000_000_000 + 1_000_000 * number as i64 + i64::from(noise(number)[0]));
            sniffer.push(sender(last), 9000, Some(time), &make(last, number));
        }
    }
    sniffer.finish().remove(0)
}

fn meanings(sniffed: &Sniffed) -> Vec<String> {
    let text = |guess: &Guess| match &guess.meaning {
        Meaning::Counter => format!("{} {} counter", guess.place.at, guess.place.type_text()),
        Meaning::Clock { tick_nanoseconds } => {
            format!("{} {} clock {}", guess.place.at, guess.place.type_text(), draft::tick_text(*tick_nanoseconds))
        }
        Meaning::Length { unit, more } => {
            format!("{} {} length {unit} {more}", guess.place.at, guess.place.type_text())
        }
        Meaning::Constant(bytes) => format!("{} constant {}", guess.place.at, bytes.escape_ascii()),
        Meaning::Sender => format!("{} sender {}", guess.place.at, guess.place.bytes),
    };
    sniffed.guesses.iter().map(text).collect()
}

#[test]
fn a_board_is_found_out() {
    let found = sniffed(|last, number| {
        let payload = (noise(number + 1000 * u64::from(last))[1] % 40) as usize;
        let mut datagram = b"BOARD".to_vec();
        datagram.push(last);
        datagram.extend_from_slice(&(20 + payload as u16).to_be_bytes());
        datagram.extend_from_slice(&(7000 + number as u32).to_le_bytes());
        datagram.extend_from_slice(&(4_000_000_000_u32.wrapping_add(125_000 * number as u32)).to_be_bytes());
        datagram.extend_from_slice(&noise(number)[..4]);
        datagram.resize(20 + payload, noise(number)[3]);
        datagram
    });
    let expected = ["0 constant BOARD", "5 sender 1", "6 u16be length 1 0", "8 u32le counter", "12 u32be clock 8ns"];
    assert_eq!(meanings(&found), expected);
    assert_eq!((found.port, found.senders.len(), found.senders[0].datagrams), (9000, 2, 200));
    assert!(found.senders[0].rate_hz.is_some_and(|rate| (rate - 1000.0).abs() < 1.0), "{found:?}");
    for line in [
        "match = { at = 0, bytes = \"BOARD\" }",
        "sequence = { at = 8, type = \"u32le\" }",
        "\"ip.source\"",
        "tick = \"8ns\"",
    ] {
        assert!(found.draft.contains(line), "{line}: {}", found.draft);
    }
}

#[test]
fn a_counter_is_found_in_either_order_and_width_with_and_without_a_carry() {
    for first in [0_u64, 0xF0, 0xFFF0, 0x12_3450] {
        for bytes in [2, 4, 8] {
            for is_big_endian in [false, true] {
                let found = sniffed(|last, number| {
                    let count = first + number + 50 * u64::from(last);
                    let mut datagram = noise(number + 999 * u64::from(last)).to_vec();
                    let number = if is_big_endian { count.to_be_bytes() } else { count.to_le_bytes() };
                    let kept = if is_big_endian { &number[8 - bytes..] } else { &number[..bytes] };
                    datagram.extend_from_slice(kept);
                    datagram.extend_from_slice(&noise(number_of(&datagram)));
                    datagram
                });
                let counters: Vec<_> = found
                    .guesses
                    .iter()
                    .filter(|guess| guess.meaning == Meaning::Counter)
                    .map(|guess| guess.place)
                    .collect();
                let lowest = if is_big_endian { 8 + bytes - 1 } else { 8 };
                assert_eq!(counters.len(), 1, "{first:#x} of {bytes} B: {found:?}");
                let place = counters[0];
                assert_eq!(place.is_big_endian, is_big_endian, "{first:#x} of {bytes} B: {place:?}");
                let found_lowest = if is_big_endian { place.at + place.bytes - 1 } else { place.at };
                assert_eq!((found_lowest, place.bytes <= bytes), (lowest, true), "{first:#x} of {bytes} B: {place:?}");
                assert!(
                    bytes > 4 || place.bytes == bytes || first == 0x12_3450 && bytes == 2,
                    "{first:#x} of {bytes} B: {place:?}"
                );
            }
        }
    }
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

#[test]
fn a_counter_that_misses_some_is_one_and_noise_is_none() {
    let lossy = sniffed(|_, number| [(number + number / 20) as u8, noise(number)[0], noise(number)[1]].to_vec());
    assert_eq!(meanings(&lossy), ["0 u8 counter"]);
    let noisy = sniffed(|last, number| noise(number + 500 * u64::from(last)).to_vec());
    assert_eq!(meanings(&noisy), [""; 0]);
}

#[test]
fn lengths_in_words_and_clocks_that_wrap_are_found() {
    let words = sniffed(|last, number| {
        let words = noise(number * 2 + u64::from(last))[0] % 30;
        let mut datagram = vec![words, 0xAB, 0xCD];
        datagram.resize(3 + 8 * usize::from(words), noise(number)[1]);
        datagram
    });
    assert_eq!(meanings(&words)[0], "0 u8 length 8 3");
    let slow = sniffed(|_, number| [&(number as u32 / 10).to_be_bytes()[..], &noise(number)[..2]].concat());
    assert_eq!(meanings(&slow)[0], "0 u32be clock 10.47ms", "the last tick is not over");
}

#[test]
fn too_few_datagrams_say_nothing_and_senders_are_bounded() {
    let mut sniffer = Sniffer::new();
    for number in 0..4 {
        sniffer.push(sender(1), 1, None, &[number]);
    }
    assert_eq!(sniffer.clone().finish()[0].guesses, []);
    for port in 0..1000 {
        sniffer.push(sender(1), port, None, b"");
    }
    assert_eq!((sniffer.left_out(), sniffer.finish().len()), (1000 - MOST_SENDERS as u64, MOST_SENDERS));
}

proptest! {
    #[test]
    fn anything_may_be_sniffed(
        datagrams in prop::collection::vec((1..4_u8, any::<i64>(), prop::collection::vec(any::<u8>(), 0..80)), 0..60),
    ) {
        let mut sniffer = Sniffer::new();
        for (last, time, bytes) in &datagrams {
            sniffer.push(sender(*last), 5, Some(Utc(*time)), bytes);
        }
        for sniffed in sniffer.finish() {
            prop_assert!(sniffed.draft.contains("[[source]]"));
        }
    }
}
