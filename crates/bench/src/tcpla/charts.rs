//! The paper's plots, of what was measured here.

use super::builder::{LAYOUTS, needed};
use crate::session::Row;
use ropewalk_sim::sizing::{Chart, Curve};

/// The charts for which there are figures.
pub(super) fn charts(rows: &[Row]) -> Vec<Chart> {
    let throughput = [("tuned", "epoll"), ("tuned", "io_uring"), ("untuned", "epoll"), ("untuned", "io_uring")];
    let mut fig_7: Vec<Curve> = Vec::new();
    for (tuning, mechanism) in throughput {
        let is_it = |row: &&Row| {
            row.text("figure") == "7" && row.text("tuning") == tuning && row.text("mechanism") == mechanism
        };
        fig_7.extend(curves(
            rows.iter().filter(is_it),
            "message_bytes",
            &format!("{mechanism}, {tuning}"),
            tuning == "tuned",
        ));
    }
    let mut all = vec![chart("Fig. 7: throughput against message size", "bytes of a message", "GB/s", fig_7)];
    for layout in LAYOUTS {
        let mut found = Vec::new();
        for place in ["in process", "processes"] {
            let is_it = |row: &&Row| {
                row.text("figure") == layout.figure && row.text("nodes") == place && row.number("fragment_bytes") > 0.0
            };
            found.extend(curves(rows.iter().filter(is_it), "fragment_bytes", place, true));
        }
        let most = found.iter().flat_map(|curve| &curve.points).map(|point| point.1).fold(0.0, f64::max);
        if let Some(curve) = found.first() {
            let points = curve.points.iter().map(|&(bytes, _)| (bytes, needed(bytes, layout.streams)));
            // It ends a little above what was measured, or it would press everything else down.
            let points = points.filter(|point| point.1 <= 1.5 * most).collect();
            found.push(Curve { name: "100 kHz of events".to_owned(), points, marked: false });
        }
        let title = format!(
            "Fig. {}: {} streams, one readout unit, {} builder units",
            layout.figure, layout.streams, layout.builders
        );
        all.push(chart(&title, "bytes of a fragment", "GB/s into the readout unit", found));
    }
    let mut late = Vec::new();
    for mechanism in ["epoll", "io_uring"] {
        for quantile in ["50 %", "99.9 %"] {
            let is_it = |row: &&Row| {
                row.text("figure") == "latency"
                    && row.text("mechanism") == mechanism
                    && row.text("quantile") == quantile
            };
            let bare = mechanism == "epoll";
            late.extend(curves(rows.iter().filter(is_it), "load_percent", &format!("{mechanism}, {quantile}"), bare));
        }
    }
    all.push(chart("Messages of 2 KiB: time from due to come", "load, % of the saturation rate", "us", late));
    all.retain(|chart| !chart.curves.is_empty());
    all
}

/// Ours, and the limit where it is wanted, along a number of the case.
fn curves<'a>(rows: impl Iterator<Item = &'a Row>, along: &str, name: &str, with_limit: bool) -> Vec<Curve> {
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for row in rows {
        ours.push((row.number(along), row.median));
        limit.extend(row.limit.map(|limit| (row.number(along), limit)));
    }
    let curve = |name: String, points: Vec<(f64, f64)>| Curve { name, points, marked: true };
    let bare = with_limit.then(|| curve(format!("{name}: the limit"), limit));
    let all = std::iter::once(curve(name.to_owned(), ours)).chain(bare);
    all.filter(|curve| !curve.points.is_empty()).collect()
}

fn chart(title: &str, horizontal: &str, vertical: &str, curves: Vec<Curve>) -> Chart {
    Chart {
        title: title.to_owned(),
        horizontal: horizontal.to_owned(),
        vertical: vertical.to_owned(),
        logarithmic: true,
        curves,
    }
}
