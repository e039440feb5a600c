//! What can be asked for on the command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use ropewalk_config::quantity::{Bytes, Rate, Size, Time, Times, TriggerRate};
use ropewalk_config::{FileBasedSection, StreamSection, TriggerChoice};
use ropewalk_wire::foreign::ForeignFormat;
use std::path::PathBuf;

/// Gathers the fragments of a particle detector's front ends into whole events, losslessly.
#[derive(Debug, Parser)]
#[command(
    name = "ropewalk",
    version,
    max_term_width = 100,
    after_help = "Try `ropewalk demo` first: it needs no configuration."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build events of emulated front ends: the whole chain in one process, no configuration.
    Demo(DemoOptions),
    /// Write a configuration to begin with, which runs at once: everything in it is emulated.
    Init(InitOptions),
    /// Take a run as a configuration describes it, all nodes in one process.
    Run(RunOptions),
    /// Start, pause, stop runs of a program that serves run control; look at them.
    Ctl(crate::ctl::CtlOptions),
    /// List, show, compare the runs of an output directory, and say something of them.
    Runs(crate::runs::RunsOptions),
    /// Watch runs of a program that serves run control, on the whole terminal.
    Top(TopOptions),
    /// Show what each node of this machine counts, also of one that hangs or is gone; asks no program.
    Counters(crate::counters::CountersOptions),
    /// Be one node of a run: a readout unit, a builder unit, the event manager or a gateway.
    Node(NodeOptions),
    /// Be front ends that are not there, or try what a front end sent.
    Source {
        #[command(subcommand)]
        command: SourceCommand,
    },
    /// Be nodes of a farm that are not there: take events of gateways and decide on them.
    FarmNode(FarmNodeOptions),
    /// Print a gateway's decisions in the order of events, as they are made.
    Decisions(DecisionsOptions),
    /// Filter the files of events in a run's directory: give them to filter units, add up what these accept.
    FilterFiles(FilterFilesOptions),
    /// Be a filter unit: filter the files that the broker of a directory gives, one after the other.
    FilterUnit(FilterUnitOptions),
    /// Be a filter node: filter units for builder units on other machines.
    FilterNode(FilterNodeOptions),
    /// Add up what the filters of a run counted: histograms, and how often each trigger and stream took an event.
    Histograms(HistogramsOptions),
    /// Be the process in which a splitter divides a source's frames; a run starts it by itself.
    #[command(hide = true)]
    SplitterProcess,
    /// Be the process in which a filter decides on events; a run starts it by itself.
    #[command(hide = true)]
    FilterProcess,
    /// Become a program that is a filter, kept from what it does not need; a run starts it by itself.
    #[command(hide = true)]
    FilterProgram(FilterProgramOptions),
    /// Count and check what run directories hold: every key once, checksums, gaps. Also reads files of other formats
    /// and captures.
    Verify(VerifyOptions),
    /// Show the records of a run file in readable form. Also shows the frames of other formats and captures.
    Inspect(InspectOptions),
    /// Send the fragments of a run again, as their front ends did.
    Replay(ReplayOptions),
    /// Make run files of files of other formats and captures, or the other way round.
    #[command(after_help = "Examples:
  ropewalk convert run7.mid.lz4 --output converted
  ropewalk convert board.pcapng --by board.toml --output converted
  ropewalk convert run000001_ls0001_index000000.raw --from frd --output converted
  ropewalk convert converted/run000001 --to frd --output files")]
    Convert(ConvertOptions),
    /// Look at unknown datagrams and streams: who sends them, which of their fields count, tell the time or hold the length.
    Sniff(SniffOptions),
    /// After a crash: close what was left open and say what is missing.
    Recover(RecoverOptions),
    /// Simulate: a system larger than this machine, or fault campaigns that check that nothing is lost without a cause. Starts ropewalk-lab.
    #[command(disable_help_flag = true, after_help = LABORATORY_HELP)]
    Simulate(LaboratoryOptions),
    /// FELIX blocks: count what is in them, show them, make them.
    Felix {
        #[command(subcommand)]
        command: crate::felix::FelixCommand,
    },
    /// Measure what this machine does, each figure in turns with its limit. Starts ropewalk-lab.
    #[command(disable_help_flag = true, after_help = LABORATORY_HELP)]
    Bench(LaboratoryOptions),
    /// Say what this machine can do with Ropewalk, what limits it, and what to change first; measures for twenty seconds.
    Doctor(crate::doctor::DoctorOptions),
    /// Draw the machine, with its NUMA nodes, cores, network cards and interrupts, and what a configuration places where.
    Topology(TopologyOptions),
    /// Look at the host's settings, change what data taking needs changed, and take it back.
    Tune {
        #[command(subcommand)]
        command: crate::tune::TuneCommand,
    },
    /// Check a configuration, or print its JSON schema.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

