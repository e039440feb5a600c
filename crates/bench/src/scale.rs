//! `bench scale`: the cost of an event in the protocol alone against everything that can grow, one thing at a time from
//! a common point, on the machines of `bench machines`.
//!
//! ```text
//!  cost of a fragment = a * x^exponent      fitted to each round: a straight line through the logarithms
//! ```
//! With an exponent of 1, a system of twice the size is four times as slow. A run fails if the cost of a fragment
//! grows.

use crate::fragments::Prepared;
use crate::machines::{Shape, on_one_core, seconds_of_machines, seconds_of_walk};
use crate::pairs::{Series, median};
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_memory::prepare_chains;
use serde_json::{Map, Value, json};

const NOTE: &str =
    "ns of processor for an event; limit: a bare walk over the same memory that reads each fragment's headers";
const EXPONENT: &str = "cost of a fragment against what grows, on logarithmic scales; the median, smallest and largest of the rounds; \
                        fails if the exponent of every round is above the bound";
/// Bytes of a block of fragments: small, since each of 2,000 sources has at least one.
const BLOCK: usize = 64 << 10;
/// Bytes of fragments at a point, unless a few rounds of events need more.
const MOST_BYTES: usize = 128 << 20;
/// Rounds of events in flight; with fewer, only the beginning and the end would be measured.
const ROUNDS_IN_FLIGHT: u32 = 4;
/// A cost with a smaller exponent counts as constant: a factor of 1.4 over a factor of a thousand, which comes from
/// caches that hold less and less of the tables. A scan of all sources or events for each fragment would be 1.
const CONSTANT: f64 = 0.05;
/// The number of events for long fragments, so that what is read of them fits the cache.
const CACHED: u32 = 128;
/// Bytes of a fragment that fits one FEROL block.
const ONE_BLOCK: usize = 4000;

/// The common point of all series: everything fits the second cache.
const COMMON: Shape = Shape { fragment_bytes: 256, ..in_flight(128) };

const fn in_flight(events: u32) -> Shape {
    let batch = if events < 256 { events as usize } else { 256 };
    Shape { in_flight: events, window: 2 * events, batch, ..Shape::USUAL }
}

/// One parameter that grows.
struct Growth {
    name: &'static str,
    points: &'static [u32],
    shape: fn(u32) -> Shape,
    /// The first point of the fit: below it, the cost of the event is a large part of that of its few fragments, and
    /// the cost of a fragment falls.
    fitted_from: u32,
    /// The number of events, if it is limited so that what is read of them stays in the cache. Otherwise the distance
    /// of headers in memory would be measured, which other programs change as well.
    events: Option<u32>,
    /// The largest accepted exponent of the cost of a fragment.
    bound: f64,
}

const GROWTHS: [Growth; 5] = [
    Growth {
        name: "sources",
        points: &[1, 4, 16, 64, 256, 1000, 2000],
        shape: |sources| Shape { sources: sources as u16, ..COMMON },
        fitted_from: 16,
        events: None,
        bound: CONSTANT,
    },
    Growth {
        name: "in_flight",
        points: &[16, 64, 256, 1024, 4096],
        shape: |events| Shape { fragment_bytes: COMMON.fragment_bytes, ..in_flight(events) },
        fitted_from: 64,
        events: None,
        bound: CONSTANT,
    },
    Growth {
        name: "builders",
        points: &[1, 2, 4, 8],
        shape: |builders| Shape { builders: builders as u16, ..COMMON },
        fitted_from: 1,
        events: None,
        bound: CONSTANT,
    },
    Growth {
        name: "fragment_bytes",
        points: &[64, 256, 1024, ONE_BLOCK as u32],
        shape: |bytes| Shape { fragment_bytes: bytes as usize, ..in_flight(CACHED / 8) },
        fitted_from: 64,
        events: Some(CACHED),
        bound: CONSTANT,
    },
    // Each block has a header, which must be found and read.
    Growth {
        name: "blocks",
        points: &[1, 2, 4, 8],
        shape: |blocks| Shape { fragment_bytes: blocks as usize * ONE_BLOCK, ..in_flight(CACHED / 8) },
        fitted_from: 1,
        events: Some(CACHED),
        bound: 1.0 + CONSTANT,
    },
];

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    for growth in GROWTHS {
        let exponent = growth.case("exponent");
        let points: Vec<_> = growth.points.iter().map(|&point| (point, growth.case_of(point))).collect();
        // A fit needs all its points.
        let is_wanted = session.wants(&exponent) || points.iter().any(|(_, case)| session.wants(case));
        if !is_wanted {
            continue;
        }
        session.attempt(&exponent, |session| {
            let measured = on_one_core(scale, || growth.measure(scale))?;
            for ((_, case), series) in points.iter().zip(&measured) {
                if session.wants(case) {
                    session.row(Row::of(case, "ns/event", series, NOTE))?;
                }
            }
            growth.judge(session, &exponent, &measured)
        })?;
    }
    Ok(())
}

impl Growth {
    fn case(&self, figure: &str) -> Map<String, Value> {
        case([("series", json!(self.name)), ("figure", json!(figure))])
    }

    fn case_of(&self, point: u32) -> Map<String, Value> {
        let shape = (self.shape)(point);
        let mut case = self.case("cost");
        let sizes = [
            ("sources", usize::from(shape.sources)),
            ("in_flight", shape.in_flight as usize),
            ("builders", usize::from(shape.builders)),
            ("fragment_bytes", shape.fragment_bytes),
        ];
        case.extend(sizes.map(|(key, value)| (key.to_owned(), json!(value))));
        case
    }

