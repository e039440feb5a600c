//! Maps the raw ids of a source's narrow event counter to positions.
//!
//! A source's stream is ordered. An id may therefore lie ahead of the last one (the next event, or a later one if
//! events were skipped), on it or behind it (sent twice or late), back at the first one (the counter was reset), or too
//! far ahead to be plausible.

use super::table::Position;

/// How far a numbering that lost its first fragments may begin from the first number.
const NEAR: u64 = 8;

/// Number of equal consecutive steps that show a source's way of counting.
const ENOUGH_STEPS: u32 = 16;

/// The meaning of a raw id.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A later event.
    Forward(Position),
    /// The last event or an earlier one.
    Backward(Position),
    /// The source restarted its numbering.
    Restart,
    /// An implausible id.
    Implausible,
}

/// The counter of one source.
#[derive(Copy, Clone, Debug)]
pub(super) struct Sequence {
    /// The counter's value in the run's first event, and after each reset.
    first: u64,
    /// Mask of the counter's bits in a raw id.
    mask: u64,
    /// Number of bits that a 64-bit number has beyond the counter.
    unused: u32,
    /// The longest plausible step.
    reach: u64,
    /// The smallest step that plainly continues, and how much longer such a step may be.
    plain: (u64, u64),
    /// The last step that did not plainly continue, and how often it occurred in a row.
    steps: (u64, u32),
    /// The counter's value at `last`, in the counter's bits.
    last_raw: u64,
    /// The last event that this source delivered or skipped.
    last: Position,
    /// How far its numbers lie behind those of its original numbering, in the counter's bits.
    shift: u64,
}

impl Sequence {
    /// Creates a counter of `bits` bits that shows `first` at the position after `last`. Steps up to `plausibility` are
    /// plausible.
    ///
    /// Only a step to the next number plainly continues, until [`Self::trust`] or [`Self::learn_step`] changes that.
    pub(super) fn new(bits: u8, first: u64, plausibility: u64, last: Position) -> Self {
        let bits = u32::from(bits.clamp(8, 64));
        let mask = u64::MAX >> (64 - bits);
        let reach = plausibility.min(1 << (bits - 2));
        let plain = (1, 0);
        Self {
            first: first & mask,
            mask,
            unused: 64 - bits,
            reach,
            plain,
            steps: (0, 0),
            last_raw: first.wrapping_sub(1) & mask,
            last,
            shift: 0,
        }
    }

    /// Returns the last event that the source delivered or skipped.
    #[inline]
    pub(super) const fn last(&self) -> Position {
        self.last
    }

    /// Returns how far `raw` lies ahead of the last id, within half the counter's range either way.
    #[inline]
    fn distance(&self, raw: u64) -> i64 {
        (raw.wrapping_sub(self.last_raw) << self.unused) as i64 >> self.unused
    }

    /// Returns the position of an id that plainly continues: ahead, and before `limit`. All other ids need
    /// [`Self::step`].
    #[inline]
    pub(super) fn plain_step(&self, raw: u64, limit: Position) -> Option<Position> {
        let step = self.distance(raw) as u64;
        let position = self.last.wrapping_add(step);
        let is_plain = step.wrapping_sub(self.plain.0) <= self.plain.1;
        (is_plain && position < limit && raw <= self.mask).then_some(position)
    }

    /// Whether an id plainly continues, whatever its position.
    pub(super) fn goes_on(&self, raw: u64) -> bool {
        self.plain_step(raw, Position::MAX).is_some()
    }

    /// Lets any plausible step plainly continue.
    pub(super) const fn trust(&mut self) {
        self.plain = (1, self.reach - 1);
    }

