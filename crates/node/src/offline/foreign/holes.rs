//! Bytes of connections that a capture misses: told, and passed over at frames.

use ropewalk_wire::capture::Stretches;
use ropewalk_wire::mending::{Hole, Mended, Mender};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// Where a capture misses bytes of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct HoleReport {
    /// How many bytes of the connection are before it.
    pub at: u64,
    /// How many are missing.
    pub bytes: u64,
    /// How many around it belong to no whole frame.
    pub dropped: u64,
}

impl From<&Hole> for HoleReport {
    fn from(&Hole { at, bytes, dropped }: &Hole) -> Self {
        Self { at, bytes, dropped }
    }
}

impl HoleReport {
    /// The first holes of a connection.
    pub(crate) fn all(mended: &Mended) -> Vec<Self> {
        mended.first_holes.iter().map(Self::from).collect()
    }
}

impl fmt::Display for HoleReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, bytes, dropped } = self;
        write!(out, "{bytes} bytes of the connection are missing behind its first {at}")?;
        if *dropped > 0 {
            write!(out, ", and {dropped} around them belong to no whole frame")?;
        }
        Ok(())
    }
}

/// What a connection misses in all: the bytes, and those around them that belong to no whole frame.
pub(super) const fn missed(mended: &Mended) -> u64 {
    mended.missing_bytes + mended.dropped_bytes
}

/// Tells what is missing from a connection.
pub(super) fn write_holes(mended: &Mended, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    HoleReport::all(mended).iter().try_for_each(|hole| write!(out, "; {hole}"))?;
    let further = mended.holes.saturating_sub(mended.first_holes.len() as u64);
    if further > 0 {
        write!(out, "; {further} more such places, {} bytes are missing in all", mended.missing_bytes)?;
    }
    if mended.holes == 0 && mended.dropped_bytes > 0 {
        write!(out, "; {} bytes before a new connection are no whole frame", mended.dropped_bytes)?;
    }
    Ok(())
}

/// Passes on the next bytes of a stream, without incomplete frames; false where no more are wanted.
pub(super) fn give_on(stretches: &Stretches, mender: &mut Mender, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let mut is_wanted_still = true;
    for (piece, bytes) in stretches.iter() {
        if piece.begins {
            is_wanted_still &= mender.begin(give);
        }
        if piece.lost_bytes > 0 {
            is_wanted_still &= mender.miss(piece.lost_bytes, give);
        }
        is_wanted_still &= bytes.is_empty() || mender.push(bytes, give);
    }
    is_wanted_still
}
