//! `bench sizing`: the simulator's predictions for this machine, beside measurements.
//!
//! One configuration is measured and gives the simulator its costs: the bare receiver's cost per byte, and a run's
//! remaining cost per fragment. Then others are predicted with these costs and measured: other fragments, other
//! sources, other builder units. The front ends' speed is not predicted: in each configuration it is the rate of the
//! bare receiver.

use crate::BenchError;
use crate::pairs::{Series, alternate, median};
use crate::session::{Row, Session, bare_receiver, case};
use ropewalk_doctor::run::{Ran, RunPlan, USUAL_POOL_MIB};
use ropewalk_limits::SlinkConfig;
use ropewalk_sim::sizing::{System, simulate};
use serde_json::{Map, Value, json};

const CALIBRATED: &str = "the configuration that the simulator's costs are taken from; limit: what it makes of them";
const PREDICTED: &str = "limit: what the simulator predicts; promise: within 15 %, or within what was measured";
/// Bytes that a front end writes with one system call.
const SEND: usize = 64 << 10;
/// The cost of a message in the machines and drives, in nanoseconds: an estimate, not taken from the run. Under load a
/// batch shares it, and it hardly matters.
const MESSAGE_NS: f64 = 100.0;
/// A byte costs a run this factor more than the bare receiver, whose one buffer is more often in the cache than the
/// blocks of a pool (`docs/performance.md`, where the time goes).
const DEARER: f64 = 1.2;

/// Iterations for the cost of a fragment; each starts from the last and is nearly exact.
const STEPS: usize = 4;

/// A configuration of the readout unit and builder units of one process.
#[derive(Copy, Clone, Debug)]
struct Setup {
    sources: usize,
    fragment_bytes: usize,
    builders: usize,
}

/// The first is the calibrated one. The next three were measured during the development of the model; those after them
/// were predicted before any measurement, and the model was not changed for them.
const SETUPS: [Setup; 11] = [
    Setup { sources: 16, fragment_bytes: 2048, builders: 1 },
    Setup { sources: 16, fragment_bytes: 1024, builders: 1 },
    Setup { sources: 8, fragment_bytes: 2048, builders: 1 },
    Setup { sources: 16, fragment_bytes: 2048, builders: 2 },
    Setup { sources: 32, fragment_bytes: 2048, builders: 1 },
    Setup { sources: 16, fragment_bytes: 2048, builders: 3 },
    Setup { sources: 16, fragment_bytes: 512, builders: 1 },
    Setup { sources: 16, fragment_bytes: 4000, builders: 1 },
    // More than a FEROL block holds: two pieces per fragment.
    Setup { sources: 16, fragment_bytes: 4096, builders: 1 },
    Setup { sources: 8, fragment_bytes: 1024, builders: 2 },
    Setup { sources: 32, fragment_bytes: 4000, builders: 3 },
];

/// The costs of work on this machine.
#[derive(Copy, Clone, Debug)]
struct Costs {
    bytes_per_cpu_second: f64,
    fragment_ns: f64,
}

/// The measured rates of a configuration, in 10^9 bytes per elapsed second and per second of processor.
#[derive(Clone, Debug)]
struct Measured {
    by_clock: Series,
    per_cpu: Series,
}

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let mut costs = None;
    let all = session.options.scale.choose(4, SETUPS.len(), SETUPS.len());
    for (index, setup) in SETUPS.into_iter().take(all).enumerate() {
        let cases = ["rate", "per_cpu"].map(|figure| setup.case(figure));
        // Without the first there is nothing to predict from.
        if index > 0 && !cases.iter().any(|case| session.wants(case)) {
            continue;
        }
        session.attempt(&cases[0], |session| {
            let measured = setup.measure(session)?;
            let costs = match costs {
                Some(costs) => costs,
                None => *costs.insert(Costs::of(setup, &measured)?),
            };
            let [by_clock, per_cpu] = setup.predict(costs, median(measured.by_clock.limit.iter().copied()))?;
            let note = if index == 0 { CALIBRATED } else { PREDICTED };
            let rows = [(by_clock, measured.by_clock, "GB/s"), (per_cpu, measured.per_cpu, "GB/CPU-s")];
            for (case, (predicted, mut series, unit)) in cases.iter().zip(rows) {
                series.limit.fill(predicted);
                if session.wants(case) {
                    session.row(Row::of(case, unit, &series, note))?;
                }
            }
            Ok(())
        })?;
        if costs.is_none() {
            break;
        }
    }
    Ok(())
}

impl Setup {
    fn case(self, figure: &str) -> Map<String, Value> {
        case([
            ("sources", json!(self.sources)),
            ("fragment_bytes", json!(self.fragment_bytes)),
            ("builders", json!(self.builders)),
            ("figure", Value::from(figure)),
        ])
    }

