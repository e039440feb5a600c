//! Rate history: the last hour by the second and the last week by the minute, in fixed memory.
//!
//! ```text
//!  Sample, Sample ── Rates ── a Point ──┬── Ring of 3,600 seconds ─────┬── a Stretch, to plot
//!                                       └── Ring of 10,080 minutes ────┘
//! ```
//! A place in a ring belongs to one second (minute) of civil time: clocks that are set back write over the earlier
//! values, and times in which nothing was seen stay empty. Several looks within one place are combined as the series
//! says. Each place has a fixed offset in the file too, so new places write over forgotten ones and the file never
//! grows.
//!
//! As bytes the places are of a fixed size, each with a checksum: a file is written in place, and a torn write costs
//! one place.
//!
//! ```text
//!  0        8                16          64
//!  │ magic  │ series         │ zeros     │ 3,600 seconds │ 10,080 minutes │
//!
//!  of a place:  number (8) │ values (4 each, NaN for none) │ counts (2 each) │ checksum (8)
//! ```
//! All numbers are little-endian. Which series there are is a checksum of their names: a file of others is not read.

use core::ops::Range;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ropewalk_terms::{Counter, Measure, Role};
use serde::{Deserialize, Serialize};

use crate::{NodeRates, Rates, Sample};

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
        header()
    }

    /// The places that the last look changed, and where in a file each of them stands.
    pub fn changed(&self) -> impl Iterator<Item = (u64, Record)> {
        let seconds = self.seconds.newest();
        let minutes = self.minutes.newest().map(|(place, point)| (SECONDS + place, point));
        let at = |place: usize| (HEADER_BYTES + place * RECORD_BYTES) as u64;
        seconds.into_iter().chain(minutes).map(move |(place, point)| (at(place), encode(point)))
    }

    /// Reads a file. Torn or unwritten places are empty; everything is empty if the file has another kind or other
    /// series.
    pub fn restore(file: &[u8]) -> Self {
        let mut history = Self::default();
        if let Some(places) = file.strip_prefix(&header()) {
            for (place, record) in places.chunks(RECORD_BYTES).enumerate().take(SECONDS + MINUTES) {
                let ring = if place < SECONDS { &mut history.seconds } else { &mut history.minutes };
                decode(record).into_iter().for_each(|point| ring.restore(point));
            }
        }
        history
    }

    /// What is kept from the second `since` (of 1970-01-01T00:00:00Z) on, in steps of this many seconds; of a minute or
    /// more they are whole minutes, a day at most, and go back seven days, shorter ones an hour.
    pub fn stretch(&self, since: i64, step_seconds: u32) -> Stretch {
        if step_seconds < MINUTE {
            Stretch::of(&self.seconds, since, step_seconds.max(1))
        } else {
            Stretch::of(&self.minutes, since, step_seconds.min(LONGEST_STEP).next_multiple_of(MINUTE))
        }
    }
}

/// How several values of one series become one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Together {
    /// Their mean.
    Mean,
    /// The maximum: a short peak stays visible in a plot of a week.
    Greatest,
}

/// Two samples of a run, and the difference between them.
#[derive(Copy, Clone)]
pub(crate) struct Seen<'a> {
    pub(crate) before: &'a Sample,
    pub(crate) now: &'a Sample,
    pub(crate) rates: &'a Rates,
}

impl Seen<'_> {
    /// The mean size of the events that were built in between; `None` if there were none.
    fn event_size(self) -> Option<f64> {
        self.now.distribution(Measure::EventSize).since(&self.before.distribution(Measure::EventSize)).mean()
    }

    /// How much a count grew in between, per second.
    fn per_second(self, count: impl Fn(&Sample) -> u64) -> f64 {
        count(self.now).saturating_sub(count(self.before)) as f64 / self.rates.seconds
    }

    /// The time that this part of all that was measured in between did not exceed, in seconds; `None` if nothing was
    /// measured.
    fn quantile(self, measure: Measure, part: f64) -> Option<f64> {
        let between = self.now.distribution(measure).since(&self.before.distribution(measure));
        between.quantile(part).map(|nanoseconds| nanoseconds as f64 / 1e9)
    }
}

