//! The common interface of stream descriptions, whether a configured layout ([`layout`](crate::layout)) or a named
//! format: the end of a frame, its fields, and its division into events.
//!
//! ```text
//! bytes as they came (Window) --> Framing::front  --> Frame | Needs | Skip | Lost
//!                 a whole frame --> Framing::fields --> event, time, source ... (Fields)
//!                             \-> Splitter::split --> one Piece for each event in it
//! ```
//! A frame may lie in several pieces of memory, and is not copied into one: a [`Window`] reads across them.

use crate::message::FragmentFlags;
use core::mem::take;
use ropewalk_terms::Cause;
use std::sync::Arc;

/// Bytes in order, in one piece or in several.
pub trait Window {
    /// Number of bytes.
    fn len(&self) -> usize;

    /// The bytes from `at` on, piece by piece; no pieces beyond the end.
    fn pieces(&self, at: usize) -> impl Iterator<Item = &[u8]>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `at` on to `out`. False if there are too few; the contents of `out` are then undefined.
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

/// A part of a window, as a window itself.
#[derive(Debug)]
pub struct Part<'a, W: ?Sized> {
    whole: &'a W,
    start: usize,
    length: usize,
}

impl<'a, W: Window + ?Sized> Part<'a, W> {
    /// The `length` bytes from `start` on, or as many of them as exist.
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

/// The element at the front of a window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Front {
    /// A whole frame of 1 or more bytes.
    Frame {
        /// Its length, headers and trailers included.
        bytes: usize,
    },
    /// The window must have at least this number of bytes, more than it has, to continue.
    Needs {
        /// The number.
        bytes: usize,
    },
    /// Bytes that belong to no frame, 1 or more; the stream continues behind them.
    Skip {
        /// The number.
        bytes: usize,
        /// The cause under which the lost frame is counted: once, however many skips follow each other.
        cause: Cause,
    },
    /// The start of the next frame is unknown: the connection must be closed.
    Lost {
        /// The cause under which it is counted.
        cause: Cause,
    },
}

/// State of the search at a stream's front. A stream begins with the default, and so do the bytes behind a found frame;
/// in between the caller keeps the state as [`Framing::front`] leaves it. Formats that need no search do not use it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Search {
    /// Number of bytes at the front without an end of a frame: a search need not restart.
    pub seen: usize,
    /// Whether bytes before the front were skipped: it may be the middle of a frame, and an apparent frame may be none.
    pub adrift: bool,
}

impl Search {
    /// Skips bytes that may or may not be followed by a frame.
    pub const fn skip(&mut self, bytes: usize, cause: Cause) -> Front {
        *self = Self { seen: self.seen.saturating_sub(bytes), adrift: true };
        Front::Skip { bytes, cause }
    }
}

/// The fields of a frame; `None` for fields that its format does not have.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Fields {
    /// The event's number in the source's counting, in [`Widths::event`] bits.
    pub event: Option<u64>,
    /// The source's clock, in its own ticks, in [`Widths::time`] bits.
    pub time: Option<u64>,
    /// The source of the frame.
    pub source: Option<u32>,
    /// Trigger or event type.
    pub trigger_type: Option<u16>,
    /// Bunch crossing.
    pub bunch_crossing: Option<u16>,
    /// The frame's own number, in [`Widths::sequence`] bits. It increases by one for the next frame of the same source,
    /// so a gap means a lost frame.
    pub sequence: Option<u64>,
    /// Index of the frame in its event, if an event has several: 0 for the first one.
    pub place: Option<u32>,
    /// Whether it is its event's last frame; `None` if only the next event's first frame shows it.
    pub is_last: Option<bool>,
    /// The run in which the source takes data, as the source knows it.
    pub run: Option<u32>,
    /// Whether the source's numbering restarts with this frame.
    pub restarts: bool,
    /// Whether it is an event that was already built: its number does not continue that of the previous frame, and its
    /// source id is not its sender's.
    pub is_whole_event: bool,
    /// Errors in the contents, and the front end's own status flags. Checksums are not computed for it: see
    /// [`Framing::checksum`].
    pub flags: FragmentFlags,
}

impl Fields {
    /// Whether the frame continues an event that an earlier one began.
    pub fn goes_on(&self) -> bool {
        self.place > Some(0)
    }
}

