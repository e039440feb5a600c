//! Commands to a program that serves run control.

mod text;

use crate::exit::{self, Failure};
use crate::masks::{self, Names, Sources};
use crate::samples::{self, SampleOptions};
use clap::{Args, Subcommand};
use ropewalk_config::quantity::Time;
use ropewalk_control::{Client, ClientError, Replied, Token};
use ropewalk_run::user_command;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

/// A command that takes longer prints what it waits for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where `ctl` and `top` look for run control by default.
pub(crate) const DASHBOARD: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8900);
/// The environment variable with the URL of run control.
pub(crate) const URL_VARIABLE: &str = "ROPEWALK_URL";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk ctl state
  ropewalk ctl start --by ada --field beam=120GeV
  ropewalk ctl stop --url https://daq1:8900 --ca daq1.pem --token token
  ropewalk ctl mask 3,20-39,veto
  ropewalk ctl set timeouts.readout=2s
  ropewalk ctl files 7
  ropewalk ctl shelve source_silent --for 1h

Exit status: 0 done, 1 failed, 2 usage or unknown name, 3 refused or not
possible now, 4 no answer.")]
pub(crate) struct CtlOptions {
    #[command(subcommand)]
    command: CtlCommand,
    /// URL of run control.
    #[arg(long, global = true, value_name = "URL", env = URL_VARIABLE, hide_env_values = true)]
    #[arg(default_value_t = format!("http://{DASHBOARD}"), help_heading = CONNECTION)]
    url: String,
    /// PEM file with trusted certificates for https:// [default: those of the system].
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION)]
    ca: Option<PathBuf>,
    /// File with the token for commands.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION)]
    token: Option<PathBuf>,
    /// Name of the operator [default: $USER, or `the command line`].
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION)]
    by: Option<String>,
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// The heading of the options that every command has.
const CONNECTION: &str = "Connection and operator";

/// The commands in groups, as the help lists them.
pub(crate) const GROUPS: [(&str, &[&str]); 5] = [
    ("Runs", &["start", "stop", "pause", "resume", "configure", "reset", "shutdown"]),
    ("Operator", &["take", "give"]),
    ("Sources and parameters", &["mask", "unmask", "restart", "set"]),
    ("Logbook and alarms", &["note", "acknowledge", "shelve", "test-alarms", "reference"]),
    (
        "Look",
        &[
            "state",
            "quality",
            "limit",
            "alarms",
            "sources",
            "ledger",
            "journal",
            "operator",
            "masks",
            "parameters",
            "addresses",
            "histograms",
            "runs",
            "files",
            "samples",
        ],
    ),
];

#[derive(Debug, Subcommand)]
enum CtlCommand {
    #[command(flatten)]
    Request(Request),
    /// Show copies of events while they are built.
    #[command(after_help = "Example: ropewalk ctl samples --rate 0.2 --incomplete")]
    Samples(SampleOptions),
}