/// A series of numbers.
#[derive(Copy, Clone, Debug)]
pub struct Series {
    /// The stable name, with its unit.
    pub name: &'static str,
    /// How several values become one.
    pub together: Together,
    of: fn(Seen<'_>) -> Option<f64>,
}

/// Every series. What is appended here is appended to each place of a ring.
pub const SERIES: &[Series; 12] = &[
    Series::new("events_per_second", Together::Mean, |seen| Some(seen.rates.events_hz)),
    Series::new("bytes_in_per_second", Together::Mean, |seen| Some(seen.rates.bytes_in_per_second)),
    Series::new("bytes_to_disk_per_second", Together::Mean, |seen| Some(seen.rates.bytes_to_disk_per_second)),
    Series::new("event_size_bytes", Together::Mean, |seen| seen.event_size()),
    Series::new("live_share", Together::Mean, |seen| Some(seen.rates.live_share)),
    Series::new("pool_share", Together::Greatest, |seen| fullest_pool(seen.rates)),
    Series::new("events_in_flight", Together::Greatest, |seen| Some(seen.rates.events_in_flight as f64)),
    Series::new("build_latency_p50_seconds", Together::Greatest, |seen| seen.quantile(Measure::BuildLatency, 0.5)),
    Series::new("build_latency_p99_seconds", Together::Greatest, |seen| seen.quantile(Measure::BuildLatency, 0.99)),
    Series::new("disk_write_p99_seconds", Together::Greatest, |seen| seen.quantile(Measure::DiskWriteTime, 0.99)),
    Series::new("incomplete_per_second", Together::Mean, |seen| Some(seen.per_second(Sample::incomplete_events))),
    Series::new("doubtful_per_second", Together::Mean, |seen| {
        Some(seen.per_second(|sample| sample.total(Counter::EventsDoubtful)))
    }),
];

impl Series {
    const fn new(name: &'static str, together: Together, of: fn(Seen<'_>) -> Option<f64>) -> Self {
        Self { name, together, of }
    }

    /// Its value now; `None` if no node reported it. Single precision is more than a plot shows.
    pub(crate) fn value(&self, seen: Seen<'_>) -> Option<f32> {
        (self.of)(seen).map(|value| value as f32)
    }

    /// What `known`, which is of `count` values, becomes with one more.
    pub(crate) fn put_together(&self, known: f32, count: u16, value: f32) -> f32 {
        match self.together {
            Together::Mean => known + (value - known) / (f32::from(count) + 1.0),
            Together::Greatest => known.max(value),
        }
    }
}

/// The part of its pool that the readout unit with the fullest one holds; without readout units, of its sets that a
/// gateway holds.
fn fullest_pool(rates: &Rates) -> Option<f64> {
    let is_readout = |node: &&NodeRates| node.node.role == Role::Readout;
    let has_readouts = rates.nodes.iter().any(|node| is_readout(&node));
    let nodes = rates.nodes.iter().filter(|node| !has_readouts || is_readout(node));
    nodes.filter_map(|node| node.pool_share).max_by(f64::total_cmp)
}

/// A part of the past: times with the same distance, and a value or none of each series for each of them. It begins
/// where something is known.
#[derive(Clone, PartialEq, Debug)]
pub struct Stretch {
    /// Seconds from one time to the next.
    pub step_seconds: u32,
    /// Seconds since 1970-01-01T00:00:00Z in which each step begins.
    pub times: Vec<i64>,
    /// The values of each series, in the order of [`SERIES`].
    pub series: Vec<Vec<Option<f32>>>,
}

