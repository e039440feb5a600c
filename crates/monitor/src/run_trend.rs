//! The trend of a run: its rates and occupancies by its age, to compare later runs with.

use crate::history::{History, SERIES};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run's rates, sizes and occupancies by its age.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunTrend {
    /// [`RunTrend::SCHEMA`].
    pub schema: String,
    /// The run.
    pub run: u32,
    /// Seconds of one step.
    pub step_seconds: u32,
    /// By the names of the history's series: a value, or none, for each step from the run's start on.
    pub series: BTreeMap<String, Vec<Option<f32>>>,
}

/// Steps of a trend at most.
const MOST_STEPS: i64 = 600;
/// So much of the past the history surely has second by second; of longer runs it has minutes.
const BY_SECONDS: i64 = 3_500;

impl RunTrend {
    /// The version of this form.
    pub const SCHEMA: &'static str = "ropewalk-course-1";

    /// Of the run that began and ended in these seconds of 1970-01-01T00:00:00Z; none where the history knows nothing of it.
    pub fn of(run: u32, history: &History, began: i64, ended: i64) -> Option<Self> {
        let span = (ended - began).max(1);
        let fine = if span <= BY_SECONDS { 1 } else { 60 };
        let step = fine * (span + fine * MOST_STEPS - 1).div_euclid(fine * MOST_STEPS);
        let stretch = history.stretch(began, fine as u32);
        let steps = (span.div_euclid(step) + 1) as usize;
        let mut series = BTreeMap::new();
        for (known, values) in SERIES.iter().zip(&stretch.series) {
            let (mut column, mut counts) = (vec![None; steps], vec![0; steps]);
            let of_run = stretch.times.iter().zip(values).filter(|&(&time, _)| time >= began && time <= ended);
            for (time, value) in of_run.filter_map(|(time, value)| Some((time, (*value)?))) {
                let place = (time - began).div_euclid(step) as usize;
                let before = column[place];
                column[place] = Some(before.map_or(value, |before| known.put_together(before, counts[place], value)));
                counts[place] += 1;
            }
            series.insert(known.name.to_owned(), column);
        }
        let is_known = series.values().flatten().any(Option::is_some);
        is_known.then(|| Self { schema: Self::SCHEMA.to_owned(), run, step_seconds: step as u32, series })
    }

    /// What a series was when the run was so old; none where that is not known, and behind the run's end.
    pub fn at(&self, series: &str, age: Duration) -> Option<f64> {
        let place = usize::try_from(age.as_secs().checked_div(u64::from(self.step_seconds))?).ok()?;
        self.series.get(series)?.get(place).copied().flatten().map(f64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;
    use proptest::prelude::*;
    use ropewalk_terms::{EventAccount, Instant, RunNumber, Utc};

    /// A history in which so many events a second were built, from the second 1,000 on.
    fn history(rates: &[u64]) -> History {
        let (mut history, mut built) = (History::default(), 0);
        for (second, rate) in (1_000..).zip([0].iter().chain(rates)) {
            built += rate;
            history.observe(Sample {
                run: RunNumber(1),
                phase: "running",
                time: Instant::from_nanoseconds(second * 1_000_000_000),
                utc: Utc(second as i64 * 1_000_000_000),
                events: EventAccount { built, ..EventAccount::default() },
                ..Sample::default()
            });
        }
        history
    }

    fn rate(trend: &RunTrend, second: u64) -> Option<f64> {
        trend.at("events_per_second", Duration::from_secs(second))
    }

    #[test]
    fn a_course_begins_with_the_run_and_ends_with_it() {
        let history = history(&[7, 7, 7, 10, 20, 30, 7, 7]);
        let trend = RunTrend::of(3, &history, 1_004, 1_006).expect("it is known");
        assert_eq!((trend.run, trend.step_seconds), (3, 1));
        assert_eq!([0, 1, 2, 3].map(|second| rate(&trend, second)), [Some(10.0), Some(20.0), Some(30.0), None]);
        assert_eq!(trend.at("nothing_of_this_name", Duration::ZERO), None);
        assert_eq!(RunTrend::of(3, &history, 5_000, 5_010), None, "nothing was seen then");
    }

    #[test]
    fn a_long_run_has_few_steps_and_their_means() {
        let rates: Vec<u64> = (0..1_800).map(|second| if second % 3 == 1 { 30 } else { 0 }).collect();
        let trend = RunTrend::of(3, &history(&rates), 1_001, 2_800).expect("it is known");
        assert_eq!(trend.step_seconds, 3);
        assert!((0..1_790).all(|second| rate(&trend, second) == Some(10.0)), "{trend:?}");
    }

    proptest! {
        #[test]
        fn any_course_is_bounded_and_says_nothing_of_other_times(rates in prop::collection::vec(1..100_u64, 1..200), began in 900..1_300_i64, span in 0..100_000_i64) {
            let Some(trend) = RunTrend::of(1, &history(&rates), began, began + span) else { return Ok(()) };
            let steps = trend.series.values().map(Vec::len).max().unwrap_or(0);
            prop_assert!(steps as i64 <= MOST_STEPS + 1, "{steps}");
            let (last, step) = (1_000 + rates.len() as i64, i64::from(trend.step_seconds));
            for place in 0..steps as i64 {
                let (from, until) = (began + place * step, began + (place + 1) * step);
                let value = rate(&trend, (place * step) as u64);
                // A minute of the history is known by its first second.
                prop_assert!(value.is_none() || until > 1_001 - 60 && from <= last, "{place}: {value:?}");
            }
        }
    }
}