/// Printed where the laboratory cannot say it itself.
const LABORATORY_HELP: &str = "Examples:
  ropewalk bench builder --quick
  ropewalk simulate --campaign 500
  ropewalk simulate examples/sizing/cms-run2.toml

The command runs `ropewalk-lab` from the directory of this program and passes all arguments on. Once that is built, --help shows its
options:
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
    /// The trigger and all sources of multi-event packets of a push system, from one process.
    #[command(
        after_help = "Examples, with fixed ports in the configuration (trigger.listen, gateway.listen, gateway.control):
  ropewalk source mep gateway.toml --duration 10s
  ropewalk source mep gateway.toml --flow l1 --rate 'poisson(20kHz)' --loss 0.001 --json"
    )]
    Mep(SourceMepOptions),
    /// Try the layout or format of a source on what its board sent: frames, gaps, checksums, and the first bad place.
    #[command(after_help = "Examples:
  ropewalk source test board.toml --source board-1 --input board.pcapng
  ropewalk source test setup.toml --source caen --input capture.bin --json")]
    Test(SourceTestOptions),
}

#[derive(Debug, Args)]
pub(crate) struct InitOptions {
    /// What the configuration is for.
    pub(crate) kind: InitKind,
    /// Where it is written; the directory is made if it is missing. Nothing is written over.
    pub(crate) directory: PathBuf,
}

/// What a configuration is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum InitKind {
    /// Boards of different makes, whose layouts stand in the configuration.
    Testbeam,
    /// Readout units, builder units and an event manager, after CMS.
    Pull,
    /// Sources that push packets to a gateway and its farm, after LHCb.
    Gateway,
    /// A link card and its e-links, after ATLAS.
    Felix,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk filter-files run000001 --units 4 --trigger 'random = { share = 0.1 }'
  ropewalk filter-files /dev/shm/run000001 --units 2 --trigger 'every = 100' --json")]
pub(crate) struct FilterFilesOptions {
    /// The run's directory, best in memory: files of events, closed by _EoLS.jsn and _EoR.jsn.
    pub(crate) directory: PathBuf,
    /// Number of filter units to start; with 0, start them yourself (`ropewalk filter-unit`).
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) units: u32,
    #[command(flatten)]
    pub(crate) task: UnitTaskOptions,
    /// Number of filter units that may end while they work on a file before the file is set aside.
    #[arg(long, value_name = "N", default_value_t = FileBasedSection::TRIES)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) tries: u16,
    /// A filter unit that takes longer over one file is ended.
    #[arg(long, value_name = "TIME", default_value_t = FileBasedSection::TIMEOUT)]
    pub(crate) time_out: Time,
    /// Print what came of the files as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FilterProgramOptions {
    /// Bytes of memory that it may take.
    pub(crate) memory: u64,
    /// The process that starts it.
    pub(crate) starter: u32,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk filter-node run.toml --listen 0.0.0.0:9500
  ropewalk run run.toml