/// A command with one answer.
#[derive(Debug, Subcommand)]
enum Request {
    /// Set up the next run, as configured at the program start (also: `conf`).
    #[command(alias = "conf")]
    Configure,
    /// Start the next run (also: `enable`).
    #[command(alias = "enable")]
    Start {
        /// Field of the run's account, such as beam=120GeV; repeatable.
        #[arg(long = "field", value_name = "NAME=VALUE")]
        fields: Vec<String>,
    },
    /// Pause the run and hold sources back.
    Pause,
    /// Resume a paused run.
    Resume,
    /// Stop the run: finish its events, close its files and its account.
    Stop,
    /// Abort the run and release everything (also: `halt`).
    #[command(alias = "halt")]
    Reset,
    /// Stop the run and end the program.
    Shutdown,
    /// Take control: commands of other operators are refused.
    Take {
        /// Take control even if another operator has it.
        #[arg(long)]
        force: bool,
    },
    /// Release control, or pass it to another operator.
    Give {
        /// Operator who gets control.
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
    },
    /// Exclude sources from this run and later ones.
    Mask {
        /// Source ids, ranges of ids, and names, such as 3,20-39,veto.
        #[arg(required = true)]
        sources: Vec<Sources>,
    },
    /// Include masked sources again.
    Unmask {
        /// Source ids, ranges of ids, and names, such as 3,20-39,veto.
        #[arg(required = true)]
        sources: Vec<Sources>,
    },
    /// Restart sources during a run: exclude them, then include them again.
    Restart {
        /// Source ids, ranges of ids, and names, such as 3,20-39,veto.
        #[arg(required = true)]
        sources: Vec<Sources>,
    },
    /// Change parameters in this run and later ones.
    #[command(after_help = "Example: ropewalk ctl set timeouts.readout=2s
`ropewalk ctl parameters` lists the names.")]
    Set {
        /// Parameter and its new value, such as timeouts.readout=2s.
        #[arg(required = true, value_name = "NAME=VALUE", value_parser = change)]
        changes: Vec<(String, String)>,
    },
    /// Add a note to the logbook of a run.
    #[command(after_help = "Example: ropewalk ctl note 'target moved by 2 mm'")]
    Note {
        /// Text of the note.
        text: String,
        /// Run number [default: the run that is set up or under way].
        #[arg(long, value_name = "N")]
        run: Option<u32>,
    },
    /// Acknowledge an alarm.
    Acknowledge {
        /// Name of the alarm; `ropewalk ctl alarms` lists them.
        alarm: String,
    },
    /// Hide an alarm for some time.
    Shelve {
        /// Name of the alarm; `ropewalk ctl alarms` lists them.
        alarm: String,
        /// Time, up to 24h; 0s shows the alarm again.
        #[arg(long = "for", value_name = "TIME", default_value = "1h")]
        time: Time,
    },
    /// Send a test message to the command and the webhook for alarms.
    TestAlarms,
    /// Show or select the run that the current run is compared with.
    Reference {
        /// Run number, or off.
        #[arg(value_name = "N|off", value_parser = reference)]
        run: Option<Reference>,
    },
    /// Show the state, the run and the allowed commands.
    State,
    /// Show complete, incomplete and doubtful events, and what is wrong.
    Quality,
    /// Show what limits the run.
    Limit,
    /// Show alarms that are not normal.
    Alarms {
        /// Show normal alarms, too.
        #[arg(long)]
        all: bool,
    },
    /// Show all sources with their counts.
    Sources,
    /// Show the balance of fragments, events and buffers.
    Ledger,
    /// Show the last 1,000 commands, notes, states and incidents.
    Journal,
    /// Show which operator has control.
    Operator,
    /// Show masked sources and the events without them.
    Masks,
    /// Show the parameters that can be changed during a run.
    Parameters,
    /// Show the addresses on which the run listens.
    Addresses,
    /// Show the histograms of sources.
    Histograms,
    /// Show the newest runs in the output directory.
    Runs,
    /// Show the files of a run.
    Files {
        /// Run number [default: the current or last run].
        run: Option<u32>,
    },
}

/// The reference run to select.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Reference {
    Run(u32),
    Off,
}

fn reference(text: &str) -> Result<Reference, &'static str> {
    match text {
        "off" => Ok(Reference::Off),
        number => number.parse().map(Reference::Run).map_err(|_| "expected a run number or `off`"),
    }
}

fn change(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as timeouts.readout=2s")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(crate) fn ctl(options: &CtlOptions) -> Result<u8, Failure> {
    let client = options.client()?;
    let request = match &options.command {
        CtlCommand::Request(request) => request,
        CtlCommand::Samples(wanted) => {
            let shown = samples::samples(&client, wanted, options.json).map_err(no_answer)?;
            return shown.map_err(|replied| samples::refused(&replied));
        }
    };
    let by = options.by.clone().or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "the command line".to_owned());
    if request.changes_something() {
        announce(&client);
    }
    let names = if request.names_sources() { Names::ask(&client).map_err(no_answer)? } else { Names::default() };
    let replied = std::thread::scope(|scope| {
        let (end, until) = mpsc::channel::<()>();
        if request.changes_something() {
            scope.spawn(|| tell_what_it_waits_for(&client, until));
        }
        let replied = request.send(&client, &names, &by);
        drop(end);
        replied
    })?;
    if options.json {
        say!("{}", replied.body);
    } else {
        text::lines(request, &replied, &names).iter().for_each(|line| say!("{line}"));
    }
    match replied.status {
        200..=299 => Ok(exit::GOOD),
        404 => Err(Failure::Usage(replied.body["error"].as_str().unwrap_or_default().to_owned())),
        400..=499 => Ok(exit::LOST),
        _ => Ok(exit::UNBALANCED),
    }
}

impl CtlOptions {
    fn client(&self) -> Result<Client, Failure> {
        let token = match &self.token {
            None => None,
            Some(path) if !path.exists() => {
                return Err(Failure::Usage(format!("--token {}: there is no such file", path.display())));
            }
            Some(path) => {
                let token = Token::of_file(path);
                Some(token.map_err(|error| Failure::Environment(format!("--token {}: {error}", path.display())))?)
            }
        };
        let client = Client::new(&self.url, token, self.ca.as_deref()).map_err(no_answer)?;
        Ok(client.as_user(user_command::system_user()))
    }
}

