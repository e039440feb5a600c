//! Runs in virtual time: systems described by numbers, fault campaigns, and one seed's trace.

use crate::arguments::SimulateOptions;
use crate::output::print_json;
use ropewalk_console::exit::{self, Failure};
use ropewalk_console::grouped;
use ropewalk_console::output;
use ropewalk_sim::campaign::{Campaign, Orders, Scenario, push, run_with_text};
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// A campaign ends when this many seeds have failed: what comes then is mostly the same.
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
    campaign(options)
}

/// How often progress is printed.
const REFRESH: Duration = Duration::from_millis(250);

/// How far the campaign is after this time.
fn so_far(done: u64, seeds: u64, time: Duration) -> String {
    let per_second = done as f64 / time.as_secs_f64().max(1e-3);
    let left = seeds.saturating_sub(done) as f64 / per_second.max(1e-3);
    format!("{} of {} seeds, {per_second:.0}/s, {left:.0} s to go", grouped(done), grouped(seeds))
}

/// Runs the seeds and prints what they found.
fn campaign(options: &SimulateOptions) -> Result<u8, Failure> {
    let seeds = options.campaign.unwrap_or(SEEDS);
    let orders = Orders { first: options.seed.unwrap_or(0), seeds, most_failures: MOST_FAILURES };
    let is_terminal = std::io::stderr().is_terminal();
    let (begin, mut told) = (Instant::now(), 0);
    let mut drawn = begin;
    let campaign = Campaign::run(orders, |campaign| {
        for failure in &campaign.failures[told..] {
            tell!("{failure}");
        }
        told = campaign.failures.len();
        if is_terminal && drawn.elapsed() > REFRESH {
            drawn = Instant::now();
            output::live(Some(so_far(campaign.seeds, seeds, begin.elapsed())));
        }
    });
    if is_terminal {
        output::live(None);
    }
    if options.json {
        print_json(&campaign.summary())?;
    } else {
        say!("{}", campaign.coverage);
        say!(
            "{} seeds from {}, {:.0} s of virtual time, {} failed",
            campaign.seeds,
            campaign.first,
            campaign.nanoseconds as f64 / 1e9,
            campaign.failures.len()
        );
        campaign.failures.iter().for_each(|failure| say!("{}", failure.replay));
    }
    Ok(if campaign.failures.is_empty() { exit::GOOD } else { exit::UNBALANCED })
}

/// Runs both systems of a seed and writes what happened in them, one line after the other.
fn write_trace(seed: u64, file: &Path) -> Result<(), Failure> {
    let systems = [run_with_text(Scenario::draw(seed)), run_with_text(push::Scenario::draw(seed))];
    for broken in systems.iter().filter_map(|outcome| outcome.broken.as_ref()) {
        tell!("seed {seed}: {broken}");
    }
    let texts = systems.map(|outcome| outcome.text).join("\n");
    std::fs::write(file, texts)
        .map_err(|error| Failure::Environment(format!("cannot write {}: {error}", file.display())))
}
