//! The search for the offset of a source in doubt: is it the watched one, or 0, and if not, which one? The search tries
//! a few offsets per event, so that no event waits for it.

use super::machine::{History, Standing, Watch, shifted};
use super::{Observation, REACH, SourceConfig};
use ropewalk_terms::EventKey;

/// The number of offsets.
const OFFSETS: usize = 2 * REACH as usize + 1;
/// Pairs after which an offset is rejected if fewer than half agree.
const PROBE: u32 = 16;
/// By how many events an offset must be better than the watched one.
const ADVANTAGE_NEEDED: f64 = 12.0;
/// The probability that another offset agrees as well by accident: 2 to the power of minus this, for each search.
const BITS_NEEDED: f64 = 36.0;
/// A second offset that is nearly as good leaves the answer open unless it is this many times as far away.
const RIVAL_DISTANCE: u16 = 4;

/// A search in progress. It uses the events up to the one at which it began.
#[derive(Debug)]
pub(super) struct Search {
    source: usize,
    newest: EventKey,
    /// The kinds of key that are still to be tried, indexed by witness.
    asked: [bool; WITNESSES.len()],
    /// The index of the next offset to try.
    next: usize,
    /// Whether clock ratios are fitted for each offset, or the known one is used.
    fits: bool,
    typical: Option<f64>,
    advantages: [u32; OFFSETS],
    /// Pairs at any offset whose event disagrees at the watched offset, and the number of them that agree by chance.
    tried: u32,
    matched: u32,
}

/// The result of a step of the search.
#[derive(Copy, Clone, Debug)]
pub(super) enum Step {
    /// More offsets remain.
    More,
    /// The source is at this offset, since this event.
    Found { witness: Witness, offset: i16, since: EventKey, clock: Option<Clock> },
    /// At no offset.
    Nothing,
}

/// The result of one offset.
#[derive(Copy, Clone, Debug)]
struct Trial {
    /// Agreements where the watched offset disagrees, less disagreements, over the newest events up to the maximum of
    /// this sum.
    advantage: u32,
    /// The event of the maximum.
    since: EventKey,
}

impl Search {
    /// Creates a search by these kinds of key.
    pub(super) fn new(scene: &Scene<'_>, asked: [bool; WITNESSES.len()]) -> Self {
        let known = scene.watch.comparer.clock.is_known();
        Self {
            source: scene.source,
            newest: scene.newest,
            asked,
            next: 0,
            // A known ratio is more exact; if it found nothing, the clock itself may have changed.
            fits: !known || scene.standing.fruitless % 2 == 1,
            typical: scene.typical_interval(),
            advantages: [0; OFFSETS],
            tried: 0,
            matched: 0,
        }
    }

    /// The source that is searched.
    pub(super) const fn source(&self) -> usize {
        self.source
    }

    /// Tries offsets until about `budget` rows were read; leaves the rest of the budget.
    pub(super) fn step(&mut self, scene: &Scene<'_>, budget: &mut u32) -> Step {
        let scene = &Scene { newest: self.newest, ..*scene };
        let Some(witness) = self.witness() else { return Step::Nothing };
        while self.next < OFFSETS {
            let (trial, looked) = self.trial(scene, witness, self.next, scene.window);
            self.advantages[self.next] = trial.map_or(0, |trial| trial.advantage);
            self.next += 1;
            *budget = budget.saturating_sub(looked);
            if *budget == 0 && self.next < OFFSETS {
                return Step::More;
            }
        }
        let winner = self.winner(scene.watch.offset);
        // The first event is searched in the whole history.
        let found = winner.and_then(|place| Some((place, self.trial(scene, witness, place, u32::MAX).0?)));
        if let Some((place, trial)) = found {
            let clock = self.pairing(scene, witness, place).map(|pairing| pairing.comparer.clock);
            let clock = clock.filter(|_| witness == Witness::Time);
            return Step::Found { witness, offset: offset(place), since: trial.since, clock };
        }
        self.asked[witness as usize] = false;
        self.next = 0;
        self.advantages = [0; OFFSETS];
        (self.tried, self.matched) = (0, 0);
        if self.witness().is_some() { Step::More } else { Step::Nothing }
    }

    /// The strongest kind of key that is still to be tried.
    fn witness(&self) -> Option<Witness> {
        WITNESSES.into_iter().find(|&witness| self.asked[witness as usize])
    }

