//! Selects the numbers of held fragments that are right, by the explanation with the least cost.
//!
//! An explanation picks the numbers that are right. These are its members, and they increase from one to the next.
//! Every other number needs a reason:
//! ```text
//!   last 1523 |  2548  1525         1525 is right; 2548 is wrong and replaces 1524                        cost 2
//!                                   2548 is right behind a gap; 1525 is wrong                             cost 3
//!   last 1523 |  1525  1524  1526   1525 and 1526 are right; 1524 is where it belongs, and came late      cost 1
//!   last 1523 |  1523  1524         1524 is right; 1523 came twice                                        cost 1
//! ```
//! A dynamic programme over at most nine numbers finds the explanation. Only sources in doubt pay for this.

use super::doubt::{MOST_HELD, NEAR, Verdict};
use super::machine::Readout;
use super::sequence::Sequence;
use super::source::Standing;
use super::table::Position;
use crate::messages::{FragmentFlags, FragmentMeta, NumberingKind};
use arrayvec::ArrayVec;

/// The most numbers that are compared at once.
const MOST: usize = MOST_HELD + 1;

/// Cost of a wrong number.
pub(super) const WRONG: i32 = 2;

/// Cost of a number that was sent twice or came late.
pub(super) const KNOWN: i32 = 1;

/// Cost of a run of missing numbers in front of a member that no other fragment accounts for.
const GAP: i32 = 1;

/// How far behind the last number a number still counts as sent twice.
const RECENT: u64 = 8;

/// The number of a held fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Number {
    /// The fragment has this number.
    Says(u64),
    /// The fragment has this number and is known to be damaged.
    Damaged(u64),
    /// The framer gave the fragment up, or the counter cannot show such a number.
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

/// The start of an explanation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// Behind the last number. Meanwhile `gone` fragments with unknown numbers were lost.
    Last { gone: u64 },
    /// Anywhere: the numbering restarts.
    Anew,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Reading {
    /// Indices of its members among the held numbers, as a bit mask.
    members: u16,
    /// Members with missing numbers in front of them, as a bit mask.
    gaps: u16,
    /// Number of missing numbers that no wrong number accounts for.
    missing: u64,
    pub(super) cost: i32,
}

impl Reading {
    pub(super) const fn has(&self, place: usize) -> bool {
        self.members & 1 << place != 0
    }

    /// Whether numbers are missing in front of the member at `place`.
    pub(super) const fn has_gap_before(&self, place: usize) -> bool {
        self.gaps & 1 << place != 0
    }

    /// Returns the places of the members.
    pub(super) fn members(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let members = self.members;
        (0..MOST).filter(move |place| members & 1 << place != 0)
    }

    /// Returns the number of missing numbers that no wrong number accounts for.
    pub(super) const fn missing(&self) -> u64 {
        self.missing
    }

    pub(super) const fn len(&self) -> u32 {
        self.members.count_ones()
    }

    /// Removes the member at `place`.
    pub(super) const fn without(&mut self, place: usize) {
        self.members &= !(1 << place);
    }

    /// Returns the first member after the first one that has missing numbers in front of it.
    pub(super) fn gap(&self) -> Option<usize> {
        self.members().skip(1).find(|&place| self.has_gap_before(place))
    }

    /// Cuts the explanation off before the first member, after the first one, that has missing numbers in front of it.
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

    /// The sort key, best first: lower cost, then more members, then fewer missing numbers, then earlier members.
    fn rank(&self) -> (i32, u32, u64, u16) {
        (self.cost, u32::MAX - self.len(), self.missing, self.members)
    }
}

/// Cost of one member following another.
#[derive(Copy, Clone)]
struct Link {
    cost: i32,
    /// Whether numbers are missing between them.
    is_gap: bool,
    /// How many numbers are missing if every possibly wrong number accounts for one.
    missing: u64,
}

/// The held numbers of a source.
pub(super) struct Numbers<'a> {
    pub(super) held: ArrayVec<Number, MOST>,
    pub(super) sequence: &'a Sequence,
    /// Whether several fragments per event are usual. A fragment with the same number then never belongs to another
    /// event.
    pub(super) may_repeat: bool,
}