impl Stretch {
    /// From the second `since` on; the step is a multiple of a place's seconds.
    fn of(ring: &Ring, since: i64, step_seconds: u32) -> Self {
        let places = i64::from(step_seconds / ring.seconds());
        let mut stretch = Self { step_seconds, times: Vec::new(), series: vec![Vec::new(); SERIES.len()] };
        let numbers = ring.numbers(since);
        let last = (numbers.end - 1).div_euclid(places);
        let steps = if numbers.is_empty() { 0..0 } else { numbers.start.div_euclid(places)..last + 1 };
        for step in steps {
            let known = (step * places..(step + 1) * places).filter_map(|number| ring.point(number));
            let values = together(known);
            if values.is_some() || !stretch.times.is_empty() {
                stretch.push(step * i64::from(step_seconds), values.unwrap_or_default());
            }
        }
        stretch
    }

    fn push(&mut self, time: i64, values: Values) {
        self.times.push(time);
        self.series.iter_mut().zip(values).for_each(|(series, value)| series.push(value));
    }
}

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
/// The seconds for which the history always has single seconds; earlier it has minutes.
const BY_SECONDS: i64 = 3_500;

impl RunTrend {
    /// The version of this form.
    pub const SCHEMA: &'static str = "ropewalk-course-1";

    /// Of the run that began and ended in these seconds of 1970-01-01T00:00:00Z; `None` if the history has nothing of
    /// it.
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

    /// The value of a series when the run had this age; `None` if that is unknown, and after the run's end.
    pub fn at(&self, series: &str, age: Duration) -> Option<f64> {
        let place = usize::try_from(age.as_secs().checked_div(u64::from(self.step_seconds))?).ok()?;
        self.series.get(series)?.get(place).copied().flatten().map(f64::from)
    }
}

/// The values of several places; `None` if nothing is known of any.
fn together<'a>(points: impl Iterator<Item = &'a Point>) -> Option<Values> {
    points
        .fold(None, |all: Option<Point>, point| {
            let mut all = all.unwrap_or(Point::empty(0));
            all.add(&point.values);
            Some(all)
        })
        .map(|all| all.values)
}

/// One value of each series; `None` if no node reported it.
type Values = [Option<f32>; SERIES.len()];

/// What was seen in the time of one place.
#[derive(Copy, Clone, PartialEq, Debug)]
struct Point {
    /// Which of all times it is: seconds since 1970-01-01T00:00:00Z by the seconds of a place.
    number: i64,
    values: Values,
    /// Of how many looks each is.
    counts: [u16; SERIES.len()],
}

impl Point {
    const fn empty(number: i64) -> Self {
        Self { number, values: [None; SERIES.len()], counts: [0; SERIES.len()] }
    }

    /// Takes one more look in.
    fn add(&mut self, values: &Values) {
        for (place, series) in SERIES.iter().enumerate() {
            let Some(value) = values[place] else { continue };
            let count = self.counts[place];
            self.values[place] =
                Some(self.values[place].map_or(value, |known| series.put_together(known, count, value)));
            self.counts[place] = count.saturating_add(1);
        }
    }
}

/// The latest places.
#[derive(Clone, Debug)]
struct Ring {
    seconds: u32,
    places: Box<[Option<Point>]>,
    newest: Option<i64>,
}

impl Ring {
    /// Room for this many places of this many seconds each.
    fn new(seconds: u32, places: usize) -> Self {
        Self { seconds, places: vec![None; places].into(), newest: None }
    }

    /// Seconds of a place.
    const fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Something was seen in this second of civil time.
    fn note(&mut self, second: i64, values: &Values) {
        let number = second.div_euclid(i64::from(self.seconds));
        let place = self.place(number);
        let point = self.places[place].get_or_insert(Point::empty(number));
        if point.number != number {
            *point = Point::empty(number);
        }
        point.add(values);
        self.newest = Some(number);
    }

    /// The latest point and its place; `None` if nothing was seen.
    fn newest(&self) -> Option<(usize, &Point)> {
        let number = self.newest?;
        Some((self.place(number), self.point(number)?))
    }

    /// A point of earlier.
    fn restore(&mut self, point: Point) {
        self.newest = self.newest.max(Some(point.number));
        let place = self.place(point.number);
        self.places[place] = Some(point);
    }

