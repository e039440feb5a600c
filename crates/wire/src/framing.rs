//! What every description of a stream has in common, whether a layout from a configuration ([`layout`](crate::layout))
//! or a format with a name: where a frame ends, what it says of itself, and into which events it falls apart.
//!
//! ```text
//! bytes as they came (Window) --> Framing::front  --> Frame | Needs | Skip | Lost
//!                 a whole frame --> Framing::fields --> event, time, source ... (Fields)
//!                             \-> Splitter::split --> one Piece for each event in it
//! ```
//! A frame may lie in several pieces of memory, and is not copied together: a [`Window`] reads across them.

use crate::message::FragmentFlags;
use core::mem::take;
use ropewalk_terms::Cause;
use std::sync::Arc;

/// Bytes in order, in one piece or in several.
pub trait Window {
    /// How many there are.
    fn len(&self) -> usize;

    /// The bytes from `at` on, piece by piece; no pieces beyond the end.
    fn pieces(&self, at: usize) -> impl Iterator<Item = &[u8]>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `at` on to `out`; false, and nothing may be relied on there, where there are too few.
    fn read(&self, at: usize, out: &mut [u8]) -> bool {
        let mut rest = out;
        for piece in self.pieces(at) {
            let count = piece.len().min(rest.len());
            let (now, later) = take(&mut rest).split_at_mut(count);
            now.copy_from_slice(&piece[..count]);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        rest.is_empty()
    }

    /// The `N` bytes from `at` on; `None` if there are too few.
    #[inline]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(at, &mut bytes).then_some(bytes)
    }
}

impl Window for [u8] {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn pieces(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        self.get(at..).filter(|rest| !rest.is_empty()).into_iter()
    }

    #[inline]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.get(at..)?.first_chunk().copied()
    }
}

/// A part of a window, as a window of its own.
#[derive(Debug)]
pub struct Part<'a, W: ?Sized> {
    whole: &'a W,
    start: usize,
    length: usize,
}

impl<'a, W: Window + ?Sized> Part<'a, W> {
    /// The `length` bytes from `start` on, or as many of them as there are.
    pub fn new(whole: &'a W, start: usize, length: usize) -> Self {
        let start = start.min(whole.len());
        Self { whole, start, length: length.min(whole.len() - start) }
    }
}

impl<W: Window + ?Sized> Window for Part<'_, W> {
    fn len(&self) -> usize {
        self.length
    }

    fn pieces(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        let mut left = self.length.saturating_sub(at);
        self.whole.pieces(self.start.saturating_add(at)).map_while(move |piece| {
            let here = &piece[..piece.len().min(left)];
            left -= here.len();
            (!here.is_empty()).then_some(here)
        })
    }
}

/// What is at the front of a window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Front {
    /// A whole frame of so many bytes, 1 or more.
    Frame {
        /// Its length, headers and trailers included.
        bytes: usize,
    },
    /// The window must have at least so many bytes, more than it has, before more can be said.
    Needs {
        /// How many.
        bytes: usize,
    },
    /// So many bytes, 1 or more, belong to no frame; behind them it goes on.
    Skip {
        /// How many.
        bytes: usize,
        /// Under which name the frame is counted that was lost in them: once, however many skips follow each other.
        cause: Cause,
    },
    /// The start of the next frame is unknown: a connection must be closed.
    Lost {
        /// Under which name that is counted.
        cause: Cause,
    },
}

/// What earlier looks have shown of a stream's front. A stream begins with the default, and so do the bytes behind a
/// frame that was found; in between it is kept as [`Framing::front`] leaves it. Formats that need not search leave it
/// alone.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Search {
    /// In so many bytes at the front there is no end of a frame: a search need not begin anew.
    pub seen: usize,
    /// What was in front of it was skipped: it may be the middle of a frame, and what looks like a frame may be none.
    pub adrift: bool,
}

impl Search {
    /// Skips bytes behind which a frame may begin or not.
    pub const fn skip(&mut self, bytes: usize, cause: Cause) -> Front {
        *self = Self { seen: self.seen.saturating_sub(bytes), adrift: true };
        Front::Skip { bytes, cause }
    }
}

/// What a frame says of itself; nothing where its format does not say it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Fields {
    /// The event's number as the source counts, in [`Widths::event`] bits.
    pub event: Option<u64>,
    /// The source's clock, in its own ticks, in [`Widths::time`] bits.
    pub time: Option<u64>,
    /// Whose frame it is.
    pub source: Option<u32>,
    /// Trigger or event type.
    pub trigger_type: Option<u16>,
    /// Bunch crossing.
    pub bunch_crossing: Option<u16>,
    /// The number of the frame itself, in [`Widths::sequence`] bits: one more for the next frame of the same source, so
    /// that a gap is a frame that was lost.
    pub sequence: Option<u64>,
    /// Which frame of its event it is, where an event comes in several: 0 the first one, one more for each of the others.
    pub place: Option<u32>,
    /// Whether it is its event's last frame; nothing where only the next event's first one shows that.
    pub is_last: Option<bool>,
    /// The run that the source believes to be taking.
    pub run: Option<u32>,
    /// The source's numbering starts again with this frame.
    pub restarts: bool,
    /// It is a whole event that was built before: its number does not continue that of the frame before, and its source id is not its sender's.
    pub is_whole_event: bool,
    /// What is wrong with the contents, and the front end's own words about them. Checksums are not computed for it:
    /// see [`Framing::checksum`].
    pub flags: FragmentFlags,
}

