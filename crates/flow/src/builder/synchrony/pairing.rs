//! A source laid beside the reference at one offset: event by event, do they agree, and would that mean anything?

use super::comparer::{Clock, Comparer, Witness};
use super::history::{History, shifted};
use super::{Observation, REACH};
use ropewalk_terms::EventKey;

/// How many events back the partner of an interval is looked for: builder units that share a run by turns see every
/// n-th event only.
const PARTNER_REACH: i64 = 8;
/// Intervals over which a clock ratio is fitted.
const FIT_INTERVALS: usize = 16;

/// A source laid beside the reference at one offset.
#[derive(Copy, Clone, Debug)]
pub(super) struct Pairing<'a> {
    pub(super) history: &'a History,
    pub(super) source: usize,
    pub(super) reference: usize,
    pub(super) comparer: Comparer,
    pub(super) witness: Witness,
    /// The source's event `n` is laid beside the reference's event `n + offset`.
    pub(super) offset: i64,
}

/// How a source and the reference compare over the newest events.
#[derive(Copy, Clone, Debug)]
pub(super) struct Tally {
    /// Events in which both have the key.
    pub(super) pairs: u32,
    /// Of these: they agree.
    pub(super) agreed: u32,
    /// Of the pairs: the reference's key differs from its neighbour's, so that to agree means something.
    pub(super) telling: u32,
    /// Of these: they agree.
    pub(super) telling_agreed: u32,
    /// The oldest event counted.
    pub(super) oldest: EventKey,
    /// Bits in which the keys differed in any pair (not for times).
    pub(super) differing: u32,
    /// Bits that were both 0 and 1 in the source as well as in the reference.
    pub(super) changing: u32,
}

impl Tally {
    /// The one bit that explains every disagreement, because it never changes in one of the two.
    ///
    /// Either the others agree now and then, as random keys do, or the bit is too high for any offset that is
    /// searched to be the explanation.
    pub(super) fn stuck_bit(&self) -> Option<u32> {
        let one_bit = self.differing.is_power_of_two() && self.differing & self.changing == 0;
        let disagreed = self.pairs - self.agreed;
        let explained = self.agreed >= 4 || self.differing > u32::from(REACH.unsigned_abs());
        (one_bit && disagreed >= 4 && self.pairs >= 12 && explained).then_some(self.differing)
    }
}

impl<'a> Pairing<'a> {
    /// The newest event of the source that can have a partner at this offset.
    fn start(&self, newest: EventKey) -> EventKey {
        shifted(newest, -self.offset.max(0))
    }

    /// The keys from the newest that can have a partner down to the oldest remembered.
    pub(super) fn keys(&self, newest: EventKey) -> impl Iterator<Item = EventKey> + use<> {
        let start = self.start(newest);
        (0..self.history.depth() as i64).map(move |back| shifted(start, -back))
    }

