//! `bench felix`: the figures of paper 4, for our decoder and the designs it grew from.
//!
//! ```text
//!  figure=6         time per block against chunk size, at every stage of the paper and at ours   figure_6.rs
//!  figure=7         blocks a second against threads                                              figure_7.rs
//!  figure=8         how fast words are read, from each cache and from memory                     figure_8.rs
//!  figure=9         the roofline, and the layout with a table of trailers                        figure_9.rs
//!  figure=pipeline  a card's ring, decoded and routed to a subscriber in this process             pipeline.rs
//!  figure=subscriber, figure=latency: the same to a subscriber over TCP, and how long it takes    latency.rs
//! ```
//! The limit of each figure is the memory in the same seconds: two bytes read in each cache line of the blocks, or only
//! in lines that hold a header or a trailer, and as many records written and read again as chunks come out. The blocks
//! lie in memory far beyond the caches (blocks.rs); the output is a batch that stays in the cache and is read at once.
//! Processor time is counted, so that other programs disturb less.

mod blocks;
mod figure_6;
mod figure_7;
mod figure_8;
mod figure_9;
mod latency;
mod pipeline;
mod stages;

use crate::BenchError;
use crate::pairs::Series;
use crate::session::Session;
use ropewalk_limits::thread_cpu_seconds;
use std::hint::black_box;

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    figure_6::bench(session)?;
    figure_7::bench(session)?;
    figure_8::bench(session)?;
    figure_9::bench(session)?;
    pipeline::bench(session)?;
    latency::bench(session)
}

/// Converts rates in 10^9 bytes a second of processor time to processor seconds per 10^9 bytes, for this number of
/// threads: only these threads work.
fn cost_of(rates: &Series, threads: usize) -> Series {
    let cost = |side: &[f64]| side.iter().map(|rate| threads as f64 / rate.max(1e-9)).collect();
    Series { ours: cost(&rates.ours), limit: cost(&rates.limit) }
}

/// Processor time of the calling thread for `work`, in ns per thing; at least one call, and more until `at_least` has
/// passed.
fn nanoseconds_each(things: usize, at_least: f64, mut work: impl FnMut() -> u64) -> f64 {
    let (begin, mut rounds) = (thread_cpu_seconds(), 0);
    loop {
        black_box(work());
        rounds += 1;
        let seconds = thread_cpu_seconds() - begin;
        if seconds >= at_least {
            return seconds.max(1e-9) * 1e9 / (rounds * things) as f64;
        }
    }
}
