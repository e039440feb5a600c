//! The paper's plots, of what was measured here.

use super::blocks::BLOCK;
use super::stages::Stage;
use crate::session::Row;
use ropewalk_sim::sizing::{Chart, Curve};

/// What 24 links of 3.2 Gb/s bring (paper 4, section 1.1), in 10^6 blocks a second.
const REQUIRED: f64 = 6.5e9 / BLOCK as f64 / 1e6;

/// The charts for which there are figures.
pub(super) fn charts(rows: &[Row]) -> Vec<Chart> {
    let mut all = vec![
        time_per_block(rows, "equal"),
        time_per_block(rows, "random"),
        threads(rows),
        scan(rows),
        roofline(rows),
        pipeline(rows),
        latency(rows),
    ];
    all.retain(|chart| chart.curves.iter().any(|curve| curve.marked && !curve.points.is_empty()));
    all
}

fn curve(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Curve {
    let mut points: Vec<_> = points.collect();
    points.sort_by(|left, right| left.0.total_cmp(&right.0));
    Curve { name: name.to_owned(), points, marked: true }
}

fn line(name: &str, points: Vec<(f64, f64)>) -> Curve {
    Curve { name: name.to_owned(), points, marked: false }
}

fn time_per_block(rows: &[Row], sizes: &str) -> Chart {
    let of = |stage: Stage, limit: &'static str| {
        rows.iter().filter(move |row| {
            let is_stage = row.text("stage") == stage.name() && row.text("limit") == limit;
            row.text("figure") == "6" && row.text("sizes") == sizes && is_stage
        })
    };
    let nanoseconds = |row: &Row, gigabytes: f64| (row.number("chunk_bytes"), BLOCK as f64 / gigabytes);
    let mut curves: Vec<Curve> = Stage::ALL
        .iter()
        .map(|&stage| curve(stage.name(), of(stage, "needed lines").map(|row| nanoseconds(row, row.median))))
        .collect();
    for limit in ["every line", "needed lines"] {
        let points = of(Stage::Ours, limit).filter_map(|row| Some(nanoseconds(row, row.limit?)));
        let curve = curve(&format!("limit: {limit}"), points);
        curves.push(Curve { marked: false, ..curve });
    }
    Chart {
        title: format!("Fig. 6: time per block, {sizes} chunks"),
        horizontal: "bytes of a chunk (random: mean)".to_owned(),
        vertical: "ns per block of 1 KiB".to_owned(),
        logarithmic: true,
        curves,
    }
}

fn threads(rows: &[Row]) -> Chart {
    let figures: Vec<&Row> =
        rows.iter().filter(|row| row.text("figure") == "7" && row.number("threads") > 0.0).collect();
    let limit = figures.iter().filter_map(|row| Some((row.number("threads"), row.limit?))).collect();
    let required = figures.iter().map(|row| (row.number("threads"), REQUIRED)).collect();
    let curves = vec![
        curve("ours", figures.iter().map(|row| (row.number("threads"), row.median))),
        line("limit: every line", limit),
        line("24 links of 3.2 Gb/s", required),
    ];
    Chart {
        title: "Fig. 7: blocks a second, chunks of 64 B".to_owned(),
        horizontal: "threads".to_owned(),
        vertical: "10^6 blocks/s".to_owned(),
        logarithmic: false,
        curves,
    }
}

fn scan(rows: &[Row]) -> Chart {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows.iter().filter(|row| row.text("figure") == "8" && row.text("pages") == "huge") {
        let name = format!("{}, {} threads", row.text("width"), row.number("threads"));
        let point = (row.number("bytes"), row.median);
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(curve(&name, [point].into_iter())),
        }
    }
    Chart {
        title: "Fig. 8: reading every word, huge pages".to_owned(),
        horizontal: "bytes that are read again and again".to_owned(),
        vertical: "GB/s".to_owned(),
        logarithmic: true,
        curves,
    }
}

/// Between the two layouts the roof is a straight line on neither axis, so it is drawn point by point.
fn roofline(rows: &[Row]) -> Chart {
    let figures: Vec<&Row> =
        rows.iter().filter(|row| row.text("figure") == "9" && row.number("operations_per_byte") > 0.0).collect();
    let ours = figures.iter().map(|row| (row.number("operations_per_byte"), row.median));
    let mut curves = vec![curve("ours", ours)];
    if let Some(between) = figures.iter().find(|row| row.text("layout") == "between")
        && let Some(limit) = between.limit
    {
        let gigabytes = limit / between.number("operations_per_byte");
        let most = figures.iter().filter_map(|row| row.limit).fold(0.0, f64::max);
        let roof = (0..=60).map(|step| 0.05 * 1.08_f64.powi(step)).map(|x| (x, (x * gigabytes).min(most))).collect();
        curves.push(line("the roof", roof));
    }
    Chart {
        title: "Fig. 9: the roofline, trailers between the data and in a table".to_owned(),
        horizontal: "operations for a byte from memory".to_owned(),
        vertical: "10^9 operations/s".to_owned(),
        logarithmic: true,
        curves,
    }
}

/// What leaves a card's ring, against what its links bring.
fn pipeline(rows: &[Row]) -> Chart {
    let points = |figure: &'static str, sizes: &'static str| {
        let chosen = rows.iter().filter(move |row| {
            row.text("figure") == figure && row.text("sizes") == sizes && row.text("consumer") != "lengths"
        });
        chosen.map(|row| (row.number("chunk_bytes"), row.median))
    };
    let curves = vec![
        curve("in the process, equal", points("pipeline", "equal")),
        curve("in the process, random", points("pipeline", "random")),
        curve("over TCP, equal", points("subscriber", "")),
        line("24 links of 3.2 Gb/s", vec![(64.0, 6.5), (1024.0, 6.5)]),
    ];
    Chart {
        title: "From a card's ring to a subscriber".to_owned(),
        horizontal: "bytes of a chunk (random: mean)".to_owned(),
        vertical: "GB/s of blocks".to_owned(),
        logarithmic: true,
        curves,
    }
}

fn latency(rows: &[Row]) -> Chart {
    let chosen = |quantile: &'static str| {
        let of = |row: &&Row| row.text("figure") == "latency" && row.number("chunk_bytes") <= 64.0;
        rows.iter().filter(of).filter(move |row| row.text("quantile") == quantile)
    };
    let of = |quantile| curve(quantile, chosen(quantile).map(|row| (row.number("load_percent"), row.median)));
    Chart {
        title: "From a block in the ring to its chunks at a subscriber, chunks of 64 B".to_owned(),
        horizontal: "% of the most blocks a second".to_owned(),
        vertical: "us".to_owned(),
        logarithmic: false,
        curves: vec![of("50 %"), of("99 %"), of("99.9 %")],
    }
}