impl Fields {
    /// Whether the frame goes on with an event that an earlier one began.
    pub fn goes_on(&self) -> bool {
        self.place > Some(0)
    }
}

/// How wide the counters of a format are, in bits: 64 where they have none.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Widths {
    /// Of [`Fields::event`].
    pub event: u8,
    /// Of [`Fields::time`].
    pub time: u8,
    /// Of [`Fields::sequence`].
    pub sequence: u8,
}

impl Default for Widths {
    fn default() -> Self {
        Self { event: 64, time: 64, sequence: 64 }
    }
}

/// A description of a stream.
pub trait Framing {
    /// What is at the front of `window`. The answer depends on the bytes that it needs alone, and not on how many lie
    /// behind them, so that a stream gives the same frames however it is cut.
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front;

    /// What is at the front of the last bytes of a stream, when [`Framing::front`] needs more than there are; `None` if
    /// they are left over.
    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        let _ = (window, search);
        None
    }

    /// What a whole frame says of itself; any bytes may be asked for.
    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields;

    /// The length and the fields of the frame at the front of a stream that is in step, if that frame lies in one piece
    /// with other bytes behind it; `None` if a longer look is needed ([`Framing::front`], [`Framing::is_matched`] and
    /// [`Framing::fields`], which say the same).
    #[inline]
    fn plain(&self, bytes: &[u8]) -> Option<(usize, Fields)> {
        plain_by_front(self, bytes)
    }

    /// Whether a whole frame's checksum is right; `None` if it has none.
    fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
        let _ = frame;
        None
    }

    /// Whether a whole frame has the bytes that all frames of the source have.
    fn is_matched(&self, frame: &(impl Window + ?Sized)) -> bool {
        let _ = frame;
        true
    }

    /// The header of a datagram that carries a piece of a frame; `None` if the datagram is too short for it.
    fn piece(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
        let _ = datagram;
        None
    }

    /// Whether frames come in the bodies of several datagrams: then each datagram is a [`Framing::piece`] of one.
    fn comes_in_pieces(&self) -> bool {
        false
    }

    /// The longest frame that the format has, in bytes; readers of streams have limits of their own besides.
    fn most(&self) -> usize {
        usize::MAX
    }

    /// What a board calls itself ([`Fields::source`]), where that is not the source's id.
    fn board(&self) -> Option<u32> {
        None
    }

    /// Whether all frames of a source count with one counter. Where each kind of them has one of its own, they are numbered as
    /// they come, and [`Fields::source`] names the kind.
    fn counts_together(&self) -> bool {
        true
    }

    /// Whether the frames' own numbers ([`Fields::sequence`]) run on from run to run, so that the first one of a run may be any.
    fn runs_free(&self) -> bool {
        false
    }

    /// How wide its counters are.
    fn widths(&self) -> Widths {
        Widths::default()
    }

    /// How long a tick of its clock is.
    fn tick(&self) -> Tick {
        Tick::NANOSECOND
    }
}

/// What [`Framing::plain`] says, by the longer look.
#[inline]
pub(crate) fn plain_by_front<F: Framing + ?Sized>(framing: &F, bytes: &[u8]) -> Option<(usize, Fields)> {
    let Front::Frame { bytes: length } = framing.front(bytes, &mut Search::default()) else { return None };
    let frame = bytes.get(..length).filter(|_| length < bytes.len())?;
    framing.is_matched(frame).then(|| (length, framing.fields(frame)))
}

impl<F: Framing> Framing for Arc<F> {
    #[inline]
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        F::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        F::front_at_end(self, window, search)
    }

    #[inline]
    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        F::fields(self, frame)
    }

    #[inline(always)]
    fn plain(&self, bytes: &[u8]) -> Option<(usize, Fields)> {
        F::plain(self, bytes)
    }

    fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
        F::checksum(self, frame)
    }

    #[inline]
    fn is_matched(&self, frame: &(impl Window + ?Sized)) -> bool {
        F::is_matched(self, frame)
    }

    fn piece(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
        F::piece(self, datagram)
    }

    fn comes_in_pieces(&self) -> bool {
        F::comes_in_pieces(self)
    }

    fn most(&self) -> usize {
        F::most(self)
    }

    fn board(&self) -> Option<u32> {
        F::board(self)
    }

    fn counts_together(&self) -> bool {
        F::counts_together(self)
    }

    fn runs_free(&self) -> bool {
        F::runs_free(self)
    }

    fn widths(&self) -> Widths {
        F::widths(self)
    }

    fn tick(&self) -> Tick {
        F::tick(self)
    }
}