    fn pairing<'a>(&self, scene: &Scene<'a>, witness: Witness, place: usize) -> Option<Pairing<'a>> {
        let mut pairing = scene.pairing(witness, offset(place).into());
        if witness == Witness::Time && self.fits {
            pairing.comparer.clock = fitted_clock(&pairing, self.newest, self.typical)?;
        }
        Some(pairing)
    }

    /// Tries an offset on the newest `window` pairs. Returns its result, if any, and the number of rows read.
    fn trial(&mut self, scene: &Scene<'_>, witness: Witness, place: usize, window: u32) -> (Option<Trial>, u32) {
        let Some(pairing) = self.pairing(scene, witness, place) else { return (None, PROBE) };
        let (mut pairs, mut agreed, mut looked) = (0_u32, 0_u32, 0_u32);
        let (mut balance, mut best, mut since, mut best_share) = (0_i32, 0_i32, self.newest, (0_u32, 1_u32));
        for key in pairing.keys(self.newest) {
            looked += 1;
            let Some(agrees) = pairing.agrees(key) else { continue };
            let noted = scene.history.get(key, scene.source).and_then(|own| own.noted());
            pairs += 1;
            agreed += u32::from(agrees);
            if pairs <= PROBE && noted != Some(true) {
                self.tried += 1;
                self.matched += u32::from(agrees);
            }
            balance += match (agrees, noted) {
                (true, Some(true)) => 0,
                (true, _) => 1,
                (false, _) => -1,
            };
            if balance > best {
                (best, since, best_share) = (balance, key, (agreed, pairs));
            }
            if (pairs == PROBE && agreed * 2 < PROBE) || pairs >= window {
                break;
            }
        }
        let mostly_agrees = best_share.0 * 4 >= best_share.1 * 3;
        let trial = Trial { advantage: best.unsigned_abs(), since: pairing.first_of(since) };
        ((mostly_agrees && agreed * 2 >= pairs.min(PROBE)).then_some(trial), looked)
    }

    /// The offset that is better than the watched one by more than chance explains, without a rival.
    ///
    /// The search itself measures how often a wrong offset agrees, on the events that disagree at the watched offset;
    /// the rarer that is, the fewer events suffice.
    fn winner(&self, watched: i16) -> Option<usize> {
        let chance = f64::from(self.matched + 1) / f64::from(self.tried + 2);
        let needed = (BITS_NEEDED / -chance.log2()).max(ADVANTAGE_NEEDED);
        let best = self.advantages.iter().copied().max().filter(|&best| f64::from(best) >= needed)?;
        let distance = |place: usize| offset(place).abs_diff(watched);
        let rivals = || (0..OFFSETS).filter(|&place| self.advantages[place] * 4 >= best * 3);
        let nearest = rivals().min_by_key(|&place| distance(place))?;
        rivals()
            .all(|place| place == nearest || distance(place) >= RIVAL_DISTANCE * distance(nearest))
            .then_some(nearest)
    }
}

/// The offset with this index.
const fn offset(place: usize) -> i16 {
    place as i16 - REACH
}

/// Telling pairs that are needed for a certain result. Keys of random triggers agree by chance in at most one of ten,
/// so 12 of 16 that agree have a probability of 10^-9.
const TELLING_WANTED: u32 = 16;
/// Telling pairs in the window below which the reference's keys are too regular for a result.
const TELLING_NEEDED: u32 = 12;
/// Pairs below which there is no result.
const PAIRS_NEEDED: u32 = 16;

/// The data of an assessment.
#[derive(Copy, Clone, Debug)]
pub(super) struct Scene<'a> {
    pub(super) history: &'a History,
    pub(super) watch: &'a Watch,
    pub(super) standing: &'a Standing,
    pub(super) source: usize,
    pub(super) reference: usize,
    pub(super) newest: EventKey,
    pub(super) window: u32,
}

/// The result of an assessment.
#[derive(Copy, Clone, Debug)]
pub(super) enum Assessment {
    /// The two have no kind of key in common in enough events.
    TooFew,
    /// The reference's keys are too regular. With the kind that may still be watched.
    NoInformation(Option<Witness>),
    /// The source is at this offset.
    Stands {
        witness: Witness,
        offset: i16,
        clock: Option<Clock>,
        stuck: u32,
        /// Stronger kinds of key that disagreed on the same events.
        contradicted: [bool; WITNESSES.len()],
    },
    /// The source is at neither the watched offset nor 0, according to these kinds of key.
    Elsewhere { denying: [bool; WITNESSES.len()] },
}

