//! A part of the past, as a plot wants it.

use super::ring::{Point, Ring};
use super::{SERIES, ring};

/// A part of the past: times with the same distance, and a value or none of each series for each of them. It begins where
/// something is known.
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
    pub(super) fn of(ring: &Ring, since: i64, step_seconds: u32) -> Self {
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

    fn push(&mut self, time: i64, values: ring::Values) {
        self.times.push(time);
        self.series.iter_mut().zip(values).for_each(|(series, value)| series.push(value));
    }
}

/// The values of several places; none where nothing is known of any.
fn together<'a>(points: impl Iterator<Item = &'a Point>) -> Option<ring::Values> {
    points
        .fold(None, |all: Option<Point>, point| {
            let mut all = all.unwrap_or(Point::empty(0));
            all.add(&point.values);
            Some(all)
        })
        .map(|all| all.values)
}
