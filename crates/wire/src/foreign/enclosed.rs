//! What stands in a frame that holds a whole event: the fragments of its sources, and what is around them.

use super::ForeignFormat;
use core::ops::Range;
use ropewalk_terms::SourceId;

/// The source whose fragment is what a foreign event has around its fragments: its header, what stands before that, and
/// padding. No front end has this id.
pub const ENVELOPE: SourceId = SourceId(u32::MAX);
/// The source whose fragment is the data of a foreign event that do not fall apart into fragments. No front end has this id.
pub const UNDIVIDED: SourceId = SourceId(u32::MAX - 2);

const _: () = {
    assert!(UNDIVIDED.0 != SourceId::FILTER.0 && ENVELOPE.0 != SourceId::FILTER.0, "each has an id of its own");
    assert!(UNDIVIDED.is_reserved() && ENVELOPE.is_reserved() && SourceId::FILTER.is_reserved(), "no front end has it");
};

/// A whole event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enclosed {
    /// Where its data lie in the frame; the rest is the envelope.
    pub data: Range<usize>,
    /// The fragments that the data consist of, in their order, without a gap.
    pub members: Vec<Member>,
    /// The data should fall apart into fragments, and do not.
    pub is_broken: bool,
}

/// A fragment in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Whose it is.
    pub source: SourceId,
    /// What it is.
    pub format: ForeignFormat,
    /// Where it lies in the frame.
    pub place: Range<usize>,
}

impl Enclosed {
    /// An event whose data are one piece that cannot be divided.
    pub(super) fn undivided(format: ForeignFormat, data: Range<usize>) -> Self {
        let whole = Member { source: UNDIVIDED, format, place: data.clone() };
        let members = if data.is_empty() { Vec::new() } else { vec![whole] };
        Self { data, members, is_broken: false }
    }

    /// The same of data that should fall apart into fragments.
    pub(super) fn broken(format: ForeignFormat, data: Range<usize>) -> Self {
        Self { is_broken: true, ..Self::undivided(format, data) }
    }
}
