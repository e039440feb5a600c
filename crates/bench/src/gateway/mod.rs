//! `bench gateway`: what a gateway takes in (paper 1).
//!
//! ```text
//!  source, CPU 0                       gateway, CPU 1                                 farm, CPU 0
//!  packets of 126 sources ──────────► received, built to sets, cut to events ──────► discarded once built    
//!    as fast as the gateway             (setup.rs: how)                       ├────► dropped at the card, decided at once
//!    has room: nothing is lost                                                └────► nodes, which decide
//!
//!  table=limits  receiving and building, forwarding with decisions: beside bare loops         limits.rs
//!  table=1 to 4  one thing changed at a time: architecture, memory, gathering, sending        tables.rs
//!  table=5       the paper's nine rows, beside the bare loop                                  tables.rs
//!  effect=...    what the system's settings do (section IV)                                   tables.rs
//! ```
//! Each figure is the rate at which packets come in while none is lost: the source has a window, so that the gateway is the
//! only bottleneck, and the kernel's part of receiving is done on the gateway's processor.

mod farm;
mod limits;
mod run;
mod setup;
mod tables;

use crate::session::{Row, Session};
use crate::{BenchError, Scale};
use ropewalk_sim::sizing::{Chart, Curve};
use std::time::Duration;

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    limits::bench(session)?;
    tables::bench(session)?;
    tables::effects(session)?;
    session.page(&charts(session.rows()))
}

/// How long a figure is measured, and the time before.
fn times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(20, 200, 1000));
    (duration / 4, duration)
}

// ---- charts

/// The charts for which there are figures.
fn charts(rows: &[Row]) -> Vec<Chart> {
    let mut all = vec![summary(rows), limits_chart(rows, "l1"), limits_chart(rows, "hlt")];
    all.retain(|chart| chart.curves.iter().any(|curve| !curve.points.is_empty()));
    all
}

/// The rows of Table V, ours beside the paper's.
fn summary(rows: &[Row]) -> Chart {
    let numbered = |row: &Row| row.text("row").split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0);
    let chosen = || rows.iter().filter(|row| row.text("table") == "5");
    let curve = |name: &str, points| Curve { name: name.to_owned(), points, marked: true };
    Chart {
        title: "Table V: what a gateway takes in".to_owned(),
        horizontal: "row of the table".to_owned(),
        vertical: "Gb/s".to_owned(),
        logarithmic: false,
        curves: vec![
            curve("here", chosen().map(|row| (numbered(row), row.median)).collect()),
            curve("bare loop here", chosen().filter_map(|row| Some((numbered(row), row.limit?))).collect()),
            curve(
                "the paper, 2005",
                chosen().map(|row| (numbered(row), row.number("paper_gigabits_per_second"))).collect(),
            ),
        ],
    }
}

/// What is left of a bare loop's rate, for each way to receive and send a flow.
fn limits_chart(rows: &[Row], flow: &str) -> Chart {
    let jobs = ["build", "build and gather", "forward with decisions"];
    let ways = ["recvfrom", "recvmmsg", "raw-ip", "ring", "xdp"];
    let place =
        |row: &Row| ways.iter().position(|way| *way == row.text("mechanism")).map_or(0.0, |place| place as f64 + 1.0);
    let of = |job: &str| {
        let is_chosen = |row: &&Row| {
            let is_rate = row.text("table") == "limits" && row.unit == limits::RATE;
            is_rate && row.text("flow") == flow && row.text("job") == job
        };
        let chosen = rows.iter().filter(is_chosen);
        let points = chosen.filter_map(|row| Some((place(row), row.ratio_to_limit?))).collect();
        Curve { name: job.to_owned(), points, marked: true }
    };
    Chart {
        title: format!("Beside bare loops, {flow}"),
        horizontal: format!("1 to 5: {}", ways.join(", ")),
        vertical: "of the bare loop's rate".to_owned(),
        logarithmic: false,
        curves: jobs.map(of).into(),
    }
}