    /// Learns the step of `count` numbers that continue at `first` by `step` from event to event (0: by different
    /// steps). A step other than 1 becomes the source's way of counting only after many repetitions, a step of 1 at
    /// once.
    pub(super) fn learn_step(&mut self, first: u64, step: u64, count: u32) {
        let goes_on = step == self.steps.0 && self.between(self.last_raw, first) == step;
        self.steps = (step, if goes_on { self.steps.1 + count } else { count });
        if step == 1 || step > 0 && self.steps.1 >= ENOUGH_STEPS {
            self.plain.0 = step.min(self.reach);
        }
    }

    /// Returns the width of the counter in bits.
    pub(super) const fn bits(&self) -> u32 {
        64 - self.unused
    }

    /// Whether the counter can show this number.
    pub(super) const fn holds(&self, raw: u64) -> bool {
        raw <= self.mask
    }

    /// Returns the longest plausible step.
    pub(super) const fn reach(&self) -> u64 {
        self.reach
    }

    /// Returns the last id.
    pub(super) const fn last_raw(&self) -> u64 {
        self.last_raw
    }

    /// Returns how far the counter goes from one id to another.
    pub(super) const fn between(&self, from: u64, to: u64) -> u64 {
        to.wrapping_sub(from) & self.mask
    }

    /// Returns the id at `distance` after another.
    pub(super) const fn plus(&self, raw: u64, distance: u64) -> u64 {
        raw.wrapping_add(distance) & self.mask
    }

    /// Returns the id that plainly continues after another.
    pub(super) const fn after(&self, raw: u64) -> u64 {
        self.plus(raw, self.plain.0)
    }

    /// Returns the id that plainly continues.
    pub(super) const fn next(&self) -> u64 {
        self.after(self.last_raw)
    }

    /// Returns the plain step of the counter from event to event.
    pub(super) const fn step_length(&self) -> u64 {
        self.plain.0
    }

    /// Returns how many plain steps lead to an id, if any number does within reach.
    pub(super) fn steps_ahead(&self, raw: u64) -> Option<u64> {
        let distance = self.distance(raw);
        let step = self.plain.0;
        let is_ahead = self.holds(raw) && distance > 0 && distance as u64 <= self.reach;
        (is_ahead && (distance as u64).is_multiple_of(step)).then(|| distance as u64 / step)
    }

    /// Returns the position of a plausible id ahead, where the run has come to `horizon`.
    pub(super) fn position_ahead(&self, raw: u64, horizon: Position) -> Option<Position> {
        match self.step(raw, false, horizon) {
            Step::Forward(position) => Some(position),
            Step::Backward(_) | Step::Restart | Step::Implausible => None,
        }
    }

    /// Returns the position of an id that is not ahead.
    pub(super) fn position_behind(&self, raw: u64) -> Option<Position> {
        let distance = self.distance(raw);
        (self.holds(raw) && distance <= 0).then(|| self.last.saturating_add_signed(distance))
    }

    /// Whether a numbering that lost its first fragments, or that counts from 0, may begin with this id.
    pub(super) const fn is_near_first(&self, raw: u64) -> bool {
        self.between(self.first.wrapping_sub(1), raw) <= NEAR
    }

    /// Returns the counter's value in the run's first event.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// Sets the counter's value in the run's first event.
    pub(super) const fn begin_at(&mut self, first: u64) {
        self.first = first & self.mask;
        self.last_raw = first.wrapping_sub(1) & self.mask;
    }

    /// Returns the meaning of a raw id, where the run has come to `horizon`.
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

    /// Whether an id restarts the numbering, at any position.
    pub(super) const fn is_first(&self, raw: u64, restarts: bool) -> bool {
        restarts || raw == self.first
    }

    /// Whether an id lies behind the last one.
    pub(super) fn is_behind(&self, raw: u64) -> bool {
        self.distance(raw) < 0
    }

    /// Replaces the numbering: the counter shows `raw` at `position`.
    pub(super) const fn renumber(&mut self, position: Position, raw: u64) {
        let expected = self.plus(self.last_raw, position.wrapping_sub(self.last).wrapping_mul(self.plain.0));
        self.shift = self.plus(self.shift, self.between(raw, expected));
        self.plain.0 = 1;
        self.advance(position - 1, raw.wrapping_sub(1));
    }