/// Widths of a format's counters, in bits: 64 if it has none.
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
    /// Returns the element at the front of `window`. The answer depends only on the bytes that it needs, and not on how
    /// many follow, so that a stream gives the same frames however it is cut.
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front;

    /// Returns the element at the front of the last bytes of a stream, if [`Framing::front`] needs more than there are;
    /// `None` if they are left over.
    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        let _ = (window, search);
        None
    }

    /// Returns the fields of a whole frame; accepts any bytes.
    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields;

    /// Returns the length and the fields of the frame at the front of a synchronised stream, if that frame lies in one
    /// piece with other bytes behind it. `None` if the slow path is needed ([`Framing::front`], [`Framing::is_matched`]
    /// and [`Framing::fields`], which give the same results).
    #[inline]
    fn plain(&self, bytes: &[u8]) -> Option<(usize, Fields)> {
        plain_by_front(self, bytes)
    }

    /// Whether a whole frame's checksum is right; `None` if it has none.
    fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
        let _ = frame;
        None
    }

    /// Whether a whole frame has the fixed bytes of the source's frames.
    fn is_matched(&self, frame: &(impl Window + ?Sized)) -> bool {
        let _ = frame;
        true
    }

    /// The header of a datagram that carries a piece of a frame; `None` if the datagram is too short for it.
    fn piece(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
        let _ = datagram;
        None
    }

    /// Whether frames are sent in the bodies of several datagrams: each datagram is then a [`Framing::piece`] of one.
    fn comes_in_pieces(&self) -> bool {
        false
    }

    /// Maximum length of a frame in the format, in bytes; readers of streams have additional limits.
    fn most(&self) -> usize {
        usize::MAX
    }

    /// The board's own id ([`Fields::source`]), if it differs from the source's id.
    fn board(&self) -> Option<u32> {
        None
    }

    /// Whether all frames of a source share one counter. If each kind has a separate one, frames are numbered as they
    /// arrive, and [`Fields::source`] is the kind.
    fn counts_together(&self) -> bool {
        true
    }

    /// Whether the frames' own numbers ([`Fields::sequence`]) continue from run to run, so that the first one of a run
    /// may have any value.
    fn runs_free(&self) -> bool {
        false
    }

    /// Widths of its counters.
    fn widths(&self) -> Widths {
        Widths::default()
    }

    /// Length of a tick of its clock.
    fn tick(&self) -> Tick {
        Tick::NANOSECOND
    }
}

/// The result of [`Framing::plain`] by the slow path.
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

/// The header of a datagram that carries a piece of a frame.
///
/// The first datagram of a frame is kept whole, header included, and the others without their headers: offsets in the
/// frame are thus offsets in a datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PieceHead {
    /// The frame to which it belongs.
    pub frame: u64,
    /// Its place: the number of body bytes before its own, or the number of bodies before it.
    pub place: u64,
    /// The size of the whole frame: bytes of all bodies, or the number of bodies; `None` if it is not known yet.
    pub whole: Option<u64>,
    /// Bytes of the header.
    pub header: usize,
    /// Whether place and whole are counted in bytes, not in bodies.
    pub is_in_bytes: bool,
}

/// Length of a tick of a clock: a whole number of nanoseconds and a fraction of one in units of
/// 2^-64.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Tick {
    nanoseconds: u64,
    fraction: u64,
}

impl Tick {
    /// A clock that counts nanoseconds.
    pub const NANOSECOND: Self = Self { nanoseconds: 1, fraction: 0 };

    /// A tick of `attoseconds` attoseconds (10^-18 s), at most 18 s: precise enough for a clock of any frequency.
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

    /// Approximate number of ticks in `nanoseconds` nanoseconds: precise enough to count the wraps of a clock.
    pub fn ticks_in(self, nanoseconds: u64) -> u64 {
        let each = self.nanoseconds as f64 + self.fraction as f64 / (u64::MAX as f64);
        if each > 0.0 { (nanoseconds as f64 / each) as u64 } else { 0 }
    }
}

/// The event or the time to which a piece of a frame belongs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PieceKey {
    /// An event, by its number in the source's counting.
    Event(u64),
    /// A time, in ticks of the source's clock.
    Time(u64),
}

/// The part of a frame that belongs to one event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The event or the time to which it belongs.
    pub key: PieceKey,
    /// Its offset in the frame, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
}

/// Maximum number of pieces of a frame: more are not credible.
pub const MOST_PIECES: usize = 1 << 16;

/// A format whose frames hold several events each.
pub trait Splitter {
    /// Appends the pieces of a whole frame, in order, at most [`MOST_PIECES`].
    ///
    /// # Errors
    /// The error in the frame; the appended pieces are then invalid.
    fn split(&self, frame: &(impl Window + ?Sized), pieces: &mut Vec<Piece>) -> Result<(), Cause>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A window in several pieces.
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
