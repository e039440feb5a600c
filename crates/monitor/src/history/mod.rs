//! How the run went, second by second for an hour and minute by minute for a week, in fixed memory.
//!
//! ```text
//!  Sample, Sample ── Rates ── a Point ──┬── Ring of 3,600 seconds ─────┬── a Stretch: what people plot
//!                                       └── Ring of 10,080 minutes ────┘
//! ```
//! A place in a ring belongs to one second (minute) of civil time: clocks that are set back write over what stands there, and
//! times in which nothing was seen stay empty. Several looks within one place are put together as the series says. As bytes every place has its own
//! too, so that whoever keeps them in a file writes over what is forgotten, and the file never grows.

mod record;
mod ring;
mod series;
mod stretch;
#[cfg(test)]
mod tests;

pub use record::Record;
pub use series::{SERIES, Series, Together};
pub use stretch::Stretch;

use crate::{Rates, Sample};
use record::{HEADER_BYTES, RECORD_BYTES};
use ring::Ring;
pub(crate) use series::Seen;
use std::sync::Arc;

/// Seconds that are kept one by one.
const SECONDS: usize = 3_600;
/// Minutes that are kept one by one: seven days.
const MINUTES: usize = 7 * 24 * 60;
/// Seconds of a minute.
const MINUTE: u32 = 60;
/// Seconds of the longest step: a day.
const LONGEST_STEP: u32 = 24 * 3_600;

/// The past of a sequence of runs.
#[derive(Clone, Debug)]
pub struct History {
    seconds: Ring,
    minutes: Ring,
    last: Option<Arc<Sample>>,
}

impl Default for History {
    fn default() -> Self {
        Self { seconds: Ring::new(1, SECONDS), minutes: Ring::new(MINUTE, MINUTES), last: None }
    }
}

impl History {
    /// Looks at the next sample: once a second is right. One that it has seen says nothing new.
    pub fn observe(&mut self, sample: impl Into<Arc<Sample>>) {
        let sample = sample.into();
        if let Some(before) = &self.last
            && let Some(rates) = Rates::between(before, &sample)
        {
            let seen = Seen { before, now: &sample, rates: &rates };
            let second = sample.utc.0.div_euclid(1_000_000_000);
            let values = core::array::from_fn(|place| SERIES[place].value(seen));
            self.seconds.note(second, &values);
            self.minutes.note(second, &values);
        }
        self.last = Some(sample);
    }

    /// Bytes of a file that has all of it.
    pub const FILE_BYTES: usize = HEADER_BYTES + (SECONDS + MINUTES) * RECORD_BYTES;

    /// What a file begins with.
    pub fn header() -> [u8; HEADER_BYTES] {
        record::header()
    }

    /// The places that the last look changed, and where in a file each of them stands.
    pub fn changed(&self) -> impl Iterator<Item = (u64, Record)> {
        let seconds = self.seconds.newest();
        let minutes = self.minutes.newest().map(|(place, point)| (SECONDS + place, point));
        let at = |place: usize| (HEADER_BYTES + place * RECORD_BYTES) as u64;
        seconds.into_iter().chain(minutes).map(move |(place, point)| (at(place), record::encode(point)))
    }

    /// What a file has; places that were torn or never written are empty, and so is everything where the file is not of this kind or has other
    /// series.
    pub fn restore(file: &[u8]) -> Self {
        let mut history = Self::default();
        if let Some(places) = file.strip_prefix(&record::header()) {
            for (place, record) in places.chunks(RECORD_BYTES).enumerate().take(SECONDS + MINUTES) {
                let ring = if place < SECONDS { &mut history.seconds } else { &mut history.minutes };
                record::decode(record).into_iter().for_each(|point| ring.restore(point));
            }
        }
        history
    }

    /// What is kept from the second `since` (of 1970-01-01T00:00:00Z) on, in steps of so many seconds; of a minute or more they
    /// are whole minutes, a day at most, and go back seven days, shorter ones an hour.
    pub fn stretch(&self, since: i64, step_seconds: u32) -> Stretch {
        if step_seconds < MINUTE {
            Stretch::of(&self.seconds, since, step_seconds.max(1))
        } else {
            Stretch::of(&self.minutes, since, step_seconds.min(LONGEST_STEP).next_multiple_of(MINUTE))
        }
    }
}
