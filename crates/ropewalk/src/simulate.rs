//! Runs in virtual time: systems described by numbers, fault campaigns, and one seed's trace.

use crate::arguments::SimulateOptions;
use crate::exit::{self, Failure};
use indicatif::{ProgressBar, ProgressStyle};
use ropewalk_sim::campaign::{Campaign, Orders, Scenario, World};
use std::path::Path;

/// A campaign ends when so many seeds have failed: what comes then is mostly the same.
const MOST_FAILURES: usize = 10;
/// Seeds of a campaign that names none.
const SEEDS: u64 = 500;

pub(crate) fn simulate(options: &SimulateOptions) -> Result<u8, Failure> {
    if let Some(system) = &options.system {
        return crate::sizing::size(system, options);
    }
    if let Some(file) = &options.trace {
        write_trace(options.seed.unwrap_or(0), file)?;
        if options.campaign.is_none() {
            return Ok(exit::GOOD);
        }
    }
    Ok(campaign(options))
}

/// Runs the seeds and tells what they found.
fn campaign(options: &SimulateOptions) -> u8 {
    let seeds = options.campaign.unwrap_or(SEEDS);
    let orders = Orders { first: options.seed.unwrap_or(0), seeds, most_failures: MOST_FAILURES };
    let bar = ProgressBar::new(seeds);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} seeds, {per_sec}, {eta} to go {msg}") {
        bar.set_style(style);
    }
    let mut told = 0;
    let campaign = Campaign::run(orders, |campaign| {
        bar.inc(1);
        for failure in &campaign.failures[told..] {
            bar.suspend(|| eprintln!("{failure}"));
        }
        told = campaign.failures.len();
        true
    });
    bar.finish_and_clear();
    for failure in &campaign.failures[told..] {
        eprintln!("{failure}");
    }
    if options.json {
        say!("{}", campaign.to_json());
    } else {
        say!("{}", campaign.coverage);
        say!(
            "{} seeds from {}, {:.0} s of virtual time, {} failed",
            campaign.seeds,
            campaign.first,
            campaign.nanoseconds as f64 / 1e9,
            campaign.failures.len()
        );
        campaign.failures.iter().for_each(|failure| say!("{}", failure.replay()));
    }
    if campaign.failures.is_empty() { exit::GOOD } else { exit::UNBALANCED }
}

/// Runs one seed and writes what happened for Perfetto.
fn write_trace(seed: u64, file: &Path) -> Result<(), Failure> {
    let mut world = World::with_trace(Scenario::draw(seed));
    if let Err(broken) = world.run().and_then(|()| world.judge()) {
        eprintln!("seed {seed}: {broken}");
    }
    let trace = world.take_trace().unwrap_or_default();
    let told = |error: std::io::Error| Failure::Environment(format!("cannot write {}: {error}", file.display()));
    std::fs::write(file, trace.to_string()).map_err(told)?;
    eprintln!("seed {seed}: trace in {}; open it at https://ui.perfetto.dev", file.display());
    Ok(())
}
