//! Which of the numbers that are held are right: the explanation that costs least.
//!
//! An explanation picks the numbers that are right, its members, which grow from one to the next. Every other number needs a reason:
//! ```text
//!   last 1523 |  2548  1525         1525 is right; 2548 is wrong and stands for 1524                      cost 2
//!                                   2548 is right behind a gap; 1525 is wrong                             cost 3
//!   last 1523 |  1525  1524  1526   1525 and 1526 are right; 1524 is where it belongs, and came late      cost 1
//!   last 1523 |  1523  1524         1524 is right; 1523 came twice                                        cost 1
//! ```
//! A dynamic programme over at most nine numbers finds it; only sources in doubt pay for that.

use super::doubt::MOST_HELD;
use super::sequence::Sequence;
use arrayvec::ArrayVec;

/// Numbers that are compared at once.
const MOST: usize = MOST_HELD + 1;

/// What a wrong number costs.
pub(super) const WRONG: i32 = 2;

/// What a number costs that came twice, or late.
pub(super) const KNOWN: i32 = 1;

/// What numbers cost that are missing in front of a member, in a row, and that no other fragment stands for.
const GAP: i32 = 1;

/// Numbers behind the last one that count as sent twice.
const RECENT: u64 = 8;

/// A fragment that is held, as far as its number goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Number {
    /// It says this.
    Says(u64),
    /// It says this, and is known to be damaged.
    Damaged(u64),
    /// The framer gave it up, or the counter cannot show such a number.
    Unknown,
}

impl Number {
    const fn raw(self) -> Option<u64> {
        match self {
            Self::Says(raw) | Self::Damaged(raw) => Some(raw),
            Self::Unknown => None,
        }
    }

    const fn said(self) -> Option<u64> {
        match self {
            Self::Says(raw) => Some(raw),
            Self::Damaged(_) | Self::Unknown => None,
        }
    }
}

/// Where an explanation begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// Behind the last number, where so many fragments were lost meanwhile whose numbers are not known.
    Last { gone: u64 },
    /// Anywhere: the numbering starts again.
    Anew,
}

/// An explanation.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Reading {
    /// The places of its members among the numbers that are held, a bit each.
    members: u16,
    /// Those in front of which numbers are missing.
    gaps: u16,
    /// Numbers that are missing, and that nothing stands for.
    missing: u64,
    pub(super) cost: i32,
}

impl Reading {
    pub(super) const fn has(&self, place: usize) -> bool {
        self.members & 1 << place != 0
    }

    /// Whether numbers are missing in front of the member at this place.
    pub(super) const fn has_gap_before(&self, place: usize) -> bool {
        self.gaps & 1 << place != 0
    }

    /// The places of its members.
    pub(super) fn members(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let members = self.members;
        (0..MOST).filter(move |place| members & 1 << place != 0)
    }

    /// How many numbers are missing, and nothing stands for them.
    pub(super) const fn missing(&self) -> u64 {
        self.missing
    }

    pub(super) const fn len(&self) -> u32 {
        self.members.count_ones()
    }

    /// The same without the member at this place.
    pub(super) const fn without(&mut self, place: usize) {
        self.members &= !(1 << place);
    }

    /// The first member behind its first one that has numbers missing in front of it.
    pub(super) fn gap(&self) -> Option<usize> {
        self.members().skip(1).find(|&place| self.has_gap_before(place))
    }

    /// The same up to before the first member behind its first one that has numbers missing in front of it.
    pub(super) fn until_gap(mut self) -> Self {
        if let Some(gap) = self.gap() {
            self.members &= (1 << gap) - 1;
        }
        self
    }

    fn with(self, place: usize, link: Link) -> Self {
        let bit = 1 << place;
        let gaps = self.gaps | if link.is_gap { bit } else { 0 };
        let missing = self.missing.saturating_add(link.missing);
        Self { members: self.members | bit, gaps, missing, cost: self.cost + link.cost }
    }

    /// The cheaper one comes first; of equals the one with more members, then the one of which less is missing, then that of earlier
    /// ones.
    fn rank(&self) -> (i32, u32, u64, u16) {
        (self.cost, u32::MAX - self.len(), self.missing, self.members)
    }
}

/// What it costs that a member follows another one.
#[derive(Copy, Clone)]
struct Link {
    cost: i32,
    /// Whether numbers are missing between them.
    is_gap: bool,
    /// How many, if whatever may be a wrong number stands for one.
    missing: u64,
}

