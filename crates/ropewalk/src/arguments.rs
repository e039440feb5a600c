//! The commands and options of the command line.
//!
//! Help texts: a command says what it does, in the imperative and in one line. An option with a value has a noun
//! phrase, with unit and default; a flag is in the imperative.

use crate::ctl::{DASHBOARD, URL_VARIABLE};
use crate::render::with_default;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ropewalk_config::quantity::{Bytes, Rate, Size, Time, Times, TriggerRate};
use ropewalk_config::{FileBasedSection, StreamSection, TriggerChoice};
use ropewalk_wire::foreign::ForeignFormat;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// Event builder for particle physics: combines front-end fragments into events.
#[derive(Debug, Parser)]
#[command(name = "ropewalk", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build events from emulated front ends; needs no configuration.
    Demo(DemoOptions),
    /// Write a first configuration, which runs with emulated front ends.
    Init(InitOptions),
    /// Take runs with a configuration, all nodes in one process.
    Run(RunOptions),
    /// Start, pause, stop and inspect runs through run control.
    Ctl(crate::ctl::CtlOptions),
    /// List, show, compare, annotate and export past runs.
    Runs(crate::runs::RunsOptions),
    /// Watch a run live in the terminal.
    Top(TopOptions),
    /// Show the counters of the nodes on this machine, even if they hang.
    Counters(crate::counters::CountersOptions),
    /// Run one node of a run that uses several processes or machines.
    Node(NodeOptions),
    /// Emulate front ends, or test a source on recorded data.
    Source {
        #[command(subcommand)]
        command: SourceCommand,
    },
    /// Emulate farm nodes, which decide on the events of gateways.
    FarmNode(FarmNodeOptions),
    /// Print the decisions of a gateway, in event order.
    Decisions(DecisionsOptions),
    /// Filter the event files of a run directory with filter units.
    FilterFiles(FilterFilesOptions),
    /// Run one filter unit for `ropewalk filter-files`.
    FilterUnit(FilterUnitOptions),
    /// Run filter units for builder units on other machines.
    FilterNode(FilterNodeOptions),
    /// Sum the histograms and trigger counts of a run's filters.
    Histograms(HistogramsOptions),
    /// Run a splitter plug-in in a separate process.
    #[command(hide = true)]
    SplitterProcess,
    /// Run a filter plug-in in a separate process.
    #[command(hide = true)]
    FilterProcess,
    /// Run a filter program with restricted rights.
    #[command(hide = true)]
    FilterProgram(FilterProgramOptions),
    /// Check run directories or other data files: gaps, checksums.
    Verify(VerifyOptions),
    /// Show the contents of run files, captures and other data files.
    Inspect(InspectOptions),
    /// Send recorded data again, to a readout unit or another address.
    Replay(ReplayOptions),
    /// Convert data files of other formats to run files, or the reverse.
    #[command(after_help = "Examples:
  ropewalk convert run7.mid.lz4 --output converted
  ropewalk convert board.pcapng --by board.toml --output converted
  ropewalk convert run000001_ls0001_index000000.raw --from frd
  ropewalk convert converted/run000001 --to frd --output files")]
    Convert(ConvertOptions),
    /// Analyse unknown front-end data and draft a source for it.
    Sniff(SniffOptions),
    /// Close the files of a crashed run and report what is missing.
    Recover(RecoverOptions),
    /// Simulate large systems, or many runs with injected faults.
    #[command(disable_help_flag = true, after_help = LABORATORY_HELP)]
    Simulate(LaboratoryOptions),
    /// Decode, dump, generate, serve and receive FELIX blocks.
    Felix {
        #[command(subcommand)]
        command: crate::felix::FelixCommand,
    },
    /// Measure components of Ropewalk against the limits of this machine.
    #[command(disable_help_flag = true, after_help = LABORATORY_HELP)]
    Bench(LaboratoryOptions),
    /// Measure this machine and report what limits it (20 s).
    Doctor(crate::doctor::DoctorOptions),
    /// Show NUMA nodes, cores, network cards and thread placement.
    Topology(TopologyOptions),
    /// Check, change and restore the system settings for data taking.
    Tune {
        #[command(subcommand)]
        command: crate::tune::TuneCommand,
    },
    /// Check a configuration, or print its JSON schema.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print a shell completion script.
    #[command(after_help = "Examples:
  ropewalk completions bash > /etc/bash_completion.d/ropewalk
  ropewalk completions zsh > ~/.zfunc/_ropewalk
  ropewalk completions fish > ~/.config/fish/completions/ropewalk.fish")]
    Completions {
        /// Shell that reads the script.
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command.
    #[command(after_help = "Example: ropewalk man ~/.local/share/man/man1")]
    Man {
        /// Directory of the pages; created if it does not exist.
        directory: PathBuf,
    },
    /// List all commands, including rare and internal ones.
    Commands,
}