impl<'a> Scene<'a> {
    /// The source compared with the reference.
    pub(super) fn pairing(&self, witness: Witness, offset: i64) -> Pairing<'a> {
        let comparer = self.watch.comparer;
        Pairing { history: self.history, source: self.source, reference: self.reference, comparer, witness, offset }
    }

    /// The reference's typical interval.
    fn typical_interval(&self) -> Option<f64> {
        typical_interval(self.history, self.reference, &self.watch.comparer, self.newest)
    }

    /// The kinds of key that may be used, the strongest first.
    fn witnesses(&self) -> impl Iterator<Item = Witness> + use<'a> {
        let (watch, standing) = (self.watch, self.standing);
        WITNESSES.into_iter().filter(|&witness| watch.comparer.uses(witness) && standing.trusts(witness))
    }

    /// Tries one kind of key after the other.
    ///
    /// A weaker kind is tried only on the same events as the stronger kind that disagreed: otherwise it could use
    /// events before the source slipped.
    pub(super) fn assess(&self) -> Assessment {
        let mut floor = EventKey::MIN;
        let mut contradicted = [false; WITNESSES.len()];
        let (mut any_regular, mut regular) = (false, None);
        for witness in self.witnesses() {
            let mut denies = None;
            for offset in self.offsets() {
                let Some((tally, clock, stuck)) = self.best_tally(witness, offset, floor) else { continue };
                if tally.telling < TELLING_NEEDED {
                    // With a short history nothing is known about the triggers yet.
                    any_regular |= tally.pairs * 2 >= self.window;
                    regular = regular.or(Some(witness));
                } else if self.stands(&tally, offset) {
                    return Assessment::Stands { witness, offset, clock, stuck, contradicted };
                } else {
                    denies = denies.max(Some(tally.oldest));
                }
            }
            if let Some(oldest) = denies {
                floor = floor.max(oldest);
                contradicted[witness as usize] = true;
            }
        }
        if contradicted.contains(&true) {
            Assessment::Elsewhere { denying: contradicted }
        } else if any_regular {
            Assessment::NoInformation(regular)
        } else {
            Assessment::TooFew
        }
    }

    /// The watched offset, then 0.
    fn offsets(&self) -> impl Iterator<Item = i16> + use<> {
        let watched = self.watch.offset;
        core::iter::once(watched).chain((watched != 0).then_some(0))
    }

    /// A new offset needs most of the telling pairs; an old one is rejected if fewer than half agree.
    fn stands(&self, tally: &Tally, offset: i16) -> bool {
        let quarters = if self.standing.is_at(offset) { 2 } else { 3 };
        tally.telling_agreed * 4 >= tally.telling * quarters
    }

    /// The tally at an offset, with the clock and without the stuck bit with which it agrees best. None if there are
    /// too few pairs.
    fn best_tally(&self, witness: Witness, offset: i16, floor: EventKey) -> Option<(Tally, Option<Clock>, u32)> {
        let mut pairing = self.pairing(witness, offset.into());
        let count = |pairing: &Pairing<'_>| {
            let tally = pairing.tally(self.newest, floor, TELLING_WANTED, self.window);
            (tally.pairs >= PAIRS_NEEDED).then_some(tally)
        };
        if witness == Witness::Time {
            return self.best_clock(pairing, count);
        }
        let tally = count(&pairing)?;
        let Some(bit) = tally.stuck_bit() else { return Some((tally, None, 0)) };
        pairing.comparer.ignore(witness, bit);
        let without = count(&pairing)?;
        let better = without.telling_agreed * 4 >= without.telling * 3;
        Some(if better { (without, None, bit) } else { (tally, None, 0) })
    }

    /// The tally with the known clock and, if that does not fit or is not known, with one fitted to the newest events.
    fn best_clock(
        &self,
        mut pairing: Pairing<'_>,
        count: impl Fn(&Pairing<'_>) -> Option<Tally>,
    ) -> Option<(Tally, Option<Clock>, u32)> {
        let known = pairing.comparer.clock;
        let typical = self.typical_interval();
        let fitted = fitted_clock(&pairing, self.newest, typical);
        if known.is_known() {
            let ratio = refined(known.ratio, fitted);
            let clock = typical.and_then(|interval| pairing.comparer.clock_with(ratio, interval)).unwrap_or(known);
            pairing.comparer.clock = clock;
            let tally = count(&pairing)?;
            if tally.telling_agreed * 2 >= tally.telling {
                return Some((tally, Some(clock), 0));
            }
        }
        pairing.comparer.clock = fitted?;
        Some((count(&pairing)?, fitted, 0))
    }
}