impl Request {
    /// Whether the request can change something.
    const fn changes_something(&self) -> bool {
        match self {
            Self::Reference { run } => run.is_some(),
            Self::State | Self::Quality | Self::Limit | Self::Alarms { .. } | Self::Sources | Self::Ledger => false,
            Self::Journal | Self::Operator | Self::Masks | Self::Parameters | Self::Addresses => false,
            Self::Histograms | Self::Runs | Self::Files { .. } => false,
            _ => true,
        }
    }

    /// Whether the request or its answer has sources by name.
    const fn names_sources(&self) -> bool {
        matches!(self, Self::Mask { .. } | Self::Unmask { .. } | Self::Restart { .. } | Self::Masks | Self::Histograms)
    }

    /// Sends the request in the name of the operator `by`.
    fn send(&self, client: &Client, names: &Names, by: &str) -> Result<Replied, Failure> {
        let ids = |sources: &[Sources]| names.ids(sources).map_err(Failure::Usage);
        let command = |name| client.command(name, &[], by);
        let replied = match self {
            Self::Configure => command("configure"),
            Self::Start { fields } => client.command("start", fields, by),
            Self::Pause => command("pause"),
            Self::Resume => command("resume"),
            Self::Stop => command("stop"),
            Self::Reset => command("reset"),
            Self::Shutdown => command("shutdown"),
            Self::Take { force } => client.take_controls(by, *force),
            Self::Give { to } => client.give_controls(by, to.as_deref()),
            Self::Mask { sources } => masks::mask(client, &ids(sources)?, true, by),
            Self::Unmask { sources } => masks::mask(client, &ids(sources)?, false, by),
            Self::Restart { sources } => client.restart(&ids(sources)?, by),
            Self::Set { changes } => {
                let changes: Vec<_> = changes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                client.change(&changes, by)
            }
            Self::Note { text, run } => {
                let run = run.map_or_else(|| current_run(client), Ok)?;
                client.note(run, text, by)
            }
            Self::Acknowledge { alarm } => client.acknowledge(alarm, by),
            Self::Shelve { alarm, time } => client.shelve(alarm, time.0, by),
            Self::TestAlarms => client.test_alarms(by),
            Self::Reference { run: None } => client.look("reference"),
            Self::Reference { run: Some(Reference::Off) } => client.compare_with(None, by),
            Self::Reference { run: Some(Reference::Run(run)) } => client.compare_with(Some(*run), by),
            Self::State => client.look("state"),
            Self::Quality => client.look("quality"),
            Self::Limit => client.look("limit"),
            Self::Alarms { .. } => client.look("alarms"),
            Self::Sources => client.look("sources"),
            Self::Ledger => client.look("ledger"),
            Self::Journal => client.look("journal"),
            Self::Operator => client.look("operator"),
            Self::Masks => client.look("masks"),
            Self::Parameters => client.look("parameters"),
            Self::Addresses => client.look("addresses"),
            Self::Histograms => client.look("histograms"),
            Self::Runs => client.look("runs"),
            Self::Files { run } => client.files(*run),
        };
        replied.map_err(no_answer)
    }
}

/// Prints which program gets a command, because the operator may have meant another one.
fn announce(client: &Client) {
    // Without an answer, the command itself reports it.
    let Ok(state) = client.look("state") else { return };
    let run = state.body["run"].as_u64().zip(state.body["directory"].as_str());
    let none = if state.body["task"].is_null() { "no run is set up" } else { "the next run is being set up" };
    let run = run.map_or_else(|| none.to_owned(), |(run, directory)| format!("run {run} in {directory}"));
    tell!("{}: {run}", client.url());
}

/// While a command is not answered, prints what the run waits for.
fn tell_what_it_waits_for(client: &Client, until: mpsc::Receiver<()>) {
    let mut told = String::new();
    while until.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        let limit = client.look("limit").ok();
        // Between runs there is nothing that a run could wait for.
        let limit = limit.as_ref().filter(|limit| limit.body["limit"] != "not_running");
        let sentence = limit.and_then(|limit| limit.body["sentence"].as_str()).unwrap_or_default();
        if !sentence.is_empty() && sentence != told {
            tell!("not done yet: {sentence}");
            sentence.clone_into(&mut told);
        }
    }
}

/// The run that is set up or under way.
fn current_run(client: &Client) -> Result<u32, Failure> {
    let state = client.look("state").map_err(no_answer)?;
    let run = state.body["run"].as_u64().map(|run| run as u32);
    run.ok_or_else(|| Failure::Usage("note: no run is set up; name one with --run N".to_owned()))
}

fn no_answer(error: ClientError) -> Failure {
    Failure::Environment(error.to_string())
}
