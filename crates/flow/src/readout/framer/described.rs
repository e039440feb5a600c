//! Description of a frame when it is found: from its contents, from earlier frames, and from its time of arrival.

use super::gatherer::{Gatherer, Place};
use super::order::Order;
use super::{FramerLimits, given_up};
use crate::messages::{FragmentFlags, FragmentMeta, Received};
use ropewalk_memory::{ByteQueue, Payload};
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::framing::{Fields, Framing, Tick, Widths, Window};

/// Counts of a source, besides those of its frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FrameCounts {
    /// Frames that the source's own numbering shows to be missing.
    pub missing: u64,
    /// Frames that were first reported missing and are not: they came late, or a number that showed a gap was wrong.
    pub found: u64,
    /// Frames whose own number is the last one or lower.
    pub out_of_order: u64,
    /// Frames that were first reported out of order and are not: the source's own numbering restarted with them.
    pub forgiven: u64,
    /// How often the source's own numbering restarted.
    pub restarts: u64,
    /// Bytes that did not belong to a frame.
    pub skipped_bytes: u64,
    /// Bytes that the format puts between frames.
    pub filler_bytes: u64,
    /// Datagrams of pieces that were already present, or whose frame was done; repeated frames of an event.
    pub repeated: u64,
    /// Frames that were divided into the fragments of several events.
    pub divided: u64,
    /// Frames that were appended to the fragment of the previous frame.
    pub gathered: u64,
}

impl FrameCounts {
    /// All counts zero.
    pub const NONE: Self = Self {
        missing: 0,
        found: 0,
        out_of_order: 0,
        forgiven: 0,
        restarts: 0,
        skipped_bytes: 0,
        filler_bytes: 0,
        repeated: 0,
        divided: 0,
        gathered: 0,
    };

    /// Takes back the last count of a frame out of order. The count may have been fetched since.
    pub(super) const fn take_back_out_of_order(&mut self) {
        match self.out_of_order.checked_sub(1) {
            Some(others) => self.out_of_order = others,
            None => self.forgiven += 1,
        }
    }
}

/// Describes the frames of one source.
#[derive(Debug)]
pub(super) struct Describer {
    source: SourceId,
    /// The board's name for itself; `None` if its frames name their kinds instead.
    board: Option<u32>,
    clock: WideClock,
    order: Order,
    /// The number of the last frame, for a source without numbers.
    count: u64,
    pub(super) counts: FrameCounts,
}

impl Describer {
    /// Creates a describer. Frames without a number are counted from `first` on.
    pub(super) fn new(source: SourceId, framing: &impl Framing, first: u64) -> Self {
        let widths = framing.widths();
        Self {
            source,
            board: framing.counts_together().then(|| framing.board().unwrap_or(source.0)),
            clock: WideClock::new(widths, framing.tick()),
            order: Order::new(widths.sequence),
            count: first.wrapping_sub(1),
            counts: FrameCounts::default(),
        }
    }

    pub(super) const fn source(&self) -> SourceId {
        self.source
    }

    /// Takes a whole frame that arrived at `now`: appends it with its description, or adds it to the other frames of
    /// its event.
    pub(super) fn take(
        &mut self,
        framing: &impl Framing,
        gatherer: &mut Gatherer,
        payload: Payload,
        now: Instant,
        limits: FramerLimits,
        out: &mut Vec<Received>,
    ) {
        let frame = Held(&payload);
        if !framing.is_matched(&frame) {
            gatherer.note_lost();
            out.push(given_up(self.source, Cause::NotMatched));
            return;
        }
        let (fields, missing) = (framing.fields(&frame), self.counts.missing);
        let (meta, restarts) = self.describe(framing, fields, &frame, now, limits.check_crc);
        let frame = Received { meta, restarts, payload };
        if limits.gather.is_none() {
            out.push(frame);
            return;
        }
        // If a datagram has several frames, each may end its event.
        gatherer.give_whole(out);
        let place = Place::new(&fields, self.counts.missing > missing);
        gatherer.put(now, frame, place, limits.max_fragment, out);
    }

    /// Describes a whole frame with these fields that arrived at `now`, and returns whether the numbering restarts with
    /// it.
    #[inline(always)]
    pub(super) fn describe(
        &mut self,
        framing: &impl Framing,
        fields: Fields,
        frame: &(impl Window + ?Sized),
        now: Instant,
        check_crc: bool,
    ) -> (FragmentMeta, bool) {
        let mut flags = fields.flags;
        let board = self.board;
        if board.is_some() && fields.source.is_some() && fields.source != board && !fields.is_whole_event {
            flags = flags.with(FragmentFlags::WRONG_SOURCE);
        }
        if check_crc && let Some(is_right) = framing.checksum(frame) {
            let error = if is_right { FragmentFlags::default() } else { FragmentFlags::CRC_ERROR };
            flags = flags.with(FragmentFlags::CRC_CHECKED).with(error);
        }
        if fields.bunch_crossing.is_some() {
            flags = flags.with(FragmentFlags::HAS_BUNCH_CROSSING);
        }
        if fields.time.is_some() {
            flags = flags.with(FragmentFlags::HAS_TIME);
        }
        if let Some(number) = fields.sequence {
            self.order.look_at(number, &mut self.counts);
        }
        // A source without numbers, or with separate numbers for each kind of frame, is numbered in the order of
        // arrival, from the run's first number on. The same holds for events that were built before, which need not be
        // in order in a file.
        self.count = self.count.wrapping_add(1);
        let number = fields.event.or(fields.sequence).filter(|_| self.board.is_some() && !fields.is_whole_event);
        let meta = FragmentMeta {
            source: self.source,
            length: frame.len() as u32,
            flags,
            bunch_crossing: fields.bunch_crossing.unwrap_or(0),
            trigger_type: fields.trigger_type.unwrap_or(0),
            raw_id: number.unwrap_or(self.count),
            time: fields.time.map_or(0, |ticks| self.clock.nanoseconds(ticks, now)),
        };
        (meta, fields.restarts)
    }
}