/// The help of the laboratory without the laboratory.
const LABORATORY_HELP: &str = "Examples:
  ropewalk bench builder --quick
  ropewalk simulate --campaign 500
  ropewalk simulate examples/sizing/cms-run2.toml

This command runs `ropewalk-lab`, in the directory of this program, with the
same arguments. Build it to see all options here:
  cargo build --release -p ropewalk-lab";

/// A command of the laboratory, which reads its own arguments.
#[derive(Debug, Args)]
pub(crate) struct LaboratoryOptions {
    /// Arguments for ropewalk-lab.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<std::ffi::OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Emulate the trigger and all sources of a system with gateways.
    #[command(after_help = "The configuration needs fixed ports: trigger.listen, gateway.listen,
gateway.control.

Examples:
  ropewalk source mep gateway.toml --duration 10s
  ropewalk source mep gateway.toml --flow l1 --rate 'poisson(20kHz)' --json")]
    Mep(SourceMepOptions),
    /// Test the layout or format of a source on recorded data.
    #[command(after_help = "Examples:
  ropewalk source test board.toml --source board-1 --input board.pcapng
  ropewalk source test setup.toml --source caen --input capture.bin --json")]
    Test(SourceTestOptions),
}

#[derive(Debug, Args)]
pub(crate) struct InitOptions {
    /// Kind of system.
    pub(crate) kind: InitKind,
    /// Directory of the new file; created if it does not exist. An existing configuration is kept.
    pub(crate) directory: PathBuf,
}

/// The kind of system that a configuration describes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum InitKind {
    /// Boards of different makes, described by layouts.
    Testbeam,
    /// Readout units, builder units and an event manager, as at CMS.
    Pull,
    /// Sources that push packets to a gateway and its farm, as at LHCb.
    Gateway,
    /// A link card and its e-links, as at ATLAS.
    Felix,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk filter-files run000001 --units 4 --trigger 'random = { share = 0.1 }'
  ropewalk filter-files /dev/shm/run000001 --trigger 'every = 100' --json")]
