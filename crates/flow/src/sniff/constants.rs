//! Bytes that are always the same, and bytes that are the same for each peer.

use super::counters::taken;
use super::findings::{Guess, Meaning};
use super::frames::{Table, extent, read};
use ropewalk_wire::layout::{MOST_PATTERN_BYTES, Number};

/// Frames that must be there before anything is said.
const LEAST_FRAMES: usize = 4;

/// Runs of constant bytes that are not all zero, and what tells peers apart; `known` are fields of another meaning.
pub(super) fn find(table: &Table<'_>, known: &[Guess]) -> Vec<Guess> {
    if table.len() < LEAST_FRAMES {
        return Vec::new();
    }
    let taken: Vec<_> = known.iter().flat_map(taken).map(extent).collect();
    let is_free = |at: usize| at < table.reach && taken.iter().all(|taken| !taken.contains(&at));
    let byte = |at: usize| Number::little_endian(at as i32, 1);
    let of_peers = |at: usize| table.peers.iter().map(|rows| read(&rows[0], &byte(at))).collect::<Vec<u64>>();
    let is_steady = |at: usize| table.peers.iter().all(|rows| rows.iter().all(|row| row.head[at] == rows[0].head[at]));
    let mut guesses = Vec::new();
    let mut run: Vec<u8> = Vec::new();
    for at in 0..=table.reach {
        let values = if is_free(at) && is_steady(at) { of_peers(at) } else { Vec::new() };
        let is_constant = values.first().is_some_and(|first| values.iter().all(|value| value == first));
        if is_constant && run.len() < MOST_PATTERN_BYTES {
            run.push(values[0] as u8);
            continue;
        }
        guesses.extend(constant(table, at, &run));
        run.clear();
        if is_constant {
            run.push(values[0] as u8);
        } else if are_different(&values) {
            let holds = table.len() as u64;
            guesses.push(Guess { meaning: Meaning::Peer { number: byte(at), values }, holds, of: holds });
        }
    }
    guesses
}

/// A run of constant bytes that ends before `end`, without the zeros around it.
fn constant(table: &Table<'_>, end: usize, run: &[u8]) -> Option<Guess> {
    let first = run.iter().position(|byte| *byte != 0)?;
    let last = run.iter().rposition(|byte| *byte != 0)?;
    let (at, bytes) = (end - run.len() + first, run[first..=last].to_vec());
    let of = table.len() as u64;
    Some(Guess { meaning: Meaning::Constant { at, bytes }, holds: of, of })
}

/// Whether there are several values, each once.
fn are_different(values: &[u64]) -> bool {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    values.len() > 1 && sorted.len() == values.len()
}
