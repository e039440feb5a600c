//! The input rate of a readout unit against the size of fragments, while the event builder runs (paper 3, Figs. 11,
//! 12): in one process, as usual for us, and with readout unit and builder units as separate processes, as in the
//! paper: the readout unit receives and sends at once.

use super::processes::Cluster;
use crate::BenchError;
use crate::pairs::{Series, alternate, median};
use crate::session::{Row, Session, UNKNOWN, bare_receiver, case};
use ropewalk_doctor::run::{Ran, RunPlan};
use ropewalk_limits::{SlinkConfig, WalkConfig, tcp_chain};
use serde_json::{Map, Value, json};

const NOTE_INSIDE: &str = "readout and builder units in this process, on one core; limit: bare receiver that walks the \
                           headers of the same streams; target: 0.85";
const NOTE_PROCESSES: &str = "each unit a process: the readout unit on one core, all others with the front ends on the \
                              other; limit: bare chain of receiving and sending on, placed alike; target: 0.8";
const NOTE_LARGEST: &str = "the largest fragment for which 90 % of what was measured is 100 kHz of events; paper: 3700 B \
                            with 12 streams, 2800 B with 16";
/// The trigger rate that the paper requires.
pub(super) const TRIGGER_HZ: f64 = 100e3;
/// The usable share of the measured rate.
const SHARE: f64 = 0.9;

/// A figure of the paper, as large as possible here: streams, all to one readout unit, and builder units.
#[derive(Copy, Clone, Debug)]
struct Layout {
    figure: &'static str,
    streams: usize,
    builders: usize,
}

const LAYOUTS: [Layout; 2] =
    [Layout { figure: "11", streams: 12, builders: 1 }, Layout { figure: "12", streams: 16, builders: 2 }];

/// Where readout and builder units run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Where {
    Inside,
    Processes,
}

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let all: &[usize] = &[256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10];
    let sizes = session.options.scale.choose(&[2 << 10][..], &[512, 2 << 10, 8 << 10], all);
    for layout in LAYOUTS {
        for (place, name) in [(Where::Inside, "in process"), (Where::Processes, "processes")] {
            let mut curves: [Vec<(f64, f64)>; 2] = Default::default();
            for &bytes in sizes {
                let case = case_of(layout, name, Some(bytes));
                session.measure(&case, |session| {
                    let [series, per_cpu, all] = measure(session, layout, place, bytes)?;
                    for (curve, side) in curves.iter_mut().zip([&series.ours, &series.limit]) {
                        curve.push((bytes as f64, median(side.iter().copied())));
                    }
                    let note = if place == Where::Inside { NOTE_INSIDE } else { NOTE_PROCESSES };
                    session.row(Row::of(&case, "GB/s", &series, note).by_processor(&per_cpu).with_process_cpu(&all))
                })?;
            }
            let case = case_of(layout, name, None);
            let found = curves.map(|curve| largest_fragment(&curve, layout.streams));
            if let [Some(ours), Some(limit)] = found
                && session.wants(&case)
            {
                let series = Series { ours: vec![ours], limit: vec![limit] };
                session.row(Row::of(&case, "B", &series, NOTE_LARGEST))?;
            }
        }
    }
    Ok(())
}

fn case_of(layout: Layout, place: &str, fragment_bytes: Option<usize>) -> Map<String, Value> {
    case([
        ("figure", json!(layout.figure)),
        ("streams", json!(layout.streams)),
        ("builders", json!(layout.builders)),
        ("nodes", json!(place)),
        ("fragment_bytes", fragment_bytes.map_or_else(|| json!("largest"), |bytes| json!(bytes))),
    ])
}

/// Rate per elapsed second, per processor second of the receiving side, and the cost of all threads.
fn measure(session: &Session<'_>, layout: Layout, place: Where, bytes: usize) -> Result<[Series; 3], BenchError> {
    let sender = SlinkConfig {
        streams: layout.streams,
        fragment_bytes: bytes,
        fragments_per_send: (super::SEND / bytes).max(1),
        ..SlinkConfig::default()
    };
    let plan = RunPlan { builders: layout.builders, ..session.plan(sender, [100, 300, 1000], "tcpla") };
    let ours = || match place {
        Where::Inside => {
            let Ran { gigabytes_per_second, per_processor_second, cpu_seconds_per_gigabyte, .. } = plan.run()?;
            Ok([gigabytes_per_second, per_processor_second, cpu_seconds_per_gigabyte])
        }
        Where::Processes => {
            let [rate, all] = Cluster::start(&plan, session.options.program()?)?.measure()?;
            Ok([rate, UNKNOWN, all])
        }
    };
    let limit = || match place {
        Where::Inside => bare_receiver(&plan),
        Where::Processes => {
            let config = WalkConfig { sender, duration: plan.interval, cpus: plan.cpus, ..WalkConfig::default() };
            let chained = tcp_chain(config, layout.builders).map_err(BenchError::system("bare chain"))?;
            let [_, receiver] = chained.cpu_seconds_per_gigabyte();
            Ok([chained.gigabytes_per_second(), 1.0 / receiver.max(1e-9), chained.process_seconds_per_gigabyte()])
        }
    };
    alternate(session.options.scale.choose(1, 1, 5), ours, limit)
}

/// The largest fragment, in bytes, for which nine tenths of the measured rate sustain events at 100 kHz, interpolated
/// linearly between two measured sizes. `None` if even the smallest size does not reach it; the largest size measured
/// if all do.
fn largest_fragment(curve: &[(f64, f64)], streams: usize) -> Option<f64> {
    // The spare rate at a size, in 10^9 bytes a second: it crosses 0 at the wanted size.
    let spare = |&(bytes, rate): &(f64, f64)| SHARE * rate - needed(bytes, streams);
    let last = curve.iter().rposition(|point| spare(point) >= 0.0)?;
    let Some(next) = curve.get(last + 1) else { return Some(curve[last].0) };
    let (have, lack) = (spare(&curve[last]), -spare(next));
    Some(curve[last].0 + (next.0 - curve[last].0) * have / (have + lack))
}

/// The rate that the trigger rate needs with fragments of this many bytes, in 10^9 bytes a second.
fn needed(fragment_bytes: f64, streams: usize) -> f64 {
    TRIGGER_HZ * streams as f64 * fragment_bytes / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_curve_gives_the_papers_fragments() {
        // 5000 MB/s from 2.3 kB on.
        let curve = [(2300.0, 5.0), (4000.0, 5.0), (8000.0, 5.0)];
        let near = |streams, bytes: f64| largest_fragment(&curve, streams).is_some_and(|it| (it - bytes).abs() < 1.0);
        assert!(near(12, 3750.0) && near(16, 2812.5));
        assert_eq!(largest_fragment(&curve[..1], 12), Some(2300.0));
        assert_eq!(largest_fragment(&curve[2..], 12), None);
    }
}
