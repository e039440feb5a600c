//! A process that writes anything to the shared memory, driven by a test or a fuzzer.

use std::cell::RefCell;

use super::memory::{ENTRIES, ENTRY, Entry, MOST_EVENTS, sequence_of};
use super::{FilterProcess, Offer, ProcessConfig};
use crate::filter::{FilterConfig, FilterEvent, MOST_RESULT};
use crate::process::worker::declared;
use ropewalk_flow::filter::MOST_FILLS;
use ropewalk_flow::messages::Fragment;
use ropewalk_terms::{Attempt, EventKey};

/// An event without fragments.
pub(super) struct Empty(pub(super) EventKey);

impl FilterEvent for Empty {
    fn key(&self) -> EventKey {
        self.0
    }

    fn attempt(&self) -> Attempt {
        Attempt(1)
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn trigger_type(&self) -> u16 {
        0
    }

    fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        std::iter::empty()
    }
}

/// Without a process: the test writes what a hostile process could have written.
pub(super) fn process() -> FilterProcess {
    let filter = FilterConfig { library: "none.so".into(), configuration: String::new() };
    let config = ProcessConfig { filter, memory: 1 << 20, copies: 1 << 16, command: Vec::new() };
    let mut process = FilterProcess::new(config).expect("it can be had");
    process.share_anew();
    process
}

/// The ticket of the first event; the others follow.
const FIRST: u32 = 100;
/// Events that are offered before anything is decided.
const OFFERED: u32 = 4;
/// Words of 8 bytes that it writes at once: an entry.
const WORDS: usize = 7;

thread_local! {
    static PROCESS: RefCell<FilterProcess> = RefCell::new(process());
}

/// A process declares a histogram with some of these bytes, is given events, and writes the others into the memory of decisions, entry
/// by entry, each behind a byte that says where. After each it is listened to.
///
/// # Panics
/// If something is believed that cannot be true: a decision on another event than the one that is due, or more than
/// there is room for.
pub fn hear(bytes: &[u8]) {
    PROCESS.with_borrow_mut(|process| {
        process.share_anew();
        let key = |ticket: u32| EventKey::new(1, u64::from(ticket));
        for ticket in FIRST..FIRST + OFFERED {
            assert_eq!(process.offer(ticket, &Empty(key(ticket))), Offer::Taken);
        }
        let mut due = FIRST;
        let entries = bytes.chunks_exact(1 + WORDS * 8);
        if let Some(Ok(shape)) = declared(entries.remainder()) {
            assert!(shape.low() < shape.high(), "{shape:?}");
        }
        for entry in entries {
            let (place, words) = (usize::from(entry[0]), entry[1..].as_chunks::<8>().0);
            write(process, place, words, due);
            let decided = process.decided();
            assert!(decided <= u64::from(due - FIRST) + MOST_EVENTS as u64, "{decided} decisions");
            while let Some(said) = process.next_decision() {
                let Ok((ticket, decision)) = said else { return };
                assert!(ticket == due && due < FIRST + OFFERED, "{ticket} is decided where {due} is due");
                if let Some(decision) = decision {
                    assert!(decision.result.len() <= MOST_RESULT && decision.fills.values().len() <= MOST_FILLS);
                }
                due += 1;
            }
        }
    });
}

/// Anything into an entry near the beginning, or, where the place is even, something that is nearly what is due.
fn write(process: &mut FilterProcess, place: usize, words: &[[u8; 8]], due: u32) {
    let word = |index: usize| u64::from_le_bytes(words[index]);
    let sequence = u64::from(due - FIRST) + 1;
    let low = |index: usize| word(index) as u32;
    let mut entry = Entry {
        key: word(1),
        bits: [word(2), word(3)],
        attempt: low(4),
        flags: (word(4) >> 32) as u32,
        result_at: word(5),
        result_length: low(6),
        fills: (word(6) >> 32) as u16,
        dropped_fills: (word(6) >> 48) as u16,
    };
    if place.is_multiple_of(2) {
        (entry.key, entry.attempt) = (EventKey::new(1, u64::from(due)).to_bits(), 1);
        process.scribble(sequence_of(sequence), sequence, entry);
    } else {
        process.scribble(ENTRIES + place / 2 % 8 * ENTRY, word(0), entry);
    }
}

#[cfg(test)]
mod tests {
    //! Anything the other side may write to the memory that it can write.

    use super::super::Offer;
    use super::super::memory::{Entry, MOST_EVENTS, RESULTS_RING, sequence_of};
    use super::{Empty, hear, process};
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
}
