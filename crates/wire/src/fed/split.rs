//! Cutting a file of bare fragments, back to back, with no length in front of any.

use super::{Fragment, Header, MAX_BYTES, Trailer, WORD_BYTES};
use core::ops::Range;
use ropewalk_kernels::Crc16;

/// Where the fragments of a file are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Split {
    /// The fragments, in the order of the file, as ranges of bytes.
    pub fragments: Vec<Range<usize>>,
    /// The bytes that could not be cut: empty, unless the file is damaged or its end is missing.
    pub gap: Range<usize>,
}

/// Cuts a file of bare fragments.
///
/// Forwards, a fragment ends at the first word that looks like a trailer, states the right length, and has either
/// the right CRC or a header (or the file's end) behind it. Looks alone are not enough: in the CMS files 1,366
/// interior words look like trailers. Where no such word is found, the rest is cut backwards from the file's end
/// by the lengths in the trailers, by the same rule; what neither way reaches is the gap. The time grows with the file's size only.
pub fn split_file(bytes: &[u8]) -> Split {
    let mut split = Split::default();
    let mut start = 0;
    while let Some(end) = end_of_fragment(bytes, start) {
        split.fragments.push(start..end);
        start = end;
    }
    split.gap = start..bytes.len();
    let mut backwards = Vec::new();
    while let Some(begin) = begin_of_fragment(&bytes[..split.gap.end], start) {
        backwards.push(begin..split.gap.end);
        split.gap.end = begin;
    }
    split.fragments.extend(backwards.into_iter().rev());
    split
}

/// Cuts bytes that are fragments back to back and nothing else, as an event's data are, by the lengths in the trailers; none
/// where they do not fall apart to their begin. CRCs are not looked at.
pub fn split_event(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let (mut fragments, mut end) = (Vec::new(), bytes.len());
    while end > 0 {
        let trailer = Trailer::parse(*bytes[..end].last_chunk()?).ok()?;
        let begin = end.checked_sub(trailer.length_in_words() as usize * WORD_BYTES)?;
        Fragment::parse(&bytes[begin..end]).ok()?;
        fragments.push(begin..end);
        end = begin;
    }
    fragments.reverse();
    Some(fragments)
}

/// The end of the fragment that begins at `start`, if there is one.
fn end_of_fragment(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = &bytes[start..];
    let (words, _) = rest.as_chunks::<WORD_BYTES>();
    Header::parse(*words.first()?).ok()?;
    let (mut crc, mut covered) = (Crc16::new(), 0);
    for (index, &word) in words.iter().enumerate().take(MAX_BYTES / WORD_BYTES).skip(1) {
        let Ok(trailer) = Trailer::parse(word) else { continue };
        if trailer.length_in_words() as usize != index + 1 || trailer.more_trailers() {
            continue;
        }
        let end = (index + 1) * WORD_BYTES;
        // Goes on where the last candidate was, so that many candidates cost no more than one.
        crc.update(&rest[covered..end]);
        covered = end;
        if trailer.matches(crc) || ends_or_goes_on_with_a_header(&rest[end..]) {
            return Some(start + end);
        }
    }
    None
}

fn ends_or_goes_on_with_a_header(rest: &[u8]) -> bool {
    rest.is_empty() || rest.first_chunk().is_some_and(|&word| Header::parse(word).is_ok())
}

/// The begin of the fragment that ends where `bytes` end, if there is one and it does not begin before `lowest`.
fn begin_of_fragment(bytes: &[u8], lowest: usize) -> Option<usize> {
    let trailer = Trailer::parse(*bytes.last_chunk()?).ok()?;
    let begin = bytes.len().checked_sub(trailer.length_in_words() as usize * WORD_BYTES)?;
    let fragment = Fragment::parse(bytes.get(begin..).filter(|_| begin >= lowest)?).ok()?;
    let before = &bytes[..begin];
    let follows_a_trailer = before.last_chunk().is_some_and(|&word| Trailer::parse(word).is_ok());
    (begin == lowest || follows_a_trailer || fragment.check_crc().is_ok()).then_some(begin)
}