impl Numbers<'_> {
    /// Returns the explanation with the least cost whose first member satisfies `may_begin` and whose other members may
    /// follow.
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

    /// Returns the explanation in which the numbering restarts. `forward` is the explanation in which it continues.
    pub(super) fn anew(&self, forward: Reading, may_begin: impl Fn(usize) -> bool) -> Reading {
        let anew = self.best(Start::Anew, &may_begin, |_| true);
        let goes_on = |place| forward.has(place) && forward.gaps == 0;
        // A number that continues the old numbering does not continue a new one behind a gap.
        match anew.gap().filter(|&gap| goes_on(gap)) {
            Some(gap) => self.best(Start::Anew, may_begin, |place| place < gap),
            None => anew,
        }
    }

    /// Returns the cost of a number that is not a member.
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

    /// Returns how many other fragments have the same number.
    fn twice(&self, place: usize) -> i32 {
        let says = |one: &usize| *one != place && self.held[*one].said() == self.held[place].raw();
        (0..self.held.len()).filter(says).count() as i32
    }

    /// Returns the link from `before`, or from the last number, to the member at `place`.
    fn link(&self, start: Start, before: Option<usize>, place: usize) -> Option<Link> {
        let from = before.map_or(Some(self.sequence.last_raw()), |before| self.held[before].raw())?;
        let to = self.held[place].raw()?;
        let (apart, step) = (self.sequence.between(from, to), self.sequence.step_length());
        if apart == 0 || before.is_some() && apart > self.sequence.reach() {
            return None;
        }
        let missing = if apart.is_multiple_of(step) { apart / step - 1 } else { apart - 1 };
        // A late number lies shortly before the member, as other held numbers do.
        let most_late = step.saturating_mul(MOST as u64);
        let is_inside = |raw: u64| {
            (1..apart).contains(&self.sequence.between(from, raw)) && self.sequence.between(raw, to) <= most_late
        };
        let says = |one: &usize| self.held[*one].said().filter(|_| *one != place && Some(*one) != before);
        // Held numbers that belong in this gap, wherever they are held.
        let late = (0..self.held.len()).filter(|one| says(one).is_some_and(is_inside)).count() as u64;
        let between = before.map_or(0, |before| before + 1)..place;
        // Whether the number seems to be sent twice or late, which costs less than a wrong number.
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
        // These may be wrong numbers after all. For a single one that costs as much as a gap; for several the gap is
        // more likely.
        let again = between.clone().filter(|&one| stands_for_one(one, true)).count() as u64;
        let is_gap = lost > 1 || lost > again;
        let is_damaged = matches!(self.held[place], Number::Damaged(_));
        if is_damaged && missing + late > 0 {
            // The number of a damaged fragment counts only if it is the expected one.
            return None;
        }
        let alone: i32 = between.map(|one| self.alone(start, one)).sum();
        let excused = (late as i32 + self.twice(place)) * (WRONG - KNOWN);
        let cost = alone - excused + if lost > 0 { GAP } else { 0 };
        Some(Link { cost, is_gap, missing: lost.saturating_sub(again) })
    }
}

/// The most marks that are compared at once.
const MOST_MARKS: usize = 8;

/// Number of consecutive bunch crossings that fit at only one place.
const ENOUGH_CROSSINGS: usize = 4;

/// Number of agreeing bunch crossings that suffice if only two places are possible.
const ENOUGH_TO_CONFIRM: usize = 2;

/// Number of consecutive time stamps whose intervals fit at only one place.
const ENOUGH_TIMES: usize = 6;

/// Number of consecutive numbers that show that a source continues the old numbering after all.
const ENOUGH_NUMBERS: u32 = 3;

/// The properties that the fragments of all sources share in one event: bunch crossing, trigger type and time stamp.
/// Marks show where fragments belong whose numbers do not.
///
/// ```text
///   source 0, event      97   98   99  100  101  102        a row of marks fits at one place alone:
///   bunch crossing      712 3001   88 1950   17 2400        source 1 has restarted, and its 1 is event 99
///   source 1, number               1    2    3    4
///   bunch crossing                88 1950   17 2400
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    crossing: Option<u16>,
    tag: u16,
    time: Option<u64>,
}

impl Mark {
    pub(super) fn of(meta: &FragmentMeta) -> Self {
        let has = |flag| meta.flags.contains(flag);
        Self {
            crossing: has(FragmentFlags::HAS_BUNCH_CROSSING).then_some(meta.bunch_crossing),
            tag: meta.trigger_type,
            time: has(FragmentFlags::HAS_TIME).then_some(meta.time),
        }
    }