    /// What was seen in this time; `None` if nothing was, or if it is forgotten.
    fn point(&self, number: i64) -> Option<&Point> {
        self.places[self.place(number)].as_ref().filter(|point| point.number == number)
    }

    /// The numbers of the times that may be in the history from the second `since` on; empty if there is no sample.
    fn numbers(&self, since: i64) -> Range<i64> {
        let Some(newest) = self.newest else { return 0..0 };
        let oldest = newest + 1 - self.places.len() as i64;
        oldest.max(since.div_euclid(i64::from(self.seconds)))..newest + 1
    }

    fn place(&self, number: i64) -> usize {
        number.rem_euclid(self.places.len() as i64) as usize
    }
}

/// First bytes of a file.
const MAGIC: &[u8; 8] = b"RWhistor";
/// Bytes before the first place.
const HEADER_BYTES: usize = 64;
/// Bytes of a place.
const RECORD_BYTES: usize = 8 + SERIES.len() * (4 + 2) + 8;

/// A place as bytes of the file.
pub type Record = [u8; RECORD_BYTES];

/// The bytes before the places.
fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    let names: Vec<u8> = SERIES.iter().flat_map(|series| series.name.bytes().chain([0])).collect();
    header[8..16].copy_from_slice(&checksum(&names).to_le_bytes());
    header
}

