//! The search for the offset of a source that stands neither where it was nor in step: a few offsets per event, so
//! that no event waits for it.

use super::REACH;
use super::assess::Scene;
use super::comparer::{Clock, WITNESSES, Witness};
use super::pairing::{Pairing, fitted_clock};
use ropewalk_terms::EventKey;

/// How many offsets there are.
const OFFSETS: usize = 2 * REACH as usize + 1;
/// Pairs after which an offset is given up if fewer than half agree.
const PROBE: u32 = 16;
/// By how many events an offset must be better than the watched one.
const ADVANTAGE_NEEDED: f64 = 12.0;
/// Chance that another offset agrees as well by accident: 2 to the power of minus this, for each search.
const BITS_NEEDED: f64 = 36.0;
/// A rival offset that is nearly as good must be this many times as far away not to leave the answer open.
const RIVAL_DISTANCE: u16 = 4;

/// A search under way. It looks at the events up to the one at which it began.
#[derive(Debug)]
pub(super) struct Search {
    source: usize,
    newest: EventKey,
    /// The kinds of key that are still to be asked, by number.
    asked: [bool; 3],
    /// The place of the offset to try next.
    next: usize,
    /// Whether clock ratios are fitted for each offset, or the known one holds.
    fits: bool,
    typical: Option<f64>,
    advantages: [u32; OFFSETS],
    /// Pairs at any offset whose event disagrees where the source is watched, and how many of them agree by chance.
    tried: u32,
    matched: u32,
}

/// How the search stands after a step.
#[derive(Copy, Clone, Debug)]
pub(super) enum Step {
    /// There is more to try.
    More,
    /// The source stands at this offset, since this event.
    Found { witness: Witness, offset: i16, since: EventKey, clock: Option<Clock> },
    /// At none.
    Nothing,
}

/// What one offset is worth.
#[derive(Copy, Clone, Debug)]
struct Trial {
    /// Agreements where the watched offset disagrees, less disagreements, over the newest events up to where that is
    /// best.
    advantage: u32,
    /// Where that is.
    since: EventKey,
}

impl Search {
    /// A search that has yet to begin, by these kinds of key.
    pub(super) fn new(scene: &Scene<'_>, asked: [bool; 3]) -> Self {
        let known = scene.watch.comparer.clock.is_known();
        Self {
            source: scene.source,
            newest: scene.newest,
            asked,
            next: 0,
            // A known ratio is the sharper tool; where it found nothing the clock itself may have changed.
            fits: !known || scene.standing.fruitless % 2 == 1,
            typical: scene.typical_interval(),
            advantages: [0; OFFSETS],
            tried: 0,
            matched: 0,
        }
    }

    /// Whose offset is searched.
    pub(super) const fn source(&self) -> usize {
        self.source
    }

    /// Tries offsets until about `budget` rows were looked at; what is left of it is handed back.
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
        // Since when is asked of the whole history.
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

    /// The strongest kind of key that is still to be asked.
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

    /// What an offset is worth in the newest `window` pairs, if anything, and how many rows were looked at.
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

    /// The offset that is better than the watched one by more than chance explains, and stands alone.
    ///
    /// How often a wrong offset agrees is measured by the search itself, on the events that disagree where the
    /// source is watched; the rarer that is, the fewer events suffice.
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

/// The offset at a place of the list.
const fn offset(place: usize) -> i16 {
    place as i16 - REACH
}