/// The numbers that are held of a source.
pub(super) struct Numbers<'a> {
    pub(super) held: ArrayVec<Number, MOST>,
    pub(super) sequence: &'a Sequence,
    /// Several fragments of an event are usual: none of the same number stands for another event.
    pub(super) may_repeat: bool,
}

impl Numbers<'_> {
    /// The explanation that costs least, among those of which the first member may be so, and the others may follow.
    pub(super) fn best(
        &self,
        start: Start,
        may_begin: impl Fn(usize) -> bool,
        may_follow: impl Fn(usize) -> bool,
    ) -> Reading {
        let mut ending = [None::<Reading>; MOST];
        let alone = |from: usize, to: usize| (from..to).map(|place| self.alone(start, place)).sum::<i32>();
        let mut best = Reading { cost: alone(0, self.held.len()), ..Reading::default() };
        for place in (0..self.held.len()).filter(|&place| may_follow(place)) {
            let begun =
                self.begun(start, place).filter(|_| may_begin(place)).map(|link| Reading::default().with(place, link));
            let follows = |before: usize| Some(ending[before]?.with(place, self.link(start, Some(before), place)?));
            let all = (0..place).filter_map(follows).chain(begun);
            ending[place] = all.min_by_key(Reading::rank);
            if let Some(mut whole) = ending[place] {
                whole.cost += alone(place + 1, self.held.len());
                best = if whole.rank() < best.rank() { whole } else { best };
            }
        }
        best
    }

    /// The one according to which the numbering starts again, where `forward` is that according to which it goes on.
    pub(super) fn anew(&self, forward: Reading, may_begin: impl Fn(usize) -> bool) -> Reading {
        let anew = self.best(Start::Anew, &may_begin, |_| true);
        let goes_on = |place| forward.has(place) && forward.gaps == 0;
        // What goes on where the old numbering was does not go on behind a gap in a new one.
        match anew.gap().filter(|&gap| goes_on(gap)) {
            Some(gap) => self.best(Start::Anew, may_begin, |place| place < gap),
            None => anew,
        }
    }

    /// What a number costs that is no member.
    fn alone(&self, start: Start, place: usize) -> i32 {
        let is_recent = |raw: u64| {
            let behind = self.sequence.between(raw, self.sequence.last_raw());
            start != Start::Anew && behind < RECENT
        };
        match self.held[place] {
            Number::Says(raw) if is_recent(raw) => KNOWN,
            Number::Says(_) => WRONG,
            Number::Damaged(_) => WRONG - KNOWN,
            Number::Unknown => 0,
        }
    }

    fn begun(&self, start: Start, place: usize) -> Option<Link> {
        match (start, self.held[place]) {
            (Start::Last { .. }, _) => self.link(start, None, place),
            (Start::Anew, Number::Says(_)) => {
                let before: i32 = (0..place).map(|place| self.alone(start, place)).sum();
                Some(Link { cost: GAP + before - self.twice(place) * (WRONG - KNOWN), is_gap: false, missing: 0 })
            }
            (Start::Anew, _) => None,
        }
    }

    /// How many other fragments say the same.
    fn twice(&self, place: usize) -> i32 {
        let says = |one: &usize| *one != place && self.held[*one].said() == self.held[place].raw();
        (0..self.held.len()).filter(says).count() as i32
    }

    /// That a member follows another one, or the last number.
    fn link(&self, start: Start, before: Option<usize>, place: usize) -> Option<Link> {
        let from = before.map_or(Some(self.sequence.last_raw()), |before| self.held[before].raw())?;
        let to = self.held[place].raw()?;
        let (apart, step) = (self.sequence.between(from, to), self.sequence.step_length());
        if apart == 0 || before.is_some() && apart > self.sequence.reach() {
            return None;
        }
        let missing = if apart.is_multiple_of(step) { apart / step - 1 } else { apart - 1 };
        // One that came late lies shortly before the member, as others do that are held.
        let most_late = step.saturating_mul(MOST as u64);
        let is_inside = |raw: u64| {
            (1..apart).contains(&self.sequence.between(from, raw)) && self.sequence.between(raw, to) <= most_late
        };
        let says = |one: &usize| self.held[*one].said().filter(|_| *one != place && Some(*one) != before);
        // Numbers of this gap, wherever they are held.
        let late = (0..self.held.len()).filter(|one| says(one).is_some_and(is_inside)).count() as u64;
        let between = before.map_or(0, |before| before + 1)..place;
        // Sent twice or late, to all appearance, which costs less than a wrong number.
        let is_again = |one: usize, raw: u64| {
            raw == to || self.sequence.between(raw, from) < RECENT || self.alone(start, one) == KNOWN
        };
        let stands_for_one = |one: usize, again: bool| match self.held[one] {
            Number::Says(raw) if raw == to && self.may_repeat || is_inside(raw) => false,
            Number::Says(raw) => is_again(one, raw) == again,
            Number::Damaged(_) | Number::Unknown => !again,
        };
        let gone = match start {
            Start::Last { gone } if before.is_none() => gone,
            _ => 0,
        };
        let unknown = between.clone().filter(|&one| stands_for_one(one, false)).count() as u64 + gone;
        let lost = missing.saturating_sub(late + unknown);
        // Wrong ones after all, perhaps. For one that costs as much more as a gap does, for several the gap is likelier.
        let again = between.clone().filter(|&one| stands_for_one(one, true)).count() as u64;
        let is_gap = lost > 1 || lost > again;
        let is_damaged = matches!(self.held[place], Number::Damaged(_));
        if is_damaged && missing + late > 0 {
            // The number of a damaged fragment counts only where it is the expected one.
            return None;
        }
        let alone: i32 = between.map(|one| self.alone(start, one)).sum();
        let excused = (late as i32 + self.twice(place)) * (WRONG - KNOWN);
        let cost = alone - excused + if lost > 0 { GAP } else { 0 };
        Some(Link { cost, is_gap, missing: lost.saturating_sub(again) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of the members, and the cost, behind the number 1523.
    fn read(held: &[u64]) -> (Vec<usize>, i32) {
        let mut sequence = Sequence::new(24, 1, 100_000, 0);
        sequence.advance(1523, 1523);
        let numbers = held.iter().map(|&raw| Number::Says(raw)).collect();
        let best = Numbers { held: numbers, sequence: &sequence, may_repeat: false }.best(
            Start::Last { gone: 0 },
            |_| true,
            |place| held[place] > 1523,
        );
        (best.members().collect(), best.cost)
    }

    #[test]
    fn a_numbering_that_starts_again_may_repeat_its_first_number() {
        let mut sequence = Sequence::new(24, 1, 100_000, 0);
        sequence.advance(2, 2);
        let held = [1, 1, 2, 2, 3].map(Number::Says).into_iter().collect();
        let numbers = Numbers { held, sequence: &sequence, may_repeat: false };
        let forward = numbers.best(Start::Last { gone: 0 }, |_| true, |place| place == 4);
        assert_eq!((numbers.best(Start::Anew, |_| true, |_| true).cost, forward.cost), (3, 4));
    }

    #[test]
    fn the_least_that_must_have_gone_wrong_explains_the_numbers() {
        assert_eq!(read(&[2548, 1525]), (vec![1], 2), "a wrong number in the place of 1524");
        assert_eq!(read(&[1525, 1524, 1526]), (vec![0, 2], 1), "two have changed places");
        assert_eq!(read(&[1523, 1524]), (vec![1], 1), "one came twice");
        assert_eq!(read(&[1527, 1528, 1529]), (vec![0, 1, 2], 1), "a gap");
        assert_eq!(read(&[1527, 1530, 1532, 1540]), (vec![0, 1, 2, 3], 4), "a gap before each");
        assert_eq!(read(&[2548, 2549, 1526, 1527]), (vec![2, 3], 4), "two wrong ones in a row");
        assert_eq!(read(&[1525, 1525, 1526]), (vec![1, 2], 2), "the first of them stands for 1524");
        assert_eq!(read(&[1521, 1525]), (vec![1], 2), "a wrong number that was there before stands for 1524");
        assert_eq!(read(&[1522, 1525, 1525]), (vec![1], 3), "the first is right, the second may be 1526");
        assert_eq!(read(&[1526, 1521, 1526]), (vec![2], 3), "both in front of it may be wrong ones");
        assert_eq!(read(&[1522, 1523, 1527, 1528]), (vec![2, 3], 3), "two came twice, in front of a gap");
        assert_eq!(read(&[9, 9, 9]), (vec![], 6));
    }
}
