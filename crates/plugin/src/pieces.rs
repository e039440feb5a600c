//! What a splitter says of a frame is believed only if it can be true.

use crate::table::{EVENT, RawPiece, TIME};
use ropewalk_wire::framing::{Piece, PieceKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What identifies the pieces of a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// The numbers of their events.
    #[default]
    Events,
    /// Their times; pieces with the same time form one event.
    Times,
}

/// Why what a splitter said of a frame cannot be true.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Nonsense {
    /// More pieces than there was room for.
    #[error("it says that it wrote {said} pieces, and there was room for {capacity}")]
    Count {
        /// What it returned.
        said: u64,
        /// The room.
        capacity: usize,
    },
    /// A piece that does not lie in the frame, or not behind the one before it.
    #[error("piece {index} does not lie in the frame, or begins before the end of the one before it")]
    Place {
        /// Which one, from 0 on.
        index: usize,
    },
    /// A piece with a key of another sort than the configuration says.
    #[error("piece {index} has a key of kind {kind}, and the key `keys` of the source says another one")]
    Kind {
        /// Which one, from 0 on.
        index: usize,
        /// Its kind.
        kind: u32,
    },
}

/// Appends the pieces of a frame of so many bytes.
pub(crate) fn check(
    raw: impl Iterator<Item = RawPiece>,
    frame_bytes: usize,
    keys: Keys,
    pieces: &mut Vec<Piece>,
) -> Result<(), Nonsense> {
    let mut behind_last = 0;
    for (index, piece) in raw.enumerate() {
        let key = match (piece.kind, keys) {
            (EVENT, Keys::Events) => PieceKey::Event(piece.key),
            (TIME, Keys::Times) => PieceKey::Time(piece.key),
            (kind, _) => return Err(Nonsense::Kind { index, kind }),
        };
        let end = piece.offset.checked_add(piece.length).filter(|&end| end <= frame_bytes as u64);
        let Some(end) = end.filter(|_| piece.offset >= behind_last) else { return Err(Nonsense::Place { index }) };
        behind_last = end;
        pieces.push(Piece { key, offset: piece.offset as usize, length: piece.length as usize });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(pieces: &[(u32, u64, u64)], keys: Keys) -> Result<Vec<Piece>, Nonsense> {
        let raw = pieces.iter().map(|&(kind, offset, length)| RawPiece { key: 5, offset, length, kind, reserved: 0 });
        let mut out = Vec::new();
        check(raw, 100, keys, &mut out).map(|()| out)
    }

    #[test]
    fn pieces_lie_one_behind_the_other_in_the_frame() {
        let good = checked(&[(0, 0, 10), (0, 10, 0), (0, 50, 50)], Keys::Events).expect("nothing is wrong");
        assert_eq!(good[2], Piece { key: PieceKey::Event(5), offset: 50, length: 50 });
        let wrong: [&[_]; 5] = [
            &[(0, 0, 101)],
            &[(0, 10, 10), (0, 19, 1)],
            &[(0, 10, 10), (0, 0, 5)],
            &[(0, u64::MAX, 2)],
            &[(0, 2, u64::MAX)],
        ];
        for pieces in wrong {
            let index = pieces.len() - 1;
            assert_eq!(checked(pieces, Keys::Events), Err(Nonsense::Place { index }), "{pieces:?}");
        }
    }

    #[test]
    fn keys_are_of_the_sort_that_is_configured() {
        assert_eq!(checked(&[(1, 0, 1)], Keys::Times).map(|all| all[0].key), Ok(PieceKey::Time(5)));
        assert_eq!(checked(&[(1, 0, 1)], Keys::Events), Err(Nonsense::Kind { index: 0, kind: 1 }));
        assert_eq!(checked(&[(0, 0, 1)], Keys::Times), Err(Nonsense::Kind { index: 0, kind: 0 }));
        assert_eq!(checked(&[(7, 0, 1)], Keys::Events), Err(Nonsense::Kind { index: 0, kind: 7 }));
    }
}