    /// Nanoseconds per event at each point. The points are measured in turns, so that a disturbance affects all.
    fn measure(&self, scale: Scale) -> Result<Vec<Series>, BenchError> {
        let mut points = self
            .points
            .iter()
            .map(|&point| Point::new((self.shape)(point), self.events, scale))
            .collect::<Result<Vec<_>, _>>()?;
        for round in 0..scale.choose(1, 5, 15) {
            points.iter_mut().try_for_each(|point| point.measure(scale, round % 2 == 0))?;
        }
        Ok(points.into_iter().map(|point| point.series).collect())
    }

    fn judge(
        &self,
        session: &mut Session<'_>,
        case: &Map<String, Value>,
        measured: &[Series],
    ) -> Result<(), BenchError> {
        let exponents = self.exponents(measured);
        let row = Row::of(case, "exponent", &Series { ours: exponents.clone(), limit: Vec::new() }, EXPONENT);
        let least = exponents.iter().copied().fold(f64::INFINITY, f64::min);
        session.row(row.or_nothing().with_remark(Some(format!("bound: {}", self.bound))))?;
        // A tiny run is too short for a fit.
        if session.options.scale == Scale::Tiny || least <= self.bound {
            return Ok(());
        }
        let exponent = median(exponents);
        let why = format!(
            "the cost of a fragment grows with {} to the power of {exponent:.3} ({least:.3} at the least); at most {} is good",
            self.name, self.bound
        );
        session.fail(case, &why)
    }

    /// The exponent of the cost of a fragment, per round.
    fn exponents(&self, measured: &[Series]) -> Vec<f64> {
        let rounds = measured.iter().map(|series| series.ours.len()).min().unwrap_or(0);
        let of_round = |round: usize| {
            let points = self.points.iter().zip(measured).filter(|(point, _)| **point >= self.fitted_from);
            let cost = |(point, series): (&u32, &Series)| {
                let fragments = f64::from((self.shape)(*point).sources);
                (f64::from(*point), series.ours[round] / fragments)
            };
            exponent(&points.map(cost).collect::<Vec<_>>())
        };
        (0..rounds).map(of_round).collect()
    }
}

/// The least-squares slope of the straight line through the logarithms.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logarithms: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logarithms.len() as f64;
    let (x, y) = logarithms.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let products = logarithms.iter().map(|point| ((point.0 - x) * (point.1 - y), (point.0 - x).powi(2)));
    let (both, square) = products.fold((0.0, 0.0), |sum, product| (sum.0 + product.0, sum.1 + product.1));
    both / square
}

/// A point of a series.
struct Point {
    shape: Shape,
    prepared: Prepared,
    series: Series,
}

impl Point {
    fn new(shape: Shape, events: Option<u32>, scale: Scale) -> Result<Self, BenchError> {
        let fragments = scale.choose(1 << 10, 1 << 17, 1 << 19).min(MOST_BYTES / shape.fragment_bytes) as u32;
        let rounds = scale.choose(1, ROUNDS_IN_FLIGHT, ROUNDS_IN_FLIGHT);
        let enough = (fragments / u32::from(shape.sources)).max(rounds * shape.in_flight);
        let events = events.unwrap_or(enough);
        let prepared = Prepared::in_blocks(shape.sources, shape.fragment_bytes, events, BLOCK)?;
        Ok(Self { shape, prepared, series: Series::default() })
    }

    /// Measures another pair.
    fn measure(&mut self, scale: Scale, ours_first: bool) -> Result<(), BenchError> {
        let at_least = scale.choose(0.0, 0.01, 0.03);
        let events = f64::from(self.prepared.events);
        let cost = |work: &dyn Fn() -> Result<f64, BenchError>| {
            let (mut seconds, mut times) = (0.0, 0.0);
            while times == 0.0 || seconds < at_least {
                seconds += work()?;
                times += 1.0;
            }
            Ok::<_, BenchError>(seconds * 1e9 / times / events)
        };
        prepare_chains(2 * self.prepared.fragments() as usize);
        let ours = || cost(&|| seconds_of_machines(&self.prepared, self.shape));
        let bare = || cost(&|| seconds_of_walk(&self.prepared));
        let (mine, limit) = if ours_first {
            let mine = ours()?;
            (mine, bare()?)
        } else {
            let limit = bare()?;
            (ours()?, limit)
        };
        self.series.ours.push(mine);
        self.series.limit.push(limit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponent_is_the_slope_on_logarithmic_scales() {
        let curve = |power: f64| [1.0, 4.0, 16.0, 1000.0].map(|x: f64| (x, 30.0 * x.powf(power)));
        for power in [-0.5, 0.0, 0.05, 1.0, 2.0] {
            assert!((exponent(&curve(power)) - power).abs() < 1e-9, "{power}");
        }
    }

    #[test]
    fn all_series_meet_in_the_common_point() {
        let meets = |growth: &Growth| growth.points.iter().any(|point| (growth.shape)(*point) == COMMON);
        let apart: Vec<_> = GROWTHS.iter().filter(|growth| !meets(growth)).map(|growth| growth.name).collect();
        // Events in flight pass the common number; long fragments have fewer of them, so that they fit the cache.
        assert_eq!(apart, ["in_flight", "fragment_bytes", "blocks"]);
    }

    #[test]
    fn a_cost_that_grows_has_an_exponent_above_its_bound() {
        let growth = &GROWTHS[0];
        // Cost of an event: more than linear in the number of sources.
        let cost = |power: f64| {
            let of = |point: &u32| Series { ours: vec![50.0 * f64::from(*point).powf(power); 3], limit: Vec::new() };
            growth.points.iter().map(of).collect::<Vec<_>>()
        };
        assert!(growth.exponents(&cost(1.2)).iter().all(|exponent| *exponent > growth.bound));
        assert!(growth.exponents(&cost(1.0)).iter().all(|exponent| exponent.abs() < 1e-9));
    }
}
