//! Finds the checksum at the end of frames.

use super::findings::{Guess, Meaning};
use ropewalk_wire::layout::{CHECKSUM_KINDS, Checksum, ChecksumKind, Number};

/// The most bytes that may follow a checksum, such as an end mark.
const MOST_BEHIND: usize = 8;
/// The most header bytes that a checksum may exclude.
const MOST_BEFORE: usize = 16;
/// Least improbability of a result, in bits of all frames together: thousands of checksums are tried.
const LEAST_BITS: u32 = 40;

/// Returns the checksum of these whole frames: the widest one, over as much of the frame as possible.
pub(super) fn find_checksum(frames: &[&[u8]]) -> Option<Guess> {
    let mut kinds = CHECKSUM_KINDS.to_vec();
    kinds.sort_by_key(|kind| core::cmp::Reverse(kind.bits()));
    let all = kinds.into_iter().filter(|kind| kind.bits() * frames.len() as u32 >= LEAST_BITS);
    all.flat_map(|kind| {
        (0..=MOST_BEHIND).flat_map(move |behind| (0..=MOST_BEFORE).map(move |from| (kind, behind, from)))
    })
    .find_map(|(kind, behind, from)| guess(frames, kind, behind, from))
}

/// Returns the values that a frame has at this distance from its end, in both byte orders, and its computed checksum.
fn stated(frame: &[u8], kind: ChecksumKind, behind: usize, from: usize) -> Option<([u64; 2], u64)> {
    let end = frame.len().checked_sub(behind)?;
    let at = end.checked_sub(kind.bits() as usize / 8).filter(|at| *at > from)?;
    let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let bytes = &frame[at..end];
    let both = [bytes.iter().rev().fold(0, join), bytes.iter().fold(0, join)];
    Some((both, kind.of([&frame[from..at]])))
}

fn guess(frames: &[&[u8]], kind: ChecksumKind, behind: usize, from: usize) -> Option<Guess> {
    let is_right = |frame: &&&[u8], order: usize| {
        stated(frame, kind, behind, from).is_some_and(|(both, found)| both[order] == found)
    };
    // At least one of the first two frames is intact.
    let order = (0..2).find(|&order| frames.iter().take(2).any(|frame| is_right(&frame, order)))?;
    let holds = frames.iter().filter(|frame| is_right(frame, order)).count();
    let mut values: Vec<u64> =
        frames.iter().filter_map(|frame| Some(stated(frame, kind, behind, from)?.0[order])).collect();
    values.sort_unstable();
    values.dedup();
    // A value that is the same in most frames is not a checksum.
    if holds * 10 < frames.len() * 9 || values.len() * 2 < frames.len() {
        return None;
    }
    let bytes = kind.bits() / 8;
    if is_payload(frames, bytes as usize, behind) {
        return None;
    }
    let at = -((bytes as usize + behind) as i32);
    let number = Number { is_big_endian: order == 1 && bytes > 1, ..Number::little_endian(at, bytes as u8) };
    let meaning = Meaning::Checksum(Checksum { kind, number, from: from as i32, to: at });
    Some(Guess { meaning, holds: holds as u64, of: frames.len() as u64 })
}

/// Whether the bytes at this place belong to the payload. They repeat the bytes before them, as equal bytes have equal
/// sums; or the bytes after them vary and are therefore not an end mark.
fn is_payload(frames: &[&[u8]], bytes: usize, behind: usize) -> bool {
    let ends = || {
        let long_enough = frames.iter().filter(|frame| frame.len() >= bytes + behind);
        long_enough.map(|frame| frame.split_at(frame.len() - behind))
    };
    let Some((_, mark)) = ends().next() else { return true };
    let marked = ends().filter(|(_, behind)| *behind == mark).count();
    let repeats = |front: &[u8]| {
        let at = front.len() - bytes;
        at >= bytes && front[at..] == front[at - bytes..at]
    };
    let repeated = ends().filter(|(front, _)| repeats(front)).count();
    repeated * 2 > frames.len() || marked * 10 < frames.len() * 9
}
