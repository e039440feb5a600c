//! Commands to a program that serves run control.

use crate::exit::{self, Failure};
use clap::Args;
use ropewalk_config::quantity::Time;
use ropewalk_control::{Client, ClientError, Replied, Token};
use ropewalk_terms::Utc;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Commands: configure, start, pause, resume, stop, reset, shutdown.
Known by other names, too: conf, enable (start), halt (reset).
Control, so that commands of others are refused: take (--force: from another operator), give (up, or --to NAME).
Parameters of the current run and of the following ones: set NAME=VALUE.
Sources that take no part, in the current run and in the following ones: mask SOURCES, unmask SOURCES.
Sources that are begun anew while the run goes on, out and in again: restart SOURCES.
Into the logbook: note TEXT (--run N).
Alarms: acknowledge NAME, shelve NAME (--for TIME; 0s shows it again).
The run of the past that the present one is compared with: reference, reference N, reference off.
Only looking: state, operator, journal, ledger, limit, alarms, addresses, sources, masks,
parameters, histograms, runs, files (of the current or last run), files N (of run N).
Events as they are built, copies of a few of them: samples (--rate, --count, and which: --incomplete, --source ID, ...).

Examples:
  ropewalk ctl state
  ropewalk ctl stop
  ropewalk ctl start --url https://daq1:8900 --ca daq1.pem --token /etc/ropewalk/token --by ada
  ropewalk ctl mask 3,20-39
  ropewalk ctl set timeouts.readout=2s
  ropewalk ctl files 7
  ropewalk ctl samples --rate 0.2 --incomplete --json
  ropewalk ctl shelve source_silent --for 1h

Exit status: 0 if the command is done, 3 if it is refused now, 1 if it failed, 4 without an answer.")]
pub(crate) struct CtlOptions {
    /// What to do.
    command: String,
    /// With note: what is to be said of the run. With mask, unmask and restart: the sources' ids, such as 3,20-39. With set: NAME=VALUE. With reference:
    /// the run's number, or off. With files: the run's number. With acknowledge and shelve: the alarm's name.
    text: Option<String>,
    /// With shelve: for how long, a day at most.
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    shelf: Time,
    /// With note: of which run; of the one that is set up or under way unless given.
    #[arg(long, value_name = "N")]
    run: Option<u32>,
    /// Where run control is served.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8900")]
    url: String,
    /// A PEM file with the certificates to trust at https://, instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The file with the server's token, where it wants one.
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// In whose name, for the journal and for the controls; $USER unless given.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// With start: what is said of the run in its account, such as beam=120GeV; as often as wanted.
    #[arg(long = "field", value_name = "NAME=VALUE")]
    fields: Vec<String>,
    /// Take the controls although another operator holds them.
    #[arg(long)]
    force: bool,
    /// Give the controls to this operator.
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    samples: crate::samples::SampleOptions,
}

/// What only looks.
const LOOKS: [&str; 12] = [
    "state",
    "operator",
    "journal",
    "ledger",
    "limit",
    "alarms",
    "addresses",
    "sources",
    "masks",
    "parameters",
    "histograms",
    "runs",
];
/// Answers that are printed as lines, not as they come.
const IN_LINES: [&str; 6] = ["state", "operator", "journal", "alarms", "masks", "parameters"];

pub(crate) fn ctl(options: &CtlOptions) -> Result<u8, Failure> {
    let token = match &options.token {
        None => None,
        Some(path) if !path.exists() => {
            return Err(Failure::Usage(format!("--token {}: there is no such file", path.display())));
        }
        Some(path) => {
            let token = Token::of_file(path);
            Some(token.map_err(|error| Failure::Environment(format!("--token {}: {error}", path.display())))?)
        }
    };
    let client = Client::new(&options.url, token, options.ca.as_deref()).map_err(no_answer)?;
    if options.command == "samples" {
        let told = crate::samples::samples(&client, &options.samples, options.json).map_err(no_answer)?;
        return told.map_err(|replied| crate::samples::refused(&replied));
    }
    let by = options.by.clone().or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "the command line".to_owned());
    let replied = match options.command.as_str() {
        look if LOOKS.contains(&look) => client.look(look),
        "files" => crate::runs::files(&client, options.text.as_deref()).map_err(Failure::Usage)?,
        "note" => note(options, &client, &by)?,
        "reference" => reference(options, &client, &by)?,
        "set" => set(options, &client, &by)?,
        command @ ("mask" | "unmask") => {
            crate::masks::mask(&client, options.text.as_deref(), command == "mask", &by).map_err(Failure::Usage)?
        }
        "restart" => crate::masks::restart(&client, options.text.as_deref(), &by).map_err(Failure::Usage)?,
        "acknowledge" => crate::alarms::acknowledge(&client, options.text.as_deref(), &by).map_err(Failure::Usage)?,
        "shelve" => {
            crate::alarms::shelve(&client, options.text.as_deref(), options.shelf, &by).map_err(Failure::Usage)?
        }
        "take" => client.take_controls(&by, options.force),
        "give" => client.give_controls(&by, options.to.as_deref()),
        command => client.command(command, &options.fields, &by),
    };
    let replied = replied.map_err(no_answer)?;
    if options.json {
        say!("{}", replied.body);
    } else if LOOKS.contains(&options.command.as_str()) && !IN_LINES.contains(&options.command.as_str()) {
        say!("{:#}", replied.body);
    } else {
        lines(&replied).iter().for_each(|line| say!("{line}"));
    }
    match replied.status {
        200..=299 => Ok(exit::GOOD),
        404 => Err(Failure::Usage(text(&replied, "error"))),
        400..=499 => Ok(exit::LOST),
        _ => Ok(exit::UNBALANCED),
    }
}

