//! Where fragments belong whose numbers say nothing: bunch crossings, trigger types and time stamps of other sources tell.
//!
//! ```text
//!   source 0, event      97   98   99  100  101  102        a row of marks fits at one place alone:
//!   bunch crossing      712 3001   88 1950   17 2400        source 1 has restarted, and its 1 is event 99
//!   source 1, number               1    2    3    4
//!   bunch crossing                88 1950   17 2400
//! ```

use super::doubt::{NEAR, Verdict};
use super::machine::Readout;
use super::reading::Reading;
use super::source::Standing;
use super::timeline::Position;
use crate::messages::{FragmentFlags, FragmentMeta, NumberingKind};
use arrayvec::ArrayVec;
use ropewalk_terms::flaws::{Flaw, is_planted};

/// Marks that are compared at once.
const MOST_MARKS: usize = 8;

/// Bunch crossings in a row that fit at one place alone.
const ENOUGH_CROSSINGS: usize = 4;

/// Bunch crossings that agree where only two places are possible.
const ENOUGH_TO_CONFIRM: usize = 2;

/// Time stamps in a row of which the intervals fit at one place alone.
const ENOUGH_TIMES: usize = 6;

/// Numbers in a row that show that a source goes on with the old numbering after all.
const ENOUGH_NUMBERS: u32 = 3;

/// What a fragment holds that fragments of other sources of the same event hold as well.
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

    /// Whether it says anything of when its event was.
    pub(super) const fn tells(&self) -> bool {
        self.crossing.is_some() || self.time.is_some()
    }

    /// Whether nothing tells it from a mark of the same event.
    fn fits(&self, other: &Self) -> bool {
        let is_other = |one: Option<u16>, two: Option<u16>| one.zip(two).is_some_and(|(one, two)| one != two);
        let tag = |mark: &Self| (mark.tag != 0).then_some(mark.tag);
        !is_other(self.crossing, other.crossing) && !is_other(tag(self), tag(other))
    }
}

/// Whether a row of marks is of the same events as another one, as far as that can be told; false where nothing tells.
fn is_same_row(row: &[Mark], other: &[Mark]) -> bool {
    if row.len() != other.len() || !row.iter().zip(other).all(|(one, two)| one.fits(two)) {
        return false;
    }
    let crossings = row.iter().zip(other).filter(|(one, two)| one.crossing.is_some() && two.crossing.is_some()).count();
    // What repeats itself fits in several places.
    let repeats = |period: usize| row.iter().zip(&row[period..]).all(|(one, two)| one.fits(two));
    let times_repeat = |period: usize| intervals_agree(&row[..row.len() - period], &row[period..]);
    crossings >= ENOUGH_CROSSINGS && !(1..=row.len() / 2).any(repeats)
        || row.len() >= ENOUGH_TIMES && intervals_agree(row, other) && !(1..=2).any(times_repeat)
}

/// Whether intervals between time stamps have the same ratios to each other, whatever the clocks' units.
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

/// What came of a source while its numbering disagreed with the run's.
#[derive(Debug, Default)]
pub(super) struct Strayed {
    marks: ArrayVec<Mark, MOST_MARKS>,
    /// The last number.
    raw: u64,
    /// Numbers that went on, the last ones.
    in_a_row: u32,
    /// Fragments that came since the numbering seemed to start again.
    count: u64,
}

impl Strayed {
    /// So many more fragments came of which nothing is known.
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
    /// The event that the first member of a row of numbers stands for, where a source started its numbering again without a word
    /// and what its fragments hold says where they belong.
    pub(super) fn realigned(&self, source: usize, row: Reading) -> Option<Position> {
        let input = &self.sources[source];
        if !input.has_joined || !self.declared.is_empty() {
            return None;
        }
        let marks: ArrayVec<Mark, MOST_MARKS> =
            input.doubt.row(row).map(|one| Mark::of(&one.meta)).take(MOST_MARKS).collect();
        self.place_of(source, &marks, input.sequence.last() + 1)
    }

    /// Whether numbers far ahead are right: of events that the run has not come to, or those of another numbering.
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
        // Times alone compare only where others show as many.
        let has_crossings = input.doubt.held().any(|one| Mark::of(&one.meta).crossing.is_some());
        if !is_elsewhere || is_long && !has_crossings {
            return self.right(source, forward, is_last_word);
        }
        // Its counter may be right again: numbers alone do not tell.
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

    /// Whether the marks of a row of numbers are those of other sources' fragments from `position` on, as far as these have come.
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

    /// Whether what is held of a source says when its events were.
    fn tells(&self, source: usize) -> bool {
        self.sources[source].doubt.held().any(|one| Mark::of(&one.meta).tells())
    }

    /// Whether the numbers of a source may be another numbering's, as they were before.
    pub(super) fn is_elsewhere(&self, source: usize) -> bool {
        self.sources[source].sequence.is_renumbered() && self.tells(source)
    }

    /// The source started its numbering again, and goes on with the event at `position`.
    pub(super) fn realign(&mut self, source: usize, anew: Reading, position: Position, is_last_word: bool) {
        let (key, next) = (self.timeline.key(position), self.key_of_next(source));
        let Some(start) = anew.members().next() else { return };
        let input = &mut self.sources[source];
        let (from, to) = (input.sequence.last_raw(), input.doubt.raw(start));
        input.numbering.note(NumberingKind::Restart, next, from, to, 0);
        input.numbering.note(NumberingKind::Recovered, key, from, to, position - 1 - input.sequence.last());
        input.sequence.renumber(position, to);
        self.follow(source, anew, is_last_word);
    }

    /// The one event, from `first` on, at which a row of marks of this source fits those of another source.
    pub(super) fn place_of(&self, source: usize, marks: &[Mark], first: Position) -> Option<Position> {
        let length = marks.len() as Position;
        if marks.len() < ENOUGH_CROSSINGS || is_planted(Flaw::RestartUnrecovered) {
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

    /// A fragment came whose source is out of sync. Whether the source goes on with the run from this fragment on, since its numbers do
    /// after all, or since what the last ones held says where they belong.
    pub(super) fn finds_back(&mut self, source: usize, meta: &FragmentMeta) -> bool {
        self.sources[source].strayed.note(meta);
        let input = &self.sources[source];
        let (strayed, sequence) = (&input.strayed, &input.sequence);
        // One wrong number may have looked like a restart: then as many have come as numbers have passed.
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

    fn timed(times: &[u64]) -> Vec<Mark> {
        times.iter().map(|&time| Mark { crossing: None, tag: 0, time: Some(time) }).collect()
    }

    #[test]
    fn intervals_are_compared_whatever_the_clocks() {
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