    fn own(&self, key: EventKey) -> Option<&'a Observation> {
        self.history.get(key, self.source)
    }

    fn seen(&self, key: EventKey) -> Option<&'a Observation> {
        self.history.get(shifted(key, self.offset), self.reference)
    }

    /// Both keys of an event, as numbers, where this is no time.
    fn numbers(&self, key: EventKey) -> Option<(u32, u32)> {
        self.comparer.numbers(self.witness, self.own(key)?, self.seen(key)?)
    }

    /// The intervals that end with this event, of source and reference, and the event with which they begin.
    fn intervals(&self, key: EventKey) -> Option<(i64, i64, EventKey)> {
        let (own, seen) = (self.own(key)?, self.seen(key)?);
        (own.time().is_some() && seen.time().is_some()).then_some(())?;
        (1..=PARTNER_REACH).find_map(|back| {
            let partner = shifted(key, -back);
            let source = self.comparer.interval(self.own(partner)?, own)?;
            let reference = self.comparer.reference_interval(self.seen(partner)?, seen)?;
            Some((source, reference, partner))
        })
    }

    /// Whether the source's event agrees with the reference's; nothing where one of them has no key.
    pub(super) fn agrees(&self, key: EventKey) -> Option<bool> {
        if self.witness == Witness::Time {
            let (source, reference, _) = self.intervals(key)?;
            return Some(self.comparer.clock.fits(source, reference));
        }
        self.numbers(key).map(|(own, expected)| own == expected)
    }

    /// Whether the reference's key differs from the one before it, in the bits and to the precision compared. Where
    /// it does not, agreement at this offset says nothing against the offset beside it.
    fn tells(&self, key: EventKey) -> bool {
        self.reference_changes(shifted(key, self.offset)).unwrap_or(false)
    }

    fn reference_changes(&self, key: EventKey) -> Option<bool> {
        let seen = self.history.get(key, self.reference)?;
        let (back, before) = (1..=PARTNER_REACH).find_map(|back| {
            let before = self.history.get(shifted(key, -back), self.reference)?;
            (!before.is_missing()).then_some((back, before))
        })?;
        if self.witness != Witness::Time {
            // Through the same arithmetic, with the reference's own key in the place of the source's.
            let (_, now) = self.comparer.numbers(self.witness, seen, seen)?;
            let (_, then) = self.comparer.numbers(self.witness, before, before)?;
            return Some(now != then);
        }
        let long_before = self.history.get(shifted(key, -2 * back), self.reference)?;
        let now = self.comparer.reference_interval(before, seen)?;
        let then = self.comparer.reference_interval(long_before, before)?;
        let as_source = (self.comparer.clock.ratio * now as f64) as i64;
        Some(!self.comparer.clock.fits(as_source, then))
    }

    /// The first event to which an agreement at this one testifies: an interval speaks for both its ends.
    pub(super) fn first_of(&self, key: EventKey) -> EventKey {
        if self.witness != Witness::Time {
            return key;
        }
        self.intervals(key).map_or(key, |(_, _, partner)| partner)
    }

    /// Counts back from the newest event until `wanted` telling pairs or `window` pairs are found, not past `floor`.
    pub(super) fn tally(&self, newest: EventKey, floor: EventKey, wanted: u32, window: u32) -> Tally {
        let mut tally =
            Tally { pairs: 0, agreed: 0, telling: 0, telling_agreed: 0, oldest: newest, differing: 0, changing: 0 };
        let (mut own_or, mut own_and, mut expected_or, mut expected_and) = (0, u32::MAX, 0, u32::MAX);
        for key in self.keys(newest).take_while(|&key| key >= floor) {
            let Some(agreed) = self.agrees(key) else { continue };
            let telling = self.tells(key);
            tally.pairs += 1;
            tally.agreed += u32::from(agreed);
            tally.telling += u32::from(telling);
            tally.telling_agreed += u32::from(telling && agreed);
            tally.oldest = key;
            if let Some((own, expected)) = self.numbers(key) {
                tally.differing |= own ^ expected;
                own_or |= own;
                own_and &= own;
                expected_or |= expected;
                expected_and &= expected;
            }
            if tally.telling >= wanted || tally.pairs >= window {
                break;
            }
        }
        tally.changing = (own_or & !own_and) & (expected_or & !expected_and);
        tally
    }

    /// The clock ratio that the newest intervals give, if this offset is the right one.
    pub(super) fn fit_ratio(&self, newest: EventKey) -> Option<f64> {
        let mut source = 0_i64;
        let mut reference = 0_i64;
        let mut found = 0;
        for (own, seen, _) in self.keys(newest).filter_map(|key| self.intervals(key)).take(FIT_INTERVALS) {
            source = source.saturating_add(own);
            reference = reference.saturating_add(seen);
            found += 1;
        }
        let ratio = source as f64 / reference as f64;
        (found == FIT_INTERVALS && ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// The first event of those, up to the newest, that agree on balance: the other side of it disagrees.
    pub(super) fn agreement_began(&self, newest: EventKey) -> EventKey {
        let (mut balance, mut best, mut since) = (0, 0, newest);
        for key in self.keys(newest) {
            match self.agrees(key) {
                Some(true) => balance += 1,
                Some(false) => balance -= 1,
                None => {}
            }
            if balance > best {
                (best, since) = (balance, key);
            }
        }
        self.first_of(since)
    }
}

/// The typical interval between the reference's triggers in its ticks: a median, since gaps between spills would
/// spoil a mean.
pub(super) fn typical_interval(
    history: &History,
    reference: usize,
    comparer: &Comparer,
    newest: EventKey,
) -> Option<f64> {
    const INTERVALS: usize = 31;
    let mut intervals = [0_i64; INTERVALS];
    let mut found = 0;
    let mut later: Option<&Observation> = None;
    for back in 0..history.depth() as i64 {
        let Some(seen) = history.get(shifted(newest, -back), reference).filter(|seen| seen.time().is_some()) else {
            continue;
        };
        if let Some(later) = later
            && let Some(interval) = comparer.reference_interval(seen, later)
        {
            intervals[found] = interval.saturating_abs();
            found += 1;
        }
        later = Some(seen);
        if found == INTERVALS {
            break;
        }
    }
    let (_, median, _) = intervals.get_mut(..found).filter(|some| some.len() >= 8)?.select_nth_unstable(found / 2);
    Some(*median as f64)
}

/// A clock for this pairing from its own newest intervals.
pub(super) fn fitted_clock(pairing: &Pairing<'_>, newest: EventKey, typical: Option<f64>) -> Option<Clock> {
    pairing.comparer.clock_with(pairing.fit_ratio(newest)?, typical?)
}
