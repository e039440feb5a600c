//! A process that writes what it likes to the memory that it shares: what a test or a fuzzer would have it write.

use super::layout::{ENTRIES, ENTRY, Entry, MOST_EVENTS, sequence_of};
use super::parent::{FilterProcess, Offer, ProcessConfig};
use crate::filter::{FilterConfig, FilterEvent, MOST_RESULT};
use crate::process::greeting::declared;
use ropewalk_flow::filter::MOST_FILLS;
use ropewalk_flow::messages::Fragment;
use ropewalk_terms::{Attempt, EventKey};
use std::cell::RefCell;

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

/// No process: what one could have written somebody else writes.
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
/// Where something is believed that cannot be true: a decision on another event than the one that is due, or more than there is room for.
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
