//! The frames of some boards out of the bytes of many, where a format with a name says in each frame whose it is.
//!
//! ```text
//!  bytes as they come --> frames --> those of the boards that are meant, one after the other, as if nobody else had sent
//! ```
//! Bytes that are no frame are handed on as well: whose they were nobody knows, and the run counts them.

use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::framing::{Framing, Front, Search};

/// Which frames of a stream are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// Their format.
    pub format: ForeignFormat,
    /// What they say whose they are: any of these.
    pub boards: Vec<u64>,
    /// Bytes of the longest frame. Where one would be longer, nothing behind it is looked at, but all is handed on.
    pub max_frame: usize,
}

/// Chooses frames from bytes as they come.
#[derive(Debug)]
pub(super) struct Chooser {
    chosen: Chosen,
    /// Bytes that are no whole frame yet.
    held: Vec<u8>,
    search: Search,
    /// No frame can be found any more.
    is_lost: bool,
}

impl Chooser {
    pub(super) fn new(chosen: Chosen) -> Self {
        Self { chosen, held: Vec::new(), search: Search::default(), is_lost: false }
    }

    /// Takes bytes, and gives what is chosen of them; false where nobody wants any more.
    pub(super) fn push(&mut self, bytes: &[u8], give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        if self.is_lost {
            return give(bytes);
        }
        self.held.extend_from_slice(bytes);
        let mut at = 0;
        let mut is_wanted_still = true;
        while is_wanted_still && !self.is_lost {
            let rest = &self.held[at..];
            match self.chosen.format.front(rest, &mut self.search) {
                Front::Frame { bytes } => {
                    let source = self.chosen.format.fields(&rest[..bytes]).source.map(u64::from);
                    if source.is_some_and(|source| self.chosen.boards.contains(&source)) {
                        is_wanted_still = give(&rest[..bytes]);
                    }
                    (self.search, at) = (Search::default(), at + bytes);
                }
                Front::Skip { bytes, .. } => {
                    is_wanted_still = give(&rest[..bytes]);
                    at += bytes;
                }
                Front::Needs { bytes } if bytes <= self.chosen.max_frame && rest.len() < bytes => break,
                Front::Needs { .. } | Front::Lost { .. } => self.is_lost = true,
            }
        }
        self.held.drain(..at);
        if self.is_lost { is_wanted_still && self.end(give) } else { is_wanted_still }
    }

    /// Nothing comes any more: gives what is left; false where nobody wants it.
    pub(super) fn end(&mut self, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let held = std::mem::take(&mut self.held);
        held.is_empty() || give(&held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(format: ForeignFormat, source: u32, events: std::ops::Range<u32>) -> Vec<Vec<u8>> {
        events.flat_map(|event| format.emulate(source, event, &[7; 40]).expect("it is short")).collect()
    }

    fn chosen(stream: &[u8], piece: usize, chosen: Chosen) -> Vec<u8> {
        let (mut chooser, mut out) = (Chooser::new(chosen), Vec::new());
        let mut give = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            true
        };
        stream.chunks(piece).for_each(|piece| _ = chooser.push(piece, &mut give));
        chooser.end(&mut give);
        out
    }

    proptest! {
        #[test]
        fn frames_of_one_board_are_chosen_however_the_bytes_come(piece in 1_usize..500, cut in 0_usize..60) {
            let format = ForeignFormat::Fed;
            let [one, other] = [1, 2].map(|source| frames(format, source, 1..20));
            let mixed: Vec<u8> = one.iter().zip(&other).flat_map(|(one, other)| [&other[..], one].concat()).collect();
            let whole = Chosen { format, boards: vec![1], max_frame: 1 << 16 };
            prop_assert_eq!(chosen(&mixed, piece, whole.clone()), one.concat());
            // What is left of a frame that was cut belongs to nobody.
            let cut = &mixed[..mixed.len() - cut];
            prop_assert!(chosen(cut, piece, whole).starts_with(&one[..18].concat()));
        }

        #[test]
        fn no_bytes_make_it_panic_or_hold_more_than_a_frame(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            piece in 1_usize..100,
        ) {
            let format = ForeignFormat::Midas;
            let mut chooser = Chooser::new(Chosen { format, boards: vec![1], max_frame: 256 });
            let mut given = 0;
            for piece in bytes.chunks(piece) {
                chooser.push(piece, &mut |bytes| {
                    given += bytes.len();
                    true
                });
                prop_assert!(chooser.held.len() <= 256 + piece.len());
            }
            chooser.end(&mut |bytes| {
                given += bytes.len();
                true
            });
            prop_assert!(given <= bytes.len());
        }
    }
}