/// The known ratio moved a little towards the fitted one if that is near; a larger difference is a jump of time.
fn refined(known: f64, fitted: Option<Clock>) -> f64 {
    const NEAR: f64 = 1e-3;
    const WEIGHT: f64 = 0.25;
    let deviation = fitted.map_or(0.0, |fitted| fitted.ratio / known - 1.0);
    if deviation.abs() < NEAR { known * (1.0 + WEIGHT * deviation) } else { known }
}

/// How many events back the partner of an interval is searched: builder units that share a run in turns see only every
/// n-th event.
const PARTNER_REACH: i64 = 8;
/// Intervals used to fit a clock ratio.
const FIT_INTERVALS: usize = 16;

/// A source compared with the reference at one offset.
#[derive(Copy, Clone, Debug)]
pub(super) struct Pairing<'a> {
    pub(super) history: &'a History,
    pub(super) source: usize,
    pub(super) reference: usize,
    pub(super) comparer: Comparer,
    pub(super) witness: Witness,
    /// The source's event `n` is compared with the reference's event `n + offset`.
    pub(super) offset: i64,
}

/// The result of comparing a source with the reference over the newest events.
#[derive(Copy, Clone, Debug)]
pub(super) struct Tally {
    /// Events in which both have the key.
    pairs: u32,
    /// The number of them that agree.
    pub(super) agreed: u32,
    /// Pairs in which the reference's key differs from its neighbour's, so that agreement is significant.
    telling: u32,
    /// The number of them that agree.
    telling_agreed: u32,
    /// The oldest event counted.
    oldest: EventKey,
    /// Bits in which the keys differed in any pair (not for times).
    differing: u32,
    /// Bits that were both 0 and 1 in the source as well as in the reference.
    changing: u32,
}