/// Extends a clock of few bits to 64 bits.
///
/// Between two frames the clock may have wrapped once, which its own bits show. If the source was silent for longer
/// than its clock takes to wrap, the time of arrival shows how often it wrapped. The time of arrival must therefore
/// stand still while a source is not read, or its earlier frames seem to come from later.
#[derive(Clone, Debug)]
pub(super) struct WideClock {
    tick: Tick,
    /// Number of bits that a 64-bit number has beyond the clock.
    unused: u32,
    /// The last extended time, and its time of arrival.
    last: Option<(u64, Instant)>,
}

impl WideClock {
    pub(super) fn new(widths: Widths, tick: Tick) -> Self {
        Self { tick, unused: 64 - u32::from(widths.time.clamp(1, 64)), last: None }
    }

    #[inline]
    pub(super) fn nanoseconds(&mut self, ticks: u64, now: Instant) -> u64 {
        let wide = if self.unused == 0 { ticks } else { self.widen(ticks, now) };
        self.tick.nanoseconds_of(wide)
    }

    fn widen(&mut self, ticks: u64, now: Instant) -> u64 {
        let Some((last, heard)) = self.last else {
            self.last = Some((ticks, now));
            return ticks;
        };
        let range = (u64::MAX >> self.unused) + 1;
        let ahead = ticks.wrapping_sub(last) & (range - 1);
        let silence = if now == heard { 0 } else { self.tick.ticks_in(now.since(heard).as_nanos() as u64) };
        // Frames at short intervals may overtake each other slightly.
        let behind = range - ahead;
        if behind <= range / 8 && silence < range / 2 {
            return last.saturating_sub(behind);
        }
        let beyond = silence.saturating_sub(ahead).saturating_add(range / 2);
        let wraps = if silence < range { 0 } else { beyond / range };
        let wide = last.wrapping_add(ahead).wrapping_add(wraps.wrapping_mul(range));
        self.last = Some((wide, now));
        wide
    }
}

/// The bytes of a stream that were not taken yet.
#[derive(Debug)]
pub(super) struct Queued<'a>(pub(super) &'a ByteQueue);

impl Window for Queued<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn pieces(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        behind(self.0.pieces(), at)
    }

    #[inline]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.peek_array(at)
    }
}

/// The bytes of a whole frame.
#[derive(Debug)]
pub(super) struct Held<'a>(pub(super) &'a Payload);

impl Window for Held<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn pieces(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        behind(self.0.pieces(), at)
    }

    #[inline]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.read_array(at)
    }
}

/// Returns the pieces without their first `at` bytes.
fn behind<'a>(pieces: impl Iterator<Item = &'a [u8]>, at: usize) -> impl Iterator<Item = &'a [u8]> {
    let mut skip = at;
    pieces.filter_map(move |piece| {
        let start = skip.min(piece.len());
        skip -= start;
        (start < piece.len()).then(|| &piece[start..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    /// A clock of 31 bits that ticks every 8 ns: it wraps after 17.2 s.
    fn clock() -> WideClock {
        WideClock::new(Widths { time: 31, ..Widths::default() }, Tick::of_attoseconds(8_000_000_000))
    }

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanoseconds(1_000_000_000 * seconds)
    }

    fn raw(nanoseconds: u64) -> u64 {
        nanoseconds / 8 % (1 << 31)
    }

    #[test]
    fn a_narrow_clock_goes_on_where_it_wraps() {
        let mut clock = clock();
        for second in (0..100).step_by(10) {
            assert_eq!(clock.nanoseconds(raw(second * 1_000_000_000), at(second)), second * 1_000_000_000);
        }
    }

    #[test]
    fn after_a_silence_of_several_wraps_the_time_of_arrival_says_how_many() {
        for silence in [17, 18, 30, 60, 3600, 1_000_003] {
            let mut clock = clock();
            assert_eq!(clock.nanoseconds(raw(3_000_000_000), at(5)), 3_000_000_000);
            let time = (3 + silence) * 1_000_000_000;
            // It may have been on its way for longer than the last one, or shorter.
            for late in [0, 2] {
                let arrival = at(5 + silence).after(Duration::from_secs(late));
                assert_eq!(clock.clone().nanoseconds(raw(time), arrival), time, "{silence} s, {late} s late");
            }
        }
    }

    #[test]
    fn frames_that_overtake_each_other_do_not_wrap_the_clock() {
        let mut clock = clock();
        assert_eq!(clock.nanoseconds(1000, at(1)), 8000);
        assert_eq!(clock.nanoseconds(900, at(1)), 7200);
        assert_eq!(clock.nanoseconds(1001, at(1)), 8008);
    }

    proptest! {
        #[test]
        fn no_numbers_make_a_clock_panic(bits in 1u8..=64, times in proptest::collection::vec(any::<(u64, u64)>(), 0..20)) {
            let mut clock = WideClock::new(Widths { time: bits, ..Widths::default() }, Tick::of_attoseconds(u64::MAX));
            for (ticks, now) in times {
                clock.nanoseconds(ticks & u64::MAX >> (64 - bits), Instant::from_nanoseconds(now));
            }
        }
    }
}
