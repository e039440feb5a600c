//! From a source's narrow event counter to positions: what does the next raw id mean?
//!
//! A source's stream is ordered, so an id lies ahead of the last one (the event, or a later one: those between were
//! skipped), on it or behind it (sent twice or late), back at the first one (the counter was reset), or so far ahead
//! that nobody believes it.

use super::timeline::Position;

/// What a raw id means.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A later event.
    Forward(Position),
    /// The last event or an earlier one.
    Backward(Position),
    /// The source started its numbering again.
    Restart,
    /// Nothing that can be believed.
    Implausible,
}

/// The counter of one source.
#[derive(Copy, Clone, Debug)]
pub(super) struct Sequence {
    /// The counter's value in the run's first event, and after each reset.
    first: u64,
    /// Which bits of a raw id the counter has.
    mask: u64,
    /// Bits that a 64-bit number has beyond the counter.
    unused: u32,
    /// The longest believed step.
    reach: u64,
    /// The counter's value at `last`, in the counter's bits.
    last_raw: u64,
    /// The last event that this source delivered or passed.
    last: Position,
}

impl Sequence {
    /// A counter of `bits` bits that shows `first` at the position after `last`; steps up to `plausibility` are
    /// believed.
    pub(super) fn new(bits: u8, first: u64, plausibility: u64, last: Position) -> Self {
        let bits = u32::from(bits.clamp(8, 64));
        let mask = u64::MAX >> (64 - bits);
        let reach = plausibility.min(1 << (bits - 2));
        Self { first: first & mask, mask, unused: 64 - bits, reach, last_raw: first.wrapping_sub(1) & mask, last }
    }

    /// The last event that the source delivered or passed.
    #[inline]
    pub(super) const fn last(&self) -> Position {
        self.last
    }

    /// How far `raw` lies ahead of the last one, within half the counter's range either way.
    #[inline]
    const fn distance(&self, raw: u64) -> i64 {
        (raw.wrapping_sub(self.last_raw) << self.unused) as i64 >> self.unused
    }

    /// The position of an id that plainly goes on: ahead, and before `limit`. Anything else is for [`Self::step`].
    #[inline]
    pub(super) fn plain_step(&self, raw: u64, limit: Position) -> Option<Position> {
        let position = self.last.wrapping_add_signed(self.distance(raw));
        (position > self.last && position < limit && position - self.last <= self.reach && raw <= self.mask)
            .then_some(position)
    }

    /// What a raw id means, where the run has come to `horizon`.
    pub(super) fn step(&self, raw: u64, restarts: bool, horizon: Position) -> Step {
        if raw > self.mask {
            return Step::Implausible;
        }
        if restarts {
            return Step::Restart;
        }
        let distance = self.distance(raw);
        let position = self.last.saturating_add_signed(distance);
        if distance > 0 && position <= self.last.max(horizon).saturating_add(self.reach) {
            Step::Forward(position)
        } else if raw == self.first && distance != 0 {
            Step::Restart
        } else if distance > 0 {
            Step::Implausible
        } else {
            Step::Backward(position)
        }
    }

    /// Whether an id begins the numbering again, whatever came before.
    pub(super) const fn is_first(&self, raw: u64, restarts: bool) -> bool {
        restarts || raw == self.first
    }

    /// Whether an id lies behind the last one.
    pub(super) const fn is_behind(&self, raw: u64) -> bool {
        self.distance(raw) < 0
    }

    /// The source delivered or passed this event.
    #[inline]
    pub(super) const fn advance(&mut self, position: Position, raw: u64) {
        self.last = position;
        self.last_raw = raw & self.mask;
    }

    /// Counts from the run where the source fell so far behind that its own last id says nothing any more.
    pub(super) const fn keep_up(&mut self, horizon: Position) {
        if horizon > self.last && horizon - self.last > self.reach {
            let missed = horizon - 1 - self.last;
            self.advance(horizon - 1, self.last_raw.wrapping_add(missed));
        }
    }

    /// After a reset: the counter shows `first + offset` at the position after `last`.
    pub(super) const fn restart(&mut self, last: Position, offset: u64) {
        self.advance(last, self.first.wrapping_add(offset).wrapping_sub(1));
    }