impl Tally {
    /// The one bit that explains every disagreement, because it never changes in one of the two. The others must agree
    /// now and then, as random keys do, or the bit must be too high for any searched offset to be the explanation.
    /// searched to be the explanation.
    fn stuck_bit(&self) -> Option<u32> {
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

    /// Both keys of an event, as numbers, unless the key is a time.
    fn numbers(&self, key: EventKey) -> Option<(u32, u32)> {
        self.comparer.numbers(self.witness, self.own(key)?, self.seen(key)?)
    }

    /// The intervals that end with this event, of source and reference, and the event at which they begin.
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

    /// Whether the source's event agrees with the reference's; none if one of them has no key.
    pub(super) fn agrees(&self, key: EventKey) -> Option<bool> {
        if self.witness == Witness::Time {
            let (source, reference, _) = self.intervals(key)?;
            return Some(self.comparer.clock.fits(source, reference));
        }
        self.numbers(key).map(|(own, expected)| own == expected)
    }

    /// Whether the reference's key differs from the previous one, in the bits and to the precision compared. If not,
    /// agreement at this offset is no evidence against the next offset.
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
            // The same arithmetic, with the reference's own key instead of the source's.
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

    /// The first event that an agreement at this one confirms: an interval confirms both its ends.
    fn first_of(&self, key: EventKey) -> EventKey {
        if self.witness != Witness::Time {
            return key;
        }
        self.intervals(key).map_or(key, |(_, _, partner)| partner)
    }

    /// Counts back from the newest event to `wanted` telling pairs or `window` pairs, at most to `floor`.
    fn tally(&self, newest: EventKey, floor: EventKey, wanted: u32, window: u32) -> Tally {
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

    /// The clock ratio of the newest intervals, if this offset is right.
    fn fit_ratio(&self, newest: EventKey) -> Option<f64> {
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

    /// The start of the newest events that agree on balance; earlier ones disagree.
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

/// The typical interval between the reference's triggers in its ticks: a median, because gaps between spills would
/// distort a mean.
fn typical_interval(history: &History, reference: usize, comparer: &Comparer, newest: EventKey) -> Option<f64> {
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

/// A clock for this pairing, fitted to its own newest intervals.
fn fitted_clock(pairing: &Pairing<'_>, newest: EventKey, typical: Option<f64>) -> Option<Clock> {
    pairing.comparer.clock_with(pairing.fit_ratio(newest)?, typical?)
}

/// A kind of key by which two sources can be compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Witness {
    /// The bunch crossing.
    BunchCrossing = 0,
    /// The time since the previous trigger.
    Time = 1,
}

/// All kinds, the strongest first.
pub(super) const WITNESSES: [Witness; 2] = [Witness::BunchCrossing, Witness::Time];

/// The relation of a source's clock to the reference's.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(super) struct Clock {
    /// Ticks of the source in a tick of the reference; 0 while unknown.
    ratio: f64,
    /// The number of ticks of the source by which equal intervals may differ.
    tolerance: f64,
}

/// Long intervals (between spills) may differ by more, because of the uncertainty of the fitted ratio.
const RATIO_UNCERTAINTY: f64 = 2e-4;

impl Clock {
    /// Whether both intervals are between the same two triggers.
    pub(super) fn fits(&self, source: i64, reference: i64) -> bool {
        let expected = self.ratio * reference as f64;
        (source as f64 - expected).abs() <= self.tolerance + RATIO_UNCERTAINTY * expected.abs()
    }

    /// Whether the ratio is known.
    pub(super) fn is_known(&self) -> bool {
        self.ratio > 0.0
    }
}

/// How one source is compared with the reference.
#[derive(Copy, Clone, Debug)]
pub(super) struct Comparer {
    orbit: u32,
    crossing_shift: u32,
    crossing_mask: u32,
    unused_time_bits: u8,
    unused_reference_time_bits: u8,
    jitter: f64,
    /// The relation of the clocks; fitted during the run.
    pub(super) clock: Clock,
}

impl Comparer {
    pub(super) fn new(source: &SourceConfig, reference: &SourceConfig, orbit: u16) -> Self {
        // Without an orbit the counter is free-running, as wide as the field.
        let orbit = if orbit == 0 { 1 << 16 } else { u32::from(orbit) };
        let shift = i32::from(reference.bunch_crossing_offset) - i32::from(source.bunch_crossing_offset);
        Self {
            orbit,
            crossing_shift: shift.rem_euclid(orbit as i32) as u32,
            crossing_mask: u32::from(source.bunch_crossing_mask & reference.bunch_crossing_mask),
            unused_time_bits: 64 - source.time_bits.clamp(1, 64),
            unused_reference_time_bits: 64 - reference.time_bits.clamp(1, 64),
            jitter: f64::from(source.time_tolerance.max(reference.time_tolerance)),
            clock: Clock::default(),
        }
    }

    /// Whether this kind of key is used.
    const fn uses(&self, witness: Witness) -> bool {
        match witness {
            Witness::BunchCrossing => self.crossing_mask != 0,
            Witness::Time => true,
        }
    }

    /// The source's key and the one expected from the reference, in the source's units, in the compared bits.
    fn numbers(&self, witness: Witness, own: &Observation, seen: &Observation) -> Option<(u32, u32)> {
        match witness {
            Witness::BunchCrossing => self.crossings(own, seen),
            Witness::Time => None,
        }
    }

    #[inline]
    pub(super) fn crossings(&self, own: &Observation, seen: &Observation) -> Option<(u32, u32)> {
        let (own, seen) = (u32::from(own.bunch_crossing()?), u32::from(seen.bunch_crossing()?));
        let shifted = seen + self.crossing_shift;
        let expected = if shifted >= self.orbit { shifted - self.orbit } else { shifted };
        Some((own & self.crossing_mask, expected & self.crossing_mask))
    }

    /// The source's interval from `before` to `after`, in its ticks, negative if time runs backwards.
    #[inline]
    pub(super) fn interval(&self, before: &Observation, after: &Observation) -> Option<i64> {
        Some(interval(before.time()?, after.time()?, self.unused_time_bits))
    }

    /// The same for the reference.
    #[inline]
    pub(super) fn reference_interval(&self, before: &Observation, after: &Observation) -> Option<i64> {
        Some(interval(before.time()?, after.time()?, self.unused_reference_time_bits))
    }

    /// Stops comparing these bits of a key.
    pub(super) const fn ignore(&mut self, witness: Witness, bits: u32) {
        match witness {
            Witness::BunchCrossing => self.crossing_mask &= !bits,
            Witness::Time => {}
        }
    }

    /// The clock with this ratio, for a typical interval of the reference of `interval` of its ticks. None if ticks are
    /// too coarse for intervals to differ.
    ///
    /// The tolerance is a fraction of the interval, so that it needs no knowledge of a detector's jitter, but at least
    /// the configured number of ticks of the coarser clock.
    fn clock_with(&self, ratio: f64, interval: f64) -> Option<Clock> {
        const FRACTION: f64 = 1.0 / 32.0;
        const COARSEST: f64 = 1.0 / 4.0;
        let typical = ratio * interval;
        let tolerance = (typical * FRACTION).max(self.jitter * ratio.max(1.0));
        (tolerance <= typical * COARSEST).then_some(Clock { ratio, tolerance })
    }
}

/// Counters narrower than 64 bits wrap: the difference is taken modulo their width, with a sign.
const fn interval(before: u64, after: u64, unused_bits: u8) -> i64 {
    ((after.wrapping_sub(before) << unused_bits) as i64) >> unused_bits
}