    /// Whether the mark contains any timing information.
    pub(super) const fn tells(&self) -> bool {
        self.crossing.is_some() || self.time.is_some()
    }

    /// Whether nothing distinguishes it from a mark of the same event.
    fn fits(&self, other: &Self) -> bool {
        let is_other = |one: Option<u16>, two: Option<u16>| one.zip(two).is_some_and(|(one, two)| one != two);
        let tag = |mark: &Self| (mark.tag != 0).then_some(mark.tag);
        !is_other(self.crossing, other.crossing) && !is_other(tag(self), tag(other))
    }
}

/// Whether two rows of marks belong to the same events, as far as they show; false if they show nothing.
fn is_same_row(row: &[Mark], other: &[Mark]) -> bool {
    if row.len() != other.len() || !row.iter().zip(other).all(|(one, two)| one.fits(two)) {
        return false;
    }
    let crossings = row.iter().zip(other).filter(|(one, two)| one.crossing.is_some() && two.crossing.is_some()).count();
    // A row that repeats itself fits in several places.
    let repeats = |period: usize| row.iter().zip(&row[period..]).all(|(one, two)| one.fits(two));
    let times_repeat = |period: usize| intervals_agree(&row[..row.len() - period], &row[period..]);
    crossings >= ENOUGH_CROSSINGS && !(1..=row.len() / 2).any(repeats)
        || row.len() >= ENOUGH_TIMES && intervals_agree(row, other) && !(1..=2).any(times_repeat)
}

/// Whether intervals between time stamps have the same ratios to each other, independent of the clocks' units.
fn intervals_agree(row: &[Mark], other: &[Mark]) -> bool {
    let intervals = |row: &[Mark]| -> Option<ArrayVec<u64, MOST_MARKS>> {
        let interval = |pair: &[Mark]| Some(pair[1].time?.checked_sub(pair[0].time?)?.max(1));
        row.windows(2).map(interval).collect()
    };
    let (Some(own), Some(others)) = (intervals(row), intervals(other)) else { return false };
    let total = |row: &[u64]| row.iter().map(|&interval| interval as f64).sum::<f64>();
    let scale = total(&own) / total(&others);
    own.iter().zip(&others).all(|(&own, &other)| {
        let (own, other) = (own as f64, other as f64 * scale);
        (own - other).abs() <= 0.02 * own.max(other) + 1.0
    })
}

/// Evidence from the fragments of a source while its numbering disagreed with the run's.
#[derive(Debug, Default)]
pub(super) struct Strayed {
    marks: ArrayVec<Mark, MOST_MARKS>,
    /// The last number.
    raw: u64,
    /// How many of the latest numbers were consecutive.
    in_a_row: u32,
    /// Fragments that arrived since the numbering seemed to restart.
    count: u64,
}

impl Strayed {
    /// Counts `count` more fragments of which nothing is known.
    pub(super) const fn skip(&mut self, count: u64) {
        self.count += count;
    }

    pub(super) fn note(&mut self, meta: &FragmentMeta) {
        let goes_on = !self.marks.is_empty() && meta.raw_id == self.raw.wrapping_add(1);
        if !goes_on {
            self.marks.clear();
            self.in_a_row = 0;
        }
        if self.marks.is_full() {
            self.marks.remove(0);
        }
        self.marks.push(Mark::of(meta));
        (self.raw, self.in_a_row, self.count) = (meta.raw_id, self.in_a_row + 1, self.count + 1);
    }
}

impl Readout {
    /// Returns the event of the first member of a row of numbers, if a source restarted its numbering without a
    /// declaration and the contents of its fragments show where they belong.
    pub(super) fn realigned(&self, source: usize, row: Reading) -> Option<Position> {
        let input = &self.sources[source];
        if !input.has_joined || !self.declared.is_empty() {
            return None;
        }
        let marks: ArrayVec<Mark, MOST_MARKS> =
            input.doubt.row(row).map(|one| Mark::of(&one.meta)).take(MOST_MARKS).collect();
        self.place_of(source, &marks, input.sequence.last() + 1)
    }

