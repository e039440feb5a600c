//! The command line of the laboratory.

use clap::{Args, Parser, Subcommand};
use ropewalk_config::quantity::Time;
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
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::sizing::setting, requires = "system")]
    pub(crate) set: Vec<(String, String)>,
    /// Sizing: simulate once for each of these values of a key of the file.
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = crate::sizing::sweep, requires = "system")]
    pub(crate) sweep: Option<crate::sizing::Sweep>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk bench builder --quick
  ropewalk bench crc --case checksum=crc16 --json
  ropewalk bench machines --report reports
  ropewalk bench gateway --quick --case table=3")]
pub(crate) struct BenchOptions {
    /// builder, machines, monitoring, framing, splitting, filtering, filing, crc, write, storing, start, sizing, tcpla, felix, packet or gateway.
    pub(crate) name: String,
    /// Fewer pairs, within a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object a line; the first says what machine it is.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only cases whose text contains this, such as `crc=on`.
    #[arg(long, value_name = "FILTER")]
    pub(crate) case: Option<String>,
    /// Also keep the lines in DIR, in a directory named by date and host.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Also measure iperf3, ZeroMQ and libfabric, where they are installed (tcpla).
    #[arg(long)]
    pub(crate) peers: bool,
    /// Where files may be written; they are removed again.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}