pub(crate) struct FilterFilesOptions {
    /// Run directory with event files, closed by _EoLS.jsn and _EoR.jsn; best in memory.
    pub(crate) directory: PathBuf,
    /// Number of filter units to start; with 0, start them with `ropewalk filter-unit`.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) units: u32,
    #[command(flatten)]
    pub(crate) task: UnitTaskOptions,
    /// Number of filter units that may crash on a file before the file is set aside.
    #[arg(long, value_name = "N", default_value_t = FileBasedSection::TRIES)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) tries: u16,
    /// Time limit for one file; a slower filter unit is ended.
    #[arg(long, value_name = "TIME", default_value_t = FileBasedSection::TIMEOUT)]
    pub(crate) time_out: Time,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FilterProgramOptions {
    /// Memory limit, in bytes.
    pub(crate) memory: u64,
    /// Process id of the parent.
    pub(crate) starter: u32,
    /// Program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk filter-node run.toml --listen 0.0.0.0:9500
  ropewalk run run.toml

The configuration of the run names this node: [filter] nodes = [\"filter1:9500\"].")]
pub(crate) struct FilterNodeOptions {
    /// Configuration with the same `[filter]` section as the run.
    pub(crate) config: PathBuf,
    /// Address for builder units; with port 0, a free port is chosen and printed.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9500")]
    pub(crate) listen: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk histograms run000001
  ropewalk histograms /data0/run000001 /data1/run000001 --json")]
pub(crate) struct HistogramsOptions {
    /// All directories of one run.
    #[arg(required = true)]
    pub(crate) directories: Vec<PathBuf>,
    /// Print all bins and counts as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FilterUnitOptions {
    /// Run directory that `ropewalk filter-files` works on.
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) task: UnitTaskOptions,
}

/// The work of filter units on files.
#[derive(Debug, Args)]
pub(crate) struct UnitTaskOptions {
    /// Trigger, as in the configuration: all, 'every = 10', 'random = { share = 0.1 }'; repeatable, any of them
    /// accepts an event. By default all events are accepted.
    #[arg(long, value_name = "TRIGGER")]
    pub(crate) trigger: Vec<TriggerChoice>,
    /// Stream, as in the configuration: 'name = "monitoring", prescale = 10'; repeatable. By default one stream,
    /// "selected", gets all accepted events.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Vec<StreamSection>,
    /// Filter library that decides instead of triggers.
    #[arg(long, value_name = "FILE", conflicts_with = "trigger")]
    pub(crate) library: Option<PathBuf>,
    /// Configuration text for the library.
    #[arg(long, value_name = "TEXT", default_value = "", requires = "library")]
    pub(crate) configuration: String,
    /// Memory limit of the library.
    #[arg(long, value_name = "SIZE", default_value_t = FileBasedSection::MEMORY, requires = "library")]
    pub(crate) memory: Bytes,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertOptions {
    /// Data files of one format or captures of it, also compressed; with --to, run directories or run files.
    #[arg(required = true, value_name = "FILE|RUNDIR")]
    pub(crate) files: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = ConvertTo::Run)]
    pub(crate) to: ConvertTo,
    /// Input format of files that are not run files, such as srs or midas; detected by default.
    #[arg(long, value_name = "FORMAT", value_parser = foreign_format)]
    pub(crate) from: Option<ForeignName>,
    /// Configuration whose sources sent the data: one capture, the bytes of one source, or a file for each source.
    /// Events are built as in a run.
    #[arg(long, value_name = "CONFIG", conflicts_with_all = ["from", "to"])]
    pub(crate) by: Option<PathBuf>,
    /// Source of the configuration to convert, repeatable, in the order of the files; by default all sources.
    #[arg(long, value_name = "NAME", requires = "by")]
    pub(crate) source: Vec<String>,
    /// Version of new FRD headers; only with 4 may event numbers exceed 32 bits.
    #[arg(long, value_name = "3|4|5", default_value_t = FileBasedSection::FRD_VERSION)]
    pub(crate) frd_version: u32,
    /// Events in each file of a run directory for filter units (--to frd).
    #[arg(long, value_name = "N", requires = "lumisection_events", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) file_events: Option<u32>,
    /// Event numbers in each lumisection (--file-events).
    #[arg(long, value_name = "N", requires = "file_events", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) lumisection_events: Option<u64>,
    /// Directory for the new run directory or files.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}

/// The output of `convert`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ConvertTo {
    /// Run files in a run directory.
    Run,
    /// CMS FED raw data; the sources of the run must send FED fragments.
    Frd,
    /// LHCb MDF records; fragments that are not banks become banks of type 255.
    Mdf,
    /// All fragments back to back.
    Raw,
}