    /// Decides whether numbers far ahead are right: events that the run has not reached, or another numbering.
    pub(super) fn verdict_on_jump(&self, source: usize, forward: Reading, is_last_word: bool) -> Verdict {
        let (input, even) = (&self.sources[source], forward.until_gap());
        let says =
            even.members().next().and_then(|first| input.sequence.position_ahead(input.doubt.raw(first), self.head));
        let place = self.realigned(source, even);
        if let Some(position) = place
            && says != Some(position)
        {
            return Verdict::Realign(even, position);
        }
        let is_elsewhere = self.is_elsewhere(source) && place.is_none();
        let is_long = input.doubt.is_full();
        let is_awaited =
            is_elsewhere && !is_long || (forward.missing() > NEAR || is_elsewhere) && self.others_lag(source);
        if self.tells(source) && !is_last_word && !self.resync_declared && is_awaited {
            return Verdict::AwaitOthers;
        }
        // Times alone can be compared only where others show as many.
        let has_crossings = input.doubt.held().any(|one| Mark::of(&one.meta).crossing.is_some());
        if !is_elsewhere || is_long && !has_crossings {
            return self.right(source, forward, is_last_word);
        }
        // The source's counter may be right again; numbers alone do not show this.
        let right = self.right(source, forward, is_last_word);
        let Verdict::Right(row) = right else { return right };
        let agrees = |position: &Position| self.marks_agree(source, row, *position);
        let before = || says.and_then(|says| input.sequence.before_renumbering(says));
        if says.as_ref().is_some_and(agrees) {
            right
        } else if let Some(position) = before().filter(agrees) {
            Verdict::Realign(row, position)
        } else if is_last_word {
            Verdict::Nothing
        } else {
            Verdict::Wait
        }
    }

    /// Whether the marks of a row of numbers equal those of other sources' fragments from `position` on, as far as
    /// these have arrived.
    fn marks_agree(&self, source: usize, row: Reading, position: Position) -> bool {
        let (input, mut same, mut different) = (&self.sources[source], 0, 0);
        let Some(first) = row.members().next().map(|first| input.doubt.raw(first)) else { return false };
        for one in row.members() {
            let at = position + input.sequence.between(first, input.doubt.raw(one));
            let own = Mark::of(&input.doubt.fragment(one).meta);
            let others = (0..self.sources.len()).filter(|&other| other != source);
            for other in others.filter_map(|other| self.table.meta(other, at)).map(Mark::of) {
                same += usize::from(own.crossing.is_some() && own.crossing == other.crossing);
                different += usize::from(!own.fits(&other));
            }
        }
        different == 0 && same >= ENOUGH_TO_CONFIRM
    }

    /// Whether the held fragments of a source contain any timing information.
    fn tells(&self, source: usize) -> bool {
        self.sources[source].doubt.held().any(|one| Mark::of(&one.meta).tells())
    }

    /// Whether the numbers of a source may belong to a different numbering, as they did before.
    pub(super) fn is_elsewhere(&self, source: usize) -> bool {
        self.sources[source].sequence.is_renumbered() && self.tells(source)
    }

    /// Continues a source that restarted its numbering with the event at `position`.
    pub(super) fn realign(&mut self, source: usize, anew: Reading, position: Position, is_last_word: bool) {
        let (key, next) = (self.timeline.key(position), self.key_of_next(source));
        let Some(start) = anew.members().next() else { return };
        let input = &mut self.sources[source];
        let (from, to) = (input.sequence.last_raw(), input.doubt.raw(start));
        input.numbering.note(NumberingKind::Restart, next, from, to, 0);
        input.numbering.note(NumberingKind::Recovered, key, from, to, position - 1 - input.sequence.last());
        input.statistics.forgive_jump(input.sequence.between(input.sequence.next(), to));
        input.sequence.renumber(position, to);
        self.follow(source, anew, is_last_word);
    }

    /// Returns the only event, from `first` on, at which a row of this source's marks fits those of another source.
    pub(super) fn place_of(&self, source: usize, marks: &[Mark], first: Position) -> Option<Position> {
        let length = marks.len() as Position;
        if marks.len() < ENOUGH_CROSSINGS {
            return None;
        }
        let fits = |&position: &Position| {
            let row = |other: usize| -> Option<ArrayVec<Mark, MOST_MARKS>> {
                (position..position + length).map(|at| self.table.meta(other, at).map(Mark::of)).collect()
            };
            let others = (0..self.sources.len()).filter(|&other| other != source);
            others.filter_map(row).any(|row| is_same_row(marks, &row))
        };
        let end = (self.table.end() + 1).saturating_sub(length);
        let mut places = (first.max(self.head)..end).filter(fits);
        let place = places.next()?;
        places.next().is_none().then_some(place)
    }