    /// How far `raw` lies after the first id.
    pub(super) const fn offset(&self, raw: u64) -> u64 {
        raw.wrapping_sub(self.first) & self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fed() -> Sequence {
        Sequence::new(24, 1, 1000, 0)
    }

    #[test]
    fn the_first_id_of_the_run_is_the_first_position() {
        assert_eq!(fed().step(1, false, 1), Step::Forward(1));
        assert_eq!(fed().plain_step(1, 10), Some(1));
    }

    #[test]
    fn an_id_before_the_first_lies_behind() {
        assert_eq!(fed().step(0, false, 1), Step::Backward(0));
        assert_eq!(fed().step(0xff_fff0, false, 1), Step::Backward(0));
    }

    #[test]
    fn a_narrow_counter_wraps() {
        let mut sequence = fed();
        sequence.advance(0xff_ffff, 0xff_ffff);
        assert_eq!(sequence.step(0, false, 1), Step::Forward(0x100_0000));
        assert_eq!(sequence.step(2, false, 1), Step::Forward(0x100_0002));
        assert_eq!(sequence.step(0xff_fffe, false, 1), Step::Backward(0xff_fffe));
    }

    #[test]
    fn ids_that_nobody_believes() {
        let mut sequence = fed();
        sequence.advance(50, 50);
        assert_eq!(sequence.step(1050, false, 1), Step::Forward(1050));
        assert_eq!(sequence.step(1051, false, 1), Step::Implausible);
        assert_eq!(sequence.step(1051, false, 51), Step::Forward(1051), "the run has come further");
        assert_eq!(sequence.step(1 << 24 | 51, false, 1), Step::Implausible, "more bits than the counter has");
        assert_eq!(sequence.plain_step(1051, 10_000), None);
        assert_eq!(sequence.plain_step(1 << 24 | 51, 10_000), None);
    }

    #[test]
    fn a_counter_that_is_back_at_its_first_value_was_reset() {
        let mut sequence = fed();
        sequence.advance(50, 50);
        assert_eq!(sequence.step(1, false, 51), Step::Restart);
        assert_eq!(sequence.step(51, true, 51), Step::Restart, "the source says so");
        sequence.restart(50, 0);
        assert_eq!(sequence.step(1, false, 51), Step::Forward(51));
        sequence.restart(50, 4);
        assert_eq!(sequence.step(5, false, 51), Step::Forward(51));
    }

    #[test]
    fn the_last_id_again_is_no_reset_even_if_it_is_the_first() {
        let mut sequence = fed();
        sequence.advance(1, 1);
        assert_eq!(sequence.step(1, false, 2), Step::Backward(1));
    }

    #[test]
    fn a_source_that_was_away_long_is_counted_from_the_run() {
        let mut sequence = fed();
        sequence.advance(50, 50);
        sequence.keep_up(1000);
        assert_eq!(sequence.last(), 50, "still within reach");
        let now = 50 + (1 << 24) + 7;
        sequence.keep_up(now);
        assert_eq!(sequence.step(now & 0xff_ffff, false, now), Step::Forward(now));
    }

    proptest! {
        #[test]
        fn the_plain_way_agrees_with_the_whole_one(
            bits in 8u8..=64, last in 1u64..1 << 40, raw: u64, limit in 0u64..1 << 41, near in -300i64..300,
            close: bool,
        ) {
            let mut sequence = Sequence::new(bits, 1, 200, 0);
            sequence.advance(last, last);
            let raw = if close { last.saturating_add_signed(near) & sequence.mask } else { raw };
            if let Some(position) = sequence.plain_step(raw, limit) {
                prop_assert!(position < limit);
                prop_assert_eq!(sequence.step(raw, false, 0), Step::Forward(position));
            }
        }

        #[test]
        fn any_forward_step_within_reach_is_found_again(bits in 12u8..=64, last in 1u64..1 << 45, ahead in 1u64..1000) {
            let mut sequence = Sequence::new(bits, 1, 1000, 0);
            sequence.advance(last, last);
            let raw = (last + ahead) & sequence.mask;
            prop_assert_eq!(sequence.plain_step(raw, u64::MAX), Some(last + ahead));
            sequence.advance(last + ahead, raw);
            prop_assert_eq!(sequence.last(), last + ahead);
        }
    }
}