#[derive(Debug, Args)]
pub(crate) struct SourceTestOptions {
    /// Configuration file.
    pub(crate) config: PathBuf,
    /// Name of the source.
    #[arg(long, value_name = "NAME")]
    pub(crate) source: String,
    /// Data from its board: a capture (pcap, pcapng) or the bytes of a stream.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// Destination port of the packets in a capture [default: the port of the source's `listen`].
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SourceMepOptions {
    /// Configuration file.
    pub(crate) config: PathBuf,
    /// Flow to emulate, repeatable; by default all flows.
    #[arg(long, value_name = "NAME")]
    pub(crate) flow: Vec<String>,
    /// Event rate [default: the rate in the configuration].
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Share of packets to drop, 0 to 1.
    #[arg(long, value_name = "SHARE")]
    pub(crate) loss: Option<f64>,
    /// Time limit.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Number of events of the first flow to send.
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<u64>,
    /// Print the account as one JSON object, in the last line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "The configuration needs fixed ports: gateway.control.

Examples:
  ropewalk farm-node gateway.toml
  ropewalk farm-node gateway.toml --nodes 0..2 --accept 0.05
  ropewalk farm-node gateway.toml --decision-time 'lognormal(2ms,1.0)'")]
pub(crate) struct FarmNodeOptions {
    /// Configuration file.
    pub(crate) config: PathBuf,
    /// Numbers of the farm nodes to emulate, END excluded; by default all.
    #[arg(long, value_name = "FIRST..END", value_parser = numbers)]
    pub(crate) nodes: Option<std::ops::Range<u16>>,
    /// Time of a decision [default: the time in the configuration].
    #[arg(long, value_name = "TIMES")]
    pub(crate) decision_time: Option<Times>,
    /// Share of events to accept, 0 to 1.
    #[arg(long, value_name = "SHARE")]
    pub(crate) accept: Option<f64>,
    /// Time limit; by default until interrupted.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Print the account as one JSON object, in the last line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ropewalk decisions 127.0.0.1:9720\n  ropewalk decisions 127.0.0.1:9720 --count 1000 --json"
)]
pub(crate) struct DecisionsOptions {
    /// Address of the decisions: `decisions` of the flow in the configuration.
    pub(crate) address: String,
    /// Number of decisions to print; by default until the gateway ends.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Print each decision as a JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration and report errors with file, line and column.
    #[command(after_help = "Example: ropewalk config check examples/cms-csc.toml")]
    Check {
        /// Configuration file.
        file: PathBuf,
    },
    /// Print the JSON schema of configurations.
    Schema,
}

/// How long the demo runs by default if its output is not a terminal.
pub(crate) const DEMO_DURATION: Time = Time(Duration::from_secs(10));

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk demo
  ropewalk demo --events 100000 --fragment-size 'uniform(1KiB,4KiB)' --json
  ropewalk demo --rate 'poisson(20kHz)' --readout-units 2 --builder-units 2")]
pub(crate) struct DemoOptions {
    #[arg(long, value_name = "TIME", help = with_default(
        "Running time",
        format!("{} without --events; in a terminal until Ctrl-C", DEMO_DURATION.exact()),
    ))]
    pub(crate) duration: Option<Time>,
    /// Number of events; then the demo stops.
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<u64>,
    /// Number of emulated front ends.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) sources: u16,
    /// Size of a FED fragment, with header and trailer: 2KiB, uniform(1KiB,4KiB), lognormal(2KiB,1.2).
    #[arg(long, value_name = "SIZE", default_value = "2KiB")]
    pub(crate) fragment_size: Size,
    /// Trigger rate: 100kHz, poisson(100kHz); by default as fast as possible.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Number of readout units.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) readout_units: u16,
    /// Number of builder units.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) builder_units: u16,
    /// Disk space for run files; the oldest files are deleted, and the account lists them.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub(crate) keep: Bytes,
    /// Directory in which the run directory is created.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
    /// Print the account as one JSON object, in the last line.
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, value_name = "ADDRESS")]
    #[arg(help = with_default("Address of run control and dashboard", format!("{DASHBOARD}, or a free port")))]
    pub(crate) control: Option<SocketAddr>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk run examples/cms-csc.toml
  ropewalk run my-setup.toml --output /data --duration 1h --keep 100GiB
  ropewalk run my-setup.toml --events 10000 --json
Run after run until Ctrl-C:
  ropewalk run my-setup.toml --bytes 100GiB --then next
With the dashboard at http://127.0.0.1:8900/; the first run is started there:
  ropewalk run my-setup.toml --control 127.0.0.1:8900 --idle

Exit status: 0 nothing lost or doubtful, 1 internal error, 2 usage or
configuration, 3 data lost or doubtful, 4 system error, 130 stopped by force.")]
pub(crate) struct RunOptions {
    /// Configuration file.
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) limits: RunLimits,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    /// Set up the run and wait for a start command.
    #[arg(long, requires = "control")]
    pub(crate) idle: bool,
}

