//! The papers' plots, of what was measured here.

use super::{Kernel, Mechanism, is_possible};
use crate::session::Row;
use ropewalk_sim::sizing::{Chart, Curve};

/// The charts for which there are figures.
pub(super) fn charts(rows: &[Row]) -> Vec<Chart> {
    let mut all = Vec::new();
    for kernel in Kernel::ALL {
        let where_done = format!("kernel's part as {}", kernel.name());
        let chart = |title: &str, figure: &str, unit: &str, key: &str, horizontal: &str, vertical: &str| Chart {
            title: format!("{title}, {where_done}"),
            horizontal: horizontal.to_owned(),
            vertical: vertical.to_owned(),
            logarithmic: false,
            curves: curves(rows, kernel, figure, unit, key),
        };
        let (bytes, offered) = ("bytes of payload", "offered, in parts of the most");
        all.push(chart("Received of a flood", "6", "packets/s", "payload_bytes", bytes, "packets/s"));
        all.push(chart("Part of a flood that is received", "6", "of 1", "payload_bytes", bytes, "of what was sent"));
        all.push(chart("Received, 256 B", "stumble", "packets/s", "offered", offered, "packets/s"));
        all.push(chart("What a packet costs", "cost", "ns", "payload_bytes", bytes, "ns of processor"));
    }
    all.retain(|chart| !chart.curves.is_empty());
    all
}

fn curves(rows: &[Row], kernel: Kernel, figure: &str, unit: &str, key: &str) -> Vec<Curve> {
    let of = |mechanism: Mechanism| {
        let chosen = rows.iter().filter(|row| {
            let is_case = row.text("kernel") == kernel.name() && row.text("mechanism") == mechanism.name();
            is_case && row.text("figure") == figure && row.unit == unit
        });
        let points = chosen.map(|row| (row.number(key), row.median)).collect();
        Curve { name: mechanism.name().to_owned(), points, marked: true }
    };
    let possible = Mechanism::ALL.into_iter().filter(|mechanism| is_possible(kernel, *mechanism));
    possible.map(of).filter(|curve| !curve.points.is_empty()).collect()
}
