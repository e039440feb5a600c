//! Whether two observations speak of the same trigger, by one kind of key.

use super::{Observation, SourceConfig};

/// A kind of key by which two sources can be compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Witness {
    /// The number that the trigger system handed out.
    TriggerTag = 0,
    /// The bunch crossing.
    BunchCrossing = 1,
    /// The time since the trigger before.
    Time = 2,
}

/// All kinds, the strongest first.
pub(super) const WITNESSES: [Witness; 3] = [Witness::TriggerTag, Witness::BunchCrossing, Witness::Time];

/// How the clock of a source relates to that of the reference.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(super) struct Clock {
    /// Ticks of the source in a tick of the reference; 0 as long as it is not known.
    pub(super) ratio: f64,
    /// By how many ticks of the source equal intervals may differ.
    pub(super) tolerance: f64,
}

/// Long intervals (between spills) may differ by more: the fitted ratio is only so good.
const RATIO_UNCERTAINTY: f64 = 2e-4;

impl Clock {
    /// Whether both intervals lie between the same two triggers.
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
    tag_shift: u32,
    tag_mask: u32,
    orbit: u32,
    crossing_shift: u32,
    crossing_mask: u32,
    unused_time_bits: u8,
    unused_reference_time_bits: u8,
    jitter: f64,
    /// How the clocks relate; fitted as the run goes.
    pub(super) clock: Clock,
}

impl Comparer {
    pub(super) fn new(source: &SourceConfig, reference: &SourceConfig, orbit: u16) -> Self {
        // Without an orbit the counter is free-running, as wide as the field.
        let orbit = if orbit == 0 { 1 << 16 } else { u32::from(orbit) };
        let shift = i32::from(reference.bunch_crossing_offset) - i32::from(source.bunch_crossing_offset);
        Self {
            tag_shift: reference.trigger_tag_offset.wrapping_sub(source.trigger_tag_offset) as u32,
            tag_mask: source.trigger_tag_mask & reference.trigger_tag_mask,
            orbit,
            crossing_shift: shift.rem_euclid(orbit as i32) as u32,
            crossing_mask: u32::from(source.bunch_crossing_mask & reference.bunch_crossing_mask),
            unused_time_bits: 64 - source.time_bits.clamp(1, 64),
            unused_reference_time_bits: 64 - reference.time_bits.clamp(1, 64),
            jitter: f64::from(source.time_tolerance.max(reference.time_tolerance)),
            clock: Clock::default(),
        }
    }

    /// Whether this kind of key is compared at all.
    pub(super) const fn uses(&self, witness: Witness) -> bool {
        match witness {
            Witness::TriggerTag => self.tag_mask != 0,
            Witness::BunchCrossing => self.crossing_mask != 0,
            Witness::Time => true,
        }
    }

    /// The source's key and the one that the reference lets expect, as the source writes it, in the bits compared.
    pub(super) fn numbers(&self, witness: Witness, own: &Observation, seen: &Observation) -> Option<(u32, u32)> {
        match witness {
            Witness::TriggerTag => self.tags(own, seen),
            Witness::BunchCrossing => self.crossings(own, seen),
            Witness::Time => None,
        }
    }

    #[inline]
    pub(super) fn tags(&self, own: &Observation, seen: &Observation) -> Option<(u32, u32)> {
        let (own, seen) = (own.trigger_tag()?, seen.trigger_tag()?);
        Some((own & self.tag_mask, seen.wrapping_add(self.tag_shift) & self.tag_mask))
    }

    #[inline]
    pub(super) fn crossings(&self, own: &Observation, seen: &Observation) -> Option<(u32, u32)> {
        let (own, seen) = (u32::from(own.bunch_crossing()?), u32::from(seen.bunch_crossing()?));
        let shifted = seen + self.crossing_shift;
        let expected = if shifted >= self.orbit { shifted - self.orbit } else { shifted };
        Some((own & self.crossing_mask, expected & self.crossing_mask))
    }

    /// The source's interval from `before` to `after`, in its ticks, negative where time runs backwards.
    #[inline]
    pub(super) fn interval(&self, before: &Observation, after: &Observation) -> Option<i64> {
        Some(interval(before.time()?, after.time()?, self.unused_time_bits))
    }

    /// The same of the reference.
    #[inline]
    pub(super) fn reference_interval(&self, before: &Observation, after: &Observation) -> Option<i64> {
        Some(interval(before.time()?, after.time()?, self.unused_reference_time_bits))
    }

    /// Stops comparing these bits of a key.
    pub(super) const fn ignore(&mut self, witness: Witness, bits: u32) {
        match witness {
            Witness::TriggerTag => self.tag_mask &= !bits,
            Witness::BunchCrossing => self.crossing_mask &= !bits,
            Witness::Time => {}
        }
    }

    /// The clock with this ratio, where the reference's triggers are typically `interval` of its ticks apart. None
    /// where ticks are too coarse for intervals to differ.
    ///
    /// The tolerance is a fraction of the interval, so that nobody has to know a detector's jitter, and never less
    /// than the configured number of ticks of the coarser clock.
    pub(super) fn clock_with(&self, ratio: f64, interval: f64) -> Option<Clock> {
        const FRACTION: f64 = 1.0 / 32.0;
        const COARSEST: f64 = 1.0 / 4.0;
        let typical = ratio * interval;
        let tolerance = (typical * FRACTION).max(self.jitter * ratio.max(1.0));
        (tolerance <= typical * COARSEST).then_some(Clock { ratio, tolerance })
    }
}

/// Counters narrower than 64 bits wrap: the difference is taken modulo their width, and with a sign.
const fn interval(before: u64, after: u64, unused_bits: u8) -> i64 {
    ((after.wrapping_sub(before) << unused_bits) as i64) >> unused_bits
}
