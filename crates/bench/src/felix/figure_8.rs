//! Figure 8: the read rate of this machine's memory, as the paper's PMBW measures it.

use super::blocks::Memory;
use super::cost_of;
use crate::BenchError;
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use ropewalk_limits::touch::Width;
use ropewalk_limits::{pin_to_cpu, thread_cpu_seconds};
use ropewalk_memory::HugePages;
use serde_json::json;
use std::hint::black_box;
use std::sync::Barrier;

const NOTE: &str = "GB/s of all threads, each word read once by a simple loop, each thread by its own processor time. \
                    Limit: the same bytes read with vectors";

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let far = scale.choose(1 << 20, 256 << 20, 1 << 30);
    // The first two caches, a part of the last one, and memory.
    let sizes: &[usize] = scale.choose(&[16 << 10], &[16 << 10, 256 << 10], &[16 << 10, 256 << 10, 8 << 20]);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for (pages, huge_pages) in [("huge", HugePages::Auto), ("plain", HugePages::Never)] {
        let mut memory = None;
        for threads in (1..=cpus).filter(|count| count.is_power_of_two() || *count == cpus) {
            // The cache levels have the same speed on any page size.
            let sizes = sizes.iter().copied().filter(|_| pages == "huge").chain([far]);
            for (bytes, width) in sizes.flat_map(|bytes| Width::ALL.map(|width| (bytes, width))) {
                let case = case([
                    ("figure", json!("8")),
                    ("bytes", json!(bytes)),
                    ("pages", json!(pages)),
                    ("threads", json!(threads)),
                    ("width", json!(width.name())),
                ]);
                session.measure(&case, |session| {
                    let (_, all) = match &mut memory {
                        Some(memory) => memory,
                        none => {
                            let mut memory = Memory::new(far, huge_pages)?;
                            let bytes = memory.filled(|bytes| bytes.fill(1))?;
                            none.insert((memory, bytes))
                        }
                    };
                    let rate = |width: Width| scan(all, bytes, threads, width, scale.choose(0.0, 0.03, 0.1));
                    let [series] = alternate(scale.pairs(), || Ok([rate(width)]), || Ok([rate(Width::Vectors)]))?;
                    session.row(Row::of(&case, "GB/s", &series, NOTE).with_process_cpu(&cost_of(&series, threads)))
                })?;
            }
        }
    }
    Ok(())
}

/// Each thread reads this many bytes of its own part; parts smaller than memory are read repeatedly.
fn scan(all: &[u8], bytes: usize, threads: usize, width: Width, at_least: f64) -> f64 {
    let start = Barrier::new(threads);
    let one = |thread: usize| {
        let _ = pin_to_cpu(thread);
        let part = &all[thread * (all.len() / threads)..][..bytes.min(all.len() / threads)];
        // Several rounds between two clock reads, which cost as much as a small part.
        let rounds = ((4 << 20) / part.len()).max(1);
        black_box(width.scan(part));
        start.wait();
        let (begin, mut read) = (thread_cpu_seconds(), 0);
        loop {
            for _ in 0..rounds {
                black_box(width.scan(black_box(part)));
            }
            read += rounds * part.len();
            let seconds = thread_cpu_seconds() - begin;
            if seconds >= at_least {
                return read as f64 / seconds.max(1e-9) / 1e9;
            }
        }
    };
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}