where run.toml has [filter] nodes = [\"filter1:9500\"].")]
pub(crate) struct FilterNodeOptions {
    /// The configuration, whose filter section is the same as that of the run.
    pub(crate) config: PathBuf,
    /// Where builder units reach it; port 0 is any free one, which is printed.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9500")]
    pub(crate) listen: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk histograms run000001
  ropewalk histograms /data0/run000001 /data1/run000001 --json")]
pub(crate) struct HistogramsOptions {
    /// Directories of one run, all in which builder units have left documents.
    #[arg(required = true)]
    pub(crate) directories: Vec<PathBuf>,
    /// Print all counts as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FilterUnitOptions {
    /// The run's directory, which a broker serves (`ropewalk filter-files`).
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) task: UnitTaskOptions,
}

/// What filter units of files are to do.
#[derive(Debug, Args)]
pub(crate) struct UnitTaskOptions {
    /// A trigger, written as in the configuration: all, 'every = 10', 'random = { share = 0.1 }'; may be given several times. An event that
    /// passes one is accepted; without triggers every event is.
    #[arg(long, value_name = "TRIGGER")]
    pub(crate) trigger: Vec<TriggerChoice>,
    /// A stream, with the keys of the configuration: 'name = "monitoring", prescale = 10'; may be given several times. Without this there is
    /// one stream, "selected", with all accepted events.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Vec<StreamSection>,
    /// A library with a filter that decides instead of triggers (docs/filters.md), in a confined process.
    #[arg(long, value_name = "FILE", conflicts_with = "trigger")]
    pub(crate) library: Option<PathBuf>,
    /// Configuration text for the library.
    #[arg(long, value_name = "TEXT", default_value = "", requires = "library")]
    pub(crate) configuration: String,
    /// How much memory its process may use.
    #[arg(long, value_name = "SIZE", default_value_t = FileBasedSection::MEMORY, requires = "library")]
    pub(crate) memory: Bytes,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertOptions {
    /// Files of one format, or captures of it; packed as LZ4 frames or not. To make files of another format: run directories, or
    /// run files.
    #[arg(required = true, value_name = "FILE|RUNDIR")]
    pub(crate) files: Vec<PathBuf>,
    /// The format to make.
    #[arg(long, value_enum, default_value_t = ConvertTo::Run)]
    pub(crate) to: ConvertTo,
    /// The format of files that are not run files; recognised by default.
    #[arg(long, value_name = "FORMAT", value_parser = foreign_format)]
    pub(crate) from: Option<ForeignName>,
    /// Build events as a run of this configuration: the files are what its sources sent (one capture, the bytes of one
    /// source, or one file for each source).
    #[arg(long, value_name = "CONFIG", conflicts_with_all = ["from", "to"])]
    pub(crate) by: Option<PathBuf>,
    /// Only this source of the configuration; may be given several times, in the order of the files. By default all
    /// sources whose frames it describes.
    #[arg(long, value_name = "NAME", requires = "by")]
    pub(crate) source: Vec<String>,
    /// Version of the FRD headers of events that had none: 4 has room for event numbers beyond 32 bits.
    #[arg(long, value_name = "3|4|5", default_value_t = FileBasedSection::FRD_VERSION)]
    pub(crate) frd_version: u32,
    /// With --to frd: make a directory of the run with this many events in each file, as builder units write them for
    /// filter units.
    #[arg(long, value_name = "N", requires = "lumisection_events", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) file_events: Option<u32>,
    /// With --file-events: this many event numbers make a lumisection.
    #[arg(long, value_name = "N", requires = "file_events", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) lumisection_events: Option<u64>,
    /// The directory in which the run directory, or the files, are made.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}

/// What `convert` makes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ConvertTo {
    /// The run files of a run directory.
    Run,
    /// FED raw data of CMS, of a run whose sources send FED fragments.
    Frd,
    /// MDF records of LHCb: banks as they are, and other fragments in banks of type 255.
    Mdf,
    /// The fragments of all events back to back.
    Raw,
}

#[derive(Debug, Args)]
pub(crate) struct SourceTestOptions {
    /// The configuration.
    pub(crate) config: PathBuf,
    /// The source's name.
    #[arg(long, value_name = "NAME")]
    pub(crate) source: String,
    /// What its board sent: a capture (pcap, pcapng), or the bytes of a stream.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// With a capture: only packets to this port, instead of the port of the source's `listen`.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SourceMepOptions {
    /// The configuration.
    pub(crate) config: PathBuf,
    /// Only this flow; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) flow: Vec<String>,
    /// How often events come, instead of the configuration's rate.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// The share of packets that are lost on purpose.
    #[arg(long, value_name = "SHARE")]
    pub(crate) loss: Option<f64>,
    /// Stop after this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Stop after this many events of the first flow.
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<u64>,
    /// Print the account as JSON; the last line is one object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples, with fixed ports in the configuration (gateway.control):
  ropewalk farm-node gateway.toml
  ropewalk farm-node gateway.toml --nodes 0..2 --decision-time 'lognormal(2ms,1.0)' --accept 0.05")]
pub(crate) struct FarmNodeOptions {
    /// The configuration.
    pub(crate) config: PathBuf,
    /// Nodes of the farm to be: from the first number to before the second; by default all.
    #[arg(long, value_name = "FIRST..END", value_parser = crate::push::numbers)]
    pub(crate) nodes: Option<std::ops::Range<u16>>,
    /// How long a decision takes, instead of the configuration's time.
    #[arg(long, value_name = "TIMES")]
    pub(crate) decision_time: Option<Times>,
    /// The share of events that are accepted.
    #[arg(long, value_name = "SHARE")]
    pub(crate) accept: Option<f64>,
    /// Stop after this time; without it, when interrupted.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Print the account as JSON; the last line is one object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ropewalk decisions 127.0.0.1:9720\n  ropewalk decisions 127.0.0.1:9720 --count 1000 --json"
)]
pub(crate) struct DecisionsOptions {
    /// Where the gateway takes readers of the flow's decisions (`decisions` in its configuration).
    pub(crate) address: String,
    /// Stop after this many; by default when the gateway ends.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Print each as a JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read and check a configuration; says where and what is wrong.
    #[command(after_help = "Example: ropewalk config check examples/cms-csc.toml")]
    Check {
        /// The configuration.
        file: PathBuf,
    },
    /// Print the JSON schema of configurations.
    Schema,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk demo
  ropewalk demo --events 100000 --sources 4 --fragment-size 'uniform(1KiB,4KiB)' --json
  ropewalk demo --rate 'poisson(20kHz)' --duration 30s --readout-units 2 --builder-units 2")]
pub(crate) struct DemoOptions {
    /// Stop after this time (10s unless --events is given; in a terminal: when you press Ctrl-C).
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Stop after exactly this many triggers.
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<u64>,
    /// Emulated front ends.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) sources: u16,
    /// The whole FED fragment, header and trailer included: 2KiB, lognormal(2KiB,1.2), uniform(1KiB,4KiB).
    #[arg(long, value_name = "SIZE", default_value = "2KiB")]
    pub(crate) fragment_size: Size,
    /// Trigger rate: 100kHz or poisson(100kHz); as fast as it goes unless given.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Readout units.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) readout_units: u16,
    /// Builder units.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) builder_units: u16,
    /// Keep the newest run files up to this size; older ones are deleted, counted and named.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub(crate) keep: Bytes,
    /// Where the run directory is made.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
    /// Print the account as JSON; the last line is one object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Serve run control and the dashboard here (127.0.0.1:8900, or a free port where that is taken).
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) control: Option<std::net::SocketAddr>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk run examples/cms-csc.toml
  ropewalk run examples/own-frontend.toml --output /data --duration 1h --keep 100GiB
  ropewalk run my-setup.toml --events 10000 --json
  ropewalk run my-setup.toml --bytes 100GiB --then next        run after run, until Ctrl-C
  ropewalk run my-setup.toml --control 127.0.0.1:8900          then look at http://127.0.0.1:8900/
  ropewalk run my-setup.toml --control 127.0.0.1:8900 --idle   the first run is started there")]
pub(crate) struct RunOptions {
    /// The configuration.
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) limits: RunLimits,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    /// Set everything up, and wait for an operator to start the run.
    #[arg(long, requires = "control")]
    pub(crate) idle: bool,
}

/// How the run can be seen and commanded.
#[derive(Clone, Debug, Args)]
pub(crate) struct ControlOptions {
    /// Serve run control and the dashboard here, such as 127.0.0.1:8900. Runs can then follow each other until Ctrl-C.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) control: Option<std::net::SocketAddr>,
    /// Commands need the token in this file, which is made if it is missing. Required if others can reach ADDRESS.
    #[arg(long, value_name = "FILE")]
    pub(crate) control_token: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Keys: Tab and 1-5 turn pages, s and r sort sources, Enter tells all about one, ? helps, q quits."
)]
pub(crate) struct TopOptions {
    /// Where run control is served.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8900")]
    pub(crate) url: String,
    /// A PEM file with the certificates to trust at https://, instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunLimits {
    /// Where the run directory is made.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Stop after this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Stop after exactly this many triggers.
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<u64>,
    /// Stop when this many bytes of fragments have come.
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes: Option<Bytes>,
    /// What follows a run that ends by itself: the next one, or nothing; under run control a run that waits to be
    /// started. A readout or builder unit stays for the following runs unless this is over.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) then: Option<Then>,
    /// Keep the newest run files up to this size; older ones are deleted, counted and named.
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep: Option<Bytes>,
    /// A field of the run's account, such as beam=120GeV; may be given several times. All `required_fields` of the
    /// section run have to be given.
    #[arg(long = "field", value_name = "NAME=VALUE")]
    pub(crate) fields: Vec<ropewalk_config::fields::Field>,
    /// Print the account as JSON; the last line is one object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Then {
    /// The next run begins, until the runs are stopped.
    Next,
    /// The next run waits to be started.
    Wait,
    /// The program ends.
    Over,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum NodeRole {
    /// A readout unit.
    Readout,
    /// A builder unit.
    Builder,
    /// The event manager; it writes run.json.
    Manager,
    /// A gateway of a push system; it writes run.json.
    Gateway,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples, in three terminals and in any order:
  ropewalk node manager setup.toml --events 100000             with --control 127.0.0.1:8900 it serves the dashboard
  ropewalk node readout setup.toml --name ru0
  ropewalk node builder setup.toml --name bu0 --output /data0
A gateway of a push system, its sources and its farm:
  ropewalk node gateway gateway.toml --name gw0 --duration 60s
  ropewalk source mep gateway.toml
  ropewalk farm-node gateway.toml
Runs that follow each other, each started on the page or by `ropewalk ctl start`:
  ropewalk node manager setup.toml --control 127.0.0.1:8900 --then wait
  ropewalk node readout setup.toml --name ru0 --then next       and each other unit
When the event manager has died, and the others wait for another one:
  ropewalk node manager setup.toml --take-over")]
pub(crate) struct NodeOptions {
    /// What to be.
    #[arg(value_enum)]
    pub(crate) role: NodeRole,
    /// The configuration, the same for all nodes.
    pub(crate) config: PathBuf,
    /// The name of the configured node to be.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The address of a node whose configured port is 0: `manager=127.0.0.1:40001`.
    #[arg(long = "at", value_name = "NAME=ADDRESS")]
    pub(crate) at: Vec<String>,
    /// Be the event manager of a run that has lost its own: the newest in the output directory without run.json.
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
    /// Run directories; those of several builder units are taken together. Or files of one other format.
    #[arg(required = true)]
    pub(crate) directories: Vec<PathBuf>,
    /// The files are of this format, or captures of it (docs/formats.md); most are recognised without.
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
    /// A run file or a run directory; a file of another format, or a capture.
    pub(crate) path: PathBuf,
    /// The file is of this format, or a capture of it (docs/formats.md); most are recognised without.
    #[arg(long, value_name = "NAME", value_parser = foreign_format)]
    pub(crate) format: Option<ForeignName>,
    /// Another format: show this frame whole, with all its fields (counted from 0).
    #[arg(long, value_name = "N", conflicts_with = "event")]
    pub(crate) record: Option<u64>,
    /// Another format: print the account and the frames as one JSON object.
    #[arg(long, conflicts_with = "event")]
    pub(crate) json: bool,
    /// Show this event whole: its number, or RESYNC:NUMBER.
    #[arg(long, value_name = "KEY", value_parser = event_key)]
    pub(crate) event: Option<ropewalk_terms::EventKey>,
    /// Show at most this many records.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) records: u64,
    /// Show the slow readings of the run, in the order of their times, and nothing else.
    #[arg(long, conflicts_with_all = ["event", "record", "json", "format"])]
    pub(crate) readings: bool,
}

/// A foreign format, by its name.
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

/// How fast a replay is.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum Speed {
    /// As fast as it is taken.
    Max,
    /// As fast as it was recorded.
    Recorded,
    /// This many messages in a second.
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
  ropewalk replay /data0/run000007 /data1/run000007 --to ru0.example.org:10000 --loop
  ropewalk replay capture.pcapng --to udp://127.0.0.1:9000 --speed 1x
  ropewalk replay fragments.raw --to tcp://127.0.0.1:5000 --speed 10kHz")]
pub(crate) struct ReplayOptions {
    /// Run directories; those of several builder units are taken together. Or one capture, or file of another format.
    #[arg(required = true, value_name = "RUNDIR|FILE")]
    pub(crate) directories: Vec<PathBuf>,
    /// Where the readout unit listens for front ends; of a capture or file udp://ADDRESS:PORT or tcp://ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) to: String,
    /// Of a run: these sources alone: those of this readout unit, where there are several.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub(crate) sources: Vec<u32>,
    /// How fast: max, 1x (as recorded; of runs generic fragments with times alone), of a capture or file 100kHz.
    #[arg(long, value_parser = speed, default_value = "max")]
    pub(crate) speed: Speed,
    /// Again and again, until interrupted; event numbers of runs go on counting.
    #[arg(long = "loop")]
    pub(crate) repeat: bool,
    /// Of a capture: what went to this port alone.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Of a file that is no capture: its format (docs/formats.md); most are recognised without.
    #[arg(long, value_name = "NAME", value_parser = foreign_format)]
    pub(crate) format: Option<ForeignName>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk sniff capture.pcapng
  ropewalk sniff udp:6006 --seconds 10 --save board.pcapng
  ropewalk sniff udp:127.0.0.1:6006 --json
  ropewalk sniff tcp-listen:5000 --save board.bin")]
pub(crate) struct SniffOptions {
    /// A capture (pcap, pcapng); or udp:PORT, tcp-listen:PORT for what comes to this port (all interfaces, or ADDRESS:PORT).
    pub(crate) input: String,
    /// Of a port: look this long.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Of a port: save what comes, datagrams as pcapng, of connections the bytes of the first one.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Print what was found as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: ropewalk recover run000001")]
pub(crate) struct RecoverOptions {
    /// The run directory.
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
    /// The configuration whose threads and pools are placed.
    pub(crate) config: Option<PathBuf>,
    /// Another machine: a directory with its proc and sys.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Print machine and placement as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