/// Run control.
#[derive(Clone, Debug, Args)]
pub(crate) struct ControlOptions {
    #[arg(long, value_name = "ADDRESS", help = format!("Address of run control and dashboard, such as {DASHBOARD}"))]
    pub(crate) control: Option<SocketAddr>,
    /// File with the token for commands; created if it does not exist. Required unless ADDRESS is local.
    #[arg(long, value_name = "FILE")]
    pub(crate) control_token: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Keys: Tab and 1-5 switch pages, s and r sort sources, Enter shows one source,\n? shows help, q quits."
)]
pub(crate) struct TopOptions {
    /// URL of run control.
    #[arg(long, value_name = "URL", env = URL_VARIABLE, hide_env_values = true)]
    #[arg(default_value_t = format!("http://{DASHBOARD}"))]
    pub(crate) url: String,
    /// Print the screen once and exit; needs no terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// PEM file with trusted certificates for https:// [default: those of the system].
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunLimits {
    /// Directory in which the run directory is created.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Running time; then the run stops.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Number of events; then the run stops.
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<u64>,
    /// Bytes of fragments to receive; then the run stops.
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes: Option<Bytes>,
    /// Action after a run that ends by itself [default: over; in run --control without a limit option: wait].
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) then: Option<Then>,
    /// Disk space for run files; the oldest files are deleted, and the account lists them.
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep: Option<Bytes>,
    /// Field of the run's account, such as beam=120GeV; repeatable. Fields in `required_fields` must be set.
    #[arg(long = "field", value_name = "NAME=VALUE")]
    pub(crate) fields: Vec<ropewalk_config::fields::Field>,
    /// Print the account as one JSON object, in the last line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Then {
    /// Start the next run.
    Next,
    /// Wait for a start command.
    Wait,
    /// End the program.
    Over,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum NodeRole {
    /// A readout unit.
    Readout,
    /// A builder unit.
    Builder,
    /// The event manager, which writes run.json.
    Manager,
    /// A gateway of a push system, which writes run.json.
    Gateway,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples, in three terminals and in any order:
  ropewalk node manager setup.toml --events 100000 --control 127.0.0.1:8900
  ropewalk node readout setup.toml --name ru0
  ropewalk node builder setup.toml --name bu0 --output /data0
A gateway, its sources and its farm nodes:
  ropewalk node gateway gateway.toml --name gw0 --duration 60s
  ropewalk source mep gateway.toml
  ropewalk farm-node gateway.toml
Several runs, each started on the dashboard or with `ropewalk ctl start`:
  ropewalk node manager setup.toml --control 127.0.0.1:8900 --then wait
  ropewalk node readout setup.toml --name ru0 --then next
  ropewalk node builder setup.toml --name bu0 --then next
Replace an event manager that died:
  ropewalk node manager setup.toml --take-over

readout and builder need --name; --take-over is only for manager, and
--control, --field and --json only for manager and gateway.")]
pub(crate) struct NodeOptions {
    /// Role of the node.
    #[arg(value_enum)]
    pub(crate) role: NodeRole,
    /// Configuration file, the same for all nodes.
    pub(crate) config: PathBuf,
    /// Name of the node in the configuration.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Address of a node whose configured port is 0, such as manager=127.0.0.1:40001; repeatable.
    #[arg(long = "at", value_name = "NAME=ADDRESS")]
    pub(crate) at: Vec<String>,
    /// Take over the run of an event manager that died: the newest one without run.json.
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) limits: RunLimits,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk verify run000001
  ropewalk verify /data0/run000007 /data1/run000007 --json
  ropewalk verify run00407.mid.lz4
  ropewalk verify capture.pcapng --format srs")]
pub(crate) struct VerifyOptions {
    /// All directories of one run, or data files of one other format.
    #[arg(required = true)]
    pub(crate) directories: Vec<PathBuf>,
    /// Format of data files and captures, such as srs or midas; detected by default.
    #[arg(long, value_name = "NAME", value_parser = foreign_format)]
    pub(crate) format: Option<ForeignName>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk inspect run000001
  ropewalk inspect run000001 --event 17
  ropewalk inspect run00407.mid.lz4
  ropewalk inspect capture.pcapng --record 0")]
pub(crate) struct InspectOptions {
    /// Run file, run directory, capture, or data file of another format.
    pub(crate) path: PathBuf,
    /// Format of data files and captures, such as srs or midas; detected by default.
    #[arg(long, value_name = "NAME", value_parser = foreign_format)]
    pub(crate) format: Option<ForeignName>,
    /// Number of one frame to show with all fields, from 0 (other formats).
    #[arg(long, value_name = "N", conflicts_with = "event")]
    pub(crate) record: Option<u64>,
    /// Print the report and the frames as one JSON object (other formats).
    #[arg(long, conflicts_with = "event")]
    pub(crate) json: bool,
    /// Event to show with all fragments: NUMBER or RESYNC:NUMBER (run files).
    #[arg(long, value_name = "KEY", value_parser = event_key)]
    pub(crate) event: Option<ropewalk_terms::EventKey>,
    /// Number of records or frames to show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) records: u64,
    /// Show only the slow readings of the run, by time.
    #[arg(long, conflicts_with_all = ["event", "record", "json", "format"])]
    pub(crate) readings: bool,
}

/// A format other than run files, by its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ForeignName(pub(crate) ForeignFormat);

fn foreign_format(text: &str) -> Result<ForeignName, String> {
    ForeignFormat::by_name(text).map(ForeignName).ok_or_else(|| {
        let names: Vec<&str> = ForeignFormat::ALL.iter().map(|format| format.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

fn event_key(text: &str) -> Result<ropewalk_terms::EventKey, String> {
    text.parse().map_err(|_| "an event is a number, such as 17, or RESYNC:NUMBER, such as 2:17".to_owned())
}

/// The speed of a replay.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum Speed {
    /// As fast as the receiver takes data.
    Max,
    /// The recorded speed.
    Recorded,
    /// Messages per second.
    Hertz(f64),
}

fn speed(text: &str) -> Result<Speed, String> {
    match (text, text.parse()) {
        ("max", _) => Ok(Speed::Max),
        ("1x", _) => Ok(Speed::Recorded),
        (_, Ok(Rate(TriggerRate::Periodic { hertz }))) => Ok(Speed::Hertz(hertz)),
        _ => Err("a speed is max, 1x (as recorded), or a rate such as 100kHz".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk replay run000001 --to 127.0.0.1:10000
  ropewalk replay run000001 --to 127.0.0.1:10000 --sources 841,843
  ropewalk replay /data0/run000007 /data1/run000007 --to ru0:10000 --loop
  ropewalk replay capture.pcapng --to udp://127.0.0.1:9000 --speed 1x
  ropewalk replay fragments.raw --to tcp://127.0.0.1:5000 --speed 10kHz")]
pub(crate) struct ReplayOptions {
    /// All directories of one run, or one capture or data file of another format.
    #[arg(required = true, value_name = "RUNDIR|FILE")]
    pub(crate) directories: Vec<PathBuf>,
    /// Address of the readout unit; for captures and other files udp://HOST:PORT or tcp://HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) to: String,
    /// Ids of the sources to send, such as 841,843 (run directories); by default all.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub(crate) sources: Vec<u32>,
    /// Speed: max, 1x as recorded, or a rate such as 100kHz (captures and other files).
    #[arg(long, value_parser = speed, default_value = "max")]
    pub(crate) speed: Speed,
    /// Repeat until interrupted; event numbers of run directories continue.
    #[arg(long = "loop")]
    pub(crate) repeat: bool,
    /// Destination port of the packets to send (captures); by default all.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Format of the data file, such as srs or midas; detected by default.
    #[arg(long, value_name = "NAME", value_parser = foreign_format)]
    pub(crate) format: Option<ForeignName>,
    /// Configuration whose source sent the data (raw recordings and black box files of a source with a layout).
    #[arg(long, value_name = "CONFIG", conflicts_with = "format")]
    pub(crate) by: Option<PathBuf>,
    /// Source of the configuration that sent the data; by default its only one with a described frame.
    #[arg(long, value_name = "NAME", requires = "by")]
    pub(crate) source: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk sniff capture.pcapng
  ropewalk sniff udp:6006 --seconds 10 --save board.pcapng
  ropewalk sniff udp:127.0.0.1:6006 --json
  ropewalk sniff tcp-listen:5000 --save board.bin")]
pub(crate) struct SniffOptions {
    /// Capture or data file; or udp:PORT, udp:ADDRESS:PORT, tcp-listen:PORT to receive data.
    pub(crate) input: String,
    /// Seconds to receive data on a port.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) seconds: u64,
    /// File for the received data: datagrams as pcapng, the first connection as plain bytes.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Name of the first source in the draft.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Id of the first source in the draft.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) id: u32,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: ropewalk recover run000001")]
pub(crate) struct RecoverOptions {
    /// Run directory.
    pub(crate) directory: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk topology
  ropewalk topology examples/cms-csc.toml
  ropewalk topology my-setup.toml --root copy-of-another-machine --json")]
pub(crate) struct TopologyOptions {
    /// Configuration whose threads and pools are shown.
    pub(crate) config: Option<PathBuf>,
    /// Directory with the proc and sys of another machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Print the machine and the placement as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Numbers as `0..4`.
fn numbers(text: &str) -> Result<Range<u16>, String> {
    let wrong = || format!("`{text}` is no range of numbers such as 0..4");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    Ok(first.parse().map_err(|_| wrong())?..end.parse().map_err(|_| wrong())?)
}
