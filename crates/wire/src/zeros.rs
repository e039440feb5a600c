//! Zeros at the place of a frame's beginning: the tail of a file that is longer than the written data, or a page that
//! never reached the disk. They are no frame of any format. The next frame is searched for behind them.

use crate::framing::{Framing, Front, Part, Search, Window};
use ropewalk_terms::Cause;

/// Number of zeros at the front, counting at most the first `most` bytes.
pub(crate) fn leading(window: &(impl Window + ?Sized), most: usize) -> usize {
    let mut zeros = 0;
    for piece in window.pieces(0) {
        let here = piece.iter().take(most - zeros).take_while(|&&byte| byte == 0).count();
        zeros += here;
        if here < piece.len() || zeros == most {
            break;
        }
    }
    zeros
}

/// Skips the zeros at the front, except for as many as a header may begin with.
#[cold]
pub(crate) fn skip(window: &(impl Window + ?Sized), kept: usize, search: &mut Search) -> Front {
    let zeros = leading(window, window.len());
    search.skip(zeros.saturating_sub(kept).max(1), Cause::FramingLost)
}

/// A possible beginning at a place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    /// No frame.
    No,
    /// This many bytes are needed to decide.
    Needs(usize),
    /// A frame of this many bytes, if another one follows it.
    Perhaps(usize),
    /// Certainly a frame, of this many bytes.
    Surely(usize),
}

/// Recognition of frames without a marker.
pub(crate) trait Headed {
    /// The possible beginning at the front, after a loss.
    fn begin(&self, window: &(impl Window + ?Sized)) -> Begin;

    /// Whether the bytes behind the first `bytes` confirm that those are a frame; the error is the number of bytes
    /// needed.
    fn follows(&self, window: &(impl Window + ?Sized), bytes: usize) -> Result<bool, usize>;
}

/// Searches for the next frame after a loss, byte by byte.
#[cold]
pub(crate) fn resume(format: &impl Headed, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
    let mut at = 0;
    while at < window.len() {
        let rest = Part::new(window, at, window.len() - at);
        let front = match format.begin(&rest) {
            Begin::No => None,
            Begin::Needs(bytes) => Some(Front::Needs { bytes }),
            Begin::Surely(bytes) | Begin::Perhaps(bytes) if bytes > rest.len() => Some(Front::Needs { bytes }),
            Begin::Surely(bytes) => Some(Front::Frame { bytes }),
            Begin::Perhaps(bytes) => match format.follows(&rest, bytes) {
                Ok(true) => Some(Front::Frame { bytes }),
                Ok(false) => None,
                Err(bytes) => Some(Front::Needs { bytes }),
            },
        };
        match front {
            Some(front) if at == 0 => return front,
            Some(_) => break,
            None => at += 1,
        }
    }
    if at == 0 { Front::Needs { bytes: 1 } } else { search.skip(at, Cause::FramingLost) }
}

/// The element at the front of the last bytes of a stream, after a loss: a frame may end with them.
#[cold]
pub(crate) fn front_at_end(
    format: &impl Framing,
    window: &(impl Window + ?Sized),
    search: &mut Search,
) -> Option<Front> {
    if !search.adrift || window.is_empty() {
        return None;
    }
    let bytes = match format.front(&Padded(window), &mut search.clone()) {
        Front::Frame { bytes } if bytes <= window.len() => return Some(Front::Frame { bytes }),
        Front::Skip { bytes, .. } => bytes.min(window.len()),
        Front::Frame { .. } | Front::Needs { .. } | Front::Lost { .. } => 1,
    };
    Some(search.skip(bytes, Cause::FramingLost))
}

/// Bytes with zeros behind them.
struct Padded<'a, W: ?Sized>(&'a W);

const PADDING: [u8; 128] = [0; 128];

impl<W: Window + ?Sized> Window for Padded<'_, W> {
    fn len(&self) -> usize {
        self.0.len() + PADDING.len()
    }

    fn pieces(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        let padding = PADDING.get(at.saturating_sub(self.0.len())..).filter(|rest| !rest.is_empty());
        self.0.pieces(at).chain(padding)
    }
}
