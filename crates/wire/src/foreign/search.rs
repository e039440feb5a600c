//! What stands at the front of a stream, where a format says it by a marker and a length.

use super::MOST_FRAME_BYTES;
use crate::framing::{Front, Search, Window};
use ropewalk_terms::Cause;

/// A frame of so many bytes, if they are there and no more than any frame may have.
pub(super) fn frame(window: &(impl Window + ?Sized), bytes: u64) -> Front {
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= MOST_FRAME_BYTES && bytes <= window.len() => Front::Frame { bytes },
        Ok(bytes) if bytes <= MOST_FRAME_BYTES => Front::Needs { bytes },
        _ => Front::Lost { cause: Cause::Oversize },
    }
}

/// Nothing can begin before a marker: says how many bytes lie before the next one, looking at every `step`th byte.
pub(super) fn skip_to<const N: usize>(
    window: &(impl Window + ?Sized),
    search: &mut Search,
    step: usize,
    is_marker: impl Fn([u8; N]) -> bool,
) -> Front {
    let mut at = step;
    while let Some(bytes) = window.array(at) {
        if is_marker(bytes) {
            break;
        }
        at += step;
    }
    // The bytes at `at` are a marker's, or may become one.
    if at > window.len() {
        return Front::Needs { bytes: at };
    }
    search.skip(at, Cause::FramingLost)
}
