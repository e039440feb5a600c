//! Places in fixed memory, each of so many seconds.

use super::SERIES;
use core::ops::Range;

/// One value of each series; none where nobody told it.
pub(super) type Values = [Option<f32>; SERIES.len()];

/// What was seen in the time of one place.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Point {
    /// Which of all times it is: seconds since 1970-01-01T00:00:00Z by the seconds of a place.
    pub(super) number: i64,
    pub(super) values: Values,
    /// Of how many looks each is.
    pub(super) counts: [u16; SERIES.len()],
}

impl Point {
    pub(super) const fn empty(number: i64) -> Self {
        Self { number, values: [None; SERIES.len()], counts: [0; SERIES.len()] }
    }

    /// Takes one more look in.
    pub(super) fn add(&mut self, values: &Values) {
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
pub(super) struct Ring {
    seconds: u32,
    places: Box<[Option<Point>]>,
    newest: Option<i64>,
}

impl Ring {
    /// Room for so many places of so many seconds each.
    pub(super) fn new(seconds: u32, places: usize) -> Self {
        Self { seconds, places: vec![None; places].into(), newest: None }
    }

    /// Seconds of a place.
    pub(super) const fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Something was seen in this second of civil time.
    pub(super) fn note(&mut self, second: i64, values: &Values) {
        let number = second.div_euclid(i64::from(self.seconds));
        let place = self.place(number);
        let point = self.places[place].get_or_insert(Point::empty(number));
        if point.number != number {
            *point = Point::empty(number);
        }
        point.add(values);
        self.newest = Some(number);
    }

    /// The latest point and its place; none where nothing was seen.
    pub(super) fn newest(&self) -> Option<(usize, &Point)> {
        let number = self.newest?;
        Some((self.place(number), self.point(number)?))
    }

    /// A point of earlier.
    pub(super) fn restore(&mut self, point: Point) {
        self.newest = self.newest.max(Some(point.number));
        let place = self.place(point.number);
        self.places[place] = Some(point);
    }

    /// What was seen in this time; none where nothing was, or where it is forgotten.
    pub(super) fn point(&self, number: i64) -> Option<&Point> {
        self.places[self.place(number)].as_ref().filter(|point| point.number == number)
    }

    /// The times that may be known from the second `since` on; none where nothing was seen.
    pub(super) fn numbers(&self, since: i64) -> Range<i64> {
        let Some(newest) = self.newest else { return 0..0 };
        let oldest = newest + 1 - self.places.len() as i64;
        oldest.max(since.div_euclid(i64::from(self.seconds)))..newest + 1
    }

    fn place(&self, number: i64) -> usize {
        number.rem_euclid(self.places.len() as i64) as usize
    }
}
