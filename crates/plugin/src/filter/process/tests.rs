//! Whatever the other side writes to the memory that it can write.

use super::hostile::{Empty, hear, process};
use super::layout::{Entry, MOST_EVENTS, RESULTS_RING, sequence_of};
use super::parent::Offer;
use crate::filter::MOST_RESULT;
use ropewalk_flow::filter::MOST_FILLS;
use ropewalk_terms::EventKey;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One of these, which are about right, or anything.
    fn about(&mut self, values: &[u64]) -> u64 {
        let wild = self.next();
        values.get((wild % (values.len() as u64 + 1)) as usize).copied().unwrap_or(wild)
    }
}

#[test]
fn whatever_is_written_only_what_can_be_true_is_believed() {
    let (mut process, seed) = (process(), 0x1d87_2b41_0cf4_ad55);
    println!("seed {seed:#x}");
    let (mut random, mut believed, mut refused) = (Random(seed), 0_u64, 0);
    for round in 0..200_000 {
        let key = EventKey::new(1, round);
        let due = believed + 1;
        if process.waiting() == 0 {
            assert_eq!(process.offer(7, &Empty(key)), Offer::Taken);
        }
        let due_key = process.due().expect("one was offered").to_bits();
        let entry = Entry {
            key: random.about(&[due_key, due_key, due_key, due_key, key.to_bits() + 1]),
            bits: [random.next(), random.next()],
            attempt: random.about(&[1, 1, 1, 1, 2]) as u32,
            flags: random.about(&[0, 1, 2, 3]) as u32,
            result_at: random.about(&[0, 8, RESULTS_RING as u64 - 8, RESULTS_RING as u64, 4]),
            result_length: random.about(&[0, 1, 8, MOST_RESULT as u64, MOST_RESULT as u64 + 1]) as u32,
            fills: random.about(&[0, 0, 0, 1, MOST_FILLS as u64, MOST_FILLS as u64 + 1]) as u16,
            dropped_fills: 0,
        };
        let sequence = random.about(&[due, due, due, due + 1, due.saturating_sub(MOST_EVENTS as u64)]);
        process.scribble(sequence_of(due), sequence, entry);
        assert!(process.decided() <= due + MOST_EVENTS as u64);
        match process.next_decision() {
            None => assert_eq!(sequence, due.saturating_sub(MOST_EVENTS as u64), "nothing new is there"),
            Some(Err(_)) => refused += 1,
            Some(Ok((ticket, decision))) => {
                let fills_at = entry.result_at.saturating_add(u64::from(entry.result_length).next_multiple_of(8));
                let end = fills_at.saturating_add(16 * u64::from(entry.fills));
                let can_be = sequence == due && entry.key == due_key && entry.attempt == 1 && entry.flags < 3;
                assert!(
                    can_be && end <= RESULTS_RING as u64 && entry.result_at.is_multiple_of(8),
                    "{sequence} {entry:?}"
                );
                assert!(entry.result_length as usize <= MOST_RESULT && ticket == 7);
                assert!(usize::from(entry.fills) <= MOST_FILLS);
                assert_eq!(
                    decision.map_or(usize::from(entry.fills), |said| said.fills.values().len()),
                    usize::from(entry.fills)
                );
                assert_eq!(decision.is_none(), entry.flags == 2);
                believed += 1;
            }
        }
    }
    assert!(believed > 1000 && refused > 1000, "{believed} {refused}");
}

#[test]
fn any_bytes_in_the_memory_of_decisions_are_heard_without_harm() {
    let mut random = Random(0x51f2_0c37_a0d9_4e81);
    println!("seed {:#x}", random.0);
    for _ in 0..2000 {
        let length = random.next() % 300;
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        hear(&bytes);
    }
}