/// What the header of a datagram says that carries a piece of a frame.
///
/// The first datagram of a frame is kept whole, header included, and of the others what is behind their headers: so that
/// places in the frame are places in a datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PieceHead {
    /// Which frame it belongs to.
    pub frame: u64,
    /// Where in it: bytes of other bodies before its own, or how many other bodies.
    pub place: u64,
    /// The whole: bytes of all bodies, or how many bodies; `None` if that is not known yet.
    pub whole: Option<u64>,
    /// Bytes of the header.
    pub header: usize,
    /// Places and the whole are counted in bytes, not in bodies.
    pub is_in_bytes: bool,
}

/// How long a tick of a clock is: a whole number of nanoseconds and a fraction of one in 2^-64.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Tick {
    nanoseconds: u64,
    fraction: u64,
}

impl Tick {
    /// A clock that counts nanoseconds.
    pub const NANOSECOND: Self = Self { nanoseconds: 1, fraction: 0 };

    /// A tick of so many attoseconds (10^-18 s), at most 18 s: fine enough for a clock of any frequency.
    pub const fn of_attoseconds(attoseconds: u64) -> Self {
        const IN_A_NANOSECOND: u64 = 1_000_000_000;
        let rest = (attoseconds % IN_A_NANOSECOND) as u128;
        let fraction = ((rest << 64) / IN_A_NANOSECOND as u128) as u64;
        Self { nanoseconds: attoseconds / IN_A_NANOSECOND, fraction }
    }

    /// The ticks in nanoseconds, rounded to the nearest and modulo 2^64.
    #[inline]
    pub const fn nanoseconds_of(self, ticks: u64) -> u64 {
        let rest = (ticks as u128 * self.fraction as u128 + (1 << 63)) >> 64;
        ticks.wrapping_mul(self.nanoseconds).wrapping_add(rest as u64)
    }

    /// How many ticks there are in so many nanoseconds, about: as exactly as it takes to know how often a clock wrapped.
    pub fn ticks_in(self, nanoseconds: u64) -> u64 {
        let each = self.nanoseconds as f64 + self.fraction as f64 / (u64::MAX as f64);
        if each > 0.0 { (nanoseconds as f64 / each) as u64 } else { 0 }
    }
}

/// What a piece of a frame belongs to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PieceKey {
    /// An event, by its number as the source counts.
    Event(u64),
    /// A time, in ticks of the source's clock.
    Time(u64),
}

/// The part of a frame that belongs to one event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// What it belongs to.
    pub key: PieceKey,
    /// Where in the frame it begins, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
}

/// The most pieces that a frame may fall apart into: more are not credible.
pub const MOST_PIECES: usize = 1 << 16;

/// A format whose frames hold several events each.
pub trait Splitter {
    /// Appends the pieces of a whole frame, in their order, at most [`MOST_PIECES`].
    ///
    /// # Errors
    /// What is wrong with the frame; what was appended until then means nothing.
    fn split(&self, frame: &(impl Window + ?Sized), pieces: &mut Vec<Piece>) -> Result<(), Cause>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A window in pieces of its own.
    struct Chain(Vec<Vec<u8>>);

    impl Window for Chain {
        fn len(&self) -> usize {
            self.0.iter().map(Vec::len).sum()
        }

        fn pieces(&self, at: usize) -> impl Iterator<Item = &[u8]> {
            let mut skip = at;
            self.0.iter().filter_map(move |piece| {
                let start = skip.min(piece.len());
                skip -= start;
                (start < piece.len()).then(|| &piece[start..])
            })
        }
    }

    proptest! {
        #[test]
        fn bytes_are_the_same_however_they_are_cut(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..5), 0..8),
            at in 0usize..40, start in 0usize..40, length in 0usize..40,
        ) {
            let whole = pieces.concat();
            let chain = Chain(pieces);
            prop_assert_eq!(chain.array::<4>(at), whole[..].array::<4>(at));
            prop_assert_eq!(chain.pieces(at).flatten().count(), whole.len().saturating_sub(at));
            let (part, same) = (Part::new(&chain, start, length), Part::new(&whole[..], start, length));
            let begin = start.min(whole.len());
            let expected = &whole[begin..(begin + length).min(whole.len())];
            prop_assert_eq!(part.len(), expected.len());
            prop_assert_eq!(part.pieces(0).collect::<Vec<_>>().concat(), expected);
            prop_assert_eq!(part.array::<3>(at), expected.array::<3>(at));
            prop_assert_eq!(same.array::<3>(at), expected.array::<3>(at));
        }
    }

    #[test]
    fn ticks_become_nanoseconds_without_drift() {
        let lhc = Tick::of_attoseconds(24_950_810_000);
        assert_eq!(Tick::of_attoseconds(8_000_000_000).nanoseconds_of(1 << 40), 8 << 40);
        assert_eq!(lhc.nanoseconds_of(1_000_000_000), 24_950_810_000);
        assert_eq!(Tick::of_attoseconds(500_000_000).nanoseconds_of(3), 2, "rounded");
        assert_eq!(Tick::NANOSECOND.nanoseconds_of(u64::MAX), u64::MAX);
        assert!(lhc.ticks_in(24_950_810_000).abs_diff(1_000_000_000) <= 1);
        assert_eq!(Tick::of_attoseconds(0).ticks_in(5), 0);
    }
}