    /// Notes a fragment of a source that is out of sync. Returns whether the source follows the run again from this
    /// fragment on, since its numbers continue the old ones after all, or since the contents of the latest fragments
    /// show where they belong.
    pub(super) fn finds_back(&mut self, source: usize, meta: &FragmentMeta) -> bool {
        self.sources[source].strayed.note(meta);
        let input = &self.sources[source];
        let (strayed, sequence) = (&input.strayed, &input.sequence);
        // A single wrong number may have looked like a restart. As many fragments as numbers have then passed.
        let passed = sequence.steps_ahead(meta.raw_id).filter(|_| strayed.in_a_row >= ENOUGH_NUMBERS);
        let went_on = passed.filter(|&passed| passed == strayed.count);
        let old = went_on.and_then(|_| sequence.position_ahead(meta.raw_id, self.head));
        let is_due = strayed.marks.is_full() && strayed.count.is_multiple_of(MOST_MARKS as u64);
        let length = strayed.marks.len() as Position;
        let place = || self.place_of(source, &strayed.marks, self.head).map(|first| first + length - 1);
        let Some(position) = old.or_else(|| if is_due { place() } else { None }) else { return false };
        let key = self.timeline.key(position);
        let input = &mut self.sources[source];
        let size = position.saturating_sub(input.sequence.last() + 1);
        input.numbering.note(NumberingKind::Recovered, key, input.sequence.last_raw(), meta.raw_id, size);
        input.sequence.renumber(position, meta.raw_id);
        input.standing = Standing::Following;
        input.strayed = Strayed::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the places of the members, and the cost, after the number 1523.
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
        assert_eq!(read(&[1525, 1525, 1526]), (vec![1, 2], 2), "the first of them replaces 1524");
        assert_eq!(read(&[1521, 1525]), (vec![1], 2), "a wrong number that was there before replaces 1524");
        assert_eq!(read(&[1522, 1525, 1525]), (vec![1], 3), "the first is right, the second may be 1526");
        assert_eq!(read(&[1526, 1521, 1526]), (vec![2], 3), "both in front of it may be wrong ones");
        assert_eq!(read(&[1522, 1523, 1527, 1528]), (vec![2, 3], 3), "two came twice, in front of a gap");
        assert_eq!(read(&[9, 9, 9]), (vec![], 6));
    }

    fn timed(times: &[u64]) -> Vec<Mark> {
        times.iter().map(|&time| Mark { crossing: None, tag: 0, time: Some(time) }).collect()
    }

    #[test]
    fn intervals_are_compared_between_any_clocks() {
        let own = timed(&[100, 350, 420, 900, 1000, 1700]);
        let others: Vec<u64> = [100, 350, 420, 900, 1000, 1700].iter().map(|time| 77_000 + 10 * time).collect();
        assert!(is_same_row(&own, &timed(&others)));
        assert!(!is_same_row(&own, &timed(&[100, 350, 420, 900, 1100, 1700])));
        assert!(!is_same_row(&own[..5], &timed(&others[..5])), "five may fit by chance");
    }

    #[test]
    fn crossings_and_tags_that_differ_are_of_other_events() {
        let mark = |crossing, tag| Mark { crossing: Some(crossing), tag, time: None };
        let row = [mark(1, 0), mark(2, 5), mark(3, 0), mark(4, 0)];
        assert!(is_same_row(&row, &row));
        assert!(is_same_row(&row, &[mark(1, 9), mark(2, 5), mark(3, 0), mark(4, 0)]));
        assert!(!is_same_row(&row, &[mark(1, 0), mark(2, 6), mark(3, 0), mark(4, 0)]));
        assert!(!is_same_row(&row, &[mark(1, 0), mark(2, 5), mark(3, 0), mark(5, 0)]));
        let regular = timed(&[100, 200, 300, 400, 500, 600, 700]);
        assert!(!is_same_row(&regular, &regular), "a clock fits everywhere");
        let pairs = [mark(1, 0), mark(2, 0), mark(1, 0), mark(2, 0)];
        assert!(!is_same_row(&pairs, &pairs), "so does what repeats itself");
        let silent = [Mark { crossing: None, tag: 0, time: None }; 8];
        assert!(!is_same_row(&silent, &silent), "nothing tells");
    }
}