/// Which run is compared with; another one where that is said.
fn reference(options: &CtlOptions, client: &Client, by: &str) -> Result<Result<Replied, ClientError>, Failure> {
    let run = match options.text.as_deref() {
        None => return Ok(client.look("reference")),
        Some("off") => None,
        Some(text) => {
            let wrong = |_| Failure::Usage(format!("reference {text}: the number of a run, or off"));
            Some(text.parse().map_err(wrong)?)
        }
    };
    Ok(client.compare_with(run, by))
}

fn no_answer(error: ClientError) -> Failure {
    Failure::Environment(error.to_string())
}

/// Says something of a run: of the one that is asked for, or of the one that is set up or under way.
fn note(options: &CtlOptions, client: &Client, by: &str) -> Result<Result<Replied, ClientError>, Failure> {
    let Some(text) = options.text.as_deref() else {
        return Err(Failure::Usage("note: what? `ropewalk ctl note 'target moved by 2 mm'`".to_owned()));
    };
    let run = match options.run {
        Some(run) => Some(run),
        None => client.look("state").map_err(no_answer)?.body["run"].as_u64().map(|run| run as u32),
    };
    let run = run.ok_or_else(|| Failure::Usage("note: of which run? None is set up: say --run N".to_owned()))?;
    Ok(client.note(run, text, by))
}

/// Changes a parameter.
fn set(options: &CtlOptions, client: &Client, by: &str) -> Result<Result<Replied, ClientError>, Failure> {
    let Some((name, value)) = options.text.as_deref().and_then(|text| text.split_once('=')) else {
        let example =
            "set: what? `ropewalk ctl set timeouts.readout=2s`; `ropewalk ctl parameters` lists what there is";
        return Err(Failure::Usage(example.to_owned()));
    };
    Ok(client.change(&[(name.trim(), value.trim())], by))
}

/// A line for each parameter.
fn parameters(all: &[serde_json::Value]) -> Vec<String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let line = |one: &serde_json::Value| {
        let is_changed = one["value"] != one["configured"];
        let configured =
            if is_changed { format!(" (configured: {})", text(&one["configured"])) } else { String::new() };
        format!("{} = {}{configured}  {}", text(&one["name"]), text(&one["value"]), text(&one["help"]))
    };
    all.iter().map(line).collect()
}

fn text(replied: &Replied, name: &str) -> String {
    replied.body[name].as_str().unwrap_or_default().to_owned()
}

/// Hours, minutes and seconds UTC of a time in nanoseconds since 1970.
pub(crate) fn time_of_day(nanoseconds: i64) -> String {
    Utc(nanoseconds).time_of_day()
}

/// The answer as text.
fn lines(replied: &Replied) -> Vec<String> {
    let body = &replied.body;
    if let Some(entries) = body.as_array() {
        if entries.iter().all(|entry| entry["configured"].is_string()) && !entries.is_empty() {
            return parameters(entries);
        }
        if entries.iter().all(|entry| entry["severity"].is_string()) && !entries.is_empty() {
            return crate::alarms::lines(entries);
        }
        if entries.iter().all(|entry| entry["in_run"].is_string()) {
            return crate::masks::lines(entries);
        }
        let line = |entry: &serde_json::Value| {
            let time = time_of_day(entry["at_ns"].as_i64().unwrap_or(0));
            let run = entry["run"].as_u64().map_or_else(String::new, |run| format!("run {run}: "));
            format!(
                "{time} {:8} {run}{}",
                entry["kind"].as_str().unwrap_or_default(),
                entry["text"].as_str().unwrap_or_default()
            )
        };
        return entries.iter().map(line).collect();
    }
    if replied.status == 404 {
        return Vec::new();
    }
    if body["restarted"].is_array() {
        return crate::masks::restarted(body);
    }
    if body["files"].is_array() {
        return crate::runs::lines(body);
    }
    if body["series"].is_object() {
        return vec![match body["run"].as_u64() {
            Some(run) => format!("the present run is compared with run {run}, in steps of {} s", body["step_seconds"]),
            None => "the present run is compared with none".to_owned(),
        }];
    }
    let allowed: Vec<_> = body["allowed"].as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
    let mut lines = Vec::new();
    let said = text(replied, "answer");
    if !said.is_empty() {
        lines.push(format!("{}: {}", text(replied, "command"), said.replace('_', " ")));
    }
    for name in ["text", "error", "trouble"] {
        lines.extend(body[name].as_str().map(str::to_owned));
    }
    let run = body["run"].as_u64().map_or_else(String::new, |run| format!("  run {run}"));
    if let Some(note) = body["kind"].as_str().filter(|_| body["text"].is_string()) {
        lines.push(format!("{note} of run {}, by {}", body["run"], text(replied, "by")));
    }
    if let Some(operator) = body.get("operator") {
        lines.push(match operator["name"].as_str() {
            Some(name) => {
                let since = time_of_day(operator["since_ns"].as_i64().unwrap_or(0));
                format!("{name} holds the controls since {since} UTC")
            }
            None => "control is free: any client may send commands".to_owned(),
        });
    }
    if let Some(fields) = body["fields"].as_object().filter(|fields| !fields.is_empty()) {
        let said: Vec<_> =
            fields.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
        lines.push(said.join(", "));
    }
    if !text(replied, "state").is_empty() {
        lines.push(format!("state {}{run}  allowed: {}", text(replied, "state"), allowed.join(", ")));
    }
    lines
}
