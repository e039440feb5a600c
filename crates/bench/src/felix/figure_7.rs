//! Figure 7: blocks a second against threads, each with its own blocks.

use super::blocks::Lines;
use super::blocks::{BLOCK, Blocks, Memory, Sizes};
use super::cost_of;
use super::figure_6;
use super::stages::Stage;
use crate::BenchError;
use crate::pairs::{Series, alternate};
use crate::session::{Row, Session, case};
use ropewalk_limits::{core_scaling, pin_to_cpu, thread_cpu_seconds};
use ropewalk_memory::HugePages;
use serde_json::json;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Duration;

const NOTE: &str = "10^6 blocks/s of all threads, each by its own processor time; equal chunks of 64 B. Limit: as many \
                    threads that read two bytes of every line. The paper's 24 links need 6.35. Target: two threads \
                    1.8 times one, where two cores are real and memory is not full";
const PROBE: &str = "times one processor that two do in arithmetic; limit: 2 real cores";

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let counts: Vec<usize> = (1..=cpus).filter(|count| count.is_power_of_two() || *count == cpus).collect();
    let probe = case([("figure", json!("7")), ("probe", json!("two cores"))]);
    if cpus > 1 {
        session.measure(&probe, |session| {
            let ours = || Ok([core_scaling([0, 1], Duration::from_millis(scale.choose(2, 100, 200)))]);
            let [series] = alternate(scale.choose(1, 1, 3), ours, || Ok([2.0]))?;
            session.row(Row::of(&probe, "times", &series, PROBE))
        })?;
    }
    let mut blocks = None;
    for threads in counts {
        let case = case([("figure", json!("7")), ("threads", json!(threads)), ("stage", json!(Stage::Ours.name()))]);
        session.measure(&case, |session| {
            let blocks = match &mut blocks {
                Some((_, blocks)) => blocks,
                none => {
                    let mut memory = Memory::new(figure_6::bytes(session), HugePages::Auto)?;
                    let made = Blocks::new(&mut memory, Sizes::Equal(64))?;
                    &none.insert((memory, made)).1
                }
            };
            let parts: Vec<&[u8]> =
                blocks.bytes.chunks((blocks.count() / threads).max(1) * BLOCK).take(threads).collect();
            let ours = || Ok([millions_per_second(&parts, |part| Stage::Ours.decode(part).pieces)]);
            let limit = || Ok([millions_per_second(&parts, |part| Lines::touch_part(part, blocks))]);
            let [series]: [Series; 1] = alternate(scale.pairs(), ours, limit)?;
            let gigabytes = |side: &[f64]| side.iter().map(|millions| millions * BLOCK as f64 / 1e3).collect();
            let rates = Series { ours: gigabytes(&series.ours), limit: gigabytes(&series.limit) };
            let row = Row::of(&case, "10^6 blocks/s", &series, NOTE);
            session.row(row.with_process_cpu(&cost_of(&rates, threads)))
        })?;
    }
    Ok(())
}

/// All threads begin at once, each on its own processor; their rates are added.
fn millions_per_second(parts: &[&[u8]], work: impl Fn(&[u8]) -> u64 + Sync) -> f64 {
    let start = Barrier::new(parts.len());
    let one = |cpu: usize, part: &[u8]| {
        // Without permission to pin, the scheduler spreads busy threads anyway.
        let _ = pin_to_cpu(cpu);
        start.wait();
        let begin = thread_cpu_seconds();
        black_box(work(part));
        (part.len() / BLOCK) as f64 / (thread_cpu_seconds() - begin).max(1e-9) / 1e6
    };
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.iter().enumerate().map(|(cpu, part)| scope.spawn(move || one(cpu, part))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}
