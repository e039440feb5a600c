//! The first question about a source in doubt, or about a new one: does it stand where it is watched, or in step?

use super::comparer::{Clock, WITNESSES, Witness};
use super::history::History;
use super::pairing::{Pairing, Tally, fitted_clock, typical_interval};
use super::standing::Standing;
use super::watch::Watch;
use ropewalk_terms::EventKey;

/// Telling pairs that are asked for. Keys of random triggers agree by chance in at most one of ten, so 12 of 16 that
/// agree are one chance in 10^9.
const TELLING_WANTED: u32 = 16;
/// Telling pairs in the window below which the reference's keys are too regular to say anything.
const TELLING_NEEDED: u32 = 12;
/// Pairs below which nothing is said.
const PAIRS_NEEDED: u32 = 16;

/// What a source is judged by.
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

/// The answer.
#[derive(Copy, Clone, Debug)]
pub(super) enum Assessment {
    /// No kind of key that both have in enough events.
    TooFew,
    /// The reference's keys are too regular. The kind that may still be watched.
    NoInformation(Option<Witness>),
    /// It stands at this offset.
    Stands {
        witness: Witness,
        offset: i16,
        clock: Option<Clock>,
        stuck: u32,
        /// Stronger kinds of key that said otherwise of the same events.
        contradicted: [bool; 3],
    },
    /// It stands neither where it is watched nor in step, as these kinds of key say.
    Elsewhere { denying: [bool; 3] },
}

impl<'a> Scene<'a> {
    /// The source beside the reference.
    pub(super) fn pairing(&self, witness: Witness, offset: i64) -> Pairing<'a> {
        let comparer = self.watch.comparer;
        Pairing { history: self.history, source: self.source, reference: self.reference, comparer, witness, offset }
    }

    /// The reference's typical interval.
    pub(super) fn typical_interval(&self) -> Option<f64> {
        typical_interval(self.history, self.reference, &self.watch.comparer, self.newest)
    }

    /// The kinds of key that may be asked, the strongest first.
    pub(super) fn witnesses(&self) -> impl Iterator<Item = Witness> + use<'a> {
        let (watch, standing) = (self.watch, self.standing);
        WITNESSES.into_iter().filter(|&witness| watch.comparer.uses(witness) && standing.trusts(witness))
    }

    /// Asks one kind of key after the other.
    ///
    /// A weaker kind is asked about the same events only as the stronger kind that denied: otherwise it could speak
    /// for a time before the source slipped.
    pub(super) fn assess(&self) -> Assessment {
        let mut floor = EventKey::MIN;
        let mut contradicted = [false; 3];
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

    /// Where it is watched, then in step.
    fn offsets(&self) -> impl Iterator<Item = i16> + use<> {
        let watched = self.watch.offset;
        core::iter::once(watched).chain((watched != 0).then_some(0))
    }

    /// A new relation needs most of the telling pairs; an old one is given up where it holds for fewer than half.
    fn stands(&self, tally: &Tally, offset: i16) -> bool {
        let quarters = if self.standing.is_at(offset) { 2 } else { 3 };
        tally.telling_agreed * 4 >= tally.telling * quarters
    }

    /// The tally at an offset, with the clock and without the stuck bit with which it agrees best. Nothing where
    /// pairs are too few.
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

    /// With the clock as known, and where that does not fit, or is not known, with one fitted to the newest events.
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

/// The known ratio drawn a little towards the fitted one, where that is near: further off it is a jump of time.
fn refined(known: f64, fitted: Option<Clock>) -> f64 {
    const NEAR: f64 = 1e-3;
    const WEIGHT: f64 = 0.25;
    let deviation = fitted.map_or(0.0, |fitted| fitted.ratio / known - 1.0);
    if deviation.abs() < NEAR { known * (1.0 + WEIGHT * deviation) } else { known }
}
