//! The command line of the laboratory.

use clap::{Args, Parser, Subcommand};
use ropewalk_config::quantity::Time;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;

/// The laboratory of Ropewalk: benches, simulations, and bare probes of the machine.
#[derive(Debug, Parser)]
#[command(name = "ropewalk-lab", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure what this machine does, each figure in turns with its limit.
    Bench(BenchOptions),
    /// Simulate: a system larger than this machine, or fault campaigns that check that nothing is lost without a cause.
    Simulate(SimulateOptions),
    /// Measure what the machine can do at most, with bare probes: processors, memory, sockets.
    Limits(LimitsOptions),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk-lab limits
  ropewalk-lab limits --quick --json")]
pub(crate) struct LimitsOptions {
    /// Take a tenth of the time.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk simulate --campaign 500
  ropewalk simulate --campaign 100000 --seed 1000000 --json
  ropewalk simulate --seed 17 --trace seed17.txt
  ropewalk simulate examples/sizing/cms-run2.toml
  ropewalk simulate examples/sizing/cms-run2.toml --duration 200ms --sweep builders=40,48,62 --json
  ropewalk simulate examples/sizing/cms-run2-test-bed.toml --sweep front_end.fragment_size=1KiB,2KiB,4KiB")]
pub(crate) struct SimulateOptions {
    /// The system: a sizing file. Without one, a fault campaign.
    #[arg(conflicts_with_all = ["campaign", "trace"])]
    pub(crate) system: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sizing: SizingOptions,
    /// Run this many seeds, each a system with its own schedule of faults (500 unless given).
    #[arg(long, value_name = "N")]
    pub(crate) campaign: Option<u64>,
    /// The first seed of a campaign; in a sizing, replaces the file's seed.
    #[arg(long, value_name = "FIRST")]
    pub(crate) seed: Option<u64>,
    /// Write what happens with the first seed, one line after the other.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Print the outcome as JSON; the last line is one object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SizingOptions {
    /// Sizing: simulate this long; the warm-up keeps its part of it.
    #[arg(long, value_name = "TIME", requires = "system")]
    pub(crate) duration: Option<Time>,
    /// Sizing: set a key to this value instead of the file's; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting, requires = "system")]
    pub(crate) set: Vec<(String, String)>,
    /// Sizing: simulate once for each of these values of a key of the file.
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = sweep, requires = "system")]
    pub(crate) sweep: Option<Sweep>,
}

/// A key of a sizing file, and the values that it is to have in turn.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Sweep {
    /// The key.
    pub(crate) key: String,
    /// The values.
    pub(crate) values: Vec<String>,
}

/// Parses `KEY=VALUE,...`; commas within brackets belong to a value.
fn sweep(text: &str) -> Result<Sweep, String> {
    let wrong = || "KEY=VALUE,..., such as builders=8,16,32 or front_end.fragment_size=1KiB,2KiB".to_owned();
    let (key, list) = text.split_once('=').ok_or_else(wrong)?;
    let (mut values, mut depth) = (vec![String::new()], 0_u32);
    for letter in list.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match values.last_mut() {
            Some(value) if letter != ',' || depth > 0 => value.push(letter),
            _ => values.push(String::new()),
        }
    }
    let values: Vec<String> = values.into_iter().map(|value| value.trim().to_owned()).collect();
    if key.trim().is_empty() || values.iter().any(String::is_empty) {
        return Err(wrong());
    }
    Ok(Sweep { key: key.trim().to_owned(), values })
}

/// Parses `KEY=VALUE`.
fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("KEY=VALUE, such as builders=8 or event_network.buffer=256KiB".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "The exit status is 1 if a case failed; the others are measured.

Examples:
  ropewalk bench builder --quick
  ropewalk bench crc --case checksum=crc16 --json
  ropewalk bench machines --report reports
  ropewalk bench gateway --quick --case table=3
  ropewalk bench compare old/release target/release machines --quick")]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// builder, machines, scale, monitoring, framing, splitting, filtering, filing, crc, write, storing, start, demo, sizing, tcpla, felix, packet or gateway.
    #[arg(required = true)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) measured: Measured,
    /// Also keep the lines in DIR, in a directory named by date and host.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// A fixed and small amount of work, whose instructions bench/instructions.py counts. Its figures mean nothing.
    #[arg(long, hide = true, conflicts_with = "quick")]
    pub(crate) tiny: bool,
    /// Also measure iperf3, ZeroMQ and libfabric, where they are installed (tcpla).
    #[arg(long)]
    pub(crate) peers: bool,
}

/// What a bench and a comparison are asked in the same way.
#[derive(Debug, Args)]
pub(crate) struct Measured {
    /// Fewer pairs, within a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object a line; the first says what machine it is.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only cases whose text contains this, such as `crc=on`.
    #[arg(long, value_name = "FILTER")]
    pub(crate) case: Option<String>,
    /// Where files may be written; they are removed again.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Run a bench of two builds in turns, and say which cases are better or worse in the second one.
    Compare(CompareOptions),
}

#[derive(Debug, Args)]
#[command(after_help = "Both builds run the whole bench once in each pair; every second pair begins with B.
A ratio is the figure of B to that of A of the same pair. A case is better or
worse if all ratios are on the same side of 1; otherwise there is no difference.

The exit status is 1 if a case is worse by more than 3 % in the median, or
fails in B and not in A; 0 otherwise. For times and losses lower is better.

Examples:
  ropewalk bench compare ../main/target/release target/release machines --quick
  ropewalk bench compare old/ropewalk-lab new/ropewalk-lab felix --case figure=6 --json")]
pub(crate) struct CompareOptions {
    /// The build before: its ropewalk-lab, or the directory that contains ropewalk and ropewalk-lab.
    #[arg(value_name = "A")]
    pub(crate) before: PathBuf,
    /// The build that is judged.
    #[arg(value_name = "B")]
    pub(crate) after: PathBuf,
    /// The bench.
    pub(crate) name: String,
    /// How many times both builds are measured.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pairs: u32,
    #[command(flatten)]
    pub(crate) measured: Measured,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_a_key_and_its_values() {
        let sweep = sweep("trigger.rate=poisson(1kHz), 2kHz").expect("a sweep");
        assert_eq!(
            (sweep.key.as_str(), sweep.values),
            ("trigger.rate", vec!["poisson(1kHz)".to_owned(), "2kHz".to_owned()])
        );
        let sizes = super::sweep("front_end.fragment_size=uniform(1KiB,4KiB),2KiB").expect("a sweep").values;
        assert_eq!(sizes, ["uniform(1KiB,4KiB)", "2KiB"]);
        for wrong in ["builders", "builders=", "=1,2", "builders=1,,2"] {
            assert!(super::sweep(wrong).expect_err(wrong).contains("builders=8,16,32"));
        }
    }

    #[test]
    fn a_setting_is_a_key_and_a_value() {
        assert_eq!(setting("builders = 8"), Ok(("builders".to_owned(), "8".to_owned())));
        for wrong in ["builders", "builders=", "=8"] {
            assert!(setting(wrong).expect_err(wrong).contains("builders=8"));
        }
    }
}