    /// Whether the present numbering differs from the original one.
    pub(super) const fn is_renumbered(&self) -> bool {
        self.shift != 0
    }

    /// Returns the event of the number at `position` if the source returned to its original numbering.
    pub(super) fn before_renumbering(&self, position: Position) -> Option<Position> {
        position.checked_sub(self.shift).filter(|&before| self.is_renumbered() && before > self.last)
    }

    /// Notes that the source delivered or skipped this event.
    #[inline]
    pub(super) const fn advance(&mut self, position: Position, raw: u64) {
        self.last = position;
        self.last_raw = raw & self.mask;
    }

    /// Follows the run if the source fell so far behind that its own last id is meaningless.
    pub(super) const fn keep_up(&mut self, horizon: Position) {
        if horizon > self.last && horizon - self.last > self.reach {
            let missed = horizon - 1 - self.last;
            self.advance(horizon - 1, self.last_raw.wrapping_add(missed));
        }
    }

    /// Resets the counter, which shows `first + offset` at the position after `last`.
    pub(super) const fn restart(&mut self, last: Position, offset: u64) {
        self.shift = 0;
        self.advance(last, self.first.wrapping_add(offset).wrapping_sub(1));
    }

    /// Returns how far `raw` lies after the first id.
    pub(super) const fn offset(&self, raw: u64) -> u64 {
        raw.wrapping_sub(self.first) & self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trusting(bits: u8, plausibility: u64) -> Sequence {
        let mut sequence = Sequence::new(bits, 1, plausibility, 0);
        sequence.trust();
        sequence
    }

    fn fed() -> Sequence {
        trusting(24, 1000)
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
    fn implausible_ids_are_not_believed() {
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

    #[test]
    fn only_the_next_number_goes_on_plainly() {
        let mut sequence = Sequence::new(8, 1, 1000, 0);
        sequence.advance(255, 255);
        assert_eq!([0, 1, 255, 254].map(|raw| sequence.plain_step(raw, 1000)), [Some(256), None, None, None]);
        sequence.learn_step(9, 10, 3);
        assert_eq!(sequence.plain_step(9, 1000), None, "three may be chance");
        sequence.learn_step(9, 10, 3);
        sequence.learn_step(9, 10, 14);
        assert_eq!([0, 9, 10].map(|raw| sequence.plain_step(raw, 1000)), [None, Some(265), None]);
        assert_eq!([9, 19, 20, 245].map(|raw| sequence.steps_ahead(raw)), [Some(1), Some(2), None, None]);
    }

    proptest! {
        #[test]
        fn the_plain_way_agrees_with_the_whole_one(
            bits in 8u8..=64, last in 1u64..1 << 40, raw: u64, limit in 0u64..1 << 41, near in -300i64..300,
            close: bool,
        ) {
            let mut sequence = trusting(bits, 200);
            sequence.advance(last, last);
            let raw = if close { last.saturating_add_signed(near) & sequence.mask } else { raw };
            if let Some(position) = sequence.plain_step(raw, limit) {
                prop_assert!(position < limit);
                prop_assert_eq!(sequence.step(raw, false, 0), Step::Forward(position));
            }
        }

        #[test]
        fn any_forward_step_within_reach_is_found_again(bits in 12u8..=64, last in 1u64..1 << 45, ahead in 1u64..1000) {
            let mut sequence = trusting(bits, 1000);
            sequence.advance(last, last);
            let raw = (last + ahead) & sequence.mask;
            prop_assert_eq!(sequence.plain_step(raw, u64::MAX), Some(last + ahead));
            sequence.advance(last + ahead, raw);
            prop_assert_eq!(sequence.last(), last + ahead);
        }
    }
}
