//! Copies between buffers at any address: long ones, and many short consecutive pieces.

/// Bytes per call: fewer than the size from which C libraries use the processor's string instruction.
const PART: usize = 1024;

/// Copies all of `from` to `to`, at the same speed for any addresses.
///
/// C libraries copy more than some 2 KiB with `rep movsb`. Many processors do that some twenty times more slowly if
/// `to` is 1 to 31 bytes after `from`, modulo 4 KiB: 3 instead of 60 GB/s on an AMD EPYC of family 25. Fragments in
/// blocks reach such offsets, since every block's header moves what follows by a few bytes. Smaller parts are copied
/// with vectors.
///
/// # Panics
/// If the lengths differ.
pub fn copy(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "a copy is as long as what it is of");
    for (to, from) in to.chunks_mut(PART).zip(from.chunks(PART)) {
        to.copy_from_slice(from);
    }
}

/// Bytes copied at once.
const STEP: usize = 32;
/// From this size on, the library is as fast.
const MOST: usize = 8 * STEP;

/// Copies `from` to the front of `to`, for pieces of 32 to 100 bytes that are gathered into one buffer.
///
/// The library's copy first chooses among many ways by the length; for fragments that choice costs more than the bytes
/// (paper 1, III-C.2). This one copies whole steps of 32 bytes; the last step ends with the piece and overlaps the one
/// before. Pieces shorter than a step are copied as two overlapping halves in the same way.
///
/// # Panics
/// If `to` is shorter than `from`.
#[inline(always)]
pub fn short_copy(to: &mut [u8], from: &[u8]) {
    let length = from.len();
    let to = &mut to[..length];
    match length {
        STEP..=MOST => {
            let mut at = 0;
            while at + STEP < length {
                step::<STEP>(to, from, at);
                at += STEP;
            }
            step::<STEP>(to, from, length - STEP);
        }
        16..STEP => ends::<16>(to, from),
        8..16 => ends::<8>(to, from),
        4..8 => ends::<4>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `N` bytes.
#[inline(always)]
fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    step::<N>(to, from, 0);
    step::<N>(to, from, from.len() - N);
}

/// Copies `N` bytes from offset `at`.
#[inline(always)]
fn step<const N: usize>(to: &mut [u8], from: &[u8], at: usize) {
    to[at..at + N].copy_from_slice(&from[at..at + N]);
}

/// The scalar twin: byte by byte.
#[cfg(test)]
fn scalar(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn everything_is_copied_and_nothing_else(bytes in proptest::collection::vec(any::<u8>(), 0..5000), before in 0usize..40) {
            let mut to = vec![0xee; before + bytes.len() + 1];
            copy(&mut to[before..before + bytes.len()], &bytes);
            prop_assert!(to[..before].iter().chain(to.last()).all(|byte| *byte == 0xee));
            prop_assert_eq!(&to[before..before + bytes.len()], &bytes[..]);
        }
    }

    #[test]
    fn every_length_is_copied_and_nothing_behind_it() {
        let from: Vec<u8> = (0..700_u32).map(|index| (index * 7 % 251) as u8).collect();
        for length in 0..from.len() {
            let (mut to, mut twin) = (vec![0xEE; length + 40], vec![0xEE; length + 40]);
            short_copy(&mut to, &from[..length]);
            scalar(&mut twin, &from[..length]);
            assert!(to == twin, "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn it_does_what_its_twin_does(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..9)) {
            let total = pieces.iter().map(Vec::len).sum();
            let (mut all, mut twin, mut at) = (vec![0; total], vec![0; total], 0);
            for piece in &pieces {
                short_copy(&mut all[at..], piece);
                scalar(&mut twin[at..], piece);
                at += piece.len();
            }
            prop_assert_eq!(all, twin);
        }
    }

    #[test]
    #[should_panic(expected = "range end index")]
    fn what_does_not_fit_is_not_copied() {
        short_copy(&mut [0; 3], &[0; 4]);
    }
}