    /// Memory of the readout unit: per source as much as each of 16 has in the usual one.
    fn pool_mib(self) -> usize {
        USUAL_POOL_MIB.max(USUAL_POOL_MIB / 16 * self.sources)
    }

    /// Measures runs in turns with the bare receiver, which gives the front ends' speed and the cost of a byte.
    fn measure(self, session: &Session<'_>) -> Result<Measured, BenchError> {
        let sender = SlinkConfig {
            streams: self.sources,
            fragment_bytes: self.fragment_bytes,
            fragments_per_send: (SEND / self.fragment_bytes).max(1),
            ..SlinkConfig::default()
        };
        // A shorter time measures nothing while another program has the processors.
        let usual = session.plan(sender, [300, 1000, 2500], "sizing");
        let plan = RunPlan { builders: self.builders, pool_mib: self.pool_mib(), ..usual };
        let ours = || {
            let Ran { gigabytes_per_second, per_processor_second, .. } = plan.run()?;
            Ok([gigabytes_per_second, per_processor_second])
        };
        let [by_clock, per_cpu] = alternate(session.options.scale.pairs(), ours, || {
            bare_receiver(&plan).map(|[rate, per_cpu, _]| [rate, per_cpu])
        })?;
        Ok(Measured { by_clock, per_cpu })
    }

    /// Simulates with these costs and front ends that send this many 10^9 bytes a second. Returns the rate per elapsed
    /// second and per second of processor.
    fn predict(self, costs: Costs, front_ends: f64) -> Result<[f64; 2], BenchError> {
        let system =
            System::parse("bench sizing", &self.describe(costs, front_ends), &[]).map_err(BenchError::wrong)?;
        let outcome = simulate(&system);
        let computer = outcome.resources.iter().find(|resource| resource.name == "the computer");
        let busy = computer.map_or(0.0, |computer| computer.utilisation);
        let rate = outcome.rate.bytes_per_s / 1e9;
        if !outcome.events.balanced || busy <= 0.0 {
            return Err(BenchError::wrong(format!("the simulation: {:?}", outcome.events)));
        }
        Ok([rate, rate / busy])
    }

    /// This configuration as a sizing file: the setup of `RunPlan` on one computer with these costs.
    fn describe(self, costs: Costs, front_ends: f64) -> String {
        let Self { sources, fragment_bytes, builders } = self;
        format!(
            "version = 1\nduration = \"120ms\"\nwarm_up = \"40ms\"\nplacement = \"shared\"\n\
             front_ends = 1\nreadouts = 1\nbuilders = {builders}\n\
             [front_end]\nformat = \"bare\"\nstreams = {sources}\nfragment_size = \"{fragment_bytes}\"\nlink = \"{:.3}MB/s\"\n\
             [front_network]\nframing = \"none\"\npacket = \"64KiB\"\nbuffer = \"16MiB\"\nlatency = \"1us\"\n\
             [readout]\ninput = \"1TB/s\"\npool = \"{}MiB\"\nwindow = 4096\ncapacity = 32768\n\
             [readout.host]\ncores = 1\nturn = \"2us\"\nper_message = \"{MESSAGE_NS:.0}ns\"\n\
             per_fragment = \"{:.0}ns\"\nreceive = \"{:.3}MB/s\"\n\
             [builder]\nevents = 2048\nbytes = \"64MiB\"\n[manager]\nbatch = 32\ncapacity = 65536\n",
            front_ends * 1e3,
            self.pool_mib(),
            costs.fragment_ns,
            costs.bytes_per_cpu_second / 1e6,
        )
    }
}

impl Costs {
    /// The cost of a byte from the bare receiver, and the remaining cost of a fragment, chosen so that the simulator
    /// reproduces the measured figure.
    fn of(setup: Setup, measured: &Measured) -> Result<Self, BenchError> {
        let [ours, bare] = [&measured.per_cpu.ours, &measured.per_cpu.limit].map(|all| median(all.iter().copied()));
        let ns_per_fragment = |gigabytes_per_second: f64| setup.fragment_bytes as f64 / gigabytes_per_second.max(1e-3);
        let mut costs = Self { bytes_per_cpu_second: bare / DEARER * 1e9, fragment_ns: 0.0 };
        for _ in 0..STEPS {
            // Unlimited front ends: the limit of the computer is wanted.
            let [_, simulated] = setup.predict(costs, 100.0)?;
            let missing = ns_per_fragment(ours) - ns_per_fragment(simulated);
            costs.fragment_ns = (costs.fragment_ns + missing).max(0.0);
        }
        Ok(costs)
    }
}