/// A place as bytes.
fn encode(point: &Point) -> Record {
    let mut record = [0; RECORD_BYTES];
    let values = point.values.iter().flat_map(|value| value.unwrap_or(f32::NAN).to_le_bytes());
    let counts = point.counts.iter().flat_map(|count| count.to_le_bytes());
    let bytes = point.number.to_le_bytes().into_iter().chain(values).chain(counts);
    record.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    let end = RECORD_BYTES - 8;
    let sum = checksum(&record[..end]);
    record[end..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// A place from bytes; `None` if it was not written, or not completely.
fn decode(record: &[u8]) -> Option<Point> {
    let (content, sum) = record.split_last_chunk::<8>()?;
    if content.len() != RECORD_BYTES - 8 || u64::from_le_bytes(*sum) != checksum(content) {
        return None;
    }
    let (number, rest) = content.split_first_chunk::<8>()?;
    let (values, counts) = rest.split_at(4 * SERIES.len());
    let mut point = Point::empty(i64::from_le_bytes(*number));
    for (value, bytes) in point.values.iter_mut().zip(values.as_chunks().0) {
        *value = Some(f32::from_le_bytes(*bytes)).filter(|value| value.is_finite());
    }
    for (count, bytes) in point.counts.iter_mut().zip(counts.as_chunks().0) {
        *count = u16::from_le_bytes(*bytes);
    }
    Some(point)
}

/// FNV-1a of 64 bits: enough to detect a torn write, in ten lines. An empty place has another checksum than zeros.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    //! What is kept, for how long, and how several looks become one.

    use proptest::prelude::*;
    use ropewalk_terms::{Counter, EventAccount, Instant, Measure, RunNumber, Utc};

    use super::{History, SERIES, Stretch, *};
    use crate::made_up::{sample, source};
    use crate::{Distribution, Sample};

    fn point() -> Point {
        let mut point = Point::empty(1_700_000_000);
        (point.values[0], point.counts[0]) = (Some(98_304.5), 3);
        point.values[SERIES.len() - 1] = Some(0.25);
        point
    }

    #[test]
    fn a_place_goes_there_and_back() {
        assert_eq!(decode(&encode(&point())), Some(point()));
    }

    #[test]
    fn what_was_torn_or_never_written_is_nothing() {
        let (old, new) = (encode(&Point { number: 1_699_996_400, ..point() }), encode(&point()));
        for written in 1..RECORD_BYTES {
            let torn: Vec<u8> = new[..written].iter().chain(&old[written..]).copied().collect();
            // Where both are alike, the torn one is the old one or the new one.
            assert!(torn == old || torn == new || decode(&torn).is_none(), "{written}");
        }
        assert_eq!(decode(&[0; RECORD_BYTES]), None);
        assert_eq!(decode(&new[1..]), None);
    }

    /// A time of 2001 that begins a minute and an hour.
    const START: i64 = 1_000_000_800;

    /// A history that saw a run with this many events built in each of these seconds after [`START`].
    fn seen(seconds: impl IntoIterator<Item = (i64, u64)>) -> History {
        let mut history = History::default();
        let mut built = 0;
        for (second, events) in seconds {
            built += events;
            history.observe(look(second, built, 0));
        }
        history
    }

    /// A look in a second after [`START`].
    fn look(second: i64, built: u64, held: u64) -> Sample {
        // The monotonic clock began before the first of them.
        let mut look = sample((second + 10_000) as u64, vec![source(1, built)]);
        look.utc = Utc((START + second) * 1_000_000_000);
        look.events.built = built;
        look.nodes[0].numbers.add(Counter::PoolHeld, held);
        look
    }

    fn series<'a>(stretch: &'a Stretch, name: &str) -> &'a [Option<f32>] {
        let place = SERIES.iter().position(|series| series.name == name).expect("there is one of this name");
        &stretch.series[place]
    }

    #[test]
    fn each_second_has_what_was_seen_in_it_and_one_without_a_look_has_nothing() {
        let history = seen([(0, 0), (1, 10), (2, 20), (4, 80), (5, 30)]);
        let stretch = history.stretch(0, 1);
        assert_eq!(
            (stretch.step_seconds, stretch.times.as_slice()),
            (1, &[1, 2, 3, 4, 5].map(|second| START + second)[..])
        );
        assert_eq!(series(&stretch, "events_per_second"), [Some(10.0), Some(20.0), None, Some(40.0), Some(30.0)]);
        assert_eq!(series(&stretch, "bytes_in_per_second")[0], Some(1_000.0));
        let part = history.stretch(START + 4, 1);
        assert_eq!(series(&part, "events_per_second"), [Some(40.0), Some(30.0)]);
    }

    #[test]
    fn incomplete_and_doubtful_events_are_series_of_their_own() {
        let mut history = History::default();
        for (second, incomplete, doubtful) in [(0, 0, 0), (1, 4, 1), (2, 4, 7)] {
            let mut look = look(second, 10, 0);
            look.events.incomplete_emitted = incomplete;
            look.nodes[0].numbers.add(Counter::EventsDoubtful, doubtful);
            history.observe(look);
        }
        let stretch = history.stretch(0, 1);
        assert_eq!(series(&stretch, "incomplete_per_second"), [Some(4.0), Some(0.0)]);
        assert_eq!(series(&stretch, "doubtful_per_second"), [Some(1.0), Some(6.0)]);
    }

    #[test]
    fn longer_steps_have_the_mean_of_rates_and_the_greatest_occupancy() {
        let mut history = History::default();
        for (second, built, held) in [(0, 0, 0), (1, 10, 50), (2, 40, 90), (3, 50, 20)] {
            history.observe(look(second, built, held));
        }
        let stretch = history.stretch(0, 4);
        assert_eq!((stretch.step_seconds, stretch.times.as_slice()), (4, &[START][..]));
        let rates = series(&stretch, "events_per_second")[0].expect("it was seen");
        assert!((rates - 50.0 / 3.0).abs() < 1e-3, "{rates}");
        assert_eq!(series(&stretch, "pool_share"), [Some(0.9)]);
    }

    #[test]
    fn latencies_are_those_of_what_was_built_since_the_last_look() {
        let mut history = History::default();
        let mut latencies = Distribution::default();
        for (second, latency) in [(0, 1_000_000_000), (1, 1 << 10), (2, 1 << 20)] {
            latencies.merge(&[latency].into_iter().collect());
            let mut look = look(second, 10 * second as u64, 0);
            look.nodes[1].distributions.insert(Measure::BuildLatency, latencies.clone());
            history.observe(look);
        }
        let stretch = history.stretch(0, 1);
        let seconds = |shift: u32| Some((f64::from(1 << shift) / 1e9) as f32);
        assert_eq!(series(&stretch, "build_latency_p99_seconds"), [seconds(10), seconds(20)]);
        assert_eq!(series(&stretch, "disk_write_p99_seconds"), [None, None]);
    }

    #[test]
    fn an_hour_is_kept_by_seconds_and_a_week_by_minutes() {
        let week = 7 * 24 * 3_600;
        // A look each ten seconds for a week and an hour.
        let history = seen((0..(week + 3_600) / 10).map(|tens| (10 * tens, 100)));
        let seconds = history.stretch(0, 10);
        assert_eq!((seconds.times.len(), seconds.times[0]), (360, START + week));
        let minutes = history.stretch(0, 60);
        assert_eq!((minutes.step_seconds, minutes.times.len(), minutes.times[0]), (60, 10_080, START + 3_600));
        assert!(series(&minutes, "events_per_second").iter().all(|rate| *rate == Some(10.0)));
        assert_eq!(history.stretch(0, 61).step_seconds, 120, "whole minutes");
    }

    #[test]
    fn a_clock_that_was_set_back_writes_over_what_stands_there() {
        let mut history = seen([(0, 0), (1, 10), (2, 10), (3, 10)]);
        let mut back = look(4, 1_030, 0);
        back.utc = Utc((START + 1) * 1_000_000_000);
        history.observe(back);
        let stretch = history.stretch(0, 1);
        assert_eq!(stretch.times, [START + 1]);
        // The second that came twice has the mean of both.
        assert_eq!(series(&stretch, "events_per_second"), [Some(505.0)]);
    }

    #[test]
    fn nothing_is_known_before_two_looks_and_the_same_look_twice_is_one() {
        let mut history = seen([(1, 10)]);
        assert!(history.stretch(0, 1).times.is_empty());
        history.observe(look(1, 10, 0));
        assert!(history.stretch(i64::MIN, 60).times.is_empty());
        assert!(history.stretch(i64::MAX, u32::MAX).times.is_empty());
    }

    /// The file that keeps the history after these looks.
    fn kept(history: &mut History, looks: impl IntoIterator<Item = Sample>) -> Vec<u8> {
        let mut file = vec![0; History::FILE_BYTES];
        file[..History::header().len()].copy_from_slice(&History::header());
        for look in looks {
            history.observe(look);
            for (at, record) in history.changed() {
                file[at as usize..at as usize + record.len()].copy_from_slice(&record);
            }
        }
        file
    }

    #[test]
    fn what_was_kept_in_a_file_is_there_again() {
        let mut history = History::default();
        // More than the hour that is kept by seconds.
        let file = kept(&mut history, (0..4_000).map(|second| look(second, 10 * second as u64, 7)));
        let mut again = History::restore(&file);
        for step in [1, 60] {
            assert_eq!(again.stretch(0, step), history.stretch(0, step));
        }
        assert_eq!(again.stretch(0, 1).times.len(), 3_600);
        // The minute in progress takes further samples.
        [look(4_000, 40_000, 7), look(4_001, 40_010, 7)].into_iter().for_each(|look| again.observe(look));
        assert_eq!(again.stretch(0, 1).times.last(), Some(&(START + 4_001)));
    }

    #[test]
    fn a_file_that_was_cut_damaged_or_is_of_another_kind_gives_what_is_whole_in_it() {
        let mut history = History::default();
        let mut file = kept(&mut history, (0..100).map(|second| look(second, 10 * second as u64, 7)));
        let all = history.stretch(0, 1).times.len();
        // A place of the middle is torn.
        let (at, _) = history.changed().next().expect("there are some");
        file[at as usize + 3] ^= 1;
        assert_eq!(History::restore(&file).stretch(0, 1).times.len(), all - 1);
        assert!(History::restore(&file[..at as usize - 1]).stretch(0, 1).times.len() < all);
        file[9] ^= 1;
        assert!(History::restore(&file).stretch(0, 1).times.is_empty(), "these are other series");
        assert!(History::restore(&[]).stretch(0, 1).times.is_empty());
    }

    /// A history in which this many events a second were built, from the second 1,000 on.
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
